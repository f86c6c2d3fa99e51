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


SMALLEST_EIGHTS: Final = 64
"""Multiples of 8 above it are a class of their own, so that long rows of 16-bit values are read in whole vectors."""


@dataclass(frozen=True)
class SizeClass:
    """Sizes between two powers of two: those that 16 divides, those that 8 does, or the others.

    Attributes:
        least, most: the smallest and the largest.
        unit: 16, 8 or 1: the largest of these that is known to divide them.
        typical: the number that costs are weighed with.
        parted: whether multiples of 16 and of 8 are classes of their own.
    """

    least: int
    most: int
    unit: int
    typical: int
    parted: bool = True

    @property
    def shared(self) -> bool:
        """Whether it has several sizes: 16 and 32, as 0 and 1, are compiled by themselves."""
        return self.least < self.most

    def __contains__(self, size: int) -> bool:
        return self.least <= size <= self.most and (size < LEAST or not self.parted or _unit(size) == self.unit)

    def __str__(self) -> str:
        if not self.shared:
            return str(self.most)
        kind = f"multiple of {self.unit}" if self.unit > 1 else "no multiple of 16" if (
            self.most < SMALLEST_EIGHTS) else "no multiple of 8"
        return f"{self.least} to {self.most}, {kind}"


def class_of(size: int) -> SizeClass:
    """The class of a size.

    >>> str(class_of(1)), str(class_of(7)), str(class_of(16)), str(class_of(100)), str(class_of(768))
    ('1', '2 to 15, no multiple of 16', '16', '65 to 127, no multiple of 8', '528 to 1024, multiple of 16')
    """
    if size < LEAST:
        return SizeClass(size, size, 1, size)
    if size < SMALLEST_RANGE:
        return SizeClass(LEAST, SMALLEST_RANGE - 1, 1, TYPICAL_SMALL)
    end, unit = 1 << (size - 1).bit_length(), _unit(size)
    if unit == 16:
        return SizeClass(end // 2 + 16 if end > 16 else 16, end, unit, end)
    return SizeClass(end // 2 + unit, end - unit, unit, end)


def _unit(size: int) -> int:
    """What is known to divide a size: 16, above `SMALLEST_EIGHTS` 8, else 1."""
    return 16 if size % 16 == 0 else 8 if size > SMALLEST_EIGHTS and size % 8 == 0 else 1


def exact_class_of(size: int) -> SizeClass:
    """The class of a size where nothing is chosen by a class (`Trace.exact`): all sizes above 1 are one.

    >>> 3 in exact_class_of(64), 1 in exact_class_of(64), exact_class_of(64).shared, exact_class_of(1).shared
    (True, False, True, False)
    """
    if size < LEAST:
        return class_of(size)
    return SizeClass(LEAST, LARGEST, 1, size, parted=False)


def place_class(most: int, least: int = 1) -> SizeClass:
    """The class of where a slice begins; by default of one that does not begin where its operand does.

    >>> 1 in place_class(14), 14 in place_class(14), 15 in place_class(14), 0 in place_class(14)
    (True, True, False, False)
    """
    return SizeClass(least, most, 1, most, parted=False)
