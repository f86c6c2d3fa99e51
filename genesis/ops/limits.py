"""The limits of dtypes: `finfo`, `iinfo`, `can_cast`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from genesis.frontend.default_dtypes import default_dtype
from genesis.frontend.recording import TensorBase
from genesis.ir.errors import failure
from genesis.ir.types import CATEGORIES, DType, as_dtype, bfloat16, float16, float32, float64, promote_types


def _dtype(type: Any) -> DType:
    return type.spec.dtype if isinstance(type, TensorBase) else as_dtype(type)


@dataclass(frozen=True, init=False, repr=False)
class finfo:
    """Limits of a floating-point dtype.

    Attributes:
        bits: of one element.
        eps: from 1 to the next larger number.
        max, min: the largest and the smallest (most negative) number.
        tiny, smallest_normal: the smallest positive number with all its digits.
        resolution: 10 to minus the decimal digits that are exact.
        dtype: its name.

    >>> import genesis
    >>> genesis.finfo(genesis.bfloat16).eps
    0.0078125
    """

    bits: int
    eps: float
    max: float
    min: float
    tiny: float
    smallest_normal: float
    resolution: float
    dtype: str

    def __init__(self, type: Any = None):
        dtype = default_dtype("float") if type is None else _dtype(type)
        if dtype not in _FLOATS:
            raise failure("finfo", f"expected a floating-point dtype, not {dtype!r}", hint="iinfo is for integers",
                          error=TypeError)
        digits, most, least = _FLOATS[dtype]
        largest = (2.0 - 2.0**-digits) * 2.0**most
        exact = int(digits * 0.30103)
        values = (dtype.itemsize * 8, 2.0**-digits, largest, -largest, 2.0**least, 2.0**least, 10.0**-exact, dtype.name)
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{name}={getattr(self, name):g}' for name in names)}, dtype={self.dtype})"


_FLOATS = {float64: (52, 1023, -1022), float32: (23, 127, -126), bfloat16: (7, 127, -126), float16: (10, 15, -14)}
"""Binary digits after the first, and the exponents of the largest and the smallest normal number."""


@dataclass(frozen=True, init=False, repr=False)
class iinfo:
    """Limits of an integer dtype: bits, max, min, dtype's name.

    >>> import genesis
    >>> genesis.iinfo(genesis.int8).max
    127
    """

    bits: int
    max: int
    min: int
    dtype: str

    def __init__(self, type: Any):
        dtype = _dtype(type)
        if dtype.kind != "int":
            raise failure("iinfo", f"expected an integer dtype, not {dtype!r}", hint="finfo is for floating point",
                          error=TypeError)
        values = (dtype.itemsize * 8, int(dtype.max or 0), int(dtype.min or 0), dtype.name)
        for name, value in zip(self.__dataclass_fields__, values, strict=True):
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"



def can_cast(from_: DType, to: DType) -> bool:
    """Whether torch's rules let a value of one dtype become another without changing its kind downwards.

    >>> import genesis
    >>> genesis.can_cast(genesis.float64, genesis.float32), genesis.can_cast(genesis.float32, genesis.int64)
    (True, False)
    """
    return CATEGORIES[_dtype(from_).kind] <= CATEGORIES[_dtype(to).kind]


__all__ = ["can_cast", "finfo", "iinfo", "promote_types"]
