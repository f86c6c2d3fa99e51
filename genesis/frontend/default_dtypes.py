"""Default dtypes: those of Python data that is given without a dtype."""

from __future__ import annotations

from typing import Final

from genesis.ir.types import DType, bool_, float32, int64, not_a_dtype

__all__ = ["get_default_dtype", "set_default_dtype"]

defaults: Final[dict[str, DType]] = {"bool": bool_, "int": int64, "float": float32}
"""Kind of Python data → its dtype."""


def set_default_dtype(d: DType) -> None:
    """Set the dtype of floating-point data that is given without one; at first it is float32."""
    if not isinstance(d, DType):
        raise not_a_dtype(d)
    if not d.is_floating_point:
        raise TypeError(f"the default dtype must be floating-point, not {d!r}")
    defaults["float"] = d


def get_default_dtype() -> DType:
    """The dtype of floating-point data given without one."""
    return defaults["float"]


def default_dtype(kind: str) -> DType:
    """The dtype of Python data of this kind ("bool", "int" or "float")."""
    return defaults[kind]
