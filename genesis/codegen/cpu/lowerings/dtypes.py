"""Genesis dtypes as torch's."""

from __future__ import annotations

from typing import Final

import torch

from genesis.ir.types import DTYPES, DType

_TORCH: Final[dict[DType, torch.dtype]] = {dtype: getattr(torch, dtype.name) for dtype in DTYPES}


def torch_dtype(dtype: DType) -> torch.dtype:
    """The torch dtype with the same bits.

    >>> from genesis.ir.types import bfloat16
    >>> torch_dtype(bfloat16)
    torch.bfloat16
    """
    return _TORCH[dtype]
