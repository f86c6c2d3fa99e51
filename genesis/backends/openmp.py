"""Torch's openmp, which is not there: whoever asks is told so."""

from genesis.ir.suggest import suggesting


def is_available() -> bool:
    """False."""
    return False

__getattr__ = suggesting(__name__)
