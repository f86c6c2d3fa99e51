"""Rows added to a table by an index of some hundred thousand positions: blocks of it are sorted, each for itself.

A block's words are put in the order of their *bins*: a row's number without its lowest bits, of which there are 256 to
1024. No block waits for another, so that one launch does it; a table says where each bin ends in each block. Who adds
up a bin has its words block by block, in the order of their positions.

Words are those of `ops/grouped_rows.py`: a row's number above 32 bits of twice its position.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from genesis.ir.node import Node, Op, literal
from genesis.ir.opaque import Opaque
from genesis.ir.ops.control import item
from genesis.ir.ops.grouped_rows import NUMBER, add_words, added_words, require_words
from genesis.ir.ops.indexing import gather
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.movement import expand, pad, permute, reshape, take_range
from genesis.ir.ops.pointwise import bitwise_and, bitwise_or, cast, le, left_shift, right_shift
from genesis.ir.ops.reduction import sum
from genesis.ir.ops.samples import NUMERIC, Values, ascending, case, cases, forward_only, integers, np, reals
from genesis.ir.sym_int import hint, most
from genesis.ir.types import TensorType, int32, int64

if TYPE_CHECKING:
    from numpy import ndarray

BLOCKS: Final = (1024, 2048, 4096)
"""Positions of a block: as few as leave no more than `FEW_BLOCKS`, so that many programs share the sorting."""

DIGITS: Final = ((1 << 18, 8), (1 << 21, 10))
"""(positions up to which, bits of a bin's number). Who adds rows looks through a bin's words, a thousand at a time: of
a long index finer bins save turns. They cost those who sort blocks: on an H200 500,000 positions took 5.3 µs with 8
bits and 7.5 with 10, an embedding with its gradient 54.2 and 46.0; a million 9.5 and 11.3, and 133 and 110."""

LARGE: Final = (1 << 16, 1 << 17)
"""(positions, rows) above which bins have most bits: of a table of more rows with fewer bits several programs look
through a bin (H200, an embedding with its gradient: 150,000 of bfloat16[300000, 64] 65.8 and 45.3 µs, 262,144 of
float32[900000, 32] 99.6 and 79.6)."""

FEW_BLOCKS: Final = 64
"""Blocks up to which they are shorter than the longest: whoever adds up a bin reads of each of them where the bin lies
there, and looks for each of its words among them."""

MOST_BLOCKS: Final = 512
"""Maximum blocks, all of them as long as can be; of wide rows no more than `FEW_BLOCKS`, as more were not tried."""

WIDE: Final = 65
"""Fewest elements of a wide row: a warp and more take a hit of it. Hits in the order of their rows took 22.7 µs (20,000
bfloat16 of 300) and some 180 (31,598 of 1021) where sums of each group take 16 and 115; of 32 and 64 elements they took
58 and 52 where these took 72 and 80 (500,000 of bfloat16[20000, 32], 300,000 of f32[50000, 64]; one H200)."""

WRITTEN_WIDTH: Final = (24, 128)
"""Fewest and most elements of rows of zeros that are added to and written as soon as they end
(`codegen/cuda/templates/written_rows.py`)."""

WRITTEN_HITS: Final = 16
"""Hits of such a row below which that is done: of more, rows whose sums stay in shared memory are as fast (H200,
500,000 of bfloat16[20000, 32] 21.8 µs for 25.0)."""

WRITTEN_COUNT: Final = 1 << 19
"""Maximum positions of wide rows for which there may be more than `FEW_BLOCKS` blocks: then bins are so small that all
hits of a program have room (H200, 400,000 of float16[50000, 80] with their look-up 81 µs; by groups 129)."""

LOW_BITS: Final = 12
"""Maximum bits of a row's number within its bin, for tables of up to a million rows: each of a bin's programs looks
through all of the bin's words, and has a flag for each share of them."""


def block_of(count: int) -> int:
    """Positions of a block of an index of so many; 0 where blocks would be too many.

    >>> block_of(100), block_of(100_000), block_of(1_000_000), block_of(2_097_153)
    (1024, 2048, 4096, 0)
    """
    if most(count) > BLOCKS[-1] * MOST_BLOCKS:
        return 0
    return next((block for block in BLOCKS if most(count) <= block * FEW_BLOCKS), BLOCKS[-1])


def digit_of(count: int, rows: int) -> int:
    """Bits of a bin's number for an index of so many positions in a table of so many rows.

    >>> digit_of(200_000, 100_000), digit_of(200_000, 300_000), digit_of(1_000_000, 1000)
    (8, 10, 10)
    """
    if most(count) > LARGE[0] and most(rows) > LARGE[1]:
        return DIGITS[-1][1]
    return next((digit for longest, digit in DIGITS if most(count) <= longest), DIGITS[-1][1])


def bin_bits(rows: int, digit: int) -> int:
    """Bits of a row's number within its bin.

    >>> bin_bits(200, 8), bin_bits(20439, 8), bin_bits(20439, 10)
    (0, 7, 5)
    """
    return max(max(most(rows) - 1, 1).bit_length() - digit, 0)


def _words_type(index: TensorType, bits: int, block: int, digit: int) -> tuple[TensorType, TensorType]:
    if index.ndim != 1 or index.dtype.kind != "int":
        raise RuntimeError(f"an index in one dimension has integers, not {index}")
    if block not in BLOCKS:
        raise RuntimeError(f"a block has {', '.join(map(str, BLOCKS))} positions, not {block}")
    count, = index.shape
    return (index.with_dtype(int64).with_shape((1, count)),
            index.with_dtype(int32).with_shape((1 << digit, -(-count // block))))


def _in_blocks(index: Node, bits: int, block: int, digit: int) -> tuple[Node, Node]:
    from genesis.ir.ops.sorting import sort
    count, = index.type.shape
    blocks, several = -(-count // block), 1 << digit
    row = bitwise_and(cast(index, dtype=int64), literal(NUMBER))
    place = iota(shape=(count,), axis=0, dtype=int64, device=index.type.device)
    words = bitwise_or(left_shift(row, literal(32)), left_shift(place, literal(1)))
    bins = bitwise_and(right_shift(row, literal(bits)), literal(several - 1))
    words, bins = (reshape(pad(x, low=(0,), high=(blocks * block - count,), value=past), shape=(blocks, block))
                   for x, past in ((words, -1), (bins, several)))
    order = item(sort(cast(bins, dtype=int32), axis=1), index=1)
    found = reshape(gather(words, order, axis=1), shape=(1, blocks * block))
    shape = (several, blocks, block)
    ended = le(expand(reshape(bins, shape=(1, blocks, block)), shape=shape),
               iota(shape=shape, axis=0, dtype=int64, device=index.type.device))
    return take_range(found, 1, 0, count), sum(cast(ended, dtype=int32), axes=(2,))


def _reference_blocks(index: ndarray, bits: int, block: int, digit: int) -> tuple[ndarray, ndarray]:
    row, several = index.astype("int64") & NUMBER, 1 << digit
    words, bins = (row << 32) | (2 * np.arange(row.size)), (row >> bits) & (several - 1)
    starts = range(0, row.size, block)
    found = [words[s:s + block][np.argsort(bins[s:s + block], kind="stable")] for s in starts]
    ends = [np.cumsum(np.bincount(bins[s:s + block], minlength=several)) for s in starts]
    return np.concatenate(found)[None], np.array(ends, "int32").T


words_by_block: Op = Op("words_by_block", "sort", _words_type, attrs=("bits", "block", "digit"), decompose=_in_blocks,
                        differentiable=False, opaque=Opaque("scatter", elementwise=1),
                        doc="Rows' numbers as words (1, positions), each block of them in the order of its bins, and "
                            "where each bin ends in each block: (bins, blocks), int32. A bin is a row's number "
                            "without its lowest bits, of `digit` bits.",
                        samples=cases(*(case(integers(0, high, dtype).of(n), bits=bits, block=BLOCKS[0], digit=8)
                                        for n, high, bits, dtype in ((1100, 900, 2, int64), (16, 5, 0, int32))),
                                      kinds=("bool",)), reference=_reference_blocks)


def _sums_type(base: TensorType, words: TensorType, ends: TensorType, source: TensorType, bits: int, block: int,
               turned: bool) -> TensorType:
    require_words(source, words)
    if ends.dtype is not int32 or ends.ndim != 2 or ends.shape[1] != -(-words.shape[1] // block):
        raise RuntimeError(f"{ends} does not tell where bins end in blocks of {block} of {words}")
    sizes = (0, 1) if turned else (0, 2)
    if base.ndim != 3 or [base.shape[i] for i in sizes] != [*source.shape[::2]] or source.dtype is not base.dtype:
        raise RuntimeError(f"rows of {source} do not fit {base}")
    return base


def _sums(base: Node, words: Node, ends: Node, source: Node, bits: int, block: int, turned: bool) -> Node:
    if not turned:
        return add_words(base, words, source)
    return permute(add_words(permute(base, axes=(0, 2, 1)), words, source), axes=(0, 2, 1))


def _reference_sums(base: ndarray, words: ndarray, ends: ndarray, source: ndarray, bits: int, block: int,
                    turned: bool) -> ndarray:
    if not turned:
        return added_words(base, words, source)
    return added_words(base.transpose(0, 2, 1), words, source).transpose(0, 2, 1)


block_sums: Op = Op("block_sums", "index", _sums_type, attrs=("bits", "block", "turned"), decompose=_sums, ulp=4,
                    differentiable=False, opaque=Opaque("scatter", constant_base=True, over_base=True),
                    doc="base with the source's rows added by the words and bins' ends that `words_by_block` gives. "
                        "`turned`: base is (outer, inner, rows), rows are its columns.",
                    samples=cases(*(forward_only(case(
                        reals().of(s, *((3, rows) if turned else (rows, 3))), ascending(0, 2 * n - 1, int64).of(1, n),
                        Values(n, n, int32).of(256, 1), reals().of(s, n, 3), bits=1, block=64, turned=turned))
                                    for s, rows, n, turned in ((1, 5, 37, False), (2, 4, 16, False), (1, 5, 37, True))),
                                  kinds=NUMERIC, scale=8),
                    reference=_reference_sums)


def written_at_once(rows: int, inner: int, count: int) -> bool:
    """Whether rows of zeros that are added to are written as soon as they end, if their dtype is added in float32."""
    return WRITTEN_WIDTH[0] <= hint(inner) <= WRITTEN_WIDTH[1] and hint(count) < WRITTEN_HITS * hint(rows)


def fits_blocks(rows: int, inner: int, count: int, zeros: bool = False) -> bool:
    """Whether so many positions can be added by blocks of them to a table of so many rows of `inner` elements.

    Args:
        zeros: the table is zeros of a dtype that is added in float32.
    """
    block, digit = block_of(count), digit_of(count, rows)
    written = zeros and written_at_once(rows, inner, count) and most(count) <= WRITTEN_COUNT
    blocks = FEW_BLOCKS if hint(inner) >= WIDE and not written else MOST_BLOCKS
    return bool(block) and most(count) <= block * blocks and bin_bits(rows, digit) <= LOW_BITS


def rows_by_block(base: Node, index: Node, source: Node, turned: bool = False) -> Node:
    """base with the source's rows added, by sorting blocks of the index by bins; `turned`: to its columns."""
    count, rows = prod(index.type.shape), base.type.shape[2 if turned else 1]
    block, digit = block_of(count), digit_of(count, rows)
    bits = bin_bits(rows, digit)
    found = words_by_block(index, bits=bits, block=block, digit=digit)
    return block_sums(base, item(found, index=0), item(found, index=1), source, bits=bits, block=block, turned=turned)


__all__ = ["bin_bits", "block_of", "block_sums", "digit_of", "fits_blocks", "rows_by_block", "words_by_block",
           "written_at_once"]
