"""Kernels that read a memory from different elements on are one text: where they begin is in their arguments."""

from __future__ import annotations

import numpy as np
import pytest

import genesis
from genesis import engine, nn
from genesis.codegen.cuda.alone import plan_of_one
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.source import From, KernelSource
from genesis.engine.backends import FakeCUDABackend
from genesis.ir import DType, Graph, Node
from genesis.ir.ops import movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.ops.contraction import matmul
from genesis.ir.size_trace import Trace
from genesis.ir.sym_int import SymInt
from genesis.ir.types import bfloat16, float32, float64, int8
from genesis.passes.fusion.fuse import fuse
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.plan import KernelImage, Launch, Place
from tests.codegen.cuda.programs import an_input, check, inputs
from tests.engine.symbolic.idle import counting


def at(x: Node, step: int, axis: int = 0) -> Node:
    """One step of a sequence, without its axis."""
    taken = movement.take_range(x, axis, step, step + 1)
    return movement.reshape(taken, shape=tuple(n for i, n in enumerate(x.type.shape) if i != axis))


def texts(kernels: list[KernelSource]) -> set[str]:
    """The different ones."""
    return {str(kernel.key_parts()) for kernel in kernels}


def begins(kernels: list[KernelSource]) -> list[list[int]]:
    """Elements before the first that is read, for each kernel."""
    return [[x.start for x in kernel.args if isinstance(x, From)] for kernel in kernels]


@pytest.mark.parametrize("axis", [0, 1])
def test_steps_of_a_loop_that_is_written_out_are_one_text(axis: int) -> None:
    x, h, w = inputs((5, 4, 32) if axis == 0 else (4, 5, 32), (4, 32), (32, 32))
    outputs = []
    for step in range(5):
        h = p.tanh(at(x, step, axis) + matmul(h, w) + r.sum(matmul(at(x, step, axis), w), axes=(1,), keepdims=True))
        outputs.append(h)
    schedule = check(inputs(x.type.shape, (4, 32), (32, 32)), *outputs)
    kernels = [emit(group) for group in schedule.groups]
    assert len(kernels) > 8 and len(texts(kernels)) <= 4, len(texts(kernels))
    width = 128 if axis == 0 else 32
    assert {start for found in begins(kernels) for start in found} == {width * step for step in range(1, 5)}


@pytest.mark.parametrize(("dtype", "start"), [(float32, 4), (bfloat16, 0), (float64, 6), (int8, 0)], ids=str)
def test_a_start_is_whole_vectors(dtype: DType, start: int) -> None:
    """What is left over of 16 bytes stays in the text: all memories begin with a vector."""
    x, = inputs((40,), dtype=dtype)
    later = movement.take_range(x, 0, 7, 39)
    kernels = [emit(group) for group in check([x], later + later).groups]
    assert begins(kernels) == [[start] if start else []]


def test_what_is_read_at_several_places_is_counted_from_the_first() -> None:
    x, = inputs((64,))
    sides = [movement.take_range(x, 0, first, first + 24) for first in (16, 8, 40)]
    kernels = [emit(group) for group in check([x], sides[0] + sides[1] * sides[2]).groups]
    assert begins(kernels) == [[8]]


def test_reads_that_a_bound_hides_before_the_memory_stay_where_they_are() -> None:
    """x[r - 8] where 8 ≤ r: the text counts back from the memory's start, and no argument may."""
    x, y = inputs((24,), (8,))
    kernels = [emit(group) for group in check([x, y], movement.concat(y, x, axis=0) * 2.0).groups]
    assert not any(start < 0 for found in begins(kernels) for start in found)


def test_a_view_that_is_flipped_is_counted_back_from_its_constant() -> None:
    """Its last element comes first: a start there would leave all that is read before the argument."""
    x, w = inputs((24, 16), (16, 16))
    turned = movement.flip(x, axes=(0, 1))
    kernels = [emit(group) for group in check([x, w], turned * 2.0, matmul(turned, w)).groups]
    assert begins(kernels) == [[]] * len(kernels)


def test_a_start_of_symbols_is_that_of_the_size_at_hand() -> None:
    """For a kernel that is timed alone."""
    with Trace(B=6) as trace:
        x = an_input(0, (5, trace.symbol("B"), 32))
        group, = fuse(Graph((x,), (p.tanh(at(x, 3)),))).groups
        source = emit(group)
        assert begins([source]) == [[3 * 6 * 32]] and isinstance(begins([source])[0][0], SymInt)
        plan = plan_of_one(source, KernelImage("kernel", b"", 4, 0, source.source), group)
    assert plan is not None
    launch, = plan.steps
    assert isinstance(launch, Launch) and isinstance(launch.args[0], Place)
    assert (launch.args[0].offset, launch.args[0].type.shape) == (3 * 6 * 32 * 4, (2 * 6 * 32,))
    assert launch.args[0].offset.__class__ is int


def test_steps_begin_where_they_are_for_every_batch_of_a_plan() -> None:
    """Plans that are filled in for other sizes have other starts: values are the CPU's."""
    def step(device: str, batch: int) -> list[np.ndarray]:
        genesis.manual_seed(0)
        cell, x = nn.LSTMCell(8, 16), genesis.randn(4, batch, 8)
        cell, x, h = cell.to(device), x.to(device), genesis.zeros(batch, 16).to(device)
        genesis.eval(x, h, *cell.parameters())
        c, beside = h, (x[1, :, 4:] * x[2, :, 4:]).sum(1)
        for at_step in range(4):
            h, c = cell(x[at_step], (h, c))
        (h.sum(1) * beside).sum().backward()
        return [y.detach().cpu().numpy() for y in (h, *(q.grad for q in cell.parameters()))]
    origins = []
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 28)):
        for batch in (2, 4, 3):
            for found, want in zip(step("cuda", batch), step("cpu", batch), strict=True):
                np.testing.assert_allclose(found, want, atol=1e-5)
            with engine.observe(lambda plan: origins.append(plan.origin)):
                step("cuda", batch + 8)
    assert "other size" in origins


def test_a_recurrent_network_on_a_gpu_has_few_kernels() -> None:
    """Cells in a loop, and layers: no more kernels for 24 steps than for 12."""
    def kernels(steps: int) -> int:
        with counting() as backend, genesis.device("cuda"):
            genesis.manual_seed(0)
            cell, layer = nn.LSTMCell(16, 32), nn.LSTM(16, 32)
            x = genesis.randn(steps, 2, 16)
            h = c = genesis.zeros(2, 32)
            genesis.eval(x, h, *cell.parameters(), *layer.parameters())
            for step in range(steps):
                h, c = cell(x[step], (h, c))
            loss = h.sum() + layer(x)[0].sum()
            loss.backward()
            genesis.eval(loss, *(q.grad for q in (*cell.parameters(), *layer.parameters())))
            return len(backend.kernels)
    assert kernels(24) <= kernels(12) + 2
