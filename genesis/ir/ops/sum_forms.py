"""Which form sums at places that are data take: reckoned microseconds of each on an H200, the least of which is taken.

| form | what it is | launches |
|---|---|---|
| exact | all positions at once, in words that many programs add to (`exact_sums.py`) | 1 |
| lines | a program has a line, or a share of its sums, in shared memory (`line_sums.py`) | 1 |
| parts | of few long lines each part is a line, and their sums are added up | 2 |
| moved | columns are moved to where lines are, added up there, and moved back | 3 or 4 |
| blocks | blocks of the positions are sorted, and rows of one element added by these (`block_rows.py`) | 2 |

What has no room has the time `inf`. How long each takes is added up of an H200's figures (`gpu_figures.py`); who
decomposes a sum asks here, and `genesis why` prints the times. Sums of whole rows are not
told apart here (`row_writes.py`, `block_rows.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from genesis.ir.gpu_figures import H200
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

PROGRAMS: Final = 128
"""Programs of long lines up to which a line's positions are shared out: where a multiprocessor has two, each takes
longer (H200: 100,000 positions 11.9 µs in 112 programs, 15.3 in 154, 16.5 in the 91 that a class of up to 131,072 has
of 120)."""

MOST_PARTS: Final = 24
"""Maximum parts of a line, whose sums one expression adds up."""

LONGEST: Final = {False: 1 << 14, True: 1 << 17}
"""Maximum positions of a line that are added in shared memory though all positions may be added by blocks, some 17 to
30 µs: by whether several warps take a line, for which few lines are cut into parts. A warp by itself takes 128 in some
0.4 µs."""

LEAST_SHARE: Final = 1 << 10
"""Minimum sums of a program that has a share of a line's because there are few programs."""

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
    hottest = count / 32 * lanes / sums * H200.one_place_us
    moved = 12 * count + sums * (8 + 16 * WORDS_READ)
    return H200.exact_us + max(count / H200.atomics, hottest) + moved / H200.exact_memory


def line_us(rows: int, length: int, scaled: bool) -> float:
    """Microseconds of so many positions of a line, into `rows` sums, without what its sums take.

    Args:
        scaled: whether they may be added as whole numbers (`line_sums.scales_sums`).
    """
    taken = taken_at_once(rows, length)
    if scaled and taken:
        return length * (H200.position_us if length <= ALL_AT_ONCE else H200.twice_us)
    return -(-length // taken) * H200.turn_us if taken else length * H200.warp_us


def lines_us(lines: int, rows: int, count: int, scaled: bool) -> float:
    """Microseconds of so many lines of `rows` sums and `count` positions in shared memory."""
    shares = max(-(-rows // SUMS_AT_ONCE), min(H200.busy // lines, -(-rows // LEAST_SHARE)), 1)
    at_once = H200.multiprocessors if taken_at_once(rows, count) else H200.multiprocessors * H200.warps_beside
    each = line_us(rows, count, scaled) + rows / shares * H200.sum_us
    moved = lines * (12 * count + 8 * rows)
    return H200.launch_us + max(max(1.0, lines * shares / at_once) * each, moved / H200.memory)


def parts_of_lines(lines: int, rows: int, count: int, scaled: bool) -> int:
    """In how many parts the positions of each line are added up, so that few long lines keep a GPU busy.

    Their number is weighed as if the launch that adds up their sums waited for the others, and by the positions alone;
    `parts_us` knows better. Weighed by that, 32 of the 249 sizes of tests and benchmarks would have other parts, 17 of
    281 sums another form: not timed, so not taken.

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
        us = (length * H200.position_us if scaled and length <= ALL_AT_ONCE else
              -(-length // max(taken, 1)) * H200.turn_us)
        if parts > 1:
            us += parts * lines * rows * H200.part_us + H200.launch_us
        if us < least:
            best, least = parts, us
    return best


def parts_us(lines: int, rows: int, count: int, parts: int, scaled: bool) -> float:
    """Microseconds of each line in so many parts, whose sums an expression adds up."""
    in_lines = lines_us(lines * parts, rows, -(-count // parts), scaled)
    return in_lines + H200.behind_us + parts * lines * rows * H200.part_us


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
    moves = 0.0 if whole else 2 * H200.launch_us + lines * (20 * shown[2] + 8 * shown[1]) / H200.memory
    return (Form("exact", exact_us(lines * shown[1], many) if exact else inf),
            Form("lines", in_lines if (whole and parts == 1) or columns else inf),
            Form("parts", in_lines if whole and parts > 1 else inf),
            Form("moved", inf if whole or columns else in_lines + moves),
            Form("blocks", H200.blocks_us + many * H200.block_position_us if block_of(many) else inf))


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
