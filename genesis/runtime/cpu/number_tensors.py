"""Numbers as tensors of torch's without dimensions.

torch makes such a tensor of a number in each call that is given one, which takes 1 µs: an addition of 96 elements took
1.9 µs with a number, and takes 0.85 with its tensor (`benchmarks/programs.py`).
"""

from __future__ import annotations

from functools import lru_cache
from math import copysign, inf
from typing import Final

import torch

CPU: Final = torch.device("cpu")
"""The device that factories are told: `torch.set_default_tensor_type` would have them make tensors elsewhere."""

MOST_NUMBERS: Final = 512
"""Tensors of one number that are remembered, of either kind."""

LARGEST: Final = torch.finfo(torch.float32).max
"""The largest number of float32."""


@lru_cache(maxsize=MOST_NUMBERS, typed=True)
def _number_tensor(value: float, dtype: torch.dtype, sign: float) -> torch.Tensor:
    return torch.scalar_tensor(value, dtype=dtype, device=CPU)


def number_tensor(value: bool | int | float, dtype: torch.dtype) -> torch.Tensor:
    """A 0-d tensor of this number, which nobody may write to: the next to ask for it gets the same one.

    >>> number_tensor(0.0, torch.float32), number_tensor(-0.0, torch.float32)
    (tensor(0.), tensor(-0.))
    """
    return _number_tensor(value, dtype, copysign(1.0, value) if value == 0 else 1.0)


@lru_cache(maxsize=MOST_NUMBERS, typed=True)
def _operand_tensor(value: float, dtype: torch.dtype, sign: float) -> torch.Tensor:
    if dtype is torch.float32 and LARGEST < abs(value) < inf:
        return torch.scalar_tensor(value, dtype=torch.float64, device=CPU).to(dtype)
    return _number_tensor(value, dtype, sign)


def operand_tensor(value: bool | int | float, dtype: torch.dtype) -> torch.Tensor:
    """`number_tensor` of float32, float64 or int64, for ops that round a number as their result: a float beyond the
    range is infinite, where `number_tensor` raises.

    >>> operand_tensor(-1e39, torch.float32)
    tensor(-inf)
    """
    return _operand_tensor(value, dtype, copysign(1.0, value) if value == 0 else 1.0)


def is_in_range(value: bool | int | float, dtype: torch.dtype) -> bool:
    """Whether `number_tensor` takes the number as an element of float32 or float64."""
    return dtype is not torch.float32 or not LARGEST < abs(value) < inf


def remembered() -> int:
    """How many are remembered."""
    return _number_tensor.cache_info().currsize + _operand_tensor.cache_info().currsize
