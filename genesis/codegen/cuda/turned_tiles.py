"""Transposing tiles of many axes: which axes are a tile's rows, in which order, and how many of each.

A transpose reads along one axis and writes along another. A tile is good where it has long runs of both memories: what
a tile reads of a line of memory it reads once, and stores of neighbours are stores of whole sectors. With more than two
axes there are several such tiles. Columns are some of the result's last axes; rows are the others, and may be counted
in the order in which an operand has them, so that a short last axis of the operand is read with the axis before it:

    f32[176, 56, 57, 7].permute(3, 1, 2, 0)      x counts (56, 57, 7), r counts 176
    in0 + x + r * 22344                          a run of 7 becomes one of 22344
    out0 + x % 7 * 561792 + x // 7 * 176 + r

`turned_tile` reckons the time of each candidate by axes and strides alone: from the sectors that a tile touches of each
memory, the lines that a warp's load or store touches at once, and instructions, of idle lanes, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, prod
from typing import Final

from genesis.codegen.cuda.block_sizes import VECTOR, Blocks, block_of, enough_programs, room_for
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.kernel_ir import Apply, Constant, Kernel, Load, Number, Store
from genesis.codegen.cuda.neighbours import known_multiple
from genesis.ir.size_divisors import twos
from genesis.ir.size_trace import SYMBOLS, Trace
from genesis.ir.sym_int import SymInt, as_written, hint, literal_value, terms_of
from genesis.passes.fusion.index_map import Atom, Expr

SECTOR: Final = 32
"""Bytes that memory moves at least."""

PER_RUN: Final = 16
"""Bytes that would be moved in the time that a run costs besides: tiles of 256 bytes a side are faster than of 64."""

LINE: Final = 128
"""Bytes of a line of the L1, of which a warp's access takes one after the other."""

MOVED: Final = 18
"""Bytes from or to memory that a multiprocessor moves in a cycle (H200: 4.2 TB/s at 1.755 GHz)."""

ISSUED: Final = 128
"""Instructions of lanes in a cycle of a multiprocessor."""

PER_ELEMENT, PER_LANE, PER_ACCESS = 6, 3, 8
"""Instructions: for an element; for an element of each operand and result; for a load or store of several elements."""

PER_QUOTIENT, PER_CARRY = 10, 6
"""The same of an address: for a quotient and what is left of it; for where a block passes the end of a period
(`carried.py`). Integers are multiplied half as often in a cycle as others. (H200: f16[113, 78, 4, 23, 23] with three
quotients for each element took 84.4 µs, 18 by its bytes.)"""

UNHIDDEN: Final = 0.25
"""How much of what does not take longest is not hidden behind what does."""

STARTED: Final = 150
"""Cycles of a multiprocessor that a program costs besides."""

BETTER: Final = 0.93
"""Time of a tile, of the usual one's, from which on it is taken."""

BETTER_ROWS: Final = 0.75
"""The same where all operands run along the result's last axis: rows were measured, which this only reckons."""

GOOD: Final = 0.8
"""The bytes' time, of a tile's, from which on no other is looked for."""

FEWEST_BLOCK, MOST_BLOCK = 4, 1024
"""Elements of a side of a tile."""

LEAST_ELEMENTS: Final = 1024
"""Elements of the smallest tiles."""

MOST_AXES: Final = 6
"""Axes beyond which nothing is reckoned: no tile is better than another by much, and there are many."""


@dataclass(frozen=True)
class TurnedTile:
    """How a loop's elements are dealt out to tiles.

    Attributes:
        rows: sizes of the x parts, row-major as the result lies.
        order: the x parts as the loop counts them, outermost first.
        columns: the size of r.
        x, r: elements of a tile's sides, powers of two.
    """

    rows: tuple[int, ...]
    order: tuple[int, ...]
    columns: int
    x: int
    r: int


@dataclass(frozen=True)
class Access:
    """What a kernel loads or stores at each element.

    Attributes:
        itemsize: bytes of an element.
        strides: elements of memory between neighbours, for each axis of the loop, innermost first.
    """

    itemsize: int
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Axes:
    """A loop's axes, as its loads tell them from each other.

    Attributes:
        sizes: innermost first; of those that may be others in a later run, what they are now.
        accesses: the loads that are of another element at each point, then the stores.
        written: the same sizes as a kernel writes them.
        backwards: whether an axis is read from its end on.
    """

    sizes: tuple[int, ...]
    accesses: tuple[Access, ...]
    written: tuple[int, ...]
    backwards: bool

    def start(self, axis: int) -> int:
        """Elements of the result from neighbour to neighbour along an axis."""
        return prod(self.sizes[:axis])


@dataclass(frozen=True)
class Sides:
    """A candidate: the axes of x and of r, innermost first, and how many elements a tile has of each."""

    x_axes: tuple[int, ...]
    r_axes: tuple[int, ...]
    x: int
    r: int


def turned_tile(kernel: Kernel, usual: Kernel, blocks: Blocks | None, elements: int,
                gpu: GpuModel) -> TurnedTile | None:
    """The best tile of a flat pointwise loop; None where no operand is turned, or the usual blocks are as good.

    Args:
        kernel: the loop over one coordinate.
        usual, blocks: what it has without; no blocks stand for a flat loop.
        elements: of a tile at most.

    Example: of `f32[176, 56, 57, 7].permute(3, 1, 2, 0)` the rows (7, 56, 57) in order (1, 2, 0), 176 columns.
    """
    axes = axes_of(kernel)
    if axes is None or not 1 < len(axes.sizes) <= MOST_AXES:
        return None
    if len({access.strides for access in axes.accesses}) == 1 and not axes.backwards:
        return None
    if any(1 not in access.strides for access in axes.accesses):  # every second element and the like: not reckoned
        return None
    before = _time(axes, _usual_sides(axes, usual, blocks), gpu)
    if before * GOOD < sum(access.itemsize for access in axes.accesses) / MOVED:
        return None
    found = min(_candidates(axes, elements), key=lambda sides: _time(axes, sides, gpu), default=None)
    turned = any(access.strides[0] != 1 for access in axes.accesses)
    if found is None or _time(axes, found, gpu) > (BETTER if turned else BETTER_ROWS) * before:
        return None
    rows = sorted(found.x_axes, reverse=True)
    columns = prod(axes.written[axis] for axis in found.r_axes)
    return TurnedTile(tuple(axes.written[axis] for axis in rows),
                      tuple(rows.index(axis) for axis in reversed(found.x_axes)),
                      columns, found.x, min(found.r, block_of(columns)))


# Axes

def axes_of(kernel: Kernel) -> Axes | None:
    """The axes of a flat pointwise loop; None where some address is no sum of multiples of them."""
    if not all(isinstance(s, (Apply, Constant, Load, Number, Store)) for s in kernel.statements):
        return None
    stores = [s for s in kernel.statements if isinstance(s, Store)]
    loads = [s for s in kernel.loads("x") if s.address.terms]
    if any(s.bounds for s in loads) or any(str(s.address) != "x" for s in stores):
        return None
    moved: list[Load | Store] = [*loads, *stores]
    size = _number(kernel.x_size)
    spans = [found for s in moved if (found := _spans(s.address, size)) is not None]
    cuts = sorted({1, size, *(end for span in spans for low, high, _ in span for end in (low, high))})
    nodes = {argument.name: argument.node for argument in kernel.arguments}
    sizes = _sizes_between(cuts, nodes[stores[0].argument].shape)
    if len(spans) < len(moved) or not sizes:
        return None
    accesses = [Access(nodes[s.argument].dtype.itemsize, tuple(
        abs(sum(k * (cut // low) for low, high, k in span if low <= cut < high)) for cut in cuts[:-1]))
        for s, span in zip(moved, spans, strict=True)]
    return Axes(tuple(high // low for low, high in pairwise(cuts)),
                tuple(access for access in accesses if 0 not in access.strides), sizes,
                any(k < 0 for span in spans for _, _, k in span))


def _sizes_between(cuts: Sequence[int], shape: Sequence[int]) -> tuple[int, ...]:
    """The sizes from each cut to the next, as products of a result's; () where a cut is inside of one of these."""
    found: list[int] = []
    start = size = 1
    for axis in reversed(shape):
        size, start = axis * size, start * _number(axis)
        if start in cuts and start != cuts[len(found)]:
            found.append(size)
            size = 1
            if cuts[len(found)] != start:
                return ()
    return tuple(found) if len(found) == len(cuts) - 1 else ()


def _spans(e: Expr, size: int) -> list[tuple[int, int, int]] | None:
    """(from which, to which multiple of x it counts, by how much) for each term of an address; None where it has
    terms of other kinds."""
    found = []
    for atom, k in e.terms:
        low, high = _span(atom, size)
        if not low or k == -1:  # nobody knows of neighbours there
            return None
        found.append((low, high, _number(k)))
    return found


def _span(atom: Atom, size: int) -> tuple[int, int]:
    """Where in x an atom counts; (0, 0) if it is of another kind.

    Example: x // 4 % 16 counts multiples of 4 up to 64.
    """
    if atom.kind == "var":
        return 1, size
    inner = atom.inner.terms[0][0] if atom.inner is not None and atom.inner.is_atom and atom.inner.terms else None
    if inner is None or atom.kind == "loaded":
        return 0, 0
    number = _number(atom.number)
    if inner.kind == "var":
        return (number, size) if atom.kind == "div" else (1, number)
    if atom.kind == "mod" and inner.kind == "div":
        low, _ = _span(inner, size)
        return low, low * number
    return 0, 0


def _number(size: int) -> int:
    """A size for weighing costs, such that what divides another does so here: numbers where kernels have numbers, and
    for each argument one that is as little a multiple of anything as the argument is known to be."""
    written = as_written(size)
    if not isinstance(written, SymInt) or written.trace.exact:
        return hint(written)
    return sum(k * prod(_in_class(written.trace, atom) for atom in atoms) for atoms, k in terms_of(written))


def _in_class(trace: Trace, atom: int) -> int:
    """A number in the middle of what an atom of a size can be."""
    kind, name, _ = trace.atoms[atom]
    if kind not in SYMBOLS or not isinstance(name, str):
        return hint(trace.make((((atom,), 1),)))
    symbol: int = trace.symbol(name)  # type: ignore[assignment]  # it computes like one
    least, largest = trace.range(symbol)[0] or 0, room_for(symbol)
    unit = SYMBOLS[kind]
    return (least + largest) // (2 * unit) | 1


# Candidates

def _usual_sides(axes: Axes, usual: Kernel, blocks: Blocks | None) -> Sides:
    """The axes and sides that a loop has which counts rows as the result lies."""
    every = tuple(range(len(axes.sizes)))
    columns = _number(usual.r_size) if usual.has_r else 1
    split = next((axis for axis in every if axes.start(axis) == columns), 0)
    if blocks is None or not split:
        return Sides(every, (), 1024 if blocks is None else blocks.x * blocks.r, 1)
    return Sides(every[split:], every[:split], blocks.x, blocks.r)


def _candidates(axes: Axes, elements: int) -> Iterator[Sides]:
    """Every number of columns, order of rows and shape of a tile."""
    every = range(len(axes.sizes))
    for split in every[1:]:
        rows = every[split:]
        orders = {tuple(sorted(rows, key=lambda axis: access.strides[axis])) for access in axes.accesses}
        most_x, most_r = (2 * prod(axes.sizes[axis] for axis in side) for side in (rows, every[:split]))
        for order in sorted(orders):
            for x in _powers(most_x):
                for r in _powers(most_r):
                    if min(LEAST_ELEMENTS, elements) <= x * r <= elements:
                        yield Sides(order, tuple(every[:split]), x, r)


def _powers(most: int) -> Iterable[int]:
    """Powers of two for a side of fewer than `most` elements."""
    block = FEWEST_BLOCK
    while block <= MOST_BLOCK and block < most:
        yield block
        block *= 2


# Times

def _time(axes: Axes, sides: Sides, gpu: GpuModel) -> float:
    """Cycles of a multiprocessor for an element."""
    rows, columns = (prod(axes.sizes[axis] for axis in side) for side in (sides.x_axes, sides.r_axes))
    programs = -(-rows // sides.x) * -(-columns // sides.r)
    lanes = programs * sides.x * sides.r / (rows * columns)
    extents = {**_extents(axes, sides.x_axes, sides.x), **_extents(axes, sides.r_axes, sides.r)}
    moved = lines = 0.0
    instructions = PER_ELEMENT * lanes
    ends = _end(axes, sides.x_axes, 0), _end(axes, sides.r_axes, sides.r)
    for access in axes.accesses:
        count, reach = _run(axes, access, extents)
        edges = SECTOR - _alignment(axes, access, reach) + PER_RUN
        moved += access.itemsize * (reach * access.itemsize + edges) / (count * access.itemsize)
        along_x, along_r = (_neighbours(axes, access, side) for side in (sides.x_axes, sides.r_axes))
        vector = _vector(axes, access, sides.r_axes if along_r > along_x else sides.x_axes, ends[along_r > along_x])
        at_once = 32 * vector
        inner, outer = ("r", "x") if along_r > along_x else ("x", "r")  # as Triton has lanes lie
        part = {inner: min(getattr(sides, inner), at_once)}
        part[outer] = max(1, min(getattr(sides, outer), at_once // part[inner]))
        piece = {**_extents(axes, sides.x_axes, part["x"]), **_extents(axes, sides.r_axes, part["r"])}
        count, reach = _run(axes, access, piece)
        lines += max(1.0, at_once / count * max(1.0, reach * access.itemsize / LINE)) / at_once * lanes
        other = (sides.x_axes, sides.x) if inner == "r" else (sides.r_axes, sides.r)
        instructions += (PER_LANE + (PER_ACCESS + _quotients(axes, access, *other)) / vector) * lanes
    times = (moved / MOVED, lines, instructions / ISSUED)
    idle = max(1.0, enough_programs(gpu) / programs) ** 0.5
    return (max(times) + UNHIDDEN * (sum(times) - max(times))) * idle + STARTED / (sides.x * max(sides.r, 1))


def _quotients(axes: Axes, access: Access, side: Sequence[int], block: int) -> int:
    """Instructions for the place along the coordinate that each of a thread's elements, or vectors, has for itself."""
    ends, whole = [], 1
    for axis, after in pairwise(side):
        whole *= axes.sizes[axis]
        if access.strides[after] != access.strides[axis] * axes.sizes[axis]:
            ends.append(whole)
    inside = sum(end < block for end in ends)
    return PER_QUOTIENT * min(inside + 1, len(ends)) if inside + 2 > len(ends) else PER_QUOTIENT * inside + PER_CARRY


def _extents(axes: Axes, side: Sequence[int], block: int) -> dict[int, float]:
    """Elements of each axis that a block of neighbours has, on average in one run where blocks begin anywhere."""
    found: dict[int, float] = {}
    for axis in side:
        size = axes.sizes[axis]
        if block >= size:
            found[axis] = size
            block = max(1, block // size)
        else:
            whole = block == 1 or size % block == 0 or axis == side[-1]
            found[axis] = block if whole else block * size / (block + size)
            block = 1
    return found


def _run(axes: Axes, access: Access, extents: dict[int, float]) -> tuple[float, float]:
    """(how many elements of a block lie beside each other in memory, over how many they reach): rows that are a part of
    longer ones lie beside each other, too, where they are the larger part."""
    count, reach, whole = 1.0, 1.0, 1
    for stride, axis in sorted((stride, axis) for axis, stride in enumerate(access.strides)):
        if not whole <= stride < 2 * whole:
            break
        reach += stride * (extents[axis] - 1)
        count *= extents[axis]
        if extents[axis] < axes.sizes[axis]:
            break
        whole = stride * axes.sizes[axis]
    return count, reach


def _alignment(axes: Axes, access: Access, run: float) -> int:
    """Bytes, up to a sector, at multiples of which runs of so many elements begin."""
    return gcd(SECTOR, int(run) * access.itemsize, *(stride * access.itemsize for stride in access.strides
                                                     if stride >= run))


def _chain(axes: Axes, access: Access, side: Sequence[int]) -> Sequence[int]:
    """The first axes of x or r along which neighbours of all of them are neighbours in memory."""
    whole = 1
    for count, axis in enumerate(side):
        if access.strides[axis] != whole:
            return side[:count]
        whole *= axes.sizes[axis]
    return side


def _neighbours(axes: Axes, access: Access, side: Sequence[int]) -> int:
    """How many neighbours Triton knows of along x or r: of a remainder a power of two."""
    chain = _chain(axes, access, side)
    length = prod(axes.sizes[axis] for axis in chain)
    return MOST_BLOCK if chain and len(chain) == len(side) else gcd(MOST_BLOCK, length)


def _vector(axes: Axes, access: Access, side: Sequence[int], end: int) -> int:
    """Elements that a thread loads or stores at once along x or r, which ends at a multiple of `end`."""
    chain = _chain(axes, access, side)
    length = prod(axes.sizes[axis] for axis in chain)
    apart = [stride for axis, stride in enumerate(access.strides) if axis not in chain]
    return gcd(VECTOR // access.itemsize, length, end, *apart)


def _end(axes: Axes, side: Sequence[int], block: int) -> int:
    """What a kernel knows to divide the size of x or r, under whose mask a vector is loaded only as a whole: anything,
    if it is a number and so many elements of a block divide it, else a power of two."""
    written = as_written(prod(axes.written[axis] for axis in side))
    number = literal_value(written) if block else None
    if number is not None:
        return 0 if number % block == 0 else twos(number)
    return known_multiple(written)
