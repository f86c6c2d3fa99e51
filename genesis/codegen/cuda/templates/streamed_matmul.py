"""Matrix products whose blocks are moved by the GPU's copy engine (TMA), from Hopper on.

As many programs as the GPU has multiprocessors make one tile of C after the other: the blocks of the next tile are on
their way while a tile is finished and stored, which it is by the copy engine too. What a thread does in
`templates/matmul.py` to find addresses, and the registers for it, are not needed.

An operand is a map (`source.MatrixMap`): a matrix whose rows or columns lie side by side, at multiples of 16 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.loops import module
from genesis.codegen.cuda.source import MatrixMap
from genesis.codegen.cuda.templates.tile import Tile, indented
from genesis.ir.node import Node
from genesis.ir.sym_int import gcd, hint
from genesis.ir.types import DType, bfloat16, float16
from genesis.passes.fusion.index_map import Expr
from genesis.passes.fusion.operand_view import OperandView

DTYPES: Final = (float16, bfloat16)

FEWEST_ROWS: Final = 128
"""Of either side of C: smaller products have too few tiles to keep programs busy."""

SHAPES: Final = {float16: "fp16", bfloat16: "bf16"}


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
    start, row, column = view.batch, _stride(view.row), _stride(view.column)
    if not start.is_constant or row is None or column is None:
        return None
    turned = column != 1
    stride, unit = (column, row) if turned else (row, column)
    shape, tile = ((columns, rows), block[::-1]) if turned else ((rows, columns), block)
    size = memory.dtype.itemsize
    aligned = gcd(stride * size, 16) == 16 == gcd(start.constant * size, 16)
    if unit != 1 or not aligned or hint(stride) < hint(shape[1]):
        return None
    return Operand(MatrixMap(memory, shape, stride, start.constant, tile), turned)


def _stride(part: Expr) -> int | None:
    """Elements from one place to the next, if that is one number."""
    if part.constant or len(part.terms) != 1:
        return None
    (atom, stride), = part.terms
    return stride if atom.kind == "var" else None


def descriptor(x: MatrixMap) -> str:
    """The map's type, as Triton writes it."""
    return f"tensordesc<{SHAPES[x.node.dtype]}{list(x.block)}>"


def worth_it(dtype: DType, batch: int, rows: int, columns: int, depth: int, gpu: GpuModel) -> bool:
    """Are there enough rows and columns, on a GPU that has what it takes?"""
    return (gpu.streams_products and dtype in DTYPES and batch == 1
            and min(hint(rows), hint(columns)) >= FEWEST_ROWS and hint(depth) >= 64)


@dataclass(frozen=True)
class Form:
    """How the kernel of a streamed product is made.

    Attributes:
        tile: blocks of C and of the sum, the warps that multiply one, and how many blocks are under way.
        groups: two groups of so many warps take turns at tiles, or one makes all.
        rate: how fast it sums up, compared with the other forms.
        ending: what a tile's end takes, in elements of the inner dimension that could be summed up meanwhile.
        for_each: likewise, for each op that is done to the sum before it is stored.
    """

    tile: Tile
    groups: int
    rate: float
    ending: int
    for_each: int


FORMS: Final = (
    Form(Tile(128, 256, 64, 8, 3), 1, 1.0, 110, 25),
    Form(Tile(128, 128, 64, 4, 5), 2, 0.955, 20, 2),
)
"""Large tiles load less for each product, two groups hide their ends. Rates and endings were fitted to an H200's times
(2026-11-23, benchmarks/matmul.py); what an op costs (`for_each`) is reckoned, and so is the choice that they give."""


def form_of(rows: int, columns: int, depth: int, ops: int, gpu: GpuModel) -> Form | None:
    """The form of a product's kernel that takes the least time by the figures above. None: it has too few tiles.

    Args:
        ops: how many are done to the sum before it is stored.
    """
    fitting = [form for form in FORMS if hint(columns) >= form.tile.j]
    if not fitting or hint(rows * columns) < min(x.tile.i * x.tile.j for x in FORMS) * (gpu.multiprocessors // 2):
        return None

    def time(form: Form) -> float:
        tile = form.tile
        tiles = hint(-(-rows // tile.i) * -(-columns // tile.j))
        each = tile.i * tile.j * (hint(depth) + form.ending + form.for_each * ops) / form.rate
        return -(-tiles // gpu.multiprocessors) * each
    return min(fitting, key=time)


def plain_module(name: str, signature: dict[str, str], a: Operand, b: Operand, lines: list[str],
                 index64: bool) -> str:
    """The kernel in Triton's own language, as an interpreter runs it."""
    left = "a_map.load([start, row]).T" if a.turned else "a_map.load([row, start])"
    right = "b_map.load([column, start]).T" if b.turned else "b_map.load([start, column])"
    return module(name, signature, [
        "tiles_i, tiles_j = tl.cdiv(rows, I), tl.cdiv(columns, J)",
        "for program in range(tl.program_id(0), tiles_i * tiles_j, PROGRAMS):",
        "    tile_i, tile_j = place_of_tile(program, tiles_i, tiles_j)",
        "    row, column, out_block = tile_i * I, tile_j * J, None",
        "    total = tl.zeros([I, J], tl.float32)",
        "    for start in range(0, depth, K):",
        f"        total = tl.dot({left}, {right}, total)",
        *indented(places(index64)), *indented(lines)], more=f"{PLACE}\n\n{_PUT}")


def places(index64: bool, layout: str = "") -> list[str]:
    """The lines that say which rows and columns the elements of a tile are."""
    integer = ".to(tl.int64)" if index64 else ""
    return ["batch = 0",
            f"i = (row + tl.arange(0, I{layout.format(1)})){integer}",
            f"j = (column + tl.arange(0, J{layout.format(0)})){integer}"]


PLACE: Final = """@triton.jit
def place_of_tile(program, tiles_i, tiles_j):
    first_i = program // (8 * tiles_j) * 8
    group_i = tl.minimum(tiles_i - first_i, 8)
    return first_i + program % (8 * tiles_j) % group_i, program % (8 * tiles_j) // group_i
"""
"""Which tile is the n-th: eight rows of tiles at a time, column by column."""

_PUT: Final = """@triton.jit
def put(map, block, value, row, column):
    map.store([row, column], value)
"""
