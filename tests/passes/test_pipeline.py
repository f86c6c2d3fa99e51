"""The passes together: stages, verification, and CPU plans that give a direct evaluator's numbers."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from genesis.engine.backends import backend_named
from genesis.engine.compilation import Compiled, compile_graph
from genesis.ir import OPS, Graph, Node, tensor_type
from genesis.ir.ops import leaves
from genesis.ir.parser import parse
from genesis.ir.types import Device, bfloat16, cpu, float32
from genesis.ir.verify import VerifyError, verify
from genesis.passes import pipeline
from genesis.passes.pipeline import PASSES, Pass, Work, on_graph, run_passes
from genesis.runtime.cpu import executor as executor_cpu
from genesis.runtime.cpu.executor import CPUExecutor
from genesis.runtime.cpu.storage import CPUStorage
from tests.evaluate import evaluate
from tests.passes.random_graphs import graphs


def memory_with(array: np.ndarray) -> CPUStorage:
    """New memory that holds the array."""
    memory = CPUStorage(array.nbytes)
    memory.copy_from_host(np.ascontiguousarray(array))
    return memory


def arrays(graph: Graph, seed: int = 0) -> list[np.ndarray]:
    """Data for the inputs, around 0."""
    generator = np.random.default_rng(seed)
    return [generator.normal(size=x.shape).astype(x.dtype.numpy) for x in graph.inputs]


def check_run(compiled: Compiled, data: Sequence[np.ndarray], numbers: Sequence[Any] = ()) -> None:
    """A run's outputs and updates are the evaluator's; inputs that are not updated keep their bytes."""
    graph = compiled.graph
    feeds: dict[Node, Any] = dict(zip(graph.inputs, data, strict=True))
    feeds |= {x: numbers[x["index"]] for x in graph.nodes if x.op is leaves.scalar}
    expected = evaluate(graph.roots, feeds)
    memories = [memory_with(array) for array in data]
    found = [memory.numpy(x.type) for memory, x in zip(compiled.run(memories, numbers), graph.outputs, strict=True)]
    kept = dict(zip(graph.inputs, data, strict=True))
    after = dict(zip((x for x, _ in graph.updates), expected[len(graph.outputs):], strict=True))
    for want, got in zip(expected, found, strict=False):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)
    for x, memory in zip(graph.inputs, memories, strict=True):
        np.testing.assert_allclose(memory.numpy(x.type), after.get(x, kept[x]), rtol=1e-12, atol=1e-12)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs(), runs=st.integers(1, 3))
def test_a_plan_gives_the_evaluators_numbers(graph: Graph, runs: int) -> None:
    """Again and again over other memories: nothing of a run is left in the next."""
    compiled = compile_graph(graph, cpu)
    for seed in range(runs):
        check_run(compiled, arrays(graph, seed))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graph=graphs())
def test_every_pass_keeps_the_rules_of_the_ir(graph: Graph) -> None:
    for name in ("cpu", "cuda"):
        backend = backend_named(name)
        work = Work(graph)
        for row in PASSES[:-1]:
            if row.runs_for(backend):
                work = row.run(work, backend)
                verify(work.graph)


def test_stages() -> None:
    graph = parse("graph(%x: f32[4]) { %y: f32[4] = silu(%x) %l: f32[] = sum(%y, axes=(0,)) %g: (f32[4],) = grad(%l, "
                  "1.0, %x, outputs=1, create_graph=False) %r: f32[4] = item(%g, index=0) return %r }")
    stages, schedule, memory, _, works = run_passes(graph, backend_named("cpu"))
    assert list(stages) == ["input", *(row.stage for row in PASSES[:-1]), "groups"]
    assert stages["input"] is graph and stages["groups"] is schedule and stages["memory"] is memory
    assert " grad(" in str(stages["capture"]) and " grad(" not in str(stages["grad"])
    assert schedule.graph is stages["prepared"]
    assert list(works) == [row.stage for row in PASSES[:-1]]
    assert works["prepared"].schedule is None is works["recomputed"].memory and works["memory"].memory is memory


def test_a_pass_that_breaks_a_rule_is_named_under_genesis_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaves.input(index=0, type=tensor_type((4,), float32))
    broken = Pass("breaks", "broken", "broken", on_graph(lambda graph: Graph((), graph.outputs)))
    monkeypatch.setattr(pipeline, "PASSES", (*PASSES[:3], broken, *PASSES[3:]))
    graph = Graph((x,), (OPS["exp"](x),))
    monkeypatch.setenv("GENESIS_VERIFY", "1")
    with pytest.raises(VerifyError, match=r"after the pass breaks: .*none of the graph's inputs"):
        run_passes(graph, backend_named("cpu"))
    monkeypatch.setenv("GENESIS_VERIFY", "0")
    with pytest.raises(KeyError):  # a pass behind it stumbles
        run_passes(graph, backend_named("cpu"))


def test_every_row_has_a_name_and_a_stage_of_its_own() -> None:
    assert len({row.name for row in PASSES}) == len({row.stage for row in PASSES}) == len(PASSES)


def test_what_a_backend_asks_for_are_optional_rows() -> None:
    optional = {row.name for row in PASSES if row.optional}
    asked = [backend_named(name).passes for name in ("cpu", "cuda")]
    assert frozenset().union(*asked) == optional and all(passes <= optional for passes in asked)


def test_each_pass_that_ran_says_what_it_did() -> None:
    x = leaves.input(index=0, type=tensor_type((4,), float32))
    graph = Graph((x,), (OPS["silu"](x),))
    reports = run_passes(graph, backend_named("h200")).reports
    names = [report.name for report in reports]
    assert names[:3] == ["inline", "slice_early", "autodiff"] and names[-1] == "plan_memory"
    legalized = next(report for report in reports if report.name == "legalize")
    assert legalized.before == 2 < legalized.after and legalized.seconds > 0
    grouped = next(report for report in reports if report.name == "group")
    assert (grouped.before, grouped.after, grouped.unit) == (legalized.after, 1, "groups")


def test_a_row_that_shows_itself_more_to_do_runs_again() -> None:
    """Rows of rows: the inner loop's assignments are one value, and then the outer loop's rows are alike."""
    text, base = "graph(%x: f32[4,4]) {", "%x"
    for at in range(4):
        for to in range(4):
            place = f"starts=({at},{to}), stops=({at + 1},{to + 1}), steps=(1,1)"
            text += f" %s{at}{to}: f32[1,1] = slice(%x, {place}) %e{at}{to}: f32[1,1] = exp(%s{at}{to})"
            text += f" %a{at}{to}: f32[4,4] = assign({base}, %e{at}{to}, {place})"
            base = f"%a{at}{to}"
    passed = run_passes(parse(f"{text} return {base} }}"), backend_named("cpu"))
    names = [report.name for report in passed.reports]
    assert names.count("reroll") == names.count("canonicalize") == 3  # the inner rows, the outer rows, nothing more
    ops = [node.op.name for node in passed.stages["canonical"].nodes]
    assert ops.count("exp") == 1 and "assign" not in ops


# Special programs

PROGRAMS = {
    "a transposed value and itself": "graph(%x: f64[5,5]) { %y: f64[5,5] = tanh(%x) %t: f64[5,5] = permute(%y, "
                                     "axes=(1,0)) %z: f64[5,5] = add(%y, %t) %w: f64[5,5] = sin(%z) return %w }",
    "inputs swap": "graph(%a: f64[5], %b: f64[5]) { update %a = %b update %b = %a return }",
    "an old value is returned": "graph(%a: f64[5]) { %b: f64[5] = tanh(%a) update %a = %b return %a, %b, %b }",
    "a reshape that copies": "graph(%x: f64[3,4]) { %y: f64[3,4] = tanh(%x) %t: f64[4,3] = permute(%y, axes=(1,0)) "
                             "%r: f64[12] = reshape(%t, shape=(12,)) %z: f64[12] = sin(%r) return %z, %r }",
    "a reshape of an input that copies": "graph(%x: f64[3,4]) { %t: f64[4,3] = permute(%x, axes=(1,0)) "
                                         "%r: f64[12] = reshape(%t, shape=(12,)) %z: f64[12] = sin(%r) return %z, %r }",
    "an update by a view of itself": "graph(%x: f64[4,4]) { %t: f64[4,4] = permute(%x, axes=(1,0)) update %x = %t "
                                     "return }",
    "nothing": "graph() { return }",
    "no elements": "graph(%x: f64[0,3]) { %y: f64[0,3] = tanh(%x) %s: f64[3] = sum(%y, axes=(0,)) update %x = %y "
                   "return %y, %s }",
    "an adopted value, its view and its copy": "graph(%x: f64[4,4]) { %y: f64[4,4] = layer_norm(%x, ndim=1, eps=1e-05) "
                                               "%t: f64[4,4] = permute(%y, axes=(1,0)) %z: f64[4,4] = add(%y, %t) "
                                               "update %x = %y return %z, %y, %t }",
    "an update that torch allocates": "graph(%x: f64[4,4]) { %y: f64[4,4] = layer_norm(%x, ndim=1, eps=1e-05) "
                                      "update %x = %y return }",
    "a flipped value as output and update": "graph(%x: f64[4]) { %y: f64[4] = flip(%x, axes=(0,)) update %x = %y "
                                            "return %y, %x }",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    compiled = compile_graph(parse(PROGRAMS[name]), cpu)
    for seed in range(2):
        check_run(compiled, arrays(compiled.graph, seed))


def test_numbers_are_computed_when_the_plan_runs() -> None:
    """1 - lr·decay is a number of the plan: other numbers are other results of the same plan."""
    compiled = compile_graph(parse("graph(%x: f64[4]; 2 numbers) { %a: f64~[] = scalar(index=0) %b: i64~[] = "
                                   "scalar(index=1) %c: f64~[] = mul(%a, %b) %d: f64~[] = sub(1.0, %c) %y: f64[4] = "
                                   "mul(%x, %d) %z: f64[] = cast(%d, dtype=f64) return %y, %z }"), cpu)
    for numbers in ([0.5, 3], [2.0, -1], [0.0, 7]):
        check_run(compiled, arrays(compiled.graph), numbers)


def test_low_precision_programs_agree_too() -> None:
    compiled = compile_graph(parse("graph(%x: bf16[8,8]) { %y: bf16[8,8] = softmax(%x, axis=1) %t: bf16[8,8] = "
                                   "permute(%y, axes=(1,0)) %z: bf16[8,8] = add(%y, %t) return %z }"), cpu)
    data = arrays(compiled.graph)
    assert data[0].dtype == bfloat16.numpy
    expected, = evaluate(compiled.graph.outputs, dict(zip(compiled.graph.inputs, data, strict=True)))
    result, = compiled.run([memory_with(x) for x in data], [])
    assert result.numpy(compiled.graph.outputs[0].type).tobytes() == expected.tobytes()


# Memory of runs

VIEWS = """graph(%x: f64[4,6]) {
    %t: f64[6,4] = permute(%x, axes=(1,0))
    %r: f64[3,4] = slice(%t, starts=(1,0), stops=(4,4), steps=(1,1))
    %y: f64[3,4] = tanh(%r)
    return %y
}"""


def test_views_follow_an_input_that_moves_and_stay_when_it_does_not() -> None:
    compiled = compile_graph(parse(VIEWS), cpu)
    one, other = np.arange(24.0).reshape(4, 6), -np.arange(24.0).reshape(4, 6)
    memories = {"one": memory_with(one), "other": memory_with(other)}
    for name, array in [("one", one), ("one", one), ("other", other), ("one", one)]:
        result, = compiled.run([memories[name]], [])
        np.testing.assert_allclose(result.numpy(compiled.graph.outputs[0].type), np.tanh(array.T[1:4]), rtol=1e-14)


def test_an_input_that_changes_in_place_is_read_again() -> None:
    compiled = compile_graph(parse(VIEWS), cpu)
    memory = memory_with(np.zeros((4, 6)))
    compiled.run([memory], [])
    memory.copy_from_host(np.ones((4, 6)))
    result, = compiled.run([memory], [])
    np.testing.assert_allclose(result.numpy(compiled.graph.outputs[0].type), np.tanh(np.ones((3, 4))), rtol=1e-14)


def _chain(size: int) -> Graph:
    """A program that needs three values of this many elements at once."""
    return parse(f"graph(%x: f64[{size}]) {{ %a: f64[{size}] = tanh(%x) %b: f64[{size}] = sin(%a) %c: f64[{size}] = "
                 f"cos(%a) %d: f64[{size}] = add(%a, %b) %e: f64[{size}] = mul(%d, %c) %v: f64[{size},1] = reshape(%e, "
                 f"shape=({size},1)) %f: f64[{size},1] = tanh(%v) return %f }}")


def test_the_arena_may_grow_and_move_between_two_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_cpu, "arena", executor_cpu._HostArena())
    small = compile_graph(_chain(10), cpu)
    check_run(small, arrays(small.graph, 0))
    first = executor_cpu.arena.storage
    large = compile_graph(_chain(50_000), cpu)
    check_run(large, arrays(large.graph, 1))
    assert executor_cpu.arena.storage is not first
    check_run(small, arrays(small.graph, 2))
    check_run(large, arrays(large.graph, 3))


def test_a_plan_whose_memory_cannot_be_had_runs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outputs and the arena are reserved before the first call, so the update has not happened."""
    monkeypatch.setattr(executor_cpu, "arena", executor_cpu._HostArena())
    compiled = compile_graph(parse("graph(%x: f64[100]) { %a: f64[100] = tanh(%x) %b: f64[100] = sin(%a) %c: f64[100] "
                                   "= add(%b, %a) %d: f64[] = sum(%c, axes=(0,)) update %x = %a return %b, %d }"), cpu)
    memory = memory_with(np.full(100, 0.5))

    def refuse(nbytes: int) -> None:
        raise MemoryError(nbytes)

    assert compiled.plan.arena_bytes
    monkeypatch.setattr(executor_cpu.arena, "reserve", refuse)
    with pytest.raises(MemoryError):
        compiled.run([memory], [])
    np.testing.assert_array_equal(memory.numpy(compiled.graph.inputs[0].type), np.full(100, 0.5))


def test_a_plan_keeps_no_memory_of_its_inputs_and_outputs() -> None:
    """Plans live in a cache as long as the process does; what they ran over must not."""
    compiled = compile_graph(parse(VIEWS), cpu)
    memory = memory_with(np.ones((4, 6)))
    result, = compiled.run([memory], [])
    blocks = [weakref.ref(memory.bytes), weakref.ref(result.bytes)]
    del memory, result
    gc.collect()
    assert [block() for block in blocks] == [None, None]
    check_run(compiled, arrays(compiled.graph))


def test_each_output_has_memory_of_its_own() -> None:
    compiled = compile_graph(parse("graph(%x: f64[4]) { %y: f64[4] = tanh(%x) return %y, %y, %x, %x }"), cpu)
    memory = memory_with(np.ones(4))
    found = compiled.run([memory], [])
    for i, result in enumerate(found):
        result.copy_from_host(np.full(4, float(i)))
    assert [result.numpy(compiled.graph.inputs[0].type)[0] for result in found] == [0.0, 1.0, 2.0, 3.0]
    assert memory.numpy(compiled.graph.inputs[0].type)[0] == 1.0


def test_a_result_of_torch_is_adopted_without_a_copy_unless_it_updates_memory() -> None:
    def copies(text: str) -> int:
        plan = compile_graph(parse(text), cpu).plan
        return sum(call.label == "copy" for call in plan.steps)

    norm = "graph(%x: f64[4,4]) { %y: f64[4,4] = layer_norm(%x, ndim=1, eps=1e-05) %z: f64[4,4] = tanh(%y) "
    assert copies(norm + "return %z }") == 0
    assert copies(norm + "return %z, %y }") == 0
    assert copies(norm + "update %x = %y return %z }") == 1


def test_what_a_plan_says_about_itself() -> None:
    compiled = compile_graph(parse("graph(%x: f64[256], %y: f32[3]; 2 numbers) { %n: i64~[] = scalar(index=1) "
                                   "%a: f64[256] = mul(%x, %n) %b: f64[256] = tanh(%a) update %x = %b "
                                   "return %b, %y }"), cpu)
    plan = compiled.plan
    assert [str(t) for t in plan.inputs] == ["f64[256]", "f32[3]"]
    assert [str(t) for t in plan.outputs] == ["f64[256]", "f32[3]"]
    assert plan.updates == (0,)
    assert [str(t) for t in plan.numbers] == ["f64~[]", "i64~[]"]
    assert plan.max_live_bytes <= plan.arena_bytes
    assert isinstance(compiled.executor, CPUExecutor) and plan.device is Device("cpu")


def test_only_the_stages_that_are_wanted_are_kept() -> None:
    """Each is a graph: a program that was compiled to be run keeps none of those on the way."""
    graph = parse("graph(%x: f32[4]) { %a: f32[4] = silu(%x) %b: f32[4] = mul(%a, 1.0) return %b }")
    every, few = (run_passes(graph, backend_named("cpu"), "lower", kept) for kept in (None, ("prepared",)))
    assert set(few.stages) == {"input", "prepared", "groups", "memory", "code"} < set(every.stages)
    assert few.stages["prepared"] == every.stages["prepared"] and len(few.reports) == len(every.reports)
    found = compile_graph(graph, cpu, known=False)
    assert "passed" not in vars(found)
    assert set(found.stages) == {*every.stages} - {"code"}, "they run again for whoever asks"
