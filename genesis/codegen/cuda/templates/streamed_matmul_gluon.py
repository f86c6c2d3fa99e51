"""The text of a streamed product's kernel in Gluon, Triton's language in which a program says what each warp does.

One warp asks the copy engine for blocks, the others multiply them as they come. `full` and `empty` are counted
barriers, one for each pair of blocks in shared memory: the copy engine arrives at `full` when the pair is there, the
warps that multiply arrive at `empty` when they are done with it. A tile's result goes through a block of shared
memory, from which the copy engine takes it while the next tile is summed up.

Two groups of multiplying warps take turns at the tiles: one finishes and stores its tile while the other has the
tensor cores. What is done to a product before it is stored costs nothing then, as long as it takes less than a sum.
A group waits for its turn, as a barrier tells only the last block from the one before: it may not look at blocks
that are further ahead.

Products of float32 whose bits all count are multiply-adds: then the warps that multiply read the blocks themselves.

Where there are few tiles for the GPU's multiprocessors, programs share them ("stream-K", Osama et al. 2023): each has
an equal part of all sums, and who has the end of a tile adds what others have of it, in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from genesis.codegen.cuda.prelude import prelude_for
from genesis.codegen.cuda.source import GLUON_HEADER, RELEASE, SIZES, WAIT, in_gluon
from genesis.codegen.cuda.templates.streamed_matmul import (
    HAND_OVER,
    ORDER,
    PIECE,
    PLACE,
    Form,
    Operand,
    Pairs,
    by_pair,
    ending_lines,
    in_pieces,
    in_tile,
    names_of,
    pieces_function,
    program_lines,
)
from genesis.codegen.cuda.templates.tile import indented
from genesis.ir.types import DType

LOADING_WARPS, LOADING_REGISTERS = 4, 24
"""Warps beside those that multiply, one thread of which asks for blocks, and the registers of each of their threads."""

LANES: Final = 32
"""Threads of a warp."""

VECTOR: Final = 4
"""Numbers of four bytes that one instruction reads from shared memory."""

TURN_REGISTERS: Final = 240
"""Registers of each thread of a group that takes turns with another."""


def gluon_module(name: str, signature: dict[str, str], pairs: Pairs, dtype: DType, lines: list[str],
                 index64: bool, form: Form, ahead: Sequence[str] = (), beside: int = 0) -> str:
    """The module that defines the kernel.

    Args:
        pairs: whose products are summed up one after the other; all lie alike.
        lines: what is done with a tile's sum, `total`, and what stores it.
        ahead: what is loaded for them before a tile is summed up.
        beside: where results are stored by threads, how many elements of a row one thread stores at once; 0: they stay
            where the tensor cores leave them, which is two in each of eight rows for each group of four threads.
    """
    tile, groups, (a, b) = form.tile, form.groups, pairs[0]
    operands = {f"{x}_map" for pair in names_of(pairs) for x in pair}
    given = ", ".join(f"{p}: tl.constexpr" if kind == "constexpr" else p for p, kind in signature.items())
    passed, shared = ", ".join(signature), "a_blocks, b_blocks, full, empty"
    result = next((p for p in signature if p.endswith("_map") and p not in operands), None)
    started = [f"(products, ({shared}, turns, out_blocks, {group}, {SIZES}{passed}))" for group in range(groups)]
    kernel = [
        RELEASE,
        *(f"{x}_blocks = tl.allocate_shared_memory(tl.{dtype.name}, [STAGES, {rows}, {columns}], {x}_map.layout)"
          for x, (rows, columns) in (("a", a.map.block), ("b", b.map.block))),
        *(f"{x} = tl.allocate_shared_memory(tl.int64, [STAGES, 1], mbarrier.MBarrierLayout())"
          for x in ("full", "empty")),
        "turns = tl.allocate_shared_memory(tl.int64, [2, 1], mbarrier.MBarrierLayout())" if groups > 1
        else "turns = full",
        f"out_blocks = tl.allocate_shared_memory({result}.dtype, [{2 * groups}, I, {PIECE}], {result}.layout)" if result
        else "out_blocks = full",
        "for stage in tl.static_range(STAGES):",
        "    mbarrier.init(full.index(stage), count=1)",
        "    mbarrier.init(empty.index(stage), count=1)",
        *(f"mbarrier.init(turns.index({group}), count=1)" for group in range(groups) if groups > 1),
        f"tl.warp_specialize([{', '.join(started)}, (loads, ({shared}, {SIZES}{passed}))],",
        f"    {[tile.num_warps] * (groups - 1) + [LOADING_WARPS]}, "
        f"{[TURN_REGISTERS] * (groups - 1) + [LOADING_REGISTERS]})"]
    products = _products(a, b, dtype, lines, index64, form, result is not None, ahead, beside)
    layouts = (AS_IT_LIES,) if form.fma else (ORDER, _PLACES, LAID_LIKE)
    sharing = "\n\n".join((*layouts, HAND_OVER)) if form.shared else ""
    stores = _put(tile.j // PIECE) if result else ""
    parts = (PLACE, pieces_function(tile.j), stores, sharing, prelude_for("\n".join(lines)),
             _function("loads", f"{shared}, {SIZES}{given}", _loads(pairs, form)),
             _function("products", f"{shared}, turns, out_blocks, GROUP: tl.constexpr, {SIZES}{given}", products),
             _function(name, given, kernel))
    text = in_gluon("\n\n".join(part.strip("\n") + "\n" for part in parts if part))
    return f"{GLUON_HEADER}\n\n{text}"


def _loads(pairs: Pairs, form: Form) -> list[str]:
    """What the loading warp does."""
    blocks = []
    for (left, right), (a, b) in zip(names_of(pairs), pairs, strict=True):
        place_a, place_b = "{at}, row" if a.turned else "row, {at}", "column, {at}" if b.turned else "{at}, column"
        blocks.append([f"load_block({left}_map, [{place_a}], full.index(stage), a_blocks.index(stage))",
                       f"load_block({right}_map, [{place_b}], full.index(stage), b_blocks.index(stage))"])
    sums = [
        "for start in range(low, high, K):",
        "    stage = count % STAGES",
        "    mbarrier.wait(empty.index(stage), ((count // STAGES) & 1) ^ 1)",
        "    mbarrier.expect(full.index(stage), a_map.block_type.nbytes + b_map.block_type.nbytes)",
        *indented(by_pair(blocks)),
        "    count += 1"]
    return [WAIT, "count = 0", *program_lines(sums, [], form)]


def _products(a: Operand, b: Operand, dtype: DType, lines: list[str], index64: bool, form: Form,
              stores: bool, ahead: Sequence[str], beside: int) -> list[str]:
    """What a group of multiplying warps does: every block of every tile, or of every other tile."""
    turn_a, turn_b = (".permute((1, 0))" if x.turned else "" for x in (a, b))
    step = 32 // dtype.itemsize  # bytes of an operand's row in an instruction
    turns = form.groups > 1
    sums = [
        *in_tile(ahead, index64, ", layout=tl.SliceLayout({}, layout)"),
        "total = tl.zeros([I, J], tl.float32, layout)",
        *(["mbarrier.wait(turns.index(GROUP), (turn & 1) ^ (1 - GROUP))"] if turns else []),
        "for start in range(low, high, K):",
        "    stage = count % STAGES",
        "    mbarrier.wait(full.index(stage), (count // STAGES) & 1)",
        *(_added_up if form.fma else _multiplied)(f"a_blocks.index(stage){turn_a}", f"b_blocks.index(stage){turn_b}"),
        "    count += 1",
        *(["mbarrier.arrive(turns.index(1 - GROUP), count=1)", "turn += 1"] if turns else []),
        *([] if form.fma else ["total = warpgroup_mma_wait(0, deps=(total,))",
                               "mbarrier.arrive(empty.index((count - 1) % STAGES), count=1)"]),
        *(["count += steps"] if turns else [])]
    ends = ending_lines(in_pieces(lines, index64, ", layout=tl.SliceLayout({}, part.type.layout)", bool(ahead),
                                  "by_rows" if beside else ""), form)
    lanes = min(LANES, PIECE // beside) if beside else 0
    cores = f"tl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[WARPS, 1], instr_shape=[16, J, {step}])"
    return [
        WAIT,
        f"layout: tl.constexpr = {_fma_layout(a, b, form) if form.fma else cores}",
        *([f"by_rows: tl.constexpr = tl.BlockedLayout([1, {beside}], [{LANES // lanes}, {lanes}], [WARPS, 1], [1, 0])"]
          if beside else []),
        *([f"columns = columns // {beside} * {beside}"] if beside > 1 else []),  # so that it is known to divide them
        *(["out_block = (out_blocks.index(2 * GROUP), out_blocks.index(2 * GROUP + 1))"] if stores else []),
        *(["count = GROUP * tl.cdiv(depth, K)", "turn = 0"] if turns else ["count = 0"]),
        *program_lines(sums, ends, form, "GROUP" if turns else "0"),
        *(["tma.store_wait(0)"] if stores else [])]


def _multiplied(a: str, b: str) -> list[str]:
    """The lines by which tensor cores multiply a pair of blocks. The pair before is let go when its product is done."""
    return [f"    total = warpgroup_mma({a}, {b}, total, is_async=True)",  # of float32 in TF32: the only way here
            "    total = warpgroup_mma_wait(1, deps=(total,))",
            "    if start > low:",
            "        mbarrier.arrive(empty.index((count - 1) % STAGES), count=1)"]


def _added_up(a: str, b: str) -> list[str]:
    """The lines by which threads multiply a pair of blocks. It is let go when all have read it: the multiply-adds of
    what was read last are still under way then, so that nobody stands still at the barrier."""
    return [f"    total = tl.dot_fma({a}.load(tl.DotOperandLayout(0, layout, 0)),",
            f"                       {b}.load(tl.DotOperandLayout(1, layout, 0)), total)",
            "    mbarrier.arrive(empty.index(stage), count=1)"]


def _fma_layout(a: Operand, b: Operand, form: Form) -> str:
    """Which elements of a tile a thread has: those of four rows and eight columns of threads in a warp, four
    neighbours where an operand's block has these side by side; and of each 64 columns some, so that pieces of a tile
    are there without an exchange."""
    beside = [VECTOR if a.turned else 1, 1 if b.turned else VECTOR]
    across = 4 if b.turned else 2  # warps along the columns; with two of them registers of turned blocks are spilled
    return f"tl.BlockedLayout({beside}, [4, 8], [{form.tile.num_warps // across}, {across}], [1, 0])"


def _function(name: str, given: str, lines: list[str]) -> str:
    return f"@triton.jit\ndef {name}({given}):\n" + "".join(f"    {line}\n" for line in lines)


def _put(pieces: int) -> str:
    """Stores by the copy engine: of two pieces one is filled while the other is under way. Of tiles that are one piece
    each ends before the next, whatever its number."""
    return f"""@triton.jit
def put(map, block, number: tl.constexpr, value, row, column):
    tma.store_wait({min(pieces - 1, 1)})
    block[number].store(value)
    fence_async_shared()
    store_block(map, [row, column], block[number])
"""


AS_IT_LIES: Final = """@triton.jit
def in_order(total):
    return total


@triton.jit
def as_tile(values, total):
    return values


@triton.jit
def places_of(values):
    i = tl.arange(0, values.shape[0], layout=tl.SliceLayout(1, values.type.layout))
    j = tl.arange(0, values.shape[1], layout=tl.SliceLayout(0, values.type.layout))
    return i[:, None] * values.shape[1] + j[None, :]
"""
"""A tile's elements in exchange memory as in the tile: threads that are neighbours have neighbours."""

_PLACES: Final = """@triton.jit
def places_of(values):
    return tl.arange(0, values.shape[0], layout=values.type.layout)
"""

LAID_LIKE: Final = """@triton.jit
def laid_like(value, other):
    return tl.convert_layout(value, other.type.layout, assert_trivial=True)
"""
"""A value that each thread has the same elements of as of another, in its layout."""
