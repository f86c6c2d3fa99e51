"""Products of float32 whose bits all count, with blocks that the copy engine moves: values, machine code, choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from genesis.codegen.cuda.choice_table import Key, Row, Rows
from genesis.codegen.cuda.choices import deciding, noting
from genesis.codegen.cuda.emit import emit, emit_anew
from genesis.codegen.cuda.gpu_model import H200, MODELS
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.streamed_matmul import FMA_FORMS, Form
from genesis.ir import Graph
from genesis.ir.node import Node
from genesis.ir.ops import leaves, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.size_trace import Trace
from genesis.ir.types import Device, DType, float32, float64, tensor_type
from genesis.passes.fusion.fuse import fuse
from genesis.passes.multiply_add_times import STREAMED, StreamedFma, streamed_microseconds
from tests.codegen.cuda.evaluate import decomposed, evaluate
from tests.codegen.cuda.gluon_threads import run_gluon
from tests.codegen.cuda.programs import inputs, some
from tests.codegen.cuda.run_interpreted import _memory, empty, run_source
from tests.codegen.cuda.test_machine_code import ptx_of, remarks
from tests.codegen.cuda.test_product_lines import product
from tests.sweeping import by_default, each_value, sweep_but

LAYOUTS = ("nn", "nt", "tn", "tt")
FEW = replace(H200, multiprocessors=5)
"""A GPU whose programs have several tiles, or share some."""

Program = Callable[[DType], tuple[tuple[Node, ...], tuple[Node, ...]]]
"""Operands and results, in a dtype."""


def kernel_of(form: Form, operands: tuple[Node, ...], *outputs: Node) -> KernelSource:
    """The kernel of a graph that is one, made in a form."""
    group, = fuse(decomposed(Graph(operands, outputs))).groups
    with deciding(Rows([Row(Key("product", ""), form.name)])):
        return emit_anew(group, FEW)


def check(form: Form, program: Program, run: Callable[..., None] = run_gluon) -> KernelSource:
    """The kernel gives the program's values in float64, to what rounding takes of some hundred terms."""
    (operands, outputs), (same, exact) = program(float32), program(float64)
    kernel = kernel_of(form, operands, *outputs)
    data = [some(x) for x in operands]
    memory = {x: data[x["index"]].contiguous() for x in operands} | {x: empty(x) for x in outputs}
    run(kernel, memory)
    reference = evaluate(decomposed(Graph(same, exact)), [x.double() for x in data])
    for node, want in zip(outputs, reference, strict=True):
        torch.testing.assert_close(_memory(node, memory).reshape(want.shape).double(), want, rtol=1e-6, atol=1e-4)
    return kernel


def one_product(rows: int, depth: int, columns: int, layout: str) -> Program:
    """A program that is a product."""
    def program(dtype: DType) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
        operands, node = product(rows, depth, columns, dtype, layout)
        return operands, (node,)
    return program


@each_value
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("form", FMA_FORMS, ids=lambda x: x.name)
@pytest.mark.parametrize(("rows", "depth", "columns"), [(264, 200, 520), (260, 1028, 264), (700, 68, 264)])
def test_values(rows: int, depth: int, columns: int, form: Form, layout: str) -> None:
    kernel = check(form, one_product(rows, depth, columns, layout))
    assert kernel.name == "streamed_matmul" and "dot_fma" in kernel.source and "mma(" not in kernel.source


@pytest.mark.parametrize("form", FMA_FORMS, ids=lambda x: x.name)
def test_the_plain_kernel_is_the_same(form: Form) -> None:
    check(form, one_product(264, 72, 260, "nt"), run_source)


def with_bias(dtype: DType) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """A linear layer and what is made of it, whose rows begin at odd places."""
    x, w, bias = inputs((264, 72), (267, 72), (267,), dtype=dtype)
    y = p.add(matmul(x, movement.permute(w, axes=(1, 0))), movement.expand(bias, shape=(264, 267)))
    return (x, w, bias), (p.mul(y, y),)


@pytest.mark.parametrize("form", FMA_FORMS, ids=lambda x: x.name)
def test_what_is_done_to_a_product(form: Form) -> None:
    assert check(form, with_bias).name.startswith("streamed_matmul_add")


@by_default("*-nt")
@pytest.mark.parametrize(("form", "layout"), sweep_but(
    lambda form, layout: layout == ("tn" if form.shared else "nt"), FMA_FORMS, LAYOUTS),
    ids=lambda x: getattr(x, "name", x))
def test_machine_code(form: Form, layout: str, tmp_path: Path) -> None:
    """Shared memory is read four numbers at a time, each for 21 multiply-adds and more, or 12 in tiles of 128 columns;
    sums stay in registers. (Of the counters of programs that share tiles a few may not.)"""
    operands, node = product(4096, 4096, 4096, float32, layout)
    kernel = kernel_of(form, operands, node)
    text = ptx_of(kernel)
    said = remarks(text, tmp_path)
    assert form.shared or "0 bytes spill stores" in said, said
    lines = text.splitlines()
    reads = [line for line in lines if "ld.shared" in line]
    sums = sum("fma.rn.f32" in line for line in lines)
    assert sums >= form.tile.i * form.tile.j * form.tile.k // (32 * form.tile.num_warps)
    assert sums >= (21 if form.tile.j == 256 else 12) * sum(".v4" in line for line in reads) > 0
    assert sum(".v4" not in line for line in reads) <= 4  # what the warps that load are told


@pytest.mark.parametrize(("shape", "layout", "streamed"), [
    ((4096, 4096, 4096), "nt", True), ((3072, 16384, 768), "tn", True), ((72, 4096, 1200), "nt", False),
    ((4096, 4097, 4096), "nn", False), ((300, 512, 512), "nn", False)], ids=str)
def test_which_products_can_be_streamed(shape: tuple[int, int, int], layout: str, streamed: bool) -> None:
    """Large ones, if rows begin at multiples of 16 bytes."""
    operands, node = product(*shape, float32, layout)
    group, = fuse(Graph(operands, (node,))).groups
    with noting() as taken:
        assert emit_anew(group, H200).name == ("streamed_matmul" if streamed else "matmul")
    names = {x.name for x in taken[0].choice.candidates}
    assert names.issuperset(x.name for x in FMA_FORMS) if streamed else names.isdisjoint(x.name for x in FMA_FORMS)
    for form in FMA_FORMS if streamed else ():
        with deciding(Rows([Row(Key("product", ""), form.name)])):
            assert ("parts" in emit_anew(group, H200).signature) == form.shared
            assert emit_anew(group, MODELS["a100"]).name == "matmul"


@pytest.mark.parametrize(("depth", "streamed"), [(1180, True), (1184, True), (1182, False)])
def test_rows_of_a_length_that_changes(depth: int, streamed: bool) -> None:
    """Only some lengths of a class are multiples of four numbers: a plan is for these, or for the others."""
    trace = Trace(depth=depth)
    with trace:
        length = trace.symbol("depth")
        x, w = (leaves.input(index=i, type=tensor_type((rows, length), float32, Device("cuda", 0)))
                for i, rows in enumerate((1166, 2280)))
        group, = fuse(Graph((x, w), (matmul(x, swap_last(w)),))).groups
        assert emit_anew(group, H200).name == ("streamed_matmul" if streamed else "matmul")


def test_no_batches_are_streamed() -> None:
    operands, node = product(1024, 1024, 1024, float32, "nn", batch=(8,))
    with deciding(Rows([Row(Key("product", ""), x.name) for x in FMA_FORMS])):
        assert emit(fuse(Graph(operands, (node,))).groups[0], H200).name == "batched_matmul"


def test_tiles_are_shared_where_that_is_sooner() -> None:
    """130 tiles for 132 programs are one each: two idle programs are less than parts that are waited for. 144 tiles
    would be two rounds, and 16 would leave 116 programs idle. The kernel asks the same of the sizes that it gets."""
    programs = H200.multiprocessors
    shared, whole = (next(x for x in STREAMED if x.columns == 128 and x.shared == shares) for shares in (True, False))

    def microseconds(form: StreamedFma, *sizes: int) -> float:
        return streamed_microseconds(form, *sizes, programs)
    assert microseconds(shared, 1280, 1616, 1264) == microseconds(whole, 1280, 1616, 1264)
    assert microseconds(shared, 768, 3072, 16384) < 0.6 * microseconds(whole, 768, 3072, 16384)
    assert microseconds(shared, 512, 512, 4096) < 0.2 * microseconds(whole, 512, 512, 4096)
    operands, node = product(1280, 1264, 1616, float32, "nt")
    form = next(x for x in FMA_FORMS if x.tile.j == 128 and x.shared)
    assert form.sharing == shared.idle
    assert f"if PROGRAMS - shared <= {shared.idle} * PROGRAMS // (steps * K):" in kernel_of(form, operands, node).source
