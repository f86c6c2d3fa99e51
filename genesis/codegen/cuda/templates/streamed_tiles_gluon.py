"""Text that the modules of streamed attention in Gluon share: how tiles go round, and barriers, layouts, products.

A warp that loads takes the number of a program's next tile from a counter in memory, and tells it to the groups that
multiply. `told` and `heard` are its barriers, two of each, so that one number is told while another is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.source import GLUON_HEADER, SIZES, WAIT
from genesis.codegen.cuda.templates.streamed_attention import parts_of
from genesis.codegen.cuda.templates.tile import indented

if TYPE_CHECKING:
    from genesis.codegen.cuda.templates.attention import Attention

LOADING_WARPS: Final = 1
"""Warps beside those that multiply."""

Barriers = Mapping[str, tuple[int | str, int]]
"""Counted barrier → (how many there are, how many arrive at each)."""


# The module

def function(name: str, given: str, lines: list[str]) -> str:
    """A function of the module."""
    return f"@gluon.jit\ndef {name}({given}):\n" + "".join(f"    {line}\n" for line in lines)


def module(*functions: str) -> str:
    """A module of these functions, the kernel last."""
    return f"{GLUON_HEADER}\n\n" + "\n\n".join(text.strip("\n") + "\n" for text in functions)


def allocated(barriers: Barriers) -> list[str]:
    """Lines that make the place for a tile's number, and the barriers."""
    lines = ["number = tl.allocate_shared_memory(tl.int32, [2, 1], tl.SwizzledSharedLayout(1, 1, 1, [0]))"]
    for barrier, (count, arrivals) in barriers.items():
        lines += [f"{barrier} = tl.allocate_shared_memory(tl.int64, [{count}, 1], mbarrier.MBarrierLayout())",
                  f"for index in tl.static_range({count}):",
                  f"    mbarrier.init({barrier}.index(index), count={arrivals})"]
    return lines


def started(shared: str, signature: Mapping[str, str], groups: int, sum_registers: int,
            loading_registers: int) -> list[str]:
    """Lines that start the groups that multiply, and the warp that loads.

    Args:
        shared: the names of what they have in shared memory.
        sum_registers, loading_registers: of each thread.
    """
    passed = ", ".join(signature)
    sums = [f"(sums, ({shared}, {group}, {SIZES}{passed}))" for group in range(groups)]
    return [f"tl.warp_specialize([{', '.join(sums)}, (loads, ({shared}, {SIZES}{passed}))],",
            f"    {[4] * (groups - 1) + [LOADING_WARPS]}, {[sum_registers] * (groups - 1) + [loading_registers]})"]


# How tiles go round

TOLD: Final = ("mbarrier.wait(told.index(turn % 2), (turn // 2) & 1)",
               "program = tl.max(number.index(turn % 2).load(one), 0)",
               "mbarrier.arrive(heard.index(turn % 2), count=1)")
"""The lines by which a group hears of its first tile."""

TOLD_NEXT: Final = tuple([line.replace("program =", "following =") for line in TOLD])
"""The lines by which a group hears of the tile after, while its last product runs."""


def loading(axis: str, rows: int, tile: list[str]) -> list[str]:
    """What the loading warp does. The programs' last one leaves the counters as it found them.

    Args:
        axis: the size that tiles of so many rows cut.
        tile: lines that load a tile.
    """
    return [
        WAIT,
        f"programs = tl.cdiv({axis}, {rows}) * batches",
        f"one: tl.constexpr = tl.BlockedLayout([1], [32], [{LOADING_WARPS}], [0])",
        "count = 0",
        "turn = 0",
        "more = True",
        "while more:",
        "    program = tl.atomic_add(counters, 1).to(tl.int32)",
        "    mbarrier.wait(heard.index(turn % 2), ((turn // 2) & 1) ^ 1)",
        "    number.index(turn % 2).store(tl.full([1], program, tl.int32, one))",
        "    mbarrier.arrive(told.index(turn % 2), count=1)",
        "    more = program < programs",
        "    if more:",
        *indented(indented([*tile, "turn += 1"])),
        "if tl.atomic_add(counters + 1, 1) == PROGRAMS - 1:",
        "    tl.atomic_xchg(counters, 0)",
        "    tl.atomic_xchg(counters + 1, 0)"]


def multiplying(axis: str, rows: int, tile: list[str]) -> list[str]:
    """What a group does with one tile after the other; `tile` has the lines for one, `TOLD_NEXT` among them."""
    return [f"programs = tl.cdiv({axis}, {rows}) * batches",
            "count = 0",
            "turn = 0",
            *TOLD,
            "while program < programs:", *indented([*tile, "program = following"])]


def let_go(values: str = "STAGES") -> list[str]:
    """Lines that let go tiles of keys and values that only other groups see; `values`: how many of these there are."""
    return ["for step in range(mine, last):",
            *(f"    {line}" for x, stages in (("k", "STAGES"), ("v", values)) for line in (
                f"mbarrier.wait({x}_full.index(count % {stages}), (count // {stages}) & 1)",
                f"mbarrier.arrive({x}_empty.index(count % {stages}), count=1)")),
            "    count += 1"]


PLACE_OF_TILE: Final = """@gluon.jit
def place_of_tile(program, batches, tiles, near):
    first = program // (near * tiles) * near
    width = tl.minimum(batches - first, near)
    rest = program % (near * tiles)
    return tiles - 1 - rest // width, first + rest % width
"""
"""Which tile of which batch is the n-th: the longest of `near` batches first."""

ASK: Final = """@gluon.jit
def ask(map, at, full, block):
    mbarrier.expect(full, map.block_type.nbytes)
    load_block(map, at, full, reshaped(block, map.dtype, map.block_type.shape, map.layout))
"""


# Products

def wide_layout(columns: str) -> str:
    """The line that names the layout of a product with so many columns, in a group's registers."""
    return ("wide: tl.constexpr = tl.NVMMADistributedLayout("
            f"version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, {columns}, 16])")


def result_layouts(a: Attention) -> list[str]:
    """Lines that name the layouts of results over a head's parts, and of what is multiplied for them; and `one`."""
    return [*(line for n, (_, size) in enumerate(parts_of(a.head)) for line in (
                f"result{n}: tl.constexpr = tl.NVMMADistributedLayout("
                f"version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, {size}, 16])",
                f"left{n}: tl.constexpr = tl.DotOperandLayout(0, result{n}, 2)")),
            "one: tl.constexpr = tl.BlockedLayout([1], [32], [4], [0])"]


def part_of(a: Attention, part: tuple[int, int]) -> str:
    """What takes these elements of each head's row out of a block."""
    return "" if part == (0, a.padded_head) else f".slice({part[0]}, {part[1]}, 1)"
