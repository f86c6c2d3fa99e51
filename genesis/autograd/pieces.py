"""Backward through a program whose forward was cut (`engine/limits.py`): piece by piece, as it was computed.

Gradients of one piece go to the leaf tensors and to what earlier pieces computed: its *ends*. When they are in memory,
the next piece, the latest of those whose ends have gradients, goes on from there. So an endless recurrence takes one
plan for the backward of its turns, as it did for their forward, and no program is longer than a piece.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

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
    """

    def __init__(self, pairs: Iterable[tuple[Node, Node]]):
        self._by_piece: dict[int, dict[Node, Node]] = {}
        self._new: dict[tuple[int, Node], None] = {}
        for node, gradient in pairs:
            piece = piece_of(node) or LATEST
            self._by_piece.setdefault(piece, {}).setdefault(node, gradient)
            self._new[piece, node] = None

    def __bool__(self) -> bool:
        return bool(self._by_piece)

    def add(self, end: Node, gradient: Node) -> None:
        """A gradient arrives at an end."""
        piece = piece_of(end)
        waiting = self._by_piece.setdefault(piece, {})
        before = waiting.get(end)
        waiting[end] = gradient if before is None else before + gradient
        self._new[piece, end] = None

    def latest(self) -> tuple[int, list[tuple[Node, Node]]]:
        """The number of the latest piece, and what arrived there: it is taken out."""
        piece = max(self._by_piece)
        return piece, list(self._by_piece.pop(piece).items())

    def compute(self, leaves: dict[int, Node]) -> dict[Node, Storage]:
        """Bring all gradients so far, those of leaf tensors too, into memory. Those that are there already stay: at the
        end of a loop gradients wait at a thousand ends, and each piece adds to a few.

        Returns the storages of those of leaf tensors.
        """
        waiting = [(at, end) for piece, end in self._new  # in the order of their arrival, whichever pieces they end
                   if end in (at := self._by_piece.get(piece, {})) and not computed(at[end])]
        self._new = {}
        new = [number for number, gradient in leaves.items() if not computed(gradient)]
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


def below(starts: Sequence[Node], piece: int) -> tuple[dict[int, list[Node]], list[Node]]:
    """What gradients of a piece's results reach: the `watch` nodes of leaf tensors, by number, and earlier ends."""
    watches: dict[int, list[Node]] = {}
    ends: list[Node] = []
    first, seen, stack = set(starts), set[Node](), list(starts)
    while stack:
        node = stack.pop()
        if node in seen or not node.needs_grad:
            continue
        seen.add(node)
        if node.op is control.watch:
            watches.setdefault(node.attrs[0], []).append(node)
        elif node not in first and 0 < piece_of(node) < piece:
            ends.append(node)
        else:
            stack += gradient_inputs(node)
    return dict(sorted(watches.items())), ends
