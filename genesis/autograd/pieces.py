"""Backward through a program whose forward was cut (`engine/limits.py`): piece by piece, as it was computed.

Gradients of one piece go to the leaf tensors and to what earlier pieces computed: its *ends*. When they are in memory,
the next piece, the latest of those whose ends have gradients, goes on from there. So an endless recurrence takes one
plan for the backward of its turns, as it did for their forward, and no program is longer than a piece.

A loop that reads a value at each turn is not cut, as nothing of it waits. Each of its turns was a program, and a piece
of its backward are so many turns as make one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from genesis.config import config
from genesis.frontend.engine_protocol import engine
from genesis.frontend.storage import Cell, Storage
from genesis.ir.node import Node
from genesis.ir.ops import control
from genesis.ir.ops.control import gradient_inputs
from genesis.ir.walk import computed

LATEST: Final = 1 << 62
"""The number of what is computed after all pieces."""

MOST_SUMS: Final = 64
"""Leaf tensors of a piece, at the most, whose sums begin with memory of their own: more are a model's, whose parameters
are read by one piece each."""


def piece_of(node: Node) -> int:
    """The number of the piece that computed the node as one of its results, 0 where none did.

    >>> import genesis
    >>> from genesis.frontend.recording import read
    >>> piece_of(read(genesis.ones(2)))
    0
    """
    cell = node.buffer
    return 0 if cell is None or cell.memory is None else cell.piece


MOST_RUNS: Final = 128
"""Programs that a forward was computed by, from which on it is an endless loop, and its backward may go in pieces: a
loop is cut after as many turns (`engine/limits.py`)."""

PIECES: Final = 16
"""A piece of the backward of such a loop has about this part of `config.pending_nodes` of the forward, and three times
as many nodes: it is compiled two or three times, with places that move and without, and run as often as it comes."""

TURNS: Final = 24
"""A piece has a multiple of so many programs: what comes again every second or third turn is in all pieces alike."""


def by_runs(reached: Collection[Node]) -> Callable[[Node], int] | None:
    """What numbers the pieces (`piece_of`) of a forward that many programs have computed, of which these are the nodes;
    None if few have. The latest piece is a whole one."""
    runs = sorted({cell.run for node in reached if (cell := node.buffer) is not None and cell.memory is not None} - {0})
    if len(runs) < MOST_RUNS:
        return None
    turns = config.pending_nodes // PIECES * len(runs) // len(reached)
    each, last = max(round(turns / TURNS), 1) * TURNS, len(runs) - 1
    numbers = {run: 1 + last // each - (last - i) // each for i, run in enumerate(runs)}

    def number_of(node: Node) -> int:
        cell = node.buffer
        return 0 if cell is None or cell.memory is None else numbers.get(cell.run, 0)
    return number_of


def empty_sum(x: Node) -> Node:
    """What gradients of this value are added to where none has arrived yet, in memory: then the piece that the first
    arrives in is the same program as those after it. It is -0.0, which changes no bit of what is added to it.

    >>> import genesis
    >>> from genesis.frontend.recording import read, wrap
    >>> zero = wrap(empty_sum(read(genesis.ones(2))))
    >>> zero, 1 / (zero - 0.0), 1 / (zero + 0.0)
    (tensor([-0., -0.]), tensor([-inf, -inf]), tensor([inf, inf]))
    """
    import numpy as np
    type = x.type
    content = np.zeros(type.nbytes, np.uint8)
    content[type.dtype.itemsize - 1::type.dtype.itemsize] = 0x80  # the sign of each element
    memory = engine.allocate(type.nbytes, type.device)
    memory.copy_from_host(content)
    return Storage(type, None, Cell(memory)).node


class Arrived:
    """Gradients that wait at the ends of pieces.

    Args:
        pairs: (value, the gradient that arrives there) to begin with.
        number_of: numbers the pieces, as `piece_of` does.
    """

    def __init__(self, pairs: Iterable[tuple[Node, Node]], number_of: Callable[[Node], int]):
        self._number_of = number_of
        self._by_piece: dict[int, dict[Node, Node]] = {}
        self._new: dict[tuple[int, Node], None] = {}
        for node, gradient in pairs:
            piece = number_of(node) or LATEST
            self._by_piece.setdefault(piece, {}).setdefault(node, gradient)
            self._new[piece, node] = None

    def __bool__(self) -> bool:
        return bool(self._by_piece)

    def add(self, end: Node, gradient: Node) -> None:
        """A gradient arrives at an end."""
        piece = self._number_of(end)
        waiting = self._by_piece.setdefault(piece, {})
        before = waiting.get(end)
        waiting[end] = gradient if before is None else before + gradient
        self._new[piece, end] = None

    def latest(self) -> tuple[int, list[tuple[Node, Node]]]:
        """The number of the latest piece, and what arrived there: it is taken out."""
        piece = max(self._by_piece)
        return piece, list(self._by_piece.pop(piece).items())

    def compute(self, leaves: dict[int, Node], changed: Iterable[int]) -> dict[Node, Storage]:
        """Bring all gradients so far, those of leaf tensors too, into memory. Those that are there already stay: at the
        end of a loop gradients wait at a thousand ends, and each piece adds to a few.

        Args:
            leaves: the number of a leaf tensor → its gradient so far; those in memory take their places.
            changed: numbers of those that may not be in memory: a piece has to do with few of thousands.

        Returns the storages of those of leaf tensors.
        """
        waiting = [(at, end) for piece, end in self._new  # in the order of their arrival, whichever pieces they end
                   if end in (at := self._by_piece.get(piece, {})) and not computed(at[end])]
        self._new = {}
        new = [number for number in changed if not computed(leaves[number])]
        found = [*(at[end] for at, end in waiting), *(leaves[number] for number in new)]
        storages = {node: Storage(node.type, node) for node in dict.fromkeys(found)}
        engine.flush(list(storages.values()))
        for at, end in waiting:
            at[end] = storages[at[end]].node
        kept: dict[Node, Storage] = {}
        for number in new:
            storage = storages[leaves[number]]
            leaves[number] = node = storage.node
            kept[node] = storage
        return kept


def below(starts: Sequence[Node], piece: int,
          number_of: Callable[[Node], int] = piece_of) -> tuple[dict[int, list[Node]], list[Node]]:
    """What gradients of a piece's results reach: the `watch` nodes of leaf tensors, by number, and earlier ends."""
    found: dict[tuple[int, object], Node] = {}
    ends: list[Node] = []
    first, seen, stack = set(starts), set[Node](), list(starts)
    while stack:
        node = stack.pop()
        if node in seen or not node.needs_grad:
            continue
        seen.add(node)
        if node.op is control.watch:
            found[watched_by(node)] = node
        elif node not in first and 0 < number_of(node) < piece:
            ends.append(node)
        else:
            stack += gradient_inputs(node)
    return by_leaf(found), ends


def watched_by(node: Node) -> tuple[int, object]:
    """What tells the `watch` nodes of one leaf tensor apart: its number, and the memory, or the value, that it had. A
    leaf has several when it was written to (under no_grad) between reads. Capture makes those over one memory one node,
    so only one of them counts: a leaf that was not computed yet when it was read first has another node afterwards."""
    value = node.inputs[0]
    return node.attrs[0], value.buffer if computed(value) else value


def by_leaf(found: Mapping[tuple[int, object], Node]) -> dict[int, list[Node]]:
    """The `watch` nodes by the numbers of their leaf tensors, in order."""
    watches: dict[int, list[Node]] = {}
    for (leaf, _), node in found.items():
        watches.setdefault(leaf, []).append(node)
    return dict(sorted(watches.items()))
