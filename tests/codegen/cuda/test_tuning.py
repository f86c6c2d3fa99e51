"""Tuning: of the candidates of a choice the fastest is written down, whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from genesis.codegen.cuda.alone import plan_of_one
from genesis.codegen.cuda.choice_table import Rows
from genesis.codegen.cuda.choices import Taken, deciding, noting
from genesis.codegen.cuda.compile import CompilationFailed
from genesis.codegen.cuda.emit import emit, emit_anew
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.tuning import GAIN, MOST_TIMED, NotTimed, Trial, tune
from genesis.ir import Graph, Node
from genesis.ir.ops import leaves
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.attention import sdpa
from genesis.ir.ops.contraction import matmul
from genesis.ir.size_trace import Trace
from genesis.ir.types import bfloat16, float32, tensor_type
from genesis.passes.fusion.fuse import fuse
from genesis.passes.groups import Group
from genesis.runtime.plan import KernelImage, MatrixMap
from tests.codegen.cuda.evaluate import decomposed, evaluate
from tests.codegen.cuda.programs import GPU, inputs, some
from tests.codegen.cuda.run_interpreted import compile_cubin, empty, run_source
from tests.codegen.cuda.test_attention import TOLERANCE, close, program, reference
from tests.codegen.cuda.test_attention import compiled as scheduled
from tests.codegen.cuda.test_choices import taken_for


def images(sources: Sequence[KernelSource]) -> Sequence[KernelImage]:
    """Images that nobody runs."""
    return [KernelImage(source.name, b"", source.num_warps, 0) for source in sources]


def product(rows: int = 256, depth: int = 96, columns: int = 256) -> Group:
    """A product's group."""
    x, w = inputs((rows, depth), (depth, columns), dtype=bfloat16)
    group, = fuse(decomposed(Graph((x, w), (matmul(x, w),)))).groups
    return group


def tuned(time: Callable[[Trial], float], *groups: Group, rows: Rows | None = None,
          compile: Callable[[Sequence[KernelSource]], Sequence[KernelImage]] = images) -> tuple[Rows, list[Trial]]:
    """The rows, and what was timed."""
    rows = Rows() if rows is None else rows
    seen: list[Trial] = []

    def timer(trial: Trial) -> float:
        seen.append(trial)
        return time(trial)
    tune(groups, rows, compile, timer, H200)
    return rows, seen


def named(name: str, time: float, others: float = 10.0) -> Callable[[Trial], float]:
    """A timer to which one candidate takes this long."""
    return lambda trial: time if trial.taken.candidate.name == name else others


OTHER = "64x64x128 warps=4 stages=3"
"""A candidate that the model puts second or later, and among those timed."""


def test_the_fastest_is_written_down_and_taken() -> None:
    group = product()
    rows, seen = tuned(named(OTHER, 7.0), group)
    row, = rows
    assert (row.candidate, row.microseconds, row.instead) == (OTHER, 7.0, 10.0)
    assert row.key == seen[0].taken.choice.key
    with deciding(rows):
        assert taken_for(group).candidate.name == OTHER
    assert taken_for(group).by == "model"


def test_what_would_be_taken_without_is_timed_first_and_then_the_models_best() -> None:
    _, seen = tuned(lambda trial: 1.0, product())
    names = [trial.taken.candidate.name for trial in seen]
    assert names[0] == taken_for(product()).candidate.name
    assert len(names) == len(set(names)) == MOST_TIMED
    times = [trial.taken.candidate.microseconds for trial in seen[1:]]
    assert times == sorted(times)


def test_a_gain_that_is_noise_changes_nothing() -> None:
    first = taken_for(product()).candidate.name
    for time, candidate in ((10 * (1 - GAIN / 2), first), (10 * (1 - 2 * GAIN), OTHER)):
        row, = tuned(named(OTHER, time), product())[0]
        assert row.candidate == candidate
        assert row.microseconds == (10.0 if candidate == first else time)


def test_what_the_table_says_is_not_timed_again() -> None:
    rows, _ = tuned(named(OTHER, 7.0), product())
    again, seen = tuned(named(OTHER, 99.0), product(), product(), rows=rows)
    assert not seen and [row.candidate for row in again] == [OTHER]


def test_equal_problems_are_timed_once() -> None:
    _, seen = tuned(lambda trial: 1.0, product(), product(250), product())
    assert len(seen) == MOST_TIMED, "250 rows are of the class of 256"


def test_a_candidate_that_does_not_start_is_left_out() -> None:
    def timer(trial: Trial) -> float:
        if trial.taken.candidate.name == OTHER:
            raise NotTimed("too much shared memory")
        return 10.0
    row, = tuned(timer, product())[0]
    assert row.candidate == taken_for(product()).candidate.name


@pytest.mark.parametrize("memory", [True, False])
def test_where_todays_cannot_be_timed_nothing_is_decided(memory: bool) -> None:
    first = taken_for(product()).candidate.name

    def timer(trial: Trial) -> float:
        if memory or trial.taken.candidate.name == first:
            raise NotTimed("no", memory)
        return 1.0
    rows, seen = tuned(timer, product())
    assert not len(rows) and len(seen) == 1, "without room for one there is none for others"


def test_a_candidate_that_does_not_compile_is_left_out() -> None:
    def compile(sources: Sequence[KernelSource]) -> Sequence[KernelImage]:
        if any(source.constexprs["K"] == 128 for source in sources):
            raise CompilationFailed("out of registers")
        return images(sources)
    rows, seen = tuned(named(OTHER, 7.0), product(), compile=compile)
    assert len(rows) == 1 and 1 < len(seen) < MOST_TIMED
    assert not any("x128 " in trial.taken.candidate.name for trial in seen)


def test_candidates_that_make_equal_kernels_are_timed_once() -> None:
    """Tiles are no larger than the product."""
    _, seen = tuned(lambda trial: 1.0, product(16, 16, 16))
    assert len({(trial.plan.steps[0].grid, trial.taken.candidate.name) for trial in seen}) == len(seen)
    sources = []
    for trial in seen:
        with deciding(Rows(), {trial.taken.choice.key: trial.taken.candidate.name}):
            sources.append(repr(emit_anew(product(16, 16, 16), H200).key_parts()))
    assert len(set(sources)) == len(sources)


def test_reductions_of_rows_and_attention_are_tuned_too() -> None:
    x, = inputs((4096, 768), dtype=bfloat16)
    sums = fuse(decomposed(Graph((x,), (r.sum(p.exp(x), axes=(1,), keepdims=False),)))).groups
    operands, outputs = program((32,), 512, 512, 64, 64, True, 0.125)
    attention = scheduled(*outputs, operands=operands).groups
    two_heads, gradients = program((32,), 512, 512, 160, 128, True, 0.125)  # which are not streamed
    backward = [group for group in scheduled(*gradients, operands=two_heads).groups if group.kind != "attention"]
    rows, seen = tuned(lambda trial: trial.taken.candidate.microseconds, *sums, *attention, *backward)
    assert {row.key.kind for row in rows} >= {"rows", "streamed_attention", "flash_attention_dq", "flash_attention_dkv"}
    assert all(len(trial.plan.steps) == 1 for trial in seen)


def symbolic(length: int) -> tuple[Trace, Group]:
    """Attention over a symbolic length."""
    trace = Trace(length=length)
    with trace:
        type = tensor_type((2, trace.symbol("length"), 64), bfloat16, GPU)
        operands = tuple(leaves.input(index=i, type=type) for i in range(3))
        groups = scheduled(sdpa(*operands, causal=False, scale=0.125), operands=operands).groups
    return trace, next(group for group in groups if group.kind == "attention")


def test_what_is_tried_asks_nothing_of_sizes() -> None:
    """A guard of a candidate that was only tried would have other sizes compiled again."""
    trace, group = symbolic(601)
    with trace:
        emit(group)
    asked = [(kind, str(size)) for kind, size in trace.guards]
    assert asked, "whether the last tile is full"
    trace, group = symbolic(601)
    with trace:
        _, seen = tuned(lambda trial: 1.0, group)
        assert len(seen) > 1 and not trace.guards
        emit(group)
    assert [(kind, str(size)) for kind, size in trace.guards] == asked
    launch, = seen[0].plan.steps
    assert seen[0].plan.inputs[0].shape == (2, 601, 64) and 601 in launch.args, "sizes as they are at hand"


def test_a_trial_is_a_kernel_over_memory_of_its_own() -> None:
    """Also one that the copy engine reads for, whose programs hand parts to each other."""
    group = product(4096, 4096, 4096)
    shared = next(x.name for x in taken_for(group).choice.candidates if "shared" in x.name)
    with deciding(Rows(), {taken_for(group).choice.key: shared}):
        source = emit(group)
    plan = plan_of_one(source, images([source])[0], group)
    assert plan is not None
    launch, = plan.steps
    assert [type.shape for type in plan.inputs] == [(4096, 4096)] * 3 and not plan.updates
    assert sum(isinstance(x, MatrixMap) for x in launch.args) == 3
    assert {x.where for x in launch.args if hasattr(x, "where")} == {"exchange"}


# Candidates are right

def noted(group: Group) -> list[Taken]:
    """What was asked for a group's kernel."""
    with noting() as found:
        emit_anew(group, H200)
    return found


def candidates_of(group: Group) -> list[Taken]:
    """What each of a group's kernels may be made with."""
    return [Taken(taken.choice, candidate, "forced") for taken in noted(group)
            for candidate in taken.choice.candidates]


def forced(group: Group, taken: Taken) -> KernelSource:
    """The kernel that is made with a candidate."""
    with deciding(Rows(), {taken.choice.key: taken.candidate.name}):
        source = emit_anew(group, H200)
    assert f"{taken.choice.key.kind} {taken.candidate.name}, to be tried" in source.choices
    return source


def check_candidates(group: Group, graph: Graph, names: Sequence[str] | None = None) -> int:
    """Run the kernel with each candidate; returns how many there were."""
    data = [some(x) for x in graph.inputs]
    want, = evaluate(graph, data, ())
    found = [x for x in candidates_of(group) if names is None or x.candidate.name in names]
    for taken in found:
        memory: dict[Node, torch.Tensor] = {x: data[x["index"]].contiguous() for x in group.inputs}
        memory |= {x: empty(x) for x in group.outputs}
        run_source(forced(group, taken), memory)
        got = memory[group.outputs[0]].reshape(want.shape)
        torch.testing.assert_close(got, want, rtol=3e-2, atol=3e-2, msg=lambda text, n=taken: f"{n.text}: {text}")
    return len(found)


def test_every_tile_of_a_product_gives_the_product() -> None:
    """The tolerance is two roundings to bfloat16 of values of a few units; sums of 70 float32 products have less."""
    x, w = inputs((40, 70), (70, 50), dtype=bfloat16)
    graph = decomposed(Graph((x, w), (matmul(x, w),)))
    group, = fuse(graph).groups
    assert check_candidates(group, graph) >= 10


def test_every_block_of_rows_gives_the_sums() -> None:
    x, = inputs((37, 100), dtype=float32)
    graph = decomposed(Graph((x,), (r.sum(p.exp(x), axes=(1,), keepdims=False),)))
    group, = fuse(graph).groups
    assert check_candidates(group, graph) >= 4


def attention_candidates() -> list[tuple[Group, Taken, tuple[Node, ...]]]:
    operands, outputs = program((2,), 72, 130, 64, 64, True, 0.125)
    return [(group, taken, operands) for group in scheduled(*outputs, operands=operands).groups
            if group.kind.startswith("attention") for taken in candidates_of(group)]


def check_attention(part: Sequence[tuple[Group, Taken, tuple[Node, ...]]]) -> None:
    """The forward with each candidate next to the reference."""
    for group, taken, operands in part:
        data = [some(x) for x in operands]
        want = reference(*data, True, 0.125)[0]
        memory = {x: data[x["index"]].contiguous() for x in group.inputs} | {x: empty(x) for x in group.outputs}
        run_source(forced(group, taken), memory, most_programs=512)
        close(memory[group.outputs[0]].reshape(want.shape), want, TOLERANCE[bfloat16])


def forwards() -> list[tuple[Group, Taken, tuple[Node, ...]]]:
    """The candidates of the forward, every fifth of those that differ in what a tile is."""
    return [row for row in attention_candidates() if row[0].kind == "attention"]


def test_tiles_of_attention_give_attention() -> None:
    check_attention(forwards()[::12])


@pytest.mark.sweep
def test_every_tile_of_attention_gives_attention() -> None:
    check_attention(forwards())


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["product", "rows", "attention"])
def test_candidates_compile_for_the_h200(kind: str) -> None:
    """Those that are timed, as cubins."""
    if kind == "attention":
        operands, outputs = program((8,), 512, 512, 128, 128, True, 0.125)
        groups = scheduled(*outputs, operands=operands).groups
    elif kind == "rows":
        x, = inputs((4096, 1000), dtype=bfloat16)
        groups = fuse(decomposed(Graph((x,), (r.sum(p.exp(x), axes=(1,), keepdims=False),)))).groups
    else:
        groups = (product(4096, 1024, 4096), product(64, 1024, 4096))
    _, seen = tuned(lambda trial: trial.taken.candidate.microseconds, *groups)
    by_key = {trial.taken.choice.key: group for group in groups for trial in seen
              if any(x.choice.key == trial.taken.choice.key for x in noted(group))}
    for trial in seen:
        assert compile_cubin(forced(by_key[trial.taken.choice.key], trial.taken)), trial.taken.text
    assert len(seen) > 3


def test_a_candidate_compiles_for_the_h200() -> None:
    group = product(512, 256, 512)
    taken = next(x for x in candidates_of(group) if x.candidate.name == "64x128x64 warps=4 stages=4")
    assert compile_cubin(forced(group, taken))
