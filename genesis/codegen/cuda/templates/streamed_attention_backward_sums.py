"""What a group of multiplying warps does in the streamed backward's kernels in Gluon: dq of a tile of queries, or dk
and dv of a tile of keys (`streamed_attention_backward_gluon.py` has the rest of the text)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.codegen.cuda.source import WAIT
from genesis.codegen.cuda.templates.streamed_attention import ROWS, batch_number, parts_of, result_at
from genesis.codegen.cuda.templates.streamed_attention_backward import BackwardForm, by_keys, held
from genesis.codegen.cuda.templates.streamed_tiles_gluon import (
    TOLD_NEXT,
    let_go,
    multiplying,
    part_of,
    result_layouts,
    wide_layout,
)
from genesis.codegen.cuda.templates.tile import LOG2_E, indented
from genesis.ir.size_divisors import gcd

if TYPE_CHECKING:
    from genesis.codegen.cuda.templates.attention import Attention


def sums(a: Attention, form: BackwardForm, tile: list[str]) -> list[str]:
    """The lines of the function; `tile`: those that say which rows a tile holds."""
    left = "left: tl.constexpr = tl.DotOperandLayout(0, wide, 2)"
    return [
        WAIT,
        wide_layout("T"),
        *([left] if form.in_registers else []),
        *result_layouts(a),
        f"nothing = tl.zeros([{ROWS}, T], tl.float32, wide)",
        *multiplying("keys" if by_keys(a) else "queries", form.rows, [
            *tile,
            f"block = turn % HELD * {form.groups} + GROUP",
            *(_sums_by_role(a) if form.by_role else _sums_by_keys(a, form) if by_keys(a)
              else _sums_by_queries(a, form)),
            "turn += 1",
            *TOLD_NEXT])]


def _held(a: Attention, form: BackwardForm) -> list[str]:
    """Lines that wait for the held tile."""
    return ["mbarrier.wait(held_full.index(block), (turn // HELD) & 1)",
            *(f"{x}_block = {x}_blocks.index(block)" for x in held(a)),
            *(f"{x}_left{n} = {x}_block{part_of(a, part)}.load(left)" for x in held(a) if form.in_registers
              for n, part in enumerate(parts_of(a.head)))]


def _scores(a: Attention, form: BackwardForm, result: str, held_one: str, passing_one: str, stage: str,
            start: str = "nothing, use_acc=False") -> list[str]:
    """Lines that begin the product of a held tile with one that passes by, over the elements of a head."""
    def begun(n: int, part: tuple[int, int]) -> str:
        kept = f"{held_one}_left{n}" if form.in_registers else f"{held_one}_block{part_of(a, part)}"
        return (f"{result} = warpgroup_mma({kept}, {passing_one}_blocks.index({stage}){part_of(a, part)}"
                f".permute((1, 0)), {result if n else start}, is_async=True)")
    return [begun(n, part) for n, part in enumerate(parts_of(a.head))]


def _added(a: Attention, sums: str, factor: str, passing_one: str, stage: str) -> list[str]:
    """Lines that begin to add the product of probabilities, or what is made of them, and a tile that passes by."""
    return [f"{sums}{n} = warpgroup_mma(tl.convert_layout({factor}, left{n}), "
            f"{passing_one}_blocks.index({stage}){part_of(a, part)}, {sums}{n}, is_async=True)"
            for n, part in enumerate(parts_of(a.head))]


def _all(a: Attention, *sums: str) -> list[str]:
    """The names of sums in all parts."""
    return [f"{x}{n}" for x in sums for n, _ in enumerate(parts_of(a.head))]


def _ended(names: list[str], left: int = 0) -> str:
    """The line that waits for products."""
    return f"{', '.join(names)} = warpgroup_mma_wait({left}, deps=({', '.join(names)},))"


def _zeros(a: Attention, *sums: str) -> list[str]:
    return [f"{x}{n} = tl.zeros([{ROWS}, {size}], tl.float32, result{n})"
            for x in sums for n, (_, size) in enumerate(parts_of(a.head))]


def _stored(a: Attention, sums: str, block: str, factor: float | None) -> list[str]:
    """Lines that hand a sum to the copy engine, through a block of shared memory."""
    return [*(f"{block}{part_of(a, part)}.store(({sums}{n}{'' if factor is None else f' * {factor}'})"
              f".to({sums}_map.dtype))" for n, part in enumerate(parts_of(a.head))),
            "fence_async_shared()",
            f"store_block({sums}_map, [{result_at(a, sums)}], "
            f"reshaped({block}, {sums}_map.dtype, {sums}_map.block_type.shape, {sums}_map.layout))"]


def _sums_by_queries(a: Attention, form: BackwardForm) -> list[str]:
    """dq of a tile. The scores of the next tile of keys and the products with this one's keys run one after the other,
    so that exponentials are made beside the latter; or, where there is no room for a third tile of keys, the other way
    round, beside the products with values."""
    scale, rows = a.scale * LOG2_E, form.rows
    count = len(parts_of(a.head))
    at = f"{batch_number(a)} * queries + i"
    seen = [*(["(j < keys)[None, :]"] if gcd(a.keys, form.passing) != form.passing else []),
            *(["(j[None, :] <= i[:, None])"] if a.causal else [])]
    skips = a.causal and form.passing < rows
    stages = "VALUES" if form.values else "STAGES"
    old, new, parity = ("v_old", "v_new", "v_parity") if form.values else ("old", "new", "parity")
    skipped = [f"mine = tl.minimum(tl.cdiv(row + {ROWS}, T), last)", *let_go(stages)]
    to_scores = "to_scores = (p * (to_p - delta_row[:, None])).to(q_map.dtype)"
    return [
        f"row = tile * {rows} + GROUP * {ROWS}",
        f"i = row + tl.arange(0, {ROWS}, layout=tl.SliceLayout(1, wide))",
        f"lse_row = tl.load(lse + ({at}), mask=i < queries, other=float('inf')) * {LOG2_E}",
        f"delta_row = tl.load(delta + ({at}), mask=i < queries, other=0.0)",
        *_zeros(a, "dq"),
        *(skipped if skips else ["mine = last"]),
        "old = count % STAGES",
        *([f"{old} = count % VALUES"] if form.values else []),
        *_held(a, form),
        "mbarrier.wait(k_full.index(old), (count // STAGES) & 1)",
        *_scores(a, form, "scores", "q", "k", "old"),
        f"mbarrier.wait(v_full.index({old}), (count // {stages}) & 1)",
        *_scores(a, form, "to_p", "g", "v", old),
        _ended(["scores"], count),
        f"p = tl.exp2(tl.fma(scores, {scale}, -lse_row[:, None]))",
        *(["j = (mine - 1) * T + tl.arange(0, T, layout=tl.SliceLayout(0, wide))",
           f"p = tl.where({' & '.join(seen)}, p, 0.0)"] if seen else []),
        _ended(["to_p"]),
        f"mbarrier.arrive(v_empty.index({old}), count=1)",
        to_scores,
        "for step in range(1, mine):",
        *indented([
            "old = count % STAGES",
            "new = (count + 1) % STAGES",
            "parity = ((count + 1) // STAGES) & 1",
            *([f"{new} = (count + 1) % VALUES", f"{parity} = ((count + 1) // VALUES) & 1"] if form.values else []),
            *([] if form.ahead else _added(a, "dq", "to_scores", "k", "old")),
            "mbarrier.wait(k_full.index(new), parity)",
            *_scores(a, form, "next_scores", "q", "k", "new"),
            *(_added(a, "dq", "to_scores", "k", "old") if form.ahead else []),
            f"mbarrier.wait(v_full.index({new}), {parity})",
            *_scores(a, form, "next_to_p", "g", "v", new),
            *([] if form.ahead else [_ended(_all(a, "dq"), 2 * count), "mbarrier.arrive(k_empty.index(old), count=1)"]),
            f"scores = warpgroup_mma_wait({(2 if form.ahead else 1) * count}, deps=(next_scores,))",
            f"p = tl.exp2(tl.fma(scores, {scale}, -lse_row[:, None]))",
            *([f"{', '.join(_all(a, 'dq'))}, to_p = "
               f"warpgroup_mma_wait(0, deps=({', '.join(_all(a, 'dq'))}, next_to_p))",
               "mbarrier.arrive(k_empty.index(old), count=1)"] if form.ahead
              else ["to_p = warpgroup_mma_wait(0, deps=(next_to_p,))"]),
            f"mbarrier.arrive(v_empty.index({new}), count=1)",
            to_scores,
            "count += 1"]),
        "old = count % STAGES",
        *_added(a, "dq", "to_scores", "k", "old"),
        _ended(_all(a, "dq")),
        "mbarrier.arrive(k_empty.index(old), count=1)",
        "count += 1",
        *_stored(a, "dq", "q_block", a.scale),
        "tma.store_wait(0)",
        "mbarrier.arrive(held_empty.index(block), count=1)"]


def _sums_by_keys(a: Attention, form: BackwardForm) -> list[str]:
    """dk and dv of a tile: for each head of queries that shares the keys, the tiles that see them."""
    rows = form.rows
    unseen = [
        "for step in range(first, own):",
        *(f"    mbarrier.wait({x}_full.index(count % STAGES), (count // STAGES) & 1)" for x in ("q", "g", "rows")),
        "    mbarrier.arrive(empty.index(count % STAGES), count=1)",
        "    count += 1"]
    walk = _prefetched(a, form) if form.ahead else _walk(a, form)
    head = [*unseen, *walk] if a.causal else walk
    return [
        f"column = tile * {rows} + GROUP * {ROWS}",
        f"own = {'tl.minimum(column // T, last)' if a.causal else 0}",
        *_held(a, form),
        *_zeros(a, "dk", "dv"),
        *([f"for head in range({a.shared}):", *indented(head)] if a.shared > 1 else head),
        *_stored(a, "dk", "k_block", a.scale),
        *_stored(a, "dv", "v_block", None),
        "tma.store_wait(0)",
        "mbarrier.arrive(held_empty.index(block), count=1)"]


def _sums_by_role(a: Attention) -> list[str]:
    """dk and dv of a tile that two groups hold: the first makes probabilities and dv, the other dk."""
    return [
        f"column = tile * {ROWS}",
        f"own = {'tl.minimum(tile, last)' if a.causal else 0}",
        "mbarrier.wait(held_full.index(block), (turn // HELD) & 1)",
        "if GROUP == 0:", *indented(_role(a, "k", "dv", "g", None, _first_role(a), "scores", "q")),
        "else:", *indented(_role(a, "v", "dk", "q", a.scale, _second_role(a), "to_p", "g"))]


def _role(a: Attention, held_one: str, sums: str, added: str, factor: float | None, made: list[str], scores: str,
          passing_one: str) -> list[str]:
    """A group's tile: the product of what it holds with the next tile that passes by follows the one with this tile,
    so that the tensor cores have work while the other group makes what it multiplies next.

    Args:
        sums: the gradient that it makes, of what is `added` and the factor that it makes of `scores` by the lines
            `made`; `passing_one` is what it multiplies `held_one` with for these.
    """
    count = len(parts_of(a.head))
    begun = [f"next_scores = warpgroup_mma({held_one}_block{part_of(a, part)}, {passing_one}_blocks.index({{0}})"
             f"{part_of(a, part)}.permute((1, 0)), {'next_scores' if n else 'nothing, use_acc=False'}, is_async=True)"
             for n, part in enumerate(parts_of(a.head))]

    def asked(stage: str, number: str) -> list[str]:
        return [f"mbarrier.wait({passing_one}_full.index({stage}), ({number} // STAGES) & 1)",
                *(line.format(stage) for line in begun)]

    this = [*made, f"mbarrier.wait({added}_full.index(old), (count // STAGES) & 1)",
            *_added(a, sums, "factor", added, "old")]
    walk = [
        "old = count % STAGES",
        *asked("old", "count"),
        f"{scores} = warpgroup_mma_wait(0, deps=(next_scores,))",
        *(_diagonal() if a.causal and scores == "scores" else []),
        "for step in range(own + 1, last):",
        *indented(["old = count % STAGES", *this, "new = (count + 1) % STAGES", *asked("new", "(count + 1)"),
                   _ended(_all(a, sums), count),
                   "mbarrier.arrive(empty.index(old), count=1)",
                   f"{scores} = warpgroup_mma_wait(0, deps=(next_scores,))",
                   "count += 1"]),
        "old = count % STAGES",
        *this,
        _ended(_all(a, sums)),
        "mbarrier.arrive(empty.index(old), count=1)",
        "count += 1"]
    head = ["if own < last:", *indented(walk)] if a.causal else walk
    return [
        f"{held_one}_block = {held_one}_blocks.index(turn % HELD)",
        *_zeros(a, sums),
        *([f"for head in range({a.shared}):", *indented(head)] if a.shared > 1 else head),
        *_stored(a, sums, f"{held_one}_block", factor),
        "tma.store_wait(0)",
        "mbarrier.arrive(held_empty.index(block), count=1)"]


def _diagonal() -> list[str]:
    """Lines that leave out the scores of queries before their keys, in the first tile of a head."""
    return [f"j = column + tl.arange(0, {ROWS}, layout=tl.SliceLayout(1, wide))",
            "i = own * T + tl.arange(0, T, layout=tl.SliceLayout(0, wide))",
            "ahead = tl.minimum(i.to(tl.float32)[None, :] - j.to(tl.float32)[:, None], 0.0)",
            "scores = tl.fma(ahead, 3e38, scores)"]  # the forward says why by arithmetic


def _first_role(a: Attention) -> list[str]:
    """Lines that make probabilities of scores, and hand them over."""
    return ["mbarrier.wait(rows_full.index(old), (count // STAGES) & 1)",
            "lse_row = lse_rows.index(old).load(tl.SliceLayout(0, wide))",
            f"p = tl.exp2(tl.fma(scores, {a.scale * LOG2_E}, lse_row[None, :]))",
            "p_blocks.index(old).store(in_order(p))",
            "mbarrier.arrive(p_full.index(old), count=1)",
            "factor = p.to(q_map.dtype)"]


def _second_role(a: Attention) -> list[str]:
    """Lines that make the scores' gradients of the probabilities that were handed over."""
    return ["mbarrier.wait(rows_full.index(old), (count // STAGES) & 1)",
            "delta_row = delta_rows.index(old).load(tl.SliceLayout(0, wide))",
            "mbarrier.wait(p_full.index(old), (count // STAGES) & 1)",
            "p = as_tile(p_blocks.index(old).load(in_order(nothing).type.layout), nothing)",
            "factor = (p * (to_p + delta_row[None, :])).to(q_map.dtype)"]


def _walk(a: Attention, form: BackwardForm) -> list[str]:
    """A head's tiles, each with all of its products."""
    return ["for step in range(own, last):", *indented([
        "old = count % STAGES",
        *_queries_of_keys(a, form, "old", "count", "step <= own" if a.causal else "", beside=[]),
        *_added(a, "dk", "to_scores", "q", "old"),
        _ended(_all(a, "dk", "dv")),
        "mbarrier.arrive(empty.index(old), count=1)",
        "count += 1"])]


def _prefetched(a: Attention, form: BackwardForm) -> list[str]:
    """A head's tiles, where dk of one is added beside the scores of the next."""
    walk = [
        "old = count % STAGES",
        *_queries_of_keys(a, form, "old", "count", "True" if a.causal else "", beside=[]),
        _ended(_all(a, "dv")),
        "for step in range(own + 1, last):",
        *indented(["old = count % STAGES", "new = (count + 1) % STAGES",
                   *_queries_of_keys(a, form, "new", "(count + 1)", "", beside=_added(
                       a, "dk", "to_scores", "q", "old")),
                   _ended(_all(a, "dv")), "count += 1"]),
        "old = count % STAGES",
        *_added(a, "dk", "to_scores", "q", "old"),
        _ended(_all(a, "dk")),
        "mbarrier.arrive(empty.index(old), count=1)",
        "count += 1"]
    return ["if own < last:", *indented(walk)] if a.causal else walk


def _queries_of_keys(a: Attention, form: BackwardForm, stage: str, number: str, diagonal: str,
                     beside: list[str]) -> list[str]:
    """Lines for a tile of queries: P is made while dP is, dS while dv is, which goes on.

    The sums start as the log-sum-exp and -Δ, before any product runs: what is subtracted afterwards wants registers of
    its own.

    Args:
        diagonal: when a tile is on the causal diagonal: "" if none is.
        beside: what begins dk's product of the tile before, which is waited for here.
    """
    count, dk = len(parts_of(a.head)), _all(a, "dk") if beside else []
    first = "own" if diagonal == "True" else "step"  # else 16 numbers of a thread would be made once, and kept
    seen = [f"j = column + tl.arange(0, {ROWS}, layout=tl.SliceLayout(1, wide))",
            f"i = {first} * T + tl.arange(0, T, layout=tl.SliceLayout(0, wide))",
            "ahead = tl.minimum(i.to(tl.float32)[None, :] - j.to(tl.float32)[:, None], 0.0)",
            "scores = tl.fma(ahead, 3e38, scores)"]  # the forward says why by arithmetic
    return [
        f"parity = ({number} // STAGES) & 1",
        f"mbarrier.wait(rows_full.index({stage}), parity)",
        *(f"{start} = tl.zeros([{ROWS}, T], tl.float32, wide) + {x}_rows.index({stage}).load("
          "tl.SliceLayout(0, wide))[None, :]" for start, x in (("next_scores", "lse"), ("next_to_p", "delta"))),
        f"mbarrier.wait(q_full.index({stage}), parity)",
        f"mbarrier.wait(g_full.index({stage}), parity)",  # here: what follows a wait cannot be scheduled before it
        *_scores(a, form, "next_scores", "k", "q", stage, "next_scores"),
        *beside,
        *_scores(a, form, "next_to_p", "v", "g", stage, "next_to_p"),
        f"scores = warpgroup_mma_wait({count * (2 if beside else 1)}, deps=(next_scores,))",
        *([f"if {diagonal}:", *indented(seen)] if diagonal else []),
        f"p = tl.exp2(scores * {a.scale * LOG2_E})",
        *_added(a, "dv", "p.to(q_map.dtype)", "g", stage),
        _ended(["next_to_p", *dk], count).replace("next_to_p", "to_p", 1),
        *(["mbarrier.arrive(empty.index(old), count=1)"] if beside else []),
        "to_scores = (p * to_p).to(q_map.dtype)"]
