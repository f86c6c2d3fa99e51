"""One launch over many tensors: pointwise programs of equal structure (foreach), parts of the norm of all of them, and
the sums of their columns.

A program has a chunk of one tensor. A table says which: for each program its member and the first element of its
chunk; then for each member its size and the addresses of its tensors. Of a matrix it has some columns, and a member is
told by its rows, its columns, how its sums are rounded, and two addresses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import reduce

from genesis.codegen.cuda.block_sizes import Blocks
from genesis.codegen.cuda.build_kernel import build, build_operands
from genesis.codegen.cuda.emitter import Body
from genesis.codegen.cuda.kernel_ir import Argument, Kernel
from genesis.codegen.cuda.loops import module, needs_int64
from genesis.codegen.cuda.lowerings import (
    POINTER,
    REDUCE_COMBINE,
    REDUCE_FINISH,
    REDUCE_IDENTITY,
    convert,
    held,
    triton_type,
)
from genesis.codegen.cuda.naming import kernel_name
from genesis.codegen.cuda.source import KernelSource, TensorTable
from genesis.ir.node import Node
from genesis.ir.ops.norm_parts import norm_parts, reduction_for, term
from genesis.ir.size_divisors import gcd
from genesis.ir.types import DType, float32
from genesis.passes.fusion.sums_together import column_sums
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group

CHUNK = 8192
"""Elements of one tensor per program of a foreach kernel."""

WIDEST = 16
"""A size that so many elements divide is loaded as widely as the GPU can: the kernel is told, as it reads sizes from a
table. Where it is not, each element under a mask is a load of its own."""


COLUMNS, ROWS = 32, 128
"""Columns of a matrix per program that sums them up, and rows at a time: a thread has eight loads of 16 bytes under
way, and neighbours read 128 bytes of a row."""


def emit_foreach(group: Group, chunk: int = CHUNK) -> KernelSource:
    """One launch for loop groups of equal structure."""
    kernels = [build(member) for member in group.members]
    walk = _Chunks(kernels, chunk)
    name = f"foreach_{kernel_name(group.members[0])}"
    return walk.source(name, [*walk.start_lines(), *walk.loop(walk.body.lines())])


def emit_norm_parts(group: Group) -> KernelSource:
    """One launch for what each chunk of many tensors adds to their norm."""
    node = next(node for node in group.nodes if node.op is norm_parts)
    whole = {stored_as(x): x for x in group.inputs}
    pairs = [_term_kernel(whole[stored_as(x)], node) for x in node.inputs if x.type.numel]
    walk = _Chunks([kernel for kernel, _ in pairs], node["chunk"])
    value = pairs[walk.kernels.index(walk.first)][1]
    how, dtype = reduction_for(node["norm_type"]).name, held(node.dtype)
    new = f"tl.where(x_mask, {value}, {REDUCE_IDENTITY[how](dtype)})"
    lines = [*walk.start_lines(), f"total = tl.full([XBLOCK], {REDUCE_IDENTITY[how](dtype)}, {triton_type(dtype)})",
             *walk.loop([*walk.body.lines(), f"total = {REDUCE_COMBINE[how].format('total', new)}"]),
             f"tl.store(parts + program + tl.arange(0, 1), {REDUCE_FINISH[how].format('total', 0)})"]
    return walk.source("norm_parts", lines, {"parts": group.outputs[0]})


def emit_sums_of_columns(group: Group) -> KernelSource:
    """One launch for the sums of many matrices' columns."""
    sums = [x for member in group.members for x in column_sums(member) or ()]
    ways = list(dict.fromkeys(x.dtypes for x in sums))
    starts = [(number, start) for number, x in enumerate(sums) for start in range(0, x.result.type.numel, COLUMNS)]
    entries: list[Node | int] = [x for start in starts for x in start]
    for x in sums:
        entries += [*x.parts.shape, ways.index(x.dtypes), x.parts, x.result]
    width = reduce(gcd, (x.result.type.numel for x in sums), WIDEST)
    lines = ["program = tl.program_id(0)", "member = tl.load(table + 2 * program)",
             f"start = tl.multiple_of(tl.load(table + 2 * program + 1), {gcd(COLUMNS, WIDEST)})",
             "row = table + 2 * programs + member * 5",
             f"rows, columns = tl.load(row).to(tl.int32), tl.multiple_of(tl.load(row + 1).to(tl.int32), {width})",
             *(f"{name} = tl.multiple_of(tl.load(row + {at}).to(tl.pointer_type(tl.float32)), 16)"
               for name, at in (("parts", 3), ("sums", 4))),
             "x = start.to(tl.int32) + tl.arange(0, XBLOCK)", "x_mask = x < columns",
             "total = tl.zeros([RBLOCK, XBLOCK], tl.float32)",
             "for first in range(0, rows, RBLOCK):",
             "    r = first + tl.arange(0, RBLOCK)",
             "    total += tl.load(parts + r[:, None] * columns + x[None, :], "
             "mask=(r < rows)[:, None] & x_mask[None, :], other=0.0)",
             "found = tl.sum(total, 0)", *_rounded_in(ways), "tl.store(sums + x, result, mask=x_mask)"]
    signature = {"table": "*i64", "programs": "i32", "XBLOCK": "constexpr", "RBLOCK": "constexpr"}
    name = "sums_of_columns"
    return KernelSource(name, module(name, signature, lines), signature, {"XBLOCK": COLUMNS, "RBLOCK": ROWS},
                        (TensorTable(tuple(entries)), len(starts)), ("table",), (len(starts), 1, 1), 4,
                        label=f"{name} ×{len(sums)}")


def _rounded_in(ways: Sequence[tuple[DType, ...]]) -> list[str]:
    """The lines that round `found` in one of some ways, by a member's number, to `result`."""
    values = []
    for way in ways:
        value = "found"
        for source, target in zip((float32, *way), way, strict=False):
            value = convert(value, source, target)
        values.append(value)
    if len(values) == 1:
        return [f"result = {values[0]}"]
    return ["way = tl.load(row + 2)", f"result = {values[0]}",
            *(f"result = tl.where(way == {number}, {value}, result)" for number, value in enumerate(values) if number)]


def _term_kernel(x: Node, node: Node) -> tuple[Kernel, str]:
    """What computes the terms of one tensor, and the name of their value."""
    wanted = term(x, node["norm_type"], node.dtype)
    group = Group("loop", (wanted,), (x,), (), "", ((x.type.numel, "x"),))
    kernel, (value,) = build_operands(group, group.space, (wanted,))
    return kernel, value.name


def parted(lines: list[str], numbers: set[str]) -> tuple[list[str], list[str]]:
    """(the lines that compute with numbers alone, the others).

    A compiler leaves the first in a loop that stores: it does not know that no store changes them."""
    known = {"tl", "libdevice", *numbers}
    once, each = [], []
    for line in lines:
        name, equals, formula = line.partition(" = ")
        if equals and name.isidentifier() and known.issuperset(re.findall(r"(?<![\w.])[A-Za-z_]\w*", formula)):
            known.add(name)
            once.append(line)
        else:
            each.append(line)
    return once, each


class _Chunks:
    """Kernels of one structure over tensors of many sizes, as one that is dealt chunks of them.

    Attributes:
        width: how many elements divide all sizes, as far as it matters.
        first: the one whose text stands for all: the largest, as one of a single element would not count its elements.
    """

    def __init__(self, kernels: Sequence[Kernel], chunk: int):
        self.kernels, self.chunk = kernels, chunk
        self.first = max(kernels, key=lambda kernel: kernel.x_size)
        self.own = [i for i, argument in enumerate(self.first.arguments) if argument.role != "number"]
        self.block = min(chunk, 1024)
        self.body = Body(self.first, Blocks(self.block, 1, False, 4), index64=any(map(needs_int64, kernels)),
                         first="start + step")
        self.width = reduce(gcd, (kernel.x_size for kernel in kernels), WIDEST)
        starts = [(number, start) for number, kernel in enumerate(kernels) for start in range(0, kernel.x_size, chunk)]
        self.programs = len(starts)
        entries: list[Node | int] = [x for start in starts for x in start]
        for kernel in kernels:
            entries += [kernel.x_size, *(kernel.arguments[i].node for i in self.own)]
        self.table = TensorTable(tuple(entries))

    def start_lines(self) -> list[str]:
        """Which chunk the program has, and where its tensors are."""
        lines = ["program = tl.program_id(0)", "member = tl.load(table + 2 * program)",
                 f"start = tl.multiple_of(tl.load(table + 2 * program + 1), {gcd(self.chunk, WIDEST)})",
                 f"row = table + 2 * programs + member * {1 + len(self.own)}",
                 f"x_size = tl.multiple_of(tl.load(row), {self.width})"]
        for offset, position in enumerate(self.own, 1):
            argument = self.first.arguments[position]
            pointer = f"tl.load(row + {offset}).to(tl.pointer_type({triton_type(argument.node.dtype)}))"
            lines.append(f"{argument.name} = tl.multiple_of({pointer}, 16)")
        return lines

    def loop(self, inner: list[str]) -> list[str]:
        """Lines for each block of the chunk."""
        position = ("x = (start + step + tl.arange(0, XBLOCK)).to(tl.int32)" if self.body.index_type.itemsize == 4
                    else "x = start + step + tl.arange(0, XBLOCK)")
        once, each = parted(inner, {x.name for x in self.first.arguments if x.role == "number"})
        return [*once, f"for step in range(0, {self.chunk}, XBLOCK):",
                *("    " + line for line in (position, "x_mask = x < x_size", *each))]

    def source(self, name: str, lines: list[str], more: dict[str, Node] | None = None) -> KernelSource:
        """The finished kernel; `more` are pointers besides the table's."""
        shared: list[Argument] = [argument for argument in self.first.arguments if argument.role == "number"]
        pointers = {**{a.name: a.node for a in shared}, **(more or {})}
        signature = {**{p: POINTER[node.dtype.name] for p, node in pointers.items()}, "table": "*i64",
                     "programs": "i32", "XBLOCK": "constexpr"}
        return KernelSource(name, module(name, signature, lines), signature, {"XBLOCK": self.block},
                            (*pointers.values(), self.table, self.programs), ("table", *(more or {})),
                            (self.programs, 1, 1), 4, label=f"{name} ×{len(self.kernels)}")
