"""The text of a streamed product's kernel in Gluon, Triton's language in which a program says what each warp does.

One warp asks the copy engine for blocks, the others multiply them as they come. `full` and `empty` are counted
barriers, one for each pair of blocks in shared memory: the copy engine arrives at `full` when the pair is there, the
warps that multiply arrive at `empty` when they are done with it. A tile's result goes through a block of shared
memory, from which the copy engine takes it while the next tile is summed up.

Two groups of multiplying warps take turns at the tiles: one finishes and stores its tile while the other has the
tensor cores. What is done to a product before it is stored costs nothing then, as long as it takes less than a sum.
A group waits for its turn, as a barrier tells only the last block from the one before: it may not look at blocks
that are further ahead.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.prelude import prelude_for
from genesis.codegen.cuda.source import GLUON_HEADER, RELEASE, SIZES, WAIT
from genesis.codegen.cuda.templates.streamed_matmul import PLACE, Operand, places
from genesis.codegen.cuda.templates.tile import Tile, indented
from genesis.ir.types import DType

LOADING_WARPS, LOADING_REGISTERS = 4, 24
"""Warps beside those that multiply, one thread of which asks for blocks, and the registers of each of their threads."""

TURN_REGISTERS: Final = 240
"""Of each thread of a group that takes turns with another."""

_NAMES: Final = {"@triton.jit": "@gluon.jit", "tl.math.": "tl.", "tl.Propagate": "triton.language.Propagate"}
"""What Gluon calls otherwise than Triton's language."""


def gluon_module(name: str, signature: dict[str, str], a: Operand, b: Operand, dtype: DType, lines: list[str],
                 index64: bool, tile: Tile, groups: int) -> str:
    """The module that defines the kernel.

    Args:
        lines: what is done with a tile's sum, `total`, and what stores it.
        tile: the blocks, and the warps of a group.
        groups: one, or two that take turns.
    """
    given = ", ".join(f"{p}: tl.constexpr" if kind == "constexpr" else p for p, kind in signature.items())
    passed, shared = ", ".join(signature), "a_blocks, b_blocks, full, empty"
    result = next((p for p in signature if p.endswith("_map") and p not in ("a_map", "b_map")), None)
    started = [f"(products, ({shared}, turns, out_blocks, {group}, {SIZES}{passed}))" for group in range(groups)]
    kernel = [
        RELEASE,
        *(f"{x}_blocks = tl.allocate_shared_memory(tl.{dtype.name}, [STAGES, {rows}, {columns}], {x}_map.layout)"
          for x, (rows, columns) in (("a", a.map.block), ("b", b.map.block))),
        *(f"{x} = tl.allocate_shared_memory(tl.int64, [STAGES, 1], mbarrier.MBarrierLayout())"
          for x in ("full", "empty")),
        "turns = tl.allocate_shared_memory(tl.int64, [2, 1], mbarrier.MBarrierLayout())" if groups > 1
        else "turns = full",
        f"out_blocks = tl.allocate_shared_memory({result}.dtype, [{groups}, I, J], {result}.layout)" if result
        else "out_blocks = full",
        "for stage in tl.static_range(STAGES):",
        "    mbarrier.init(full.index(stage), count=1)",
        "    mbarrier.init(empty.index(stage), count=1)",
        *(f"mbarrier.init(turns.index({group}), count=1)" for group in range(groups) if groups > 1),
        f"tl.warp_specialize([{', '.join(started)}, (loads, ({shared}, {SIZES}{passed}))],",
        f"    {[tile.num_warps] * (groups - 1) + [LOADING_WARPS]}, "
        f"{[TURN_REGISTERS] * (groups - 1) + [LOADING_REGISTERS]})"]
    products = _products(a, b, lines, index64, groups, result is not None)
    parts = (PLACE, _PUT if result else "", prelude_for("\n".join(lines)),
             _function("loads", f"{shared}, {SIZES}{given}", _loads(a, b)),
             _function("products", f"{shared}, turns, out_blocks, GROUP: tl.constexpr, {SIZES}{given}", products),
             _function(name, given, kernel))
    text = "\n\n".join(part.strip("\n") + "\n" for part in parts if part)
    for here, there in _NAMES.items():
        text = text.replace(here, there)
    return f"{GLUON_HEADER}\n\n{text}"


def _loads(a: Operand, b: Operand) -> list[str]:
    """What the loading warp does."""
    place_a, place_b = ("start, row" if a.turned else "row, start"), ("column, start" if b.turned else "start, column")
    return [
        WAIT,
        "tiles_i, tiles_j = tl.cdiv(rows, I), tl.cdiv(columns, J)",
        "count = 0",
        "for program in range(tl.program_id(0), tiles_i * tiles_j, PROGRAMS):",
        *_PLACE_LINES,
        "    for start in range(0, depth, K):",
        "        stage = count % STAGES",
        "        mbarrier.wait(empty.index(stage), ((count // STAGES) & 1) ^ 1)",
        "        mbarrier.expect(full.index(stage), a_map.block_type.nbytes + b_map.block_type.nbytes)",
        f"        load_block(a_map, [{place_a}], full.index(stage), a_blocks.index(stage))",
        f"        load_block(b_map, [{place_b}], full.index(stage), b_blocks.index(stage))",
        "        count += 1"]


def _products(a: Operand, b: Operand, lines: list[str], index64: bool, groups: int, stores: bool) -> list[str]:
    """What a group of multiplying warps does: every block of every tile, or of every other tile."""
    turn_a, turn_b = (".permute((1, 0))" if x.turned else "" for x in (a, b))
    steps = "tl.cdiv(depth, K)"
    return [
        WAIT,
        "layout: tl.constexpr = tl.NVMMADistributedLayout("
        "version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, J, 16])",
        "tiles_i, tiles_j = tl.cdiv(rows, I), tl.cdiv(columns, J)",
        *(["out_block = out_blocks.index(GROUP)"] if stores else []),
        f"count = GROUP * {steps}" if groups > 1 else "count = 0",
        *(["turn = 0"] if groups > 1 else []),
        f"for program in range(tl.program_id(0) + GROUP * PROGRAMS, tiles_i * tiles_j, {groups} * PROGRAMS):",
        *_PLACE_LINES,
        "    total = tl.zeros([I, J], tl.float32, layout)",
        *(["    mbarrier.wait(turns.index(GROUP), (turn & 1) ^ (1 - GROUP))"] if groups > 1 else []),
        "    for start in range(0, depth, K):",
        "        stage = count % STAGES",
        "        mbarrier.wait(full.index(stage), (count // STAGES) & 1)",
        f"        total = warpgroup_mma(a_blocks.index(stage){turn_a}, b_blocks.index(stage){turn_b}, total, "
        "is_async=True)",
        "        total = warpgroup_mma_wait(1, deps=(total,))",
        "        if start > 0:",
        "            mbarrier.arrive(empty.index((count - 1) % STAGES), count=1)",
        "        count += 1",
        *(["    mbarrier.arrive(turns.index(1 - GROUP), count=1)", "    turn += 1"] if groups > 1 else []),
        "    total = warpgroup_mma_wait(0, deps=(total,))",
        "    mbarrier.arrive(empty.index((count - 1) % STAGES), count=1)",
        *([f"    count += {groups - 1} * {steps}"] if groups > 1 else []),
        *indented(places(index64, ", layout=tl.SliceLayout({}, layout)")), *indented(lines),
        *(["tma.store_wait(0)"] if stores else [])]


def _function(name: str, given: str, lines: list[str]) -> str:
    return f"@triton.jit\ndef {name}({given}):\n" + "".join(f"    {line}\n" for line in lines)


_PLACE_LINES: Final = ("    tile_i, tile_j = place_of_tile(program, tiles_i, tiles_j)",
                       "    row, column = tile_i * I, tile_j * J")

_PUT: Final = """@triton.jit
def put(map, block, value, row, column):
    tma.store_wait(0)
    block.store(value)
    fence_async_shared()
    store_block(map, [row, column], block)
"""
