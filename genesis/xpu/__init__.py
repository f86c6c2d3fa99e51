"""`genesis.xpu`: a kind of device that is not there; `is_available()` says so.

In: questions about the device. Out: that it is not there.
"""

from genesis.ir.suggest import suggesting


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0


def is_initialized() -> bool:
    """False."""
    return False


__getattr__ = suggesting(__name__)
