"""Exceptions at the lines that a function comes to inside of another."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any


class Stop(BaseException):
    """What is raised in the middle of a call: as an interrupt, it is no `Exception`."""


def stop() -> None:
    raise Stop


def stopped(function: Callable[[], Any], inside: CodeType, at: int, does: Callable[[], Any] = stop) -> int:
    """Call the function, with `Stop` raised, or something else done, at the `at`-th distinct line, from 0, that the
    code `inside` comes to with all that it calls; the function may catch it, or end by it. Returns how many lines it
    came to. Python's collector is off meanwhile: with what runs where it looks more lines come now and then."""
    seen: set[tuple[str, int]] = set()

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        below: FrameType | None = frame
        while below is not None and below.f_code is not inside:
            below = below.f_back
        if below is None:
            return trace
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and place not in seen:
            seen.add(place)
            if len(seen) - 1 == at:
                does()
        return trace
    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        function()
    except Stop:
        pass
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return len(seen)
