"""What a matrix product's kernel can be made of: forms whose blocks the copy engine moves, and tiles read by pointers.

One model says how long each takes: rounds of the multiprocessors, times what a round sums up. A streamed form ends a
tile under the next one's sums or not (`streamed_matmul.Form`); a tile that is read by pointers is bound by its loads,
so that a block takes as long as its two sides together are long. That is what an H200 showed of three tiles
(`passes/product_times.py`, which counts with the same times): 0.70, 0.47 and 0.22 µs for 384, 256 and 128.

The model orders forms; a form goes before all tiles, but where all bits of float32 count: there both have times
(`passes/multiply_add_times.py`). Of the other tiles the first is that of a rule, which no estimate is better than: the
largest of which half of the multiprocessors get one. Others are tried where times decide.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from genesis.codegen.cuda.block_sizes import block_for
from genesis.codegen.cuda.choices import Candidate, choose, size_class
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.templates.streamed_matmul import FEW_TILES, PART_FORMS, Form, forms_for
from genesis.codegen.cuda.templates.tile import Tile
from genesis.config import config
from genesis.ir.place import MOST_SHARING
from genesis.ir.sym_int import hint
from genesis.ir.types import DType, bfloat16, float16, float32
from genesis.passes.multiply_add_times import (
    AHEAD,
    FMA_TILES,
    FmaChoice,
    StreamedFma,
    blocks_ahead,
    fastest_fma,
    sampled,
    streamed_microseconds,
    streams_fma,
    streams_sooner,
)
from genesis.passes.product_times import MEASURED_AT, MOST_PARTS, PART_TILES, part_microseconds

Rule = tuple[tuple[tuple[DType, ...], int, Tile], ...]
"""Rows of (dtypes, least elements of C for each multiprocessor that gets any, tile): the first row counts of which half
of the multiprocessors get that many."""

TILES: Rule = (
    ((float16, bfloat16), 128 * 256, Tile(128, 256, 64, 8, 3)),
    ((float16, bfloat16), 128 * 128, Tile(128, 128, 64, 8, 3)),
    ((float16, bfloat16), 64 * 128, Tile(64, 128, 64, 4, 4)),
    ((float16, bfloat16), 0, Tile(64, 64, 64, 4, 4)),
    ((float32,), 128 * 128, Tile(128, 64, 32, 8, 3)),
    ((float32,), 0, Tile(64, 64, 32, 4, 3)),
)
ROUNDED_TILES: Rule = (
    ((float32,), 128 * 256, Tile(128, 256, 32, 8, 3)),
    ((float32,), 128 * 128, Tile(128, 128, 32, 8, 4)),
    ((float32,), 0, Tile(64, 64, 32, 4, 4)),
)
"""Tiles of float32 products on tensor cores, whose operands are rounded."""

FMA_PROGRAMS: Final = 2
"""Programs of multiply-adds that a multiprocessor should have room for: one multiplies while the other waits for its
block."""

MORE_TILES: Final[Mapping[str, tuple[Tile, ...]]] = {
    "half": (Tile(128, 128, 64, 4, 3), Tile(128, 64, 64, 4, 4), Tile(64, 256, 64, 8, 3),
             Tile(64, 64, 128, 4, 3), Tile(32, 64, 128, 4, 4), Tile(64, 32, 128, 4, 4)),
    "ieee": (*(Tile(x.rows, x.columns, 32, x.warps, AHEAD // 32) for x in FMA_TILES[1:]),
             Tile(128, 128, 16, 4, AHEAD // 16), Tile(128, 128, 32, 8, 3)),
    "tf32": (Tile(64, 128, 32, 4, 4), Tile(128, 64, 32, 4, 4), Tile(128, 128, 32, 4, 3), Tile(64, 64, 64, 4, 3)),
    "bf16x3": (Tile(64, 128, 32, 4, 4), Tile(128, 64, 32, 4, 4), Tile(128, 128, 32, 8, 2)),
}
"""How a product is rounded → tiles that are tried beside the rule's."""

NOT_AHEAD: Final = (Tile(128, 256, 64, 8, 3), Tile(64, 128, 64, 4, 4))
"""Tiles that no operand is loaded a block ahead for: registers have no room for the larger one's blocks, and four warps
load 64 × 128 by single elements no sooner than 64 × 64 (H200: 8000 × 1024 by 91 21.5 and 17.2 µs)."""

MOST_UNDER_WAY: Final = 8
"""Most blocks under way of a program of 16-bit operands that shares its multiprocessor with one other at most: with
four, 64 × 128 × 64 took 0.33 µs a block (H200, 3704 × 3710 by 256), its operations 0.14."""

DEEP: Final = 64 * 128
"""Most elements of a tile that has more blocks under way than its row says: larger ones, and parts of a split sum,
which run beside other kernels, leave these their shared memory."""

RESERVED: Final = 2048
"""Bytes of shared memory of each program that are left to the driver, and to what a kernel needs besides blocks."""

FLAT_ROWS: Final = 64
"""Most rows of a product whose time is that of reading the other matrix: its tiles are as narrow as all multiprocessors
need to take part."""

FLAT_COLUMNS: Final = 1024
"""Fewest columns of a product whose time is that of reading the other matrix."""

FLAT_TILE: Final = Tile(64, 64, 128, 4, 6)
"""Tile of a product of few rows whose columns are enough for all multiprocessors: a row of the other matrix is read 256
bytes at a time (H200, µs, beside 64 × 64 × 64 with 7 blocks under way and cuBLAS: 8 × 4096 × 14336 31.1, 43.2 and 31.3,
16 rows 30.8, 43.2 and 31.8, 64 rows 33.6, 34.0 and 35.1, 40 × 2048 × 8192 8.3, 9.3 and 18.5; 8 × 8192 × 28672 109, 111
and 108)."""

FLAT_ONCE: Final = Tile(64, 128, 64, 4, 6)
"""The same where each multiprocessor has one at most (H200, µs, beside `FLAT_TILE` and cuBLAS: 8 × 4096 × 14336 30.0,
31.0 and 30.9, 64 rows 33.3, 34.0 and 34.0, 16 × 4096 × 11008 24.7, 26.1 and 25.3; but of two rounds, 8 × 8192 × 28672,
120, 110 and 119)."""

BLOCK_MICROSECONDS: Final = 0.70
"""Time of a block of 128 × 256 × 64 of 16-bit operands, on a multiprocessor of `MEASURED_AT` operations a cycle."""

WEIGHTS_GRADIENT: Final = "tn"
"""Layout of products whose parts are read by pointers (`product_times.streams_parts` says why)."""

IEEE_SLOWER: Final = 16
"""Times as long as on tensor cores a product of float32 takes whose bits all count."""

SHORT_EPILOGUE: Final = 4
"""Ops on a product up to which its epilogue counts as short, and has registers for what is loaded ahead."""


@dataclass(frozen=True)
class Product:
    """A product's sizes, C being (batch, rows, columns), and what is done with it.

    Attributes:
        dtype: of the operands.
        layout: for each operand "n" where its rows lie side by side, "t" where its columns do, "s" where neither does.
        ops: how many are done to the sum before it is stored.
        splits: parts of the sum, each of which is one of the batches.
        unaligned: whether an operand is loaded a block ahead, into registers (`templates/product_lines.py`).
        lines: operands whose rows begin at no multiple of a line of the L2 (`product_times.LINE_BYTES`).
    """

    dtype: DType
    batch: int
    rows: int
    columns: int
    depth: int
    layout: str = "nn"
    ops: int = 0
    splits: int = 1
    unaligned: bool = False
    lines: int = 0

    @property
    def dot(self) -> str:
        """How its operands are rounded."""
        return dot_of(self.dtype)

    def words(self, streams: bool) -> dict[str, str | int]:
        """The problem, as tables write it; `streams` where it has forms that can be streamed."""
        ops = "none" if not self.ops else "short" if self.ops <= SHORT_EPILOGUE else "long"
        sizes = {"batch": self.batch, "rows": self.rows, "columns": self.columns, "depth": self.depth}
        return {"dot": self.dot, "layout": self.layout, "streams": "yes" if streams else "no", "epilogue": ops,
                **{name: size_class(size) for name, size in sizes.items()}}


def dot_of(dtype: DType) -> str:
    """How products of a dtype are rounded, as tables call it."""
    return config.float32_products if dtype is float32 else "half"


def choose_product(product: Product, forms: Sequence[Candidate[Form]], gpu: GpuModel) -> Form | Tile:
    """The form, or the tile as the template has it (`fitted` makes it the product's).

    Args:
        forms: those that it can be streamed in, the fastest first.
    """
    kind = "product" if product.splits == 1 else "split_product"
    found = _fastest_fma(product, gpu) if product.dot == "ieee" else None
    by_rule = _by_rule(product, gpu) if found is None else _fma_tile(found, product, gpu)

    def tile(x: Tile) -> Candidate[Form | Tile]:
        return Candidate(x.name, x, _microseconds(x, product, gpu))

    streamed: list[Candidate[Form | Tile]] = [*forms]
    best = [x for x in streamed[:1] if found is None or streams_sooner(x.microseconds, found.microseconds)]
    first = best[0] if best else tile(by_rule)
    return choose(kind, product.words(bool(forms)), gpu, first, lambda: [
        *streamed[len(best):], *([tile(by_rule)] if best else []), *sorted(
            map(tile, _tiles_beside(by_rule, product)), key=lambda candidate: candidate.microseconds)])


def streamed_forms(product: Product, gpu: GpuModel) -> list[Candidate[Form]]:
    """The forms that a product of matrices can be streamed in, the fastest first; none where by pointers it is faster,
    or has too few tiles."""
    if product.splits > 1:
        streams = product.dot == "half" and product.splits <= MOST_PARTS and product.layout != WEIGHTS_GRADIENT
        return _forms_of_parts(product, gpu) if streams else []
    known = forms_for(product.dtype)
    size = hint(product.rows * product.columns)
    smallest = min((form.tile.i * form.tile.j for form in known), default=0)
    if not streams_fma(size, gpu.multiprocessors) if product.dot == "ieee" else (
            size < smallest * (gpu.multiprocessors // 2)):
        return _forms_of_few(product, gpu) if product.dot == "half" else []
    found = [Candidate(form.name, form, _streamed_microseconds(form, product, gpu)) for form in known
             if hint(product.columns) >= form.tile.j and not (form.shared and gpu.multiprocessors > MOST_SHARING)]
    return sorted(found, key=lambda candidate: candidate.microseconds)


def _forms_of_few(product: Product, gpu: GpuModel) -> list[Candidate[Form]]:
    """Those of a product of which each multiprocessor makes one tile at most, if it is faster so than by pointers.

    Not of matrices that half of the L2 does not hold: their blocks come from memory, and so sooner by pointers (H200:
    152 × 7392 × 3536 43.2 µs, by pointers 36.6, 208 × 4096 × 3904 21.1 and 18.0).
    """
    rows, columns, slower = hint(product.rows), hint(product.columns), MEASURED_AT / max(gpu.dot_flops, 1)
    by_pointers, found = _microseconds(_by_rule(product, gpu), product, gpu), []
    held = 2 * hint(product.depth) * max(rows, columns) * product.dtype.itemsize <= gpu.l2_bytes
    for few in FEW_TILES if held else ():
        tile = few.form.tile
        if -(-rows // tile.i) * -(-columns // tile.j) <= gpu.multiprocessors:
            time = -(-hint(product.depth) // tile.k) * (few.block + few.line * product.lines) + few.ends
            found.append(Candidate(few.form.name, few.form, time * slower))
    return sorted((x for x in found if x.microseconds < by_pointers), key=lambda candidate: candidate.microseconds)


def _forms_of_parts(product: Product, gpu: GpuModel) -> list[Candidate[Form]]:
    """Those of a product in parts, the fastest first."""
    sizes, slower = (product.rows, product.columns, product.depth), MEASURED_AT / max(gpu.dot_flops, 1)
    times = [part_microseconds(tile, sizes, product.splits, product.lines, gpu.multiprocessors) for tile in PART_TILES]
    forms = [replace(form, splits=product.splits) for form in PART_FORMS]
    found = [Candidate(form.name, form, time * slower) for form, time in zip(forms, times, strict=True)]
    return sorted(found, key=lambda candidate: candidate.microseconds)


def _streamed_microseconds(form: Form, product: Product, gpu: GpuModel) -> float:
    """The model of a form, in the mean of the sizes' class."""
    if form.fma:
        key = StreamedFma(form.tile.i, form.tile.j, form.tile.k, form.tile.num_stages, form.shared, form.rate)
        return streamed_microseconds(key, product.rows, product.columns, product.depth, gpu.multiprocessors)
    sizes = product.rows, product.columns, product.depth
    steps = [_streamed_steps(form, (rows, columns, depth), product.ops, gpu)
             for _, rows, columns, depth in sampled(1, *sizes)]
    mean = sum(steps) / len(steps)
    if len(steps) > 1:  # the largest sizes of classes are powers of two, which people take
        rows, columns, depth = map(hint, sizes)
        mean = (mean + _streamed_steps(form, (rows, columns, depth), product.ops, gpu)) / 2
    return form.tile.i * form.tile.j * mean * BLOCK_MICROSECONDS / (128 * 256 * 64) * (
        MEASURED_AT / max(gpu.dot_flops, 1))


def _streamed_steps(form: Form, sizes: tuple[int, int, int], ops: int, gpu: GpuModel) -> float:
    """Elements of the inner dimension that a multiprocessor could sum up in a tile at full speed meanwhile.

    A kernel that serves a class of sizes shares tiles where that pays (`streamed_matmul.program_lines`).
    """
    rows, columns, depth = sizes
    rounds = -(-rows // form.tile.i) * -(-columns // form.tile.j) / gpu.multiprocessors
    each = depth + form.ending + form.for_each * ops
    whole = math.ceil(rounds) * each / form.rate
    if not form.shared:
        return whole
    return min(whole, (rounds * each + form.sharing) / form.rate)


def _tiles_beside(first: Tile, product: Product) -> list[Tile]:
    """The tiles that there are beside the rule's."""
    rule = () if product.dot == "ieee" else _rule(product.dtype)
    found = dict.fromkeys([*(tile for dtypes, _, tile in rule if product.dtype in dtypes), *MORE_TILES[product.dot]])
    found.pop(first, None)
    return list(found)


def _rule(dtype: DType) -> Rule:
    return ROUNDED_TILES if dtype is float32 and config.float32_products != "ieee" else TILES


def _by_rule(product: Product, gpu: GpuModel) -> Tile:
    size = hint(product.rows * product.columns * product.batch)
    enough = gpu.multiprocessors // 2
    tile = next(tile for dtypes, least, tile in _rule(product.dtype) if product.dtype in dtypes
                and size >= least * enough and not (product.unaligned and tile in NOT_AHEAD))
    if product.dtype is float32 or product.unaligned or product.splits > 1 or tile.i * tile.j > DEEP:
        return tile
    if _is_flat(product) and hint(product.depth) >= FLAT_TILE.k * FLAT_TILE.num_stages // 2:
        once = -(-hint(product.columns) // FLAT_ONCE.j) * hint(product.batch) <= gpu.multiprocessors
        for flat in (FLAT_ONCE, FLAT_TILE) if once else (FLAT_TILE,):
            if not _narrower(flat, product, gpu):
                return flat
    return _with_blocks_under_way(tile, product, gpu)


def _with_blocks_under_way(tile: Tile, product: Product, gpu: GpuModel) -> Tile:
    """The tile with as many blocks under way as there is room for where a multiprocessor has two programs at most."""
    programs = -(-hint(product.rows) // tile.i) * -(-hint(product.columns) // tile.j) * hint(product.batch)
    each, nbytes = max(1, -(-programs // gpu.multiprocessors)), (tile.i + tile.j) * tile.k * product.dtype.itemsize
    blocks = -(-hint(product.depth) // (product.splits * tile.k))
    if each > 2:
        return tile
    room = min(gpu.shared_memory // each - RESERVED, gpu.block_shared_memory) // nbytes
    return replace(tile, num_stages=max(tile.num_stages, min(MOST_UNDER_WAY, room, blocks)))


def _fastest_fma(product: Product, gpu: GpuModel) -> FmaChoice:
    """The tile of a product of float32, all bits, as its model has it."""
    return fastest_fma(product.batch // product.splits, product.rows, product.columns, product.depth,
                       gpu.multiprocessors, product.splits)


def _fma_tile(found: FmaChoice, product: Product, gpu: GpuModel) -> Tile:
    """That tile, with as many blocks under way as there is room for."""
    tile, step = found.tile, found.step
    room = gpu.shared_memory // FMA_PROGRAMS // ((tile.rows + tile.columns) * step * product.dtype.itemsize)
    stages = min(blocks_ahead(step, -(-hint(product.depth) // (product.splits * step))), room)
    return Tile(tile.rows, tile.columns, step, tile.warps, max(stages, 2))


def _microseconds(tile: Tile, product: Product, gpu: GpuModel) -> float:
    """The model of a tile that is read by pointers."""
    product = replace(product, batch=hint(product.batch), rows=hint(product.rows), columns=hint(product.columns),
                      depth=hint(product.depth))  # an estimate asks nothing that sizes would have to answer alike
    made = fitted(tile, product, gpu)
    tiles = -(-product.rows // made.i) * -(-product.columns // made.j) * product.batch
    rounds, blocks = -(-tiles // gpu.multiprocessors), -(-product.depth // product.splits // made.k)
    block = (made.i + made.j) * made.k * product.dtype.itemsize / ((128 + 256) * 64 * 2) * BLOCK_MICROSECONDS
    slower = IEEE_SLOWER * made.i * made.j / (128 * 256) if product.dot == "ieee" else 1.0
    return rounds * blocks * block * max(slower, 1.0) * (MEASURED_AT / max(gpu.dot_flops, 1))


def tile_by_rule(product: Product, gpu: GpuModel) -> Tile:
    """The tile of a product in Triton's language that has no others to choose from, as the product needs it."""
    return fitted(_by_rule(product, gpu), product, gpu)


def fitted(tile: Tile, product: Product, gpu: GpuModel) -> Tile:
    """A tile no larger than the product, narrow where it is flat, with room for what it loads ahead."""
    tile = shrunk(tile, product.rows, product.columns, product.depth, 16)
    if _is_flat(product):
        while tile.j > 16 and _narrower(tile, product, gpu):
            tile = replace(tile, j=tile.j // 2)
    return with_room(tile, product.dtype, gpu)


def _is_flat(product: Product) -> bool:
    """Is its time that of reading the other matrix?"""
    return (hint(product.rows) <= FLAT_ROWS and hint(product.columns) >= FLAT_COLUMNS
            and product.dtype is not float32)


def _narrower(tile: Tile, product: Product, gpu: GpuModel) -> bool:
    """Would tiles of half as many columns be no more than there are multiprocessors?"""
    return -(-hint(product.columns) // tile.j) * hint(product.batch) * 2 <= gpu.multiprocessors


def turns(tile: Tile, dtype: DType) -> bool:
    """Whether a tile is summed up the other way round: it has fewer rows than Hopper's tensor cores take."""
    return dtype in (float16, bfloat16) and tile.i < 64 <= tile.j


def with_room(tile: Tile, dtype: DType, gpu: GpuModel) -> Tile:
    """The tile with as many blocks loaded ahead as a program's shared memory has room for."""
    nbytes = (tile.i + tile.j) * tile.k * dtype.itemsize
    return replace(tile, num_stages=max(1, min(tile.num_stages, gpu.block_shared_memory // nbytes)))


def shrunk(tile: Tile, rows: int, columns: int, depth: int, least: int) -> Tile:
    """No block larger than the matrix; a dot wants at least 16 a side."""
    def fit(block: int, size: int) -> int:
        return max(least, block_for(hint(size), block))
    return Tile(fit(tile.i, rows), fit(tile.j, columns), fit(tile.k, depth), tile.num_warps, tile.num_stages)
