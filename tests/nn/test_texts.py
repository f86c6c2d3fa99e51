"""What programs print (modules, optimizers, results, sets of distributions) reads as torch does, but for the name."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import genesis

OPTIMIZERS = ("SGD", "Adam", "AdamW", "NAdam", "RAdam", "Adagrad", "Adadelta", "RMSprop", "Rprop", "Adamax", "ASGD",
              "LBFGS", "Muon")

MODULES: dict[str, Callable[[Any], Any]] = {
    "neighbours that are alike": lambda nn: nn.ModuleList(
        [*(nn.Linear(2, 3) for _ in range(3)), nn.ReLU(), nn.Linear(2, 3)]),
    "an empty list": lambda nn: nn.ModuleList(),
    "rows of modules added and repeated": lambda nn: [
        nn.Sequential(nn.ReLU()) + nn.Sequential(nn.Linear(2, 1)), nn.Sequential(nn.ReLU(), nn.Tanh()) * 2,
        2 * nn.Sequential(nn.Tanh())],
    "a list in a transformer": lambda nn: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2),
    "attention": lambda nn: nn.MultiheadAttention(8, 2),
    "parameters in a list": lambda nn: nn.ParameterList([*nn.Linear(2, 3).parameters(), 1]),
    "parameters by name": lambda nn: nn.ParameterDict({"a": nn.Linear(2, 3).weight, "b": "text"}),
    "a linear layer to be made": lambda nn: nn.LazyLinear(3, bias=False),
    "a convolution to be made": lambda nn: nn.LazyConv2d(3, 2, padding=1),
    "a norm to be made": lambda nn: nn.LazyBatchNorm1d(),
    "a pool undone": lambda nn: nn.MaxUnpool2d(2, padding=(0, 1)),
}

VALUES: dict[str, Callable[[Any], Any]] = {
    **{name: lambda T, name=name: getattr(T, name)(T.tensor([3.0, 1.0, 1.0]), 0) for name in (
        "max", "min", "sort", "cummax", "cummin", "median", "nanmedian", "mode")},
    "topk": lambda T: T.tensor([3, 1, 2]).topk(2),
    "kthvalue": lambda T: T.tensor([3, 1, 2]).kthvalue(2),
    "aminmax": lambda T: T.tensor([3, 1, 2]).aminmax(),
    "frexp": lambda T: T.frexp(T.tensor([3.0])),
    "qr": lambda T: T.qr(T.eye(2) * 2),
    "linalg.qr": lambda T: T.linalg.qr(T.eye(2) * 2),
    "svd": lambda T: T.svd(T.eye(2)),
    "linalg.svd": lambda T: T.linalg.svd(T.eye(2)),
    "eigh": lambda T: T.linalg.eigh(T.eye(2)),
    "slogdet": lambda T: T.slogdet(T.eye(2)),
    "lu_factor": lambda T: T.linalg.lu_factor(T.eye(2)),
    "lu": lambda T: T.linalg.lu(T.eye(2)),
    "histogram": lambda T: T.histogram(T.tensor([1.0, 2.0]), 2),
    "sizes": lambda T: [f(T.ones(2, 3, 4).shape) for f in (
        lambda s: s[1:], lambda s: s[::-1], lambda s: s[1:].numel(), lambda s: s[0], lambda s: s + (1,),
        lambda s: (5,) + s, lambda s: s * 2, lambda s: 2 * s[:1], lambda s: s + s[:0], lambda s: (*s, 7))],
    "a sparse tensor's sizes": lambda T: T.eye(2).to_sparse().shape,
    "keys that differ": lambda T: T.nn.Linear(2, 2).load_state_dict({"weight": T.eye(2), "more": T.eye(2)}, False),
    "finfo": lambda T: [T.finfo(dtype) for dtype in (T.float16, T.bfloat16, T.float32, T.float64)],
    "iinfo": lambda T: [T.iinfo(dtype) for dtype in (T.uint8, T.int8, T.int32, T.int64)],
    "sparse": lambda T: [T.eye(2).to_sparse(), (T.eye(2, dtype=T.int32) * 3).to_sparse(),
                         T.sparse_coo_tensor([[0], [1]], [2.0], (2, 2), requires_grad=True)],
    "scalars in texts": lambda T: [f"{x} {x:>9}" for x in (
        T.tensor(3), T.tensor(2.5), T.tensor(True), T.ones(2, requires_grad=True).sum())],
    "digits of scalars": lambda T: f"{T.tensor(3.14159):.3f} {T.tensor(7):03d} {T.tensor(0.5):.1%}",
    "tensors in texts": lambda T: f"{T.ones(2)} {T.nn.Parameter(T.tensor(1.0))}",
    "a distribution of numbers": lambda T: T.distributions.Normal(0.0, 1.0),
    "a mixture": lambda T: T.distributions.MixtureSameFamily(
        T.distributions.Categorical(T.ones(2)), T.distributions.Normal(T.zeros(2), T.ones(2))),
    "transforms": lambda T: [T.distributions.ComposeTransform([
        T.distributions.ExpTransform(), T.distributions.AffineTransform(0, 2)]),
        T.distributions.IndependentTransform(T.distributions.ExpTransform(), 1), T.distributions.TanhTransform().inv],
    "constraints": lambda T: [getattr(T.distributions.constraints, name) for name in (
        "positive", "nonnegative", "unit_interval", "real", "real_vector", "boolean", "simplex", "positive_integer",
        "nonnegative_integer", "lower_cholesky", "positive_definite")],
    "constraints with bounds": lambda T: [
        T.distributions.constraints.greater_than(2), T.distributions.constraints.half_open_interval(0, 1.5),
        T.distributions.constraints.integer_interval(0, 5), T.distributions.constraints.less_than(1)],
}


def text_of(make: Callable[[Any], Any], T: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = make(T)
        return repr(made).replace("torch", "genesis")


@pytest.mark.parametrize("name", MODULES)
def test_a_module_reads_as_torchs(name: str) -> None:
    assert text_of(MODULES[name], genesis.nn) == text_of(MODULES[name], torch.nn)


@pytest.mark.parametrize("name", VALUES)
def test_a_value_reads_as_torchs(name: str) -> None:
    assert text_of(VALUES[name], genesis) == text_of(VALUES[name], torch)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_has_torchs_options_and_text(name: str) -> None:
    ours, theirs = (getattr(T.optim, name)([T.ones(2, 2, requires_grad=True)]) for T in (genesis, torch))
    assert repr(ours) == repr(theirs)
    assert ours.defaults == theirs.defaults
    mine, other = ({key: value for key, value in x.param_groups[0].items() if key != "params"} for x in (ours, theirs))
    assert list(mine.items()) == list(other.items())


def test_only_numbers_take_formats() -> None:
    for T in (genesis, torch):
        with pytest.raises(TypeError, match="unsupported format string passed to Tensor"):
            f"{T.ones(2):.3f}"
        with pytest.raises(TypeError, match="unsupported format string passed to Parameter"):
            f"{T.nn.Parameter(T.tensor(1.0)):.3f}"


def test_a_tensor_without_elements_is_not_drawn() -> None:
    for T in (genesis, torch):
        with pytest.warns(UserWarning, match="zero-element"):
            layer = T.nn.Conv2d(0, 3, 2)
        assert layer.weight.shape == (3, 0, 2, 2)
