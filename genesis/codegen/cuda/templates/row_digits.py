"""Rows that one program sorts digit by digit: each is read once and written once.

A thread holds some words of the row (`words.py`) in registers. For each digit, the lowest first, a warp numbers its
words among those of their digit by a counter for each (`g_ranked`), the running sums of all warps' counters say where
the first of them goes, and the words change places through shared memory. A network compares each word log² n times; a
digit takes about 60 instructions for any length.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.block_sizes import power_of_two, room_for
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.rows import Rows, result
from genesis.codegen.cuda.templates.shared_words import get_helper, put_helper, ranked_helper, words_helper
from genesis.codegen.cuda.templates.sort_helpers import helpers
from genesis.codegen.cuda.templates.words import Words
from genesis.ir.node import Node
from genesis.ir.ops.sort_steps import DIGIT, RUN
from genesis.ir.ops.sorting import in_one_tile
from genesis.ir.sym_int import hint, most
from genesis.passes.groups import Group

if TYPE_CHECKING:
    from genesis.codegen.cuda.gpu_model import GpuModel

EACH: Final = 16
"""Maximum words of a thread: of 64 bits, they and their places take 48 of the 64 registers that 1024 threads have."""

REGISTERS: Final = 64
"""Registers of a thread: as many as let a multiprocessor have 32 warps of such programs."""

LEAST_WARPS: Final = 8
"""Minimum warps of a program: a thread then adds up one digit's counters of eight warps."""

MOST_WARPS: Final = 32
"""Maximum warps of a program, as many as CUDA allows."""

NETWORK: Final = 1024
"""Maximum elements of a row that a network sorts in registers (H200, 2026-11, 16,384 rows: float32 of 2048 669 µs for
439 by digits, of 4096 1768 for 855; bfloat16 264 for 246, 604 for 426; 30,000 float32 rows of 1024 499 for 488)."""

MANY: Final = 512
"""Minimum elements that topk keeps for it to sort all of a row by digits: fewer take a network less than that."""

RUNS_OF_PASSES: Final = (4, 3)
"""Runs of `RUN` elements that are merged while a warp passes over a digit: three for four (H200, 2026-11). A row takes
38 µs by four passes of 32 warps and 19 by half of that; to merge takes 6 µs and 0.27 for each run of all rows."""

LONGEST: Final = 32 * MOST_WARPS * EACH
"""Maximum elements of a row that one program sorts."""

TRITONS_BYTES: Final = 1 << 10
"""Bytes of shared memory that Triton may want beside, to add up digits' counts: 32 in Triton 3.6."""

_DIGITS: Final = 1 << DIGIT

_PACKED: Final = 1 << 16
"""A word's digit waits above its number in one register: apart, they would not fit beside the words."""


def warps_for(length: int) -> int:
    """Warps of a program for rows of up to this length.

    >>> warps_for(4097), warps_for(9000), warps_for(16384)
    (16, 32, 32)
    """
    return max(LEAST_WARPS, power_of_two(-(-length // (32 * EACH))))


def shared_bytes(length: int, bits32: bool) -> int:
    """Bytes of shared memory for rows of up to this length: words, and what is counted."""
    warps = warps_for(length)
    return _counted(warps) + -(-length // (32 * warps)) * 32 * warps * (4 if bits32 else 8)


def _counted(warps: int) -> int:
    """Bytes of the warps' counters, of sums over eight warps each, and of the places where digits start."""
    return 4 * _DIGITS * (warps + warps // LEAST_WARPS + 1)


def by_digits(node: Node) -> bool:
    """Whether a sort or topk goes by digits where a program has room for a row: longer rows than a network is for, and
    of topk those of which it keeps many."""
    x, axis = node.inputs[0].type, node["axis"]
    wanted = node.op.name == "sort" or most(node["k"]) >= MANY
    return (wanted and x.dtype.itemsize < 8 and prod(x.shape[axis + 1:]) == 1
            and NETWORK < most(x.shape[axis]) <= LONGEST)


def in_one_program(node: Node, gpu: GpuModel) -> bool:
    """Whether a program of this GPU sorts a whole row of a sort or topk by digits. Not where runs of a few rows are
    merged faster, by many programs."""
    if not by_digits(node):
        return False
    x, axis = node.inputs[0].type, node["axis"]
    longest, bits32 = most(x.shape[axis]), x.dtype.itemsize <= 2
    if node.op.name == "sort" and not in_one_tile(x, axis):
        runs, passes = -(-hint(x.numel) // RUN), 8 * x.dtype.itemsize // DIGIT
        if runs * RUNS_OF_PASSES[0] <= warps_for(longest) * passes * RUNS_OF_PASSES[1]:
            return False
    return shared_bytes(longest, bits32) + TRITONS_BYTES <= gpu.block_shared_memory


def sort_by_digits(group: Group, node: Node) -> KernelSource:
    """The kernel that sorts whole rows by digits."""
    rows = Rows(group, node.inputs, node["axis"])
    several = node.op.name == "topk"
    words = Words(node.inputs[0].dtype, node["largest"] if several else node["descending"])
    kept = node["k"] if several else rows.length
    outputs = {name: memory for name, memory in (("values", result(group, 0)), ("indices", result(group, 1)))
               if memory is not None}
    longest = room_for(rows.length)
    warps = warps_for(longest)
    threads, kind = 32 * warps, "s32" if words.bits32 else "s64"
    each = -(-longest // threads)
    turn = words.turn
    loaded = [line for k in range(each) for line in (
        f"r = first + {32 * k}", f"r_mask = r < {rows.size}", *rows.operand_lines(), *words.pack(rows.names[0], "r"),
        f"word{k} = tl.where(r_mask, word ^ ({turn}), -1)")]  # the largest in each digit
    stored = [line for k in range(each) for line in (
        f"r = first + {32 * k}", f"inside = r < {kept if several else rows.size}", f"word = word{k} ^ ({turn})",
        *words.unpack(), *words.stores(outputs, rows.address(kept)))]
    lines = [
        *rows.x_lines(), "thread = tl.arange(0, RBLOCK)[None, :]",
        f"first = (thread // 32 * {32 * each} + thread % 32){rows.integer}",
        *loaded,
        "shared = g_words()",
        f"for shift in range({words.shift}, {words.shift + 8 * words.dtype.itemsize}, {DIGIT}):",
        *(f"    {line}" for line in _pass(warps, each, words)),
        "first = g_unknown(first)",  # addresses are computed anew: kept since the loads, they would leave no registers
        *stored]
    nbytes = shared_bytes(longest, words.bits32)
    more = "\n".join((words_helper(nbytes, beside=True), *map(put_helper, sorted({"s32", kind})),
                      *map(get_helper, sorted({"s32", kind})), ranked_helper(DIGIT), helpers(lines)))
    return rows.source(f"{node.op.name}_by_digits", lines, outputs, {"XBLOCK": 1, "RBLOCK": threads}, rows.rows, warps,
                       more, shared=nbytes, registers=REGISTERS)


def _pass(warps: int, each: int, words: Words) -> list[str]:
    """Lines that sort the words by the digit of their bits from `shift` on."""
    size, kind = (4, "s32") if words.bits32 else (8, "s64")
    parts, of_part = warps // LEAST_WARPS, LEAST_WARPS * 4 * _DIGITS
    sums = 4 * _DIGITS * warps
    starts, placed = sums + 4 * _DIGITS * parts, _counted(warps)
    return [
        f"counters = shared + thread // 32 * {4 * _DIGITS}",
        *(f"g_put_s32(counters + (thread % 32 + {32 * k}) * 4, thread * 0, thread >= 0)" for k in range(_DIGITS // 32)),
        *(line for k in range(each) for line in (
            f"digit = ((word{k} >> shift) & {_DIGITS - 1}).to(tl.int32)",
            f"number{k} = g_ranked(digit, counters) + digit * {_PACKED}")),
        "tl.debug_barrier()",
        # A thread has a digit's counters of some warps, and makes of them where each warp's first such word goes.
        f"digit = thread % {_DIGITS}",
        f"part = thread // {_DIGITS}",
        f"at = shared + part * {of_part} + digit * 4",
        *(f"many{k} = g_get_s32(at + {4 * _DIGITS * k})" for k in range(LEAST_WARPS)),
        f"g_put_s32(shared + {sums} + thread * 4, {' + '.join(f'many{k}' for k in range(LEAST_WARPS))}, thread >= 0)",
        "tl.debug_barrier()",
        f"every = tl.arange(0, {_DIGITS})",
        f"total = {' + '.join(f'g_get_s32(shared + {sums + 4 * _DIGITS * k} + every * 4)' for k in range(parts))}",
        f"g_put_s32(shared + {starts} + every * 4, tl.cumsum(total, 0) - total, every >= 0)",
        "tl.debug_barrier()",
        f"start = g_get_s32(shared + {starts} + digit * 4)",
        *(f"start += tl.where(part > {k}, g_get_s32(shared + {sums + 4 * _DIGITS * k} + digit * 4), 0)"
          for k in range(parts - 1)),
        *(line for k in range(LEAST_WARPS) for line in (
            f"g_put_s32(at + {4 * _DIGITS * k}, start, thread >= 0)", f"start += many{k}")),
        "tl.debug_barrier()",
        *(line for k in range(each) for line in (
            f"start = g_get_s32(counters + number{k} // {_PACKED} * 4)",
            f"g_put_{kind}(shared + {placed} + (number{k} % {_PACKED} + start) * {size}, word{k}, thread >= 0)")),
        "tl.debug_barrier()",
        *(f"word{k} = g_get_{kind}(shared + {placed} + (first + {32 * k}).to(tl.int32) * {size})" for k in range(each))]
