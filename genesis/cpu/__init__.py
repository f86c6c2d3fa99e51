"""`genesis.cpu`: the CPU under the names of a device, so that programs can be written for any.

In: questions about the device. Out: that it is there.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

from genesis.ir.suggest import suggesting


def is_available() -> bool:
    """True."""
    return True


def device_count() -> int:
    """1."""
    return 1


def current_device() -> str:
    """"cpu"."""
    return "cpu"


def set_device(device: Any) -> None:
    """There is one."""


def synchronize(device: Any = None) -> None:
    """Nothing is left running: a value is there when it is read."""


def current_stream(device: Any = None) -> None:
    """None: there are no streams."""


def stream(stream: Any) -> Any:
    """A context that does nothing."""
    return nullcontext()


def is_initialized() -> bool:
    """True."""
    return True


__getattr__ = suggesting(__name__, ("amp",))
