"""PyTorch's own samples for its operators, beside the names that Genesis has.

torch ships `op_db`: a table of its operators with sample inputs for each dtype, wrong inputs, and what is
differentiable. `OPERATORS` holds those whose name Genesis has too, found by the name alone, so that a new name
is tested from the day it exists.
"""

from __future__ import annotations

import random
import sys
import types
import unittest
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import genesis
from genesis import Tensor
from genesis.nn import functional as F


def _load() -> list[Any]:
    """torch's table. It wants `expecttest` only for a base class of torch's own tests, and reads sys.argv."""
    if "expecttest" not in sys.modules:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    argv, sys.argv = sys.argv, sys.argv[:1]
    try:
        from torch.testing._internal import common_utils
        from torch.testing._internal.common_methods_invocations import op_db
        from torch.testing._internal.opinfo import core
    finally:
        sys.argv = argv
    # To make samples, torch looks through the stack for a test of its own, which reads the sources of all modules:
    # 0.1 s for each operator and dtype, nine tenths of the time of the tests that use these samples.
    core.extract_test_fn = common_utils.extract_test_fn = lambda: None
    common_utils.set_rng_seed = seed
    return op_db


def seed(number: int) -> None:
    """Seed what samples are drawn from. `torch.manual_seed` also notes the seed for each kind of accelerator, with the
    stack as a text, in lists that grow where there is none: 4 ms."""
    torch.default_generator.manual_seed(number)
    random.seed(number)
    np.random.seed(number)


@dataclass(frozen=True)
class Operator:
    """One row of torch's table and Genesis's function of that name.

    Attributes:
        name: as a test's name: "div.floor_rounding".
        info: torch's `OpInfo`.
        function: Genesis's, called as the samples call torch's.
        in_place: Genesis's method of the name with an underscore, None where torch or Genesis has none.
        random: values are drawn: only shapes and dtypes are compared.
    """

    name: str
    info: Any
    function: Callable[..., Any]
    in_place: Callable[..., Any] | None
    random: bool

    def __repr__(self) -> str:
        return self.name


ADAPTERS: dict[str, Callable[..., Any]] = {
    "einsum": lambda tensors, equation: genesis.einsum(equation, tensors),  # type: ignore[attr-defined]
    "nn.functional.embedding": lambda weight, ids, **how: F.embedding(ids, weight, **how),
    "nn.functional.embedding_bag": lambda weight, ids, **how: F.embedding_bag(ids, weight, **how),  # type: ignore
    "nn.functional.triplet_margin_with_distance_loss": lambda *x, distance_function=None, **how: (
        F.triplet_margin_with_distance_loss(*x, **how)),  # the samples' distance is the default one, as torch's module
    "where": lambda x, condition, *other, **how: genesis.where(condition, x, *other, **how),
    "normal.number_mean": lambda std, mean, *args, **how: genesis.normal(mean, std, *args, **how),
    "broadcast_shapes": lambda *shapes: torch.Size(genesis.broadcast_shapes(*shapes)),
    "repeat": lambda x, dims: x.repeat(dims),
    "resize_": lambda x, shape: x.clone().resize_(shape),
    "zero_": lambda x: x.clone().zero_(),
    "polygamma": lambda x, n, **how: genesis.polygamma(n, x, **how),
    "normal.in_place": lambda x, *args, **how: x.normal_(*args, **how),
    "linalg.lstsq.grad_oriented": lambda a, b, driver: genesis.linalg.lstsq(a, b, driver=driver)[:2],  # type: ignore
    "special.polygamma": lambda x, n, **how: genesis.special.polygamma(n, x, **how),
    "pca_lowrank": lambda a, b, **how: genesis.pca_lowrank(a @ b.mT, **how),  # type: ignore[attr-defined]
    "svd_lowrank": lambda a, b, **how: genesis.svd_lowrank(a @ b.mT, **how),  # type: ignore[attr-defined]
    "linalg.pinv.singular": lambda a, b, **how: genesis.linalg.pinv(a @ b.mT, **how),  # type: ignore[attr-defined]
}
"""How Genesis is called where torch's table calls a lambda with the arguments in another order."""

RANDOM = frozenset({
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric",
    "log_normal", "multinomial", "new_empty", "new_empty_strided",
    "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d",
    "nn.functional.dropout3d", "nn.functional.feature_alpha_dropout", "nn.functional.rrelu", "normal", "rand_like",
    "pca_lowrank", "randint", "randint_like", "randn", "randn_like", "resize_", "svd_lowrank",
    "uniform",
})
"""Names whose values torch and Genesis draw from different generators, or leave open."""

METHODS_ONLY = frozenset({
    "bfloat16", "bool", "byte", "char", "contiguous", "double", "expand", "expand_as", "float", "half", "int", "item",
    "long", "new_empty", "new_full", "new_ones", "new_zeros", "repeat", "reshape_as", "short", "sum_to_size", "to",
    "unfold", "view", "view_as",
})
"""Names that the table calls as methods, whatever Genesis has under the same name elsewhere."""


def look_up(root: Any, name: str) -> Any:
    """`root.a.b` for "a.b"; None where a part is missing."""
    for part in name.split("."):
        root = getattr(root, part, None)
    return root


def function_of(name: str, full_name: str) -> Callable[..., Any] | None:
    """Genesis's function, method or property of this name, or None."""
    inner = look_up(genesis, name)
    method = getattr(Tensor, name, None)
    for key in (full_name, name):
        if key in ADAPTERS and (callable(inner) or method is not None or name == "normal"):
            return ADAPTERS[key]
    if callable(inner) and name not in METHODS_ONLY and not isinstance(inner, type):
        return inner
    if isinstance(method, property):
        return lambda x: getattr(x, name)
    if callable(method) and (name not in dir(object) or name.startswith("__r")):
        return method_of_tensors(method)
    drawing = getattr(Tensor, name + "_", None)  # "exponential" is `exponential_` on the input
    return method_of_tensors(drawing) if name in RANDOM and callable(drawing) else None


def method_of_tensors(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, refusing other objects as torch's does."""
    def call(x: Any, *args: Any, **how: Any) -> Any:
        if not isinstance(x, Tensor):
            raise TypeError(f"a method of Tensor, called on {type(x).__name__}")
        return method(x, *args, **how)
    return call


def found() -> list[Operator]:
    """All operators of torch's table that Genesis has a name for, in the table's order."""
    operators = []
    for info in _load():
        full = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        function = function_of(info.name, full)
        if function is None:
            continue
        in_place = getattr(Tensor, info.name + "_", None) if info.inplace_variant is not None else None
        operators.append(Operator(full, info, function, in_place, info.name in RANDOM))
    return operators


OPERATORS: list[Operator] = found()
