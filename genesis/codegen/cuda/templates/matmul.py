"""Matrix products: C[b, i, j] = Σ_k A[b, i, k] · B[b, k, j].

An operand is a base pointer and three address parts, of the batch, the row and the column (see
`operand_view`): transposes, heads and slices are read where they lie. A program makes one tile of
C; programs that share rows of A run close together, so that these stay in the L2 cache.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Final

from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.loops import any_needs_int64, module, multiples_of_8, multiples_of_16
from genesis.codegen.cuda.lowerings import POINTER, triton_type
from genesis.codegen.cuda.source import From, KernelSource, MatrixMap
from genesis.codegen.cuda.starts import start_of
from genesis.codegen.cuda.templates.epilogue import Result, epilogue, put
from genesis.codegen.cuda.templates.few_vectors import few_blocks, few_product
from genesis.codegen.cuda.templates.fma_matmul_gluon import fma_module
from genesis.codegen.cuda.templates.operands import address, input_of, stride_of
from genesis.codegen.cuda.templates.product_choice import (
    SHORT_EPILOGUE,
    Product,
    choose_product,
    fitted,
    shrunk,
    streamed_forms,
    turns,
    with_room,
)
from genesis.codegen.cuda.templates.product_lines import factor_lines, loaded_ahead, mask_of, product_lines
from genesis.codegen.cuda.templates.streamed_matmul import (
    EXCHANGED,
    PIECE,
    Form,
    Operand,
    descriptor,
    mapped,
    names_of,
    plain_module,
    worth_it,
)
from genesis.codegen.cuda.templates.streamed_matmul_gluon import gluon_module
from genesis.codegen.cuda.templates.tile import Tile
from genesis.ir.node import Node
from genesis.ir.ops.contraction import matmul, matmul_split_k, matmul_sum
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.size_divisors import divided_by, gcd, is_multiple
from genesis.ir.sym_int import Size, hint
from genesis.ir.types import DType, bfloat16, float16, float32
from genesis.passes.few_vectors import few_vectors
from genesis.passes.fusion.index_map import add, offset
from genesis.passes.fusion.operand_view import OperandView, operand_view
from genesis.passes.fusion.slices import slice_view
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group, Slice
from genesis.passes.product_times import LINE_BYTES, TILE_ROWS

PRODUCTS: Final = (matmul, matmul_split_k, matmul_sum)

PLAIN: Final = Tile(32, 32, 8, 4, 1)
"""Tile for dtypes without a dot instruction: the products are formed and summed, a slice of k at a time. A thread has
64 of these; of 32 columns it would have 256, of which the assembler put 6 KB a thread into local memory."""


def emit_matmul(group: Group, gpu: GpuModel) -> KernelSource:
    """The kernel of a matmul group."""
    node = next(n for n in group.nodes if n.op in PRODUCTS)
    views = [operand_view(x, group.inputs) for x in node.inputs]
    pairs = list(zip(views[::2], views[1::2], strict=True))
    a, b = pairs[0]
    (*batches, rows, depth), columns = node.inputs[0].shape, node.shape[-1]
    dtype = node.inputs[0].dtype
    splits = node["splits"] if node.op is matmul_split_k else 1
    batch = prod(batches) * splits
    dots = dtype in (float16, bfloat16, float32)
    few = few_vectors(rows, columns) if dots and splits == len(pairs) == 1 else None
    sizes = {"rows": rows, "columns": columns, "depth": depth}
    ahead, fma = loaded_ahead(a, b, dtype, sizes) if len(pairs) == 1 else "", False
    index64 = any_needs_int64(*(x.base.type.numel for x in views), node.type.numel,
                              *(stored_as(x).type.numel for x in group.inputs),  # an epilogue reads parts of them
                              *(x.whole.type.numel for x in group.slices))
    if few is not None:
        tile = _tile_of_few(few, rows, columns, depth, batch, gpu)
    elif dots:
        ops = sum(x.op.kind == "pointwise" for x in group.nodes)
        depths = [x.shape[-1] for x in node.inputs[::2]]
        product = Product(dtype, batch, rows, columns, sum(depths), _layout(a) + _layout(b), ops, splits, bool(ahead),
                          sum(_splits_lines(x, dtype) for x in (a, b)))
        taken = _taken(group, pairs, depths, product, gpu)
        if isinstance(taken, Form):
            return _streamed(group, node, pairs, depths, gpu, index64, product, taken)
        tile, fma = fitted(taken, product, gpu), product.dot == "ieee" and len(pairs) == 1
        if any(x.op is reduce_splits for x in group.nodes):  # the sums of tiles of so many rows
            tile = with_room(replace(tile, i=TILE_ROWS), dtype, gpu)
    else:
        tile = shrunk(PLAIN, rows, columns, depth, 1)
    names = [name for pair in names_of(pairs) for name in pair]
    starts = {name: start_of([add(add(x.batch, x.row), x.column)], x.base.dtype)
              for name, x in zip(names, views, strict=True)}
    views = [replace(x, batch=offset(x.batch, -starts[name])) for name, x in zip(names, views, strict=True)]
    a, b = views[:2]
    sizes |= {f"depth{number}": x.shape[-1] for number, x in enumerate(node.inputs[::2]) if number}
    blocks = {name: (size, {"rows": tile.i, "columns": tile.j}.get(name, tile.k)) for name, size in sizes.items()}
    ragged = {name for name, (size, block) in blocks.items() if gcd(size, block) != block}  # of any batch
    if splits > 1 and node["multiple"] % tile.k:
        ragged.add("depth")
    place = [*factor_lines(a, b, sizes), *_place_of_tile(index64)]
    bounds = _split_bounds(node, splits, depth)
    if len(pairs) > 1:
        sums = _lines_of_pairs(list(zip(views[::2], views[1::2], strict=True)), dtype, ragged, dots, index64)
    else:
        sums = (product_lines(a, b, dtype, ragged, dots, index64, ahead=ahead, turned=turns(tile, dtype)) if few is None
                else few_product(a, b, few, ragged, index64))
    lines = ["batch = part"] if splits > 1 and batches else []
    more = None
    stored = [x for x in group.outputs if stored_as(x) is node]
    memory = {**{name: input_of(x.base, group) for name, x in zip(names, views, strict=True)},
              **dict(zip(["out"], stored, strict=False))}
    if len(group.outputs) > len(stored):
        own = replace(group, outputs=tuple(node if x in stored else x for x in group.outputs))
        more = epilogue(own, node, (batch, rows, columns), (tile.i, tile.j), index64, gluon=fma)
        lines += more.lines
    if stored:
        out = _slice_address(group, stored[0]) or "batch * (rows * columns) + i[:, None] * columns + j[None, :]"
        inside = mask_of({"rows": "i[:, None] < rows", "columns": "j[None, :] < columns"}, ragged)
        lines.append(f"tl.store(out + ({out}), total.to({triton_type(node.dtype)}){inside})")
    constexprs = {"I": tile.i, "J": tile.j, "K": tile.k, **({"STAGES": tile.num_stages} if fma else {})}
    pointers = {name: POINTER[x.dtype.name] for name, x in memory.items()} | (more.pointers if more else {})
    if more:
        constexprs |= {"XBLOCK": tile.i, "RBLOCK": tile.j}  # as loops call them
    signature = {**pointers, **dict.fromkeys(sizes, "i32"), **dict.fromkeys(constexprs, "constexpr")}
    kind = ("matmul_split_k" if splits > 1 else "batched_matmul" if batch > 1 else
            "matmul" if len(pairs) == 1 else "matmul_sum")
    name = kind + epilogue_name(group, node)
    grid = (-(-rows // tile.i) * -(-columns // tile.j) * batch, 1, 1)
    plain = module(name, signature, [*place, *_rows_and_columns(index64), *bounds, *sums, *lines])
    text = fma_module(name, signature, (a, b), sizes, tile, ragged, index64,
                      [*place, *bounds], lines) if fma else plain
    return KernelSource(
        name, text, signature, constexprs,
        (*(From(x, starts[operand]) if starts.get(operand) else x for operand, x in memory.items()),
         *(more.args if more else ()), *sizes.values()),
        (*memory, *(more.aligned if more else ()), *multiples_of_16(sizes)),
        grid, tile.num_warps, tile.num_stages, label=name, plain=plain if fma else "",
        eights=tuple(multiples_of_8(sizes)))


def _taken(group: Group, pairs: Sequence[tuple[OperandView, OperandView]], depths: Sequence[int], product: Product,
           gpu: GpuModel) -> Form | Tile:
    """The form that it is streamed in, or the tile that it is read by."""
    worth = worth_it(product.dtype, product.batch // product.splits, product.rows, product.columns, product.depth, gpu)
    if product.splits > 1:  # parts are stored as they are
        worth = worth and not group.slices and [stored_as(x).op in PRODUCTS for x in group.outputs] == [True]
    forms = streamed_forms(product, gpu) if worth else []
    if forms and _mapped(group, pairs, depths, product, forms[0].value) is None:
        forms = []
    return choose_product(product, forms, gpu)


def _lines_of_pairs(pairs: Sequence[tuple[OperandView, OperandView]], dtype: DType, ragged: set[str], dots: bool,
                    index64: bool) -> list[str]:
    """The lines that leave the sum of all pairs' products in `total`."""
    found = []
    for number, (a, b) in enumerate(pairs):
        depth = f"depth{number or ''}"
        own = (ragged - {"depth"}) | ({"depth"} if depth in ragged else set())
        lines = product_lines(a, b, dtype, own, dots, index64)
        lines = [re.sub(r"\b([ab])((?:_start|_tile)?)\b", rf"\g<1>{number or ''}\g<2>", line) for line in lines
                 if not number or not line.startswith("total = ")]
        found += [f"first, last = 0, {depth}", *lines]
    return found


def _layout(view: OperandView) -> str:
    """See `Product.layout`."""
    return "n" if stride_of(view.column) == 1 else "t" if stride_of(view.row) == 1 else "s"


def _splits_lines(view: OperandView, dtype: DType) -> bool:
    """Do rows of a matrix begin within lines of the L2?"""
    row, column = (stride_of(part) or 0 for part in (view.row, view.column))
    return hint(row if column == 1 else column) * dtype.itemsize % LINE_BYTES != 0


def _mapped(group: Group, pairs: Sequence[tuple[OperandView, OperandView]], depths: Sequence[int], product: Product,
            form: Form) -> list[tuple[Operand, Operand]] | None:
    """The operands as the copy engine reads them, None where it cannot, or where not all pairs lie alike: that is the
    same for all forms."""
    tile, found = form.tile, []
    for (a, b), depth in zip(pairs, depths, strict=True):
        left = mapped(a, input_of(a.base, group), product.rows, depth, (tile.i, tile.k))
        right = mapped(b, input_of(b.base, group), depth, product.columns, (tile.k, tile.j))
        if left is None or right is None or (product.dot == "tf32" and (left.turned or not right.turned)):
            return None
        found.append((left, right))
    return found if len({(left.turned, right.turned) for left, right in found}) == 1 else None


def _streamed(group: Group, node: Node, pairs: Sequence[tuple[OperandView, OperandView]], depths: Sequence[int],
              gpu: GpuModel, index64: bool, product: Product, form: Form) -> KernelSource:
    """The kernel whose blocks the copy engine moves."""
    rows, columns, dtype = product.rows, product.columns, product.dtype
    tile, operands = form.tile, _mapped(group, pairs, depths, product, form)
    assert operands is not None, "no candidate otherwise"
    whole = [-(-depth // tile.k) * tile.k for depth in depths]  # of all pairs but the last: behind its end are zeros
    stored = [x for x in group.outputs if stored_as(x) is node]

    def by_tiles(x: Node) -> bool:
        return x.dtype is node.dtype is not float32 and is_multiple(columns * x.dtype.itemsize, 16)

    lines: list[str] = []
    more, tiles = None, {}
    ahead: tuple[str, ...] = ()
    if len(group.outputs) > len(stored):
        own = replace(group, outputs=tuple(node if x in stored else x for x in group.outputs))
        more = epilogue(own, node, (1, rows, columns), (tile.i, tile.j), index64, by_tiles,
                        bool(stored) and by_tiles(node), piece=PIECE,
                        ahead=not (form.shared or form.fma) and product.ops <= SHORT_EPILOGUE)
        lines, tiles, ahead = list(more.lines), dict(more.tiles), more.ahead
    memory = {}
    value = f"part.to({triton_type(node.dtype)})"
    if stored and by_tiles(node):
        lines.append(put("out_map", value, len(tiles), len(tiles) + 1))
        tiles["out_map"] = _result(group, stored[0], columns)
    elif stored:
        memory["out"] = stored[0]
        part = f"split{'.to(tl.int64)' if index64 else ''} * (rows * columns) + " if form.splits > 1 else ""
        out = _slice_address(group, stored[0]) or f"{part}i[:, None] * columns + j[None, :]"
        lines.append(f"tl.store(out + ({out}), {value}, mask=(i[:, None] < rows) & (j[None, :] < columns))")
    maps = {**{f"{name}_map": x.map for pair, both in zip(names_of(pairs), operands, strict=True)
               for name, x in zip(pair, both, strict=True)},
            **{name: MatrixMap(x.node, (rows, columns), x.stride, x.start, (tile.i, PIECE))
               for name, x in tiles.items()}}
    pointers = {name: POINTER[x.dtype.name] for name, x in memory.items()} | (more.pointers if more else {})
    sizes = {"rows": rows, "columns": columns, "depth": sum(whole[:-1]) + depths[-1],
             **{f"from_{number}": sum(whole[:number]) for number in range(1, len(pairs))}}
    constexprs = {"I": tile.i, "J": tile.j, "K": tile.k, "PROGRAMS": gpu.multiprocessors, "STAGES": tile.num_stages,
                  "WARPS": tile.num_warps, **({"XBLOCK": tile.i, "RBLOCK": PIECE} if more else {})}
    exchanged = EXCHANGED if form.shared else {}
    pointers |= {name: POINTER[x.type.dtype.name] for name, x in exchanged.items()}
    signature = {**{name: descriptor(x) for name, x in maps.items()}, **pointers, **dict.fromkeys(sizes, "i32"),
                 **dict.fromkeys(constexprs, "constexpr")}
    kind = "matmul_split_k" if form.splits > 1 else "matmul" if len(pairs) == 1 else "matmul_sum"
    name = f"streamed_{kind}" + epilogue_name(group, node)
    room = not (tiles or ahead or (form.groups > 1 < product.ops))  # of shared memory, and registers of two groups
    beside = _stored_beside([x for x in group.outputs if x.type.numel == node.type.numel], columns) if room else 0
    return KernelSource(
        name, gluon_module(name, signature, operands, dtype, lines, index64, form, ahead, beside),
        signature, constexprs,
        (*maps.values(), *memory.values(), *(more.args if more else ()), *exchanged.values(), *sizes.values()),
        (*memory, *exchanged, *(more.aligned if more else ()), *multiples_of_16(sizes)),
        (gpu.multiprocessors, 1, 1), tile.num_warps, tile.num_stages, label=name,
        plain=plain_module(name, signature, operands, lines, index64, form, ahead))


def _stored_beside(results: Sequence[Node], columns: Size) -> int:
    """How many elements of a row a thread of a streamed product should store at once, where the copy engine does not.

    Rows of 16-bit values at odd places: left where the tensor cores put them an instruction writes to eight rows, half
    of 32 bytes each. On an H200 a product of nine rounds of tiles of 128 × 256 took 298 µs that way, of which its sums
    are 140 as others' times say: 17 µs a tile. 0 where values of four bytes fill what they write.
    """
    if not any(x.dtype.itemsize == 2 for x in results):
        return 0
    return next(n for n in (4, 2, 1) if divided_by(columns, n))


def _slice_address(group: Group, stored: Node) -> str:
    """The address of a product's element (batch, i, j) in the memory that it is a slice of; "" if it is none."""
    found = group.slice_of(stored)
    if found is None:
        return ""
    view = _view_of(found)
    parts = [address(view.batch, "batch"), *(f"({address(part, name)}){axes}" for part, name, axes in (
        (view.row, "i", "[:, None]"), (view.column, "j", "[None, :]")) if part.terms)]
    return " + ".join(parts)


def _result(group: Group, stored: Node, columns: int) -> Result:
    """A product's matrix in its memory."""
    found = group.slice_of(stored)
    if found is None:
        return Result(stored, columns, 0)
    view = _view_of(found)
    return Result(stored, view.row.terms[0][1], view.batch.constant)


def _view_of(found: Slice) -> OperandView:
    view = slice_view(found)
    assert view is not None, "`slices_of` has asked"
    return view


def epilogue_name(group: Group, product: Node) -> str:
    """The first ops of an epilogue."""
    ops = dict.fromkeys(x.op.name for x in group.nodes if x.op.kind == "pointwise" and x.op.name != "cast"
                        and not x.type.weak)
    return "".join(f"_{name}" for name in list(ops)[:3])


def _tile_of_few(few: tuple[bool, int], rows: int, columns: int, depth: int, batch: int, gpu: GpuModel) -> Tile:
    by_row, count = few
    vectors, lines, inner = few_blocks(count, columns if by_row else rows, depth, batch, gpu)
    return Tile(*((vectors, lines) if by_row else (lines, vectors)), inner, 4, 1)


def _place_of_tile(index64: bool) -> list[str]:
    """Which tile a program makes: eight rows of tiles at a time, column by column."""
    integer = ".to(tl.int64)" if index64 else ""
    return [
        "tiles_i = tl.cdiv(rows, I)",
        "tiles_j = tl.cdiv(columns, J)",
        "program = tl.program_id(0) % (tiles_i * tiles_j)",
        f"batch = (tl.program_id(0) // (tiles_i * tiles_j)){integer}",
        "first_i = program // (8 * tiles_j) * 8",
        "group_i = tl.minimum(tiles_i - first_i, 8)",
        "tile_i = first_i + program % (8 * tiles_j) % group_i",
        "tile_j = program % (8 * tiles_j) // group_i",
    ]


def _rows_and_columns(index64: bool) -> list[str]:
    """Those of a program's tile."""
    integer = ".to(tl.int64)" if index64 else ""
    return [
        f"i = tile_i * I + tl.arange(0, I){integer}",
        f"j = tile_j * J + tl.arange(0, J){integer}",
    ]


def _split_bounds(node: Node, splits: int, depth: int) -> list[str]:
    """The lines that say which part of the sum a program computes: all of it, or that of its split.

    A loop that may not run at all makes ptxas wait for each product before the next (its remark C7515).
    """
    if splits == 1:
        return ["first, last = 0, depth", *(["tl.assume(depth > 0)"] if depth else [])]
    multiple, batches = node["multiple"], prod(node.shape[1:-2])
    full = (splits - 1) * multiple < depth
    of_batches = node.type.ndim > 3
    return [*([f"part, batch = batch, batch % {batches}"] if of_batches else []),
            f"split = {f'(part // {batches})' if of_batches else 'batch'}.to(tl.int32)",
            f"blocks = tl.cdiv(depth, {multiple})",
            f"first = split * blocks // {splits} * {multiple}",
            f"last = tl.minimum((split + 1) * blocks // {splits} * {multiple}, depth)",
            *(["tl.assume(first < last)"] if full else [])]
