"""Prefetch: what a kernel asks the L2 for before it waits for the kernels before it.

A kernel is started while those before it end (`source.WAIT`). When they have, its first programs would all wait for
memory that had nothing to do meanwhile; so they ask for their blocks before they wait. That reads nothing: there is one
L2 for the whole GPU, and what the kernels before still write to a line changes it there.

Only as many programs ask as have a place at once. For later ones it costs more than it gives: they are started while
others keep memory busy, and each line would be asked for twice.

Programs that have a multiprocessor each are another matter: nothing is read while one computes and stores. Those ask
for the row of the program that comes next there (`next_row_lines`).
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.addresses import in_two_dimensions
from genesis.codegen.cuda.block_sizes import Blocks
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.kernel_ir import Argument, Kernel, Load, Store
from genesis.ir.ops import leaves
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import hint, literal_value, most
from genesis.passes.fusion.views import stored_as

WARPS: Final = 16
"""Warps per multiprocessor that prefetch; more gain nothing (H200: 8192 rows of 4096 take 33.5 µs with 16 warps,
34.1 µs with 32)."""

LEAST_PART: Final = (2, 15)
"""(numerator, denominator): the part of the L2 above which an operand is prefetched, 8 of an H200's 60 MiB. Smaller
operands are in the L2 as a rule, or read before a prefetch has helped."""

LEAST_WEIGHT: Final = (1, 60)
"""(numerator, denominator): the same of what the program is given and this kernel reads for few results, 1 MiB. A
matrix that a vector is multiplied by was last read a step ago: it is in no cache, and the kernels before are often as
short as its way from memory."""

MOST_BYTES: Final = 65536
"""Maximum bytes that a program prefetches: more would leave the L2 before they are read."""

SHARE_AHEAD: Final = 4
"""A row ahead for each multiprocessor takes no more than this part of the L2: beside them lie results."""


def prefetch_lines(kernel: Kernel, blocks: Blocks, gpu: GpuModel) -> list[str]:
    """The lines that prefetch contiguous blocks: a program's own, and what all programs read.

    None where the GPU starts no kernel before those before it have ended, or cannot ask for a block at once.
    """
    launches_ahead = gpu.dependent_launch and gpu.bulk_prefetch
    if not launches_ahead or kernel.splits is not None:
        return []
    found: dict[str, str] = {}
    large = _large(kernel, gpu)
    for load in kernel.statements:
        if isinstance(load, Load) and not load.bounds and (piece := _contiguous_piece(kernel, blocks, load)):
            count, own = piece
            nbytes, offset = (n * load.out.dtype.itemsize for n in (count, load.address.constant))
            fits = is_multiple(nbytes, 16) and most(nbytes) <= MOST_BYTES
            if not fits or not is_multiple(offset, 16) or (own and load.argument not in large):
                continue
            start = load.argument + (f" + {load.address.constant}" if offset else "")
            start += f" + {_program(kernel, blocks)}.to(tl.int64) * {count}" if own else ""
            condition = _prefetch_condition(kernel, blocks, own, gpu)
            found.setdefault(load.argument, f"g_ask({start}, {condition}, {nbytes})")
    return list(found.values()) if large & found.keys() else []


def next_row_lines(kernel: Kernel, blocks: Blocks, gpu: GpuModel) -> list[str]:
    """The lines by which a program asks for the row of the one that comes next on its multiprocessor, behind the wait.

    Long rows that registers keep (`Blocks.kept_bytes`) leave no room for a second program. (H200: a softmax's gradient
    of 4096 rows of 50304 bfloat16 took 334 µs for 230 by its bytes, in 10 µs a row, of which 4 wait for the row.)
    """
    alone = 2 * blocks.kept_bytes >= 4 * gpu.registers
    if not (alone and gpu.bulk_prefetch and blocks.x == 1 and kernel.splits is None):
        return []
    found: dict[str, str] = {}
    for load in kernel.statements:
        if isinstance(load, Load) and load.out.vars == "xr" and not load.bounds:
            count, own = _contiguous_piece(kernel, blocks, load) or (0, False)
            nbytes, offset = (n * load.out.dtype.itemsize for n in (count, load.address.constant))
            room = most(nbytes) * gpu.multiprocessors * SHARE_AHEAD <= gpu.l2_bytes
            if own and room and is_multiple(nbytes, 16) and is_multiple(offset, 16):
                start = load.argument + (f" + {load.address.constant}" if offset else "")
                later = f"tl.program_id(0) + {gpu.multiprocessors}"
                found.setdefault(load.argument, f"g_ask({start} + ({later}).to(tl.int64) * {count}, "
                                                f"{later} < x_size, {nbytes})")
    return list(found.values())


def _large(kernel: Kernel, gpu: GpuModel) -> set[str]:
    """The operands that are worth it."""
    few_results = kernel.has_r and not any(isinstance(s, Store) and "r" in s.vars for s in kernel.statements)

    def least(argument: Argument) -> int:
        given = few_results and stored_as(argument.node).op is leaves.input
        part, of = LEAST_WEIGHT if given else LEAST_PART
        return gpu.l2_bytes * part // of
    return {argument.name for argument in kernel.arguments if hint(argument.node.type.nbytes) >= least(argument)}


def _contiguous_piece(kernel: Kernel, blocks: Blocks, load: Load) -> tuple[int, bool] | None:
    """(elements that a program reads there, whether each program has its own); None if they are not contiguous.

    Of a row that several programs share, the last one's block may reach into the next row: the first programs ask for
    what they read together.
    """
    terms = {atom.name: k for atom, k in load.address.terms if atom.kind == "var"}
    if len(terms) < len(load.address.terms):
        return None
    if not kernel.has_r:
        return (blocks.x, True) if terms == {"x": 1} else None
    if terms == {"r": 1}:
        return kernel.r_size, False
    if terms != {"x": kernel.r_size, "r": 1}:
        return None
    if not blocks.tiled:
        return blocks.packed or blocks.x * kernel.r_size, True
    return (blocks.r, True) if blocks.x == 1 else None


def _program(kernel: Kernel, blocks: Blocks) -> str:
    """The program's number, as text."""
    if in_two_dimensions(kernel, blocks):
        return "(tl.program_id(1) * tl.num_programs(0) + tl.program_id(0))"
    return "tl.program_id(0)"


def _prefetch_condition(kernel: Kernel, blocks: Blocks, own: bool, gpu: GpuModel) -> str:
    """The condition under which a program prefetches: it is one of the first, and its block is whole."""
    program = _program(kernel, blocks)
    if not own:
        return f"{program} == 0"
    first = f"{program} < {gpu.multiprocessors * max(1, WARPS // blocks.num_warps)}"
    whole = f"({program} + 1) * {blocks.x} <= x_size"
    if blocks.packed:
        whole = f"({program} + 1) * {blocks.packed} <= x_size * {kernel.r_size}"
    if kernel.has_r and blocks.tiled:
        length = literal_value(kernel.r_size)
        if length is not None and length % blocks.r == 0:
            return first
        whole = f"({program} + 1) * {blocks.r} <= x_size * {kernel.r_size}"
    return f"({first}) & ({whole})"
