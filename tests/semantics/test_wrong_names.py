"""A wrong name says which right one is near; a tensor of another library says how to convert it."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch

import genesis
from genesis import nn, optim
from genesis.ir.errors import NotAnOperand
from genesis.nn import functional as F

WEIGHTS = [genesis.ones(1, requires_grad=True)]


@pytest.mark.parametrize(("call", "error", "right"), [
    (lambda: genesis.sofmax, AttributeError, "softmax"),
    (lambda: genesis.no_gard, AttributeError, "no_grad"),
    (lambda: F.rlu, AttributeError, "relu"),
    (lambda: nn.Linaer, AttributeError, "Linear"),
    (lambda: nn.linear, AttributeError, "Linear"),
    (lambda: optim.Adamw, AttributeError, "AdamW"),
    (lambda: optim.lr_scheduler.StepRL, AttributeError, "StepLR"),
    (lambda: nn.init.xavier_unifrm_, AttributeError, "xavier_uniform_"),
    (lambda: nn.utils.clip_grad_nrom_, AttributeError, "clip_grad_norm_"),
    (lambda: genesis.linalg.nrom, AttributeError, "norm"),
    (lambda: genesis.special.expti, AttributeError, "expit"),
    (lambda: genesis.cuda.is_avalable, AttributeError, "is_available"),
    (lambda: genesis.amp.autcast, AttributeError, "autocast"),
    (lambda: genesis.func.vmapp, AttributeError, "vmap"),
    (lambda: genesis.random.see, AttributeError, "seed"),
    (lambda: genesis.autograd.gard, AttributeError, "grad"),
    (lambda: genesis.compiler.rest, AttributeError, "reset"),
    (lambda: genesis.utils.dta, AttributeError, "data"),
    (lambda: genesis.utils.data.DataLoder, AttributeError, "DataLoader"),
    (lambda: genesis.signal.window, AttributeError, "windows"),
    (lambda: genesis.models.GPTConfg, AttributeError, "GPTConfig"),
    (lambda: genesis.checkpointing.CheckpointManger, AttributeError, "CheckpointManager"),
    (lambda: nn.Linear(2, 2).wieght, AttributeError, "weight"),
    (lambda: nn.Sequential(nn.Linear(2, 2)).froward, AttributeError, "forward"),
    (lambda: nn.Linear(2, 2, biass=False), TypeError, "bias"),
    (lambda: nn.Conv2d(1, 1, 1, pading=1), TypeError, "padding"),
    (lambda: optim.Adam(WEIGHTS, learning_rate=1), TypeError, "lr"),
    (lambda: optim.lr_scheduler.StepLR(optim.SGD(WEIGHTS, lr=1), step_sise=2), TypeError, "step_size"),
    (lambda: optim.AdamW(WEIGHTS, beta=(0.9, 0.99)), TypeError, "betas"),
    (lambda: genesis.tensor(1, device="gpu"), RuntimeError, "cuda"),
    (lambda: genesis.ones(1).to("cdua:0"), RuntimeError, "cuda"),
    (lambda: genesis.device("CUDA"), RuntimeError, "cuda"),
])
def test_what_was_meant(call: Callable, error: type, right: str) -> None:
    with pytest.raises(error, match=f"did you mean '{right}'"):
        call()


@pytest.mark.parametrize(("call", "right"), [
    (lambda x: genesis.zeros(2, dtyp=genesis.float32), "dtype"),
    (lambda x: genesis.arange(end=3, stp=2), "step"),
    (lambda x: genesis.stack(tensor=[x]), "tensors"),
    (lambda x: genesis.reshape(x, shap=(4,)), "shape"),
    (lambda x: F.gelu(x, aproximate="tanh"), "approximate"),
    (lambda x: F.linear(x, wieght=x), "weight"),
    (lambda x: F.max_pool2d(x, kernel_sise=2), "kernel_size"),
    (lambda x: x.sum(dims=0), "dim"),
    (lambda x: x.cumsum(dmi=0), "dim"),
    (lambda x: x.cholesky(uper=True), "upper"),
    (lambda x: x.backward(retain_grap=True), "retain_graph"),
    (lambda x: genesis.linalg.norm(x, ordd=2), "ord"),
    (lambda x: genesis.special.logsumexp(x, dmi=0), "dim"),
    (lambda x: genesis.signal.windows.kaiser(3, bete=1.0), "beta"),
    (lambda x: nn.init.normal_(x, mena=3), "mean"),
    (lambda x: genesis.vmap(fun=3), "func"),
])
def test_the_keyword_that_was_meant(call: Callable, right: str) -> None:
    """The error has the operands, this line and the signature."""
    with pytest.raises(TypeError, match=f"got an unexpected keyword argument '.*'; did you mean '{right}'") as caught:
        call(genesis.ones(2, 2))
    assert f"test_wrong_names.py:{caught.traceback[1].lineno + 1}: " in str(caught.value)
    assert f"{right}" in str(caught.value).rpartition("try: ")[2]


def test_every_method_names_the_keyword_that_was_meant() -> None:
    x, silent = genesis.ones(2, 2), []
    for name in dir(genesis.Tensor):
        method = inspect.getattr_static(genesis.Tensor, name)
        if name.startswith("_") or not inspect.isfunction(method):
            continue
        words = [word for word, p in inspect.signature(method).parameters.items() if word not in ("input", "self")
                 and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        for word in words[-1:]:
            try:
                method(x, **{word + "q": 1})
            except TypeError as error:
                told = f"got an unexpected keyword argument '{word}q'; did you mean '{word}" in str(error)
                if told and "(2, 2) on cpu\n  at " in str(error) and "try: " in str(error):
                    continue
            silent.append(name)
    assert silent == []


def test_an_argument_that_is_left_out() -> None:
    with pytest.raises(TypeError, match=r"linear: missing 1 required argument: 'weight'\n  input: .*\(2, 2\)"):
        F.linear(genesis.ones(2, 2))
    with pytest.raises(TypeError, match=r"full: missing 2 required arguments: 'size' and 'fill_value'"):
        genesis.full()


def test_public_functions_are_found_where_they_say_that_they_are() -> None:
    """For `pickle`, `inspect` and documentation; a name is one function wherever it stands."""
    assert F.gelu is not F.gelu.__wrapped__ and genesis.relu is F.relu
    for function in (genesis.zeros, genesis.sum, genesis.Tensor.sum, genesis.Tensor.view, F.gelu, nn.init.normal_,
                     genesis.linalg.norm, genesis.signal.windows.kaiser, genesis.vmap, genesis.sin_):
        assert pickle.loads(pickle.dumps(function)) is function
    assert str(inspect.signature(F.gelu)) == "(input: 'Tensor', approximate: 'str' = 'none') -> 'Tensor'"
    assert inspect.getsource(F.gelu).startswith("def gelu(") and "cdf" in (F.gelu.__doc__ or "")


def test_an_attribute_error_of_a_users_function_is_its_own() -> None:
    settings = object()
    with pytest.raises(AttributeError, match="'object' object has no attribute 'shape'"):
        genesis.checkpoint(lambda x: x * settings.shape[0], genesis.ones(1), use_reentrant=False)  # type: ignore


def test_a_wrong_device_is_a_wrong_name() -> None:
    """It does not ask for a driver."""
    for name in ("gpu", "mps", "cuda:x", "tpu:1"):
        with pytest.raises(RuntimeError, match="invalid device"):
            genesis.tensor(1, device=name)
    assert genesis.tensor(1, device="cpu:0").device == genesis.device("cpu")
    assert genesis.ones(1, device=torch.device("cpu")).device == genesis.device("cpu")


def test_a_name_that_nothing_is_near() -> None:
    with pytest.raises(AttributeError) as caught:
        genesis.xqzzzy  # noqa: B018
    assert "did you mean" not in str(caught.value)
    assert not hasattr(nn.Linear(2, 2), "wieght") and not hasattr(genesis, "__wrapped__")


def test_keywords_of_a_users_own_module() -> None:
    class Own(nn.Module):
        def __init__(self, width: int, **others: int):
            super().__init__()
            self.width, self.others = width, others

    class Strict(nn.Module):
        def __init__(self, *, width: int = 1):
            super().__init__()
    assert Own(width=1, anything=2).others == {"anything": 2}
    with pytest.raises(TypeError, match="did you mean 'width'"):
        Strict(widht=2)


@pytest.mark.parametrize("call", [
    lambda x: nn.Linear(2, 2)(x), lambda x: nn.Conv1d(2, 2, 1)(x), lambda x: nn.LayerNorm(2)(x), lambda x: F.relu(x),
    lambda x: nn.Sequential(nn.Linear(2, 2), nn.ReLU())(x), lambda x: genesis.cat([genesis.ones(2, 2), x]),
    lambda x: nn.Parameter(x), lambda x: optim.SGD([x], lr=0.1), lambda x: genesis.exp(x), lambda x: genesis.add(x, 1),
    lambda x: F.linear(genesis.ones(2, 2), x), lambda x: F.mse_loss(genesis.ones(2, 2), x),
    lambda x: genesis.matmul(genesis.ones(2, 2), x), lambda x: genesis.ones(2, 2).add_(x)])
def test_a_tensor_of_another_library(call: Callable) -> None:
    with pytest.raises(TypeError, match=r"(not|is) torch\.Tensor(.|\n)*genesis\.tensor") as caught:
        call(torch.ones(2, 2))
    assert not isinstance(caught.value, NotAnOperand) or "test_wrong_names.py:" in str(caught.value)
    with pytest.raises(TypeError, match=r"(not|is) numpy\.ndarray(.|\n)*genesis\.tensor"):
        call(np.ones((2, 2)))


def test_a_state_dict_of_torchs() -> None:
    with pytest.raises(RuntimeError, match=r"weight.*not torch\.Tensor"):
        nn.Linear(2, 2).load_state_dict(torch.nn.Linear(2, 2).state_dict())
