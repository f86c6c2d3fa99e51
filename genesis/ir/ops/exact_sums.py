"""Sums at places that are data, exact ones: scatter_add of floats in one order-free pass over whole numbers.

A float is a whole number times a power of two. The powers that a dtype has are cut into *windows*, of so many that the
positions' numbers of one window add up in 64 bits without a carry. A sum has a word for each window: whole numbers are
added to it by atomics, which give the same bits in any order, and nothing is rounded. Its words make the sum, which is
rounded once as it is added to the base.

The words are 0 between kernels, so nobody clears them before, and only windows that some position needs are read:
numbers of a normal distribution need two or three of float32's twelve.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from genesis.ir.node import Node, Op
from genesis.ir.opaque import Opaque
from genesis.ir.ops.samples import NUMERIC, case, cases, forward_only, integers, reals
from genesis.ir.sym_int import most
from genesis.ir.types import DType, TensorType, bfloat16, float16, float32

if TYPE_CHECKING:
    from numpy import ndarray

MOST_POSITIONS: Final = (1 << 21) - 1
"""Maximum positions: the counts of infinities and NaNs have 21 bits each."""

WORDS_READ: Final = 3
"""Words of a sum that are read and cleared, of a normal distribution's numbers."""

WORDS_NEAR: Final = 4 << 20
"""Words up to which those stay in the L2 until they are read: of 1.86 million bfloat16 sums they are 45 MB, which with
a gather took 66.5 µs of an H200, and 55.2 line by line."""

STEPS: Final = {float32: (24, 0, 254), bfloat16: (8, 0, 254), float16: (11, 102, 142)}
"""dtype → (bits of a number, first and last of the powers of two as float32 counts them, from 2^-149 on)."""


@dataclass(frozen=True)
class Windows:
    """How the powers of two of a dtype are shared out.

    Attributes:
        digits: bits of a number.
        first: the least power, counted from float32's least on.
        size: powers of a window.
        many: windows; one more word of a sum is for what is not finite.
    """

    digits: int
    first: int
    size: int
    many: int

    @property
    def words(self) -> int:
        """Words of a sum."""
        return self.many + 1

    def exponent(self, window: int) -> int:
        """The power of two that a word of this window counts."""
        return self.first + window * self.size + (24 - self.digits) - 149


def windows_of(dtype: DType, count: int) -> Windows:
    """The windows for sums of up to so many positions.

    >>> windows_of(float32, 100_000), windows_of(float16, 100_000).many
    (Windows(digits=24, first=0, size=22, many=12), 2)
    """
    digits, first, end = STEPS[dtype]
    size = 63 - digits - max(count - 1, 1).bit_length()
    return Windows(digits, first, size, -(-(end - first) // size))


def windows_for(dtype: DType, count: int) -> Windows:
    """The windows of sums of so many positions, of a size that may change of as many as these may be."""
    return windows_of(dtype, min(most(count), MOST_POSITIONS))


def exact_fits(sums: int, count: int, dtype: DType) -> bool:
    """Whether so many sums have room for their words, and so many positions for their numbers.

    Sizes that may change are asked themselves, so that the answer is a guard: the largest of a class of three sizes are
    eight times as many as the least.
    """
    from genesis.ir.place import SUM_WORDS
    if dtype not in STEPS or not 0 < count <= MOST_POSITIONS:
        return False
    windows = windows_for(dtype, count)
    return sums * windows.words <= SUM_WORDS and sums * min(windows.many, WORDS_READ) <= WORDS_NEAR


def _type(base: TensorType, index: TensorType, source: TensorType) -> TensorType:
    if base.ndim not in (2, 3) or (base.shape[0], *base.shape[2:]) != (index.shape[0], *index.shape[2:]) or (
            index.shape != source.shape or source.dtype is not base.dtype):
        raise RuntimeError(f"lines of {source} at {index} do not fit {base}")
    return base


def _by_lines(base: Node, index: Node, source: Node) -> Node:
    from genesis.ir.ops.line_sums import lines_summed
    return lines_summed(base, index, source)


def _reference(base: ndarray, index: ndarray, source: ndarray) -> ndarray:
    from numpy import add, indices
    result, places = base.copy(), indices(index.shape)
    add.at(result, (places[0], index, *places[2:]), source)
    return result


exact_sums: Op = Op("exact_sums", "index", _type, decompose=_by_lines, differentiable=False, ulp=4,
                    opaque=Opaque("scatter", elementwise=2, constant_base=True, over_base=True),
                    doc="`lines_summed` of any lines or columns in one launch: floats are added as whole numbers of "
                        "64 bits by atomics, so that sums are exact before they are rounded.",
                    samples=cases(*(forward_only(case(reals().of(n, rows, *inner),
                                                      integers(0, rows).of(n, count, *inner),
                                                      reals().of(n, count, *inner)))
                                    for n, rows, count, *inner in ((3, 5, 9), (2, 40, 70), (1, 1, 3), (2, 5, 9, 3))),
                                  kinds=NUMERIC, scale=8), reference=_reference)


def sums_and_positions(base: Node, index: Node) -> tuple[int, int]:
    """(all sums, all positions) of lines or columns."""
    return prod(base.type.shape), prod(index.type.shape)


__all__ = ["MOST_POSITIONS", "WORDS_READ", "Windows", "exact_fits", "exact_sums", "sums_and_positions", "windows_for",
           "windows_of"]
