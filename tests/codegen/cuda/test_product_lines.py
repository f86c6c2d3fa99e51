"""Products that are read by pointers: any shape, stride, order and dtype, and how their operands are loaded."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.gpu_model import H200
from genesis.codegen.cuda.templates.product_lines import is_unaligned
from genesis.ir import Graph
from genesis.ir.node import Node
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.movement import slice as sliced
from genesis.ir.types import DType, bfloat16, float16, float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.fusion.operand_view import operand_view
from tests.codegen.cuda.programs import an_input, check
from tests.codegen.cuda.run_interpreted import compile_cubin
from tests.codegen.cuda.test_machine_code import ptx_of, remarks
from tests.sweeping import by_default, sweep_but

SIZES = (5, 16, 17, 24, 35, 36, 64, 70, 101, 136)


def operand(index: int, shape: tuple[int, ...], dtype: DType, order: str = "n", cut: int = 0) -> tuple[Node, Node]:
    """(input, operand): row-major ("n") or turned ("t") in memory, whose rows begin with `cut` elements more."""
    *batch, rows, columns = shape if order == "n" else (*shape[:-2], shape[-1], shape[-2])
    x = an_input(index, (*batch, rows, columns + cut), dtype)
    starts, stops = (0,) * len(batch) + (0, cut), (*batch, rows, columns + cut)
    view = sliced(x, starts=starts, stops=stops, steps=(1,) * len(stops)) if cut else x
    return x, view if order == "n" else swap_last(view)


def product(rows: int, depth: int, columns: int, dtype: DType, layout: str = "nn", cuts: tuple[int, int] = (0, 0),
            batch: tuple[int, ...] = ()) -> tuple[tuple[Node, Node], Node]:
    """(inputs, product)."""
    x, a = operand(0, (*batch, rows, depth), dtype, layout[0], cuts[0])
    y, b = operand(1, (*batch, depth, columns), dtype, layout[1], cuts[1])
    return (x, y), matmul(a, b)


@pytest.mark.parametrize("seed", range(24))
def test_drawn_products(seed: int) -> None:
    rng = Random(seed)
    rows, depth, columns = (rng.choice(SIZES) for _ in range(3))
    dtype = rng.choice((float16, bfloat16, float32))
    layout, cuts = rng.choice(("nn", "nt", "tn", "tt")), (rng.choice((0, 0, 1, 2)), rng.choice((0, 0, 3, 8)))
    batch = rng.choice(((), (), (3,)))
    inputs, node = product(rows, depth, columns, dtype, layout, cuts, batch)
    tolerance = {float32: 1e-4, float16: 2e-2, bfloat16: 1e-1}[dtype]
    check(inputs, node, tolerance=tolerance)


@pytest.mark.parametrize(("rows", "depth", "layout", "unaligned"), [
    (64, 64, "n", False), (64, 66, "n", False), (64, 65, "n", True), (65, 64, "n", False), (65, 64, "t", True),
    (64, 65, "t", False)])
def test_operands_of_odd_rows_are_unaligned(rows: int, depth: int, layout: str, unaligned: bool) -> None:
    x, view = operand(0, (rows, depth), bfloat16, layout)
    found = operand_view(view, [x])
    assert is_unaligned(found, bfloat16, rows, depth) is unaligned and not is_unaligned(found, float32, rows, depth)


def test_what_begins_at_an_odd_place_is_unaligned() -> None:
    x = an_input(0, (64, 64), bfloat16)
    view = sliced(x, starts=(0, 1), stops=(64, 33), steps=(1, 1))
    assert is_unaligned(operand_view(view, [x]), bfloat16, 64, 32)


def ptx(rows: int, depth: int, columns: int, dtype: DType, layout: str = "nn") -> str:
    inputs, node = product(rows, depth, columns, dtype, layout)
    kernel, = (emit(group) for group in fuse(Graph(inputs, (node,))).groups)
    return ptx_of(kernel)


@pytest.mark.parametrize(("rows", "depth", "columns", "dtype"), [
    (64, 872, 4096, bfloat16), (64, 4096, 872, float16), (128, 1180, 140, float32)])
def test_a_size_that_ends_a_mask_leaves_rows_in_vectors(rows: int, depth: int, columns: int, dtype: DType) -> None:
    """None of them is a multiple of 16: 872 is one of 8 and 1180 one of 4, which are 16 bytes of memory each."""
    text = ptx(rows, depth, columns, dtype)
    assert "cp.async.cg" in text and "ld.global" not in text
    assert "cp.async.ca" not in text  # copies of 16 bytes are cached globally, shorter ones by each multiprocessor


@by_default("shape0-*", "shape3-*", "shape4-*")
@pytest.mark.parametrize(("shape", "layout", "tile", "stages"), [
    ((3704, 3710, 256), "tn", (64, 128), 8),   # 116 programs
    ((2600, 2824, 256), "tt", (64, 128), 8),
    ((4096, 4096, 128), "nt", (64, 64), 8),    # 128, of 64 × 128 there were half as many
    ((7000, 400, 64), "nn", (64, 64), 7),      # 110, of seven blocks
    ((8000, 1024, 91), "nn", (64, 64), 4),     # single elements, which registers wait for
    ((16384, 300, 200), "nn", (128, 256), 3)])  # leaves shared memory to kernels beside it
def test_products_of_few_programs_have_many_blocks_under_way(shape: tuple[int, int, int], layout: str,
                                                             tile: tuple[int, int], stages: int) -> None:
    """3704 × 3710 by 256 took 42.9 µs in 232 programs of 64 × 64, 21.2 in 116 of 64 × 128 (H200; cuBLAS 17.7)."""
    inputs, node = product(*shape, bfloat16, layout)
    kernel, = (emit(group) for group in fuse(Graph(inputs, (node,))).groups)
    assert ((kernel.constexprs["I"], kernel.constexprs["J"]), kernel.num_stages) == (tile, stages)
    assert kernel.num_stages * sum(tile) * 64 * 2 <= H200.block_shared_memory and compile_cubin(kernel)


@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_few_rows_are_the_columns_of_what_tensor_cores_multiply(layout: str) -> None:
    """Hopper's take 64 rows at least, and any 8 columns: 8 rows of 4096 with 14336 columns took 41.8 µs (H200; the
    copy rate 27.8), and are read 256 bytes at a time where a multiprocessor has two such tiles."""
    inputs, node = product(8, 4096, 14336, bfloat16, layout)
    kernel, = (emit(group) for group in fuse(Graph(inputs, (node,))).groups)
    assert (kernel.constexprs, kernel.num_stages) == ({"I": 16, "J": 128, "K": 64}, 6)
    text = ptx_of(kernel)
    assert "wgmma.mma_async" in text and "mma.sync" not in text
    inputs, node = product(5, 136, 520, bfloat16, layout)
    assert "total = tl.trans(total)" in emit(check(inputs, node).groups[0]).source
    for rows, columns, tile in ((64, 14336, (64, 128, 64)), (8, 28672, (16, 64, 128)), (64, 8192, (64, 64, 128))):
        inputs, node = product(rows, 512, columns, bfloat16, layout)
        kernel, = (emit(group) for group in fuse(Graph(inputs, (node,))).groups)
        assert tuple(kernel.constexprs[x] for x in "IJK") == tile
        assert ("tl.trans(total)" in kernel.source) == (rows == 8)


def test_a_narrow_operand_is_on_its_way_while_the_block_before_is_multiplied() -> None:
    """All loads of a round come before its product, and the product waits for none of them."""
    lines = ptx(175, 2239, 241, bfloat16, "tn").splitlines()
    loads = [at for at, line in enumerate(lines) if "ld.global" in line]
    waits = [at for at, line in enumerate(lines) if "wgmma.wait_group" in line]
    stores = [at for at, line in enumerate(lines) if "st.shared" in line and at < waits[0]]
    assert loads and max(loads) < waits[0]
    assert sum(at > max(stores) for at in loads) == len(loads) // 2


@by_default("shape4-nn", "shape6-tn")
@pytest.mark.parametrize(("shape", "layout"), sweep_but(
    lambda shape, layout: layout in (("nt", "tt") if shape[0] > 175 else ("nn", "tn")),
    [(2049, 129, 1051), (175, 129, 241)], ["nn", "nt", "tn", "tt"]))
def test_blocks_that_are_loaded_ahead_have_registers(shape: tuple[int, int, int], layout: str, tmp_path: Path) -> None:
    said = remarks(ptx(*shape, bfloat16, layout), tmp_path)
    assert "0 bytes spill stores" in said and "0 bytes stack frame" in said, said
