"""What this process remembers so as not to work it out again, told in bytes.

Each table is bounded, and has a row here: `genesis.cuda.memory_summary()` prints them. The bytes of an entry are
estimates, measured by tracemalloc where the entry's constant says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple


class MemoFigures(NamedTuple):
    """A table's figures.

    Attributes:
        entries: how many answers it has.
        nbytes: about how much memory they take.
        most_bytes: about how much they may take.
    """

    entries: int
    nbytes: int
    most_bytes: int


MEMOS: Final[dict[str, Callable[[], MemoFigures]]] = {}
"""What a table is for → its figures."""


def memo_figures() -> dict[str, MemoFigures]:
    """The figures of every table, by what it is for.

    >>> figures = memo_figures()
    >>> all(found.nbytes <= found.most_bytes for found in figures.values())
    True
    """
    return {name: figures() for name, figures in MEMOS.items()}


def counted(name: str, entries: Callable[[], int], entry_bytes: int, most: int) -> None:
    """Give a table of at most `most` entries, of about `entry_bytes` each, a row."""
    MEMOS[name] = lambda: MemoFigures(found := entries(), found * entry_bytes, most * entry_bytes)
