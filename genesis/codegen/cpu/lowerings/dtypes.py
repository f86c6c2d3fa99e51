"""Genesis dtypes as torch's, and numbers as tensors of these."""

from __future__ import annotations

from functools import lru_cache
from math import copysign
from typing import Final

import torch

from genesis.ir.memos import counted
from genesis.ir.types import DTYPES, DType

_TORCH: Final[dict[DType, torch.dtype]] = {dtype: getattr(torch, dtype.name) for dtype in DTYPES}


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch dtype with the same bits.

    >>> from genesis.ir.types import bfloat16
    >>> torch_dtype(bfloat16)
    torch.bfloat16
    """
    return _TORCH[dtype]


MOST_NUMBERS: Final = 512
"""Tensors of one number that are remembered; making one takes longer than a small kernel."""


@lru_cache(maxsize=MOST_NUMBERS, typed=True)
def _number_tensor(value: float, dtype: torch.dtype, sign: float) -> torch.Tensor:
    return torch.scalar_tensor(value, dtype=dtype)


counted("numbers as tensors", lambda: _number_tensor.cache_info().currsize, 600, MOST_NUMBERS)


def number_tensor(value: bool | int | float, dtype: torch.dtype) -> torch.Tensor:
    """A 0-d tensor of this number, which nobody may write to: the next to ask for it gets the same one.

    >>> number_tensor(0.0, torch.float32), number_tensor(-0.0, torch.float32)
    (tensor(0.), tensor(-0.))
    """
    return _number_tensor(value, dtype, copysign(1.0, value) if value == 0 else 1.0)
