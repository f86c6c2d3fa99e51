"""Attention's backward on Hopper: which tiles are streamed, and how many; the kernels are in
`streamed_attention_backward_gluon.py`.

As in the plain form (`attention_backward.py`) one kernel makes dq, the other dk and dv, so that every sum has one
order. Each holds tiles of 64 rows, one for a group of warps, and lets those of the other side pass by:

    kernel  held   passing                  products of a tile that passes
    dq      q, g   k, v                     S = q·kᵀ, dP = g·vᵀ, dq += dS·k
    dkv     k, v   q, g, and of their rows  Sᵀ = k·qᵀ, dPᵀ = v·gᵀ, dv += Pᵀ·g, dk += dSᵀ·q
                   lse and Δ

P and dS go from registers to the tensor cores: in both kernels they are left operands as they come.

Of heads above 128 a group's registers have no room for both dk and dv of 64 rows. There the two groups hold the same
rows and share the products: one makes Sᵀ, P and dv, the other dPᵀ, dS and dk, and gets P through shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.loops import module
from genesis.codegen.cuda.templates.streamed_attention import (
    ROWS,
    TOGETHER,
    Stack,
    batch_number,
    place,
    refused,
    result_at,
    result_block,
    start_of_heads,
)
from genesis.codegen.cuda.templates.tile import LOG2_E, indented
from genesis.ir.sym_int import hint

if TYPE_CHECKING:
    from genesis.codegen.cuda.templates.attention import Attention


@dataclass(frozen=True)
class BackwardForm:
    """How a kernel's tiles are streamed.

    Attributes:
        groups: of warps that multiply, each with 64 held rows.
        passing: rows of a tile that passes by.
        stages: such tiles in shared memory.
        held: tiles in shared memory that a group holds: with two the next comes while one is worked on.
        in_registers: whether held rows are left operands from registers, which shared memory is not read for.
        ahead: whether dk or dq of a tile is added beside the next tile's scores, and not before them.
        values: tiles of v in shared memory that pass by dq; 0: as many as of k, which are needed for longer.
        by_role: whether two groups hold the same rows, one for dv and the other for dk.
    """

    groups: int
    passing: int
    stages: int
    held: int
    in_registers: bool = False
    ahead: bool = False
    values: int = 0
    by_role: bool = False

    @property
    def rows(self) -> int:
        """Rows that a program holds."""
        return ROWS if self.by_role else ROWS * self.groups


BACKWARD_FORMS: Final[dict[str, tuple[tuple[int, BackwardForm], ...]]] = {
    # op → (largest head size, form): the first row that fits.
    "flash_attention_dq": ((64, BackwardForm(2, 128, 3, 2, ahead=True)), (128, BackwardForm(2, 64, 3, 2, ahead=True)),
                           (256, BackwardForm(2, 64, 2, 1, values=1))),
    "flash_attention_dkv": ((64, BackwardForm(2, 64, 4, 2, ahead=True)), (128, BackwardForm(2, 64, 2, 2)),
                            (256, BackwardForm(2, 64, 2, 1, by_role=True))),
}


def backward_form(a: Attention) -> BackwardForm:
    """The form for an op and its head size."""
    return next(form for largest, form in BACKWARD_FORMS[a.node.op.name] if a.head <= largest)


def by_keys(a: Attention) -> bool:
    """Does the kernel hold keys and let queries pass by?"""
    return a.node.op.name == "flash_attention_dkv"


def held(a: Attention) -> str:
    """The operands whose tiles are held; in the order of their products."""
    return "kv" if by_keys(a) else "qg"


def passing(a: Attention) -> str:
    """The operands whose tiles pass by."""
    return "qg" if by_keys(a) else "kv"


def results(a: Attention) -> tuple[str, ...]:
    """The gradients that it makes."""
    return ("dk", "dv") if by_keys(a) else ("dq",)


def block_rows(a: Attention) -> dict[str, int]:
    """operand → its rows in a block."""
    return {**dict.fromkeys(held(a), ROWS), **dict.fromkeys(passing(a), backward_form(a).passing)}


def backward_refusal(a: Attention, gpu: GpuModel) -> str | None:
    """Why this kernel of the backward is not streamed; None if it is."""
    most = BACKWARD_FORMS[a.node.op.name][-1][0]
    if a.head > most:
        return f"heads of {a.head} elements are more than registers hold, {most}"
    if by_keys(a) and (a.output(0) is None or a.output(1) is None):
        return "only one of two gradients is wanted"
    form = backward_form(a)
    rows, batches = (a.keys, a.batch // a.shared) if by_keys(a) else (a.queries, a.batch)
    tiles = -(-hint(rows) // form.rows) * hint(batches)
    if form.by_role:  # few of them are sooner made than by pointers, too, whose tiles of 32 keys no wgmma multiplies
        tiles = max(tiles, gpu.multiprocessors)
    found, nbytes = refused(a, gpu, tiles, block_rows(a), results(a)), backward_shared_bytes(a)
    if found is None and nbytes > gpu.block_shared_memory:
        return f"{nbytes} bytes of shared memory are more than {gpu.block_shared_memory}"
    return found


def backward_shared_bytes(a: Attention) -> int:
    """What a program has in shared memory."""
    form = backward_form(a)
    rows = 2 * form.rows * form.held + (form.stages + (form.values or form.stages)) * form.passing
    handed = 4 * form.stages * ROWS * form.passing if form.by_role else 0
    return 2 * a.padded_head * rows + (8 * form.stages * form.passing if by_keys(a) else 0) + handed + 1024


def heads_together(a: Attention) -> int:
    """Heads whose tiles are worked on at the same time: what passes by stays in the L2. For dk and dv heads of keys."""
    rows, shared = (a.queries, a.shared) if by_keys(a) else (a.keys, 1)
    size = 2 * hint(rows) * a.head * a.node.inputs[0].dtype.itemsize * shared
    return max(2, a.gpu.l2_bytes // TOGETHER // size) * (1 if by_keys(a) else a.shared)


def plain_backward(a: Attention, name: str, signature: dict[str, str], stacks: dict[str, Stack]) -> str:
    """The kernel in Triton's own language: 64 held rows at a time."""
    rows = block_rows(a)
    load = {x: f"{x}_map.load([{place(stack, 'row' if x in 'qg' else 'column')}]).reshape({rows[x]}, D)"
            for x, stack in stacks.items()}
    at = f"{batch_number(a)} * queries + i"
    lse, delta = (f"tl.load({x} + ({at}), mask=i < queries, other={other})"
                  for x, other in (("lse", 'float("inf")'), ("delta", "0")))
    tile = _plain_by_keys(a, load, lse, delta) if by_keys(a) else _plain_by_queries(a, load, lse, delta)
    count = "tl.cdiv(keys, H)" if by_keys(a) else "tl.cdiv(queries, H)"
    return module(name, signature, [
        f"H: tl.constexpr = {ROWS}",
        f"for tile in range(tl.program_id(0), {count} * batches, PROGRAMS):", *indented(tile)])


def _plain_by_queries(a: Attention, load: dict[str, str], lse: str, delta: str) -> list[str]:
    seen = ["(j < keys)[None, :]", *(["(j[None, :] <= i[:, None])"] if a.causal else [])]
    return [
        "tiles = tl.cdiv(queries, H)",
        "batch, row = tile // tiles, tile % tiles * H",
        start_of_heads(a),
        "i = row + tl.arange(0, H)",
        f"q_tile = {load['q']}", f"g_tile = {load['g']}",
        f"lse_row = {lse} * {LOG2_E}", f"delta_row = {delta}",
        "dq_sum = tl.zeros([H, D], tl.float32)",
        f"for column in range(0, {'tl.minimum(row + H, keys)' if a.causal else 'keys'}, T):",
        *indented([
            "j = column + tl.arange(0, T)",
            f"k_tile = {load['k']}",
            f"p = tl.exp2(tl.fma(tl.dot(q_tile, k_tile.T), {a.scale * LOG2_E}, -lse_row[:, None]))",
            f"p = tl.where({' & '.join(seen)}, p, 0.0)",
            f"to_scores = p * (tl.dot(g_tile, {load['v']}.T) - delta_row[:, None])",
            f"dq_sum = tl.dot(to_scores.to({a.dtype}), k_tile, dq_sum)"]),
        _plain_store(a, "dq", f"dq_sum * {a.scale}")]


def _plain_by_keys(a: Attention, load: dict[str, str], lse: str, delta: str) -> list[str]:
    return [
        "tiles = tl.cdiv(keys, H)",
        "heads, column = tile // tiles, tile % tiles * H",
        "j = column + tl.arange(0, H)",
        f"k_tile = {load['k']}", f"v_tile = {load['v']}",
        "dk_sum = tl.zeros([H, D], tl.float32)", "dv_sum = tl.zeros([H, D], tl.float32)",
        f"for head in range(0, {a.shared}):",
        *indented([
            f"batch = heads * {a.shared} + head",
            f"for row in range({'column // T * T' if a.causal else 0}, queries, T):",
            *indented([
                "i = row + tl.arange(0, T)",
                f"q_tile = {load['q']}", f"g_tile = {load['g']}",
                f"lse_row = {lse} * {LOG2_E}", f"delta_row = {delta}",
                f"p = tl.exp2(tl.fma(tl.dot(k_tile, q_tile.T), {a.scale * LOG2_E}, -lse_row[None, :]))",
                *(["p = tl.where(j[:, None] <= i[None, :], p, 0.0)"] if a.causal else []),
                f"dv_sum = tl.dot(p.to({a.dtype}), g_tile, dv_sum)",
                "to_scores = p * (tl.dot(v_tile, g_tile.T) - delta_row[None, :])",
                f"dk_sum = tl.dot(to_scores.to({a.dtype}), q_tile, dk_sum)"])]),
        _plain_store(a, "dk", f"dk_sum * {a.scale}"), _plain_store(a, "dv", "dv_sum")]


def _plain_store(a: Attention, name: str, value: str) -> str:
    return (f"{name}_map.store([{result_at(a, name)}], ({value}).to({a.dtype})"
            f".reshape({result_block(a, name, 'H')}))")
