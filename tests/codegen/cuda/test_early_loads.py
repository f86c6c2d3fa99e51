"""What a product of one vector reads before it waits: rows of matrices that nothing in its program writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from genesis.codegen.cuda import blocks, early_loads
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200, MODELS
from genesis.codegen.cuda.lower import kernels_of, settled_in
from genesis.codegen.cuda.source import RELEASE, WAIT, KernelSource, letting_next_begin, waiting_last
from genesis.engine.backends import backend_named
from genesis.ir import Graph
from genesis.ir.node import Node
from genesis.ir.ops import contraction, indexing, leaves
from genesis.ir.ops import pointwise as p
from genesis.ir.ops.movement import permute
from genesis.ir.ops.norm import rms_norm
from genesis.ir.types import bfloat16, int64
from genesis.passes import structural_memo
from genesis.passes.fusion.fuse import fuse
from genesis.passes.graph.matrix_vector import matrix_vector
from genesis.passes.groups import Schedule
from genesis.passes.memory.schedule import words_first
from genesis.passes.pipeline import run_passes
from genesis.runtime.overlap import EARLY, LAST, Overlap
from genesis.runtime.plan import KernelImage
from tests.codegen.cuda.evaluate import decomposed, evaluate
from tests.codegen.cuda.programs import GPU, an_input, inputs, some
from tests.codegen.cuda.run_interpreted import compile_cubin, empty, run_source
from tests.codegen.cuda.test_machine_code import ptx_of


def gated(rows: int, depth: int) -> Graph:
    """A norm of one vector, and two products of it, of which one is the other's gate."""
    x, gain, gate, up = inputs((1, depth), (depth,), (rows, depth), (rows, depth), dtype=bfloat16)
    normed = rms_norm(x, gain, ndim=1, eps=1e-6)
    one, two = (contraction.matmul(normed, permute(w, axes=(1, 0))) for w in (gate, up))
    return matrix_vector(decomposed(Graph((x, gain, gate, up), (p.mul(p.sigmoid(one), two),))))


def kernel_of(graph: Graph, settled: frozenset[Node] | None = None) -> KernelSource:
    """The one kernel of a program."""
    group, = fuse(graph).groups
    return emit(group, settled=settled_in(graph) if settled is None else settled)


def parts(kernel: KernelSource) -> tuple[list[str], list[str]]:
    """The kernel's lines before its wait, and those behind it."""
    body = kernel.source.partition(f"def {kernel.name}(")[2].partition("):\n")[2]
    lines = [line.strip() for line in body.splitlines()]
    return lines[:lines.index(WAIT)], lines[lines.index(WAIT):]


def of_weights(graph: Graph) -> frozenset[Node]:
    """All inputs but the vector."""
    return frozenset(graph.inputs[1:])


def test_rows_of_matrices_are_read_before_the_wait_and_the_vector_behind_it() -> None:
    graph = gated(3072, 1024)
    before, behind = parts(kernel_of(graph, of_weights(graph)))
    read = [line for line in before[before.index(EARLY):] if "tl.load" in line]
    assert {line.split("tl.load(")[1][:3] for line in read} == {"in1", "in2", "in3"}
    assert [line for line in behind if "tl.load" in line] == ["in0_at = tl.load(in0 + r).to(tl.float32)"]
    assert not any("g_ask(in2" in line or "g_ask(in3" in line for line in before)


def test_values_wait_as_they_lie_in_memory() -> None:
    """Converted to float32 they would fill twice the registers."""
    graph = gated(3072, 1024)
    before, behind = parts(kernel_of(graph, of_weights(graph)))
    assert not any(".to(tl.float32)" in line for line in before)
    assert sum("_early.to(tl.float32)" in line for line in behind) == 3


def test_what_the_program_writes_is_not_read_early() -> None:
    graph = gated(3072, 1024)
    up = graph.inputs[3]
    written = Graph(graph.inputs, graph.outputs, ((up, p.mul(up, up)),))
    assert settled_in(written) == frozenset(graph.inputs) - {up}
    group = next(group for group in fuse(written).groups if group.outputs == graph.outputs)
    before, behind = parts(emit(group, settled=settled_in(written)))
    name = f"in{group.inputs.index(up)}"
    assert any(f"tl.load({name} " in line for line in behind) and not any(f"tl.load({name} " in x for x in before)


def test_small_matrices_and_kernels_that_write_whole_rows_wait() -> None:
    assert EARLY not in kernel_of(gated(64, 64)).source
    x, gain = inputs((4096, 1024), (1024,))
    assert EARLY not in kernel_of(decomposed(Graph((x, gain), (rms_norm(x, gain, ndim=1, eps=1e-6),)))).source
    a, b = inputs((1 << 20,), (1 << 20,))
    assert EARLY not in kernel_of(Graph((a, b), (a * b,))).source
    assert EARLY not in kernel_of(gated(3072, 1024), frozenset()).source


def test_the_first_kernel_of_a_plan_may_start_while_the_one_before_the_plan_ends() -> None:
    a, b, x = inputs((2048, 1024), (2048, 1024), (1, 1024))
    one, two = (contraction.matmul(x, permute(w, axes=(1, 0))) for w in (a, b))
    schedule = fuse(matrix_vector(Graph((a, b, x), (one, p.exp(two)))))
    sources: list[KernelSource] = []

    def compiled(found: Sequence[KernelSource]) -> list[KernelImage]:
        sources.extend(found)
        return [KernelImage(x.name, b"", 1, 0, x.source) for x in found]
    kernels_of(schedule, compiled, H200)
    assert [EARLY in x.source for x in sources] == [False, *[True] * (len(sources) - 1)] and len(sources) > 1


def test_a_gpu_that_starts_no_kernel_early_reads_none_early() -> None:
    graph = gated(3072, 1024)
    group, = fuse(graph).groups
    assert EARLY not in emit(group, MODELS["l4"], settled_in(graph)).source


@pytest.mark.parametrize(("rows", "block"), [(132 * 2, 1), (3072, 2), (1 << 17, 2)])
def test_programs_of_one_warp_take_rows_while_enough_warps_are_left(rows: int, block: int) -> None:
    """Four rows of two matrices would fill 128 registers."""
    assert kernel_of(gated(rows, 1024)).constexprs["XBLOCK"] == (block if rows * 1024 * 2 >= 1 << 20 else 1)


@pytest.mark.parametrize(("rows", "depth"), [(7, 96), (5, 1024), (6, 3000)])
@pytest.mark.parametrize("several", [False, True])
def test_the_results_are_the_same(rows: int, depth: int, several: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where blocks of rows reach past the end."""
    monkeypatch.setattr(structural_memo, "_closed", {})
    monkeypatch.setattr(early_loads, "LEAST_BYTES", 0)
    monkeypatch.setattr(early_loads, "ROWS", ((2, 0),) if several else ())
    monkeypatch.setattr(blocks, "ALONE_WARPS", 1)
    graph = gated(rows, depth)
    data = [some(x) for x in graph.inputs]
    kernel = kernel_of(graph, of_weights(graph))
    assert EARLY in kernel.source and kernel.constexprs["XBLOCK"] >= (2 if several and depth == 1024 else 1)
    memory = dict(zip(graph.inputs, data, strict=True)) | {x: empty(x) for x in graph.outputs}
    group, = fuse(graph).groups
    memory |= {x: empty(x) for x in group.outputs}
    run_source(kernel, memory)
    want, = evaluate(graph, data, ())
    torch.testing.assert_close(memory[group.outputs[0]].reshape(want.shape), want, rtol=2**-7, atol=2**-7)


def test_the_machine_loads_before_it_waits() -> None:
    graph = gated(3072, 1024)
    kernel = kernel_of(graph, of_weights(graph))
    before, _, behind = ptx_of(kernel).partition("griddepcontrol.wait")
    assert before.count("ld.global") > behind.count("ld.global") > 0
    assert compile_cubin(kernel)


def small(kernel: KernelSource) -> KernelSource:
    """The kernel on a grid of few programs."""
    return replace(kernel, grid=(24, 1, 1))


def test_a_small_kernel_lets_one_that_reads_early_begin_before_it_waits() -> None:
    a, = inputs((4096,))
    reads, plain = kernel_of(gated(3072, 1024)), kernel_of(Graph((a,), (p.exp(a),)))
    found = letting_next_begin(small(plain), reads, H200).source
    assert found.index(RELEASE) < found.index(WAIT) and compile_cubin(letting_next_begin(small(plain), reads, H200))
    for kernel, after in ((small(plain), plain), (replace(plain, grid=(5000, 1, 1)), reads)):
        assert letting_next_begin(kernel, after, H200) is kernel


def look_up_and_gradient(dependent: bool = False) -> Schedule:
    """Rows of a table, and the table's gradient by blocks of their index; `dependent`: the rows that are added are made
    of those that were read."""
    table, index, gradient = an_input(0, (20_000, 32)), an_input(1, (100_000,), int64), an_input(2, (100_000, 32))
    rows = indexing.take(table, index, axis=0)
    added = p.mul(gradient, rows) if dependent else gradient
    summed = indexing.index_add(leaves.full((20_000, 32), 0, table.dtype, GPU), index, added, axis=0)
    return run_passes(Graph((table, index, gradient), (rows, summed)), backend_named("h200"))[1]


def test_a_look_up_runs_beside_the_sorts_of_its_index() -> None:
    """49 programs take 5 us of an H200 for themselves, and the look-up as long."""
    schedule = look_up_and_gradient()
    assert [emit(group).name for group in schedule.groups] == ["words_by_block", "take", "block_sums"]
    kernels = {source.name: source for source, _ in kernels_of(schedule, nothing_compiled, H200) if source is not None}
    text = kernels["take"].source
    assert text.index(LAST) < text.index(RELEASE) < text.index("tl.load") < text.index("tl.store") < text.index(WAIT)
    assert compile_cubin(kernels["take"])
    for name in ("words_by_block", "block_sums"):
        text = kernels[name].source
        assert LAST not in text and text.index(WAIT) < text.index(RELEASE)
    image = KernelImage("take", b"", 4, 0, kernels["take"].source)
    assert image.overlap is Overlap.WAITS_LAST and image.lets_next_begin


def test_what_the_gradient_is_made_of_still_comes_after_the_sorts_and_waits_first() -> None:
    schedule = look_up_and_gradient(dependent=True)
    kernels = [source for source, _ in kernels_of(schedule, nothing_compiled, H200) if source is not None]
    names = [kernel.name for kernel in kernels]
    assert names.index("words_by_block") < names.index("block_sums") and sum(LAST in k.source for k in kernels) <= 1
    assert all(LAST not in kernel.source for kernel in kernels if kernel.name == "block_sums")


def test_only_a_kernel_that_ends_at_its_end_waits_there() -> None:
    a, = inputs((4096,))
    plain = kernel_of(Graph((a,), (p.exp(a),)))
    ends = replace(plain, source=plain.source.replace("    x = ", "    if False:\n        return\n    x = ", 1))
    assert waiting_last(ends) is ends and LAST in waiting_last(plain).source
    assert letting_next_begin(small(plain), waiting_last(plain), H200).source == plain.source


def test_what_writes_to_the_programs_memory_keeps_its_place() -> None:
    schedule = look_up_and_gradient()
    words, take, sums = schedule.groups
    table = schedule.graph.inputs[0]
    writing = replace(schedule, groups=(take, words, sums),
                      graph=Graph(schedule.graph.inputs, schedule.graph.roots, ((table, take.outputs[0]),)))
    assert words_first(replace(schedule, groups=(take, words, sums))).groups == (words, take, sums)
    assert words_first(writing).groups == (take, words, sums)


def nothing_compiled(sources: Sequence[KernelSource]) -> list[KernelImage]:
    """An image of each kernel that has its text alone."""
    return [KernelImage(source.name, b"", source.num_warps, 0, source.source) for source in sources]
