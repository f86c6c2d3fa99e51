"""Dtypes: casting and asking."""

from __future__ import annotations

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


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind ("integral"), is another dtype, or is any of several.

    Raises:
        ValueError: there is no such kind.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if isinstance(kind, str):
        if kind not in KINDS:
            raise ValueError(f"no kind of dtype is called {kind!r}: {', '.join(map(repr, KINDS))}")
        return dtype in KINDS[kind]
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
