"""Choices: which of a template's tiles, forms or blocks a kernel is made with, and who says so.

A template that can be made in several ways lists them as candidates, in the order of its model: a formula that says
how long each takes, or a rule that is right about the first. What it asks for is a *problem*: the kind of template, and
words that decide what is best, sizes by their classes (`size_class`). Of the candidates the one is taken that

    the user's own table names    rows that this GPU's times made (`config.tune = "max"`, `engine/tuning.py`)
    the shipped table names       `measured_choices.txt`: where a measurement was at odds with the model, or there is
                                  no good one; a GPU without such a row takes the H200's
    the model puts first          elsewhere

A row of a table names words that a problem must have, and a candidate by its parameters; it counts where the problem
has that candidate. What is taken depends on nothing but the tables: equal tables give equal kernels, bit by bit.

What a kernel was made with is noted in its source (`KernelSource.choices`), for `genesis why` and `genesis dump`: as
text, since texts of kernels are kept, and the list of the others may hold on to the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from genesis.codegen.cuda.choice_table import Key, Row, Rows, parsed
from genesis.ir.sym_int import hint

if TYPE_CHECKING:
    from genesis.codegen.cuda.gpu_model import GpuModel

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

SHIPPED: Final = Path(__file__).with_name("measured_choices.txt")
"""The table that comes with Genesis."""

REFERENCE: Final = "NVIDIA H200"
"""The GPU whose rows others take that have none of their own."""


WHO: Final = {"model": "by the model", "shipped": "by the shipped table", "tuned": "tuned", "forced": "to be tried"}
"""Who decides → what is said of it."""


@dataclass(frozen=True)
class Candidate(Generic[T_co]):
    """A way to make a kernel.

    Attributes:
        name: its parameters, as tables write them.
        value: what the template makes the kernel of.
        microseconds: how long the model thinks that it takes.
    """

    name: str
    value: T_co
    microseconds: float


@dataclass(frozen=True)
class Choice:
    """What a template asked: a problem, and its candidates in the model's order.

    Attributes:
        key: the kind of template, and the problem's words.
        first: the candidate that the model puts first.
        others: makes the list of the others, which only a table asks for.
    """

    key: Key
    first: Candidate
    others: Callable[[], Sequence[Candidate]]

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        """All of them, the model's first in front."""
        return (self.first, *self.others())


@dataclass(frozen=True)
class Taken:
    """An answer.

    Attributes:
        choice: what was asked.
        candidate: what was taken.
        by: who said so: "model", "shipped", "tuned" or "forced".
        row: the table's, None where the model did.
    """

    choice: Choice
    candidate: Candidate
    by: str
    row: Row | None = None

    @property
    def text(self) -> str:
        """A line for people."""
        found = f"{self.choice.key.kind} {self.candidate.name}, {WHO[self.by]}"
        if self.row is None or self.row.microseconds is None:
            return found
        without = "" if self.row.instead is None else f", {self.row.instead:.1f} without"
        return f"{found} ({self.row.microseconds:.1f} µs{without})"


@dataclass(frozen=True)
class _Deciding:
    """What decides beside the shipped table and the model: the user's rows, and candidates that are to be tried."""

    rows: Rows
    forced: Mapping[Key, str] = field(default_factory=dict)


_deciding: Final[list[_Deciding]] = []
_notes: Final[list[list[Taken]]] = []


def size_class(size: int) -> int:
    """The class of a size, of which there are four between a power of two and the next: its largest number.

    >>> [size_class(n) for n in (1, 64, 65, 80, 81, 16384, 50304)]
    [1, 64, 80, 80, 96, 16384, 57344]
    """
    number = hint(size)
    step = 1 << max((number - 1).bit_length() - 3, 0)
    return -(-number // step) * step


def choose(kind: str, words: Mapping[str, str | int], gpu: GpuModel, first: Candidate[T],
           others: Callable[[], Sequence[Candidate[T]]]) -> T:
    """The value of the candidate that the tables name, or the first.

    Args:
        kind: of the template.
        words: what decides, by name; sizes by their classes.
        first: what the model takes.
        others: makes the list of the others, in the model's order.
    """
    choice = Choice(Key(kind, " ".join([f"{name}={value}" for name, value in words.items()])), first, others)
    taken = _taken(choice, gpu)
    for notes in _notes:
        notes.append(taken)
    return taken.candidate.value  # one of the candidates


def _taken(choice: Choice, gpu: GpuModel) -> Taken:
    decides = _deciding[-1] if _deciding else None
    if decides is not None:
        forced = _named(choice, decides.forced.get(choice.key))
        if forced is not None:
            return Taken(choice, forced, "forced")
        found = _in_table(choice, decides.rows)
        if found is not None:
            return Taken(choice, found[0], "tuned", found[1])
    tables = shipped()
    for name in dict.fromkeys((gpu.name, REFERENCE)):
        found = _in_table(choice, tables[name]) if name in tables else None
        if found is not None:
            return Taken(choice, found[0], "shipped", found[1])
    return Taken(choice, choice.first, "model")


def _in_table(choice: Choice, rows: Rows) -> tuple[Candidate, Row] | None:
    """What a table says, and the row that says it; None if it says nothing."""
    if not rows.has_kind(choice.key.kind):
        return None
    row = rows.find(choice.key, {candidate.name for candidate in choice.candidates})
    candidate = None if row is None else _named(choice, row.candidate)
    return None if row is None or candidate is None else (candidate, row)


def _named(choice: Choice, name: str | None) -> Candidate | None:
    return None if name is None else next((x for x in choice.candidates if x.name == name), None)


@cache
def shipped() -> dict[str, Rows]:
    """The shipped table: the rows of each GPU, by its name."""
    return parsed(SHIPPED.read_text(encoding="utf-8"))


@contextmanager
def deciding(rows: Rows | None, forced: Mapping[Key, str] | None = None) -> Iterator[None]:
    """A context in which the user's rows decide, too; before them candidates that are `forced`, by their names."""
    if rows is None:
        yield
        return
    _deciding.append(_Deciding(rows, forced or {}))
    try:
        yield
    finally:
        _deciding.pop()


@contextmanager
def noting() -> Iterator[list[Taken]]:
    """A context that collects what is taken inside."""
    found: list[Taken] = []
    _notes.append(found)
    try:
        yield found
    finally:
        _notes.pop()


def stamp() -> tuple[object, ...]:
    """What decides now beside what is shipped: texts of kernels that are kept are kept under it."""
    if not _deciding:
        return ()
    return (_deciding[-1].rows.digest, *sorted((*key, name) for key, name in _deciding[-1].forced.items()))
