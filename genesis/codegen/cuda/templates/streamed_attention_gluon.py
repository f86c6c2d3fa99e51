"""The text of streamed attention's kernel in Gluon, Triton's language in which a program says what each warp does.

    loads   takes the number of a tile of queries, tells it to the others, and asks the copy engine for the tile, and
            for tiles of keys and values from the last that it sees to the first
    sums    two groups of four warps, each with 64 of the tile's queries: while the products with values of one tile
            of keys run, the scores of the next are turned into probabilities

`full` and `empty` are counted barriers, a pair for each piece of shared memory: the copy engine arrives at `full` when
it is written, the groups at `empty` when they have read it.

Only the last tile of keys that a group sees needs bounds: it is the first that it takes, apart from the loop. A tile
that only the other group sees is let go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.source import GLUON_HEADER, RELEASE, SIZES, WAIT, KernelSource, TensorTable
from genesis.codegen.cuda.templates.attention_choice import Form
from genesis.codegen.cuda.templates.streamed_attention import (
    GROUPS,
    ROWS,
    Stack,
    batch_number,
    near,
    parts_of,
    place,
    plain_module,
    ragged,
    result_at,
    result_map,
    stack_of,
    start_of_heads,
)
from genesis.codegen.cuda.templates.streamed_matmul import descriptor
from genesis.codegen.cuda.templates.tile import LN_2, LOG2_E, indented

if TYPE_CHECKING:
    from genesis.codegen.cuda.templates.attention import Attention

LOADING_WARPS, LOADING_REGISTERS = 1, 24
"""Warps beside those that multiply, and the registers of each of their threads."""

SUM_REGISTERS: Final = 240
"""Registers of each thread of a group that multiplies."""

BARRIERS: Final = {"q_full": GROUPS, "q_empty": GROUPS, "k_full": "STAGES", "k_empty": "STAGES", "v_full": "STAGES",
                   "v_empty": "STAGES", "told": 2, "heard": 2}
"""Barriers, and how many of each."""

ARRIVALS: Final = {"k_empty": GROUPS, "v_empty": GROUPS, "heard": GROUPS}
"""How many arrive at a barrier, if it is not one."""


def emit_streamed_attention(a: Attention) -> KernelSource:
    """The kernel of an attention that is not refused."""
    form, y, lse = a.form, a.output(0), a.output(1)
    assert y is not None, "refused otherwise"
    stacks = {name: stack_of(a, name, ROWS if name == "q" else form.keys) for name in "qkv"}
    found = {name: stack for name, stack in stacks.items() if stack is not None}
    maps = {**{f"{name}_map": stack.map for name, stack in found.items()}, "y_map": result_map(a, y)}
    sizes = {"queries": a.queries, "keys": a.keys, "batches": a.batch, "near": near(a)}
    constexprs = {"J": form.keys, "D": a.padded_head, "STAGES": form.stages, "PROGRAMS": a.gpu.multiprocessors}
    signature = {**{name: descriptor(x) for name, x in maps.items()}, **({} if lse is None else {"lse": "*fp32"}),
                 "counters": "*i64", **dict.fromkeys(sizes, "i32"), **dict.fromkeys(constexprs, "constexpr")}
    name = "streamed_attention"
    return KernelSource(
        name, gluon_module(a, name, signature, form, found), signature, constexprs,
        (*maps.values(), *(() if lse is None else (lse,)), TensorTable((0, 0)), *sizes.values()),
        (*(() if lse is None else ("lse",)), "counters"), (a.gpu.multiprocessors, 1, 1), 4, 1, label=name,
        flushes=True, plain=plain_module(a, name, signature, found),
        note="the copy engine brings its tiles, and groups of warps take turns at softmax and products")


def gluon_module(a: Attention, name: str, signature: dict[str, str], form: Form, stacks: dict[str, Stack]) -> str:
    """The module that defines the kernel."""
    given = ", ".join(f"{p}: tl.constexpr" if kind == "constexpr" else p for p, kind in signature.items())
    passed = ", ".join(signature)
    shared = ", ".join(("q_blocks", "k_blocks", "v_blocks", "y_blocks", "number", *BARRIERS))
    started = [f"(sums, ({shared}, {group}, {SIZES}{passed}))" for group in range(GROUPS)]
    kernel = [
        RELEASE,
        "layout: tl.constexpr = tl.NVMMASharedLayout.get_default_for([J, D], q_map.dtype)",
        f"q_blocks = tl.allocate_shared_memory(q_map.dtype, [{GROUPS}, {ROWS}, D], layout)",
        "k_blocks = tl.allocate_shared_memory(k_map.dtype, [STAGES, J, D], layout)",
        "v_blocks = tl.allocate_shared_memory(v_map.dtype, [STAGES, J, D], layout)",
        f"y_blocks = tl.allocate_shared_memory(y_map.dtype, [{GROUPS}, {ROWS}, D], layout)" if form.kept
        else "y_blocks = q_blocks",
        "number = tl.allocate_shared_memory(tl.int32, [2, 1], tl.SwizzledSharedLayout(1, 1, 1, [0]))"]
    for barrier, count in BARRIERS.items():
        kernel += [f"{barrier} = tl.allocate_shared_memory(tl.int64, [{count}, 1], mbarrier.MBarrierLayout())",
                   f"for index in tl.static_range({count}):",
                   f"    mbarrier.init({barrier}.index(index), count={ARRIVALS.get(barrier, 1)})"]
    kernel += [f"tl.warp_specialize([{', '.join(started)}, (loads, ({shared}, {SIZES}{passed}))],",
               f"    {[4] * (GROUPS - 1) + [LOADING_WARPS]}, {[SUM_REGISTERS] * (GROUPS - 1) + [LOADING_REGISTERS]})"]
    parts = (PLACE_OF_TILE, ASK, _SOFTMAX,
             function("loads", f"{shared}, {SIZES}{given}", _loads(a, stacks)),
             function("sums", f"{shared}, GROUP: tl.constexpr, {SIZES}{given}",
                       _sums(a, form, "lse" in signature)),
             function(name, given, kernel))
    return f"{GLUON_HEADER}\n\n" + "\n\n".join(part.strip("\n") + "\n" for part in parts)


def function(name: str, given: str, lines: list[str]) -> str:
    return f"@gluon.jit\ndef {name}({given}):\n" + "".join(f"    {line}\n" for line in lines)


def _tile(a: Attention) -> list[str]:
    """The lines that say which queries a tile has, and how many tiles of keys they see."""
    rows = ROWS * GROUPS
    return [f"tile, batch = place_of_tile(program, batches, tl.cdiv(queries, {rows}), near)",
            "last = tl.cdiv(keys, J)",
            *([f"last = tl.minimum(tl.cdiv(tile * {rows} + {rows}, J), last)"] if a.causal else [])]


def _loads(a: Attention, stacks: dict[str, Stack]) -> list[str]:
    """What the loading warp does. The programs' last one leaves the counters as it found them."""
    q, k, v = (place(stacks[name], row) for name, row in (
        ("q", f"tile * {ROWS * GROUPS} + group * {ROWS}"), ("k", "start"), ("v", "start")))
    keys = [
        "stage = count % STAGES",
        "parity = ((count // STAGES) & 1) ^ 1",
        "start = (last - 1 - step) * J",
        "mbarrier.wait(k_empty.index(stage), parity)",
        f"ask(k_map, [{k}], k_full.index(stage), k_blocks.index(stage))",
        "if step == 0:",
        f"    for group in tl.static_range({GROUPS}):",
        "        mbarrier.wait(q_empty.index(group), (turn & 1) ^ 1)",
        f"        ask(q_map, [{q}], q_full.index(group), q_blocks.index(group))",
        "mbarrier.wait(v_empty.index(stage), parity)",
        f"ask(v_map, [{v}], v_full.index(stage), v_blocks.index(stage))",
        "count += 1"]
    return [
        WAIT,
        f"programs = tl.cdiv(queries, {ROWS * GROUPS}) * batches",
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
        *indented(indented([
            *_tile(a), start_of_heads(a),
            "for step in range(last):", *indented(keys),
            "turn += 1"])),
        "if tl.atomic_add(counters + 1, 1) == PROGRAMS - 1:",
        "    tl.atomic_xchg(counters, 0)",
        "    tl.atomic_xchg(counters + 1, 0)"]


def _sums(a: Attention, form: Form, lse: bool) -> list[str]:
    """What a group of multiplying warps does."""
    scale = a.scale * LOG2_E
    masked, skips = a.causal or ragged(a), a.causal and form.keys < ROWS * GROUPS
    told = ["mbarrier.wait(told.index(turn % 2), (turn // 2) & 1)",
            "program = tl.max(number.index(turn % 2).load(one), 0)",
            "mbarrier.arrive(heard.index(turn % 2), count=1)"]
    parts = list(enumerate(parts_of(a.head)))
    names = ", ".join(f"sums{n}" for n, _ in parts)
    done = f"{names} = warpgroup_mma_wait(0, deps=({names},))"
    values = ["mbarrier.wait(v_full.index(old), (count // STAGES) & 1)",
              *(f"sums{n} = warpgroup_mma(tl.convert_layout(p.to(q_map.dtype), left{n}), "
                f"v_blocks.index(old){part_of(a, part)}, sums{n}, is_async=True)" for n, part in parts)]

    def scores(stage: str) -> list[str]:
        return [f"next_scores = warpgroup_mma(q_block{part_of(a, part)}, k_blocks.index({stage}){part_of(a, part)}"
                f".permute((1, 0)), {'next_scores' if n else 'empty, use_acc=False'}, is_async=True)"
                for n, part in parts]

    skipped = [
        "for step in range(mine, last):",
        *(f"    {line}" for x in "kv" for line in (
            f"mbarrier.wait({x}_full.index(count % STAGES), (count // STAGES) & 1)",
            f"mbarrier.arrive({x}_empty.index(count % STAGES), count=1)")),
        "    count += 1"]
    bounds = f"{a.causal}, {ragged(a)}, {scale}"
    tile = [
        *_tile(a),
        f"row = tile * {ROWS * GROUPS} + GROUP * {ROWS}",
        f"i = row + tl.arange(0, {ROWS}, layout=tl.SliceLayout(1, wide))",
        f"mine = tl.minimum(tl.cdiv(row + {ROWS}, J), last)" if skips else "mine = last",
        f"best = tl.full([{ROWS}], -1e30, tl.float32, tl.SliceLayout(1, wide))",
        f"total = tl.zeros([{ROWS}], tl.float32, tl.SliceLayout(1, wide))",
        *(f"sums{n} = tl.zeros([{ROWS}, {size}], tl.float32, result{n})" for n, (_, size) in parts),
        *(skipped if skips else []),
        "old = count % STAGES",
        "mbarrier.wait(q_full.index(GROUP), turn & 1)",
        "mbarrier.wait(k_full.index(old), (count // STAGES) & 1)",
        *scores("old"),
        "scores = warpgroup_mma_wait(0, deps=(next_scores,))",
        "mbarrier.arrive(k_empty.index(old), count=1)",
        f"p, best, total, shrink = softmax(scores, best, total, i, (mine - 1) * J, keys, {masked}, {bounds})",
        "for step in range(1, mine):",
        *indented([
            "old = count % STAGES",
            "new = (count + 1) % STAGES",
            "mbarrier.wait(k_full.index(new), ((count + 1) // STAGES) & 1)",
            *scores("new"),
            *values,
            f"scores = warpgroup_mma_wait({len(parts)}, deps=(next_scores,))",
            "mbarrier.arrive(k_empty.index(new), count=1)",
            f"p, best, total, shrink = softmax(scores, best, total, i, 0, keys, False, {bounds})",
            done,
            "mbarrier.arrive(v_empty.index(old), count=1)",
            *(f"sums{n} = sums{n} * tl.convert_layout(shrink, tl.SliceLayout(1, result{n}))[:, None]"
              for n, _ in parts),
            "count += 1"]),
        *(["mbarrier.arrive(q_empty.index(GROUP), count=1)"] if form.kept else []),
        "old = count % STAGES",
        *values,
        "turn += 1",
        *told_next(told),
        *([f"tl.store(lse + ({batch_number(a)} * queries + i), (best + tl.log2(total)) * {LN_2}, mask=i < queries)"]
          if lse else []),
        "share = 1.0 / total",
        done,
        "mbarrier.arrive(v_empty.index(old), count=1)",
        "count += 1",
        *(["tma.store_wait(0)"] if form.kept else []),
        *(f"y_block{part_of(a, part)}.store((sums{n} * tl.convert_layout(share, tl.SliceLayout(1, result{n}))[:, None])"
          f".to(q_map.dtype))" for n, part in parts),
        "fence_async_shared()",
        f"store_block(y_map, [{result_at(a)}], "
        "reshaped(y_block, y_map.dtype, y_map.block_type.shape, y_map.layout))",
        *([] if form.kept else ["tma.store_wait(0)", "mbarrier.arrive(q_empty.index(GROUP), count=1)"]),
        "program = following"]
    return [
        WAIT,
        "wide: tl.constexpr = tl.NVMMADistributedLayout("
        "version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, J, 16])",
        *(line for n, (_, size) in parts for line in (
            f"result{n}: tl.constexpr = tl.NVMMADistributedLayout("
            f"version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, {size}, 16])",
            f"left{n}: tl.constexpr = tl.DotOperandLayout(0, result{n}, 2)")),
        "one: tl.constexpr = tl.BlockedLayout([1], [32], [4], [0])",
        f"empty = tl.zeros([{ROWS}, J], tl.float32, wide)",
        "q_block = q_blocks.index(GROUP)",
        "y_block = y_blocks.index(GROUP)",
        f"programs = tl.cdiv(queries, {ROWS * GROUPS}) * batches",
        "count = 0",
        "turn = 0",
        *told,
        "while program < programs:", *indented(tile),
        *(["tma.store_wait(0)"] if form.kept else [])]


def part_of(a: Attention, part: tuple[int, int]) -> str:
    """What takes these elements of each head's row out of a block."""
    return "" if part == (0, a.padded_head) else f".slice({part[0]}, {part[1]}, 1)"


def told_next(told: list[str]) -> list[str]:
    """The lines by which a group hears of the tile after, while its last product runs."""
    return [line.replace("program =", "following =") for line in told]


PLACE_OF_TILE: Final = """@gluon.jit
def place_of_tile(program, batches, tiles, near):
    first = program // (near * tiles) * near
    width = tl.minimum(batches - first, near)
    rest = program % (near * tiles)
    return tiles - 1 - rest // width, first + rest % width
"""
"""Which tile of which batch is the n-th: the longest of `near` batches first."""

ASK: Final = """@gluon.jit
def ask(map, at, full, block):
    mbarrier.expect(full, map.block_type.nbytes)
    load_block(map, at, full, reshaped(block, map.dtype, map.block_type.shape, map.layout))
"""

_SOFTMAX: Final = """@gluon.jit
def softmax(scores, best, total, i, start, keys, MASKED: tl.constexpr, CAUSAL: tl.constexpr, RAGGED: tl.constexpr,
            SCALE: tl.constexpr):
    if MASKED:
        j = start + tl.arange(0, scores.shape[1], layout=tl.SliceLayout(0, scores.type.layout))
        if CAUSAL:  # by arithmetic: as many conditions would be kept in bits that are taken apart again
            ahead = tl.minimum(i.to(tl.float32)[:, None] - j.to(tl.float32)[None, :], 0.0)
            scores = tl.fma(ahead, 3e38, scores)
        if RAGGED:
            scores = scores + tl.where(j < keys, 0.0, float("-inf"))[None, :]
    larger = tl.maximum(best, tl.max(scores, 1) * SCALE)
    p = tl.exp2(tl.fma(scores, SCALE, -larger[:, None]))
    shrink = tl.exp2(best - larger)
    return p, larger, tl.fma(total, shrink, tl.sum(p, 1)), shrink
"""
"""Probabilities of a tile of scores, and what the new maximum makes of the sums so far. `best` starts as a finite
number below every score, so that a row that sees no key of a tile gets zeros."""
