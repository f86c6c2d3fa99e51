"""Rows added to zeros by programs that write each row of the table as soon as its hits are added up.

As in `ordered_hits.py` a program puts its hits into the order of their rows, and groups of lanes add up equal stretches
of them in registers. There each row's sum lies in shared memory until all are written; rows of a hundred elements leave
room for 64 of them, and what a program does once (find its hits, count them by row) took most of the time where a row
has one hit. Here a program has 256 of these, and twice the warps: what a row has goes to memory when the next one
begins, and rows that nothing hits are written beside. Only the first row of a stretch may have begun before it: what a
group has of that one is left in shared memory for the group that it is of, which adds these in their order.

All hits are put in order before the first is added, so that no row ends twice: they have room, as of a bin that is hit
more often others add up whole shares (`block_sums.py`). Who writes a row adds what they have of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.block_sizes import power_of_two
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.lowerings import triton_type
from genesis.codegen.cuda.templates.ordered_hits import LOADED, OrderedHits
from genesis.codegen.cuda.templates.row_sums import BESIDE, Tiles, expected_hits, register_bytes
from genesis.codegen.cuda.templates.segments import columns_of
from genesis.codegen.cuda.templates.shared_words import assembly
from genesis.ir.size_divisors import twos
from genesis.ir.sym_int import as_written, hint
from genesis.ir.types import bfloat16, float16, float32

if TYPE_CHECKING:
    from genesis.ir.types import DType

WARPS: Final = 8
"""Warps of a program: twice those of `row_sums.py`, as it has four times as many rows."""

ROWS: Final = 256
"""Rows of a program that are hit now and then."""

MOST_ROWS: Final = 1024
"""Maximum rows of a program, if they are hit rarely: each warp counts its hits by row."""

MOST_ELEMENTS: Final = 256 * 128
"""Maximum elements of a program's rows: with 512 rows of 128 as few programs as multiprocessors have rows for two had
much to write (H200: f32[100000, 96] at 60,000 places 27.5 µs for 22.7, bf16[100000, 104] at 100,000 25.4 for 18.2)."""

FEW_HITS: Final = 192
"""Hits of a program below which it has more rows than `ROWS`: what it does once takes longer than to add them."""

ENOUGH: Final = {False: 256, True: 384}
"""Programs that keep a GPU busy, counted for a table's largest size, by whether rows are more than `NARROW` elements:
rows are shared out up to there (H200: 32 bfloat16 8.8 and 10.9 µs, 128 float16 19.3 and 15.2)."""

NARROW: Final = 32
"""Maximum elements of rows for which fewer programs are enough."""

MOST_ORDERED: Final = 4096
"""Maximum hits of a program, for which it has 10 bytes of shared memory each: four programs are on a multiprocessor."""

STEPS: Final = (512, 2048)
"""Fewest and most words that a program looks at at a time."""

REGISTERS: Final = H200.registers // (3 * 32 * WARPS) // 8 * 8
"""Maximum registers of a thread, handed out by eights: three programs are on a multiprocessor then."""

ODD: Final = 2
"""Elements of a thread where rows begin at any place (H200: of 415,296 rows of 31 float32 36.1 µs, with four 39.7)."""

MANY_HITS: Final = 1024
"""Hits of a program above which it has fewer rows: those that may be its all have room then."""

KINDS: Final[dict[DType, str]] = {float32: "f32", bfloat16: "bf16", float16: "f16"}
"""Dtypes whose rows are written in this way: those that are added in float32."""


@dataclass(frozen=True)
class WrittenTiles(Tiles):
    """How programs share the work, where all have the same number of warps."""

    @property
    def warps(self) -> int:
        return WARPS

    def vector(self, itemsize: int) -> int:
        return self.groups * self.columns // (32 * WARPS)


def written_tiles(outer: int, rows: int, inner: int, count: int, itemsize: int) -> WrittenTiles:
    """Blocks for a table of these sizes with elements of so many bytes, `count` positions.

    >>> written_tiles(1, 100_000, 104, 100_000, 2), written_tiles(1, 900_000, 32, 262_144, 4)
    (WrittenTiles(rows=256, columns=128, groups=16), WrittenTiles(rows=1024, columns=32, groups=32))
    """
    columns = columns_of(hint(inner))
    block = min(power_of_two(rows), ROWS, MOST_ROWS)
    while 2 * block <= min(MOST_ROWS, MOST_ELEMENTS // columns) and expected_hits(block, rows, count) < FEW_HITS:
        block *= 2
    beside, enough = outer * -(-hint(inner) // columns), ENOUGH[columns > NARROW]
    while block > 1 and (expected_hits(block, rows, count) > MANY_HITS or -(-rows // block) * beside < enough):
        block //= 2
    return WrittenTiles(block, columns, 32 * WARPS * min(16 // itemsize, columns, loaded_at_once(inner)) // columns)


def loaded_at_once(inner: int) -> int:
    """Neighbouring elements of a row that a thread has: with each loaded by itself more leave fewer rows to wait for
    together."""
    return 16 if twos(as_written(inner)) > 1 else ODD


def written_helper(kind: str, vector: int, columns: int, shared: bool) -> str:
    """`g_written(row, first, slot, near, value, wanted, out, inner[, part, shares, further])`: rows end here. Values
    that are wanted go to memory, rounded, and 0 is given instead of them; the others stay what they are.

    An element's place is out + row · inner + near. Where its row is `first`, which began before, it goes to `slot` in
    shared memory instead. Of bins that are `shared` programs for shares have added up some, where they are hit often:
    if `shares` is above 0, so many have sums of the row, `columns` float32 each, at `part` and every so many bytes
    `further`, which are added; if it is below 0 the program is for a share itself, and leaves its own at `part`.

    `vector` of a thread's elements at a time are neighbours in one row, wanted or not together. Which elements a thread
    has is Triton's to say: those that it loads at once, and a program in which they were others would stop. All lanes
    take part: a warp that wants no element goes past.
    """
    each, size = range(vector), 4 if kind == "f32" else 2
    row, first, slot, near, _, wanted, out, inner, part, shares, further = (
        f"${(1 + operand) * vector}" for operand in range(11))
    values, furthest = [f"${5 * vector + k}" for k in each], f"${5 * vector - 1}"
    lines = [
        ".reg .pred %wanted, %gone, %kept, %some, %more;",
        f".reg .f32 %sum<{vector}>, %got<{vector}>;",
        f".reg .b32 %pair<{vector}>, %off, %left;",
        ".reg .b64 %at, %from;",
        f"setp.ne.b32 %wanted, {wanted}, 0;",
        *(f"mov.f32 ${k}, {values[k]};" for k in each),
        "vote.sync.any.pred %some, %wanted, -1;",
        "@!%some bra DONE;",
        *([f"sub.s32 %off, {furthest}, {near};",
           f"setp.ne.s32 %more, %off, {vector - 1};",
           "@%more trap;"] if vector > 1 else []),
        *(f"mov.f32 %sum{k}, {values[k]};" for k in each),
        f"setp.eq.and.s32 %kept, {row}, {first}, %wanted;",
        f"setp.ne.and.s32 %gone, {row}, {first}, %wanted;",
        *(f"@%kept st.shared{form} [{slot}{at}], {registers};" for form, at, registers in _floats("%sum", vector))]
    if shared:
        lines += [
            f"mad.lo.s32 %off, {row}, {columns}, {near};",
            f"mad.wide.s32 %from, %off, 4, {part};",
            f"mov.b32 %left, {shares};",
            "setp.lt.s32 %more, %left, 0;",
            "@%more bra HANDED;",
            "MORE:",
            "setp.gt.s32 %more, %left, 0;",
            "@!%more bra ALONE;",
            *(f"mov.f32 %got{k}, 0f00000000;" for k in each),
            *(f"@%gone ld.volatile.global{form} {registers}, [%from{at}];"
              for form, at, registers in _floats("%got", vector)),
            *(f"add.rn.f32 %sum{k}, %sum{k}, %got{k};" for k in each),
            f"add.s64 %from, %from, {further};",
            "sub.s32 %left, %left, 1;",
            "bra MORE;",
            "HANDED:",
            *(f"@%gone st.global{form} [%from{at}], {registers};" for form, at, registers in _floats("%sum", vector)),
            "bra WRITTEN;",
            "ALONE:"]
    lines += [
        f"mad.lo.s32 %off, {row}, {inner}, {near};",
        f"mad.wide.s32 %at, %off, {size}, {out};"]
    if kind == "f32":
        lines += [f"@%gone st.global{form} [%at{at}], {registers};" for form, at, registers in _floats("%sum", vector)]
    elif vector == 1:
        lines += [f"cvt.rn.{kind}.f32 %half, %sum0;", "@%gone st.global.b16 [%at], %half;"]
        lines.insert(0, ".reg .b16 %half;")
    else:
        pairs = [f"%pair{k}" for k in range(vector // 2)]
        form, stored = (".b32", pairs[0]) if vector == 2 else (f".v{len(pairs)}.b32", f"{{{', '.join(pairs)}}}")
        lines += [*(f"cvt.rn.{kind}x2.f32 {pair}, %sum{2 * k + 1}, %sum{2 * k};" for k, pair in enumerate(pairs)),
                  f"@%gone st.global{form} [%at], {stored};"]
    lines += [
        "WRITTEN:",
        *(f"@%wanted mov.f32 ${k}, 0f00000000;" for k in each)]
    letters = "rrrrfrlr" + ("lrl" if shared else "")
    constraints = ",".join([*["=&f"] * vector, *(letter for letter in letters for _ in each)])
    more = ", part, shares, further" if shared else ""
    return f'''
@triton.jit
def g_written(row, first, slot, near, value, wanted, out, inner{more}):
    """Write what is wanted of rows that end to memory; what is left of the values."""
    return tl.inline_asm_elementwise("""{{ // shared written {kind} {columns}{assembly(lines)}
    DONE:
        }}""", "{constraints}", [row, first, slot, near, value, wanted.to(tl.int32), out, inner{more}],
        dtype=tl.float32, is_pure=False, pack={vector})
'''


def _floats(name: str, many: int) -> list[tuple[str, str, str]]:
    """(form of an instruction, offset in bytes, registers) by which so many float32 are read or written.

    >>> _floats("%sum", 8)[1], _floats("%sum", 1)
    (('.v4.f32', '+16', '{%sum4, %sum5, %sum6, %sum7}'), [('.f32', '', '%sum0')])
    """
    width = min(many, 4)
    found = []
    for first in range(0, many, width):
        registers = ", ".join(f"{name}{first + k}" for k in range(width))
        found.append((f".v{width}.f32" if width > 1 else ".f32", f"+{4 * first}" if first else "",
                      f"{{{registers}}}" if width > 1 else registers))
    return found


class WrittenRows(OrderedHits):
    """A kernel whose programs write a row when its hits are added up.

    Attributes:
        shared: whether there are programs for shares.
    """

    shared = False

    def placed(self, looked_at: int, most_hits: int) -> None:
        """Have room for so many hits, of words of which the program looks at some `looked_at`."""
        tiles, each = self.tiles, power_of_two(looked_at + looked_at // 8)
        self.step = min(max(each, STEPS[0]), STEPS[1])
        self.listed = -(-most_hits // self.step) * self.step // tiles.warps
        loaded = register_bytes(self.inner, self.vector, self.added.dtype.itemsize)
        self.beside = min(self.beside, max(LOADED // loaded, BESIDE[0]))
        slots = tiles.groups * tiles.columns * self.size  # which lie where the lists did
        self.laid_out(max(tiles.warps * (self.listed + 1) * 4, slots))

    @property
    def sums_bytes(self) -> int:
        return 0

    @property
    def helpers_used(self) -> tuple[str, ...]:
        vector = min(self.vector, twos(as_written(self.inner)))
        return (*super().helpers_used,
                written_helper(KINDS[self.node.dtype], vector, self.tiles.columns, self.shared))

    @property
    def slice(self) -> int:
        """Rows that are written at a time because nothing hits them: a vector for each thread."""
        return min(self.tiles.rows, self.tiles.groups)

    def sums_begun(self) -> list[str]:
        return []

    def slots_begun(self) -> list[str]:
        return []

    def listed_hits(self) -> list[str]:
        """Look through the words; all hits are listed, and then their rows are added."""
        return ["begin = tl.full((), 0, tl.int32)",
                "fullest = tl.full((), 0, tl.int32)",
                f"while begin < {self.many}:",
                *(f"    {line}" for line in self.listed_step()),
                f"found = {self.listed_in_all}",
                *self.summed()]

    def summed(self) -> list[str]:
        return [*self.ordered(), *self.destined_in_all(), *self.not_hit(), *self.added_in_order(), *self.joined()]

    def destined_in_all(self) -> list[str]:
        """Where the program's rows lie."""
        at = f"(outer * {self.length} + row_0) * {self.inner} + tl.program_id(1){self.to_int64} * COLUMNS"
        apart = f"next_part = {self.tiles.rows * self.tiles.columns * self.size} * next_share.to(tl.int64)"
        return [f"to_rows = (out + ({at})).to(tl.int64)",
                f"width = tl.full((), 0, tl.int32) + {self.inner}",
                *([apart] if self.shared else [])]

    def not_hit(self) -> list[str]:
        """Rows that nothing hits are 0, or what programs for shares have of them."""
        dtype = triton_type(self.node.dtype)
        rows = [
            "row_near = near_0 + row_of",
            *self.place(),
            f"last = tl.where(row_near + 1 < ROWS, {self.start('tl.minimum(row_near + 1, ROWS - 1)')}, found)",
            f"inside &= {self.start('row_near')} == last"]
        begins = f"for near_0 in tl.range(0, ROWS, {self.slice}):"
        zeros = f"tl.zeros([{self.slice}, COLUMNS], "
        alone = [begins, *(f"    {line}" for line in (*rows, f"tl.store(out + at, {zeros}{dtype}), mask=inside)"))]
        if not self.shared:
            return alone
        return [
            "if handed == 0:",
            *(f"    {line}" for line in alone),
            "else:",
            *(f"    {line}" for line in (
                begins,
                *(f"    {line}" for line in (
                    *rows,
                    f"total = {zeros}tl.float32)",
                    *self.more(),
                    f"tl.store(out + at, total.to({dtype}), mask=inside)",
                    f"last = tl.where(row_near + 1 < ROWS, {self.start('tl.minimum(row_near + 1, ROWS - 1)')}, found)",
                    *self.handed_over()))))]

    def destined(self) -> list[str]:
        """Where the sums of each group's first row go if it began before."""
        return ["first_kept = tl.where(goes_on, first_row, -1)",
                "slot = words + (group * COLUMNS + near) * 4",
                f"in_row = column < {self.inner}"]

    def put_by(self, row: str, wanted: str, first: str = "first_kept") -> str:
        more = ", to_part, handed, next_part" if self.shared else ""
        return f"g_written({row}, {first}, slot, near, total, ({wanted}) & in_row, to_rows, width{more})"

    def joined(self) -> list[str]:
        """The last row of each stretch: what began before is left for the group where it began, which adds it."""
        return [
            "began = (goes_on == 0) | (last_row != first_row)",
            f"total = {self.put_by('last_row', 'began == 0', 'last_row')}",
            "tl.debug_barrier()",
            f"end = tl.where(last_row + 1 < ROWS, {self.start('last_row + 1')}, found)",
            "following = tl.where(began, (end - 1) // each - group, 0)",  # groups that begin within this one's last row
            "for further in tl.range(1, tl.max(following) + 1):",
            "    slot_of = words + (tl.minimum(group + further, GROUPS - 1) * COLUMNS + near) * 4",
            "    total += tl.where(further <= following, g_get_f32(slot_of), 0)",
            f"total = {self.put_by('last_row', 'began', '-1')}",
        ]

    def ended(self) -> list[str]:
        """All rows are written."""
        return []
