"""A context in which Python's cyclic collector, and so no finalizer of a cycle, runs."""

from __future__ import annotations

import gc
from typing import Final


class _Uncollected:
    """Contexts may nest; what the user turned off stays off."""

    __slots__ = ("_outer",)

    def __init__(self) -> None:
        self._outer: list[bool] = []

    def __enter__(self) -> None:
        self._outer.append(gc.isenabled())
        gc.disable()

    def __exit__(self, *error: object) -> None:
        if self._outer[-1]:
            gc.enable()  # first: an exception between the two leaves what `over` does again
        self._outer.pop()

    def over(self) -> None:
        """Leave the contexts that an exception left between two lines."""
        while self._outer:
            self.__exit__()


uncollected: Final = _Uncollected()
"""For compiling and reading plans."""
