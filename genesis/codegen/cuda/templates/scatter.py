"""Writes through an index: index_add, index_copy, scatter_add, scatter. Always the same result, no atomics.

A program owns part of the result and looks through the index for what lands in it, in order; so equal indices add
up in the order of their positions, and of equal ones the last wins.

index_copy: the result is (outer, rows, inner). A program owns BLOCK rows by COLUMNS elements. It compares some indices
at a time with its rows; most blocks have no hit. Each row takes the first of its positions, then the second: as many
rounds as one of them has, not as the block has. Where rows are short and many of them have the same number, COLUMNS
runs across the outer sizes too; index_add has a kernel here in that case alone (`row_sums.py` has the other).

scatter_add, scatter: the index has an entry for every element of the source. A program owns a block of elements of
the result and walks along the axis of the index. Cost: results × length of the index's axis.
"""

from __future__ import annotations

from math import prod
from typing import Final

from genesis.codegen.cuda.block_sizes import batch_block, power_of_two
from genesis.codegen.cuda.expressions import literal
from genesis.codegen.cuda.gpu_model import H200, GpuModel
from genesis.codegen.cuda.loops import any_needs_int64, integer_type, module, multiples_of_16
from genesis.codegen.cuda.lowerings import POINTER, held, triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.block_sums import emit_block_sums
from genesis.codegen.cuda.templates.block_words import emit_block_words
from genesis.codegen.cuda.templates.exact_sums import emit_exact_sums
from genesis.codegen.cuda.templates.group_sums import emit_group_parts, emit_group_sums
from genesis.codegen.cuda.templates.long_lines import emit_line_sums
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.rows_taken import emit_rows_taken
from genesis.codegen.cuda.templates.wide_row_sums import emit_rows_summed
from genesis.ir.node import Node
from genesis.ir.sym_int import hint, most
from genesis.ir.types import DType, bool_, int32
from genesis.passes.groups import Group

COMPARED: Final = {"index_add": 2048, "index_copy": 8192}
"""Pairs of a row and a position that a program compares at a time: again for each position of a row where they are
added, once where the last one is written."""

SHORT: Final = 64
"""Elements of a row from which on a program of one row keeps its threads busy."""

ROWS: Final = 32
"""Rows that a program has where it takes short rows across the outer sizes."""

ACROSS: Final = (4096, 2048, 1024)
"""Elements that a program has where it takes short rows across the outer sizes: to compare its rows with positions
takes as long for many elements as for few. The fewest where all rows are a program's."""

PROGRAMS: Final = 2
"""Programs for each multiprocessor of an H200 that more elements leave."""


ELEMENTS_WARPS: Final = 8
"""Warps of a program that writes single elements, one a thread: neighbours read neighbours in the index. With eight a
thread of rows of four each load of a warp was of 32 sectors (bf16[21, 12284, 4] 13.6 µs for 14 MB, H200), and few
elements kept few warps waiting at once."""


def emit_scatter(group: Group, gpu: GpuModel) -> KernelSource:
    """The kernel of a scatter group."""
    node = next(n for n in group.nodes if n.op.name in _EMITTERS or n.op.name == "lines_summed")
    if node.op.name == "lines_summed":
        return emit_line_sums(group, node, gpu)
    return _EMITTERS[node.op.name](group, node)


def _rows(group: Group, node: Node) -> KernelSource:
    base, index, source = node.inputs
    axis = node["axis"]
    outer, rows, inner = prod(node.shape[:axis]), node.shape[axis], prod(node.shape[axis + 1:])
    count = index.type.numel
    int64_index, total = _kind(node, source)
    integer = ".to(tl.int64)" if int64_index else ""
    combine = "total + value" if node.op.name == "index_add" else "value"
    sizes = {"count": count}
    across = few_columns(outer, inner)
    if across:
        block = min(power_of_two(rows), ROWS)
        spread = outer * inner
        columns = next(each // block for each in ACROSS if each == ACROSS[-1] or (most(rows) > ROWS and (
            hint(spread) * hint(rows) >= PROGRAMS * each * H200.multiprocessors)))
        sizes["spread"] = spread
        grid = (-(-spread // columns), -(-rows // block), 1)
        first = [f"row_0 = tl.program_id(1){integer} * BLOCK",
                 f"near = tl.program_id(0){integer} * COLUMNS + tl.arange(0, COLUMNS)[None, :]",
                 f"outer = near // {inner}", f"column = near % {inner}", "there = near < spread"]
    else:
        columns = min(power_of_two(inner), 1024)
        block = max(1, min(power_of_two(rows), 8192 // columns, 8 if inner > 64 else 64))
        blocks = -(-rows // block)
        grid = (blocks * outer, -(-inner // columns), 1)
        first = [f"row_0 = tl.program_id(0){integer} % {blocks} * BLOCK",
                 f"outer = tl.program_id(0){integer} // {blocks}",
                 f"column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS){integer})[None, :]",
                 f"there = column < {inner}"]
    from_row = f"source + (outer * count + hit) * {inner} + column"
    dtype = triton_type(total)
    lines = [
        *first,
        f"row = (row_0 + tl.arange(0, BLOCK){integer})[:, None]",
        f"inside = (row < {rows}) & there",
        f"at = (outer * {rows} + row) * {inner} + column",
        f"total = {_start(base, total, '[BLOCK, COLUMNS]')}",
    ]
    if across and most(rows) <= ROWS:  # every position hits the program's rows, and no load waits for another
        lines += ["for hit in tl.range(0, count, loop_unroll_factor=4):",
                  "    hit_row = tl.load(index + hit)",
                  f"    value = tl.load({from_row}, mask=there, other=0).to({dtype})",
                  f"    total = tl.where(row == hit_row, {combine}, total)"]
    else:
        lines += ["for begin in range(0, count, SEARCHED):",
                  "    position = begin + tl.arange(0, SEARCHED)[None, :]",
                  "    mine = tl.load(index + position, mask=position < count, other=-1) == row",
                  *(f"    {line}" for line in _hits(node, from_row, dtype))]
    lines.append(f"tl.store(out + at, {_stored('total', node)}, mask=inside)")
    blocks_of = {"BLOCK": block, "COLUMNS": columns, "SEARCHED": batch_block(count, COMPARED[node.op.name] // block)}
    return _kernel(group, node, lines, sizes, blocks_of, grid, 8 if block * columns >= 4096 else 4)


def _hits(node: Node, from_row: str, dtype: str) -> list[str]:
    """What positions of the rows that are `mine` add or write: the first of each row, then the second, and so on; of
    what is written the last."""
    load = f"tl.load({from_row}, mask=there & found, other=0).to({dtype})"
    if node.op.name != "index_add":
        return ["hit = tl.max(tl.where(mine, position, -1), 1, keep_dims=True)", "found = hit >= 0",
                "if tl.max(hit) >= 0:", f"    total = tl.where(found, {load}, total)"]
    return ["hit = tl.full([BLOCK, 1], -1, tl.int32)",
            "for _ in range(0, tl.max(tl.sum(mine.to(tl.int32), 1))):",
            "    hit = tl.min(tl.where(mine & (position > hit), position, count), 1, keep_dims=True)",
            "    found = hit < count",
            f"    total = tl.where(found, total + {load}, total)"]


def few_columns(outer: int, inner: int) -> bool:
    """Are a row's elements so few, and rows of its kind so many, that a program takes them across the outer sizes?"""
    return inner < SHORT and outer > 1


def _elements(group: Group, node: Node) -> KernelSource:
    base, index, source = node.inputs
    axis, shape = node["axis"], node.shape
    int64_index, total = _kind(node, source)
    integer = ".to(tl.int64)" if int64_index else ""
    size = node.type.numel
    block = batch_block(size, 32 * ELEMENTS_WARPS)
    inner, length = prod(shape[axis + 1:]), index.shape[axis]
    combine = "total + value" if node.op.name == "scatter_add" else "value"
    lines = [
        f"x = tl.program_id(0){integer} * BLOCK + tl.arange(0, BLOCK)",
        f"mine = x // {max(inner, 1)} % {max(shape[axis], 1)}",
    ]
    # Where the element's column begins in the index, whose other sizes may be smaller than the result's.
    parts, conditions, stride = [], ["x < size"], 1
    for d in reversed(range(len(shape))):
        if d != axis:
            below = prod(shape[d + 1:])
            coordinate = f"(x // {below} % {shape[d]})" if d else f"(x // {below})"
            if index.shape[d] < shape[d]:
                conditions.append(f"({coordinate} < {index.shape[d]})")
            parts.append(f"{coordinate} * {stride}")
        stride *= index.shape[d]
    step = prod(index.shape[axis + 1:])
    lines += [
        f"first = {' + '.join(parts) or 'x * 0'}",
        f"looked = {' & '.join(f'({c})' for c in conditions)}",
        "at = x",
        "inside = x < size",
        f"total = {_start(base, total, '[BLOCK]')}",
        f"for k in tl.range(0, {length}, loop_unroll_factor=4):",  # no load waits for another
        f"    chosen = tl.load(index + (first + k * {step}), mask=looked, other=-1)",
        f"    value = tl.load(source + (first + k * {step}), mask=looked, other=0).to({triton_type(total)})",
        f"    total = tl.where(looked & (chosen == mine), {combine}, total)",
        f"tl.store(out + x, {_stored('total', node)}, mask=inside)",
    ]
    return _kernel(group, node, lines, {"size": size}, {"BLOCK": block}, (-(-size // block), 1, 1), ELEMENTS_WARPS)


def _kind(node: Node, source: Node) -> tuple[bool, DType]:
    """(are 64-bit addresses needed, the dtype values are added in)."""
    dtype = held(node.dtype)
    return any_needs_int64(node.type.numel, source.type.numel), int32 if dtype.itemsize < 4 else dtype


def _start(base: Node, total: DType, shape: str) -> str:
    """What the result is before anything is written to it."""
    if base.op.name == "const":
        return f"tl.zeros({shape}, {triton_type(total)}) + {literal(base['value'], total)}"
    return f"tl.load(base + at, mask=inside, other=0).to({triton_type(total)})"


def _stored(value: str, node: Node) -> str:
    return f"{value} != 0" if node.dtype is bool_ else f"{value}.to({triton_type(node.dtype)})"


def _kernel(group: Group, node: Node, lines: list[str], sizes: dict[str, int], constexprs: dict[str, int],
            grid: tuple[int, int, int], num_warps: int) -> KernelSource:
    base, index, source = node.inputs
    pointers = {name: input_of(x, group) for name, x in (("base", base), ("index", index), ("source", source))
                if name != "base" or base.op.name != "const"}
    pointers["out"] = group.outputs[0]
    signature = {**{name: POINTER[x.dtype.name] for name, x in pointers.items()},
                 **{name: integer_type(value) for name, value in sizes.items()},
                 **dict.fromkeys(constexprs, "constexpr")}
    if node.type.numel == 0:
        grid = (0, 1, 1)
    return KernelSource(node.op.name, module(node.op.name, signature, lines), signature, constexprs,
                        (*pointers.values(), *sizes.values()), (*pointers, *multiples_of_16(sizes)), grid,
                        num_warps, label=node.op.name)


_EMITTERS = {"index_add": _rows, "index_copy": _rows, "scatter_add": _elements, "scatter": _elements,
             "rows_summed": emit_rows_summed, "exact_sums": emit_exact_sums, "taken_in_rows": emit_rows_taken,
             "group_sums": emit_group_sums, "group_parts": emit_group_parts,
             "words_by_block": emit_block_words, "block_sums": emit_block_sums}
