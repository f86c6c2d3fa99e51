"""What of a schedule's attributes goes into its state dict, and how it comes back.

Numbers, texts and containers of them go as they are, tensors too. A schedule inside another one goes as its own state,
and an object that is called for a factor as its attributes, as in torch. Functions have no state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from numbers import Real
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, Final

from genesis.frontend.recording import TensorBase
from genesis.ir.sequences import sequence_of

FUNCTIONS: Final = (FunctionType, BuiltinFunctionType, MethodType, type)
"""What is called and has nothing of its own to save."""


def is_plain(value: Any) -> bool:
    """Whether a value is data: numbers, texts, None, tensors, and lists, tuples and dicts of these."""
    if value is None or isinstance(value, (Real, str, TensorBase)):
        return True
    if isinstance(value, Mapping):
        return all(isinstance(key, (Real, str)) for key in value) and all(map(is_plain, value.values()))
    return isinstance(value, (list, tuple)) and all(map(is_plain, value))


def copied(value: Any) -> Any:
    """Plain data whose lists and dicts are new ones."""
    if isinstance(value, Counter):
        return Counter(value)
    if isinstance(value, Mapping):
        return {key: copied(x) for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        return sequence_of(type(value), [copied(x) for x in value])
    return value


def is_like(value: Any, own: Any) -> bool:
    """Whether a value has the kind of the one that it replaces: a number for a number, and so on."""
    if isinstance(own, str):
        return isinstance(value, str)
    if isinstance(own, Mapping):
        return isinstance(value, Mapping)
    if isinstance(own, list) and all(isinstance(x, Real) for x in own):
        return isinstance(value, (list, tuple)) and all(isinstance(x, Real) for x in value)
    if isinstance(own, (list, tuple)):
        return isinstance(value, (list, tuple))
    if own is None or isinstance(own, TensorBase):  # what is not known yet may become anything
        return is_plain(value)
    return isinstance(value, Real) and value == value


def taken(value: Any, own: Any) -> Any:
    """A value to set in place of one's own: a sequence is of the own kind again, which files do not keep."""
    value = copied(value)
    if type(own) in (list, tuple) and isinstance(value, (list, tuple)):
        return type(own)(value)
    return value


def of_callables(factors: Iterable[Any]) -> list[dict[str, Any] | None]:
    """What each object that is called for a factor has; None for a function."""
    return [{name: copied(x) for name, x in vars(factor).items() if is_plain(x)} if _has_attributes(factor) else None
            for factor in factors]


def give_callables(factors: Iterable[Any], states: Iterable[dict[str, Any] | None]) -> None:
    """Set what `of_callables` gave; functions stay what they are."""
    for factor, state in zip(factors, states, strict=True):
        if state is not None and _has_attributes(factor):
            vars(factor).update(copied(state))


def _has_attributes(factor: Any) -> bool:
    return hasattr(factor, "__dict__") and not isinstance(factor, FUNCTIONS)
