"""Torch's tensors where functions want tensors, and other libraries' dtypes where they want dtypes: the advice."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import genesis
import genesis.nn.functional as F

PLACES = {"genesis": (genesis, torch), "F": (F, torch.nn.functional), "linalg": (genesis.linalg, torch.linalg),
          "special": (genesis.special, torch.special)}
NUMBERS = {"dim": 0, "dim0": 0, "dim1": 1, "k": 1, "n": 1, "p": 2, "r": 1, "size": (2, 2), "shape": (2, 2),
           "sizes": (2, 2), "dims": (0, 1), "times": 2, "kernel_size": 2, "sections": 2, "chunks": 2, "shifts": 1,
           "stride": (2, 1), "equation": "ij", "reduce": "sum", "min": 0, "axes": 0}

NO_TENSOR_FIRST = [
    "as_tensor", "asarray", "bartlett_window", "blackman_window", "broadcast_shapes", "can_cast", "compile", "empty",
    "empty_permuted", "empty_strided", "eye", "from_dlpack", "from_numpy", "frombuffer", "get_autocast_dtype",
    "hamming_window", "hann_window", "is_tensor", "kaiser_window", "linspace", "load", "logspace", "manual_seed",
    "ones", "promote_types", "rand", "randint", "randn", "randperm", "save", "set_default_device", "set_default_dtype",
    "set_default_tensor_type", "set_float32_matmul_precision", "set_flush_denormal", "set_num_interop_threads",
    "set_num_threads", "set_rng_state", "sparse_coo_tensor",
    "tensor", "tril_indices", "triu_indices", "typename", "use_deterministic_algorithms",
    "vmap", "zeros"]
"""Want no tensor there: their own tests have what they refuse."""

OPERATORS = [
    "conj_physical_", "feature_alpha_dropout", "is_complex", "is_conj", "is_inference", "is_neg", "pairwise_distance",
    "triplet_margin_with_distance_loss"]
"""Look at nothing but operators and methods, which torch's tensors have too: what they give is torch's own."""

OTHER_ERRORS = [
    "block_diag", "broadcast_tensors", "clamp", "clip", "cumprod", "cumsum", "fill", "float_power", "imag",
    "index_reduce", "isin", "rsub", "solve_triangular", "spmm"]
"""Miss or refuse another argument of this test's before they see what the tensor is."""


def functions() -> Iterator[Any]:
    for place, (ours, theirs) in PLACES.items():
        for name in sorted(set(dir(ours)) & set(dir(theirs))):
            function = getattr(ours, name)
            if not name.startswith("_") and inspect.isfunction(function) and name not in NO_TENSOR_FIRST:
                wanted = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
                if wanted:
                    yield pytest.param(name, function, wanted, id=f"{place}.{name}")


def arguments(wanted: list[inspect.Parameter]) -> list[Any]:
    """For each argument without a default torch's tensor, or a number where its name says so."""
    x = torch.ones(2, 2)
    given = [[x, x] if p.name == "tensors" and p.kind is p.POSITIONAL_OR_KEYWORD else NUMBERS.get(p.name, x)
             for p in wanted if p.kind is not p.KEYWORD_ONLY and p.kind is not p.VAR_KEYWORD]
    return given


@pytest.mark.parametrize(("name", "function", "wanted"), functions())
def test_a_torch_tensor_is_told_how_to_be_converted(name: str, function: Callable, wanted: list) -> None:
    if name in OPERATORS:
        result = function(*arguments(wanted))
        assert not isinstance(result, genesis.Tensor)
    elif name in OTHER_ERRORS:
        with pytest.raises((TypeError, RuntimeError, ValueError)):
            function(*arguments(wanted))
    else:
        with pytest.raises(TypeError, match=r"torch\.Tensor(.|\n)*genesis\.from_dlpack"):
            function(*arguments(wanted))


def test_a_tensor_among_ours() -> None:
    x, other = genesis.ones(2, 2), torch.ones(2, 2)
    for call in (lambda: genesis.stack([x, other]), lambda: genesis.einsum("ij,jk->ik", x, other),
                 lambda: genesis.maximum(x, other), lambda: genesis.mm(x, other), lambda: x.to(other),
                 lambda: genesis.where(x > 0, x, other), lambda: F.cross_entropy(x, other),
                 lambda: genesis.flip(other, 0), lambda: genesis.index_reduce(other, 0, x, x, "mean"),
                 lambda: genesis.broadcast_tensors(x, other), lambda: x.type_as(other)):
        with pytest.raises(TypeError, match=r"torch\.Tensor(.|\n)*genesis\.from_dlpack"):
            call()


@pytest.mark.parametrize("array", [np.ones((2, 2)), [[1.0]], "text", None], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("call", [genesis.sum, genesis.argmax, genesis.transpose, genesis.reshape, F.max_pool1d])
def test_other_things_are_no_tensors_either(call: Callable, array: Any) -> None:
    others = {genesis.transpose: (0, 1), genesis.reshape: (-1,), F.max_pool1d: (1,)}.get(call, ())
    with pytest.raises(TypeError, match="expected a genesis tensor, not"):
        call(array, *others)


TAKE_DTYPES = {
    "zeros": lambda d: genesis.zeros(2, dtype=d), "full": lambda d: genesis.full((2,), 1, dtype=d),
    "tensor": lambda d: genesis.tensor([1.0], dtype=d), "arange": lambda d: genesis.arange(3, dtype=d),
    "linspace": lambda d: genesis.linspace(0, 1, 3, dtype=d), "eye": lambda d: genesis.eye(2, dtype=d),
    "rand": lambda d: genesis.rand(2, dtype=d), "randint": lambda d: genesis.randint(0, 3, (2,), dtype=d),
    "zeros_like": lambda d: genesis.zeros_like(genesis.ones(2), dtype=d),
    "new_zeros": lambda d: genesis.ones(2).new_zeros(2, dtype=d), "to": lambda d: genesis.ones(2).to(dtype=d),
    "sum": lambda d: genesis.ones(2).sum(dtype=d), "softmax": lambda d: genesis.ones(2).softmax(0, dtype=d),
    "cumsum": lambda d: genesis.ones(2).cumsum(0, dtype=d), "prod": lambda d: genesis.ones(2).prod(dtype=d),
    "Linear": lambda d: genesis.nn.Linear(2, 2, dtype=d), "Module.to": lambda d: genesis.nn.Linear(2, 2).to(dtype=d),
    "autocast": lambda d: genesis.autocast("cpu", dtype=d), "finfo": lambda d: genesis.finfo(d),
    "set_default_dtype": lambda d: genesis.set_default_dtype(d),
    "promote_types": lambda d: genesis.promote_types(genesis.float32, d),
    "hann_window": lambda d: genesis.hann_window(3, dtype=d),
    "frombuffer": lambda d: genesis.frombuffer(b"\0" * 8, dtype=d),
    "can_cast": lambda d: genesis.can_cast(d, genesis.float32),
}


@pytest.mark.parametrize("dtype", [torch.float64, "float64", np.float64, np.dtype("float64")], ids=repr)
@pytest.mark.parametrize("call", TAKE_DTYPES.values(), ids=TAKE_DTYPES)
def test_another_librarys_dtype_says_which_of_ours(call: Callable, dtype: Any) -> None:
    with pytest.raises(TypeError, match=r"expected a genesis dtype(.|\n)*genesis\.float64"):
        call(dtype)


@pytest.mark.parametrize("call", [
    x for name, x in TAKE_DTYPES.items() if name not in ("autocast", "set_default_dtype")])
def test_pythons_float_is_float64(call: Callable) -> None:
    assert repr(call(float)) and repr(getattr(call(float), "dtype", None)) == repr(
        getattr(call(genesis.float64), "dtype", None))


@pytest.mark.parametrize("dtype", [torch.float64, np.float64, np.dtype("float64")], ids=repr)
def test_a_dtype_by_place(dtype: Any) -> None:
    for target in (genesis.ones(2), genesis.nn.Linear(2, 2)):
        with pytest.raises(TypeError, match=r"expected a genesis dtype(.|\n)*genesis\.float64"):
            target.to(dtype)


def test_a_dtype_that_there_is_not_lists_those_that_are() -> None:
    with pytest.raises(TypeError, match=r"complex64(.|\n)*one of(.|\n)*float32"):
        genesis.zeros(2, dtype=torch.complex64)
