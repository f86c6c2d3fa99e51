"""The program of a captured step over symbols, kept without memories, and the one of a call that it becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from genesis.engine.capture import Captured, Written, capture, with_histories
from genesis.engine.symbolic.symbolic_program import with_numbers
from genesis.frontend.storage import Cell, Storage
from genesis.ir.node import NUMBER_TYPES, Node, Op, make, unique
from genesis.ir.ops import leaves
from genesis.ir.walk import computed, walk
from genesis.tracing.snapshot import NotReplayable


class _Record(NamedTuple):
    """How a node is made again.

    Attributes:
        inputs: positions of its operands.
        type: of a leaf, or of a number.
        place: of a leaf, the number of its memory.
    """

    op: Op
    inputs: tuple[int, ...]
    attrs: Any
    type: Any
    source: Any
    needs_grad: bool
    shown: bool
    place: int | None


class StepProgram:
    """The program of a step over symbols.

    Attributes:
        sources: where each memory comes from: an argument's number, or a storage.
        numbers: its numbers, formulas among them, but for those that a replay asks for anew.

    Args:
        outputs: the values that it computes, of which `asked` are asked for by themselves (`Flush.asked`).
        contents: the values that it writes.
        updated: where to, storages among the sources.
        sources: content → where it comes from.
        live: nodes of numbers that a replay asks for anew → (which of the questions, which of its numbers).

    Raises:
        NotReplayable: it reads a memory that is no source, or a value with a history.
    """

    def __init__(self, outputs: Sequence[Node], asked: int, contents: Sequence[Node], updated: Sequence[Storage],
                 sources: Mapping[Cell, Any], live: Mapping[Node, tuple[int, int]]):
        order = walk([*outputs[:asked], *contents])
        order = walk(outputs[asked:], order=order)
        at = {node: i for i, node in enumerate(order)}
        places: dict[Cell, int] = {}
        self._records: list[_Record] = []
        self._live = {at[node]: which for node, which in live.items() if node in at}
        for node in order:
            place = None
            if node.hooks is not None:
                raise NotReplayable("backward makes values anew")
            if computed(node):
                if node.op is not leaves.data or node.buffer not in sources:
                    raise NotReplayable("it reads what is neither an argument nor stays")
                place = places.setdefault(node.buffer, len(places))
            elif node.op is leaves.data:
                raise NotReplayable("it reads a content that was overwritten")
            self._records.append(_Record(node.op, tuple([at[x] for x in node.inputs]), node.attrs, node.type,
                                         node.source, node.needs_grad, node.shown, place))
        for storage in updated:
            places.setdefault(storage.cell, len(places))  # type: ignore[arg-type]
        self.numbers = [x.attrs[0] for i, x in enumerate(self._records)
                        if x.op is leaves.number and i not in self._live]
        self.sources = [sources[cell] for cell in places]
        self._asked, self._outputs = asked, [at[x] for x in outputs]
        self._contents, self._updated = [at[x] for x in contents], [places[s.cell] for s in updated]  # type: ignore[index]

    def of_call(self, number: Callable[[Any], Any]) -> CallProgram:
        """The program of a call in which the symbols have these numbers."""
        cells = [_cell(source) for source in self.sources]
        made: list[Node] = []
        live: dict[Node, tuple[int, int]] = {}
        numbered: dict[Node, int] = {}
        for at, x in enumerate(self._records):
            made.append(self._made(x, made, cells, number))
            if at in self._live:
                live[made[-1]] = self._live[at]
            elif x.op is leaves.number:
                numbered[made[-1]] = len(numbered)
        outputs, contents = [made[at] for at in self._outputs], [made[at] for at in self._contents]
        return CallProgram(outputs, self._asked, contents, [cells[at] for at in self._updated],
                           dict(zip(cells, self.sources, strict=True)), live, numbered)

    @staticmethod
    def _made(x: _Record, made: Sequence[Node], cells: Sequence[Cell], number: Callable[[Any], Any]) -> Node:
        if x.place is not None:
            node = unique(leaves.data, (), (kind := with_numbers(x.type, number),), kind)
            node.buffer = cells[x.place]
        elif x.op is leaves.number:
            value = number(x.attrs[0])
            node = unique(x.op, (), (value, NUMBER_TYPES[value.__class__]), NUMBER_TYPES[value.__class__])
        else:
            node = make(x.op, tuple([made[i] for i in x.inputs]), with_numbers(x.attrs, number), x.source)
            node.needs_grad, node.shown = x.needs_grad, x.shown
        return node


class CallProgram:
    """The program of a call, over contents without memories: what its plan is found by.

    Attributes:
        roots: the values that it computes, and those that it writes.
        live: see `StepProgram`.
        numbered: nodes of its other numbers → which of `StepProgram.numbers` each is.
    """

    def __init__(self, outputs: Sequence[Node], asked: int, contents: Sequence[Node],
                 updated: Sequence[Cell], sources: Mapping[Cell, Any], live: Mapping[Node, tuple[int, int]],
                 numbered: Mapping[Node, int]):
        self.roots, self.live, self.numbered = [*outputs, *contents], live, numbered
        self._outputs, self._asked, self._contents = outputs, asked, contents
        self._updated, self._source_of = updated, sources

    def captured(self) -> Captured:
        """It as a flush captures it: first what is asked for and written, then what would be lost."""
        visited, known = with_histories(walk([*self._outputs[:self._asked], *self._contents]))
        text = Written()
        text.write(visited, known)
        return capture(self._outputs, self._updated, self._contents, (), (text, visited, known))

    def sources(self, captured: Captured) -> list[Any]:
        """Where each of its memories comes from."""
        return [self._source_of[cell] for cell in captured.cells]


def _cell(source: Any) -> Cell:
    """A content that stands for a storage's, or for an argument's."""
    cell = Cell(_Nothing())
    if isinstance(source, Storage):  # whether it is a parameter's is asked when a plan is made
        cell.owner = source._reference
    return cell


class _Nothing:
    """The memory of a program that is not run."""

    nbytes = 0
