"""Products of float32 whose bits all count: values, which numbers a thread has, machine code, tiles."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
import torch
import triton

from genesis.codegen.cuda.choice_table import Key, Row, Rows
from genesis.codegen.cuda.choices import deciding
from genesis.codegen.cuda.compile import compile_sources
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.fma_matmul_gluon import Laid, threads_of
from genesis.codegen.cuda.templates.product_choice import MORE_TILES
from genesis.codegen.cuda.templates.tile import Tile
from genesis.ir import Graph
from genesis.ir.node import Node
from genesis.ir.ops import movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops.contraction import matmul, matmul_split_k
from genesis.ir.size_trace import Trace
from genesis.ir.types import DType, float32, float64
from genesis.passes import multiply_add_times
from genesis.passes.fusion.fuse import fuse
from genesis.passes.multiply_add_times import FMA_TILES, FmaTile, fastest_fma
from tests.codegen.cuda import run_interpreted
from tests.codegen.cuda.evaluate import decomposed, evaluate
from tests.codegen.cuda.gluon_threads import run_gluon
from tests.codegen.cuda.gpus import GPUS
from tests.codegen.cuda.programs import inputs, some
from tests.codegen.cuda.test_machine_code import ptx_of, remarks
from tests.codegen.cuda.test_product_lines import product
from tests.sweeping import by_default, each_value, sweep_but

LAYOUTS = ("nn", "nt", "tn", "tt")

Program = tuple[tuple[Node, ...], tuple[Node, ...]]
"""Operands and results."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[KernelSource]:
    """Kernels that have run: those in Gluon as they are, others in Triton's interpreter."""
    kernels, interpreted = [], run_interpreted.run_source

    def run(kernel: KernelSource, memory: dict[Node, torch.Tensor]) -> None:
        kernels.append(kernel)
        (run_gluon if "dot_fma" in kernel.source else interpreted)(kernel, memory)
    monkeypatch.setattr(run_interpreted, "run_source", run)
    return kernels


def check(program: Callable[[DType], Program]) -> None:
    """A program in float32 gives its values in float64, to what rounding takes of sums of some hundred terms."""
    (operands, outputs), (same, exact) = program(float32), program(float64)
    graph, reference = (decomposed(Graph(*x)) for x in ((operands, outputs), (same, exact)))
    data = [some(x) for x in operands]
    found = run_interpreted.run_schedule(fuse(graph), data)
    for got, want in zip(found, evaluate(reference, [x.double() for x in data]), strict=True):
        torch.testing.assert_close(got.reshape(want.shape).double(), want, rtol=1e-6, atol=1e-4)


def one_product(rows: int, depth: int, columns: int, *args: object) -> Callable[[DType], Program]:
    """A program that is a product; the arguments are those of `product` after the dtype."""
    def program(dtype: DType) -> Program:
        operands, node = product(rows, depth, columns, dtype, *args)  # type: ignore[arg-type]
        return operands, (node,)
    return program


@pytest.mark.parametrize("seed", range(32))
def test_drawn_products(seed: int, made: list[KernelSource]) -> None:
    rng = Random(seed)
    rows, columns = (rng.choice((5, 16, 17, 19, 24, 36, 64, 70, 101, 136, 257)) for _ in range(2))
    depth = rng.choice((1, 2, 3, 7, 16, 17, 31, 33, 64, 100, 129, 300))
    cuts, batch = (rng.choice((0, 0, 1, 2, 4)), rng.choice((0, 0, 3, 8))), rng.choice(((), (), (3,), (2, 2)))
    check(one_product(rows, depth, columns, LAYOUTS[seed % 4], cuts, batch))
    assert "dot_fma" in made[-1].source


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("depth", [32, 64, 96, 128, 421])
def test_blocks_take_turns_in_shared_memory(layout: str, depth: int, made: list[KernelSource]) -> None:
    check(one_product(40, depth, 33, layout))
    assert made[-1].constexprs["STAGES"] <= depth // 16 + 2


@pytest.mark.parametrize(("depth", "columns", "layout", "held"), [
    (64, 32, "nn", ""), (65, 32, "nn", "a"), (64, 33, "nn", "b"), (65, 33, "nn", "ab"), (65, 32, "tt", "b"),
    (65, 33, "tn", "b"), (66, 34, "nn", "")])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_rows_that_begin_anywhere_come_through_registers(depth: int, columns: int, layout: str, held: str,
                                                         batch: tuple[int, ...], made: list[KernelSource]) -> None:
    """Of 40 rows. A copy of single numbers takes as long as one of four."""
    check(one_product(40, depth, columns, layout, (0, 0), batch))
    text = made[-1].source
    assert "".join(x for x in "ab" if f"{x}_held = tl.load" in text) == held
    assert ("copy_numbers(a" in text, "copy_numbers(b" in text) == ("a" not in held, "b" not in held)


@each_value
@pytest.mark.parametrize("tile", MORE_TILES["ieee"], ids=lambda x: x.name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_tile(tile: Tile, layout: str, made: list[KernelSource]) -> None:
    with deciding(Rows([Row(Key("product", ""), tile.name)])):
        check(one_product(139, 77, 134, layout))
    assert (made[-1].constexprs["I"], made[-1].constexprs["J"]) == (tile.i, tile.j)


@pytest.mark.parametrize(("depth", "splits", "multiple"), [(512, 4, 64), (500, 3, 64), (130, 3, 64), (64, 3, 64)])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_parts_of_sums(depth: int, splits: int, multiple: int, batch: tuple[int, ...],
                       made: list[KernelSource]) -> None:
    def program(dtype: DType) -> Program:
        operands, node = product(40, depth, 24, dtype, "tn", batch=batch)
        return operands, (matmul_split_k(*node.inputs, splits=splits, multiple=multiple),)
    check(program)
    assert made[-1].name == "matmul_split_k" and "dot_fma" in made[-1].source


def with_bias(dtype: DType) -> Program:
    x, w, bias = inputs((70, 40), (40, 50), (50,), dtype=dtype)
    y = matmul(x, w)
    return (x, w, bias), (p.gelu(y + movement.expand(bias, shape=(70, 50))), p.abs(y))


def with_gradient(dtype: DType) -> Program:
    """A weight's gradient, added to what there is."""
    x, y, sum_ = inputs((37, 70), (37, 50), (70, 50), dtype=dtype)
    return (x, y, sum_), (p.add(sum_, matmul(movement.permute(x, axes=(1, 0)), y)),)


def with_batches(dtype: DType) -> Program:
    x, w, row = inputs((2, 3, 35, 20), (2, 3, 20, 33), (2, 3, 35, 1), dtype=dtype)
    return (x, w, row), (p.mul(matmul(x, w), movement.expand(row, shape=(2, 3, 35, 33))),)


def with_a_place_of_its_own(dtype: DType) -> Program:
    """A product and its neighbour in one memory."""
    x, w, y = inputs((35, 20), (20, 48), (35, 33), dtype=dtype)
    return (x, w, y), (movement.concat(y, matmul(x, w), axis=1),)


@pytest.mark.parametrize("program", [with_bias, with_gradient, with_batches, with_a_place_of_its_own],
                         ids=lambda x: x.__name__)
def test_what_is_done_to_a_product(program: Callable[[DType], Program], made: list[KernelSource]) -> None:
    check(program)
    assert any("dot_fma" in x.source for x in made)


def kernel_of(operands: tuple[Node, ...], *outputs: Node, architecture: int = 90) -> KernelSource:
    """The kernel of a graph that is one."""
    group, = fuse(decomposed(Graph(operands, outputs))).groups
    return emit(group, GPUS[architecture])


def loop_of(ptx: str) -> list[str]:
    """The instructions from a block's wait to the next one's, without those that ask for blocks to come.

    Triton 3.9 waits at the loop's end: there they begin behind the label.
    """
    lines = [line.strip() for line in ptx.splitlines()
             if (line.rstrip().endswith(";") and "@" not in line) or line.startswith("$L__BB")]
    sums = [at for at, line in enumerate(lines) if "fma.rn.f32" in line]
    starts = ("bar.sync", "$L__BB")
    first = max(at for at, line in enumerate(lines[:sums[0]]) if line.startswith(starts))
    return [line for line in lines[first:sums[-1] + 1] if not line.startswith("$L__BB") and "cp.async" not in line]


SHAPES = [(4096, 4096, 4096, 12), (4001, 4099, 4097, 21), (256, 512, 384, 4), (199, 847, 24, 4)]
"""(rows, depth, columns, multiply-adds for each read); the first is streamed."""


SPILL = [((4001, 4099, 4097, 21), layout) for layout in ("nn", "nt")]
"""Products whose rows begin anywhere that keep 16 and 144 bytes a thread outside of its 255 registers: known, and to be
mended (docs/open_ends.md)."""


@by_default("shape10-tn", "shape15-tt")
@pytest.mark.parametrize(("shape", "layout"), sweep_but(
    lambda shape, layout: SHAPES.index(shape) == list(LAYOUTS).index(layout), SHAPES, LAYOUTS))
def test_machine_code(shape: tuple[int, int, int, int], layout: str, tmp_path: Path,
                      request: pytest.FixtureRequest) -> None:
    """Nothing of the loop is kept in memory. Shared memory is read four numbers at a time (two where a thread has but
    two rows), each for so many multiply-adds and more."""
    if (shape, layout) in SPILL:
        request.applymarker(pytest.mark.xfail(strict=True, reason="it spills"))
    *sizes, each = shape
    operands, node = product(*sizes, float32, layout)
    text = ptx_of(kernel_of(operands, node))
    said = remarks(text, tmp_path)
    assert "0 bytes spill stores" in said and "0 bytes stack frame" in said, said
    loop = loop_of(text)
    reads = [line for line in loop if "ld.shared" in line]
    assert reads and all(f"ld.shared.v{4 if each > 8 else ''}" in line for line in reads)
    sums = sum("fma.rn.f32" in line for line in loop)
    assert sums >= each * len(reads) and sums > 0.6 * len(loop)


SPILLED = 0 if triton.__version__.startswith("3.6.") else 28
"""Bytes that a thread may keep outside of registers: Triton 3.9 does so with one of the candidates, of 128 × 64."""


@by_default("32x32x32 *", "128x128x16 *")
@pytest.mark.parametrize("tile", sweep_but(
    lambda tile: (tile.i, tile.j) in ((64, 128), (32, 32), (128, 128)), MORE_TILES["ieee"]), ids=lambda x: x.name)
def test_every_tile_has_registers(tile: Tile, tmp_path: Path) -> None:
    operands, node = product(4096, 4096, 4096, float32, "nt")
    with deciding(Rows([Row(Key("product", ""), tile.name)])):
        said = remarks(ptx_of(kernel_of(operands, node)), tmp_path)
    spilled, = re.findall(r"(\d+) bytes spill stores", said)
    assert int(spilled) <= SPILLED, said


@pytest.mark.parametrize("architecture", GPUS)
@pytest.mark.parametrize("rows", [300, 4096])
def test_every_gpu(architecture: int, rows: int) -> None:
    gpu = GPUS[architecture]
    operands, node = product(rows, 1030, 4097, float32, "nt")
    image, = compile_sources([kernel_of(operands, node, architecture=architecture)], gpu=gpu)
    assert 2 * image.shared_bytes <= gpu.shared_memory and image.shared_bytes <= gpu.block_shared_memory


@pytest.mark.parametrize("tile", FMA_TILES, ids=str)
@pytest.mark.parametrize("along", [(True, True), (True, False), (False, True), (False, False)])
def test_all_threads_have_a_part_of_the_tile(tile: FmaTile, along: tuple[bool, bool]) -> None:
    threads = threads_of(Tile(tile.rows, tile.columns, 32, tile.warps, 3), *(Laid(x, 4) for x in along))
    for axis, size in enumerate((tile.rows, tile.columns)):
        held = size // (threads.lanes[axis] * threads.warps[axis])
        assert held >= threads.beside[axis] == (1 if along[axis] else min(4, held))
    assert threads.lanes[0] * threads.lanes[1] == 32 and threads.warps[0] * threads.warps[1] == tile.warps


def multiplied(tile: FmaTile, batch: int, rows: int, columns: int) -> float:
    """Multiply-adds that a tile makes for each that the product has, of the multiprocessor that has most tiles."""
    programs = -(-rows // tile.rows) * -(-columns // tile.columns) * batch
    busiest = -(-programs // H200.multiprocessors) * H200.multiprocessors
    return busiest * tile.rows * tile.columns / (batch * rows * columns)


@pytest.mark.parametrize(("batch", "rows", "columns", "depth", "most"), [
    (1, 4096, 4096, 4096, 1.05), (96, 66, 89, 19, 1.7), (96, 199, 24, 847, 2.4), (96, 877, 66, 25, 1.6),
    (1, 768, 3072, 16384, 1.2), (1, 1024, 1024, 1024, 1.1), (1, 4096, 1200, 72, 1.15)])
def test_the_tile_wastes_little_and_keeps_the_gpu_busy(batch: int, rows: int, columns: int, depth: int,
                                                       most: float) -> None:
    """What is multiplied for nothing, beyond the product's edges and while other multiprocessors have ended."""
    found = fastest_fma(batch, rows, columns, depth, H200.multiprocessors)
    assert multiplied(found.tile, batch, rows, columns) <= most


def test_few_long_programs_are_made_by_more_warps() -> None:
    """A multiprocessor's only program has all four schedulers; several share them, and read less with fewer warps."""
    alone = fastest_fma(1, 64, 64 * 100, 4096, H200.multiprocessors).tile
    beside = fastest_fma(1, 64 * 8, 64 * 132, 4096, H200.multiprocessors).tile
    assert alone.warps == 4 and beside.for_each_read >= 16


@pytest.mark.parametrize(("sizes", "took"), [
    ((1, 72, 1200, 4096, FmaTile(32, 64, 4), 32, 1), 75.9), ((1, 72, 1200, 4096, FmaTile(64, 64, 4), 32, 4), 56.0),
    ((1, 72, 4096, 1200, FmaTile(64, 64, 4), 32, 1), 41.4), ((1, 4096, 1200, 72, FmaTile(128, 128, 4), 16, 1), 32.8)],
    ids=str)
def test_the_model_is_near_what_was_measured(sizes: tuple[int, int, int, int, FmaTile, int, int], took: float) -> None:
    """Kernels of an H200 from the cache, their launches of 2.2 µs taken off."""
    *shape, tile, step, splits = sizes
    found = multiply_add_times._microseconds(tile, step, tuple(shape), H200.multiprocessors, splits)
    assert found == pytest.approx(took, rel=0.15)


def test_a_tile_suits_all_sizes_of_a_class() -> None:
    """It is the same for each of them, and not far from the best of any."""
    found = set()
    for rows, columns in ((66, 89), (101, 67), (127, 127), (73, 119)):
        with Trace(m=rows, n=columns) as trace:
            made = fastest_fma(96, trace.symbol("m"), trace.symbol("n"), 19, H200.multiprocessors)
            found.add((made.tile, made.step))
        best = fastest_fma(96, rows, columns, 19, H200.multiprocessors)
        assert multiply_add_times._microseconds(made.tile, made.step, (96, rows, columns, 19), H200.multiprocessors,
                                                1) <= 1.4 * best.microseconds
        assert not trace.guards
    assert len(found) == 1
