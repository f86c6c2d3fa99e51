"""Places that may move: one plan for all rows of a cache that are written, or for all batches of the data.

Where a slice begins is a number of the program's structure, and follows from no size: `cache[:, :, at:at + 1] = k`. Of
the places that may well be others in the next program each is a symbol of its own from the first program on, and an
argument of the kernels: so a place has the same bits whatever was met before it. Which these are is decided by the
program's structure, and by comparisons that become guards. All others are numbers, which passes make more of: halves
and thirds of packed projections, what begins or ends where its operand does, the inside of a grid.

How much is read of a memory from its beginning on, `cache[:, :, :at + 1]`, is a size as those of inputs are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Final
from weakref import WeakKeyDictionary

from genesis.engine.capture import Captured
from genesis.engine.symbolic.shape_erased_key import numbers_of
from genesis.engine.symbolic.symbols import Axis, first_numbers
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import control, leaves, movement
from genesis.ir.walk import computed

SLICES: Final = 2
"""Slices of one value up to which they may move: a batch and its targets. More are its parts."""

MOST: Final = 512
"""Places of a program that are symbols. A cache a layer has two or three; more make compiling slow."""

_SHOWING: Final = frozenset({control.watch, control.stop_gradient, control.alias, movement.reshape, movement.permute})
"""Ops that show all of their operand's memory."""

Movable = dict[Node, bool]
"""Slices, and writes to slices, that may move → whether only along axes of which they show one element."""


def movable(nodes: Iterable[Node], is_memory: Callable[[Node], bool]) -> Movable:
    """The slices and writes of a program whose places may be others in the next one.

    Of values that are in memory (data, a cache) any part; of what the program computes, single elements (`h[:, at]`).

    >>> from genesis.ir.types import Device, float32, tensor_type
    >>> from genesis.ir.ops import leaves
    >>> x = leaves.input(index=0, type=tensor_type((8, 4), float32, Device("cpu")))
    >>> row = movement.slice(x, starts=(3, 0), stops=(5, 4), steps=(1, 1))
    >>> list(movable([x, row], lambda node: node is x).values())
    [False]
    """
    placed = [node for node in nodes if node.op is movement.slice or node.op is movement.assign]
    slices = Counter(node.inputs[0] for node in placed if node.op is movement.slice)
    found = {}
    for node in placed:
        x = node.inputs[0]
        if node.op is movement.assign:
            found[node] = False
        elif slices[x] <= SLICES:
            found[node] = not is_memory(_shown(x, is_memory))
    return found if len(found) <= MOST else {}


def _shown(x: Node, is_memory: Callable[[Node], bool]) -> Node:
    """What a value shows all of: a memory, or what was computed."""
    while x.op in _SHOWING and not is_memory(x):
        x = x.inputs[0]
    return x


def prefix_axes(captured: Captured, fixed: Collection[int]) -> list[Axis]:
    """The axes of the slices that read the first part of data, or of what the program has just written to."""
    index_of = {cell: i for i, cell in enumerate(captured.cells)}

    def is_data(node: Node) -> bool:
        return computed(node) and node not in captured.known and index_of.get(node.buffer) not in fixed
    candidates = [node for node in captured.order if (node.op is movement.slice and _is_read(node, is_data)) or (
        node.op is control.call and _has_slices(node["graph"]))]
    if not candidates:  # of most programs: where their numbers are takes a while to say
        return []
    first = first_numbers(captured)
    return [axis for node in candidates if node in first for axis in _prefixes(node, first[node], is_data)]


def _is_read(node: Node, is_data: Callable[[Node], bool]) -> bool:
    """Whether a slice is of data, or of what was just written to."""
    x = _shown(node.inputs[0], is_data)
    return x.op is movement.assign or is_data(x)


_slicing: Final[WeakKeyDictionary[Graph, bool]] = WeakKeyDictionary()


def _has_slices(graph: Graph) -> bool:
    """Whether there is a slice in the graph of a call, or of one inside of it."""
    found = _slicing.get(graph)
    if found is None:
        found = _slicing[graph] = any(node.op is movement.slice or (
            node.op is control.call and _has_slices(node["graph"])) for node in graph.nodes)
    return found


def _prefixes(node: Node, at: int, is_data: Callable[[Node], bool]) -> Iterator[Axis]:
    """Those of a slice whose numbers begin at this position, and those inside of a call."""
    if node.op is movement.slice:
        if _is_read(node, is_data):
            starts, stops, steps = node.attrs
            for axis, size in enumerate(node.inputs[0].type.shape):
                if starts[axis] == 0 and steps[axis] == 1 and stops[axis] < size:
                    yield Axis(None, axis, at + len(starts) + axis)
    elif node.op is control.call:
        def given(x: Node) -> bool:
            return x.op is leaves.input and is_data(node.inputs[x["index"]])
        names = node.op.attrs[:node.op.attrs.index("graph")]
        at += sum(len(numbers_of(node[name])) for name in names)
        for inner in node["graph"].nodes:
            yield from _prefixes(inner, at, given)
            at += len(numbers_of(inner.attrs))
