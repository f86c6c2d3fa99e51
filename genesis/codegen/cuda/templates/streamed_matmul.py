"""Matrix products whose blocks are moved by the GPU's copy engine (TMA), from Hopper on.

As many programs as the GPU has multiprocessors make one tile of C after the other: the blocks of the next tile are on
their way while a tile is finished and stored, which it is by the copy engine too. What a thread does in
`templates/matmul.py` to find addresses, and the registers for it, are not needed.

An operand is a map (`source.MatrixMap`): a matrix whose rows or columns lie side by side, at multiples of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.loops import module
from genesis.codegen.cuda.source import Exchange, MatrixMap
from genesis.codegen.cuda.templates.operands import stride_of
from genesis.codegen.cuda.templates.tile import Tile, indented
from genesis.config import config
from genesis.ir.node import Node
from genesis.ir.place import EXCHANGE_BYTES, EXCHANGE_FLAGS
from genesis.ir.size_divisors import divided_by, gcd
from genesis.ir.sym_int import hint
from genesis.ir.types import Device, DType, bfloat16, float16, float32, int32, tensor_type
from genesis.passes.fusion.operand_view import OperandView
from genesis.passes.multiply_add_times import STREAMED
from genesis.passes.product_times import BLOCK, PART_TILES

DTYPES: Final = (float16, bfloat16)

FEWEST_ROWS: Final = 128
"""The least rows and columns of C: smaller products have too few tiles to keep programs busy."""

ELEMENTS: Final = {float16: "fp16", bfloat16: "bf16", float32: "fp32"}
"""Types of operands → what Triton calls them in a map's type."""


@dataclass(frozen=True)
class Operand:
    """A matrix that the copy engine reads.

    Attributes:
        map: where it lies: its rows as the memory has them.
        turned: whether the memory's rows are the operand's columns.
    """

    map: MatrixMap
    turned: bool


def mapped(view: OperandView, memory: Node, rows: int, columns: int, block: tuple[int, int]) -> Operand | None:
    """An operand as the copy engine can read it, None where it cannot: no unit stride, or rows at odd places."""
    start, row, column = view.batch, stride_of(view.row), stride_of(view.column)
    if not start.is_constant or row is None or column is None:
        return None
    turned = column != 1
    stride, unit = (column, row) if turned else (row, column)
    shape, tile = ((columns, rows), block[::-1]) if turned else ((rows, columns), block)
    size = memory.dtype.itemsize
    aligned = gcd(stride * size, 16) == 16 == gcd(start.constant * size, 16)
    if not aligned and size == 4:  # of classes of sizes it is known whether they are multiples of 8 and 16
        aligned = divided_by(stride, 4) and divided_by(start.constant, 4)
    if unit != 1 or not aligned or hint(stride) < hint(shape[1]):
        return None
    return Operand(MatrixMap(memory, shape, stride, start.constant, tile), turned)


Pairs = Sequence[tuple[Operand, Operand]]
"""The operands of a product, or of several that are summed up one after the other."""


def names_of(pairs: Sequence[object]) -> list[tuple[str, str]]:
    """What the operands of each pair are called.

    >>> names_of([(), ()])
    [('a', 'b'), ('a1', 'b1')]
    """
    return [(f"a{number or ''}", f"b{number or ''}") for number in range(len(pairs))]


def by_pair(lines: Sequence[list[str]]) -> list[str]:
    """The lines of the pair whose part of the inner dimension begins at or before `start`: those of pair n at `from_n`.

    `at` is how far into the pair's own dimension that is.
    """
    if len(lines) == 1:
        return [line.replace("{at}", "start") for line in lines[0]]
    found = []
    for number in reversed(range(len(lines))):
        word = "if" if number == len(lines) - 1 else "elif" if number else "else"
        at = f"start - from_{number}" if number else "start"
        found += [f"{word} start >= from_{number}:" if number else "else:",
                  *(f"    {line.replace('{at}', at)}" for line in lines[number])]
    return found


def descriptor(x: MatrixMap) -> str:
    """The map's type, as Triton writes it."""
    return f"tensordesc<{ELEMENTS[x.node.dtype]}{list(x.block)}>"


def worth_it(dtype: DType, batch: int, rows: int, columns: int, depth: int, gpu: GpuModel) -> bool:
    """Are there enough rows and columns, on a GPU that has what it takes?"""
    return (gpu.streams_products and bool(forms_for(dtype)) and batch == 1
            and min(hint(rows), hint(columns)) >= FEWEST_ROWS and hint(depth) >= 64)


@dataclass(frozen=True)
class Form:
    """How the kernel of a streamed product is made.

    Attributes:
        tile: blocks of C and of the sum, the warps of a group that multiply one, and how many blocks are under way.
        groups: two groups of so many warps take turns at tiles, or one makes all.
        shared: the tiles that are too few for a whole round of the programs are shared: each program has an equal part
            of their sums, and who has a tile's last part adds the others.
        rate: how fast it sums up, compared with the other forms of its operands' dtype.
        ending: what a tile's end takes, in elements of the inner dimension that could be summed up meanwhile.
        for_each: likewise, for each op that is done to the sum before it is stored.
        sharing: likewise, what handing over a part takes, once for each program.
        fma: whether it sums up by multiply-adds, whose bits all count, and not on tensor cores.
        splits: parts of the inner dimension, each of which has a result of its own.
    """

    tile: Tile
    groups: int
    shared: bool
    rate: float
    ending: int
    for_each: int
    sharing: int = 0
    fma: bool = False
    splits: int = 1

    @property
    def name(self) -> str:
        """Its parameters, as tables of choices write them."""
        return f"streamed {self.tile.name} groups={self.groups}{' shared' if self.shared else ''}"


FORMS: Final = (
    Form(Tile(128, 256, 64, 8, 4), 1, False, 1.0, 115, 25),
    Form(Tile(128, 128, 64, 4, 5), 2, False, 0.92, 20, 2),
    Form(Tile(128, 256, 64, 8, 4), 1, True, 0.95, 115, 25, 1000),
)
"""Large tiles load less for each product, two groups hide their ends, sharing leaves no multiprocessor idle in the last
round. Rates, endings and `sharing` were fitted to an H200's times of each form (2026-11-23, docs/measured.md); what an
op costs (`for_each`) is reckoned, and the choice that they give has not been timed as a whole. Sharing has a lower rate
as the GPU, at its limit of power, makes other tiles faster while some multiprocessors are idle."""

SLOWER: Final = 20
"""Sharing makes all tiles of a kernel on tensor cores slower by one part in so many (see `FORMS`)."""

TF32_FORMS: Final = (Form(Tile(128, 256, 32, 8, 4), 1, False, 1.0, 220, 50),)
"""The forms for float32 operands that tensor cores round."""

FMA_FORMS: Final = tuple(Form(Tile(x.rows, x.columns, x.step, 8, x.blocks), 1, x.shared, x.issued, 0, 0, x.idle, True)
                         for x in STREAMED)
"""The forms for float32 operands whose bits all count: a thread has 8 rows and 16 columns, 21 multiply-adds for each
time that it reads shared memory, or 8 and 8. How long they take has a model of its own
(`passes/multiply_add_times.py`)."""


@dataclass(frozen=True)
class FewTiles:
    """A tile of 16-bit products of which each multiprocessor makes one at most.

    Attributes:
        form: how its kernel is made: as many blocks are under way as shared memory has room for.
        block: microseconds of a block of the inner dimension.
        line: what a block takes longer for each operand whose rows begin at no multiple of `LINE_BYTES`.
        ends: microseconds that it begins later than one that is read by pointers, and of the tile's end.
    """

    form: Form
    block: float
    line: float
    ends: float


FEW_TILES: Final = (FewTiles(Form(Tile(64, 64, 64, 4, 12), 1, False, 1.0, 0, 0), 0.166, 0.031, 0.4),
                    FewTiles(Form(Tile(64, 128, 64, 4, 8), 1, False, 1.0, 0, 0), 0.188, 0.085, 0.7))
"""Times are fitted to those of an H200 (2026-11-30, 21 products of 96 to 8192 steps, which took 0.77 to 1.24 of them
beside 2 µs of a launch): a multiprocessor reads 100 to 130 KB from the L2 in a microsecond. By pointers a block takes
0.23 and 0.35 µs."""

UNDER_WAY: Final = 192 << 10
"""Bytes of shared memory for the blocks of a product in parts, whose results need none."""

PART_FORMS: Final = tuple(
    Form(Tile(x.rows, x.columns, BLOCK, 8 if x.columns > 128 else 4,
              UNDER_WAY // (2 * BLOCK * (x.rows + x.columns))), 1, False, 1.0, 0, 0) for x in PART_TILES)
"""How the kernels of products in parts are made: one group, as many blocks under way as there is room for."""

def forms_for(dtype: DType) -> tuple[Form, ...]:
    """The forms of products of a dtype."""
    if dtype is float32:
        return {"tf32": TF32_FORMS, "ieee": FMA_FORMS}.get(config.float32_products, ())
    return FORMS if dtype in DTYPES else ()


EXCHANGED: Final = {"flags": Exchange(0, tensor_type((EXCHANGE_FLAGS,), int32, Device("cuda", 0))),
                    "parts": Exchange(4 * EXCHANGE_FLAGS, tensor_type((EXCHANGE_BYTES // 4 - EXCHANGE_FLAGS,), float32,
                                                                      Device("cuda", 0)))}
"""Parameters of a kernel whose programs share tiles: a flag and a tile for each program."""


def program_lines(sums: list[str], ends: list[str], form: Form, group: str = "0") -> list[str]:
    """The loop over what a program makes: whole tiles, one after the other, before them parts of tiles.

    A program has its parts from the last to the first: the beginning of a tile, of which other programs have the
    rest, comes first and the end of one comes last, so that who adds parts seldom waits. It waits for programs of
    lower numbers alone, which the GPU starts before it. Tiles are shared only where programs would be idle for longer
    than handing over takes, which the kernel sees by its sizes.

    Args:
        sums: what is done for a part of a tile, from `low` to `high` of the inner dimension.
        ends: what comes after it.
        group: which of the groups that take turns this is.
    """
    place = ["tile_i, tile_j = place_of_tile(tile, tiles_i, tiles_j)", "row, column = tile_i * I, tile_j * J"]
    begin = ["tiles_i, tiles_j = tl.cdiv(rows, I), tl.cdiv(columns, J)",
             "tiles, steps = tiles_i * tiles_j, tl.cdiv(depth, K)"]
    if not form.shared:
        if form.splits > 1:
            return [*begin, f"for number in range(tl.program_id(0), tiles * {form.splits}, PROGRAMS):",
                    *indented(["split, tile = number // tiles, number % tiles", *place,
                               f"low = split * steps // {form.splits} * K",
                               f"high = (split + 1) * steps // {form.splits} * K", *sums, *ends])]
        each = 1 if group == "0" else form.groups
        return [*begin, f"for tile in range(tl.program_id(0) + {group} * PROGRAMS, tiles, {each} * PROGRAMS):",
                *indented([*place, "low, high = 0, depth", *sums, *ends])]
    slower = "" if form.fma else f" + tiles // {SLOWER}"
    return [*begin,
            "shared = tiles % PROGRAMS",
            f"if PROGRAMS - shared <= {form.sharing} * PROGRAMS // (steps * K){slower}:",
            "    shared = 0",
            "if (shared > 0) & (2 * shared < PROGRAMS) & (tiles > PROGRAMS):",
            "    shared += PROGRAMS",
            "units = shared * steps",
            "begin, end = tl.program_id(0) * units // PROGRAMS, (tl.program_id(0) + 1) * units // PROGRAMS",
            "whole = shared + tl.program_id(0)",
            "while (end > begin) | (whole < tiles):",
            "    tile, low, high = whole, 0, steps * K",
            "    if end > begin:",
            "        tile = (end - 1) // steps",
            "        low, high = tl.maximum(begin - tile * steps, 0) * K, (end - tile * steps) * K",
            "        end = tl.maximum(tile * steps, begin)",
            "    else:",
            "        whole += PROGRAMS",
            *indented([*place, *sums, *ends])]


def ending_lines(lines: list[str], form: Form) -> list[str]:
    """What is done with a tile's sum: another program gets it where programs share tiles and it is a part."""
    if not form.shared:
        return lines
    return ["if high < steps * K:",
            "    hand_over(parts, flags, tl.program_id(0), total)",
            "else:",
            "    other, missing = tl.program_id(0), low // K",
            "    while missing > 0:",
            "        other -= 1",
            "        theirs = tl.maximum(other * units // PROGRAMS - tile * steps, 0)",
            "        if theirs < missing:",
            "            total = handed_over(parts, flags, other, total)",
            "        missing = theirs",
            *indented(lines)]


def plain_module(name: str, signature: dict[str, str], pairs: Pairs, lines: list[str],
                 index64: bool, form: Form, ahead: Sequence[str] = ()) -> str:
    """The kernel in Triton's own language, as an interpreter runs it."""
    rounded = ', input_precision="ieee"' if form.fma else ""
    dots = []
    for (left, right), (a, b) in zip(names_of(pairs), pairs, strict=True):
        left += "_map.load([{at}, row]).T" if a.turned else "_map.load([row, {at}])"
        right += "_map.load([column, {at}]).T" if b.turned else "_map.load([{at}, column])"
        dots.append([f"total = tl.dot({left}, {right}, total{rounded})"])
    sums = [*in_tile(ahead, index64),
            "total = tl.zeros([I, J], tl.float32)",
            "for start in range(low, high, K):",
            *indented(by_pair(dots))]
    ends = ["out_block = None", *ending_lines(in_pieces(lines, index64, ahead=bool(ahead)), form)]
    return module(name, signature, program_lines(sums, ends, form), more="\n\n".join(
        (PLACE, _PUT, pieces_function(form.tile.j), *([ORDER, _LAYOUTS, HAND_OVER] if form.shared else []))))


def in_tile(lines: Sequence[str], index64: bool, layout: str = "") -> list[str]:
    """Lines for the elements of a tile, which are in rows `i` and columns `j`; see `in_pieces`."""
    integer = ".to(tl.int64)" if index64 else ""
    return ["batch = 0",
            f"i = (row + tl.arange(0, I{layout.format(1)})){integer}",
            f"j = (column + tl.arange(0, J{layout.format(0)})){integer}",
            *lines] if lines else []


def in_pieces(lines: list[str], index64: bool, layout: str = "", ahead: bool = False,
              laid: str = "") -> list[str]:
    """Lines for each piece of a tile's sum, `part`, that begins at column `at`: registers have room for one piece's.

    Args:
        lines: what is done with a piece, whose elements are in rows `i` and columns `j`.
        layout: an argument of `arange`, with a place for the dimension that is not there.
        ahead: whether values of a tile were loaded before.
        laid: the layout that a piece is brought into first; none if it stays as the tensor cores leave it.
    """
    integer = ".to(tl.int64)" if index64 else ""
    return ["pieces, batch = pieces_of(total), 0",
            *(["ahead_pieces = pieces_of(ahead)"] if ahead else []),
            f"for piece in tl.static_range(J // {PIECE}):",
            f"    part, at = pieces[piece], column + piece * {PIECE}",
            *([f"    part = tl.convert_layout(part, {laid})"] if laid else []),
            f"    i = (row + tl.arange(0, I{layout.format(1)})){integer}",
            f"    j = (at + tl.arange(0, {PIECE}{layout.format(0)})){integer}",
            *indented(lines)]


PLACE: Final = """@triton.jit
def place_of_tile(program, tiles_i, tiles_j):
    first_i = program // (8 * tiles_j) * 8
    group_i = tl.minimum(tiles_i - first_i, 8)
    return first_i + program % (8 * tiles_j) % group_i, program % (8 * tiles_j) // group_i
"""
"""Which tile is the n-th: eight rows of tiles at a time, column by column."""

HAND_OVER: Final = """@triton.jit
def hand_over(parts, flags, program, total):
    values = in_order(total)
    tl.store(parts + program * (total.shape[0] * total.shape[1]) + places_of(values), values)
    tl.debug_barrier()
    tl.atomic_xchg(flags + program, 1, sem="release", scope="gpu")


@triton.jit
def handed_over(parts, flags, program, total):
    flag = flags + program
    ready = tl.atomic_add(flag, 0, sem="acquire", scope="gpu")
    while ready == 0:
        ready = tl.atomic_add(flag, 0, sem="acquire", scope="gpu")
    tl.debug_barrier()
    tl.atomic_xchg(flag, 0, sem="relaxed", scope="gpu")
    values = in_order(total)
    values += tl.load(parts + program * (total.shape[0] * total.shape[1]) + places_of(values), volatile=True)
    return as_tile(values, total)
"""
"""A program's part of a tile's sum, to another that waits for it. The L2 is where they meet: a read looks at no other
cache."""

ORDER: Final = """@triton.jit
def in_order(total):
    parts = tl.reshape(total, [total.shape[0] // 16, 2, 8, total.shape[1] // 8, 4, 2])
    return tl.reshape(tl.permute(parts, [0, 3, 2, 4, 1, 5]), [total.shape[0] * total.shape[1]])


@triton.jit
def as_tile(values, total):
    parts = tl.reshape(values, [total.shape[0] // 16, total.shape[1] // 8, 8, 4, 2, 2])
    return laid_like(tl.reshape(tl.permute(parts, [0, 4, 2, 1, 3, 5]), total.shape), total)
"""
"""A tile's elements as they lie in exchange memory: what a thread has beside each other, two of a row and two eight
rows below, are 16 bytes there, and those of a warp 512, which one instruction moves."""

_LAYOUTS: Final = """@triton.jit
def places_of(values):
    return tl.arange(0, values.shape[0])


@triton.jit
def laid_like(value, other):
    return value
"""

LEFT_AND_RIGHT: Final = """@triton.jit
def left_and_right(value):
    return tl.split(tl.permute(tl.reshape(value, [value.shape[0], 2, value.shape[1] // 2]), [0, 2, 1]))
"""
"""A tile's halves, of as many rows and half of the columns."""

PIECE: Final = 64
"""Columns of a tile that the copy engine stores at once: what has room beside the blocks that are under way."""


def pieces_function(columns: int) -> str:
    """The function that gives the pieces of a tile of so many columns."""
    lines, names = [], ["value"]
    while len(names) * PIECE < columns:
        halves = [(f"{x}_left", f"{x}_right") for x in names]
        lines += [f"{left}, {right} = left_and_right({x})" for x, (left, right) in zip(names, halves, strict=True)]
        names = [x for pair in halves for x in pair]
    return "\n".join((LEFT_AND_RIGHT, "", "@triton.jit", "def pieces_of(value):",
                      *indented([*lines, f"return ({', '.join(names)},)"]), ""))


_PUT: Final = """@triton.jit
def put(map, block, number: tl.constexpr, value, row, column):
    map.store([row, column], value)
"""
