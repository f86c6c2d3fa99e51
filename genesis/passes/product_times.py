"""How long a matrix product takes that is read by pointers, as an H200 showed of each kind of operands.

A program makes one tile of C, a block of the inner dimension at a time. A multiprocessor that has one program waits for
its loads; several take turns, until they wait for each other. The tile is the first of the kind's that half of the
multiprocessors get one of, as in `codegen/cuda/templates/product_choice.py`. Products of float32 whose bits all count
have a model of their own (`multiply_add_times.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from genesis.config import config
from genesis.ir.ops.splits import split_length
from genesis.ir.size_divisors import divided_by
from genesis.ir.sym_int import Size, hint
from genesis.ir.types import bfloat16, float16, float32
from genesis.passes.graph.memory_order import strides_of
from genesis.passes.multiply_add_times import SPLIT_UNIT, fastest_fma, fastest_streamed, sampled, streams_sooner

if TYPE_CHECKING:
    from genesis.ir.node import Node
    from genesis.passes.gpu import Gpu

TILE_ROWS: Final = 128
"""Rows of the tiles of a product that is followed by a sum of its rows, whatever form its kernel has
(`codegen/cuda/templates/streamed_matmul.py`)."""

BLOCK: Final = SPLIT_UNIT
"""Elements of the inner dimension that the times of a block are about."""

MEASURED_AT: Final = 4096
"""`Gpu.dot_flops` of the H200 that blocks were timed on; other GPUs' clocks are near enough to its own."""


@dataclass(frozen=True)
class Block:
    """A tile's rows and columns, and microseconds that a block of the inner dimension takes.

    Attributes:
        least: elements of C for each multiprocessor that gets any, from which on the tile is taken.
        alone: of a multiprocessor's only program.
        beside: of each of several programs that share a multiprocessor.
    """

    rows: int
    columns: int
    least: int
    alone: float
    beside: float


BLOCKS: Final[dict[str, tuple[Block, ...]]] = {
    "half": (Block(128, 256, 128 * 256, 0.70, 0.70), Block(128, 128, 128 * 128, 0.47, 0.47),
             Block(64, 128, 64 * 128, 0.33, 0.33), Block(64, 64, 0, 0.22, 0.22)),
    "unaligned": (Block(128, 128, 128 * 128, 1.2, 0.88), Block(64, 64, 0, 0.7, 0.5)),
    "both unaligned": (Block(128, 128, 128 * 128, 1.45, 1.45), Block(64, 64, 0, 0.7, 0.7)),
    "rounded": (Block(128, 256, 128 * 256, 1.4, 1.4), Block(128, 128, 128 * 128, 0.94, 0.94),
                Block(64, 64, 0, 0.44, 0.44)),
}
"""Kind of operands → tiles, the largest first. Those of "half" and of operands at odd places were measured on an H200
(2026-11: 5000 × 2000 by 333 38.4 µs, 6752 × 1024 by 467 28.1, 3701 × 3711 by 256 56.4; both operands 1143 × 1667 by
1096 39.3, 2047 × 1023 by 1025 46.0, 143 × 1667 by 4096 38.6), 64 × 64 at odd places alone and "rounded" reckoned."""

STREAMED: Final = Block(128, 128, 128 * 128, 0.38, 0.38)
"""The smallest tile of 16-bit products whose blocks the copy engine brings (H200, 2026-11: 3704 × 3710 by 256, a
round of them, took 21.7 µs, and 22.0 so). All forms: `templates/streamed_matmul.py`."""

@dataclass(frozen=True)
class PartTile:
    """A tile of a product whose inner dimension is split, whose blocks the copy engine brings.

    Attributes:
        block: microseconds that tensor cores take for `BLOCK` elements of the inner dimension, at the least.
        ends: microseconds of the launch, of the first block's way and of the tile's end.
    """

    rows: int
    columns: int
    block: float
    ends: float


PART_TILES: Final = (PartTile(64, 64, 0.166, 3.0), PartTile(64, 128, 0.188, 3.0), PartTile(128, 128, 0.288, 3.0),
                     PartTile(128, 256, 0.559, 8.0))
"""An H200 (2026-11-30, 12 products, operands from memory) took 0.77 to 1.2 of what these say: 768 × 16384 × 768 34.5 µs
in three parts of 128 × 128 (61.8 unsplit, cuBLAS 36.3), 272 × 7736 × 2464 34.4 in four of 128 × 256 (60, 25.5)."""

MOST_PARTS: Final = 6
"""Most parts whose blocks the copy engine brings. More have so few blocks each that its way to the first one counts
(H200, µs: 136 × 8328 × 216 in 18 such parts 14.8, in 16 by pointers 7.7; 240 × 2112 × 160 5.6 in seven, 4.8 in
eight)."""

BROUGHT: Final = 16e6
"""Bytes a microsecond that the L2 gives all multiprocessors, whose rows are whole lines."""

BROUGHT_TO_ONE: Final = 0.21e6
"""The same of one multiprocessor."""

WITHIN_LINES: Final = 0.83
"""How much more the rows of a block take, as a part, for each operand whose rows begin within lines."""

LINE_BYTES: Final = 128
"""What the L2 gives at once: a block's row that begins elsewhere is in two of these."""

ADDED_UP: Final = (2.0, 6e6)
"""Microseconds of a kernel that adds up parts which are in the L2, and bytes of them a microsecond (H200: 1.3 µs for
four parts of 136 × 560 to 3.7 for four of 1024 × 1024, beside half a microsecond between two kernels)."""

UNALIGNED: Final = ("unaligned", "both unaligned")
"""Kinds of which threads load one operand by single elements, or both."""

VECTOR_BYTES: Final = 16
"""What the copy engine wants rows to be multiples of."""

KINDS: Final = (float16, bfloat16, float32)
"""Dtypes of products that have a kind."""


def kind_of(product: Node) -> str:
    """The kind of a product's operands, whose dtype is one of `KINDS`."""
    if product.dtype is float32:
        return "ieee" if config.float32_products == "ieee" else "rounded"
    return ("half", *UNALIGNED)[sum(map(_is_unaligned, product.inputs))]


def _is_unaligned(x: Node) -> bool:
    """Do rows of 16-bit values begin or end at odd places? (`templates/product_lines.py` asks what is in memory.)"""
    strides = strides_of(x)
    if strides is None:
        return False
    *_, row, column = strides
    other, end = (row, x.type.shape[-1]) if column == 1 else (column, x.type.shape[-2])
    return 1 not in (row, column) or not divided_by(other, 2) or not divided_by(end, 2)


def in_vectors(x: Node) -> bool:
    """Does one of a matrix's dimensions lie side by side, and the other in steps of 16 bytes? The copy engine brings no
    others."""
    strides = strides_of(x)
    if strides is None:
        return True  # a reshape of a view: it is not known here how it lies
    (row, column), vector = strides[-2:], VECTOR_BYTES // x.dtype.itemsize
    return (column == 1 and divided_by(row, vector)) or (row == 1 and divided_by(column, vector))


def product_microseconds(product: Node, splits: int, gpu: Gpu) -> float:
    """Estimated microseconds of a product whose inner dimension is split into so many parts, without their sum."""
    kind = kind_of(product)
    if kind == "ieee":
        *every, high, wide = product.type.shape
        inner = product.inputs[0].type.shape[-1]
        time = fastest_fma(prod(every), high, wide, inner, gpu.multiprocessors, splits).microseconds
        if splits == 1 and gpu.adds_up_streams(product) and all(map(in_vectors, product.inputs)):
            streamed = fastest_streamed(high, wide, inner, gpu.multiprocessors)
            return streamed if streams_sooner(streamed, time) else time
        return time
    *batches, rows, columns = map(hint, product.type.shape)
    depth, batch = hint(product.inputs[0].type.shape[-1]), prod(batches) * splits
    blocks = split_length(depth, splits, BLOCK) // BLOCK
    enough = gpu.multiprocessors // 2
    tile = next(x for x in BLOCKS[kind] if rows * columns * batch >= x.least * enough)
    time = blocks * _of_one_block(tile, batch, rows, columns, gpu.multiprocessors)
    return time * (MEASURED_AT / max(gpu.dot_flops, 1))


def streams_parts(product: Node, gpu: Gpu) -> bool:
    """May the copy engine bring the blocks of a product's parts, of which a round of the multiprocessors makes all?

    Not of a weight's gradient, which runs beside the rest of a backward: alone 768 × 16384 × 768 takes 34.5 µs so in
    three parts, but programs that have all of a multiprocessor's shared memory leave none to others, and GPT-2's step
    took 1.4 % longer with them (H200, 2026-11-30).
    """
    rows, columns = map(hint, product.type.shape[-2:])
    tiles = -(-rows // STREAMED.rows) * -(-columns // STREAMED.columns)
    return (kind_of(product) == "half" and tiles <= gpu.multiprocessors and gpu.streams_parts(product)
            and all(map(in_vectors, product.inputs)) and not _is_weights_gradient(product))


def _is_weights_gradient(product: Node) -> bool:
    """Is the inner dimension the leading one of both matrices in memory: rows of what came in and of its gradient?"""
    a, b = map(strides_of, product.inputs)
    return a is not None and b is not None and a[-2] == 1 == b[-1]


def parts_microseconds(product: Node, splits: int, gpu: Gpu) -> float:
    """Estimated microseconds of such a product in so many parts, and of their sum."""
    rows, columns = product.type.shape[-2:]
    found = min(part_microseconds(tile, (rows, columns, product.inputs[0].type.shape[-1]), splits,
                                  sum(map(_begins_within_lines, product.inputs)), gpu.multiprocessors)
                for tile in PART_TILES)
    kernel, rate = ADDED_UP
    added = kernel + 4 * splits * hint(product.type.numel) / rate
    return (found if splits == 1 else found + added) * (MEASURED_AT / max(gpu.dot_flops, 1))


def part_microseconds(tile: PartTile, sizes: tuple[Size, Size, Size], splits: int, within_lines: int,
                      multiprocessors: int) -> float:
    """Microseconds of all parts in such tiles, in the mean of the sizes' class.

    Args:
        sizes: rows, columns and the inner dimension.
        within_lines: operands whose rows begin within lines of the L2.
    """
    samples = sampled(1, *sizes)
    return sum(_of_parts(tile, sample[1:], splits, within_lines, multiprocessors) for sample in samples) / len(samples)


def _of_parts(tile: PartTile, sizes: tuple[int, ...], splits: int, within_lines: int, multiprocessors: int) -> float:
    rows, columns, depth = sizes
    programs = -(-rows // tile.rows) * -(-columns // tile.columns) * splits
    blocks = split_length(depth, splits, BLOCK) // BLOCK
    brought = (tile.rows + tile.columns) * LINE_BYTES * (1 + WITHIN_LINES * within_lines)
    block = max(tile.block, brought / BROUGHT_TO_ONE, brought * min(programs, multiprocessors) / BROUGHT)
    return -(-programs // multiprocessors) * (blocks * block + tile.ends)


def _begins_within_lines(x: Node) -> bool:
    """Do rows of an operand begin at no multiple of `LINE_BYTES`?"""
    strides = strides_of(x)
    if strides is None:
        return True
    row, column = strides[-2:]
    return not divided_by(row if column == 1 else column, LINE_BYTES // x.dtype.itemsize)


def streamed_microseconds(product: Node, gpu: Gpu) -> float:
    """Estimated microseconds of a 16-bit product of matrices whose blocks the copy engine brings, in small tiles."""
    rows, columns = map(hint, product.type.shape[-2:])
    blocks = hint(product.inputs[0].type.shape[-1]) / BLOCK
    time = blocks * _of_one_block(STREAMED, 1, rows, columns, gpu.multiprocessors)
    return time * (MEASURED_AT / max(gpu.dot_flops, 1))


def splits_of_tiles(rows: int) -> int:
    """How many tiles lie below each other in so many rows: with `TILE_ROWS` as their multiple, splits are these."""
    return -(-rows // TILE_ROWS)


def _of_one_block(tile: Block, batch: int, rows: int, columns: int, multiprocessors: int) -> float:
    """Microseconds of all programs for `BLOCK` elements of the inner dimension."""
    programs = -(-rows // tile.rows) * -(-columns // tile.columns) * batch
    return max(tile.alone, -(-programs // multiprocessors) * tile.beside)
