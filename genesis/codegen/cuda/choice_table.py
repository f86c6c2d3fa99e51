"""Tables of choices as text: sections of GPUs, a row a line, sorted.

    [NVIDIA H200]
    flash_attention | dot=half head=64 | 64x64 warps=4 stages=3 | 412.3 | 431.0

A row has the kind of template, words that a problem must have, the candidate's parameters, microseconds, and those of
what would be taken without the row; "-" where a time is not known. Of rows for one problem the one with most words
counts. A line that begins with # is a comment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Key(NamedTuple):
    """What a row is about: a kind of template, and the words of a problem, with blanks between."""

    kind: str
    words: str


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Attributes:
        key: what it is about.
        candidate: the parameters that are to be taken.
        microseconds: how long that takes; None: not known.
        instead: likewise, for what would be taken without the row.
    """

    key: Key
    candidate: str
    microseconds: float | None = None
    instead: float | None = None

    @property
    def text(self) -> str:
        """The line."""
        times = ("-" if time is None else f"{time:.2f}" for time in (self.microseconds, self.instead))
        return " | ".join((*self.key, self.candidate, *times))


class Malformed(ValueError):
    """A line of a table is none; the message says which."""


class Rows:
    """The rows of one GPU.

    >>> rows = Rows([Row(Key("product", "dot=half"), "64x64"), Row(Key("product", "dot=half rows=16"), "32x64")])
    >>> rows.find(Key("product", "dot=half rows=16 depth=64"), {"64x64", "32x64"}).candidate
    '32x64'
    """

    def __init__(self, rows: Iterable[Row] = ()):
        self._by_kind: dict[str, dict[Key, Row]] = {}
        self._digest: str | None = None
        for row in rows:
            self.add(row)

    def add(self, row: Row) -> None:
        """Add a row; one that is there about the same stays."""
        self._by_kind.setdefault(row.key.kind, {}).setdefault(row.key, row)
        self._digest = None

    def has_kind(self, kind: str) -> bool:
        """Whether there are rows of this kind of template."""
        return kind in self._by_kind

    def find(self, key: Key, candidates: Container[str]) -> Row | None:
        """The row for a problem with these candidates; None if there is none."""
        of_kind = self._by_kind.get(key.kind)
        if of_kind is None:
            return None
        exact = of_kind.get(key)
        if exact is not None and exact.candidate in candidates:
            return exact
        words = set(key.words.split())
        fitting = [row for row in of_kind.values()
                   if row.candidate in candidates and words.issuperset(row.key.words.split())]
        return min(fitting, key=lambda row: (-len(row.key.words.split()), row.key), default=None)

    def __contains__(self, key: Key) -> bool:
        return key in self._by_kind.get(key.kind, ())

    def __iter__(self) -> Iterator[Row]:
        """The rows in their order."""
        return iter(sorted((row for rows in self._by_kind.values() for row in rows.values()), key=lambda row: row.key))

    def __len__(self) -> int:
        return sum(map(len, self._by_kind.values()))

    @property
    def text(self) -> str:
        """The rows as lines."""
        return "".join(f"{row.text}\n" for row in self)

    @property
    def digest(self) -> str:
        """What the rows decide, in short: who takes what, times left out."""
        if self._digest is None:
            decided = "\n".join(f"{row.key} {row.candidate}" for row in self)
            self._digest = hashlib.sha256(decided.encode()).hexdigest()
        return self._digest


def parsed(text: str) -> dict[str, Rows]:
    """The rows of each GPU of a table.

    Raises:
        Malformed: a line is neither empty, nor a comment, a GPU's name or a row.

    >>> tables = parsed("[NVIDIA H200]\\nproduct | dot=half | 64x64 | 12.50 | -\\n")
    >>> [row.text for row in tables["NVIDIA H200"]]
    ['product | dot=half | 64x64 | 12.50 | -']
    """
    found: dict[str, Rows] = {}
    rows: Rows | None = None
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if line.startswith("[") and line.endswith("]"):
            rows = found.setdefault(line[1:-1], Rows())
        elif line and not line.startswith("#"):
            if rows is None:
                raise Malformed(f"line {number} is before the first GPU's name: {line!r}")
            rows.add(_row(number, line))
    return found


def _row(number: int, line: str) -> Row:
    parts = [part.strip() for part in line.split("|")]
    if len(parts) != 5 or not all(parts):
        raise Malformed(f"line {number} is no row of five parts: {line!r}")
    kind, words, candidate, *times = parts
    try:
        microseconds, instead = (None if time == "-" else float(time) for time in times)
    except ValueError:
        raise Malformed(f"line {number} has a time that is no number: {line!r}") from None
    return Row(Key(kind, " ".join(words.split())), " ".join(candidate.split()), microseconds, instead)
