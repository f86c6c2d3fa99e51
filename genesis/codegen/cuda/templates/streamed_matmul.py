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
from genesis.codegen.cuda.prelude import prelude_for
from genesis.codegen.cuda.source import GLUON_HEADER, RELEASE, SIZES, WAIT, MatrixMap
from genesis.codegen.cuda.templates.tile import Tile, indented
from genesis.ir.node import Node
from genesis.ir.sym_int import gcd, hint
from genesis.ir.types import DType, bfloat16, float16
from genesis.passes.fusion.index_map import Expr
from genesis.passes.fusion.operand_view import OperandView

DTYPES: Final = (float16, bfloat16)

HOPPER: Final = 90
"""The first architecture with a copy engine for tiles."""

FEWEST_ROWS: Final = 128
"""Of either side of C: smaller products have too few tiles to keep programs busy."""

_GLUON_NAMES: Final = {"@triton.jit": "@gluon.jit", "tl.math.": "tl.", "tl.Propagate": "triton.language.Propagate"}
"""What Gluon calls otherwise than Triton's language."""

LOADING_WARPS, LOADING_REGISTERS = 4, 24
"""Warps beside those that multiply, one thread of which asks for blocks, and the registers of each of their threads."""

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
    """Are there enough tiles, on a GPU that has the engine?"""
    return (gpu.architecture >= HOPPER and dtype in DTYPES and batch == 1
            and min(hint(rows), hint(columns)) >= FEWEST_ROWS and hint(depth) >= 64)


STREAMED_TILES: Final = (
    # (least elements of C for each multiprocessor, tile, whether the kernel is in Gluon): the first row of which half
    # of the multiprocessors get that many
    (128 * 256, Tile(128, 256, 64, 8, 3), True),
    (128 * 128, Tile(128, 128, 64, 8, 5), True),
)


def streamed_tile(rows: int, columns: int, depth: int, gpu: GpuModel) -> tuple[Tile | None, bool]:
    """The tile of a product, and whether its kernel is in Gluon. None: it is too small."""
    for least, tile, gluon in STREAMED_TILES:
        if hint(rows * columns) >= least * (gpu.multiprocessors // 2) and hint(columns) >= tile.j:
            return tile, gluon
    return None, False


def plain_module(name: str, signature: dict[str, str], a: Operand, b: Operand, lines: list[str], halves: bool,
                 index64: bool) -> str:
    """The kernel in Triton's own language: one loop over a program's tiles, which its compiler pipelines."""
    left = "a_map.load([start, row]).T" if a.turned else "a_map.load([row, start])"
    right = "b_map.load([column, start]).T" if b.turned else "b_map.load([start, column])"
    return module(name, signature, [
        "tiles_i, tiles_j = tl.cdiv(rows, I), tl.cdiv(columns, J)",
        "for program in tl.range(tl.program_id(0), tiles_i * tiles_j, PROGRAMS, flatten=True):",
        "    tile_i, tile_j = place_of_tile(program, tiles_i, tiles_j)",
        "    row, column, out_block = tile_i * I, tile_j * J, None",
        "    total = tl.zeros([I, J], tl.float32)",
        "    for start in range(0, depth, K):",
        f"        total = tl.dot({left}, {right}, total)",
        *indented(_places(index64)), *indented(lines)], more=f"{_PLACE}\n\n{_PUT_HALVES if halves else _PUT}")


def gluon_module(name: str, signature: dict[str, str], a: Operand, b: Operand, dtype: DType, lines: list[str],
                 index64: bool) -> str:
    """The kernel in Gluon: one warp asks for blocks, the others multiply them as they come.

    `full` and `empty` are counted barriers, one for each of the blocks in shared memory: the copy engine arrives at
    `full` when a block is there, the multiplying warps at `empty` when they are done with it. A tile's result goes
    through one block of shared memory, from which the copy engine takes it while the next tile is summed up.
    """
    kind = f"tl.{dtype.name}"
    given = ", ".join(f"{p}: tl.constexpr" if kind_ == "constexpr" else p for p, kind_ in signature.items())
    passed = ", ".join(signature)
    stores = any(name.endswith("_map") and name not in ("a_map", "b_map") for name in signature)
    result = next((p for p in signature if p.endswith("_map") and p not in ("a_map", "b_map")), "")
    block = f"tl.allocate_shared_memory({result}.dtype, [I, J], {result}.layout)" if stores else "full"
    barriers = "tl.allocate_shared_memory(tl.int64, [STAGES, 1], mbarrier.MBarrierLayout())"
    place_a, place_b = ("start, row" if a.turned else "row, start"), ("column, start" if b.turned else "start, column")
    tiles = ["tiles_i, tiles_j = tl.cdiv(rows, I), tl.cdiv(columns, J)",
             "count = 0",
             "for program in range(tl.program_id(0), tiles_i * tiles_j, PROGRAMS):",
             "    tile_i, tile_j = place_of_tile(program, tiles_i, tiles_j)",
             "    row, column = tile_i * I, tile_j * J"]
    loads = [WAIT, *tiles,
             "    for start in range(0, depth, K):",
             "        stage = count % STAGES",
             "        mbarrier.wait(empty.index(stage), ((count // STAGES) & 1) ^ 1)",
             "        mbarrier.expect(full.index(stage), a_map.block_type.nbytes + b_map.block_type.nbytes)",
             f"        tma.async_copy_global_to_shared(a_map, [{place_a}], full.index(stage), a_blocks.index(stage))",
             f"        tma.async_copy_global_to_shared(b_map, [{place_b}], full.index(stage), b_blocks.index(stage))",
             "        count += 1"]
    turn_a, turn_b = (".permute((1, 0))" if x.turned else "" for x in (a, b))
    products = [WAIT,
                "layout: tl.constexpr = tl.NVMMADistributedLayout("
                "version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, J, 16])",
                *tiles,
                "    total = tl.zeros([I, J], tl.float32, layout)",
                "    for start in range(0, depth, K):",
                "        stage = count % STAGES",
                "        mbarrier.wait(full.index(stage), (count // STAGES) & 1)",
                f"        total = warpgroup_mma(a_blocks.index(stage){turn_a}, b_blocks.index(stage){turn_b}, total, "
                "is_async=True)",
                "        total = warpgroup_mma_wait(1, deps=(total,))",
                "        if start > 0:",
                "            mbarrier.arrive(empty.index((count - 1) % STAGES), count=1)",
                "        count += 1",
                "    total = warpgroup_mma_wait(0, deps=(total,))",
                "    mbarrier.arrive(empty.index((count - 1) % STAGES), count=1)",
                *indented(_places(index64, ", layout=tl.SliceLayout({}, layout)")), *indented(lines),
                *(["tma.store_wait(0)"] if stores else [])]
    kernel = [RELEASE,
              *(f"{x}_blocks = tl.allocate_shared_memory({kind}, [STAGES, {rows}, {columns}], {x}_map.layout)"
                for x, (rows, columns) in (("a", a.map.block), ("b", b.map.block))),
              f"full = {barriers}", f"empty = {barriers}", f"out_block = {block}",
              "for stage in tl.static_range(STAGES):",
              "    mbarrier.init(full.index(stage), count=1)",
              "    mbarrier.init(empty.index(stage), count=1)",
              "tl.warp_specialize([",
              f"    (products, (a_blocks, b_blocks, full, empty, out_block, {SIZES}{passed})),",
              f"    (loads, (a_blocks, b_blocks, full, empty, out_block, {SIZES}{passed})),",
              f"], [{LOADING_WARPS}], [{LOADING_REGISTERS}])"]
    beside = f"a_blocks, b_blocks, full, empty, out_block, {SIZES}{given}"
    parts = (_PLACE, *([_PUT_GLUON] if stores else []), prelude_for("\n".join(lines)),
             _function("loads", beside, loads), _function("products", beside, products), _function(name, given, kernel))
    text = "\n\n".join(part.strip("\n") + "\n" for part in parts if part)
    for here, there in _GLUON_NAMES.items():
        text = text.replace(here, there)
    return f"{GLUON_HEADER}\n\n{text}"


def _function(name: str, given: str, lines: list[str]) -> str:
    return f"@triton.jit\ndef {name}({given}):\n" + "".join(f"    {line}\n" for line in lines)


def _places(index64: bool, layout: str = "") -> list[str]:
    """The lines that say which rows and columns the elements of a tile are."""
    integer = ".to(tl.int64)" if index64 else ""
    return ["batch = 0",
            f"i = (row + tl.arange(0, I{layout.format(1)})){integer}",
            f"j = (column + tl.arange(0, J{layout.format(0)})){integer}"]


_PLACE: Final = """@triton.jit
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
_PUT_HALVES: Final = """@triton.jit
def put(map, block, value, row, column):
    half: tl.constexpr = value.shape[1] // 2
    left, right = tl.split(tl.permute(tl.reshape(value, (value.shape[0], 2, half)), (0, 2, 1)))
    map.store([row, column], left)
    map.store([row, column + half], right)
"""
"""In two blocks, each of which takes half the shared memory."""

_PUT_GLUON: Final = """@triton.jit
def put(map, block, value, row, column):
    tma.store_wait(0)
    block.store(value)
    fence_async_shared()
    tma.async_copy_shared_to_global(map, [row, column], block)
"""
