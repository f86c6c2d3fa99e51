"""What a GPU would refuse, or a kernel takes for granted though it does not hold, is refused where kernels are made.

Triton's interpreter has no warps, no vectors and no grids: it runs such kernels, and gives the right numbers.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import reduce
from typing import Any

import pytest
import torch

from genesis.codegen.cuda import source as limits
from genesis.codegen.cuda.compile import compile_sources
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.source import KernelSource
from genesis.engine.backends import FakeCUDABackend, cuda_backend
from genesis.ir import OPS, Graph
from genesis.ir.ops import composite, control, leaves, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.contraction import matmul
from genesis.ir.ops.control import item
from genesis.ir.types import DType, bfloat16, float32, float64, int32, int64
from genesis.passes.fusion.fuse import fuse
from genesis.passes.pipeline import run_passes
from genesis.runtime.cuda.driver import DriverError, MappedMatrix, Pointer
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.codegen.cuda import test_segments
from tests.codegen.cuda.evaluate import decomposed, evaluate
from tests.codegen.cuda.gpus import GPUS
from tests.codegen.cuda.idle_gpu import resources
from tests.codegen.cuda.programs import GPU, an_input, inputs, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule

ROWS = 1001


def doubled() -> KernelSource:
    """A kernel over so many elements."""
    x, = inputs((ROWS,))
    return emit(fuse(Graph((x,), (p.mul(x, 2.0),))).groups[0])


@pytest.mark.parametrize(("wrong", "told"), [
    ({"num_warps": 6}, "6 warps"), ({"num_warps": 64}, "64 warps"), ({"args": ()}, "signature"),
    ({"constexprs": {}}, "signature"), ({"aligned": ("x_size",)}, "x_size = 1001 is no multiple of 16"),
    ({"eights": ("x_size",)}, "x_size = 1001 is no multiple of 8")])
def test_a_source_that_no_compiler_takes_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        replace(doubled(), **wrong)


def test_a_block_has_no_more_elements_than_triton_allows() -> None:
    x, = inputs((3000, 5000))
    source = emit(fuse(Graph((x,), (r.sum(x, axes=(1,)),))).groups[0])
    with pytest.raises(ValueError, match="a block of 256 × 8192"):
        replace(source, constexprs={"XBLOCK": 256, "RBLOCK": 8192})


@pytest.mark.parametrize("length", [16, 65, 200])
def test_rows_that_are_computed_have_no_more_elements_a_program_than_rows_that_are_read(length: int) -> None:
    """Which places lie before a row's end is asked of 60 million rows: a program had 16,384 of them."""
    ends = an_input(0, (60_000_000, 1), int64)
    mask = p.lt(leaves.iota(shape=(60_000_000, length), axis=1, dtype=int64, device=GPU),
                movement.expand(ends, shape=(60_000_000, length)))
    source = emit(fuse(Graph((ends,), (r.sum(p.cast(mask, dtype=int64), axes=(1,)),))).groups[0])
    assert source.constexprs["XBLOCK"] * source.constexprs["RBLOCK"] == 2048


def test_a_size_has_a_type_that_holds_it() -> None:
    source = doubled()
    with pytest.raises(ValueError, match="x_size = 2147483648 is no i32"):
        replace(source, args=(*source.args[:-1], 2**31))


WIDE = {
    "rows added, looked for": ("index_add", (4, 40_000_000), (300,)),
    "long rows added, looked for": ("index_add", (4, 300_000_000), (3,)),
    "rows added by blocks of the index": ("index_add", (4, 40_000_000), (3000,)),
    "rows written": ("index_copy", (4, 70_000_000), (2,)),
}
"""Writes whose rows are shared by more programs than CUDA has along a grid's second dimension."""


@pytest.mark.parametrize("name", WIDE)
def test_rows_of_millions_of_elements_have_a_grid_that_cuda_takes(name: str) -> None:
    op, shape, where = WIDE[name]
    schedule = test_segments.scheduled(op, shape, 0, where, "bfloat16", constant=op == "index_add")
    sources = [emit(group) for group in schedule.groups]
    assert any(source.grid[0] > limits.MOST_BESIDE and "tl.program_id(1)" not in source.source for source in sources)
    assert all(n <= limits.MOST_BESIDE for source in sources for n in source.grid[1:])


def test_a_convolution_of_many_groups_has_a_grid_that_cuda_takes() -> None:
    groups = 70_000
    x, weight = an_input(0, (1, 8, groups)), an_input(1, (groups, 3, 1))
    y = OPS["convolution_last"](x, weight, stride=(1,), padding=(0,), dilation=(1,), groups=groups)
    source = emit(fuse(Graph((x, weight), (y,))).groups[0])
    assert source.grid == (groups, 1, 1)


@pytest.mark.parametrize(("op", "where", "kernel"), [
    ("index_add", (20,), "rows_summed"), ("index_copy", (300,), "segment_put")])
def test_programs_along_one_dimension_do_the_same(monkeypatch: pytest.MonkeyPatch, op: str, where: tuple[int, ...],
                                                  kernel: str) -> None:
    monkeypatch.setattr(limits, "MOST_BESIDE", 1)
    schedule = test_segments.scheduled(op, (3, 1100 if kernel == "segment_put" else 300), 0, where, "float32")
    source = next(source for source in map(emit, schedule.groups) if source.name == kernel)
    assert source.grid[0] > 1 == source.grid[1] and "tl.program_id(1)" not in source.source
    assert kernel == "rows_summed" or compile_cubin(source)  # that of the other differs in these two numbers alone
    data = [some(x) for x in schedule.graph.inputs]
    data[1] = torch.randint(0, 3, where, generator=torch.Generator().manual_seed(0))
    found, = run_schedule(schedule, data, most_programs=512)
    base, index, values = (an_input(i, x.type.shape, x.type.dtype) for i, x in enumerate(schedule.graph.inputs))
    graph = Graph((base, index, values), (OPS[op](base, index, values, axis=0),))
    want, = evaluate(graph, data)
    torch.testing.assert_close(found.reshape(want.shape), want, rtol=1e-5, atol=1e-5)


BYTES = {"fp64": 8, "i64": 8, "fp32": 4, "i32": 4, "bf16": 2}
"""Triton's types → their bytes."""


def bytes_under_way(source: KernelSource) -> int:
    """Bytes of shared memory in which the loads of a kernel's loop wait, as Triton pipelines them."""
    _, stages, loop = (*re.split(r"num_stages=(\d+)", source.source, maxsplit=1), "1", "")[:3]
    elements = source.constexprs["XBLOCK"] * source.constexprs["RBLOCK"]
    sizes = {name: BYTES[kind[1:]] for name, kind in source.signature.items() if kind[0] == "*"}
    loop = re.split(r"\n {4}(?=\S)", loop, maxsplit=1)[0]  # what comes after it is not pipelined
    return (int(stages) - 1) * elements * sum(sizes[name] for name in re.findall(r"tl\.load\((\w+) \+", loop))


@pytest.mark.parametrize("architecture", GPUS)
@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
@pytest.mark.parametrize("count", [1, 8, 14, 30])
def test_what_sums_of_many_operands_load_ahead_has_room(architecture: int, dtype: DType, count: int) -> None:
    """Rounds of 14 float32 operands, two of them under way, were more than an H200 has: it refused the launch."""
    gpu, xs = GPUS[architecture], inputs(*[(3_000_001,)] * count, dtype=dtype)
    total = r.sum(p.tanh(reduce(p.mul, xs)), axes=(0,))
    first, *_ = run_passes(Graph(xs, (total,)), cuda_backend(gpu))[1].groups
    source = emit(first, gpu)
    assert (count > 1 or bytes_under_way(source)) and bytes_under_way(source) <= gpu.block_shared_memory
    if (architecture, dtype, count) == (90, float64, 8):
        image, = compile_sources([source], gpu=gpu)
        assert bytes_under_way(source) <= image.shared_bytes <= gpu.block_shared_memory


@pytest.mark.parametrize("architecture", GPUS)
@pytest.mark.parametrize("dtype", [bfloat16, float32, float64, int32, int64], ids=str)
@pytest.mark.parametrize("shape", [(4, 20_000), (20_000, 512)])
def test_what_scans_load_ahead_has_room(architecture: int, dtype: DType, shape: tuple[int, int]) -> None:
    """Two blocks of 8192 64-bit numbers were more than small GPUs have, and so were two of 32 bits beside their sums
    of 64. What waits of columns does so in registers, but for extremes of 64 bits."""
    gpu, x, axis = GPUS[architecture], an_input(0, shape, dtype), shape.index(20_000)
    found = OPS["cummax" if axis == 0 else "cumsum"](x, axis=axis)
    outputs = tuple(item(found, index=i) for i in (0, 1)) if axis == 0 else (found,)
    group, = fuse(Graph((x,), outputs)).groups
    source = emit(group, gpu)
    ahead = axis == 1 or dtype.itemsize == 8
    assert architecture != 90 or bool(bytes_under_way(source)) == ahead
    assert bytes_under_way(source) <= gpu.block_shared_memory
    if (architecture, dtype, shape[0]) == (89, int64, 20_000):
        image, = compile_sources([source], gpu=gpu)
        assert image.shared_bytes <= gpu.block_shared_memory


def test_products_without_a_dot_instruction_stay_in_registers() -> None:
    """Of blocks of 32 a thread had 256 products, which the assembler left in memory: 6 KB of each thread."""
    a, b = inputs((100, 65), (65, 70), dtype=float64)
    group, = fuse(Graph((a, b), (matmul(a, b),))).groups
    assert not resources(compile_cubin(emit(group))).stack


@pytest.mark.parametrize("turned", [False, True])
def test_totals_of_what_is_read_anywhere_loop_over_it(turned: bool) -> None:
    """Of seven transposed operands in registers 6 KB a thread were spilled; twelve parts of a concatenation compiled
    for minutes."""
    xs = inputs(*[(200, 300)[::-1 if turned and i else 1] for i in range(7)])
    total = reduce(p.mul, [movement.permute(x, axes=(1, 0)) if turned and i else x for i, x in enumerate(xs)])
    share = p.div(total, movement.expand(movement.reshape(r.sum(total, axes=(0, 1)), shape=(1, 1)), shape=(200, 300)))
    group, = fuse(Graph(xs, (share,))).groups
    source = emit(group)
    assert ("tl.static_range" in source.source) == (not turned)
    assert not turned or resources(compile_cubin(source)).stack <= 24  # bytes; none with Triton 3.6


@pytest.mark.sweep
@pytest.mark.parametrize("op", ["cummax", "logcumsumexp"])
def test_scans_of_64_bit_columns_stay_in_registers(op: str) -> None:
    x = an_input(0, (3000, 512), float64)
    node = OPS[op](x, axis=0)
    group, = fuse(Graph((x,), (control.item(node, index=0) if op == "cummax" else node,))).groups
    assert not resources(compile_cubin(emit(group))).stack


def test_columns_of_64_bits_that_registers_hold_compile() -> None:
    """What is taken out of registers again was moved as 32 bits: Triton's process died of a division by zero."""
    x = an_input(0, (1000, 4096), float64)
    group, = fuse(decomposed(Graph((x,), (composite.softmax(x, axis=0),)))).groups
    source = emit(group)
    assert "= g_again(" in source.source
    image, = compile_sources([source])
    assert image.cubin[:4] == b"\x7fELF"


class Described:
    """Arguments of a launch, as a driver is given them."""

    address = 0

    def __init__(self, *arguments: Pointer | MappedMatrix | int):
        self._arguments = list(arguments)

    def described(self) -> list[Pointer | MappedMatrix | int]:
        return self._arguments


@pytest.mark.parametrize(("at", "size", "grid", "told"), [
    (0, 64, (1, 1, 1), ""), (4, 64, (1, 1, 1), "in0 = .* is no multiple of 16"),
    (0, 60, (1, 1, 1), "x_size = 60 is no multiple of 16"), (0, 64, (1, 65536, 1), "a grid of")])
def test_a_pretended_gpu_refuses_what_a_kernel_was_not_compiled_for(at: int, size: int, grid: tuple[int, int, int],
                                                                    told: str) -> None:
    """Sizes of a class are arguments of one kernel, and memories begin where someone says: both at each launch."""
    x, = inputs((64,))
    source = emit(fuse(Graph((x,), (p.mul(x, 2.0),))).groups[0])
    assert set(source.aligned) == {"in0", "out0", "x_size"}
    driver = HostDriver(memory_bytes=1 << 20)
    driver.use(0)
    image, = FakeCUDABackend(driver).compile([source])
    memory, out = driver.alloc(512), driver.alloc(512)
    arguments = Described(Pointer(memory + at, x.dtype), Pointer(out, x.dtype), size)
    kernel = driver.load_kernel(image)
    if not told:
        driver.prepare_launch(kernel, image, grid, arguments)
        return
    with pytest.raises(DriverError, match=told):
        driver.prepare_launch(kernel, image, grid, arguments)
