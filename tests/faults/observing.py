"""The state of a program, as its user can see it: every tensor's bytes, counts, modes and the random state."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import genesis
from genesis.frontend.generator import default_generator
from genesis.frontend.grad_mode import mode
from genesis.frontend.later_number import LaterNumber
from genesis.frontend.state import lock, state
from tests.faults.events import was_injected

Value = Any
"""Bytes and type of a tensor, a number, or `Raises`."""


@dataclass(frozen=True)
class Raises:
    """A tensor that cannot be read: it raises this.

    Attributes:
        injected: it raises the error that was injected, as what a failed plan was to compute does.
    """

    error: str
    injected: bool


@dataclass
class Observed:
    """What a user sees of a program.

    Attributes:
        kept: parameters, buffers, optimizer state and counts, by name: readable at any time.
        bound: gradients, and values of the program's variables.
        modes: grad mode, autocast, defaults, and whether any lock is still held.
        draws: (seed, number of draws) of the default generator.
    """

    kept: dict[str, Value] = field(default_factory=dict)
    bound: dict[str, Value] = field(default_factory=dict)
    modes: dict[str, Any] = field(default_factory=dict)
    draws: tuple[int, int] = (0, 0)


def modes() -> dict[str, Any]:
    """The modes that a statement may change for a time."""
    from genesis.frontend.autocast_policy import state as autocast
    return {"grad": mode.enabled, "inference": mode.inference, "autocast": autocast.dtypes,
            "dtype": genesis.get_default_dtype(), "device": str(genesis.get_default_device()),
            "collects garbage": gc.isenabled(), "lock held": lock._is_owned(),  # type: ignore[attr-defined]
            "session": state.session is not None, "regions": len(state.regions),
            "on stand-ins": len(state.rewriting.calls),
            "compiling": genesis.compiler.is_compiling(), "profile": sys.getprofile()}


def value_of(x: Any) -> Value:
    """What a tensor or a number shows; reading it computes what is pending."""
    if not isinstance(x, genesis.Tensor):
        return _number(x)
    try:
        shown = x.detach().to("cpu")
        if shown.dtype is genesis.bfloat16:
            shown = shown.float()
        array = np.array(shown.numpy())
    except BaseException as error:  # a KeyboardInterrupt too, where a tensor keeps one
        return Raises(f"{type(error).__name__}: {error}"[:200], was_injected(error))
    return str(x.dtype), array.shape, array.tobytes()


def _number(x: Any) -> Value:
    """A number itself, or those in a tuple. What stands for one is none: it may be equal to it."""
    if type(x) is tuple:
        return tuple([_number(y) for y in x])
    return Raises("a number that stands for a value is left", False) if type(x) is LaterNumber else x


def values_of(named: Iterable[tuple[str, Any]]) -> dict[str, Value]:
    """The values of several, read in their order."""
    return {name: value_of(x) for name, x in named}


def differences(found: Mapping[str, Value], expected: Mapping[str, Value], exact: bool = True) -> list[str]:
    """The names whose values differ: by a bit or, where it is not `exact`, by more than float rounding of a sum."""
    return [name for name in dict.fromkeys((*expected, *found))
            if name not in found or name not in expected or not _same(found[name], expected[name], exact)]


def has_nan(x: Value) -> bool:
    """Whether a number or a tensor of float32 or more is, or has, a NaN."""
    if isinstance(x, tuple) and len(x) == 3 and x[0] in ("genesis.float32", "genesis.float64"):
        return bool(np.isnan(np.frombuffer(x[2], x[0].removeprefix("genesis."))).any())
    return isinstance(x, float) and x != x


def _same(x: Value, y: Value, exact: bool) -> bool:
    if x == y or (x != x and y != y):  # a loss that was read is a number, which may be NaN
        return True
    tensors = isinstance(x, tuple) and isinstance(y, tuple) and x[:2] == y[:2] and isinstance(x[0], str)
    if exact or not tensors:  # a tuple of numbers is as it is
        return False
    kind = x[0].removeprefix("genesis.")
    if not kind.startswith(("float", "bfloat")):
        return False
    dtype = "float32" if kind == "bfloat16" else kind
    tolerance = 1e-5 if dtype == "float32" and kind != "bfloat16" else 2e-2  # another fusion rounds sums otherwise
    return np.allclose(np.frombuffer(x[2], dtype), np.frombuffer(y[2], dtype), rtol=tolerance, atol=tolerance,
                       equal_nan=True)


def draws() -> tuple[int, int]:
    """The default generator's (seed, number of draws)."""
    return default_generator._seed, default_generator._draws


def set_draws(seed: int, count: int) -> None:
    """Put the default generator there."""
    default_generator._seed, default_generator._draws = seed, count
