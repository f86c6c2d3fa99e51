"""torch's names of annotations, which model files import: sizes of one number or several, devices, numbers."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

from genesis.frontend.tensor import Size, Tensor
from genesis.ir.suggest import suggesting
from genesis.ir.types import Device as _device
from genesis.ir.types import DType as _dtype

_T = TypeVar("_T")

# Of `torch.nn.common_types`: a number for all dimensions, or one for each.

_scalar_or_tuple_any_t: TypeAlias = _T | tuple[_T, ...]
_scalar_or_tuple_1_t: TypeAlias = _T | tuple[_T]
_scalar_or_tuple_2_t: TypeAlias = _T | tuple[_T, _T]
_scalar_or_tuple_3_t: TypeAlias = _T | tuple[_T, _T, _T]
_scalar_or_tuple_4_t: TypeAlias = _T | tuple[_T, _T, _T, _T]
_scalar_or_tuple_5_t: TypeAlias = _T | tuple[_T, _T, _T, _T, _T]
_scalar_or_tuple_6_t: TypeAlias = _T | tuple[_T, _T, _T, _T, _T, _T]
_size_any_t = _scalar_or_tuple_any_t[int]
_size_1_t = _scalar_or_tuple_1_t[int]
_size_2_t = _scalar_or_tuple_2_t[int]
_size_3_t = _scalar_or_tuple_3_t[int]
_size_4_t = _scalar_or_tuple_4_t[int]
_size_5_t = _scalar_or_tuple_5_t[int]
_size_6_t = _scalar_or_tuple_6_t[int]
_size_any_opt_t = _scalar_or_tuple_any_t[int | None]
_size_2_opt_t = _scalar_or_tuple_2_t[int | None]
_size_3_opt_t = _scalar_or_tuple_3_t[int | None]
_ratio_2_t = _scalar_or_tuple_2_t[float]
_ratio_3_t = _scalar_or_tuple_3_t[float]
_ratio_any_t = _scalar_or_tuple_any_t[float]
_tensor_list_t = _scalar_or_tuple_any_t[Tensor]
_maybe_indices_t = _scalar_or_tuple_2_t[Tensor]

# Of `torch.types`.

_int, _float, _bool, _str, _bytes = int, float, bool, str, bytes
_size = Size | list[int] | tuple[int, ...]
_TensorOrTensors = Tensor | tuple[Tensor, ...] | list[Tensor]
_layout: Any = object
Number = int | float | bool
_Number = (int, float, bool)
"""What is a number, for `isinstance`."""
Device = _device | str | int | None

__all__ = ["Device", "Number", "_device", "_dtype"]

__getattr__ = suggesting(__name__)
