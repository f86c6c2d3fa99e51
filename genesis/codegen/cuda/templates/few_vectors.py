"""Products with few rows (or columns): a matrix times a few vectors, as in a model that writes a few texts at once.

The time is that of reading the matrix once. Tensor cores want sixteen rows; here each thread multiplies what it has
loaded, in float32, and a program adds up over the inner dimension at the end. Many small programs keep enough loads
under way.

    total[v, m] = Σ_k vector[v, k] · matrix[m, k]        one sum in registers for each of the few vectors
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.block_sizes import block_for, power_of_two
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.templates.operands import address
from genesis.ir.sym_int import hint
from genesis.passes.fusion.index_map import Expr
from genesis.passes.fusion.operand_view import OperandView

ELEMENTS: Final = 8192
"""Elements of the matrix and the sums that a program of 128 threads holds at a time: 64 a thread."""


def few_blocks(few: int, many: int, depth: int, batch: int, gpu: GpuModel) -> tuple[int, int, int]:
    """Blocks (of the few, of the many, of the inner dimension) for a product of these sizes."""
    vectors = power_of_two(few)
    lines = next((block for block in (16, 8, 4) if hint(many) * batch >= block * 2 * gpu.multiprocessors), 2)
    lines = min(lines, power_of_two(hint(many)))
    return vectors, lines, block_for(hint(depth), max(16, ELEMENTS // (lines * vectors)))


def few_product(a: OperandView, b: OperandView, vectors: tuple[bool, int], ragged: set[str],
                index64: bool) -> list[str]:
    """The lines that leave the tile of the product of two operands, (I, K) and (K, J), in `total`.

    Args:
        vectors: whether they are rows of `a` or columns of `b`, and how many there are.
        ragged: which of "rows", "columns" and "depth" their blocks do not divide.
    """
    by_row, few = vectors
    matrix, other = ("b", "a") if by_row else ("a", "b")
    lines_of, inner = (b.column, b.row) if by_row else (a.row, a.column)
    vector, vector_inner = (a.row, a.column) if by_row else (b.column, b.row)
    batch = {"a": address(a.batch, "batch"), "b": address(b.batch, "batch")}
    line, block = ("j", "J") if by_row else ("i", "I")
    ends = {"line": f"{line}[:, None] < {'columns' if by_row else 'rows'}", "depth": "k[None, :] < last"}
    wanted = [ends[name] for name, size in (("line", "columns" if by_row else "rows"), ("depth", "depth"))
              if size in ragged]
    mask = f", mask={' & '.join(f'({x})' for x in wanted)}, other=0" if wanted else ""
    inside = ", mask=k < last, other=0" if "depth" in ragged else ""
    sums = [f"sum_{v}" for v in range(few)]
    found = [f"line_start = {batch[matrix]} + ({_over(lines_of, line)})[:, None]",
             *(f"{name} = tl.zeros([{block}, K], tl.float32)" for name in sums),
             "for start in range(first, last, K):",
             f"    k = start + tl.arange(0, K){'.to(tl.int64)' if index64 else ''}",
             f"    lines = tl.load({matrix} + (line_start + ({_over(inner, 'k')})[None, :]){mask}).to(tl.float32)"]
    for v, name in enumerate(sums):
        place = f"{batch[other]} + {address(vector, str(v))} + {_over(vector_inner, 'k')}"
        found.append(f"    {name} += lines * tl.load({other} + ({place}){inside}).to(tl.float32)[None, :]")
    across = "[None, :]" if by_row else "[:, None]"
    added = [f"tl.sum({name}, 1){across}" for name in sums]
    if few == 1:
        return [*found, f"total = {added[0]}"]
    number = "i[:, None]" if by_row else "j[None, :]"
    return [*found, "total = tl.zeros([I, J], tl.float32)",
            *(f"total = tl.where({number} == {v}, {sum_of}, total)" for v, sum_of in enumerate(added))]


def _over(part: Expr, variable: str) -> str:
    """A part of an address for each value of a variable, also where it does not depend on it."""
    return address(part, variable) if part.terms else f"{address(part, variable)} + tl.zeros_like({variable})"
