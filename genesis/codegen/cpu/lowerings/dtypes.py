"""Genesis dtypes as torch's, and numbers as tensors of these."""

from __future__ import annotations

from typing import Final

import torch

from genesis.ir.memos import counted
from genesis.ir.types import DTYPES, DType
from genesis.runtime.cpu.number_tensors import CPU, MOST_NUMBERS, is_in_range, number_tensor, remembered

__all__ = ["CPU", "is_in_range", "number_tensor", "torch_dtype"]

counted("numbers as tensors", remembered, 600, 2 * MOST_NUMBERS)

_TORCH: Final[dict[DType, torch.dtype]] = {dtype: getattr(torch, dtype.name) for dtype in DTYPES}


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch dtype with the same bits.

    >>> from genesis.ir.types import bfloat16
    >>> torch_dtype(bfloat16)
    torch.bfloat16
    """
    return _TORCH[dtype]
