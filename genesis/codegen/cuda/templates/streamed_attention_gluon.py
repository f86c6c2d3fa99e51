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

from genesis.codegen.cuda.loops import parameters_of
from genesis.codegen.cuda.source import RELEASE, SIZES, WAIT, KernelSource, TensorTable
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
from genesis.codegen.cuda.templates.streamed_tiles_gluon import (
    ASK,
    PLACE_OF_TILE,
    TOLD_NEXT,
    Barriers,
    allocated,
    function,
    let_go,
    loading,
    module,
    multiplying,
    part_of,
    result_layouts,
    started,
    wide_layout,
)
from genesis.codegen.cuda.templates.tile import LN_2, LOG2_E, indented

if TYPE_CHECKING:
    from genesis.codegen.cuda.templates.attention import Attention

LOADING_REGISTERS: Final = 24
"""Registers of each thread of the loading warp."""

SUM_REGISTERS: Final = 240
"""Registers of each thread of a group that multiplies."""

BARRIERS: Final[Barriers] = {
    "q_full": (GROUPS, 1), "q_empty": (GROUPS, 1), "k_full": ("STAGES", 1), "k_empty": ("STAGES", GROUPS),
    "v_full": ("STAGES", 1), "v_empty": ("STAGES", GROUPS), "told": (2, 1), "heard": (2, GROUPS)}


def emit_streamed_attention(a: Attention) -> KernelSource:
    """The kernel of an attention that is not refused."""
    form, lse = a.form, a.output(1)
    stacks = {name: stack_of(a, name, ROWS if name == "q" else form.keys) for name in "qkv"}
    found = {name: stack for name, stack in stacks.items() if stack is not None}
    maps = {**{f"{name}_map": stack.map for name, stack in found.items()}, "y_map": result_map(a, "y")}
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
    given = parameters_of(signature)
    shared = ", ".join(("q_blocks", "k_blocks", "v_blocks", "y_blocks", "number", *BARRIERS))
    kernel = [
        RELEASE,
        "layout: tl.constexpr = tl.NVMMASharedLayout.get_default_for([J, D], q_map.dtype)",
        f"q_blocks = tl.allocate_shared_memory(q_map.dtype, [{GROUPS}, {ROWS}, D], layout)",
        "k_blocks = tl.allocate_shared_memory(k_map.dtype, [STAGES, J, D], layout)",
        "v_blocks = tl.allocate_shared_memory(v_map.dtype, [STAGES, J, D], layout)",
        f"y_blocks = tl.allocate_shared_memory(y_map.dtype, [{GROUPS}, {ROWS}, D], layout)" if form.kept
        else "y_blocks = q_blocks",
        *allocated(BARRIERS),
        *started(shared, signature, GROUPS, SUM_REGISTERS, LOADING_REGISTERS)]
    return module(PLACE_OF_TILE, ASK, _SOFTMAX, function("loads", f"{shared}, {SIZES}{given}", _loads(a, stacks)),
                  function("sums", f"{shared}, GROUP: tl.constexpr, {SIZES}{given}",
                           _sums(a, form, "lse" in signature)),
                  function(name, given, kernel))


def _tile(a: Attention) -> list[str]:
    """The lines that say which queries a tile has, and how many tiles of keys they see."""
    rows = ROWS * GROUPS
    return [f"tile, batch = place_of_tile(program, batches, tl.cdiv(queries, {rows}), near)",
            "last = tl.cdiv(keys, J)",
            *([f"last = tl.minimum(tl.cdiv(tile * {rows} + {rows}, J), last)"] if a.causal else [])]


def _loads(a: Attention, stacks: dict[str, Stack]) -> list[str]:
    """What the loading warp does."""
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
    return loading("queries", ROWS * GROUPS, [
        *_tile(a), start_of_heads(a),
        "for step in range(last):", *indented(keys)])


def _sums(a: Attention, form: Form, lse: bool) -> list[str]:
    """What a group of multiplying warps does."""
    tile = [*_tile(a), *_first_scores(a, form), *_loop(a), *_last_values(a, form, lse)]
    return [
        WAIT,
        wide_layout("J"),
        *result_layouts(a),
        f"empty = tl.zeros([{ROWS}, J], tl.float32, wide)",
        "q_block = q_blocks.index(GROUP)",
        "y_block = y_blocks.index(GROUP)",
        *multiplying("queries", ROWS * GROUPS, tile),
        *(["tma.store_wait(0)"] if form.kept else [])]


def _first_scores(a: Attention, form: Form) -> list[str]:
    """Lines that begin the sums, and make the probabilities of the last tile of keys, which alone needs bounds."""
    masked, skips = a.causal or ragged(a), a.causal and form.keys < ROWS * GROUPS
    return [
        f"row = tile * {ROWS * GROUPS} + GROUP * {ROWS}",
        f"i = row + tl.arange(0, {ROWS}, layout=tl.SliceLayout(1, wide))",
        f"mine = tl.minimum(tl.cdiv(row + {ROWS}, J), last)" if skips else "mine = last",
        f"best = tl.full([{ROWS}], -1e30, tl.float32, tl.SliceLayout(1, wide))",
        f"total = tl.zeros([{ROWS}], tl.float32, tl.SliceLayout(1, wide))",
        *(f"sums{n} = tl.zeros([{ROWS}, {size}], tl.float32, result{n})"
          for n, (_, size) in enumerate(parts_of(a.head))),
        *(let_go() if skips else []),
        "old = count % STAGES",
        "mbarrier.wait(q_full.index(GROUP), turn & 1)",
        "mbarrier.wait(k_full.index(old), (count // STAGES) & 1)",
        *_scores(a, "old"),
        "scores = warpgroup_mma_wait(0, deps=(next_scores,))",
        "mbarrier.arrive(k_empty.index(old), count=1)",
        _probabilities(a, f"(mine - 1) * J, keys, {masked}")]


def _loop(a: Attention) -> list[str]:
    """The loop over all other tiles of keys: the products with values of one run beside the softmax of the next."""
    parts = parts_of(a.head)
    return ["for step in range(1, mine):", *indented([
        "old = count % STAGES",
        "new = (count + 1) % STAGES",
        "mbarrier.wait(k_full.index(new), ((count + 1) // STAGES) & 1)",
        *_scores(a, "new"),
        *_values(a),
        f"scores = warpgroup_mma_wait({len(parts)}, deps=(next_scores,))",
        "mbarrier.arrive(k_empty.index(new), count=1)",
        _probabilities(a, "0, keys, False"),
        _summed(a),
        "mbarrier.arrive(v_empty.index(old), count=1)",
        *(f"sums{n} = sums{n} * tl.convert_layout(shrink, tl.SliceLayout(1, result{n}))[:, None]"
          for n, _ in enumerate(parts)),
        "count += 1"])]


def _last_values(a: Attention, form: Form, lse: bool) -> list[str]:
    """Lines for the last product with values, and to store the results."""
    return [
        *(["mbarrier.arrive(q_empty.index(GROUP), count=1)"] if form.kept else []),
        "old = count % STAGES",
        *_values(a),
        "turn += 1",
        *TOLD_NEXT,
        *([f"tl.store(lse + ({batch_number(a)} * queries + i), (best + tl.log2(total)) * {LN_2}, mask=i < queries)"]
          if lse else []),
        "share = 1.0 / total",
        _summed(a),
        "mbarrier.arrive(v_empty.index(old), count=1)",
        "count += 1",
        *(["tma.store_wait(0)"] if form.kept else []),
        *(f"y_block{part_of(a, part)}.store((sums{n} * tl.convert_layout(share, tl.SliceLayout(1, result{n}))[:, None])"
          f".to(q_map.dtype))" for n, part in enumerate(parts_of(a.head))),
        "fence_async_shared()",
        f"store_block(y_map, [{result_at(a, 'y')}], "
        "reshaped(y_block, y_map.dtype, y_map.block_type.shape, y_map.layout))",
        *([] if form.kept else ["tma.store_wait(0)", "mbarrier.arrive(q_empty.index(GROUP), count=1)"])]


def _scores(a: Attention, stage: str) -> list[str]:
    """Lines that begin the product with a stage's keys, over the elements of a head."""
    return [f"next_scores = warpgroup_mma(q_block{part_of(a, part)}, k_blocks.index({stage}){part_of(a, part)}"
            f".permute((1, 0)), {'next_scores' if n else 'empty, use_acc=False'}, is_async=True)"
            for n, part in enumerate(parts_of(a.head))]


def _probabilities(a: Attention, where: str) -> str:
    """The line that turns scores into probabilities; `where`: the tile's first key, how many there are, if it has
    bounds."""
    return (f"p, best, total, shrink = softmax(scores, best, total, i, {where}, {a.causal}, {ragged(a)}, "
            f"{a.scale * LOG2_E})")


def _values(a: Attention) -> list[str]:
    """Lines that begin to add the products of probabilities and values."""
    return ["mbarrier.wait(v_full.index(old), (count // STAGES) & 1)",
            *(f"sums{n} = warpgroup_mma(tl.convert_layout(p.to(q_map.dtype), left{n}), "
              f"v_blocks.index(old){part_of(a, part)}, sums{n}, is_async=True)"
              for n, part in enumerate(parts_of(a.head)))]


def _summed(a: Attention) -> str:
    """The line that waits for these."""
    names = ", ".join(f"sums{n}" for n, _ in enumerate(parts_of(a.head)))
    return f"{names} = warpgroup_mma_wait(0, deps=({names},))"


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
