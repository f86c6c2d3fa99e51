"""Which form sums at places that are data take: reckoned microseconds of each on an H200, the least of which is taken.

| form | what it is | launches |
|---|---|---|
| exact | all positions at once, in words that many programs add to (`exact_sums.py`) | 1 |
| lines | a program has a line, or a share of its sums, in shared memory (`line_sums.py`) | 1 |
| parts | of few long lines each part is a line, and their sums are added up | 2 |
| moved | columns are moved to where lines are, added up there, and moved back | 3 or 4 |
| blocks | blocks of the positions are sorted, and rows of one element added by these (`block_rows.py`) | 2 |

What has no room has the time `inf`. How long each takes is added up of the constants below, which were measured or
reckoned as they say; who decomposes a sum asks here, and `genesis why` prints the times. Sums of whole rows are not
told apart here (`row_writes.py`, `block_rows.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from genesis.ir.ops.block_rows import block_of
from genesis.ir.ops.exact_sums import exact_fits
from genesis.ir.ops.line_sums import (
    ALL_AT_ONCE,
    SUMS_AT_ONCE,
    columns_at_once,
    scales_sums,
    taken_at_once,
)
from genesis.ir.sym_int import hint, most

if TYPE_CHECKING:
    from collections.abc import Iterable

    from genesis.ir.types import DType

LAUNCH_US: Final = 2.4
"""Microseconds of a launch that waits for the one before it."""

POSITION_US: Final = 0.4e-3
"""Microseconds of a multiprocessor for a position of a line whose positions are taken all at once (70 instructions for
32 of them; 8192 of 29,104 sums took 8.6 in all, 7143 of 14,286 8.2)."""

TWICE_US: Final = 0.6e-3
"""The same of a longer line, whose positions are read twice (reckoned)."""

TURN_US: Final = 1.7
"""Microseconds of a turn of several warps (H200: 100,000 positions in 16 parts and 7 shares took some 9 in four)."""

WARP_US: Final = 0.4 / 128
"""Microseconds of a position of a line that a warp has by itself."""

PROGRAMS: Final = 128
"""Programs of long lines up to which a line's positions are shared out: where a multiprocessor has two, each takes
longer (H200: 100,000 positions 11.9 µs in 112 programs, 15.3 in 154, 16.5 in the 91 that a class of up to 131,072 has
of 120)."""

MOST_PARTS: Final = 24
"""Maximum parts of a line, whose sums one expression adds up."""

BEHIND_US: Final = 0.8
"""Microseconds of the launch that adds partial sums up, beside what it moves: it begins while the lines' last programs
run (H200: 10,000 positions 4.0 µs in all, 100,000 10.8, four lines of 30,000 8.2)."""

PART_US: Final = 8 / 4e6
"""Microseconds to write a partial sum and to read it: four bytes each, at 4 TB/s, as they stay in the cache."""

LONGEST: Final = {False: 1 << 14, True: 1 << 17}
"""Maximum positions of a line that are added in shared memory though all positions may be added by blocks, some 17 to
30 µs: by whether several warps take a line, for which few lines are cut into parts. A warp by itself takes 128 in some
0.4 µs."""

SUM_US: Final = 0.2e-3
"""Microseconds of a multiprocessor for a sum of a line: it begins, ends, and is read and written."""

MULTIPROCESSORS: Final = 132
"""Programs that run at once where each has most of a multiprocessor's shared memory."""

WARPS_BESIDE: Final = 16
"""Programs of a warp that a multiprocessor has at once and that do not slow each other down (reckoned)."""

BUSY: Final = 128
"""Programs that keep a GPU busy: about as many as it has multiprocessors."""

LEAST_SHARE: Final = 1 << 10
"""Minimum sums of a program that has a share of a line's because there are few programs."""

MEMORY: Final = 4e6
"""Bytes that memory or the L2 moves in a microsecond."""

EXACT_US: Final = 4.2
"""Microseconds of an exact sum of few positions: a launch, and three ways to the L2 and back: the index, the flag, the
words (H200: 8192 positions of 45,587 sums 4.5, 30,000 of as many 5.3, 100,000 6.0, 264,000 beside a gather 11.0)."""

ATOMICS: Final = 100e3
"""Atomic additions that the L2 takes in a microsecond, to many places (3.7 million of float32: 56 µs in all)."""

L2: Final = 8e6
"""Bytes that an exact sum moves in a microsecond, most of them words in the L2."""

ONE_PLACE_US: Final = 2e-3
"""Microseconds between two additions of whole numbers to one place (100,000 positions of ten sums: 2 µs more than of
as many sums)."""

BLOCKS_US: Final = (10.0, 0.05e-3)
"""Microseconds of a sum by blocks, and for each position (100,000 of one element: 15 to 17)."""

WORDS_READ: Final = 3
"""Words of a sum that are read and cleared, of a normal distribution's numbers."""


@dataclass(frozen=True)
class Form:
    """A form and its time.

    Attributes:
        name: as the table above has it.
        us: reckoned microseconds; `inf` where it has no room.
    """

    name: str
    us: float


def exact_us(sums: int, count: int) -> float:
    """Microseconds of so many positions added exactly to so many sums that are hit alike.

    Equal places among 32 positions are one addition.
    """
    lanes = min(32, sums)
    hottest = count / 32 * lanes / sums * ONE_PLACE_US
    moved = 12 * count + sums * (8 + 16 * WORDS_READ)
    return EXACT_US + max(count / ATOMICS, hottest) + moved / L2


def line_us(rows: int, length: int, scaled: bool) -> float:
    """Microseconds of so many positions of a line, into `rows` sums, without what its sums take.

    Args:
        scaled: whether they may be added as whole numbers (`line_sums.scales_sums`).
    """
    taken = taken_at_once(rows, length)
    if scaled and taken:
        return length * (POSITION_US if length <= ALL_AT_ONCE else TWICE_US)
    return -(-length // taken) * TURN_US if taken else length * WARP_US


def lines_us(lines: int, rows: int, count: int, scaled: bool) -> float:
    """Microseconds of so many lines of `rows` sums and `count` positions in shared memory."""
    shares = max(-(-rows // SUMS_AT_ONCE), min(BUSY // lines, -(-rows // LEAST_SHARE)), 1)
    at_once = MULTIPROCESSORS if taken_at_once(rows, count) else MULTIPROCESSORS * WARPS_BESIDE
    each = line_us(rows, count, scaled) + rows / shares * SUM_US
    moved = lines * (12 * count + 8 * rows)
    return LAUNCH_US + max(max(1.0, lines * shares / at_once) * each, moved / MEMORY)


def parts_of_lines(lines: int, rows: int, count: int, scaled: bool) -> int:
    """In how many parts the positions of each line are added up, so that few long lines keep a GPU busy.

    Args:
        scaled: whether those of a part may be taken all at once (`scales_sums`).

    >>> parts_of_lines(1, 100_000, 100_000, True), parts_of_lines(1, 100_000, 100_000, False)
    (14, 17)
    >>> parts_of_lines(16, 16_500, 16_500, True), parts_of_lines(3000, 1100, 1100, True)
    (4, 1)
    """
    programs, taken = lines * -(-rows // SUMS_AT_ONCE), taken_at_once(rows, count)
    best, least = 1, inf
    for parts in range(1, max(min(PROGRAMS // programs, MOST_PARTS), 1) + 1 if taken else 2):
        length = -(-count // parts)
        us = length * POSITION_US if scaled and length <= ALL_AT_ONCE else -(-length // max(taken, 1)) * TURN_US
        if parts > 1:
            us += parts * lines * rows * PART_US + LAUNCH_US
        if us < least:
            best, least = parts, us
    return best


def parts_us(lines: int, rows: int, count: int, parts: int, scaled: bool) -> float:
    """Microseconds of each line in so many parts, whose sums an expression adds up."""
    return lines_us(lines * parts, rows, -(-count // parts), scaled) + BEHIND_US + parts * lines * rows * PART_US


def faster_by_block(lines: int, rows: int, count: int, inner: int) -> bool:
    """Whether elements of lines of so many columns are rather added by blocks of all positions than line by line."""
    return most(count) > LONGEST[taken_at_once(rows, count) > 0] and bool(block_of(lines * count * inner))


def forms_of(outer: int, rows: int, count: int, inner: int, dtype: DType) -> tuple[Form, ...]:
    """All forms of sums of (outer, rows, inner) at (outer, count, inner) positions, as the table above has them.

    >>> from genesis.ir.types import float32
    >>> min(forms_of(1, 100_000, 100_000, 1, float32), key=lambda form: form.us).name
    'exact'
    >>> min(forms_of(4768, 512, 1024, 1, float32), key=lambda form: form.us).name
    'lines'
    """
    exact = exact_fits(outer * rows * inner, outer * count * inner, dtype)
    shown = hint(outer), hint(rows), hint(count), hint(inner)
    lines, many = shown[0] * shown[3], shown[0] * shown[3] * shown[2]
    whole = inner.__class__ is int and inner == 1
    scaled = scales_sums(dtype)
    parts = parts_of_lines(lines, *shown[1:3], scaled)
    in_lines = (parts_us(lines, *shown[1:3], parts, scaled) if parts > 1 else
                lines_us(lines, *shown[1:3], scaled))
    columns = not whole and columns_at_once(outer, rows, count, inner, dtype) > 0
    moves = 0.0 if whole else 2 * LAUNCH_US + lines * (20 * shown[2] + 8 * shown[1]) / MEMORY
    return (Form("exact", exact_us(lines * shown[1], many) if exact else inf),
            Form("lines", in_lines if (whole and parts == 1) or columns else inf),
            Form("parts", in_lines if whole and parts > 1 else inf),
            Form("moved", inf if whole or columns else in_lines + moves),
            Form("blocks", BLOCKS_US[0] + many * BLOCKS_US[1] if block_of(many) else inf))


def rather_exact(outer: int, rows: int, count: int, inner: int, dtype: DType) -> bool:
    """Whether these sums are made exactly, in one launch."""
    return min(forms_of(outer, rows, count, inner, dtype), key=lambda form: form.us).name == "exact"


def exact_told(outer: int, rows: int, count: int, inner: int, dtype: DType) -> str:
    """What is told of an exact sum of these sizes, beside all other forms."""
    taken, *others = forms_of(outer, rows, count, inner, dtype)
    return told(taken, others)


def lines_told(outer: int, rows: int, count: int, inner: int, dtype: DType) -> str:
    """What is told of lines or columns of these sizes. They are the parts, where lines were cut into some.

    >>> from genesis.ir.types import float64
    >>> lines_told(17, 1000, 5883, 1, float64)
    'lines 7.7 µs (reckoned; blocks 15.0)'
    """
    us = lines_us(hint(outer) * hint(inner), hint(rows), hint(count), scales_sums(dtype))
    return told(Form("lines", us), [form for form in forms_of(outer, rows, count, inner, dtype)
                                    if form.name not in ("lines", "parts")])


def told(taken: Form, others: Iterable[Form]) -> str:
    """The forms' times as a line for people, the taken one first.

    >>> told(Form("exact", 7.25), (Form("lines", inf), Form("parts", 9.96)))
    'exact 7.2 µs (reckoned; parts 10.0)'
    """
    rest = ", ".join(f"{form.name} {form.us:.1f}" for form in sorted(others, key=lambda form: form.us)
                     if form.us < inf)
    return f"{taken.name} {taken.us:.1f} µs (reckoned{'; ' + rest if rest else ''})"


__all__ = ["Form", "exact_told", "exact_us", "faster_by_block", "forms_of", "lines_told", "lines_us", "parts_of_lines",
           "rather_exact", "told"]
