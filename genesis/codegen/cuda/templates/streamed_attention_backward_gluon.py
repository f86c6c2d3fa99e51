"""The text of the streamed backward's two kernels in Gluon (see `streamed_attention_gluon.py` for the forward's).

    loads   takes the number of a tile, tells it to the others, asks the copy engine for the held tiles and for those
            that pass by; of rows that pass by it brings lse and Δ itself
    sums    groups of four warps, each with 64 held rows: exponentials of a tile that passes by are made while products
            that need none are under way

`full` and `empty` are counted barriers, as in the forward. Products end in the order in which they were begun.

Under a causal mask one tile that passes by needs to be looked at for each held one: that of dq is its last, which it
takes first, that of dk and dv the first of each head. Tiles that only other groups see are let go. Rows of queries
past the end have lse = ∞, so that their probabilities are 0; rows of keys past the end make nonsense of their own
gradients, which are not stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.source import GLUON_HEADER, RELEASE, SIZES, WAIT, KernelSource, TensorTable
from genesis.codegen.cuda.templates.streamed_attention import (
    ROWS,
    Stack,
    batch_number,
    parts_of,
    place,
    result_at,
    result_map,
    stack_of,
    start_of_heads,
)
from genesis.codegen.cuda.templates.streamed_attention_backward import (
    BackwardForm,
    backward_form,
    block_rows,
    by_keys,
    heads_together,
    held,
    passing,
    plain_backward,
)
from genesis.codegen.cuda.templates.streamed_attention_gluon import ASK, PLACE_OF_TILE, function, part_of, told_next
from genesis.codegen.cuda.templates.streamed_matmul import descriptor
from genesis.codegen.cuda.templates.tile import LOG2_E, indented
from genesis.ir.sym_int import gcd

if TYPE_CHECKING:
    from genesis.codegen.cuda.templates.attention import Attention

LOADING_WARPS: Final = 1
"""Warps beside those that multiply."""

LOADING_REGISTERS: Final = {2: 24, 3: 32}
"""Groups that multiply → registers of each thread of the loading warp."""

SUM_REGISTERS: Final = {2: 240, 3: 160}
"""Groups that multiply → registers of each of their threads."""


def emit_streamed_backward(a: Attention) -> KernelSource:
    """The kernel of a backward that is not refused."""
    form, results = backward_form(a), [a.output(n) for n in range(2 if by_keys(a) else 1)]
    stacks = {name: stack_of(a, name, rows) for name, rows in block_rows(a).items()}
    found = {name: stack for name, stack in stacks.items() if stack is not None}
    maps = {f"{name}_map": stack.map for name, stack in found.items()}
    for name, result in zip(("dk", "dv") if by_keys(a) else ("dq",), results, strict=True):
        assert result is not None, "refused otherwise"
        maps[f"{name}_map"] = result_map(a, result, not by_keys(a))
    batches = a.batch // a.shared if by_keys(a) else a.batch
    sizes = {"queries": a.queries, "keys": a.keys, "batches": batches, "near": heads_together(a)}
    constexprs = {"T": form.passing, "D": a.padded_head, "STAGES": form.stages, "HELD": form.held,
                  "PROGRAMS": a.gpu.multiprocessors}
    rows = {"lse": a.memory["lse"], "delta": a.memory["delta"]}
    signature = {**{name: descriptor(x) for name, x in maps.items()}, **dict.fromkeys(rows, "*fp32"),
                 "counters": "*i64", **dict.fromkeys(sizes, "i32"), **dict.fromkeys(constexprs, "constexpr")}
    name = "streamed_attention_dkv" if by_keys(a) else "streamed_attention_dq"
    return KernelSource(
        name, gluon_module(a, name, signature, form, found), signature, constexprs,
        (*maps.values(), *rows.values(), TensorTable((0, 0)), *sizes.values()), (*rows, "counters"),
        (a.gpu.multiprocessors, 1, 1), 4, 1, label=name, flushes=True,
        plain=plain_backward(a, name, signature, found),
        note="the copy engine brings its tiles, and groups of warps take turns at exponentials and products")


def barriers(a: Attention, form: BackwardForm) -> dict[str, tuple[int, int]]:
    """Barrier → (how many there are, how many arrive at each)."""
    by_stage: dict[str, int] = (
        {"q_full": 1, "g_full": 1, "rows_full": 1, "empty": form.groups} if by_keys(a)
        else {"k_full": 1, "k_empty": form.groups, "v_full": 1, "v_empty": form.groups})
    return {"held_full": (form.held * form.groups, 2), "held_empty": (form.held * form.groups, 1),
            **{name: (form.stages, arrivals) for name, arrivals in by_stage.items()},
            "told": (2, 1), "heard": (2, form.groups)}


def gluon_module(a: Attention, name: str, signature: dict[str, str], form: BackwardForm,
                 stacks: dict[str, Stack]) -> str:
    """The module that defines the kernel."""
    given = ", ".join(f"{p}: tl.constexpr" if kind == "constexpr" else p for p, kind in signature.items())
    passed, groups = ", ".join(signature), form.groups
    vectors = ["lse_rows", "delta_rows"] if by_keys(a) else []
    shared = ", ".join((*(f"{x}_blocks" for x in "qkvg"), *vectors, "number", *barriers(a, form)))
    started = [f"(sums, ({shared}, {group}, {SIZES}{passed}))" for group in range(groups)]
    kernel = [
        RELEASE,
        f"layout: tl.constexpr = tl.NVMMASharedLayout.get_default_for([{ROWS}, D], q_map.dtype)",
        *(f"{x}_blocks = tl.allocate_shared_memory({x}_map.dtype, [{groups} * HELD, {ROWS}, D], layout)"
          for x in held(a)),
        *(f"{x}_blocks = tl.allocate_shared_memory({x}_map.dtype, [STAGES, T, D], layout)" for x in passing(a)),
        *(f"{x} = tl.allocate_shared_memory(tl.float32, [STAGES, T], tl.SwizzledSharedLayout(1, 1, 1, [0]))"
          for x in vectors),
        "number = tl.allocate_shared_memory(tl.int32, [2, 1], tl.SwizzledSharedLayout(1, 1, 1, [0]))"]
    for barrier, (count, arrivals) in barriers(a, form).items():
        kernel += [f"{barrier} = tl.allocate_shared_memory(tl.int64, [{count}, 1], mbarrier.MBarrierLayout())",
                   f"for index in tl.static_range({count}):",
                   f"    mbarrier.init({barrier}.index(index), count={arrivals})"]
    warps = [4] * (groups - 1) + [LOADING_WARPS]
    registers = [SUM_REGISTERS[groups]] * (groups - 1) + [LOADING_REGISTERS[groups]]
    kernel += [f"tl.warp_specialize([{', '.join(started)}, (loads, ({shared}, {SIZES}{passed}))],",
               f"    {warps}, {registers})"]
    sums = _sums_by_keys(a, form) if by_keys(a) else _sums_by_queries(a, form)
    parts = (PLACE_OF_TILE, ASK, function("loads", f"{shared}, {SIZES}{given}", _loads(a, form, stacks)),
             function("sums", f"{shared}, GROUP: tl.constexpr, {SIZES}{given}", _sums(a, form, sums)),
             function(name, given, kernel))
    return f"{GLUON_HEADER}\n\n" + "\n\n".join(part.strip("\n") + "\n" for part in parts)


def _tile(a: Attention, form: BackwardForm) -> list[str]:
    """The lines that say which rows a tile holds, and which tiles pass by: `first` to `last` of each head."""
    rows = ROWS * form.groups
    if by_keys(a):  # under a causal mask the first keys are seen by most queries: they are a head's longest tile
        return [f"tile, heads = place_of_tile(program, batches, tl.cdiv(keys, {rows}), near)",
                f"tile = tl.cdiv(keys, {rows}) - 1 - tile",
                "last = tl.cdiv(queries, T)",
                f"first = {f'tl.minimum(tile * {rows} // T, last)' if a.causal else 0}"]
    return [f"tile, batch = place_of_tile(program, batches, tl.cdiv(queries, {rows}), near)",
            "last = tl.cdiv(keys, T)",
            *([f"last = tl.minimum(tl.cdiv(tile * {rows} + {rows}, T), last)"] if a.causal else [])]


def _loads(a: Attention, form: BackwardForm, stacks: dict[str, Stack]) -> list[str]:
    """What the loading warp does. The programs' last one leaves the counters as it found them."""
    rows = ROWS * form.groups
    start = f"tile * {rows} + group * {ROWS}"
    holding = [
        f"for group in tl.static_range({form.groups}):",
        f"    block = turn % HELD * {form.groups} + group",
        "    mbarrier.wait(held_empty.index(block), ((turn // HELD) & 1) ^ 1)",
        *(f"    ask({x}_map, [{place(stacks[x], start)}], held_full.index(block), {x}_blocks.index(block))"
          for x in held(a))]
    counted = ["stage = count % STAGES", "parity = ((count // STAGES) & 1) ^ 1"]
    asked = [f"ask({x}_map, [{place(stacks[x], 'start')}], {x}_full.index(stage), {x}_blocks.index(stage))"
             for x in passing(a)]
    if by_keys(a):
        head = [
            f"batch = heads * {a.shared} + head" if a.shared > 1 else "batch = heads",
            "for step in range(first, last):",
            *indented([
                *counted,
                "start = step * T",
                "i = start + tl.arange(0, T, layout=one)",
                f"lse_row = tl.load(lse + ({batch_number(a)} * queries + i), mask=i < queries, other=float('inf'))",
                f"delta_row = tl.load(delta + ({batch_number(a)} * queries + i), mask=i < queries, other=0.0)",
                "mbarrier.wait(empty.index(stage), parity)",
                *asked,
                f"lse_rows.index(stage).store(lse_row * {-1 / a.scale})",
                "delta_rows.index(stage).store(-delta_row)",
                "mbarrier.arrive(rows_full.index(stage), count=1)",
                "count += 1"])]
        walk = [*holding, *([f"for head in range({a.shared}):", *indented(head)] if a.shared > 1 else head)]
    else:
        walk = [start_of_heads(a), "for step in range(last):",
                *indented([*counted, "start = (last - 1 - step) * T",
                           "mbarrier.wait(k_empty.index(stage), parity)", asked[0],
                           "if step == 0:", *indented(holding),
                           "mbarrier.wait(v_empty.index(stage), parity)", asked[1], "count += 1"])]
    return [
        WAIT,
        f"programs = tl.cdiv({'keys' if by_keys(a) else 'queries'}, {rows}) * batches",
        f"one: tl.constexpr = tl.BlockedLayout([1], [32], [{LOADING_WARPS}], [0])",
        "count = 0",
        "turn = 0",
        "more = True",
        "while more:",
        "    program = tl.atomic_add(counters, 1).to(tl.int32)",
        "    mbarrier.wait(heard.index(turn % 2), ((turn // 2) & 1) ^ 1)",
        "    number.index(turn % 2).store(tl.full([1], program, tl.int32, one))",
        "    mbarrier.arrive(told.index(turn % 2), count=1)",
        "    more = program < programs",
        "    if more:",
        *indented(indented([*_tile(a, form), *walk, "turn += 1"])),
        "if tl.atomic_add(counters + 1, 1) == PROGRAMS - 1:",
        "    tl.atomic_xchg(counters, 0)",
        "    tl.atomic_xchg(counters + 1, 0)"]


def _sums(a: Attention, form: BackwardForm, tile: list[str]) -> list[str]:
    """What a group of multiplying warps does; `tile`: with a tile that it holds."""
    told = ["mbarrier.wait(told.index(turn % 2), (turn // 2) & 1)",
            "program = tl.max(number.index(turn % 2).load(one), 0)",
            "mbarrier.arrive(heard.index(turn % 2), count=1)"]
    left = "left: tl.constexpr = tl.DotOperandLayout(0, wide, 2)"
    return [
        WAIT,
        "wide: tl.constexpr = tl.NVMMADistributedLayout("
        "version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, T, 16])",
        *([left] if form.in_registers else []),
        *(line for n, (_, size) in enumerate(parts_of(a.head)) for line in (
            f"result{n}: tl.constexpr = tl.NVMMADistributedLayout("
            f"version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, {size}, 16])",
            f"left{n}: tl.constexpr = tl.DotOperandLayout(0, result{n}, 2)")),
        "one: tl.constexpr = tl.BlockedLayout([1], [32], [4], [0])",
        f"nothing = tl.zeros([{ROWS}, T], tl.float32, wide)",
        f"programs = tl.cdiv({'keys' if by_keys(a) else 'queries'}, {ROWS * form.groups}) * batches",
        "count = 0",
        "turn = 0",
        *told,
        "while program < programs:",
        *indented([*_tile(a, form),
                   f"block = turn % HELD * {form.groups} + GROUP",
                   *tile,
                   "turn += 1",
                   *told_next(told),
                   "program = following"])]


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
            f"store_block({sums}_map, [{result_at(a, not by_keys(a))}], "
            f"reshaped({block}, {sums}_map.dtype, {sums}_map.block_type.shape, {sums}_map.layout))"]


def _sums_by_queries(a: Attention, form: BackwardForm) -> list[str]:
    """dq of a tile. The scores of the next tile of keys and the products with this one's keys run one after the other,
    so that exponentials are made beside the latter."""
    scale, rows = a.scale * LOG2_E, ROWS * form.groups
    count = len(parts_of(a.head))
    at = f"{batch_number(a)} * queries + i"
    seen = [*(["(j < keys)[None, :]"] if gcd(a.keys, form.passing) != form.passing else []),
            *(["(j[None, :] <= i[:, None])"] if a.causal else [])]
    skips = a.causal and form.passing < rows
    skipped = [
        f"mine = tl.minimum(tl.cdiv(row + {ROWS}, T), last)",
        "for step in range(mine, last):",
        *(f"    {line}" for x in "kv" for line in (
            f"mbarrier.wait({x}_full.index(count % STAGES), (count // STAGES) & 1)",
            f"mbarrier.arrive({x}_empty.index(count % STAGES), count=1)")),
        "    count += 1"]
    to_scores = "to_scores = (p * (to_p - delta_row[:, None])).to(q_map.dtype)"
    return [
        f"row = tile * {rows} + GROUP * {ROWS}",
        f"i = row + tl.arange(0, {ROWS}, layout=tl.SliceLayout(1, wide))",
        f"lse_row = tl.load(lse + ({at}), mask=i < queries, other=float('inf')) * {LOG2_E}",
        f"delta_row = tl.load(delta + ({at}), mask=i < queries, other=0.0)",
        *_zeros(a, "dq"),
        *(skipped if skips else ["mine = last"]),
        "old = count % STAGES",
        *_held(a, form),
        "mbarrier.wait(k_full.index(old), (count // STAGES) & 1)",
        *_scores(a, form, "scores", "q", "k", "old"),
        "mbarrier.wait(v_full.index(old), (count // STAGES) & 1)",
        *_scores(a, form, "to_p", "g", "v", "old"),
        _ended(["scores"], count),
        f"p = tl.exp2(tl.fma(scores, {scale}, -lse_row[:, None]))",
        *(["j = (mine - 1) * T + tl.arange(0, T, layout=tl.SliceLayout(0, wide))",
           f"p = tl.where({' & '.join(seen)}, p, 0.0)"] if seen else []),
        _ended(["to_p"]),
        "mbarrier.arrive(v_empty.index(old), count=1)",
        to_scores,
        "for step in range(1, mine):",
        *indented([
            "old = count % STAGES",
            "new = (count + 1) % STAGES",
            "parity = ((count + 1) // STAGES) & 1",
            "mbarrier.wait(k_full.index(new), parity)",
            *_scores(a, form, "next_scores", "q", "k", "new"),
            *_added(a, "dq", "to_scores", "k", "old"),
            "mbarrier.wait(v_full.index(new), parity)",
            *_scores(a, form, "next_to_p", "g", "v", "new"),
            f"scores = warpgroup_mma_wait({2 * count}, deps=(next_scores,))",
            f"p = tl.exp2(tl.fma(scores, {scale}, -lse_row[:, None]))",
            f"{', '.join(_all(a, 'dq'))}, to_p = warpgroup_mma_wait(0, deps=({', '.join(_all(a, 'dq'))}, next_to_p))",
            "mbarrier.arrive(k_empty.index(old), count=1)",
            "mbarrier.arrive(v_empty.index(new), count=1)",
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
    rows = ROWS * form.groups
    let_go = [
        "for step in range(first, own):",
        *(f"    mbarrier.wait({x}_full.index(count % STAGES), (count // STAGES) & 1)" for x in ("q", "g", "rows")),
        "    mbarrier.arrive(empty.index(count % STAGES), count=1)",
        "    count += 1"]
    walk = _prefetched(a, form) if form.ahead else _walk(a, form)
    head = [*let_go, *walk] if a.causal else walk
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
