"""`genesis.signal`: windows of signals, by torch.signal's names.

In: the length of a window and its parameters. Out: a tensor with the window.
"""

from genesis.ir.suggest import suggesting
from genesis.signal import windows

__all__ = ["windows"]

__getattr__ = suggesting(__name__)
