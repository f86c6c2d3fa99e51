"""Writes of a source's rows to where a sorted index says (`ir/ops/segments.py`).

A program has some positions of the index and some columns. The first position of a segment takes it all: it reads the
base's row, adds the source's rows in the order of the positions, and writes the row. segment_parts has added up whole
stretches of 8 and of `chunk` positions before, so that a long segment is short for the one program that has its start:
at its ends single rows, then stretches of 8, and between them whole chunks. No atomics: the order of the additions
follows from the index alone. Where the order does not matter, rows_added has every position add its row to memory.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.block_sizes import batch_block, power_of_two
from genesis.codegen.cuda.loops import any_needs_int64, integer_type, module, multiples_of_16
from genesis.codegen.cuda.lowerings import POINTER, held, triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.rows import result
from genesis.codegen.cuda.templates.sort_helpers import helpers
from genesis.ir.node import Node
from genesis.ir.ops.segments import FINE
from genesis.ir.size_divisors import is_multiple, twos
from genesis.ir.types import DType, int32
from genesis.passes.graph.simplify_arithmetic import is_constant
from genesis.passes.groups import Group

TILE: Final = 2048
"""Elements that a program has at a time."""


def emit_segment(group: Group) -> KernelSource:
    """The kernel of a segment group."""
    node = next(n for n in group.nodes if n.op.name in _EMITTERS)
    return _EMITTERS[node.op.name](group, node)


def columns_of(inner: int) -> int:
    """A block of columns: a power of two that wastes little of the last one.

    >>> columns_of(768), columns_of(1), columns_of(1000), columns_of(33)
    (256, 1, 1024, 64)
    """
    block = min(power_of_two(inner), 1024)
    while block > 128 and -(-inner // block) * block > inner * 9 // 8:
        block //= 2
    return block


def _sums_in(dtype: DType) -> str:
    found = held(dtype)
    return triton_type(int32 if found.itemsize < 4 else found)


class _Sizes:
    """Sizes of one write: how many rows, positions and columns, and how a program has them."""

    def __init__(self, source: Node, base: Node | None):
        self.outer, self.count, self.inner = source.shape
        self.columns = columns_of(self.inner)
        self.block = batch_block(self.count, max(1, min(TILE // self.columns, 1024)))
        self.to_int64 = ".to(tl.int64)" if any_needs_int64(source.type.numel, base.type.numel if base else 0) else ""
        self.place = self.to_int64 or ".to(tl.int32)"

    @property
    def grid(self) -> tuple[int, int, int]:
        return (-(-self.count // self.block) * self.outer, -(-self.inner // self.columns), 1)

    def lines(self) -> list[str]:
        """The positions p and columns of a program, and the ids."""
        return [
            f"blocks = tl.cdiv(count, POSITIONS){self.to_int64}",
            f"outer = tl.program_id(0){self.to_int64} // blocks",
            "p = tl.program_id(0) % blocks * POSITIONS + tl.arange(0, POSITIONS)",
            f"column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS){self.to_int64})[None, :]",
            f"row = tl.load(ids + p, mask=p < count, other=-1){self.to_int64}",
        ]

    def column_mask(self) -> str:
        """Which columns there are; '' when all are."""
        return "" if is_multiple(self.inner, self.columns) else f" & (column < {self.inner})"


def _add(group: Group, node: Node) -> KernelSource:
    base, source, ids, order, ends, *parts = node.inputs
    sizes, chunk = _Sizes(source, base), node["chunk"]
    total, columns = _sums_in(node.dtype), sizes.column_mask()
    lines = [
        *sizes.lines(),
        "starts = (p < count) & (row != tl.load(ids + p - 1, mask=(p > 0) & (p < count), other=-1))",
        "begin = tl.where(starts, p, 0)",
        "end = tl.load(ends + p, mask=starts, other=0)",
        f"at = (outer * rows + row[:, None]) * {sizes.inner} + column",
        f"total = tl.zeros([POSITIONS, COLUMNS], {total})" if is_constant(base, 0)
        else f"total = tl.load(out + at, mask=starts[:, None]{columns}, other=0).to({total})",
    ]
    inside = ("begin", "end")
    if parts:
        lines += [*_whole("fine", "begin", "end", str(FINE)),
                  *_whole("coarse", "fine_first", "fine_last", str(chunk // FINE))]
        fine = ("begin", f"tl.where(has_fine, fine_first * {FINE}, end)",
                f"tl.where(has_fine, fine_last * {FINE}, end)", "end")
        lines += _walk(*fine, [
            f"place = tl.load(order + position, mask=wanted, other=0){sizes.place}",
            *_added("source", "count", "place", total, columns, sizes.inner)])
        coarse = ("fine_first", f"tl.where(has_coarse, coarse_first * {chunk // FINE}, fine_last)",
                  f"tl.where(has_coarse, coarse_last * {chunk // FINE}, fine_last)", "fine_last")
        lines += _walk(*coarse, _added("fine", f"(count // {FINE})", "position", total, columns, sizes.inner))
        lines += _walk("coarse_first", "coarse_last", "coarse_last", "coarse_last",
                       _added("coarse", f"(count // {chunk})", "position", total, columns, sizes.inner))
    else:
        lines += _walk(*inside, "end", "end", [
            f"place = tl.load(order + position, mask=wanted, other=0){sizes.place}",
            *_added("source", "count", "place", total, columns, sizes.inner)])
    lines.append(f"tl.store(out + at, total.to({triton_type(node.dtype)}), mask=starts[:, None]{columns})")
    named = {"source": source, "ids": ids, "order": order, "ends": ends,
             **dict(zip(("fine", "coarse"), parts, strict=False))}
    return _kernel(group, node, lines, named, {"out": group.outputs[0]},
                   {"rows": base.shape[1], "count": sizes.count}, sizes)


def _whole(name: str, first: str, last: str, size: str) -> list[str]:
    """Which whole stretches of `size` lie between two positions: from {name}_first to {name}_last."""
    return [f"{name}_first = ({first} + {size} - 1) // {size}",
            f"{name}_last = tl.maximum({last} // {size}, {name}_first)",
            f"has_{name} = {name}_first < {name}_last"]


def _walk(first: str, head: str, tail: str, last: str, body: list[str]) -> list[str]:
    """A loop over the positions from `first` to `head` and from `tail` to `last`."""
    return [f"before = ({head}) - ({first})",
            f"after = ({last}) - ({tail})",
            "for step in tl.range(0, tl.max(before + after, 0), loop_unroll_factor=4):",
            f"    position = tl.where(step < before, ({first}) + step, ({tail}) + step - before)",
            "    wanted = step < before + after",
            *(f"    {line}" for line in body)]


def _added(pointer: str, size: str, place: str, total: str, columns: str, inner: int) -> list[str]:
    return [f"from_row = {pointer} + ((outer * {size} + {place}[:, None]) * {inner} + column)",
            f"total += tl.load(from_row, mask=wanted[:, None]{columns}, other=0).to({total})"]


def _put(group: Group, node: Node) -> KernelSource:
    base, source, ids, order = node.inputs
    sizes = _Sizes(source, base)
    lines = [
        *sizes.lines(),
        "last = (p < count) & (row != tl.load(ids + p + 1, mask=p + 1 < count, other=-1))",
        f"place = tl.load(order + p, mask=last, other=0){sizes.place}",
        f"from_row = source + ((outer * count + place[:, None]) * {sizes.inner} + column)",
        f"value = tl.load(from_row, mask=last[:, None]{sizes.column_mask()}, other=0)",
        f"at = (outer * rows + row[:, None]) * {sizes.inner} + column",
        f"tl.store(out + at, value, mask=last[:, None]{sizes.column_mask()})",
    ]
    return _kernel(group, node, lines, {"source": source, "ids": ids, "order": order}, {"out": group.outputs[0]},
                   {"rows": base.shape[1], "count": sizes.count}, sizes)


def _unordered(group: Group, node: Node) -> KernelSource:
    base, source, ids = node.inputs
    sizes = _Sizes(source, base)
    inside = f"(p < count)[:, None]{sizes.column_mask()}"
    lines = [
        *sizes.lines(),
        f"value = tl.load(source + ((outer * count + p[:, None]) * {sizes.inner} + column), mask={inside}, other=0)",
        f"at = (outer * rows + row[:, None]) * {sizes.inner} + column",
        f'tl.atomic_add(out + at, value, mask={inside}, sem="relaxed")',
    ]
    return _kernel(group, node, lines, {"source": source, "ids": ids}, {"out": group.outputs[0]},
                   {"rows": base.shape[1], "count": sizes.count}, sizes)


LONGEST_LINE: Final = 4096
"""Maximum positions of a line that one program sorts: with more its words and sums do not fit into registers."""

WORDS_EACH: Final = 16
"""Words of a line per thread. With 32 a program of 4096 has as many warps on a multiprocessor, and takes twice as long
to compile; with 64 its registers spill (Triton 3.6, compute capability 9.0)."""

POSITION_BITS: Final = 30
"""Bits of a word that hold a row and a position: one more tells what lies outside a line, above all rows."""

SEGMENTED: Final = '''
@triton.jit
def g_segmented(row_a, total_a, row_b, total_b):
    """Two neighbours of a running sum that begins anew with each row."""
    return row_b, tl.where(row_a == row_b, total_a + total_b, total_b)
'''


def lines_fit(rows: int, count: int) -> bool:
    """Can one program sort a line of so many positions, each with its row and its place in 32 bits?"""
    return count <= LONGEST_LINE and max(rows - 1, 0).bit_length() + _place_bits(count) <= POSITION_BITS


def _place_bits(count: int) -> int:
    return power_of_two(count).bit_length() - 1


def _lines(group: Group, node: Node) -> KernelSource:
    """lines_added: a program has whole lines, sorts their positions by row, and adds each row's up side by side."""
    base, index, source = node.inputs
    (lines, rows), count = base.shape, index.shape[1]
    tile, bits = power_of_two(count), _place_bits(count)
    per_program = batch_block(lines, max(1, 1024 // tile))
    warps = max(1, per_program * tile // (32 * WORDS_EACH))
    vector = max(1, min(16 // index.dtype.itemsize, twos(count) if lines != 1 else 16))
    total = _sums_in(node.dtype)
    to_int64 = ".to(tl.int64)" if any_needs_int64(source.type.numel, base.type.numel) else ""
    text = [
        f"x = tl.program_id(0){to_int64} * XBLOCK + tl.arange(0, XBLOCK)[:, None]",
        "p = tl.arange(0, POSITIONS)[None, :]",
        "inside = (x < lines) & (p < count)",
        "row = tl.load(index + (x * count + p), mask=inside, other=0).to(tl.int32)",
        f"word = tl.where(inside, (row << {bits}) | p, {2**31 - 1})",
        *([f"word = g_first(word, POSITIONS, {vector}, {warps})"] if tile > 1 else []),
        f"row = word >> {bits}",
        f"inside = (x < lines) & (row < {rows})",
        f"at = x * count + (word & {(1 << bits) - 1})",
        f"total = tl.load(source + at, mask=inside, other=0).to({total})",
        "_, total = tl.associative_scan((row, total), 1, g_segmented)",
        *(["behind = tl.broadcast_to(tl.minimum(p + 1, POSITIONS - 1), [XBLOCK, POSITIONS])",
           "last = inside & ((row != tl.gather(row, behind, 1)) | (p == POSITIONS - 1))"] if tile > 1 else
          ["last = inside"]),
        f"at = x * {rows} + row",
        *([] if is_constant(base, 0) else [f"total += tl.load(out + at, mask=last, other=0).to({total})"]),
        f"tl.store(out + at, total.to({triton_type(node.dtype)}), mask=last)",
    ]
    pointers = {"index": input_of(index, group), "source": input_of(source, group), "out": group.outputs[0]}
    numbers = {"lines": lines, "count": count}
    constexprs = {"XBLOCK": per_program, "POSITIONS": tile}
    signature = {**{name: POINTER[x.dtype.name] for name, x in pointers.items()},
                 **{name: integer_type(value) for name, value in numbers.items()},
                 **dict.fromkeys(constexprs, "constexpr")}
    empty = not node.type.numel or not source.type.numel
    return KernelSource("lines_added", module("lines_added", signature, text, helpers(text) + SEGMENTED), signature,
                        constexprs, (*pointers.values(), *numbers.values()), (*pointers, *multiples_of_16(numbers)),
                        (0, 1, 1) if empty else (-(-lines // per_program), 1, 1), warps, label="lines_added")


def _parts(group: Group, node: Node) -> KernelSource:
    """A program has one chunk of a few columns, all at once."""
    source, ids, order = node.inputs
    sizes, chunk = _Sizes(source, None), node["chunk"]
    sizes.columns = min(sizes.columns, max(1, TILE // chunk))
    total, to_int64, columns = _sums_in(source.dtype), sizes.to_int64, sizes.column_mask()
    outputs = {name: memory for i, name in enumerate(("fine", "coarse")) if (memory := result(group, i)) is not None}
    chunks = -(-sizes.count // chunk)
    lines = [
        f"outer = tl.program_id(0){to_int64} // chunks",
        f"first = tl.program_id(0) % chunks * {chunk}",
        f"p = first + tl.arange(0, {chunk})",
        f"column = (tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS){to_int64})[None, :]",
        f"begin = p // {FINE} * {FINE}",
        f"same = begin + {FINE} <= count",
        f"same &= tl.load(ids + begin, mask=same, other=-1) == tl.load(ids + begin + {FINE - 1}, mask=same, other=-2)",
        f"sums = tl.zeros([{chunk // FINE}, COLUMNS], {total})",
        "if tl.max(same.to(tl.int32), 0) > 0:  # most chunks have no stretch of one id where ids are many",
        f"    place = tl.load(order + p, mask=same, other=0){sizes.place}",
        f"    from_row = source + ((outer * count + place[:, None]) * {sizes.inner} + column)",
        f"    value = tl.load(from_row, mask=same[:, None]{columns}, other=0).to({total})",
        f"    sums = tl.sum(tl.reshape(value, [{chunk // FINE}, {FINE}, COLUMNS]), 1)",
        f"stretch = first // {FINE} + tl.arange(0, {chunk // FINE})[:, None]",
    ]
    if "fine" in outputs:
        lines.append(f"tl.store(fine + ((outer * (count // {FINE}) + stretch) * {sizes.inner} + column), "
                     f"sums.to({triton_type(outputs['fine'].dtype)}), mask=(stretch < count // {FINE}){columns})")
    if "coarse" in outputs:
        lines += [
            f"complete = first + {chunk} <= count",
            f"whole = complete & (tl.load(ids + first) == tl.load(ids + first + {chunk - 1}, mask=complete, other=-1))",
            f"at = (outer * (count // {chunk}) + first // {chunk}) * {sizes.inner} + column",
            f"tl.store(coarse + at, tl.where(whole, tl.sum(sums, 0, keep_dims=True), 0)"
            f".to({triton_type(outputs['coarse'].dtype)}), mask=complete & (column < {sizes.inner}))"]
    return _kernel(group, node, lines, {"source": source, "ids": ids, "order": order}, outputs,
                   {"chunks": chunks, "count": sizes.count}, sizes,
                   (chunks * sizes.outer, -(-sizes.inner // sizes.columns), 1))


def _kernel(group: Group, node: Node, lines: list[str], operands: dict[str, Node], outputs: dict[str, Node],
            numbers: dict[str, int], sizes: _Sizes, grid: tuple[int, int, int] | None = None) -> KernelSource:
    pointers = {**{name: input_of(operand, group) for name, operand in operands.items()}, **outputs}
    constexprs = {"POSITIONS": sizes.block, "COLUMNS": sizes.columns}
    signature = {**{name: POINTER[x.dtype.name] for name, x in pointers.items()},
                 **{name: integer_type(value) for name, value in numbers.items()},
                 **dict.fromkeys(constexprs, "constexpr")}
    empty = not any(x.type.numel for x in outputs.values())
    return KernelSource(node.op.name, module(node.op.name, signature, lines), signature, constexprs,
                        (*pointers.values(), *numbers.values()), (*pointers, *multiples_of_16(numbers)),
                        (0, 1, 1) if empty else grid or sizes.grid, 4, label=node.op.name)


_EMITTERS = {"lines_added": _lines, "segment_add": _add, "segment_put": _put, "segment_parts": _parts,
             "rows_added": _unordered}
