"""`genesis.signal`: windows of signals, by torch.signal's names."""

from genesis.signal import windows

__all__ = ["windows"]
