"""Places that move: `out[i] = f(data[j:j + 8])` is one program for all i and j.

Where a slice begins is part of a program's structure, so that simplification may use it. A program that differs from
an earlier one in nothing but such beginnings would be compiled for each; instead those that were seen to differ become
numbers of the plan, and the slices rows that an index selects: `take` and `index_copy`. The first program keeps its
plan, and both give the same bits.

Only for backends whose plans are for fixed sizes. Where sizes are symbolic, places are, too (`symbolic/places.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from genesis.ir.node import NUMBER_TYPES, OPS, Node, make, unique
from genesis.ir.ops import indexing, leaves, movement
from genesis.ir.types import int64
from genesis.ir.walk import computed

if TYPE_CHECKING:
    from genesis.engine.capture import Captured
    from genesis.engine.state import Cache

PLACED: Final = frozenset(op for op in OPS.values() if op.placed)
"""Ops with places: attributes starts, stops, steps."""

MANY: Final = 16
"""Places that slices of one kind begin at, from which on those of a piece of a loop are taken for moving ones."""

ITEM_BYTES: Final = 40
"""Bytes of an item of a key: a pointer, and of every third item a tuple of its own (sys.getsizeof, 2026-11)."""

Moving = dict[Node, tuple[int, ...]]
"""Node → the axes along which its place moves."""


class Places:
    """What is known of the programs that differ in nothing but places.

    Attributes:
        first: the starts of each slice of the first.
        moving: (number of the slice, axis) of the starts that were seen to differ.
        nbytes: about how much memory it takes, with a key of `items` items.
    """

    __slots__ = ("first", "moving", "nbytes")

    def __init__(self, first: Sequence[tuple[int, ...]], moving: Collection[tuple[int, int]], items: int):
        self.first, self.moving = first, set(moving)
        self.nbytes = ITEM_BYTES * items

    def seen(self, starts: Sequence[tuple[int, ...]]) -> set[tuple[int, int]]:
        """Another program has these starts: the places that move."""
        if starts != self.first:
            for number, (a, b) in enumerate(zip(self.first, starts, strict=True)):
                if a != b:
                    self.moving.update((number, axis) for axis in range(len(a)) if a[axis] != b[axis])
        return self.moving


def placed_nodes(captured: Captured) -> list[Node]:
    """The slices of a program that may move, in order."""
    return [node for node in captured.order if node.op in PLACED and not computed(node) and node.type.numel]


def move(captured: Captured, known: Cache[tuple, Places], piece: bool) -> bool:
    """Make those places of the program numbers that move; False, and nothing done, if none does.

    Args:
        known: programs apart from their places, by key; grows.
        piece: it is a piece of a loop: places that differ inside of it move, too.
    """
    nodes = placed_nodes(captured)
    if not nodes:
        return False
    at = captured.op_at
    regions = [_region(node) for node in nodes]
    key = _erased(captured.key, nodes, regions, at)
    starts = [node.attrs[0] for node in nodes]
    places = known.get(key)
    if places is None:
        places = known.add(key, Places(starts, _moving_inside(nodes, regions) if piece else (), len(key)))
    places.seen(starts)
    if not places.moving:
        return False
    moving: dict[int, list[int]] = {}
    for number, axis in sorted(places.moving):
        moving.setdefault(number, []).append(axis)
    _make_numbers(captured, [(nodes[number], tuple(axes), regions[number]) for number, axes in moving.items()], at)
    return True


def key_without_places(captured: Captured) -> tuple:
    """The program's key but for where its slices begin.

    >>> import genesis
    >>> from genesis.engine.capture import capture
    >>> x = genesis.ones(5)
    >>> genesis.eval(x)
    >>> first, second = (key_without_places(capture([x[i:i + 2].neg().storage.node])) for i in range(2))
    >>> first == second
    True
    """
    nodes = placed_nodes(captured)
    return _erased(captured.key, nodes, map(_region, nodes), captured.op_at) if nodes else captured.key


def _erased(key: tuple, nodes: Iterable[Node], regions: Iterable[tuple], at: Mapping[Node, int]) -> tuple:
    """A key with these slices' regions in the place of their attributes."""
    erased = list(key)
    for node, region in zip(nodes, regions, strict=True):
        erased[at[node] + 1] = region
    return tuple(erased)


def _region(node: Node) -> tuple:
    """What a slice is apart from its place: the sizes, and the steps."""
    starts, stops, steps = node.attrs
    return tuple([-(-(stop - start) // step) for start, stop, step in zip(starts, stops, steps, strict=True)]), steps


def _moving_inside(nodes: Sequence[Node], regions: Sequence[tuple]) -> list[tuple[int, int]]:
    """The places that differ, of many slices of one kind of equal types: those of a loop's turns."""
    kinds: dict[tuple, list[int]] = {}
    for number, (node, region) in enumerate(zip(nodes, regions, strict=True)):
        kinds.setdefault((node.op, node.inputs[0].type, region), []).append(number)
    found = []
    for (_, kind, _), numbers in kinds.items():
        for axis in range(kind.ndim):
            places = {nodes[number].attrs[0][axis] for number in numbers}
            if len(places) > MANY and 4 * len(places) > len(numbers):
                found += [(number, axis) for number in numbers]
    return found


def _make_numbers(captured: Captured, moving: Sequence[tuple[Node, tuple[int, ...], tuple]],
                  at: dict[Node, int]) -> None:
    """Make the starts of these slices, along these axes, the program's last numbers. What a slice is apart from its
    place is given, too."""
    key = list(captured.key)
    kind = NUMBER_TYPES[int]
    numbers: list[Node] = []
    for node, axes, region in moving:
        starts = list(node.attrs[0])
        numbers += [unique(leaves.number, (), (starts[axis], kind), kind) for axis in axes]
        for axis in axes:
            starts[axis] = -1
        key[at[node] + 1] = ("moving", tuple(starts), region)
    captured.number_nodes = [*captured.number_nodes, *numbers]
    captured.numbers = [x.attrs[0] for x in captured.number_nodes]
    captured.key, captured.moving = tuple(key), {node: axes for node, axes, _ in moving}


def moved(node: Node, operands: Sequence[Node], axes: Sequence[int], starts: Sequence[Node]) -> Node:
    """A slice, or a write to one, that begins at these numbers along these axes."""
    sizes, steps = _region(node)
    x, device = operands[0], node.type.device
    whole = x.type.shape

    def along(axis: int, start: Node) -> Node:
        rows = leaves.iota(shape=(sizes[axis],), axis=0, dtype=int64, device=device)
        return rows * steps[axis] + start
    still = [axis for axis in range(len(whole)) if axis not in axes and (
        node.attrs[0][axis], node.attrs[1][axis], steps[axis]) != (0, whole[axis], 1)]
    if node.op is movement.slice:
        if still:
            fixed = [(0, size, 1) if axis in axes else region for axis, (size, region) in enumerate(
                zip(whole, zip(*node.attrs, strict=True), strict=True))]
            x = make(movement.slice, (x,), tuple(zip(*fixed, strict=True)), node.source)
        for axis, start in zip(axes, starts, strict=True):
            x = make(indexing.take, (x, along(axis, start)), (axis,), node.source)
        return x
    if len(axes) == 1 and not still:
        return make(indexing.index_copy, (x, along(axes[0], starts[0]), operands[1]), (axes[0],), node.source)
    place: Node | None = None
    stride = 1
    for axis in reversed(range(len(whole))):
        rows = leaves.iota(shape=sizes, axis=axis, dtype=int64, device=device) * steps[axis]
        rows = rows + (starts[axes.index(axis)] if axis in axes else node.attrs[0][axis])
        place = rows * stride if place is None else place + rows * stride
        stride *= whole[axis]
    assert place is not None
    flat = indexing.index_copy(movement.reshape(x, shape=(x.type.numel,)),
                               movement.reshape(place, shape=(operands[1].type.numel,)),
                               movement.reshape(operands[1], shape=(operands[1].type.numel,)), axis=0)
    return movement.reshape(flat, shape=whole)
