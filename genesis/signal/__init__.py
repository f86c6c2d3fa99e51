"""`genesis.signal`: windows of signals, by torch.signal's names."""

from genesis.ir.suggest import suggesting
from genesis.signal import windows

__all__ = ["windows"]

__getattr__ = suggesting(__name__)
