"""Products of ragged groups: one launch for all of them, right wherever groups end."""

from __future__ import annotations

import pytest
import torch

import genesis
from genesis.engine.backends import FakeCUDABackend, backend_named
from genesis.ir import Graph, Node
from genesis.ir.ops import pointwise
from genesis.ir.ops.contraction import swap_last
from genesis.ir.ops.ragged import ragged_matmul, ragged_matmul_sums
from genesis.ir.types import DType, bfloat16, float16, float32, float64, int32
from genesis.passes.groups import Schedule
from genesis.passes.pipeline import run_passes
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.codegen.cuda.programs import an_input, kinds, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule
from tests.sweeping import by_default, each_value

TOLERANCE = {bfloat16: 1e-2, float16: 1.5e-3, float32: 1e-5, float64: 1e-12}
"""One rounding of the result, and the order of the sums, relative to the largest value."""

ENDS = ([0, 5, 70, 70, 150], [150] * 5, [0] * 5, [30, 60, 90, 120, 140], [1, 2, 3, 4, 130])
"""Where groups of 150 rows end: empty ones anywhere, one that has all, none with any, rows of no group at the end."""


def compiled(operands: tuple[Node, ...], *outputs: Node) -> Schedule:
    """The groups after all passes."""
    return run_passes(Graph(operands, outputs), backend_named("h200")).schedule


def by_rows(a: torch.Tensor, b: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """Group by group, in float64."""
    found, start = torch.zeros(a.shape[0], b.shape[2], dtype=torch.float64), 0
    for group, end in enumerate(ends):
        found[start:end], start = a[start:end].double() @ b[group].double(), end
    return found


def sums(a: torch.Tensor, b: torch.Tensor, ends: list[int]) -> torch.Tensor:
    """Group by group, in float64."""
    starts = [0, *ends[:-1]]
    return torch.stack([a[start:end].double().T @ b[start:end].double()
                        for start, end in zip(starts, ends, strict=True)])


def close(got: torch.Tensor, want: torch.Tensor, dtype: DType) -> None:
    """Errors are relative to the largest value."""
    assert got.shape == want.shape
    assert (got.double() - want).abs().max().item() <= TOLERANCE[dtype] * max(want.abs().max().item(), 1.0)


@each_value
@pytest.mark.parametrize("ends", ENDS, ids=str)
@pytest.mark.parametrize("dtype", [bfloat16, float32, float64], ids=lambda x: x.name)
def test_rows_and_sums(ends, dtype) -> None:
    a, b, limits = an_input(0, (150, 24), dtype), an_input(1, (5, 24, 40), dtype), an_input(2, (5,), int32)
    data = [some(a), some(b), torch.tensor(ends, dtype=torch.int32)]
    schedule = compiled((a, b, limits), ragged_matmul(a, b, limits))
    assert kinds(schedule) == ["matmul"]
    close(run_schedule(schedule, data, most_programs=512)[0], by_rows(data[0], data[1], ends), dtype)
    g = an_input(1, (150, 40), dtype)
    data[1] = some(g)
    found = run_schedule(compiled((a, g, limits), ragged_matmul_sums(a, g, limits)), data, most_programs=512)
    close(found[0], sums(data[0], data[1], ends), dtype)


def test_matrices_are_read_transposed_where_they_lie() -> None:
    a, b, limits = an_input(0, (70, 32), bfloat16), an_input(1, (3, 48, 32), bfloat16), an_input(2, (3,), int32)
    schedule = compiled((a, b, limits), ragged_matmul(a, swap_last(b), limits))
    assert kinds(schedule) == ["matmul"]
    data = [some(a), some(b), torch.tensor([20, 20, 64], dtype=torch.int32)]
    close(run_schedule(schedule, data, most_programs=512)[0], by_rows(data[0], data[1].mT, [20, 20, 64]), bfloat16)


@pytest.mark.parametrize("rows", [128, 150])
def test_what_is_done_to_each_element_is_done_in_the_same_kernel(rows) -> None:
    """Blocks that divide all rows do not divide those of a group."""
    a, b, limits = an_input(0, (rows, 32), bfloat16), an_input(1, (3, 32, 64), bfloat16), an_input(2, (3,), int32)
    scale = an_input(3, (rows, 64), bfloat16)
    y = ragged_matmul(a, b, limits)
    schedule = compiled((a, b, limits, scale), pointwise.cast(pointwise.mul(y, scale), dtype=float32), y)
    assert kinds(schedule) == ["matmul"]
    ends = [17, 90, rows - 3]
    data = [some(a), some(b), torch.tensor(ends, dtype=torch.int32), some(scale)]
    want = by_rows(data[0], data[1], ends)
    scaled, found = run_schedule(schedule, data, most_programs=512)
    close(found, want, bfloat16)
    close(scaled, want * data[3].double(), bfloat16)
    to_weights = pointwise.cast(ragged_matmul_sums(a, scale, limits), dtype=float32)
    schedule = compiled((a, b, limits, scale), to_weights)
    assert kinds(schedule) == ["matmul"]
    found = run_schedule(schedule, data, most_programs=512)[0]
    assert found.dtype is torch.float32
    close(found, sums(data[0], data[3], ends), bfloat16)


@by_default("bfloat16")
@pytest.mark.parametrize("dtype", [bfloat16, float16, float32], ids=lambda x: x.name)
def test_kernels_compile(dtype) -> None:
    from genesis.codegen.cuda.emit import emit
    a, b = an_input(0, (16384, 1024), dtype), an_input(1, (8, 1024, 4096), dtype)
    g, limits = an_input(1, (16384, 4096), dtype), an_input(2, (8,), int32)
    for operands, node in (((a, b, limits), ragged_matmul(a, b, limits)),
                           ((a, g, limits), ragged_matmul_sums(a, g, limits))):
        group, = compiled(operands, node).groups
        source = emit(group, backend_named("h200").gpu)
        assert source.name.startswith("ragged_matmul")
        assert compile_cubin(source)


def test_experts_on_a_pretended_gpu_have_the_cpus_values() -> None:
    """Forward and backward, through the function that users call."""
    functional = genesis.nn.functional

    def gradients(device: str) -> list[list]:
        genesis.manual_seed(0)
        rows = genesis.randn(40, 16).to(device).requires_grad_()
        weights = genesis.randn(4, 16, 24).to(device).requires_grad_()
        ends = genesis.tensor([7, 7, 30, 40], dtype=genesis.int32, device=device)
        y = functional.grouped_mm(rows, weights, offs=ends)
        y.square().sum().backward()
        return [x.cpu().tolist() for x in (y, rows.grad, weights.grad)]

    want = gradients("cpu")
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 27)):
        found = gradients("cuda")
    for got, expected in zip(found, want, strict=True):
        torch.testing.assert_close(torch.tensor(got), torch.tensor(expected), rtol=2e-5, atol=2e-4)


@pytest.mark.parametrize("ends", [[50, 60, 70], [5, 3, 90], [-4, -2, 9], [0, 0, 0]], ids=str)
def test_nothing_is_read_outside_wherever_the_ends_are(ends: list[int]) -> None:
    """The interpreter refuses what lies outside an operand; which numbers come out is not said."""
    limits = torch.tensor(ends, dtype=torch.int32)
    a, b, limit = an_input(0, (9, 18)), an_input(1, (3, 18, 20)), an_input(2, (3,), int32)
    rows, = run_schedule(compiled((a, b, limit), ragged_matmul(a, b, limit)), [some(a), some(b), limits])
    g = an_input(1, (9, 20))
    sums, = run_schedule(compiled((a, g, limit), ragged_matmul_sums(a, g, limit)), [some(a), some(g), limits])
    assert rows.shape == (9, 20) and sums.shape == (3, 18, 20)
