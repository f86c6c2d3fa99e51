"""Early loads: what a kernel reads into registers before it waits for the kernels before it.

A matrix that a vector is multiplied by is there before the program begins, and nothing in the program writes it. A
kernel that is started while those before it end has its rows in registers when they have; then it wants the vector
alone. Such products, one after another, wait for each other, and no longer for memory.

before: g_ask(in0 + …)                            after: x = tl.program_id(0) * XBLOCK + …
        cuda.gdc_wait()                                  in0_at_early = tl.load(in0 + (r + x * 1024))
        x = tl.program_id(0) * XBLOCK + …                cuda.gdc_wait()
        in0_at = tl.load(…).to(tl.float32)               in0_at = in0_at_early.to(tl.float32)

What writes an input, in another plan, has ended by then: a graph is waited for as a whole, and on a stream no kernel
starts early that reads early and may meet such a writer (`LoadedSteps.begun`). A plan's first kernel reads nothing
early, so that it may start while the kernel before the plan ends.

Kernels that write as much as they read gain nothing by it. With a matrix in registers, what is left is the arithmetic
of each program. So programs of one warp take two rows of it or four: a norm of the vector is computed half as often.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from typing import Final

from genesis.codegen.cuda.block_sizes import Blocks, about
from genesis.codegen.cuda.blocks import choose_blocks
from genesis.codegen.cuda.build_kernel import build
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.kernel_ir import Kernel, Store
from genesis.codegen.cuda.loops import LoopParts, loop_parts, module
from genesis.codegen.cuda.source import KernelSource, memory_of
from genesis.ir.node import Node
from genesis.ir.sym_int import hint
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group
from genesis.runtime.overlap import EARLY

LEAST_BYTES: Final = 1 << 20
"""Bytes of a matrix from which on its kernel reads early: a smaller one is in the L2, and its kernel ends at once."""

ROWS: Final = ((4, 16), (2, 3))
"""(rows of a program of one warp, minimum programs of so many rows for each multiprocessor). Instructions that a
multiprocessor issues behind the wait, counted: for 3072 rows of two matrices of 1024 3398 with one row, 2476 with
two, 1991 with four, of which too few warps hide each other's latency."""

ROW_REGISTERS: Final = 64
"""Registers of a thread that matrices may fill before the wait."""


def settled_inputs(group: Group, settled: Container[Node]) -> frozenset[Node]:
    """The inputs of a group that its kernel may read before it waits; none where that is not worth it.

    Args:
        settled: the program's inputs that nothing in it writes.
    """
    if group.kind not in ("loop", "side_by_side"):
        return frozenset()
    members = group.members or (group,)
    if not any(kind == "r" for member in members for _, kind in member.space):
        return frozenset()
    found = frozenset(x for x in group.inputs if stored_as(x) in settled)
    return found if any(hint(x.type.nbytes) >= LEAST_BYTES for x in found) else frozenset()


def emit_early_loop(group: Group, gpu: GpuModel, settled: Container[Node]) -> KernelSource:
    """The kernel of a loop group that reads its settled inputs early."""
    parts = early_parts(group, gpu, settled)
    source = parts.source
    return replace(source, source=module(source.name, source.signature, parts.lines, before=parts.before))


def early_parts(group: Group, gpu: GpuModel, settled: Container[Node]) -> LoopParts:
    """A loop group's kernel, with loads of settled inputs among the lines that do not wait; without such loads it is
    what it was."""
    whole = loop_parts(group, gpu=gpu)
    if not gpu.dependent_launch or not any(kind == "r" for _, kind in group.space):
        return whole
    kernel = build(group)
    if any(isinstance(s, Store) and "r" in s.vars for s in kernel.statements):  # its time is that of memory alone
        return whole
    blocks = _of_several_rows(kernel, choose_blocks(kernel, gpu), gpu, settled)
    parts = whole if blocks is None else loop_parts(group, blocks, gpu)
    names = [name for name, kind in parts.source.signature.items() if kind != "constexpr"]
    given = dict(zip(names, parts.source.args, strict=True))
    read = {name for name, x in given.items() if memory_of(x) in settled}
    sizes = {name for name in parts.source.signature if memory_of(given.get(name)) is None}
    moved = _split(parts.lines, read, sizes)
    if not moved.loaded:
        return whole
    read_now = tuple([f"g_ask({x}{end}" for x in moved.loaded for end in " ,"])
    asked = [line for line in parts.before if not line.startswith(read_now)]
    return replace(parts, before=[*asked, EARLY, *moved.early], lines=moved.rest)


def _of_several_rows(kernel: Kernel, blocks: Blocks, gpu: GpuModel, settled: Container[Node]) -> Blocks | None:
    """Blocks of several rows for programs that had one row and one warp, and read a vector beside it."""
    if blocks.x != 1 or blocks.num_warps != 1 or blocks.looped or blocks.tiled or not kernel.loads("r"):
        return None
    matrices = {x.name for x in kernel.arguments if x.node in settled}
    row = sum(s.out.dtype.itemsize for s in kernel.loads("xr") if s.argument in matrices) * blocks.r // (4 * 32)
    for rows, programs in ROWS:
        if 0 < rows * row <= ROW_REGISTERS and about(kernel.x_size) >= rows * programs * gpu.multiprocessors:
            return replace(blocks, x=rows)
    return None


@dataclass(frozen=True)
class _Split:
    """The lines that do not wait, those that do, and the arguments that the first ones read."""

    early: list[str]
    rest: list[str]
    loaded: set[str]


PLACES: Final = ("program", "x", "x_mask", "r", "r_mask")
"""What a kernel's first lines name: where a program is."""

LOAD: Final = re.compile(r"(\w+) = (tl\.load\((\w+) \+ .*?\))(\.to\(tl\.\w+\))?")
"""(name, load, argument, conversion) of a line."""


def _split(lines: Sequence[str], read: Container[str], sizes: set[str]) -> _Split:
    """The lines up to a first loop, with loads of rows of the arguments `read` before all that needs to wait. A value
    waits as it lies in memory until it is used: converted, it would take twice the registers."""
    known, found = {"tl", *sizes}, _Split([], [], set())
    conversions: dict[str, str] = {}
    for number, line in enumerate(lines):
        if line.startswith(" ") or line.endswith(":"):
            found.rest.extend([*conversions.values(), *lines[number:]])
            return found
        if line.startswith("#"):
            found.rest.append(line)
            continue
        name, match = line.partition(" = ")[0], LOAD.fullmatch(line)
        needs = {node.id for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Name)} - {name}
        if name in PLACES and needs <= known:
            found.early.append(line)
            known.add(name)
        elif match and match[3] in read and needs <= {*known, match[3]}:
            kept = f"{name}_early" if match[4] else name
            found.early.append(f"{kept} = {match[2]}")
            found.loaded.add(match[3])
            if match[4]:
                conversions[name] = f"{name} = {kept}{match[4]}"
        else:
            found.rest.extend([conversions.pop(x) for x in sorted(needs & conversions.keys())])
            found.rest.append(line)
    return found


__all__ = ["early_parts", "emit_early_loop", "settled_inputs"]
