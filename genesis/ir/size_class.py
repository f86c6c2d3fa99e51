"""Classes of sizes: sizes that are compiled alike.

Which tiles, splits and kinds of loops a program gets may depend on the class of a size, never on the size that was met
first. So every process makes the same choices for a size, whatever it ran before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LEAST: Final = 2
"""The smallest size that has others in its class: 0 and 1 change what an op means (no elements, broadcasting)."""

LARGEST: Final = 1 << 40
"""No size is larger: ranges of products of a few stay numbers that say something."""

SMALLEST_RANGE: Final = 16
"""Sizes below are one class: a block of theirs is mostly idle anyway."""

TYPICAL_SMALL: Final = 8
"""What costs are weighed with for a size below `SMALLEST_RANGE`."""


@dataclass(frozen=True)
class SizeClass:
    """Sizes between two powers of two: those that 16 divides, or the others.

    Attributes:
        least, most: the smallest and the largest.
        sixteens: whether 16 divides them.
        typical: the number that costs are weighed with.
        parted: whether multiples of 16 are a class of their own.
    """

    least: int
    most: int
    sixteens: bool
    typical: int
    parted: bool = True

    @property
    def shared(self) -> bool:
        """Whether it has several sizes: 16 and 32, as 0 and 1, are compiled by themselves."""
        return self.least < self.most

    def __contains__(self, size: int) -> bool:
        return self.least <= size <= self.most and (
            size < LEAST or not self.parted or (size % 16 == 0) == self.sixteens)

    def __str__(self) -> str:
        return f"{self.least} to {self.most}, {'' if self.sixteens else 'no '}multiple of 16" if (
            self.least < self.most) else str(self.most)


def class_of(size: int) -> SizeClass:
    """The class of a size.

    >>> str(class_of(1)), str(class_of(7)), str(class_of(16)), str(class_of(100)), str(class_of(768))
    ('1', '2 to 15, no multiple of 16', '16', '65 to 127, no multiple of 16', '528 to 1024, multiple of 16')
    """
    if size < LEAST:
        return SizeClass(size, size, False, size)
    if size < SMALLEST_RANGE:
        return SizeClass(LEAST, SMALLEST_RANGE - 1, False, TYPICAL_SMALL)
    end = 1 << (size - 1).bit_length()
    if size % 16:
        return SizeClass(end // 2 + 1, end - 1, False, end)
    return SizeClass(max(end // 2 + 16, 16) if end > 16 else 16, end, True, end)


def exact_class_of(size: int) -> SizeClass:
    """The class of a size where nothing is chosen by a class (`Trace.exact`): all sizes above 1 are one.

    >>> 3 in exact_class_of(64), 1 in exact_class_of(64), exact_class_of(64).shared, exact_class_of(1).shared
    (True, False, True, False)
    """
    if size < LEAST:
        return class_of(size)
    return SizeClass(LEAST, LARGEST, False, size, parted=False)
