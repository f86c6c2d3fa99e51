"""Which form sums at places that are data take.

Of elements (`forms_of`) each form's microseconds on an H200 are reckoned, and the least are taken:

| form | what it is | launches |
|---|---|---|
| exact | all positions at once, in words that many programs add to (`exact_sums.py`) | 1 |
| lines | a program has a line, or a share of its sums, in shared memory (`line_sums.py`) | 1 |
| parts | of few long lines each part is a line, and their sums are added up | 2 |
| moved | columns are moved to where lines are, added up there, and moved back | 3 or 4 |
| blocks | blocks of the positions are sorted, and rows of one element added by these (`block_rows.py`) | 2 |

What has no room has the time `inf`. How long each takes is added up of an H200's figures (`gpu_figures.py`); who
decomposes a sum asks here, and `genesis why` prints the times.

Of whole rows (`rows_form`) sizes decide, up to bounds that were timed:

| form | what it is |
|---|---|
| any order | memory is added to as positions come, where that gives the same or is allowed (`rows_added`) |
| lines | rows of one element, of each outer size for itself: a sum of elements (`line_sums.py`) |
| columns | those of many outer sizes are moved beside each other; the table stays, by blocks |
| moved | narrow rows of many outer sizes are moved beside each other, added as rows, and moved back |
| blocks | blocks of the positions are sorted (`block_rows.py`) |
| groups | all positions are sorted, by groups of rows (`grouped_rows.py`) |
| in order | all positions are sorted, and only rows that are hit are written (`segments.py`) |
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final, Literal

from genesis.config import config
from genesis.ir.gpu_figures import H200
from genesis.ir.ops.block_rows import block_of, fits_blocks
from genesis.ir.ops.exact_sums import WORDS_READ, exact_fits
from genesis.ir.ops.line_sums import (
    ALL_AT_ONCE,
    MOST_SUMS,
    SUMS_AT_ONCE,
    columns_at_once,
    scales_sums,
    taken_at_once,
)
from genesis.ir.sym_int import hint, most
from genesis.ir.types import DType, bfloat16, float16, float32, float64, int32, int64

if TYPE_CHECKING:
    from collections.abc import Iterable

    from genesis.ir.node import Node

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

IN_ANY_ORDER: Final = {int32, int64}
"""Dtypes whose sums do not depend on the order."""

IF_ALLOWED: Final = {float32, float64}
"""Dtypes that memory can be added to, and whose sums depend on it."""

SUMMED_IN_FLOAT32: Final = {float32, bfloat16, float16}
"""Dtypes whose sums are float32 until they are written."""

NARROWEST: Final = 8
"""Elements of a row below which it lies in pieces too short to be read: rows of many outer sizes are moved together, so
that each position's are neighbours."""

FEWEST_LINES: Final = 16
"""Minimum outer sizes for which narrow rows are moved together."""

SHORT_LINE: Final = {(False, False): 0, (False, True): 1024, (True, False): 1 << 17, (True, True): 1 << 14}
"""Maximum positions where single elements are added up line by line as they lie: by whether several warps take a line,
2048 in some 1.4 µs, or one, 128 in 0.4, and whether lines are many. Few are cut into parts."""

WRITTEN_ANEW: Final = 48 << 20
"""Bytes of a table up to which all of it is written where a sixteenth of its rows may be hit: to read and to write it
takes 25 µs, as the five to ten launches do by which only these rows are; where the table stays it is copied anyway."""

MANY_ROWS: Final = 4096
"""Minimum rows of a table that is written as a whole though few are hit: of fewer a bin, and so a program, has a
handful."""

RowsForm = Literal["any order", "lines", "columns", "moved", "blocks", "groups", "in order"]
"""A form that whole rows are added in."""


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


def any_order(dtype: DType) -> bool:
    """Whether rows of this dtype may be added up in any order."""
    return dtype in IN_ANY_ORDER or (dtype in IF_ALLOWED and not config.deterministic)


def added_by_lines(outer: int, rows: int, inner: int, count: int) -> bool:
    """Whether rows of (outer, rows, inner) are single elements that so many positions are added to line by line, as
    they lie."""
    single, many = inner.__class__ is int and inner == 1, most(outer) >= FEWEST_LINES
    return single and most(rows) <= MOST_SUMS and most(count) <= SHORT_LINE[taken_at_once(rows, count) > 0, many]


def rather_by_lines(base: Node, index: Node) -> bool:
    """Whether rows of many outer sizes, of single elements, are added line by line also where each row could look for
    its positions: a program for each would look through the index."""
    outer, rows, inner = base.type.shape
    return most(outer) >= FEWEST_LINES and added_by_lines(outer, rows, inner, index.type.numel)


def rows_form(base: Node, index: Node) -> RowsForm:
    """The form in which rows are added to base (outer, rows, inner) at an index (positions,) that is not sorted.

    >>> from genesis.ir.ops.leaves import full
    >>> from genesis.ir.types import bfloat16, cpu
    >>> def form(shape, count, dtype=bfloat16):
    ...     return rows_form(full(shape, 0, dtype, cpu), full((count,), 0, int64, cpu))
    >>> form((1, 9, 4), 9, int64), form((16, 9, 1), 9), form((16, 40, 1), 30_000), form((16, 9, 4), 9)
    ('any order', 'lines', 'columns', 'moved')
    >>> form((1, 30_000, 64), 30_000), form((1, 30_000, 64), 3_000_000), form((1, 30_000, 64), 1 << 26)
    ('blocks', 'groups', 'in order')
    """
    if any_order(base.type.dtype):
        return "any order"
    (outer, rows, inner), count = base.type.shape, index.type.numel
    many = most(outer) >= FEWEST_LINES
    if added_by_lines(outer, rows, inner, count):
        return "lines"
    if inner.__class__ is int and inner < NARROWEST and many:
        return "columns" if inner == 1 and fits_blocks(rows, outer * inner, count) else "moved"
    writes_most = (base.op.name == "const" or 2 * hint(count) >= hint(rows)
                   or (outer.__class__ is int and outer == 1 and MANY_ROWS <= hint(rows) <= 16 * hint(count)
                       and hint(base.type.numel) * base.type.dtype.itemsize <= WRITTEN_ANEW))
    zeros = base.op.name == "const" and base["value"] == 0 and base.type.dtype in SUMMED_IN_FLOAT32
    if writes_most and fits_blocks(rows, inner, count, zeros):
        return "blocks"
    if writes_most and rows < 2**31 and count < 2**26:
        return "groups"
    return "in order"


def told(taken: Form, others: Iterable[Form]) -> str:
    """The forms' times as a line for people, the taken one first.

    >>> told(Form("exact", 7.25), (Form("lines", inf), Form("parts", 9.96)))
    'exact 7.2 µs (reckoned; parts 10.0)'
    """
    rest = ", ".join(f"{form.name} {form.us:.1f}" for form in sorted(others, key=lambda form: form.us)
                     if form.us < inf)
    return f"{taken.name} {taken.us:.1f} µs (reckoned{'; ' + rest if rest else ''})"


__all__ = ["Form", "RowsForm", "added_by_lines", "any_order", "exact_told", "exact_us", "faster_by_block", "forms_of",
           "lines_told", "lines_us", "parts_of_lines", "rather_by_lines", "rather_exact", "rows_form", "told"]
