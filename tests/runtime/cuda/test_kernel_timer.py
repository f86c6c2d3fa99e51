"""The time of one kernel: by events, over memory of its own, which is free again afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import genesis
from genesis.codegen.cuda.alone import plan_of_one
from genesis.codegen.cuda.emit import emit
from genesis.codegen.cuda.tuning import NotTimed
from genesis.engine.backends import FakeCUDABackend, backend_named
from genesis.engine.tuning import timed
from genesis.ir import Graph
from genesis.ir.ops import movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops.contraction import matmul
from genesis.ir.ops.indexing import gather
from genesis.ir.types import DType, bfloat16, float16, float32, float64, int64, tensor_type
from genesis.passes.fusion.fuse import fuse
from genesis.passes.groups import Group
from genesis.runtime.cuda import kernel_timer
from genesis.runtime.cuda.driver import DeviceProperties, DriverError
from genesis.runtime.cuda.stream import current_stream
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.plan import Plan
from tests.codegen.cuda.evaluate import decomposed
from tests.codegen.cuda.programs import GPU, an_input


class Gpu(HostDriver):
    """A GPU whose launches take 3, 1 and 2 ms in turn, and which notes what it is given."""

    poisons = False

    def __init__(self, memory_bytes: int):
        super().__init__(memory_bytes=memory_bytes)
        self.launched: list[str] = []
        self.filled: list[int] = []
        self.events = 0

    def properties(self, device: int) -> DeviceProperties:
        return replace(super().properties(device), L2_cache_size=1 << 20)

    def launch(self, prepared, stream) -> None:  # type: ignore[no-untyped-def]
        super().launch(prepared, stream)
        self.launched.append(prepared.name)

    def fill(self, address: int, byte: int, nbytes: int, stream) -> None:  # type: ignore[no-untyped-def]
        self.filled.append(nbytes)
        super().fill(address, byte, nbytes, stream)

    def create_event(self, timing: bool):  # type: ignore[no-untyped-def]
        self.events += 1
        return super().create_event(timing)

    def destroy_event(self, event) -> None:  # type: ignore[no-untyped-def]
        self.events -= 1
        super().destroy_event(event)

    def elapsed_ms(self, start, end) -> float:  # type: ignore[no-untyped-def]
        return (2.0, 3.0, 1.0)[len(self.launched) % 3]


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    driver = Gpu(1 << 28)
    with FakeCUDABackend(driver):
        yield driver


def plan(dtype: DType = bfloat16) -> Plan:
    """A product with a bias that is looked up by an index."""
    x, w, bias, at = (an_input(0, (32, 16), dtype), an_input(1, (16, 32), dtype), an_input(2, (5,), dtype),
                      an_input(3, (32,), int64))
    y = p.add(matmul(x, w), movement.expand(gather(bias, at, axis=0), shape=(32, 32)))
    return alone(fuse(decomposed(Graph((x, w, bias, at), (y,)))).groups[-1])


def alone(group: Group) -> Plan:
    """The plan of a group's kernel."""
    source = emit(group)
    image, = backend_named("cuda").compile([source])  # type: ignore[attr-defined]  # of a GPU
    found = plan_of_one(source, image, group)
    assert found is not None
    return found


def test_a_result_that_lies_in_a_larger_value_has_all_of_its_memory(gpu: Gpu) -> None:
    """The last columns of a concatenation: the driver refuses to write outside of what a kernel is given."""
    x, w, v = an_input(0, (32, 16)), an_input(1, (16, 32)), an_input(2, (16, 32))
    groups = fuse(decomposed(Graph((x, w, v), (movement.concat(matmul(x, w), matmul(x, v), axis=1),)))).groups
    assert [group.kind for group in groups] == ["matmul", "matmul", "joined"]
    one = alone(groups[1])
    assert (32, 64) in [type.shape for type in one.inputs]
    assert kernel_timer.microseconds(one) > 0


def test_the_median_of_launches_after_other_memory_went_through_the_l2(gpu: Gpu) -> None:
    found = kernel_timer.microseconds(plan())
    assert found == 2000.0
    launches = kernel_timer.WARM + kernel_timer.ROUNDS
    assert len(gpu.launched) == launches + 1, "the first loads it"
    assert gpu.filled.count(2 * gpu.properties(0).L2_cache_size) == launches
    assert gpu.events == 0, "all are given back"


def test_memory_is_given_back(gpu: Gpu) -> None:
    one = plan()
    before = genesis.cuda.memory_allocated()
    kernel_timer.microseconds(one)
    assert genesis.cuda.memory_allocated() == before


@pytest.mark.parametrize("dtype", [float16, bfloat16, float32, float64])
def test_operands_are_random_numbers_of_their_type(gpu: Gpu, dtype: DType) -> None:
    """Zeros take less power. Patterns follow each other where memory is longer."""
    type = tensor_type((kernel_timer.PATTERN * 5 // 2,), dtype, GPU)
    memory = kernel_timer._filled(type, current_stream(0).handle)
    found = np.empty(type.nbytes, np.uint8)
    memory.copy_to_host(found)
    if dtype is bfloat16:
        values = (found.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        values = found.view(dtype.name)
    assert np.isfinite(values).all() and 0.9 < values.astype(np.float64).std() < 1.1
    assert (values[:kernel_timer.PATTERN] == values[kernel_timer.PATTERN:2 * kernel_timer.PATTERN]).all()


def test_indices_are_zeros_which_are_inside_of_whatever_there_is(gpu: Gpu) -> None:
    memory = kernel_timer._filled(tensor_type((1000,), int64, GPU), current_stream(0).handle)
    found = np.empty(8000, np.uint8)
    memory.copy_to_host(found)
    assert not found.any()


def test_without_room_for_operands_it_says_so() -> None:
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 20)), pytest.raises(NotTimed, match="no memory") as told:
        timed(plan())
    assert told.value.memory


def test_a_kernel_that_does_not_start_is_told(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise DriverError("cuFuncSetAttribute", "CUDA_ERROR_INVALID_VALUE", "too much shared memory")
    monkeypatch.setattr(gpu, "allow_shared_memory", refuse)
    monkeypatch.setattr(gpu, "prepare_launch", refuse)
    with pytest.raises(NotTimed, match="too much shared memory") as told:
        timed(plan())
    assert not told.value.memory
