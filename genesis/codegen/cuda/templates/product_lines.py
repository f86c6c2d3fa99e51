"""The loop of a product that is read by pointers: the tile's sum over the inner dimension, a block of it at a time.

Triton brings the blocks of later rounds into shared memory while one is multiplied, where a thread copies at least four
bytes at once. Of operands of two bytes whose rows begin at odd places it can copy one element only: then nothing is on
its way, and each round waits for memory (an H200 took 1.5 µs for a block of 64 × 64 × 64 that way, 0.22 otherwise).
Such an operand is loaded a block ahead, into registers.

    a_next = load(block 0)
    for each block:
        a_tile, a_next = a_next, load(the next block)
        total += a_tile · b_tile
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from genesis.codegen.cuda.lowerings import triton_type
from genesis.codegen.cuda.templates.operands import address, stride_of
from genesis.codegen.cuda.templates.tile import rounding
from genesis.ir.size_divisors import divided_by, is_multiple
from genesis.ir.types import DType, bfloat16, float16, float32, int32
from genesis.passes.fusion.index_map import Expr
from genesis.passes.fusion.operand_view import OperandView

COPIED: Final = 4
"""The fewest bytes that a thread copies into shared memory without waiting for them (`cp.async`)."""

PLACES: Final = {"a": ("batch", "i", "k"), "b": ("batch", "k", "j")}
"""Operand → the variables of its batch, row and column."""

ENDS: Final = {"a": {"rows": "i[:, None] < rows", "depth": "k[None, :] < last"},
               "b": {"depth": "k[:, None] < last", "columns": "j[None, :] < columns"}}
"""Operand → the conditions that keep a block inside it, by the size that they are about."""

SIDES: Final = {"a": ("rows", "depth"), "b": ("depth", "columns")}
"""Operand → what its rows and columns are called."""


def mask_of(conditions: Mapping[str, str], ragged: set[str]) -> str:
    """The mask of an access, as an argument: what may be past the end of a size that its block does not divide."""
    wanted = [f"({text})" for size, text in conditions.items() if size in ragged]
    return f", mask={' & '.join(wanted)}" if wanted else ""


def factor_lines(a: OperandView, b: OperandView, sizes: Mapping[str, int]) -> list[str]:
    """Lines that tell the compiler which sizes are multiples of 2 and of 4: of 8 and 16 their attributes tell it.

    A mask that ends at such a size covers elements in pairs or fours, which are then loaded at once. Asked are those
    along which neighbours lie in memory: which class of sizes is compiled for depends on the answer.
    """
    along = dict.fromkeys(SIDES[name][1 if _stride(view.column) == 1 else 0] for name, view in (("a", a), ("b", b)))
    found = {name: 1 if is_multiple(sizes[name], 8) else next(
        factor for factor in (4, 2, 1) if divided_by(sizes[name], factor)) for name in along}
    return [f"{name} = {name} // {factor} * {factor}" for name, factor in found.items() if factor > 1]


def loaded_ahead(a: OperandView, b: OperandView, dtype: DType, sizes: Mapping[str, int]) -> str:
    """The operands that are loaded into registers a block ahead: "a", "b", "ab" or none."""
    return "".join(name for name, view in (("a", a), ("b", b)) if is_unaligned(
        view, dtype, *(sizes[side] for side in SIDES[name])))


def is_unaligned(view: OperandView, dtype: DType, rows: int, columns: int) -> bool:
    """Can a thread copy less than `COPIED` bytes of an operand at once? Masks end at its rows and columns."""
    row, column = (_stride(part) for part in (view.row, view.column))
    if dtype not in (float16, bfloat16) or row is None or column is None:
        return False
    if 1 not in (row, column):
        return True
    other, end = (row, columns) if column == 1 else (column, rows)
    steps = (other, end, view.batch.constant, *(k for _, k in view.batch.terms))
    return not all(divided_by(step, COPIED // dtype.itemsize) for step in steps)


def _stride(part: Expr) -> int | None:
    """Elements from one place to the next, if that is one number: 0 if there is one place alone."""
    return stride_of(part) if part.terms else 0


def product_lines(a: OperandView, b: OperandView, dtype: DType, ragged: set[str], dots: bool, index64: bool,
                  stop: str = "last", ahead: str = "", turned: bool = False) -> list[str]:
    """The lines that leave Σ_k A·B of the tile in `total`, k from `first` to `last` in steps that end at `stop`.

    Args:
        ragged: which of "rows", "columns" and "depth" their blocks do not divide.
        ahead: the operands that are loaded a block ahead.
        turned: whether the tile is summed up as Bᵀ·Aᵀ: Hopper's tensor cores take 64 rows at least, and few columns.
    """
    held = float32 if dtype in (float16, bfloat16) else int32 if dtype.kind != "float" and dtype.itemsize < 4 else dtype
    block = f"tl.arange(0, K){'.to(tl.int64)' if index64 else ''}"

    def start(name: str, batch: Expr, part: Expr, variable: str, axis: str) -> str:
        size = f"{variable.upper()}, 1" if axis == "[:, None]" else f"1, {variable.upper()}"
        place = f"({address(part, variable)}){axis}" if part.terms else f"tl.zeros([{size}], tl.int32)"
        return f"{name}_start = {address(batch, 'batch')} + {place}"

    def load(name: str) -> str:
        part, axis = (a.column, "[None, :]") if name == "a" else (b.row, "[:, None]")
        step = f" + ({address(part, 'k')}){axis}" if part.terms else f" + tl.zeros_like(k){axis}"
        mask = mask_of(ENDS[name], ragged | {"depth"} if name in ahead else ragged)
        return f"tl.load({name} + ({name}_start{step}){mask}{', other=0' if mask else ''})"
    now = [name for name in "ab" if name not in ahead]
    lines = [start("a", a.batch, a.row, "i", "[:, None]"), start("b", b.batch, b.column, "j", "[None, :]"),
             f"total = tl.zeros([{'J, I' if turned else 'I, J'}], {triton_type(held)})",
             *([f"k = first + {block}"] if ahead else []),
             *(f"{name}_next = {load(name)}" for name in ahead),
             f"for start in range(first, {stop}, K):",
             *([f"    k = start + {block}"] if now else []),
             *(f"    {name}_tile = {load(name)}" for name in now),
             *(f"    {name}_tile = {name}_next" for name in ahead),
             *([f"    k = start + K + {block}"] if ahead else []),
             *(f"    {name}_next = {load(name)}" for name in ahead)]
    if turned:
        return [*lines, f"    total = tl.dot(tl.trans(b_tile), tl.trans(a_tile), total{rounding(dtype)})",
                "total = tl.trans(total)"]
    if dots:
        return [*lines, f"    total = tl.dot(a_tile, b_tile, total{rounding(dtype)})"]
    wider = f".to({triton_type(held)})"
    return [*lines, f"    total += tl.sum(a_tile{wider}[:, :, None] * b_tile{wider}[None, :, :], 1)"]
