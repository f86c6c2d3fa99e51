"""Named parts of a program, under the names of NVIDIA's tools: they are those of `genesis.profiler`.

>>> import genesis
>>> with genesis.cuda.nvtx.range("loading"):
...     genesis.cuda.nvtx.mark("first batch")
"""

from __future__ import annotations

from typing import Any

from genesis.ir.suggest import suggesting
from genesis.profiler.recorder import record_function

__all__ = ["mark", "range", "range_pop", "range_push"]

range = record_function
_open: list[Any] = []


def range_push(msg: str) -> int:
    """Begin a part, which `range_pop` ends; its depth, from 0."""
    _open.append(record_function(msg).__enter__())
    return len(_open) - 1


def range_pop() -> int:
    """End the part that was begun last; the depth that is left."""
    if _open:
        _open.pop().__exit__(None, None, None)
    return len(_open) - 1


def mark(msg: str) -> None:
    """A part without duration."""
    with record_function(msg):
        pass


__getattr__ = suggesting(__name__)
