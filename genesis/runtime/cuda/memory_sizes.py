"""The sizes of blocks and segments.

A block has the size that was asked for, in steps of `ALIGNMENT`, as long as sizes come again: what was given back is
what is asked for next. In a program of more than `SIZES_EXACT` large sizes it hardly ever is, and each block would be
cut from others and merged with them. There large requests are rounded up to *classes*, two to a power of two: a fifth
of their memory is unused then, about what fragments would take.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

ALIGNMENT: Final = 512
"""Bytes that every block's address and size is a multiple of, as cuMemAlloc's: enough for any vector load and TMA."""

MIB: Final = 1 << 20
"""Bytes of a mebibyte."""

SMALL_REQUEST: Final = MIB
"""Bytes up to which a request is served from small segments, so that small blocks do not cut up large ones."""

SMALL_SEGMENT: Final = 2 * MIB
"""Bytes of a segment for small requests: the granularity of the GPU's page tables."""

LARGE_SEGMENT: Final = 20 * MIB
"""Bytes of a segment for large requests up to that size; the same as torch's."""
SIZES_EXACT: Final = 256
"""Distinct large sizes that one lane serves exactly; a program with more has its large requests rounded to classes."""
CLASSES: Final = tuple(mib * MIB for mib in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128))
"""Bytes of the classes. Larger requests are too rare for their time to matter; wasting a third of one would matter."""


def block_size(nbytes: int) -> int:
    """The size of a block for exactly this request.

    >>> block_size(1), block_size(1024)
    (512, 1024)
    """
    return (nbytes + ALIGNMENT - 1) & -ALIGNMENT


def class_size(nbytes: int) -> int:
    """The smallest class that a request fits in.

    >>> class_size(9 * MIB) // MIB
    12
    """
    return CLASSES[bisect_left(CLASSES, nbytes)]


def class_keys() -> Iterator[tuple[int, range]]:
    """Each class with the keys (`-nbytes >> 20`) of all requests that it serves.

    >>> [(size // MIB, list(keys)) for size, keys in class_keys()][2:4]
    [(4, [-4]), (6, [-6, -5])]
    """
    for below, size in pairwise((SMALL_REQUEST, *CLASSES)):
        yield size, range(-size >> 20, -below >> 20)


def segment_size(size: int) -> int:
    """Bytes to ask the driver for when a block of that size is wanted; a huge one gets just its own, in whole pages.

    >>> [segment_size(size) // MIB for size in (512, 3 * MIB, 33 * MIB)]
    [2, 20, 34]
    """
    if size <= SMALL_REQUEST:
        return SMALL_SEGMENT
    return max(LARGE_SEGMENT, (size + SMALL_SEGMENT - 1) & -SMALL_SEGMENT)
