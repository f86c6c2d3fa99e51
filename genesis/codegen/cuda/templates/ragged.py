"""Products of ragged groups in one launch: which group a tile is of is found on the GPU, from where the groups end.

Rows of each group have tiles of their own, so that there are at most as many more as there are groups; programs of
tiles that turn out not to be there end at once. Rows of no group get zeros. Nothing is read or written outside the
operands, wherever the ends say that groups are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.loops import any_needs_int64, module, multiples_of_16
from genesis.codegen.cuda.lowerings import POINTER, triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.epilogue import epilogue
from genesis.codegen.cuda.templates.matmul import PLAIN, epilogue_name
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.product_choice import Product, shrunk, tile_by_rule
from genesis.codegen.cuda.templates.product_lines import mask_of, product_lines
from genesis.codegen.cuda.templates.tile import Tile, indented
from genesis.ir.node import Node
from genesis.ir.ops.ragged import ragged_matmul, ragged_matmul_sums
from genesis.ir.size_divisors import gcd
from genesis.ir.types import bfloat16, float16, float32
from genesis.passes.fusion.operand_view import OperandView, operand_view
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group

RAGGED: Final = (ragged_matmul, ragged_matmul_sums)

_FIND_ROWS: Final = (
    "tiles_j = tl.cdiv(columns, J)",
    "tile, tile_j = tl.program_id(0) // tiles_j, tl.program_id(0) % tiles_j",
    "start, before, batch, row, stop = 0, 0, 0, 0, 0",
    "for group in range(groups):",
    "    end = tl.maximum(tl.minimum(tl.load(ends + group), rows), start)",
    "    after = before + tl.cdiv(end - start, I)",
    "    here = (tile >= before) & (tile < after)",
    "    batch = tl.where(here, group, batch)",
    "    row = tl.where(here, start + (tile - before) * I, row)",
    "    stop = tl.where(here, end, stop)",
    "    start, before = end, after",
    "alone = tile >= before",
    "row = tl.where(alone, start + (tile - before) * I, row)",
    "valid = tl.where(alone, rows, stop)",
)
"""Lines that find the group (`batch`) and the first row of a tile, where the rows end that it reads (`stop`, 0 of rows
of no group), and where those that it writes do (`valid`)."""

_FIND_SUMS: Final = (
    "tiles_j = tl.cdiv(columns, J)",
    "tiles = tl.cdiv(rows, I) * tiles_j",
    "batch = tl.program_id(0) // tiles",
    "tile_i, tile_j = tl.program_id(0) % tiles // tiles_j, tl.program_id(0) % tiles % tiles_j",
    "first = tl.maximum(tl.minimum(tl.load(ends + batch - 1, mask=batch > 0, other=0), depth), 0)",
    "last = tl.minimum(tl.load(ends + batch), depth)",
    "stop = tl.maximum(last, first + 1)",
    "tl.assume(first < stop)",
)
"""Lines that find the rows of a group that a tile sums up. A loop that may not run at all makes ptxas wait for each
product before the next: that of an empty group runs once, over nothing."""


@dataclass(frozen=True)
class _Sizes:
    """A product's sizes as the kernel calls them; `batch` is how many matrices the result has."""

    batch: int
    rows: int
    columns: int
    depth: int


def emit_ragged(group: Group, gpu: GpuModel) -> KernelSource:
    """The kernel of a ragged product, with the pointwise ops on its tiles."""
    node = next(n for n in group.nodes if n.op in RAGGED)
    by_rows = node.op is ragged_matmul
    a, b = (operand_view(x, group.inputs) for x in node.inputs[:2])
    ends, (total, inner) = node.inputs[2], node.inputs[0].shape
    groups, columns = ends.shape[0], node.shape[-1]
    sizes = _Sizes(1, total, columns, inner) if by_rows else _Sizes(groups, inner, columns, total)
    dtype = node.inputs[0].dtype
    dots = dtype in (float16, bfloat16, float32)
    tile = (tile_by_rule(Product(dtype, sizes.batch, sizes.rows, columns, sizes.depth), gpu) if dots
            else shrunk(PLAIN, sizes.rows, columns, sizes.depth, 1))
    index64 = any_needs_int64(a.base.type.numel, b.base.type.numel, node.type.numel,
                              *(stored_as(x).type.numel for x in group.inputs))
    blocks = {"rows": (sizes.rows, tile.i), "columns": (columns, tile.j), "depth": (sizes.depth, tile.k)}
    ragged = {name for name, (size, block) in blocks.items() if gcd(size, block) != block}
    integer = ".to(tl.int64)" if index64 else ""
    if by_rows:
        ragged |= {"rows"}
        product = _rows_lines(product_lines(a, b, dtype, ragged, dots, index64), integer, bool(sizes.depth))
    else:
        ragged |= {"depth"}
        turned = OperandView(a.base, a.batch, a.column, a.row)
        product = [*_FIND_SUMS, *_places("tile_i * I", "tile_j * J", integer),
                   *product_lines(turned, b, dtype, ragged, dots, index64, stop="stop")]
    stored = [x for x in group.outputs if stored_as(x) is node]
    memory = {"a": input_of(a.base, group), "b": input_of(b.base, group), "ends": input_of(ends, group),
              **dict(zip(["out"], stored, strict=False))}
    ending: list[str] = []
    more = None
    if len(group.outputs) > len(stored):
        own = replace(group, outputs=tuple(node if x in stored else x for x in group.outputs))
        more = epilogue(own, node, (sizes.batch, sizes.rows, columns), (tile.i, tile.j), index64, ragged_rows=by_rows)
        ending += more.lines
    if stored:
        inside = mask_of({"rows": "i[:, None] < rows", "columns": "j[None, :] < columns"}, ragged)
        ending.append(f"tl.store(out + (batch * (rows * columns) + i[:, None] * columns + j[None, :]), "
                      f"total.to({triton_type(node.dtype)}){inside})")
    lines = ([*_FIND_ROWS, "if row < valid:", *indented([*product, *ending])] if by_rows else [*product, *ending])
    return _source(node, group, memory, more, sizes, groups, tile, lines)


def _source(node: Node, group: Group, memory: dict[str, Node], more: object, sizes: _Sizes, groups: int, tile: Tile,
            lines: list[str]) -> KernelSource:
    from genesis.codegen.cuda.templates.epilogue import Epilogue
    ends = more if isinstance(more, Epilogue) else Epilogue((), {}, (), ())
    numbers = {"rows": sizes.rows, "columns": sizes.columns, "depth": sizes.depth, "groups": groups}
    constexprs = {"I": tile.i, "J": tile.j, "K": tile.k}
    if ends.lines:
        constexprs |= {"XBLOCK": tile.i, "RBLOCK": tile.j}  # as loops call them
    signature = {**{name: POINTER[x.dtype.name] for name, x in memory.items()}, **ends.pointers,
                 **dict.fromkeys(numbers, "i32"), **dict.fromkeys(constexprs, "constexpr")}
    by_rows = node.op is ragged_matmul
    tiles_i = -(-sizes.rows // tile.i) + groups if by_rows else -(-sizes.rows // tile.i) * groups
    name = node.op.name + epilogue_name(group, node)
    return KernelSource(
        name, module(name, signature, lines), signature, constexprs, (*memory.values(), *ends.args, *numbers.values()),
        (*memory, *ends.aligned, *multiples_of_16(numbers)), (tiles_i * -(-sizes.columns // tile.j), 1, 1),
        tile.num_warps, tile.num_stages, label=name)


def _rows_lines(product: list[str], integer: str, any_depth: bool) -> list[str]:
    """A tile of rows of one group: those past its end count as rows past the last."""
    return [*_places("row", "tile_j * J", integer),
            "i = tl.where(i < stop, i, rows)",
            "first, last = 0, depth", *(["tl.assume(depth > 0)"] if any_depth else []),
            *([f"batch = batch{integer}"] if integer else []),
            *product,
            f"i = row + tl.arange(0, I){integer}",
            "i = tl.where(i < valid, i, rows)",
            "batch = 0"]


def _places(row: str, column: str, integer: str) -> list[str]:
    return [f"i = {row} + tl.arange(0, I){integer}", f"j = {column} + tl.arange(0, J){integer}"]
