"""Attention's forward on Hopper: the copy engine (TMA) brings tiles of q, k and v, groups of warps multiply them.

A program takes one tile of queries after the other until none is left. Which one is next it learns from a counter in
memory, so that programs share the work out as they go: under a causal mask tiles differ by as much as their number.
Tiles are numbered by heads whose keys and values fit in the L2 together, within them the longest first.

What this template does not take keeps `templates/attention.py`, of which it has the operands and the online softmax;
`refusal` says why. The kernel is in Gluon (`streamed_attention_gluon.py`), and `plain_module` is the same function in
Triton's language, for an interpreter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.block_sizes import power_of_two
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.loops import any_needs_int64, module
from genesis.codegen.cuda.source import MatrixMap
from genesis.codegen.cuda.templates.attention_choice import FORMS, Form
from genesis.codegen.cuda.templates.operands import address, stride_of
from genesis.codegen.cuda.templates.streamed_matmul import DTYPES
from genesis.codegen.cuda.templates.tile import LN_2, LOG2_E, indented
from genesis.config import config
from genesis.ir.node import Node
from genesis.ir.size_divisors import gcd
from genesis.ir.sym_int import hint
from genesis.passes.fusion.index_map import Expr
from genesis.passes.fusion.operand_view import OperandView
from genesis.passes.fusion.slices import slice_view

if TYPE_CHECKING:
    from genesis.codegen.cuda.templates.attention import Attention

ROWS: Final = 64
"""Queries of one group of warps: what one instruction multiplies."""

GROUPS: Final = 2
"""Groups of warps that multiply, each with its own queries, over the same keys."""

FEWEST: Final = 128
"""Queries, and keys: fewer leave most of a tile empty."""

TOGETHER: Final = 8
"""The share of the L2, one of so many, that keys and values take which are read at the same time."""

MOST_OUTER: Final = 3
"""Dimensions of a map beside rows and columns."""


def parts_of(head: int) -> list[tuple[int, int]]:
    """(first, how many) of the elements of a head that a product takes at once, which are powers of 2: 80 = 64 + 16."""
    whole = power_of_two(head)
    most = whole // 2
    rest = max(16, power_of_two(head - most))
    return [(0, max(64, whole))] if head <= 64 or rest == most else [(0, most), (most, rest)]


@dataclass(frozen=True)
class Stack:
    """A stack of matrices as the copy engine moves them: a map, and which of them belongs to a head, as text."""

    map: MatrixMap
    at: tuple[str, ...]


def refusal(a: Attention, gpu: GpuModel) -> str | None:
    """Why the forward of this attention is not streamed; None if it is."""
    if a.output(0) is None:
        return "only the log-sum-exp is wanted"
    rows = {"q": ROWS, **dict.fromkeys("kv", FORMS[-1].keys)}
    found = refused(a, gpu, -(-hint(a.queries) // (ROWS * GROUPS)) * hint(a.batch), rows, ("y",))
    if found is None and not forms_with_room(a):
        least = min(shared_bytes(a, form) for form in FORMS)
        return f"{least} bytes of shared memory are more than {gpu.block_shared_memory}"
    return found


def refused(a: Attention, gpu: GpuModel, tiles: int, rows: dict[str, int], results: Sequence[str]) -> str | None:
    """Why no kernel of attention is streamed on this GPU, or not with so many tiles; None if one may be.

    Args:
        rows: operand → its rows in a block.
        results: "y", "dq", or "dk" and "dv".
    """
    q = a.node.inputs[0]
    if not config.streamed_attention:
        return "config.streamed_attention is off"
    if not gpu.streams_products:
        return f"compute capability {gpu.architecture / 10} has no instructions that read what the copy engine wrote"
    if q.dtype not in DTYPES:
        return f"{q.dtype.name} has no such instruction"
    if a.mask is not None:
        return "it takes no mask"
    if a.head != a.value_head:
        return f"queries of {a.head} and values of {a.value_head} elements differ"
    if a.head % 8:
        return f"rows of {a.head} elements are no multiple of 16 bytes"
    if min(hint(a.queries), hint(a.keys)) < FEWEST:
        return f"{hint(a.queries)} queries or {hint(a.keys)} keys are fewer than {FEWEST}"
    if 2 * tiles < gpu.multiprocessors:
        return f"{tiles} tiles keep less than half of {gpu.multiprocessors} multiprocessors busy"
    for name, block in rows.items():
        if stack_of(a, name, block) is None:
            return f"the copy engine cannot read {name} as it lies"
    for name in results:
        if result_stack(a, name) is None:
            return f"the copy engine cannot write {name} where it lies in its concatenation"
    return None


def forms_with_room(a: Attention) -> tuple[Form, ...]:
    """The forms whose blocks there is shared memory for."""
    return tuple(form for form in FORMS if shared_bytes(a, form) <= a.gpu.block_shared_memory)


def shared_bytes(a: Attention, form: Form) -> int:
    """What a program has in shared memory."""
    rows = ROWS * GROUPS * (2 if form.kept else 1) + 2 * form.stages * form.keys
    return 2 * a.padded_head * rows + 1024


def stack_of(a: Attention, name: str, block: int) -> Stack | None:
    """q, k, v or g as the copy engine can read it, so many rows at once; None where it cannot."""
    return _stack(a, a.views[name], a.memory[name], name in "qg", block)


def _stack(a: Attention, view: OperandView, memory: Node, of_queries: bool, block: int) -> Stack | None:
    """A matrix for each head, of queries or of keys, as the copy engine moves so many of its rows at once."""
    rows = a.queries if of_queries else a.keys
    stride, unit, itemsize = stride_of(view.row), stride_of(view.column), memory.dtype.itemsize
    outer = [(atom, k) for atom, k in view.batch.terms if k > 0]
    if unit != 1 or stride is None or len(outer) != len(view.batch.terms) or len(outer) > MOST_OUTER:
        return None
    if any(gcd(n * itemsize, 16) != 16 for n in (stride, view.batch.constant, *(k for _, k in outer))):
        return None
    at = tuple(address(Expr(0, ((atom, 1),)), "batch" if of_queries else "heads") for atom, _ in outer)
    whole = (*[1] * len(outer), block, a.padded_head)
    return Stack(MatrixMap(memory, (rows, a.head), stride, view.batch.constant, whole,
                           tuple((atom.high + 1, k) for atom, k in outer)), at)


def near(a: Attention) -> int:
    """Query heads that are worked on at the same time: their keys and values stay in the L2."""
    size = 2 * hint(a.keys) * a.head * a.node.inputs[0].dtype.itemsize
    return a.shared * max(2, a.gpu.l2_bytes // TOGETHER // size)


def ragged(a: Attention) -> bool:
    """May the last tile of keys reach past the end?"""
    keys = a.form.keys
    return gcd(a.keys, keys) != keys


def start_of_heads(a: Attention) -> str:
    """Which head of k and v the queries of a batch meet."""
    return f"heads = batch // {a.shared}" if a.shared > 1 else "heads = batch"


def batch_number(a: Attention) -> str:
    """The number of a batch as a factor of an address: the copy engine's own are coordinates, of 32 bits."""
    return "batch.to(tl.int64)" if any_needs_int64(a.batch * a.queries) else "batch"


def place(stack: Stack, row: str) -> str:
    """The coordinates of a block."""
    return ", ".join((*stack.at, row, "0"))


def result_stack(a: Attention, name: str) -> Stack | None:
    """y, dq, dk or dv as the copy engine writes it: head by head, token by token, or where it lies in a concatenation;
    None where it cannot."""
    result, of_queries = a.output(name == "dv"), name in ("y", "dq")
    assert result is not None, "refused otherwise"
    found = a.group.slice_of(result)
    if found is not None:
        view = slice_view(found, a.beside)
        assert view is not None, "`slices_of` has asked"
        return _stack(a, view, result, of_queries, ROWS)
    rows, shared, number = (a.queries, 1, "batch") if of_queries else (a.keys, a.shared, "heads")
    if not a.beside:
        return Stack(MatrixMap(result, (rows, a.head), a.head, 0, (1, ROWS, a.padded_head),
                               ((a.batch // shared, rows * a.head),)), (number,))
    heads = a.heads // shared
    return Stack(MatrixMap(result, (rows, a.head), heads * a.head, 0, (1, 1, ROWS, a.padded_head),
                           ((prod(a.node.inputs[0].shape[:-3]), rows * heads * a.head), (heads, a.head))),
                 (f"{number} // {heads}", f"{number} % {heads}"))


def result_map(a: Attention, name: str) -> MatrixMap:
    """Where a result lies that is not refused."""
    return _result_stack(a, name).map


def result_at(a: Attention, name: str) -> str:
    """The coordinates of a block of a result."""
    return place(_result_stack(a, name), "row" if name in ("y", "dq") else "column")


def result_block(a: Attention, name: str, rows: str) -> str:
    """The shape of a block of a result, of so many rows, as text."""
    return "1, " * len(_result_stack(a, name).at) + f"{rows}, D"


def _result_stack(a: Attention, name: str) -> Stack:
    found = result_stack(a, name)
    assert found is not None, "refused otherwise"
    return found


def plain_module(a: Attention, name: str, signature: dict[str, str], stacks: dict[str, Stack]) -> str:
    """The kernel in Triton's own language: 64 queries at a time."""
    scale = a.scale * LOG2_E
    load = {x: f"{x}_map.load([{place(stack, 'row' if x == 'q' else 'start')}])"
               f".reshape({'I' if x == 'q' else 'J'}, D)" for x, stack in stacks.items()}
    seen = ["(j < keys)[None, :]", *(["(j[None, :] <= i[:, None])"] if a.causal else [])]
    tile = [
        "tiles = tl.cdiv(queries, I)",
        "batch, row = tile // tiles, tile % tiles * I",
        start_of_heads(a),
        "i = row + tl.arange(0, I)",
        f"q_tile = {load['q']}",
        "best = tl.full([I], -1e30, tl.float32)",
        "total = tl.zeros([I], tl.float32)",
        "sums = tl.zeros([I, D], tl.float32)",
        f"for start in range(0, {'tl.minimum(row + I, keys)' if a.causal else 'keys'}, J):",
        *indented([
            "j = start + tl.arange(0, J)",
            f"scores = tl.dot(q_tile, {load['k']}.T)",
            f'scores = tl.where({" & ".join(seen)}, scores, float("-inf"))',
            f"larger = tl.maximum(best, tl.max(scores, 1) * {scale})",
            f"p = tl.exp2(tl.fma(scores, {scale}, -larger[:, None]))",
            "shrink = tl.exp2(best - larger)",
            "total = tl.fma(total, shrink, tl.sum(p, 1))",
            f"sums = tl.dot(p.to({a.dtype}), {load['v']}, sums * shrink[:, None])",
            "best = larger"]),
        f"y_map.store([{result_at(a, 'y')}], (sums / total[:, None]).to({a.dtype})"
        f".reshape({result_block(a, 'y', 'I')}))",
        *([f"tl.store(lse + ({batch_number(a)} * queries + i), (best + tl.log2(total)) * {LN_2}, mask=i < queries)"]
          if "lse" in signature else [])]
    return module(name, signature, [
        f"I: tl.constexpr = {ROWS}",
        "for tile in range(tl.program_id(0), tl.cdiv(queries, I) * batches, PROGRAMS):", *indented(tile)])
