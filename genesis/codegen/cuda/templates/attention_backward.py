"""The backward of attention: two kernels that make the probabilities again from q, k and the log-sum-exp.

With P = exp2(q·kᵀ·scale·log2 e - lse·log2 e) and dS = P·(g·vᵀ - Δ): one kernel takes a tile of queries and
sums dq = dS·k over the keys, the other takes a tile of keys and sums dv = Pᵀ·g and dk = dSᵀ·q over the
queries. Each result is written by one program, in a fixed order: no atomics, the same bits every time.
"""

from __future__ import annotations

from dataclasses import replace

from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.attention import Attention
from genesis.codegen.cuda.templates.streamed_attention_backward import backward_refusal
from genesis.codegen.cuda.templates.streamed_attention_backward_gluon import emit_streamed_backward
from genesis.codegen.cuda.templates.tile import LOG2_E, indented
from genesis.passes.groups import Group

_MATRICES, _ROWS = ("g", "q", "k", "v"), ("lse", "delta")


def emit_attention_backward(group: Group, gpu: GpuModel) -> KernelSource:
    """The kernel of a backward group."""
    a = Attention(group, gpu, _MATRICES, _ROWS)
    refused = backward_refusal(a, gpu)
    if refused is None:
        return emit_streamed_backward(a)
    plain = _by_queries(a) if a.node.op.name == "flash_attention_dq" else _by_keys(a)
    return replace(plain, note=f"its tiles are not streamed, because {refused}")


def _by_queries(a: Attention) -> KernelSource:
    """dq: a tile of queries walks over the keys that it sees."""
    ragged = a.ragged_queries
    lines = [*a.place("i", "gqkv"), a.load("q", ragged), a.load("g", ragged), a.load_row("lse", ragged),
             a.load_row("delta", ragged), *([f"lse_row = lse_row * {LOG2_E}"] if a.mask is None else []),
             "dq_sum = tl.zeros([I, D], tl.float32)",
             *a.key_ranges(), "for start in range(0, full, J):", *indented(_keys_of_a_query(a, masked=False))]
    if a.causal or a.ragged_keys:
        lines += ["for start in range(full, end, J):", *indented(_keys_of_a_query(a, masked=True))]
    lines.append(a.store("dq", "i", f"dq_sum * {a.scale}", a.output(0)))
    return a.source("attention_dq", lines, {"dq": a.output(0)}, "i")


def _keys_of_a_query(a: Attention, masked: bool) -> list[str]:
    ragged = masked and a.ragged_keys
    lines = [f"j = start + tl.arange(0, J){a.integer}", a.load("k", ragged), a.load("v", ragged),
             f"scores = tl.dot(q_tile, tl.trans(k_tile){a.precision})"]
    if a.mask is None:
        lines.append(f"p = tl.exp2(tl.fma(scores, {a.scale * LOG2_E}, -lse_row[:, None]))")
    else:
        lines += [*a.masked_scores(transposed=False), f"p = tl.exp2((scores - lse_row[:, None]) * {LOG2_E})"]
    if masked:
        lines.append(f"p = tl.where({a.visible()}, p, 0.0)")
    return [*lines, f"to_p = tl.dot(g_tile, tl.trans(v_tile){a.precision})",
            "to_scores = p * (to_p - delta_row[:, None])",
            f"dq_sum = tl.dot(to_scores.to({a.dtype}), k_tile, dq_sum{a.precision})"]


def _by_keys(a: Attention) -> KernelSource:
    """dk and dv, whichever is wanted: a tile of keys walks over the queries that see it.

    Scores are held transposed, (J, I), so that Pᵀ and dSᵀ are left operands as they are. Rows of keys past
    the end hold nonsense that is never stored; queries past the end get p = 0.
    """
    dk, dv = a.output(0), a.output(1)
    lines = [*a.place("j", "kv" if dk is not None else "k"), a.load("k", a.ragged_keys),
             *([a.load("v", a.ragged_keys)] if dk is not None else []),
             *(["dk_sum = tl.zeros([J, D], tl.float32)"] if dk is not None else []),
             *(["dv_sum = tl.zeros([J, E], tl.float32)"] if dv is not None else [])]

    def loop(start: str, stop: str, diagonal: bool, ragged: bool) -> list[str]:
        body = _queries_of_a_key(a, dk is not None, dv is not None, diagonal, ragged)
        return [f"for start in range({start}, {stop}, I):", *indented(body)]

    whole = "queries // I * I" if a.ragged_queries else "queries"
    lines.append(f"whole = {whole}")
    if a.causal:  # from the tile that holds query tile·J to the first tile that sees all keys of this one
        lines += ["first = tile * J // I * I", "seen = tl.minimum((tile * J + J - 1 + I - 1) // I * I, whole)"]
        walk = [*loop("first", "seen", diagonal=True, ragged=False),
                *loop("tl.maximum(first, seen)", "whole", diagonal=False, ragged=False)]
        first_ragged = "tl.maximum(first, whole)"
    else:
        walk = loop("0", "whole", diagonal=False, ragged=False)
        first_ragged = "whole"
    if a.ragged_queries:
        walk += loop(first_ragged, "queries", diagonal=a.causal, ragged=True)
    if a.shared > 1:  # all the query heads that share this one
        lines += [f"for head in range(0, {a.shared}):",
                  *indented([f"batch = heads * {a.shared} + head", *a.starts("j", "gq"), *walk])]
    else:
        lines += ["batch = heads", *a.starts("j", "gq"), *walk]
    lines += [a.store("dk", "j", f"dk_sum * {a.scale}", dk)] if dk is not None else []
    lines += [a.store("dv", "j", "dv_sum", dv)] if dv is not None else []
    return a.source("attention_dkv", lines, {"dk": dk, "dv": dv}, "j")


def _queries_of_a_key(a: Attention, dk: bool, dv: bool, diagonal: bool, ragged: bool) -> list[str]:
    """A tile of queries. A row past the end has lse = ∞, so its probabilities are 0."""
    lines = [f"i = start + tl.arange(0, I){a.integer}", a.load("q", ragged),
             a.load_row("lse", ragged, 'float("inf")'), f"scores = tl.dot(k_tile, tl.trans(q_tile){a.precision})"]
    if a.mask is None:
        lines.append(f"p = tl.exp2(tl.fma(scores, {a.scale * LOG2_E}, -(lse_row * {LOG2_E})[None, :]))")
    else:
        lines += [*a.masked_scores(transposed=True), f"p = tl.exp2((scores - lse_row[None, :]) * {LOG2_E})"]
    if diagonal:
        lines.append("p = tl.where(j[:, None] <= i[None, :], p, 0.0)")
    lines.append(a.load("g", ragged))
    if dv:
        lines.append(f"dv_sum = tl.dot(p.to({a.dtype}), g_tile, dv_sum{a.precision})")
    if dk:
        lines += [a.load_row("delta", ragged), f"to_p = tl.dot(v_tile, tl.trans(g_tile){a.precision})",
                  "to_scores = p * (to_p - delta_row[None, :])",
                  f"dk_sum = tl.dot(to_scores.to({a.dtype}), q_tile, dk_sum{a.precision})"]
    return lines
