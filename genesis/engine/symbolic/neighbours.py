"""The classes of sizes next to one: which are compiled in the background when that one has occurred.

A size that changes by itself (lengths, batches) soon is of another class between the same powers of two; one that grows
(a cache) is of the next ones, one that was drawn at random of those on either side. So these are compiled ahead: all
kinds of sizes between the same powers of two, then between the next, then between those before. Not further: each is up
to five kernels' worth of compiling, and when one of these occurs its own neighbours are compiled ahead in turn.

Of each kind one size stands for all. Kinds are the classes of `ir/size_class.py`, and of the class that no 8 (below 64
no 16) divides odd sizes, even ones and multiples of 4: kernels of products differ in these (`docs/sizes.md`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import gcd
from typing import Final

from genesis.ir.size_class import LARGEST, LEAST, SMALLEST_EIGHTS, SMALLEST_RANGE, class_of

KINDS: Final = (16, 8, 4, 2, 1)
"""What divides sizes of each kind, the largest of these; multiples of 16 are the most common."""

SMALL: Final = {4: 12, 2: 6, 1: 7}
"""What stands for each kind of sizes below `SMALLEST_RANGE`."""


def neighbours(size: int) -> list[int]:
    """Sizes that stand for the kinds next to a size's, the likeliest first; none where nothing shares its class.

    >>> neighbours(100)
    [96, 104, 98, 97, 192, 200, 196, 194, 193, 48, 52, 50, 49]
    >>> neighbours(7)
    [12, 6, 28, 26, 25]
    >>> neighbours(1)
    []
    """
    if size < LEAST:
        return []
    end = _end(size)
    own = [other for other in _between(end) if _kind(other) != _kind(size)]
    return [*own, *_between(end * 2), *_between(end // 2)]


def ahead(sizes: dict[str, int], moving: Collection[str]) -> Iterator[dict[str, int]]:
    """The values of symbols to compile for when these have occurred: one symbol after another gets its neighbours.

    Args:
        moving: the symbols that were seen to change.
    """
    for name in sizes:
        if name in moving:
            for other in neighbours(sizes[name]):
                yield {**sizes, name: other}


def _end(size: int) -> int:
    """The power of two that a size's classes end at."""
    return 1 << (size - 1).bit_length() if size > SMALLEST_RANGE else SMALLEST_RANGE


def _between(end: int) -> list[int]:
    """What stands for each kind of sizes from half of `end`, a power of two, to it."""
    if end < SMALLEST_RANGE or end > LARGEST:
        return []
    if end == SMALLEST_RANGE:
        return list(SMALL.values())
    middle = end // 4 * 3
    least = {16: SMALLEST_EIGHTS, 8: SMALLEST_EIGHTS * 2}  # the first powers of two below which they share a class
    return [middle if kind == 16 else middle + kind for kind in KINDS if end >= least.get(kind, 0)]


def _kind(size: int) -> int:
    """The largest of `KINDS` that divides a size, as far as its class tells."""
    unit = class_of(size).unit
    return unit if unit > 1 else gcd(size, 4)
