"""Scans: running sums and products along one axis.

The tensor is seen as (outer, length, inner). A program takes a block of rows (outer × inner) and walks along the
axis with the last running value as carry, so the result does not depend on the grid.
"""

from __future__ import annotations

from math import prod

from genesis.codegen.blocks import power_of_two
from genesis.codegen.loops import INT32_LIMIT, module
from genesis.codegen.source import KernelSource
from genesis.codegen.triton_lowerings import POINTER, held, triton_type
from genesis.ir.types import int32
from genesis.passes.groups import Group
from genesis.passes.views import stored_as

_RULES = {"cumsum": ("0", "{0} + {1}", "g_add"), "cumprod": ("1", "{0} * {1}", "g_product")}
"""op → what it starts with, how a carry is taken in, the combining function."""


def emit_scan(group: Group) -> KernelSource:
    """The kernel of a scan group."""
    node = next(n for n in group.nodes if n.op.kind == "scan")
    source = next(x for x in group.inputs if stored_as(x) is stored_as(node.inputs[0]))
    axis, shape = node["axis"], node.shape
    length, inner = shape[axis], prod(shape[axis + 1:])
    rows = prod(shape[:axis]) * inner
    start, combine, function = _RULES[node.op.name]
    dtype = held(node.dtype)
    total = int32 if dtype.itemsize < 4 else dtype
    step = min(power_of_two(length), 1024 if inner == 1 else 64)
    block = min(power_of_two(rows), max(1, 2048 // step))
    wide = node.type.numel >= INT32_LIMIT
    integer = ".to(tl.int64)" if wide else ""
    lines = [
        f"row = (tl.program_id(0){integer} * ROWS + tl.arange(0, ROWS))[:, None]",
        f"first = row // {inner} * {length * inner} + row % {inner}",
        f"carry = tl.full([ROWS, 1], {start}, {triton_type(total)})",
        f"for begin in range(0, {length}, STEP):",
        f"    i = (begin + tl.arange(0, STEP){integer})[None, :]",
        f"    inside = (row < rows) & (i < {length})",
        f"    at = first + i * {inner}",
        f"    value = tl.load(source + at, mask=inside, other={start}).to({triton_type(total)})",
        f"    running = tl.associative_scan(value, 1, {function})",
        f"    running = {combine.format('carry', 'running')}",
        "    last = tl.where(i == begin + STEP - 1, running, 0)",
        "    carry = tl.sum(last, 1, keep_dims=True)",
        f"    tl.store(out + at, running.to({triton_type(node.dtype)}), mask=inside)",
    ]
    signature = {"source": POINTER[source.dtype.name], "out": POINTER[node.dtype.name], "rows": "i32",
                 "ROWS": "constexpr", "STEP": "constexpr"}
    name = f"{node.op.name}_{'rows' if inner == 1 else 'columns'}"
    return KernelSource(name, module(name, signature, lines), signature, {"ROWS": block, "STEP": step},
                        (source, group.outputs[0], rows), ("source", "out", *(["rows"] if rows % 16 == 0 else [])),
                        (-(-rows // block) if node.type.numel else 0, 1, 1), 4, label=name)
