"""Convolution kernels beside torch in float64: every stride, phase and padding; small tiles; groups; few channels."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from genesis.codegen.cuda.emit import emit
from genesis.engine.backends import backend_named
from genesis.ir import OPS, Graph, Node
from genesis.ir.ops.convolution import convolution, convolution_input, convolution_weight, result_sizes
from genesis.ir.ops.convolution_last import convolution_weight_last
from genesis.ir.types import DType, bfloat16, float16, float32, float64, int64
from genesis.ir.verify import verify
from genesis.passes.groups import Schedule
from genesis.passes.pipeline import run_passes
from tests.codegen.cuda.programs import an_input, kinds, some
from tests.codegen.cuda.run_interpreted import compile_cubin, run_schedule
from tests.sweeping import each_value, sweep_but

TOLERANCE = {bfloat16: 1e-2, float16: 1.5e-3, float32: 2e-6, float64: 1e-13, int64: 0}
"""One rounding of the result (bfloat16: 2^-8), relative to the largest value, and sums in another order."""

CASES: list[tuple[Any, ...]] = [
    # input, weight, stride, padding, dilation, groups
    ((2, 32, 6, 7), (24, 32, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((1, 16, 9, 8), (17, 16, 3, 2), (2, 3), (1, 0), (1, 1), 1),
    ((2, 20, 7, 7), (40, 20, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((1, 3, 12, 10), (20, 3, 5, 5), (2, 2), (2, 2), (1, 1), 1),   # few channels: several taps at a time
    ((1, 40, 8, 9), (48, 20, 3, 3), (1, 1), (2, 2), (2, 2), 2),
    ((2, 8, 9, 9), (12, 4, 3, 3), (2, 2), (1, 1), (1, 1), 2),
    ((1, 16, 10, 11), (16, 16, 3, 3), (2, 3), (1, 4), (2, 3), 1),  # stride and dilation share a factor
    ((2, 32, 33), (16, 32, 4), (3,), (2,), (1,), 1),
    ((1, 18, 4, 5, 3), (20, 18, 2, 3, 3), (2, 1, 1), (0, 1, 1), (1, 1, 1), 1),
    ((1, 64, 3, 3), (70, 64, 3, 3), (1, 1), (3, 3), (1, 1), 1),   # padding wider than the window
]


def attributes(case: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(("stride", "padding", "dilation", "groups"), case[2:], strict=True))


def program(case: tuple[Any, ...], dtype: DType, bias: bool) -> tuple[tuple[Node, ...], tuple[Node, ...]]:
    """Operands x, weight, g (and bias), and the convolution with both its gradients."""
    x, w, how = case[0], case[1], attributes(case)
    made = (x[0], w[0], *result_sizes(x[2:], w[2:], *case[2:5]))
    operands = tuple(an_input(i, shape, dtype) for i, shape in enumerate((x, w, made, *([(w[0],)] if bias else []))))
    y = convolution(operands[0], operands[1], *operands[3:], **how)
    return operands, (y, convolution_input(operands[2], operands[1], sizes=x[2:], **how),
                      convolution_weight(operands[2], operands[0], window=w[2:], **how))


def compiled(operands: tuple[Node, ...], outputs: tuple[Node, ...]) -> Schedule:
    """The groups after all passes, each stage verified."""
    stages, schedule, *_ = run_passes(Graph(operands, outputs), backend_named("h200"))
    for name in ("matched", "legal", "prepared"):
        verify(stages[name])
    return schedule


def reference(case: tuple[Any, ...], data: list[torch.Tensor]) -> list[torch.Tensor]:
    """The three in float64."""
    x, w = (t.double().requires_grad_() for t in data[:2])
    how = [[*part] if isinstance(part, tuple) else part for part in case[2:]]
    zeros = [0] * (x.ndim - 2)
    bias = data[3].double() if len(data) > 3 else None
    y = torch.convolution(x, w, bias, how[0], how[1], how[2], False, zeros, how[3])
    y.backward(data[2].double())
    return [y.detach(), x.grad, w.grad]  # type: ignore[list-item]


def close(got: torch.Tensor, want: torch.Tensor, tolerance: float) -> None:
    """Relative to the largest value: sums of many products."""
    assert got.shape == want.shape
    error = (got.double() - want).abs().max().item()
    assert error <= tolerance * max(want.abs().max().item(), 1e-3), error


@each_value
@pytest.mark.parametrize("dtype", [bfloat16, float32])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_convolution_and_its_gradients(case, dtype) -> None:
    operands, outputs = program(case, dtype, bias=dtype is float32)
    data = [some(x) for x in operands]
    schedule = compiled(operands, outputs)
    assert kinds(schedule).count("convolution") == 3
    found = run_schedule(schedule, data, most_programs=4096)
    for got, want in zip(found, reference(case, data), strict=True):
        close(got, want, TOLERANCE[dtype])


@pytest.mark.parametrize(("case", "dtype"), [
    (((2, 6, 7, 7), (6, 1, 3, 3), (1, 1), (1, 1), (1, 1), 6), float32),
    (((2, 4, 7, 6), (8, 4, 3, 3), (2, 2), (1, 1), (1, 1), 1), float64),
    (((1, 4, 7), (6, 2, 3), (2,), (1,), (2,), 2), int64),
])
def test_without_a_kernel_it_is_a_loop_or_a_matrix_product(case, dtype) -> None:
    operands, outputs = program(case, dtype, bias=False)
    data = [some(x) for x in operands]
    schedule = compiled(operands, outputs)
    assert "convolution" not in kinds(schedule)
    assert len(schedule.missed) >= 3
    found = run_schedule(schedule, data, most_programs=4096)
    for got, want in zip(found, reference(case, data), strict=True):
        close(got, want, TOLERANCE[dtype])


@pytest.mark.parametrize("splits", [1, 2, 5, 40])
def test_parts_of_the_gradient_by_the_weight_add_up(splits) -> None:
    g, x = an_input(0, (2, 7, 5, 20), bfloat16), an_input(1, (2, 9, 7, 24), bfloat16)
    parts = convolution_weight_last(g, x, window=(3, 3), splits=splits, stride=(1, 1), padding=(0, 0),
                                    dilation=(1, 1), groups=1)
    data = [some(g), some(x)]
    got, = run_schedule(compiled((g, x), (parts,)), data, most_programs=4096)
    w = torch.zeros(20, 24, 3, 3, dtype=torch.float64, requires_grad=True)
    torch.conv2d(data[1].double().movedim(-1, 1), w).backward(data[0].double().movedim(-1, 1))
    close(got.double().sum(0), w.grad.movedim(1, -1), 1e-6)  # type: ignore[union-attr]


def test_a_chain_of_convolutions_stays_in_its_layout() -> None:
    """Between two convolutions there is one loop: no permutation moves anything by itself."""
    x, first, second = (an_input(i, s, bfloat16) for i, s in enumerate(((2, 16, 6, 6), (32, 16, 3, 3), (16, 32, 3, 3))))
    how = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    y = convolution(OPS["relu"](convolution(x, first, **how)), second, **how)
    schedule = compiled((x, first, second), (y,))
    loops = [group for group in schedule.groups if group.kind == "loop"]
    assert kinds(schedule).count("convolution") == 2
    assert len(loops) == 5  # x and two weights into the layout, relu in it, the result out of it


@pytest.mark.parametrize("case", sweep_but(lambda case: case[1][-1] == 3, [
    ((32, 64, 56, 56), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1),
    ((32, 256, 56, 56), (512, 256, 1, 1), (2, 2), (0, 0), (1, 1), 1),
    ((32, 3, 224, 224), (64, 3, 7, 7), (2, 2), (3, 3), (1, 1), 1),
]), ids=str)
def test_kernels_compile_for_hopper(case) -> None:
    operands, outputs = program(case, bfloat16, bias=False)
    kernels = [emit(group) for group in compiled(operands, outputs).groups if group.kind == "convolution"]
    assert len(kernels) == 3 and all(compile_cubin(kernel) for kernel in kernels)


def test_float32_products_are_rounded_as_float32() -> None:
    operands, outputs = program(CASES[0], float32, bias=False)
    kernels = [emit(group) for group in compiled(operands, outputs).groups if group.kind == "convolution"]
    assert all('input_precision="ieee"' in kernel.source for kernel in kernels)


def test_addresses_beyond_32_bits() -> None:
    case = ((5000, 64, 96, 96), (64, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1)
    operands, outputs = program(case, bfloat16, bias=False)
    kernels = [emit(group) for group in compiled(operands, outputs).groups if group.kind == "convolution"]
    assert all(".to(tl.int64)" in kernel.source and compile_cubin(kernel) for kernel in kernels)
