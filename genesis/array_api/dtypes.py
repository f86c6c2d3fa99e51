"""Dtypes: casting and asking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import genesis
from genesis import Tensor

_SIGNED = (genesis.int8, genesis.int16, genesis.int32, genesis.int64)
_FLOATING = (genesis.float32, genesis.float64)
KINDS: dict[str, tuple[Any, ...]] = {
    "bool": (genesis.bool,), "signed integer": _SIGNED, "unsigned integer": (genesis.uint8,),
    "integral": (*_SIGNED, genesis.uint8), "real floating": _FLOATING, "complex floating": (),
    "numeric": (*_SIGNED, genesis.uint8, *_FLOATING),
}
"""The standard's words for groups of dtypes."""


def astype(x: Tensor, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Tensor:
    """x in another dtype; without `copy` x itself where it has it already."""
    return x.to(dtype=dtype, device=device, copy=copy)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion leads from one dtype to the other."""
    try:
        return genesis.promote_types(from_.dtype if isinstance(from_, Tensor) else from_, to) is to
    except TypeError:
        return False


def of_kind(kind: str) -> tuple[Any, ...]:
    """The dtypes of a kind.

    Raises:
        ValueError: there is no such kind.
    """
    if kind not in KINDS:
        raise ValueError(f"no kind of dtype is called {kind!r}: {', '.join(map(repr, KINDS))}")
    return KINDS[kind]


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind ("integral"), is another dtype, or is any of several.

    Raises:
        ValueError: there is no such kind.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        return dtype in of_kind(kind)
    return bool(dtype is kind)


def result_type(*arrays_and_dtypes: Any) -> Any:
    """The dtype that arrays, dtypes and Python numbers are promoted to."""
    numbers = [x for x in arrays_and_dtypes if isinstance(x, (bool, int, float))]
    dtypes = [x.dtype if isinstance(x, Tensor) else x for x in arrays_and_dtypes
              if not isinstance(x, (bool, int, float))]
    if not dtypes:
        raise ValueError("result_type needs at least one array or dtype")
    found = dtypes[0]
    for dtype in dtypes[1:]:
        found = genesis.promote_types(found, dtype)
    if any(isinstance(x, float) for x in numbers) and found not in _FLOATING:
        return genesis.float32
    return found


@dataclass(frozen=True)
class FloatInfo:
    """The result of `finfo`; its `dtype` is the dtype itself, where torch has its name."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: Any


@dataclass(frozen=True)
class IntInfo:
    """The result of `iinfo`."""

    bits: int
    max: int
    min: int
    dtype: Any


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a floating-point dtype, or of an array's.

    Raises:
        TypeError: the dtype is no floating-point one.

    >>> finfo(genesis.float32).smallest_normal == 2.0**-126
    True
    """
    dtype = type.dtype if isinstance(type, Tensor) else type
    found = genesis.finfo(dtype)
    return FloatInfo(found.bits, found.eps, found.max, found.min, found.smallest_normal, dtype)


def iinfo(type: Any, /) -> IntInfo:
    """Limits of an integer dtype, or of an array's.

    Raises:
        TypeError: the dtype is no integer one.

    >>> iinfo(genesis.int8)
    IntInfo(bits=8, max=127, min=-128, dtype=genesis.int8)
    """
    dtype = type.dtype if isinstance(type, Tensor) else type
    found = genesis.iinfo(dtype)
    return IntInfo(found.bits, found.max, found.min, dtype)
