"""Mixed precision on the CPU by its older path: the names of `genesis.amp` without their device.

In: the block that a context is around. Out: what `genesis.amp` makes of it.
"""

from __future__ import annotations

from genesis import amp
from genesis.cuda.amp import GradScaler as GradScaler
from genesis.ir.suggest import suggesting
from genesis.ir.types import DType, bfloat16

__all__ = ["GradScaler", "autocast"]


class autocast(amp.autocast):
    """`genesis.autocast("cpu")`.

    >>> with autocast():
    ...     amp.is_autocast_enabled("cpu")
    True
    """

    def __init__(self, enabled: bool = True, dtype: DType = bfloat16, cache_enabled: bool = True):
        super().__init__("cpu", dtype, enabled)


__getattr__ = suggesting(__name__)
