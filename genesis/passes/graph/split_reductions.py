"""Large reductions to few results are split in two steps, so that the whole GPU has work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from math import prod
from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops import reduction
from genesis.ir.ops.contraction import matmul
from genesis.ir.ops.movement import permute, reshape
from genesis.ir.ops.pointwise import cast
from genesis.ir.ops.splits import accumulated, reduce_splits
from genesis.ir.size_divisors import twos
from genesis.ir.sym_int import as_written, hint
from genesis.ir.types import bool_
from genesis.passes.fusion.materialize import weight
from genesis.passes.gpu import Gpu
from genesis.passes.graph.cuts import Apart, Cut
from genesis.passes.graph.few_long_rows import ROWS_ACROSS
from genesis.passes.graph.odd_columns import rows_apart
from genesis.passes.graph.split_spreads import split_spread
from genesis.passes.product_times import TILE_ROWS, splits_of_tiles

ROW_SPLITS: Final = ((4, 1024), (2, 2048), (1, 8192))
"""Rows reduced to columns: (splits per multiprocessor, the most columns that get as many). A kernel that computes the
rows as well has one program per split; a mere reduction also splits the columns into blocks. With more columns than
the last row's, every multiprocessor has a block of whole columns: beside rows of more than 8192 the accumulators do not
fit into registers (H200: layer norm of 7000 rows of 9000 with gradients 506 µs so, 451 in kernels of their own)."""

COLUMNS: Final = 64
"""Columns of a program of a kernel that has no whole rows."""

EACH: Final = 8
"""Programs of a multiprocessor for a kernel without whole rows, beyond which its splits are made longer."""

ROWS: Final = 24
"""Rows of 64 columns below which there are fewer splits: what a program does once would take longer than its rows.
Sums of 768 columns of 16,384 rows have 31."""

LONG_SUMS: Final = (256, 2)
"""(rows of a split, programs of a multiprocessor) up to which mere sums of memory have fewer splits: each program costs
0.9 µs of a multiprocessor's time beside what it reads (H200: 16,384 rows of 2304 bfloat16, 18 µs by their bytes, in 33
splits 33.4 µs, in 132 40.7; GPT-2's and ViT's gradients of queries, keys and values)."""

APART_EACH: Final = 4
"""Minimum programs of a multiprocessor for columns that rows have side by side: with two, some would have half as many
again as others."""

WIDEST_BLOCK: Final = 1024
"""Columns of a program that sums up what it reads, at most."""

ROWS_OF_SPREADS: Final = 256
"""Rows below which there are fewer splits of squares or exponentials around a number of the split's own: its lanes are
put together at its end (H200: std of 10,624 rows of 832 float16 in 528 splits of 21 rows 48.9 µs, torch.compile 19; of
25,480 rows of 635 float32 in 528 of 49, two rounds of loads each, 37.3 and 11.8 for what they give, 23.4 and 6.6 in
132)."""

ROWS_OF_RUNS: Final = 128
"""Rows below which there are fewer splits of columns that are the elements of odd runs: their kernels compute with what
belongs to a channel, found for each column (H200, batch norm with gradients: bfloat16[300, 64, 13, 13] in splits of ten
rows 84 µs, of 19 40, of 75 30, torch.compile 50; float32[184, 24, 13, 13] of six rows 29.2, of 23 16.1; 22.2)."""

NEARLY_ALL: Final = (32, 33)
"""(numerator, denominator): multiprocessors in use that count as all. 8192 columns in blocks of 64 use 128 of an
H200's 132."""

FEWEST_ROWS: Final = 8
"""Minimum rows per split: its result is then small beside what it reads."""

SHORT_RUN: Final = 32
"""Maximum neighbouring columns of which a program has all: lanes that go through more of them read whole sectors."""

LONGEST_PIECE: Final = 1 << 16
"""Elements of such columns up to which a program has them whole, where there are two programs a multiprocessor."""

SMALLEST: Final = 1 << 18
"""Minimum elements of a reduction that is split: below, one kernel is done sooner than two."""

LONGEST_ALONE: Final = 1 << 16
"""Elements that one program reduces to one result; of more it waits too often (H200: 100000 integers 11 µs; a kernel
and one that puts parts together start within 5 µs)."""

SPLITS_EACH: Final = 8
"""Splits of contiguous elements per multiprocessor, over all results: a program each."""

FEWER_SPLITS: Final = (128, 16)
"""Total splits that are worth a second launch, too, where `SPLITS_EACH` of them would be shorter than
`SHORTEST_SPLIT`."""

BETWEEN_EACH: Final = (4, 2)
"""Splits per multiprocessor that are taken where they are more than those, and long enough: the four warps of one
program wait for memory and for arithmetic (H200: mse_loss of 3.2 M float16 in 128 splits 7.2 µs, 1.8 TB/s)."""

BETWEEN: Final = (64, 32)
"""Total splits that are taken in the same way."""

HEAVY: Final = 20
"""Weighted ops of an element from which on a split's program computes longer than it waits for memory: registers have
no room for `SPLITS_EACH` of them (binary cross-entropy of a sigmoid, 9.4 M float32: 922 programs of 80 registers a
thread were a round of 792 and a lonely rest, which took 34.5 µs on an H200; 659 take 32.1, instructions alone 24)."""

HEAVY_EACH: Final = 5
"""Splits per multiprocessor of these: they have a place at once."""

SHORTEST_SPLIT: Final = 4096
"""Minimum elements per split of contiguous elements."""

WHOLE_ROW: Final = 16384
"""Elements up to which a result is made by one program, where they lie side by side: it reads 64 KiB in about 1.3 µs, a
launch takes 2.2, and what comes after the sum may join its kernel (reckoned for an H200)."""

MOST_WHOLE: Final = 4
"""How many times as long a row may be that is made by one program, where there are half as many results as
multiprocessors, and each row is one piece of memory; twice with a quarter as many. What is computed of a row's elements
then stays in its kernel, which reads them again from its cache, where splits are two more launches. A group norm of 104
groups of 16,399 float32 was three launches (H200: 21.3 µs, 15 in torch.compile's kernel of whole rows)."""

MOST_OF_PIECES: Final = 2
"""How many times as long it may be where it lies in several pieces, as a channel's elements in images, and no
multiprocessor has two. Batch norm of 64 channels of 19,845 float32 was three launches (H200: 13.4 µs; one program a
channel in torch, 9.2)."""

MOST_OF_FEW: Final = 2
"""How many times as long it may be where some multiprocessors have two and others one or two: a group norm of 136
groups of 50,176 float32 with its gradients takes as long as 264 of them (H200: 125 µs, torch.compile 74)."""

READ_AT_ONCE: Final = 8
"""Bytes of neighbours: runs that begin at no multiple of as many are read one element after another."""

LONGEST_RUN: Final = 4096
"""Maximum elements of a run of neighbours: what its columns are reduced to is small beside what is read."""

SHORTEST_ALONE: Final = 2048
"""Minimum elements of such a run that a program reduces, as costs are weighed: 33 × 33 count as 64 × 64."""

FEWEST_COLUMNS: Final = 1024
"""Minimum columns that are worth a kernel of their own."""

MULTIPLE: Final = 2048
"""Splits of contiguous elements start at multiples of this many elements, so that they are read in full blocks."""

SPLIT_ACROSS: Final = 128
"""Minimum elements of a split of such rows, which begin at multiples of as many."""

SMALLEST_ACROSS: Final = 1 << 16
"""Minimum elements of all such rows."""

FEWEST_ACROSS_SPLITS: Final = 4
"""Splits of such rows from which on they are worth a second launch: less than a quarter of the multiprocessors had a
program (H200: gelu(a * b + c) of float32 [10300, 64], a turned, with the gradient of a row c: 126 µs in four programs,
torch.compile 29)."""

FEWEST_ACROSS: Final = 16
"""Minimum elements along either side of squares of values that lie in two orders."""

MOST_BEHIND: Final = 64
"""Maximum ops between a product and a sum that is asked whether the product's kernel may make it."""


def split_reductions(graph: Graph, gpu: Gpu) -> Graph:
    """A reduction of many elements to few results → a reduction of each split, then one of their results.

        before: %1: bf16[] = sum(%0, axes=(0,))      after: %1: f32[1056] = reduce_splits(%0, how=sum, splits=1056)
                                                            %2: f32[] = sum(%1, axes=(0,))
                                                            %3: bf16[] = cast(%2)
    """
    whole, stored = _whole_columns(graph, gpu), frozenset(graph.roots)
    graph = rewrite(graph, lambda node: None if node in whole else split_spread(
        node, lambda x: _cut(x, gpu, ROWS_OF_SPREADS, stored)))
    whole, stored = _whole_columns(graph, gpu), frozenset(graph.roots)
    beside = {(node.inputs[0], node["how"]): Cut(node["splits"], node["multiple"], node["axes"])
              for node in graph.nodes if node.op is reduce_splits}

    def split(node: Node) -> Node | None:
        if node in whole or not node.op.associative:
            return None
        cut = beside.get((node.inputs[0], node.op.name))
        return _split(node, gpu, cut if cut is not None and set(cut.axes) <= set(node["axes"]) else None, stored)
    return rewrite(graph, split)


def whole_columns(gpu: Gpu) -> int:
    """Columns from which on blocks of 64 of them keep nearly every multiprocessor busy."""
    part, of = NEARLY_ALL
    return 64 * gpu.multiprocessors * part // of


def _whole_columns(graph: Graph, gpu: Gpu) -> set[Node]:
    """Reductions to many columns of values that no other node reads: one kernel does these as well as two.

    If other nodes read the values, the kernel that computes their rows can reduce its split of them on the way.
    """
    readers = Counter(x for node in graph.nodes for x in set(node.inputs) if node.op.kind != "leaf")
    found, many = set(), whole_columns(gpu)
    for node in graph.nodes:
        if node.op.associative and hint(node.type.numel) >= many and node.type.ndim:
            behind = [*node.inputs]
            while behind and readers[behind[-1]] == 1 and behind[-1].op.kind in ("movement", "pointwise", "leaf"):
                behind += behind.pop().inputs
            if not behind:
                found.add(node)
    return found


def _split(node: Node, gpu: Gpu, cut: Cut | None = None, stored: frozenset[Node] = frozenset()) -> Node | None:
    """The reduction in splits; None where it stays whole.

    Args:
        cut: that of the same reduction beside a spread, so that one reading of a split gives both.
        stored: values that somebody asks for.
    """
    turned = None if cut is not None else _split_turned(node, gpu)
    alone = cut is None and turned is None
    cut = cut or turned or _cut(node, gpu, stored=stored)
    if cut is None:
        return None
    row = _row_before(node, gpu) or _across_orders(node) or (_odd_run(node, gpu) if alone else ())
    if row:
        return _by_rows(node, row, gpu)
    x = cut.seen(node.inputs[0])
    parts = reduce_splits(x, how=node.op.name, axes=cut.axes, splits=cut.splits, multiple=cut.multiple)
    total = cast(node.op(parts, axes=cut.axes_left(node)), dtype=node.dtype)
    return total if total.shape == node.shape else reshape(total, shape=node.shape)


def _by_rows(node: Node, row: tuple[int, ...], gpu: Gpu) -> Node:
    """A reduction of each row, then one of these.

        before: %1: bf16[] = sum(%0, axes=(0,1))     after: %1: f32[1794,20080] = cast(%0)
                                                            %2: f32[1794] = sum(%1, axes=(1,))
                                                            %3: f32[] = sum(%2, axes=(0,))
                                                            %4: bf16[] = cast(%3)
    """
    x = node.inputs[0]
    dtype = x.dtype if node.dtype is bool_ else accumulated(node.op.name, x.dtype)
    rows = node.op(cast(x, dtype=dtype), axes=row)
    kept = [axis for axis in range(x.type.ndim) if axis not in row]
    total = node.op(rows, axes=tuple(place for place, axis in enumerate(kept) if axis in node["axes"]))
    total = cast(_split(total, gpu) or total, dtype=node.dtype)
    return total if total.shape == node.shape else reshape(total, shape=node.shape)


def _row_before(node: Node, gpu: Gpu) -> tuple[int, ...]:
    """The innermost axes of a row that must be reduced as a whole before its elements are known, as those of a softmax;
    () where there is none, or where that reduction is split itself.

    A kernel that makes such rows has each of them whole, and reduces it on the way. Cut anywhere else, the elements
    would be written for another kernel to read (H200: kl_div of 1794 rows of 20080, 268 µs, of which 41 read again).
    """
    x = node.inputs[0]
    pending, seen = [x], {x}
    while pending and len(seen) <= MOST_BEHIND:
        behind = pending.pop()
        if behind.op.kind == "reduction" and behind.inputs[0].shape == x.shape:
            axes, ndim = behind["axes"], x.type.ndim
            inner = tuple(range(ndim - len(axes), ndim))
            if axes == inner and set(axes) < set(node["axes"]) and _cut(behind, gpu) is None:
                return inner
        elif behind.op.kind in ("pointwise", "movement"):
            pending += (y for y in dict.fromkeys(behind.inputs) if y not in seen)
            seen.update(behind.inputs)
    return ()


def _odd_run(node: Node, gpu: Gpu) -> tuple[int, ...]:
    """The innermost axes of long runs of neighbours that begin anywhere, where outer axes are reduced as well and
    something is computed of an element; () where there are none, or too few for a program each.

    A program has a run, and what belongs to its channel is loaded once. As columns each element asks for that by itself
    (H200, gradients of a group norm's weights, bfloat16[24, 256, 53, 53]: 108 µs in programs of 32 rows of 64 columns,
    26 by their bytes; the group norm 179 → 101 µs, torch.compile 134).
    """
    x, inner = node.inputs[0], _side_by_side(node)
    run = prod(x.shape[axis] for axis in inner)
    runs = hint(x.type.numel) // max(hint(run), 1)
    if not inner or set(inner) == set(node["axes"]):
        return ()
    odd = twos(as_written(run)) * x.dtype.itemsize < READ_AT_ONCE
    return inner if odd and SHORTEST_ALONE <= hint(run) <= LONGEST_RUN and runs >= 2 * gpu.multiprocessors else ()


def _across_orders(node: Node) -> tuple[int, ...]:
    """The axes over which a total of values that lie in two orders is reduced first; () where all lie in one.

    In the order of one of them the other's neighbours would be a line of memory apart. A kernel that keeps some axes
    reads squares of both, as a transposing copy does, and reduces them to one number for each of the axes that it
    keeps: those up to the one along which the permuted value lies, or those behind it, whichever are more.

        before: %2: f32[] = sum(sub(permute(%0), %1), axes=(0,1))    after: %2: f32[4096] = sum(…, axes=(1,))
                                                                            %3: f32[] = sum(%2, axes=(0,))
    """
    x, axes = node.inputs[0], sorted(node["axes"])
    if axes != list(range(x.type.ndim)):
        return ()
    along = _axis_of_neighbours(x)
    if along is None:
        return ()
    outer, inner = tuple(range(along + 1)), tuple(range(along + 1, x.type.ndim))
    sizes = [hint(prod(x.shape[axis] for axis in side)) for side in (outer, inner)]
    if min(hint(x.shape[along]), sizes[1]) < FEWEST_ACROSS:
        return ()
    return inner if sizes[0] >= sizes[1] else outer


def _axis_of_neighbours(x: Node) -> int | None:
    """The axis along which a permuted value lies that something is computed of beside one in order; None if there is
    no such value, or it lies along the last axis, too."""
    last = max((axis for axis, size in enumerate(x.shape) if size != 1), default=0)
    pending, seen, found = [x], {x}, None
    while pending and len(seen) <= MOST_BEHIND:
        behind = pending.pop()
        if behind.op is permute and behind.type.numel == x.type.numel:
            source = behind.inputs[0]
            inmost = max((axis for axis, size in enumerate(source.shape) if size != 1), default=0)
            along = behind["axes"].index(inmost)
            found = along if along != last else found
        elif behind.op.kind == "pointwise":
            pending += (y for y in dict.fromkeys(behind.inputs) if y not in seen)
            seen.update(behind.inputs)
    return found


def _has_values_in_order(x: Node) -> bool:
    """Whether something is computed of as many values that are not permuted: a matrix beside a vector is one order."""
    pending, seen = [x], {x}
    while pending and len(seen) <= MOST_BEHIND:
        behind = pending.pop()
        if behind.op.kind == "pointwise":
            pending += (y for y in dict.fromkeys(behind.inputs) if y not in seen)
            seen.update(behind.inputs)
        elif behind.op.kind != "movement" and behind.type.numel == x.type.numel:
            return True
    return False


def _cut(node: Node, gpu: Gpu, fewest: int = ROWS, stored: frozenset[Node] = frozenset()) -> Cut | None:
    """How a reduction is split; None for one that stays whole. `fewest` are rows of a split of blocks of columns,
    `stored` values that somebody asks for.

    The number of splits has few possible values, so that most batch sizes share their kernels.
    """
    x, axes = node.inputs[0], [axis for axis in node["axes"] if node.inputs[0].shape[axis] != 1]
    results, count = hint(node.type.numel), prod(x.shape[axis] for axis in axes)
    extent = hint(count)
    last = max((axis for axis, size in enumerate(x.shape) if size != 1), default=0)
    least = min(LONGEST_ALONE + 1, SMALLEST) if results == 1 and last in axes else SMALLEST
    if not results or results * extent < least:
        return None
    if last in axes:
        cut = _split_across(node, gpu, max(fewest, ROWS_OF_RUNS)) or _split_rows(node, results, extent, gpu)
        most = 1 if results > gpu.multiprocessors else MOST_OF_PIECES
        most = MOST_WHOLE if set(node["axes"]) == set(_side_by_side(node)) else most
        if gpu.multiprocessors < results <= 2 * gpu.multiprocessors:
            most = min(most, MOST_OF_FEW)
        whole = WHOLE_ROW * max(1, min(8 * results // gpu.multiprocessors, most))
        if cut is None or results == 1 or count > whole:
            return cut
        # A class of batches is weighed as one of its larger ones: its smallest may have rows for a few multiprocessors.
        return None if count <= WHOLE_ROW or 4 * node.type.numel >= gpu.multiprocessors else cut
    if node.op is reduction.sum and _follows_product(node, gpu):
        return Cut(splits_of_tiles(count), TILE_ROWS, node["axes"])
    columns = hint(x.shape[last])
    if columns <= SHORT_RUN and results >= 2 * gpu.multiprocessors * columns and extent * columns <= LONGEST_PIECE:
        return None
    apart = rows_apart(node, stored)
    if apart is not None and not _follows_rows(node):
        return _split_apart(node, apart, gpu)
    row_splits = [(each * gpu.multiprocessors, most) for each, most in ROW_SPLITS]
    fitting = [splits for splits, most in row_splits if results <= most and extent >= splits * FEWEST_ROWS]
    if not fitting:
        return None
    splits, blocks = max(fitting), -(-results // COLUMNS)
    while (extent < splits * fewest and splits // 2 * blocks >= EACH * gpu.multiprocessors
           and not _follows_rows(node)):
        splits //= 2
    if node.op is reduction.sum and _is_memory(node.inputs[0]):
        (long, each), blocks = LONG_SUMS, -(-results // block_of_columns(results))
        while extent < splits * long and splits // 2 * blocks >= each * gpu.multiprocessors:
            splits //= 2
    return Cut(splits, 1, node["axes"])


def _split_apart(node: Node, apart: Apart, gpu: Gpu) -> Cut:
    """Splits of rows that have columns of their own side by side: few, as their parts are so many more."""
    axes = tuple(axis + (axis > apart.axis) for axis in node["axes"])
    columns = hint(node.type.numel) * apart.rows
    extent = hint(prod(node.inputs[0].shape[axis] for axis in node["axes"])) // apart.rows
    splits, blocks = gpu.multiprocessors, -(-columns // block_of_columns(columns))
    while splits > 1 and (extent < splits * FEWEST_ROWS or (
            extent < splits * LONG_SUMS[0] and splits // 2 * blocks >= APART_EACH * gpu.multiprocessors)):
        splits //= 2
    return Cut(splits, 1, axes, apart)


def block_of_columns(columns: int) -> int:
    """Columns of a program that only sums up splits of rows: as wide as eight programs for each split leave them.

    >>> block_of_columns(2304), block_of_columns(768), block_of_columns(100)
    (256, 128, 64)
    """
    width = min(max(COLUMNS, 1 << max(columns // 8 - 1, 0).bit_length()), WIDEST_BLOCK)
    while columns % width and width > COLUMNS:
        width //= 2
    return width


def _is_memory(x: Node) -> bool:
    """Whether a value is read from memory as it is: nothing but a cast or a view of what no loop computes."""
    while x.op is cast or (x.op.kind == "movement" and len(x.inputs) == 1):
        x = x.inputs[0]
    return x.op.kind not in ("pointwise", "movement", "reduction") or not x.inputs


def _follows_rows(node: Node) -> bool:
    """Whether what is summed is made of a reduction of each row: one kernel then has whole rows, and adds them up."""
    x = node.inputs[0]
    pending, seen = [x], {x}
    while pending and len(seen) <= MOST_BEHIND:
        behind = pending.pop()
        if behind.op.kind == "reduction" and not set(behind["axes"] if "axes" in behind.op.attrs else
                                                     (behind["axis"],)) <= set(node["axes"]):
            return True
        if behind.op.kind in ("pointwise", "movement"):
            pending += (y for y in dict.fromkeys(behind.inputs) if y not in seen)
            seen.update(behind.inputs)
    return False


def _follows_product(node: Node, gpu: Gpu) -> bool:
    """Whether a sum over all rows of a matrix is one of pointwise ops on a product, whose kernel may sum up its tiles'
    columns while others are multiplied (`passes/fusion/epilogues.py` decides).

    A row's reduction on the way keeps the product's kernel from it, as a tile has no whole rows.
    """
    x = node.inputs[0]
    if sorted(node["axes"]) != list(range(x.type.ndim - 1)):
        return False
    pending, seen, found = [x], {x}, False
    while pending and len(seen) <= MOST_BEHIND:
        op = pending[-1].op
        if op is matmul:
            product = pending.pop()
            found |= (product.shape[-1] == x.shape[-1] and product.type.numel == x.type.numel
                      and gpu.stores_beside_sums(product))
        elif op.kind in ("pointwise", "movement", "leaf"):
            behind = [y for y in dict.fromkeys(pending.pop().inputs) if y not in seen]
            pending += behind
            seen.update(behind)
        else:
            return False
    return found and not pending


def _split_rows(node: Node, results: int, extent: int, gpu: Gpu) -> Cut | None:
    """Splits of what lies side by side in memory: as many as are long enough, where two launches are worth it."""
    def fitting(numbers: Iterable[int]) -> list[int]:
        return [splits for splits in numbers if splits >= 2 * results and extent * results >= splits * SHORTEST_SPLIT]

    each = HEAVY_EACH if _weight_behind(node) >= HEAVY else SPLITS_EACH
    worth = fitting((each * gpu.multiprocessors, *FEWER_SPLITS))
    if not worth:
        return None
    between = fitting((*(each * gpu.multiprocessors for each in BETWEEN_EACH), *BETWEEN))
    return Cut(max(worth + between) // results, MULTIPLE, node["axes"])


def _weight_behind(node: Node) -> int:
    """Weighted ops of each element that a reduction computes from what is in memory; those of 16 bits are cheap."""
    found, pending, seen = 0, [node.inputs[0]], {node.inputs[0]}
    while pending and len(seen) <= MOST_BEHIND:
        x = pending.pop()
        if x.op.kind == "pointwise" and not x.type.weak and x.type.numel == node.inputs[0].type.numel:
            found += weight(x) if x.dtype.itemsize > 2 else 0
            pending += (y for y in dict.fromkeys(x.inputs) if y not in seen)
            seen.update(x.inputs)
    return found


def _split_across(node: Node, gpu: Gpu, fewest: int) -> Cut | None:
    """Splits of the outer axes alone, where runs of neighbours are so short or odd that they are read one by one: the
    elements of all runs are columns, which are read in vectors (a channel's statistics in images of 7 × 7)."""
    x, inner = node.inputs[0], _side_by_side(node)
    run = prod(x.shape[axis] for axis in inner)
    outer = tuple(axis for axis in node["axes"] if axis not in inner)
    rows, columns = hint(prod(x.shape[axis] for axis in outer)), hint(node.type.numel) * hint(run)
    if hint(run) > LONGEST_RUN or twos(as_written(run)) * x.dtype.itemsize >= READ_AT_ONCE:
        return None
    if rows < 2 * FEWEST_ROWS or columns < FEWEST_COLUMNS:
        return None
    splits, blocks = 1, -(-columns // COLUMNS)
    while splits * blocks < EACH * gpu.multiprocessors and rows >= 2 * splits * (
            FEWEST_ROWS if splits * blocks < gpu.multiprocessors else fewest):
        splits *= 2
    return Cut(splits, 1, outer)


def _split_turned(node: Node, gpu: Gpu) -> Cut | None:
    """Splits of rows of values that lie in two orders, where few programs had all of them: such a program has several
    rows, to read what lies across them in lines of memory. None where nothing lies so, or programs are enough."""
    x, results = node.inputs[0], hint(node.type.numel)
    last = max((axis for axis, size in enumerate(x.shape) if size != 1), default=0)
    along = _axis_of_neighbours(x)
    if last not in node["axes"] or along is None or along in node["axes"] or hint(x.shape[along]) < ROWS_ACROSS:
        return None
    if hint(x.type.numel) < SMALLEST_ACROSS or not _has_values_in_order(x):
        return None
    extent = hint(x.type.numel) // max(results, 1)
    splits, blocks = 1, -(-results // ROWS_ACROSS)
    while splits * blocks < gpu.multiprocessors and extent >= 2 * splits * SPLIT_ACROSS:
        splits *= 2
    return Cut(splits, SPLIT_ACROSS, node["axes"]) if splits >= FEWEST_ACROSS_SPLITS else None


def _side_by_side(node: Node) -> tuple[int, ...]:
    """The reduced axes behind which nothing is kept: their elements lie side by side."""
    x, found = node.inputs[0], []
    for axis in reversed(range(x.type.ndim)):
        if axis in node["axes"]:
            found.append(axis)
        elif x.shape[axis] != 1:
            break
    return tuple(found)
