"""The text of the streamed backward's two kernels in Gluon (see `streamed_attention_gluon.py` for the forward's).

    loads   takes the number of a tile, tells it to the others, asks the copy engine for the held tiles and for those
            that pass by; of rows that pass by it brings lse and Δ itself
    sums    groups of four warps, each with 64 held rows: exponentials of a tile that passes by are made while products
            that need none are under way

`full` and `empty` are counted barriers, as in the forward. Products end in the order in which they were begun.

Where groups have roles (`BackwardForm.by_role`) `p_full` counts the tiles of probabilities that one hands to the other.
They lie in shared memory as a thread has them: the same thread of the other group reads them. There is a tile of them
for each stage, so that a group that has the next queries of a stage knows that the other is done with both.

Under a causal mask one tile that passes by needs to be looked at for each held one: that of dq is its last, which it
takes first, that of dk and dv the first of each head. Tiles that only other groups see are let go. Rows of queries
past the end have lse = ∞, so that their probabilities are 0; rows of keys past the end make nonsense of their own
gradients, which are not stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.loops import parameters_of
from genesis.codegen.cuda.source import RELEASE, SIZES, KernelSource, TensorTable, in_gluon
from genesis.codegen.cuda.templates.streamed_attention import (
    ROWS,
    Stack,
    batch_number,
    place,
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
    results,
)
from genesis.codegen.cuda.templates.streamed_attention_backward_sums import sums
from genesis.codegen.cuda.templates.streamed_matmul import ORDER, descriptor
from genesis.codegen.cuda.templates.streamed_matmul_gluon import LAID_LIKE
from genesis.codegen.cuda.templates.streamed_tiles_gluon import (
    ASK,
    PLACE_OF_TILE,
    Barriers,
    allocated,
    function,
    loading,
    module,
    started,
)
from genesis.codegen.cuda.templates.tile import LOG2_E, indented

if TYPE_CHECKING:
    from genesis.codegen.cuda.templates.attention import Attention

LOADING_REGISTERS: Final = {2: 24, 3: 32}
"""Groups that multiply → registers of each thread of the loading warp."""

SUM_REGISTERS: Final = {2: 240, 3: 160}
"""Groups that multiply → registers of each of their threads."""


def emit_streamed_backward(a: Attention) -> KernelSource:
    """The kernel of a backward that is not refused."""
    form = backward_form(a)
    stacks = {name: stack_of(a, name, rows) for name, rows in block_rows(a).items()}
    found = {name: stack for name, stack in stacks.items() if stack is not None}
    maps = {**{f"{name}_map": stack.map for name, stack in found.items()},
            **{f"{name}_map": result_map(a, name) for name in results(a)}}
    batches = a.batch // a.shared if by_keys(a) else a.batch
    sizes = {"queries": a.queries, "keys": a.keys, "batches": batches, "near": heads_together(a)}
    constexprs = {"T": form.passing, "D": a.padded_head, "STAGES": form.stages,
                  **({"VALUES": form.values} if form.values else {}), "HELD": form.held,
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


def barriers(a: Attention, form: BackwardForm) -> Barriers:
    """The counted barriers: of what is held, of what passes by, of tiles' numbers."""
    groups, values = form.groups, form.values or form.stages
    passing_by: Barriers = (
        {**dict.fromkeys(("q_full", "g_full", "rows_full"), (form.stages, 1)), "empty": (form.stages, groups)}
        if by_keys(a) else {"k_full": (form.stages, 1), "k_empty": (form.stages, groups), "v_full": (values, 1),
                            "v_empty": (values, groups)})
    return {"held_full": (form.held * groups, 1 if form.by_role else 2), "held_empty": (form.held * groups, 1),
            **passing_by,
            **({"p_full": (form.stages, 1)} if form.by_role else {}),
            "told": (2, 1), "heard": (2, groups)}


def gluon_module(a: Attention, name: str, signature: dict[str, str], form: BackwardForm,
                 stacks: dict[str, Stack]) -> str:
    """The module that defines the kernel."""
    given, groups = parameters_of(signature), form.groups
    vectors = ["lse_rows", "delta_rows"] if by_keys(a) else []
    blocks = "qkvgp" if form.by_role else "qkvg"
    shared = ", ".join((*(f"{x}_blocks" for x in blocks), *vectors, "number", *barriers(a, form)))
    each = "" if form.by_role else f"{groups} * "
    kernel = [
        RELEASE,
        f"layout: tl.constexpr = tl.NVMMASharedLayout.get_default_for([{ROWS}, D], q_map.dtype)",
        *(f"{x}_blocks = tl.allocate_shared_memory({x}_map.dtype, [{each}HELD, {ROWS}, D], layout)"
          for x in held(a)),
        *(f"{x}_blocks = tl.allocate_shared_memory({x}_map.dtype, [{_stages(form, x)}, T, D], layout)"
          for x in passing(a)),
        *([f"p_blocks = tl.allocate_shared_memory(tl.float32, [STAGES, {ROWS} * T], "
           "tl.SwizzledSharedLayout(1, 1, 1, [0]))"] if form.by_role else []),
        *(f"{x} = tl.allocate_shared_memory(tl.float32, [STAGES, T], tl.SwizzledSharedLayout(1, 1, 1, [0]))"
          for x in vectors),
        *allocated(barriers(a, form)),
        *started(shared, signature, groups, SUM_REGISTERS[groups], LOADING_REGISTERS[groups])]
    return module(PLACE_OF_TILE, ASK, *([in_gluon(ORDER), in_gluon(LAID_LIKE)] if form.by_role else []),
                  function("loads", f"{shared}, {SIZES}{given}", _loads(a, form, stacks)),
                  function("sums", f"{shared}, GROUP: tl.constexpr, {SIZES}{given}", sums(a, form, _tile(a, form))),
                  function(name, given, kernel))


def _stages(form: BackwardForm, name: str) -> str:
    """How many tiles of an operand that passes by there are, as text."""
    return "VALUES" if form.values and name == "v" else "STAGES"


def _tile(a: Attention, form: BackwardForm) -> list[str]:
    """The lines that say which rows a tile holds, and which tiles pass by: `first` to `last` of each head."""
    rows = form.rows
    if by_keys(a):  # under a causal mask the first keys are seen by most queries: they are a head's longest tile
        return [f"tile, heads = place_of_tile(program, batches, tl.cdiv(keys, {rows}), near)",
                f"tile = tl.cdiv(keys, {rows}) - 1 - tile",
                "last = tl.cdiv(queries, T)",
                f"first = {f'tl.minimum(tile * {rows} // T, last)' if a.causal else 0}"]
    return [f"tile, batch = place_of_tile(program, batches, tl.cdiv(queries, {rows}), near)",
            "last = tl.cdiv(keys, T)",
            *([f"last = tl.minimum(tl.cdiv(tile * {rows} + {rows}, T), last)"] if a.causal else [])]


def _loads(a: Attention, form: BackwardForm, stacks: dict[str, Stack]) -> list[str]:
    """What the loading warp does."""
    rows = form.rows
    holding = _holding_by_role(a, form, stacks) if form.by_role else _holding(a, form, stacks)
    counted = ["stage = count % STAGES", "parity = ((count // STAGES) & 1) ^ 1"]
    asked = [f"ask({x}_map, [{place(stacks[x], 'start')}], {x}_full.index(stage), {x}_blocks.index(stage))"
             for x in passing(a)]
    values = ["stage = count % VALUES", "parity = ((count // VALUES) & 1) ^ 1"] if form.values else []
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
                f"lse_rows.index(stage).store(lse_row * {-LOG2_E if form.by_role else -1 / a.scale})",
                "delta_rows.index(stage).store(-delta_row)",
                "mbarrier.arrive(rows_full.index(stage), count=1)",
                "count += 1"])]
        walk = [*holding, *([f"for head in range({a.shared}):", *indented(head)] if a.shared > 1 else head)]
    else:
        walk = [start_of_heads(a), "for step in range(last):",
                *indented([*counted, "start = (last - 1 - step) * T",
                           "mbarrier.wait(k_empty.index(stage), parity)", asked[0],
                           "if step == 0:", *indented(holding), *values,
                           "mbarrier.wait(v_empty.index(stage), parity)", asked[1], "count += 1"])]
    return loading("keys" if by_keys(a) else "queries", rows, [*_tile(a, form), *walk])


def _holding(a: Attention, form: BackwardForm, stacks: dict[str, Stack]) -> list[str]:
    """Lines that ask for the tiles that are held, each group's own."""
    start = f"tile * {form.rows} + group * {ROWS}"
    return [
        f"for group in tl.static_range({form.groups}):",
        f"    block = turn % HELD * {form.groups} + group",
        "    mbarrier.wait(held_empty.index(block), ((turn // HELD) & 1) ^ 1)",
        *(f"    ask({x}_map, [{place(stacks[x], start)}], held_full.index(block), {x}_blocks.index(block))"
          for x in held(a))]


def _holding_by_role(a: Attention, form: BackwardForm, stacks: dict[str, Stack]) -> list[str]:
    """Lines that ask for one tile of each operand, which one of the groups multiplies."""
    lines = []
    for group, x in enumerate(held(a)):
        lines += [f"block = turn % HELD * {form.groups} + {group}",
                  "mbarrier.wait(held_empty.index(block), ((turn // HELD) & 1) ^ 1)",
                  f"ask({x}_map, [{place(stacks[x], f'tile * {form.rows}')}], held_full.index(block), "
                  f"{x}_blocks.index(turn % HELD))"]
    return lines
