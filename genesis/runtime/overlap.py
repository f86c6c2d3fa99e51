"""When a kernel runs beside those before and after it: where it waits for the ones before says it, and this file how.

A kernel may be started while the kernels before it still run, and waits for them by `cuda.gdc_wait()`. Code generation
decides where that stands (`codegen/cuda/early_loads.py`, `codegen/cuda/source.py`), the planner which groups may be
beside each other (`passes/memory/schedule.may_wait_last`), and the executor starts a kernel early only where nothing
that it touches before it waits is still written (`LoadedSteps.starts_early`):

| overlap     | it waits                                           | on a stream it starts while those before it run |
|-------------|----------------------------------------------------|-------------------------------------------------|
| NONE        | never                                              | never                                           |
| WAITS_FIRST | before it reads or writes memory                   | always                                          |
| READS_EARLY | behind reads of what nothing in its program writes | if all before its plan has ended by then        |
| WAITS_LAST  | at its end, having read and written nothing of the | if, beside that, neither of the two writes what |
|             | kernel before it                                   | the other reads or writes                       |

In a graph, whose edges are what steps need of each other, one that waits last is not started early: who waits for it
has waited for both.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

EARLY: Final = "# What follows is read before the wait: nothing in the program writes it."
"""Heads the lines of a kernel's text that read memory before it waits (`codegen/cuda/early_loads.py`)."""

LAST: Final = "# It waits at its end: what it reads and writes is none of the kernel's before it."
"""Heads the lines of a kernel's text that waits at its end (`codegen/cuda/source.waiting_last`)."""


class Overlap(Enum):
    """Where a kernel waits for those before it.

    >>> Overlap.of("cuda.gdc_wait()"), Overlap.of("pass")
    (<Overlap.WAITS_FIRST: 2>, <Overlap.NONE: 1>)
    """

    NONE = auto()
    WAITS_FIRST = auto()
    READS_EARLY = auto()
    WAITS_LAST = auto()

    @classmethod
    def of(cls, text: str) -> Overlap:
        """That of the kernel with this text."""
        if LAST in text:
            return cls.WAITS_LAST
        if EARLY in text:
            return cls.READS_EARLY
        return cls.WAITS_FIRST if "gdc_wait()" in text else cls.NONE

    @property
    def waits(self) -> bool:
        """Whether it waits for the kernels before it, so that it may be started while they still run."""
        return self is not Overlap.NONE

    @property
    def reads_before_it_waits(self) -> bool:
        """Whether it reads memory which what runs before its plan may still write."""
        return self in (Overlap.READS_EARLY, Overlap.WAITS_LAST)
