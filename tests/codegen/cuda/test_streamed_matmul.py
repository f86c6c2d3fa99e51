"""Products whose blocks the copy engine moves: the operands' order, epilogues, what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from math import gcd

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200, MODELS
from genesis.codegen.cuda.source import Exchange, KernelSource, MatrixMap
from genesis.codegen.cuda.templates import product_choice, streamed_matmul
from genesis.codegen.cuda.templates.streamed_matmul import FEW_TILES, FewTiles, Form
from genesis.codegen.cuda.templates.tile import Tile
from genesis.codegen.cuda.worker import compile_kernel
from genesis.ir import Graph, Node
from genesis.ir.ops import movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.contraction import matmul, matmul_split_k, swap_last
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.types import DType, bfloat16, float16, float32, float64
from genesis.passes import structural_memo
from genesis.passes.fusion.fuse import fuse
from genesis.passes.product_times import TILE_ROWS, splits_of_tiles
from tests.codegen.cuda import run_interpreted
from tests.codegen.cuda.evaluate import decomposed, evaluate
from tests.codegen.cuda.gluon_threads import run_gluon
from tests.codegen.cuda.programs import TOLERANCE, inputs, some
from tests.codegen.cuda.run_interpreted import _memory, compile_cubin, empty, run_source
from tests.codegen.cuda.test_attention import stack_bytes
from tests.codegen.cuda.test_machine_code import ptx_of
from tests.sweeping import by_default, each_value, sweep_but

SMALL = replace(H200, multiprocessors=2)
"""A GPU that two tiles keep busy, so that small products are streamed."""


def check(operands: tuple[Node, ...], *outputs: Node) -> KernelSource:
    """One kernel, which gives torch's values."""
    graph = decomposed(Graph(operands, outputs))
    group, = fuse(graph).groups
    kernel = emit(group, SMALL)
    data = [some(x) for x in operands]
    memory = {x: data[x["index"]].contiguous() for x in graph.nodes if x.op.name == "input"}
    memory |= {x: empty(x) for x in group.outputs}
    run_source(kernel, memory)
    for node, want in zip(graph.roots, evaluate(graph, data), strict=True):
        allowed = TOLERANCE[node.dtype.name]
        torch.testing.assert_close(_memory(node, memory).reshape(want.shape), want, rtol=allowed, atol=allowed)
    return kernel


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("dtype", [float16, bfloat16], ids=str)
def test_every_order_of_the_operands(dtype: DType, turned: tuple[bool, bool]) -> None:
    rows, depth, columns = 264, 136, 400
    a, b = inputs((depth, rows) if turned[0] else (rows, depth), (columns, depth) if turned[1] else (depth, columns),
                  dtype=dtype)
    kernel = check((a, b), matmul(swap_last(a) if turned[0] else a, swap_last(b) if turned[1] else b))
    assert kernel.name == "streamed_matmul" and kernel.plain.count("_map.load(") == 2
    assert ("a_map.load([start, row]).T" in kernel.plain) == turned[0]


def test_a_part_of_a_packed_matrix_is_read_where_it_lies() -> None:
    packed, weight = inputs((256, 768), (256, 256), dtype=bfloat16)
    middle = movement.slice(packed, starts=(0, 256), stops=(256, 512), steps=(1, 1))
    kernel = check((packed, weight), matmul(middle, weight))
    assert kernel.args[0].start == 256 and kernel.args[0].stride == 768  # type: ignore[union-attr]


def test_pointwise_work_on_the_tiles() -> None:
    x, w, bias, other = inputs((256, 128), (384, 128), (384,), (256, 384), dtype=bfloat16)
    y = matmul(x, swap_last(w))
    kernel = check((x, w, bias, other), (y + movement.expand(bias, shape=(256, 384))) * other)
    assert kernel.name.startswith("streamed_matmul_") and "out0_map" in kernel.signature


def test_the_product_and_what_is_made_of_it() -> None:
    x, w = inputs((256, 128), (384, 128), dtype=bfloat16)
    y = matmul(x, swap_last(w))
    kernel = check((x, w), y, y * y)
    assert "out_map" in kernel.signature


@pytest.mark.parametrize("shapes, why", [
    (((256, 100), (100, 256)), "rows of 200 bytes"),
    (((100, 256), (256, 256)), "fewer rows than a tile has"),
    (((2, 256, 128), (2, 128, 256)), "batches"),
])
def test_what_is_not_streamed(shapes: tuple[tuple[int, ...], ...], why: str) -> None:
    a, b = inputs(*shapes, dtype=bfloat16)
    assert emit(fuse(Graph((a, b), (matmul(a, b),))).groups[0], SMALL).name != "streamed_matmul", why


def test_other_gpus_and_dtypes_have_none() -> None:
    a, b = inputs((256, 128), (128, 256), dtype=bfloat16)
    group = fuse(Graph((a, b), (matmul(a, b),))).groups[0]
    assert emit(group, replace(MODELS["a100"], multiprocessors=2)).name == "matmul"
    a, b = inputs((256, 128), (128, 256), dtype=float64)
    assert emit(fuse(Graph((a, b), (matmul(a, b),))).groups[0], SMALL).name == "matmul"


@by_default("True")
@pytest.mark.parametrize("turned", [False, True])
def test_it_compiles_for_hopper(turned: bool) -> None:
    a, b = inputs((4096, 4096), (4096, 4096), dtype=bfloat16)
    kernel = emit(fuse(Graph((a, b), (matmul(swap_last(a) if turned else a, b),))).groups[0])
    assert kernel.name == "streamed_matmul" and kernel.grid == (132, 1, 1) and compile_cubin(kernel)


EPILOGUES = {
    "bias": lambda y, bias, other: y + bias,
    "relu": lambda y, bias, other: p.maximum(y + bias, y * 0.0),
    "residual": lambda y, bias, other: y + other,
    "divided": lambda y, bias, other: p.cast(p.cast(y, dtype=float32) / p.cast(other, dtype=float32), dtype=bfloat16),
    "compared": lambda y, bias, other: p.gt(y, other),
    "wide": lambda y, bias, other: p.cast(y, dtype=float32) * 2.0,
}


@by_default("residual")
@pytest.mark.parametrize("name", sweep_but(lambda name: name in ("residual", "compared"), EPILOGUES))
def test_an_epilogue_compiles_for_hopper(name: str) -> None:
    x, w, bias, other = inputs((1024, 512), (2048, 512), (2048,), (1024, 2048), dtype=bfloat16)
    y = EPILOGUES[name](matmul(x, swap_last(w)), movement.expand(bias, shape=(1024, 2048)), other)
    kernel = emit(fuse(decomposed(Graph((x, w, bias, other), (y,)))).groups[0])
    assert kernel.name.startswith("streamed_matmul") and kernel.plain and compile_cubin(kernel)


@by_default("size5-tanh-True")
@pytest.mark.parametrize(("size", "approximate", "beside"), sweep_but(
    lambda size, approximate, beside: (size[0] > 768) is (approximate == "tanh") and beside,
    [(768, 3072), (4096, 14336)], ["tanh", "none"], [False, True]))
def test_a_gelu_beside_sums_spills_no_registers(size: tuple[int, int], approximate: str, beside: bool) -> None:
    """The L1 has no room for spilled registers beside the blocks: they would go to the L2 and back."""
    depth, columns = size
    x, w, bias = inputs((16384, depth), (columns, depth), (columns,), dtype=bfloat16)
    y = matmul(x, swap_last(w)) + movement.expand(bias, shape=(16384, columns))
    outputs = (p.gelu(y, approximate=approximate), *([y] if beside else []))
    kernel = emit(fuse(decomposed(Graph((x, w, bias), outputs)), gpu=H200).groups[0])
    assert kernel.name.startswith("streamed_matmul_add_") and stack_bytes(compile_cubin(kernel)) == 0
    assert sum(argument.__class__ is MatrixMap for argument in kernel.args) == 3 + beside


@pytest.fixture
def only_form(monkeypatch: pytest.MonkeyPatch) -> Callable[[Form], None]:
    """Makes all streamed products take a form."""
    def use(form: Form) -> None:
        monkeypatch.setattr(streamed_matmul, "FORMS", (form,))
        monkeypatch.setattr(structural_memo, "_closed", {})
    return use


LARGE = Form(Tile(128, 256, 64, 8, 4), 1, False, 1.0, 0, 0)
FORMS = {"large": LARGE, "turns": Form(Tile(128, 128, 64, 4, 5), 2, False, 1.0, 0, 0),
         "shared": replace(LARGE, shared=True)}
SHARED = replace(LARGE, tile=Tile(128, 128, 64, 8, 4), shared=True)
"""With tiles that small products have several of."""


@pytest.mark.parametrize("shape, programs", [((264, 704, 400), 5), ((256, 1024, 256), 3), ((256, 1024, 256), 5),
                                             ((384, 512, 136), 5), ((264, 136, 400), 8), ((128, 64, 264), 5)], ids=str)
def test_programs_share_the_sums_of_tiles(only_form: Callable[[Form], None], monkeypatch: pytest.MonkeyPatch,
                                          shape: tuple[int, int, int], programs: int) -> None:
    """Tiles that all programs share, whole tiles after them, and programs that have no part."""
    only_form(SHARED)
    monkeypatch.setitem(globals(), "SMALL", replace(H200, multiprocessors=programs))
    rows, depth, columns = shape
    a, b = inputs((rows, depth), (depth, columns), dtype=bfloat16)
    kernel = check((a, b), matmul(a, b))
    assert "parts" in kernel.signature and kernel.grid == (programs, 1, 1)


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize("splits", [2, 3, 5])
def test_each_split_of_a_sum_has_a_matrix_of_its_own(monkeypatch: pytest.MonkeyPatch, splits: int,
                                                     turned: tuple[bool, bool]) -> None:
    monkeypatch.setattr(product_choice, "PART_TILES", streamed_matmul.PART_TILES[splits % 4:])
    monkeypatch.setattr(product_choice, "PART_FORMS", streamed_matmul.PART_FORMS[splits % 4:])
    monkeypatch.setattr(structural_memo, "_closed", {})
    rows, depth, columns = 264, 712, 400
    a, b = inputs((depth, rows) if turned[0] else (rows, depth), (columns, depth) if turned[1] else (depth, columns),
                  dtype=bfloat16)
    operands = swap_last(a) if turned[0] else a, swap_last(b) if turned[1] else b
    kernel = check((a, b), matmul_split_k(*operands, splits=splits, multiple=64))
    assert kernel.name == "streamed_matmul_split_k" and f"tiles * {splits}, PROGRAMS" in kernel.source


def test_splits_of_a_sum_compile_for_hopper() -> None:
    a, b = inputs((264, 7736), (7736, 2464), dtype=bfloat16)
    kernel = emit(fuse(Graph((a, b), (matmul_split_k(a, b, splits=4, multiple=64),))).groups[0])
    cubin = compile_cubin(kernel)
    assert kernel.name == "streamed_matmul_split_k" and not stack_bytes(cubin)


@pytest.mark.parametrize("sharing", [0, 10_000])
def test_a_kernel_shares_tiles_where_that_pays(only_form: Callable[[Form], None], monkeypatch: pytest.MonkeyPatch,
                                               sharing: int) -> None:
    """It sees by its sizes, which may be any of a class, whether programs would be idle for longer than handing over
    takes. No part is handed over if not."""
    only_form(replace(SHARED, sharing=sharing))
    exchanged, argument = [], run_interpreted._argument

    def noted(value: object, memory: dict[Node, torch.Tensor]) -> object:
        found = argument(value, memory)
        if isinstance(value, Exchange):
            exchanged.append(found)
        return found
    monkeypatch.setattr(run_interpreted, "_argument", noted)
    monkeypatch.setitem(globals(), "SMALL", replace(H200, multiprocessors=5))
    a, b = inputs((264, 704), (704, 400), dtype=bfloat16)
    kernel = check((a, b), matmul(a, b))
    assert f"<= {sharing} * PROGRAMS // (steps * K) + tiles // 20" in kernel.source
    parts = [memory for memory in exchanged if memory.dtype is torch.float32]
    assert len(parts) == 1 and bool(parts[0].any()) == (not sharing)


def test_work_on_shared_tiles_is_done_once(only_form: Callable[[Form], None]) -> None:
    only_form(SHARED)
    x, w, bias = inputs((256, 768), (384, 768), (384,), dtype=bfloat16)
    y = matmul(x, swap_last(w)) + movement.expand(bias, shape=(256, 384))
    assert "parts" in check((x, w, bias), y * y).signature


def summed(rows: int, depth: int, columns: int, *, packed: bool = False) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Work on a product's elements that is not 0 where they are, and the sums of its columns by tiles."""
    wide = depth + 2 if packed else depth
    dy, w, x = inputs((rows, wide), (depth, columns), (rows, columns), dtype=bfloat16)
    part = movement.slice(dy, starts=(0, 1), stops=(rows, depth + 1), steps=(1, 1)) if packed else dy
    dx = matmul(part, w) * x + 1.0
    return (dy, w, x), (dx, reduce_splits(dx, how="sum", axes=(0,), splits=splits_of_tiles(rows), multiple=TILE_ROWS))


def check_sums(operands: tuple[Node, ...], outputs: tuple[Node, ...],
               run: Callable[..., None] = run_source) -> KernelSource:
    """One kernel for both, which gives torch's values."""
    graph = decomposed(Graph(operands, outputs))
    group, = fuse(graph, gpu=SMALL).groups
    assert group.kind == "matmul" and len(group.outputs) == 2
    kernel = emit(group, SMALL)
    data = [some(x) for x in operands]
    memory = {x: data[x["index"]].contiguous() for x in graph.nodes if x.op.name == "input"}
    memory |= {x: empty(x) for x in group.outputs}
    run(kernel, memory)
    dy, w, x = (value.double() for value in data)
    want = (dy if dy.shape[1] == len(w) else dy[:, 1:-1]) @ w * x + 1.0
    parts = torch.stack([rows.sum(0) for rows in want.split(TILE_ROWS)])
    for node, value in zip(graph.roots, (want, parts), strict=True):
        found = _memory(node, memory).reshape(value.shape).double()
        torch.testing.assert_close(found, value, rtol=0.01 if value is want else 1e-5, atol=1e-3)
    return kernel


@each_value
@pytest.mark.parametrize("shape", [(264, 136, 400), (384, 64, 384), (260, 72, 520)], ids=str)
@pytest.mark.parametrize("name", ["large", "turns", "small and shared"])
def test_the_columns_of_tiles_are_summed(only_form: Callable[[Form], None], name: str,
                                         shape: tuple[int, int, int]) -> None:
    """The last tile's rows behind the end are no part of its sums, though what is made of them is 1."""
    only_form(SHARED if name == "small and shared" else FORMS[name])
    kernel = check_sums(*summed(*shape))
    assert kernel.name.startswith("streamed_matmul_") and ("parts" in kernel.signature) == (name == "small and shared")


def test_the_columns_of_tiles_that_are_read_by_pointers_are_summed() -> None:
    """What the copy engine cannot read is read in tiles of as many rows."""
    kernel = check_sums(*summed(300, 72, 400, packed=True))
    assert kernel.name.startswith("matmul_") and kernel.constexprs["I"] == TILE_ROWS


@pytest.mark.parametrize("name", FORMS)
def test_threads_sum_the_columns_of_tiles(only_form: Callable[[Form], None], name: str) -> None:
    only_form(replace(FORMS[name], tile=replace(FORMS[name].tile, j=128)))
    check_sums(*summed(264, 264, 400), run=lambda kernel, memory: run_gluon(kernel, memory, 3, launches=2))


def test_other_sums_are_no_part_of_a_products_kernel() -> None:
    """Sums of other splits, of rows, other reductions; and where no tile is stored beside sums."""
    operands, (dx, sums) = summed(264, 136, 400)
    others = [reduce_splits(dx, how="sum", axes=(0,), splits=3, multiple=1),
              reduce_splits(dx, how="sum", axes=(0,), splits=4, multiple=TILE_ROWS),
              reduce_splits(dx, how="max", axes=(0,), splits=3, multiple=TILE_ROWS), r.sum(dx, axes=(1,))]
    for other in others:
        found = fuse(decomposed(Graph(operands, (dx, other))), gpu=SMALL)
        assert len(found.groups) == 2 and any("whole columns" in missed.why for missed in found.missed)
    smaller = replace(MODELS["a100"], multiprocessors=2)
    assert len(fuse(decomposed(Graph(operands, (dx, sums))), gpu=smaller).groups) == 2


@by_default("turns-True")
@pytest.mark.parametrize(("name", "short"), sweep_but(
    lambda name, short: (name, short) in (("large", False), ("turns", True), ("shared", False)), FORMS, [False, True]))
def test_a_gelu_s_gradient_and_its_sums_spill_no_registers(only_form: Callable[[Form], None], name: str,
                                                           short: bool) -> None:
    """What a short one reads is asked for before the sums begin, in whole tiles."""
    only_form(FORMS[name])
    dy, w, h, b = inputs((16384, 768), (768, 3072), (16384, 3072), (3072,), dtype=bfloat16)
    x = h + movement.expand(b, shape=(16384, 3072))
    s = p.sigmoid(x * (x * x * 0.0713548 + 1.5957691))
    dx = matmul(dy, w) * (s * (x * (1.0 - s) * (x * x * 0.2140645 + 1.5957691) + 1.0))
    dx = matmul(dy, w) * h if short else dx
    sums = reduce_splits(dx, how="sum", axes=(0,), splits=128, multiple=TILE_ROWS)
    operands, outputs = ((dy, w, h), (dx, sums)) if short else ((dy, w, h, b), (dx, sums, x * s))
    group, = fuse(decomposed(Graph(operands, outputs)), gpu=H200).groups
    kernel = emit(group)
    assert kernel.name.startswith("streamed_matmul_") and ("ahead" in kernel.source) == (short and name != "shared")
    compiled = compile_kernel(kernel.key_parts(), 90)
    assert stack_bytes(compiled["cubin"]) == 0 and compiled["shared_bytes"] <= H200.block_shared_memory


def gated(rows: int, depth: int, columns: int,
          opening: Callable[[Node], Node] = p.sigmoid) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """A gate's gradient, its factor's, and the gated value again, of the product that is the gradient of that."""
    dy, w, gate, factor = inputs((rows, depth), (depth, columns), (rows, columns), (rows, columns), dtype=bfloat16)
    s = opening(gate)
    opened, dx = gate * s, matmul(dy, w)
    return (dy, w, gate, factor), (dx * factor * (s * (1.0 + gate * (1.0 - s))), dx * opened, opened * factor)


@pytest.mark.parametrize("threads", [False, True], ids=["interpreted", "threads"])
def test_a_gate_s_gradients_are_made_of_the_product_s_tiles(only_form: Callable[[Form], None], threads: bool) -> None:
    """Two values are read for each element, and three stored, an odd number of pieces through two blocks in turn. In
    threads there is no assembly, and another function opens the gate."""
    only_form(FORMS["turns"])
    operands, outputs = gated(264, 960, 400, (lambda x: x * 0.25 + 0.5) if threads else p.sigmoid)
    graph = decomposed(Graph(operands, outputs))
    group, = fuse(graph, gpu=SMALL).groups
    kernel = emit(group, SMALL)
    assert [x for x in kernel.signature if x.startswith("out")] == ["out0_map", "out1_map", "out2_map"]
    data = [some(x) for x in operands]
    memory = {x: data[x["index"]].contiguous() for x in graph.nodes if x.op.name == "input"}
    memory |= {x: empty(x) for x in group.outputs}
    if threads:
        run_gluon(kernel, memory, 5, launches=2)
    else:
        run_source(kernel, memory)
    dy, w, gate, factor = (value.double() for value in data)
    s, dx = gate * 0.25 + 0.5 if threads else gate.sigmoid(), dy @ w
    wanted = (dx * factor * s * (1 + gate * (1 - s)), dx * gate * s, gate * s * factor)
    for node, want in zip(graph.roots, wanted, strict=True):
        torch.testing.assert_close(_memory(node, memory).reshape(want.shape).double(), want, rtol=0.01, atol=1e-3)


def test_what_memory_moves_for_longer_than_the_sums_take_is_no_part_of_a_product_s_kernel() -> None:
    operands, outputs = gated(264, 512, 400)
    found = fuse(decomposed(Graph(operands, outputs)), gpu=SMALL)
    assert len(found.groups) == 2 and any("memory takes longer" in missed.why for missed in found.missed)


def test_a_gate_s_gradients_spill_next_to_no_registers() -> None:
    """Seven of 240, once a tile: those of its loop's bounds. Triton 3.9, which no GPU here has run, spills twelve."""
    most = 32 if version("triton").startswith("3.6.") else 48
    group, = fuse(decomposed(Graph(*gated(8192, 2048, 8192))), gpu=H200).groups
    kernel = emit(group)
    assert kernel.constexprs["J"] == 128 and stack_bytes(compile_cubin(kernel)) <= most


@pytest.fixture
def streamed_by_threads(only_form: Callable[[Form], None], monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a product and its square, whose results go through the same blocks of shared memory, in Gluon."""
    def run(name: str, turned: tuple[bool, bool], seed: int, without: str = "nothing") -> None:
        only_form(replace(FORMS[name], tile=replace(FORMS[name].tile, j=128)))
        a, b = inputs((264, 264), (400, 264) if turned[1] else (264, 400), dtype=bfloat16)
        y = matmul(swap_last(a) if turned[0] else a, swap_last(b) if turned[1] else b)
        graph = decomposed(Graph((a, b), (y, y * y)))
        group, = fuse(graph).groups
        kernel = emit(group, replace(H200, multiprocessors=5))
        assert kernel.name.startswith("streamed_matmul") and ("parts" in kernel.signature) == (name == "shared")
        assert without == "nothing" or without in kernel.source
        instead = "while False:" if "while" in without else "None"
        kernel = replace(kernel, source="\n".join(re.sub(r"\S.*", instead, line) if without in line else line
                                                  for line in kernel.source.splitlines()))
        data = [some(x) for x in (a, b)]
        memory = {x: data[x["index"]].contiguous() for x in graph.nodes if x.op.name == "input"}
        memory |= {x: empty(x) for x in group.outputs}
        run_gluon(kernel, memory, seed, launches=2)
        for node, want in zip(graph.roots, evaluate(graph, data), strict=True):
            allowed = TOLERANCE[node.dtype.name]
            torch.testing.assert_close(_memory(node, memory).reshape(want.shape), want, rtol=allowed, atol=allowed)
    return run


@pytest.mark.parametrize("turned", [(False, True), (True, False)])
@pytest.mark.parametrize("name", FORMS)
def test_groups_of_warps_that_wait_for_each_other(streamed_by_threads: Callable[..., None], name: str,
                                                  turned: tuple[bool, bool]) -> None:
    streamed_by_threads(name, turned, seed=len(name))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # whichever thread sees it
@pytest.mark.parametrize("name, line", [
    ("large", "mbarrier.wait(full"), ("large", "mbarrier.wait(empty"), ("large", "tma.store_wait(1)"),
    ("turns", "mbarrier.wait(turns"), ("shared", "while ready == 0"), ("shared", "tl.atomic_xchg(flag, 0"),
])
def test_a_line_that_is_missing_is_seen(streamed_by_threads: Callable[..., None], name: str, line: str) -> None:
    for seed in range(10):
        try:
            streamed_by_threads(name, (False, True), seed, line)
        except AssertionError as error:
            assert "not " in str(error) or "deadlock" in str(error) or "barrier" in str(error) or "flags" in str(error)
            return
    pytest.fail("nothing was seen")


@by_default("large", "turns")
@pytest.mark.parametrize("name", FORMS)
def test_every_form_compiles_for_hopper(only_form: Callable[[Form], None], name: str) -> None:
    only_form(FORMS[name])
    a, b = inputs((16384, 768), (16384, 3072), dtype=bfloat16)
    kernel = emit(fuse(Graph((a, b), (matmul(swap_last(a), b),))).groups[0])
    assert kernel.name == "streamed_matmul" and compile_cubin(kernel)


def at_odd_places(columns: int, gelu: bool = False) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """A product with rows that the copy engine cannot store."""
    x, w, bias = inputs((264, 136), (columns, 136), (columns,), dtype=bfloat16)
    y = matmul(x, swap_last(w)) + movement.expand(bias, shape=(264, columns))
    return (x, w, bias), (p.gelu(y), y) if gelu else (y,)


@by_default("large-397")
@pytest.mark.parametrize(("name", "columns"), sweep_but(
    lambda name, columns: (name, columns) in (("large", 397), ("turns", 398), ("shared", 396)), FORMS, [397, 398, 396]))
def test_rows_at_odd_places_are_stored_along_the_rows(only_form: Callable[[Form], None], name: str,
                                                      columns: int) -> None:
    """Tensor cores leave two neighbours to a thread and eight rows to a warp: it would write to eight rows at once."""
    only_form(replace(FORMS[name], tile=replace(FORMS[name].tile, j=128)))
    operands, outputs = at_odd_places(columns)
    group, = fuse(decomposed(Graph(operands, outputs))).groups
    kernel = emit(group, replace(H200, multiprocessors=5))
    data = [some(x) for x in operands]
    memory = {x: data[x["index"]].contiguous() for x in operands} | {x: empty(x) for x in group.outputs}
    run_gluon(kernel, memory, launches=2)
    for node, want in zip(outputs, evaluate(Graph(operands, outputs), data), strict=True):
        torch.testing.assert_close(_memory(node, memory).reshape(want.shape), want, rtol=1e-2, atol=1e-2)
    stores, width = re.findall(r"st\.global\.(\S+)", ptx_of(kernel)), {1: "b16", 2: "b32", 4: "v2.b32"}[gcd(columns, 4)]
    assert kernel.name == "streamed_matmul_add" and width in stores and "convert_layout(part, by_rows)" in kernel.source


@by_default("large-True")
@pytest.mark.parametrize(("name", "gelu"), sweep_but(
    lambda name, gelu: (name, gelu) in (("large", True), ("shared", False)), FORMS, [False, True]))
def test_what_stores_along_the_rows_has_room(only_form: Callable[[Form], None], name: str, gelu: bool) -> None:
    only_form(FORMS[name])
    group, = fuse(decomposed(Graph(*at_odd_places(4097, gelu))), gpu=SMALL).groups
    compiled = compile_kernel(emit(group, SMALL).key_parts(), 90)
    assert stack_bytes(compiled["cubin"]) == 0 and compiled["shared_bytes"] <= H200.block_shared_memory


@pytest.fixture
def only_few(monkeypatch: pytest.MonkeyPatch) -> Callable[[FewTiles], None]:
    """Makes all streamed products with few tiles take one of these, faster than any that is read by pointers."""
    def use(few: FewTiles) -> None:
        monkeypatch.setattr(product_choice, "FEW_TILES", (replace(few, block=0.0, line=0.0, ends=0.0),))
        monkeypatch.setattr(structural_memo, "_closed", {})
    return use


@pytest.mark.parametrize("turned", [(False, False), (False, True), (True, False), (True, True)])
@pytest.mark.parametrize("few", FEW_TILES, ids=lambda x: f"{x.form.tile.i}x{x.form.tile.j}")
def test_few_tiles_are_one_a_program(only_few: Callable[[FewTiles], None], monkeypatch: pytest.MonkeyPatch,
                                     few: FewTiles, turned: tuple[bool, bool]) -> None:
    """Behind a bias and an activation, of rows and columns that no tile divides."""
    only_few(few)
    monkeypatch.setitem(globals(), "SMALL", replace(H200, multiprocessors=48))
    rows, depth, columns = 136, 136, 264
    a, b, bias = inputs((depth, rows) if turned[0] else (rows, depth), (columns, depth) if turned[1] else
                        (depth, columns), (columns,), dtype=bfloat16)
    y = matmul(swap_last(a) if turned[0] else a, swap_last(b) if turned[1] else b)
    kernel = check((a, b, bias), p.maximum(y + movement.expand(bias, shape=(rows, columns)), y * 0.0))
    assert kernel.name.startswith("streamed_matmul_") and kernel.constexprs["J"] == few.form.tile.j


def test_programs_with_several_tiles_of_one_piece_store_one_after_the_other(only_form: Callable[[Form], None]) -> None:
    """As sizes of a class have, which are more tiles than the one that the form was chosen for."""
    only_form(FEW_TILES[0].form)
    a, b = inputs((136, 264), (264, 200), dtype=bfloat16)
    graph = Graph((a, b), (matmul(a, b),))
    kernel = emit(fuse(graph).groups[0], SMALL)
    assert kernel.constexprs["J"] == 64 and kernel.name == "streamed_matmul"
    data = [some(x) for x in (a, b)]
    memory = {a: data[0].contiguous(), b: data[1].contiguous(), graph.outputs[0]: empty(graph.outputs[0])}
    run_gluon(kernel, memory, 1, launches=2)
    want, = evaluate(graph, data)
    torch.testing.assert_close(_memory(graph.outputs[0], memory).reshape(want.shape), want, rtol=0.01, atol=1e-3)


@pytest.mark.parametrize("few", FEW_TILES, ids=lambda x: f"{x.form.tile.i}x{x.form.tile.j}")
def test_few_tiles_compile_for_hopper(only_few: Callable[[FewTiles], None], few: FewTiles) -> None:
    only_few(few)
    a, b = inputs((256, 4096), (384, 4096), dtype=bfloat16)
    kernel = emit(fuse(Graph((a, b), (matmul(a, swap_last(b)),))).groups[0])
    assert kernel.name == "streamed_matmul" and kernel.grid == (132, 1, 1) and compile_cubin(kernel)


@pytest.mark.parametrize(("shape", "turned", "form"), [
    ((2048, 2048, 512), True, "streamed 64x128x64"),
    ((344, 3264, 528), True, "streamed 64x64x64"),
    ((2048, 2048, 1024), True, "streamed 128x128x64"),
    ((2000, 2000, 400), False, "64x128x64"),
    ((4352, 192, 128), True, "64x128x64"),
    ((208, 4096, 3904), False, "64x128x64"),
], ids=["few tiles", "fewer", "more than one a multiprocessor", "rows within lines", "short sums", "from memory"])
def test_few_tiles_are_streamed_where_the_model_says_so(shape: tuple[int, int, int], turned: bool, form: str) -> None:
    rows, depth, columns = shape
    a, b = inputs((rows, depth), (columns, depth) if turned else (depth, columns), dtype=bfloat16)
    kernel = emit(fuse(Graph((a, b), (matmul(a, swap_last(b) if turned else b),))).groups[0])
    assert kernel.choices[0].startswith(f"product {form} ")
