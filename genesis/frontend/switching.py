"""Contexts that switch bytes. What enters and leaves one is a function of C (`runtime/contexts.py`), a call of
`Struct.pack_into`: a mode is what it was again however the context is left.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import Struct
from typing import Final

from genesis.runtime.contexts import Context

put: Final = {count: Struct("B" * count).pack_into for count in (1, 2)}
put_back: Final = {count: Struct("B" * count + "???").pack_into for count in (1, 2)}
"""Number of bytes → what writes so many, and as booleans whatever `__exit__` is given (no error: three times false)."""

SPARE: Final = 3
"""Bytes behind those of a mode that leaving a context overwrites."""


class Switch(Context):
    """The base of contexts that switch the bytes of a mode. A subclass says which bytes, and to what."""

    def __init__(self) -> None:
        self._before: list[tuple[int, ...]] = []
        self._left_first = False

    def _mode(self) -> bytearray:
        """This thread's bytes of the mode, and SPARE more."""
        raise NotImplementedError

    def _outside(self, mode: bytearray) -> tuple[int, ...]:
        """The bytes to switch back to, when the context is entered now."""
        return tuple(mode[:-SPARE])

    def _inside(self, mode: bytearray) -> tuple[int, ...]:
        """The first bytes inside of the context."""
        raise NotImplementedError

    def _entering(self) -> Callable[[], None]:
        mode = self._mode()
        if self._left_first:
            self._left_first = False
        else:
            self._before.append(self._outside(mode))
        inside = self._inside(mode)
        return partial(put[len(inside)], mode, 0, *inside)

    def _leaving(self) -> Callable[..., None]:
        mode = self._mode()
        if self._before:
            before = self._before.pop()
        else:  # from Python 3.14 on a `with` looks this up first
            before, self._left_first = self._outside(mode), True
        return partial(put_back[len(before)], mode, 0, *before)
