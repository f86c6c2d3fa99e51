"""What a CPU plan's calls allocate becomes the memory of its outputs."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

import genesis
from genesis import engine
from genesis.engine.compilation import compile_graph
from genesis.ir.parser import parse
from genesis.ir.types import bool_, cpu, float32, tensor_type
from genesis.runtime.cpu.executor import CPUExecutor, allocate, arena, owned
from genesis.runtime.cpu.one_call import OneCall
from genesis.runtime.cpu.storage import CPUStorage
from genesis.runtime.cpu.straight_line import RUNS_BEFORE

TYPE = tensor_type((2, 3), float32)


def test_a_row_major_result_is_kept_as_it_is() -> None:
    result = torch.arange(6.0).view(2, 3)
    assert owned(result, TYPE, [torch.zeros(2, 3), 1.5]) is result


@pytest.mark.parametrize("result", [
    pytest.param(torch.arange(6.0).view(3, 2).t(), id="turned"),
    pytest.param(torch.arange(12.0)[:6].view(2, 3), id="a part of more memory"),
    pytest.param(torch.arange(6).view(2, 3), id="another dtype"),
    pytest.param(torch.arange(3.0), id="a row for all"),
])
def test_any_other_result_is_copied(result: torch.Tensor) -> None:
    expected = result.float().expand(2, 3).clone()
    kept = owned(result, TYPE, [])
    assert kept.is_contiguous() and kept.dtype is torch.float32 and kept.untyped_storage().nbytes() == TYPE.nbytes
    assert torch.equal(kept, expected)


def test_a_result_that_shows_an_operand_is_copied() -> None:
    operand = torch.arange(6.0).view(2, 3)
    for result in (operand, operand.view(2, 3)):
        kept = owned(result, TYPE, [operand])
        kept.zero_()
        assert operand.sum() == 15


def test_results_that_torch_allocates_are_outputs_and_updates() -> None:
    compiled = compile_graph(parse("graph(%x: f32[2,3]) { %y: f32[2,3] = flip(%x, axes=(1,)) %z: f32[2,3] = exp(%y) "
                                   "update %x = %y return %y, %z }"), cpu)
    memory = CPUStorage(TYPE.nbytes)
    for _ in range(2):
        memory.copy_from_host(np.arange(6, dtype=np.float32))
        at = memory.ptr
        y, z = compiled.run([memory], [])
        expected = np.array([[2, 1, 0], [5, 4, 3]], np.float32)
        np.testing.assert_array_equal(y.numpy(TYPE), expected)
        np.testing.assert_array_equal(memory.numpy(TYPE), expected)
        np.testing.assert_allclose(z.numpy(TYPE), np.exp(expected), rtol=1e-6)
        assert memory.ptr == at and y.ptr != at
        y.bytes[:] = 0
        np.testing.assert_array_equal(memory.numpy(TYPE), expected)


def test_memory_that_torch_allocated_is_bytes_too() -> None:
    tensor = torch.arange(6.0).view(2, 3)
    memory = CPUStorage.holding(tensor, TYPE)
    assert memory.ptr == tensor.data_ptr() and memory.nbytes == memory.bytes.nbytes == 24
    memory.bytes[:] = 0
    assert not tensor.any()
    assert CPUStorage.holding(torch.tensor(True), tensor_type((), bool_)).bytes[0] == 1


def test_no_memory_is_python_s_error() -> None:
    with pytest.raises(MemoryError):
        allocate((1 << 60,), (1,), torch.float32)


def test_results_of_inference_mode_can_be_written_to_later() -> None:
    compiled = compile_graph(parse("graph(%x: f32[2,3]) { %y: f32[2,3] = exp(%x) %z: f32[2,3] = mul(%y, %y) "
                                   "update %x = %z return %y }"), cpu)
    memory = CPUStorage(TYPE.nbytes)
    memory.bytes[:] = 0
    with torch.inference_mode():
        y, = compiled.run([memory], [])
    compiled.run([y], [])
    np.testing.assert_allclose(y.numpy(TYPE), np.full((2, 3), np.exp(2)), rtol=1e-6)


@pytest.mark.parametrize(("body", "executor"), [
    ("%y: f32[2,3] = mul(%x, %x) return %y", OneCall),
    ("%y: f32[2,3] = flip(%x, axes=(1,)) return %y", CPUExecutor),
    ("%y: f32[2,3] = exp(%x) update %x = %y return %y", CPUExecutor),
    ("%y: f32[2,3] = exp(%x) return %y, %y", CPUExecutor),
    ("%y: f32[2,3] = exp(%x) %z: f32[2,3] = exp(%y) return %z", CPUExecutor),
    ("%y: f32[3,2] = permute(%x, axes=(1,0)) %z: f32[3,2] = exp(%y) return %z", CPUExecutor),
])
def test_which_plans_are_one_call(body: str, executor: type) -> None:
    assert type(compile_graph(parse(f"graph(%x: f32[2,3]) {{ {body} }}"), cpu).executor) is executor


def test_one_call_takes_numbers_literals_and_other_memory_each_time() -> None:
    compiled = compile_graph(parse("graph(%x: f32[2,3], %y: f32[2,3]; 1 numbers) { %n: f64~[] = scalar(index=0) "
                                   "%z: f32[2,3] = addcmul(%x, %y, %y, %n) return %z }"), cpu)
    assert type(compiled.executor) is OneCall
    for start in (0.0, 2.0):
        x, y = (CPUStorage(TYPE.nbytes) for _ in range(2))
        x.copy_from_host(np.full(6, start, np.float32))
        y.copy_from_host(np.full(6, 3, np.float32))
        z, = compiled.run([x, y], [start + 1])
        np.testing.assert_array_equal(z.numpy(TYPE), np.full((2, 3), start + (start + 1) * 9, np.float32))


def test_no_memory_in_a_call_is_python_s_error() -> None:
    compiled = compile_graph(parse("graph() { %y: u8[1152921504606846976] = const(value=0) return %y }"), cpu)
    with pytest.raises(MemoryError):
        compiled.run([], [])


def large_tensors() -> set[int]:
    """Addresses of the memories of torch's tensors of 1000 elements or more, but for the arena."""
    gc.collect()
    start = arena.storage.ptr
    found = {x.untyped_storage().data_ptr() for x in gc.get_objects() if type(x) is torch.Tensor and x.numel() >= 1000}
    return {at for at in found if not start <= at < start + max(arena.storage.nbytes, 1)}


@pytest.mark.parametrize("runs", [1, 2, RUNS_BEFORE + 1])
def test_a_plan_that_ran_holds_no_memory_of_its_inputs_and_results(runs: int) -> None:
    """Plans stay in the cache for a process's life: a batch must not. After a few runs a plan is a function."""
    engine.reset()
    before = large_tensors()
    for _ in range(runs):
        x, w = (genesis.tensor(np.ones((50, 40), np.float32)) for _ in range(2))
        genesis.eval(x, w)
        y = (x.t()[1:] * 2).flip(0)
        z = genesis.cat([y, x.t()[:1] + 1]).cumsum(0).exp()
        genesis.eval(y, z, w.exp() * 3)  # of w there are no views
        del x, y, z, w
    assert large_tensors() <= before


def test_values_that_follow_each_other_at_one_place_share_a_tensor() -> None:
    """A long program has tens of thousands of values in a few places; a tensor each takes half a kilobyte."""
    lines = [f"%{i}: f32[2,3] = {'sin' if i % 2 else 'cos'}(%{i - 1})" for i in range(1, 40)]
    compiled = compile_graph(parse("\n".join(["graph(%0: f32[2,3]) {", *lines, "%s: f32[] = sum(%39, axes=(0,1)) "
                                              "return %s }"])), cpu)
    memory = CPUStorage(TYPE.nbytes)
    memory.copy_from_host(np.arange(6, dtype=np.float32))
    result, = compiled.run([memory], [])
    expected = np.arange(6, dtype=np.float64)
    for i in range(1, 40):
        expected = np.sin(expected) if i % 2 else np.cos(expected)
    np.testing.assert_allclose(result.numpy(compiled.plan.outputs[0]), expected.sum(), rtol=1e-5)
    executor = compiled.executor
    assert isinstance(executor, CPUExecutor) and len(executor.in_arena) == 39
    shown = [executor._free[0].registers[i] for i in executor.in_arena]
    assert len({id(x) for x in shown}) == len({x.data_ptr() for x in shown if isinstance(x, torch.Tensor)}) < 4


def test_values_without_elements_share_no_tensor() -> None:
    """torch refuses to write a result to the tensor that it reads, also one without elements: nothing was overwritten,
    so such values may be anywhere."""
    graph = parse("""graph(%x: f32[0,3], %i: i64[0]) {
        %a: f32[0,3] = sin(%x)
        %b: f32[0,3] = take(%a, %i, axis=0)
        %r: f32[0,3] = cos(%b)
        return %r
    }""")
    compiled = compile_graph(graph, cpu)
    for _ in range(RUNS_BEFORE + 2):
        result, = compiled.run([CPUStorage(0), CPUStorage(0)], [])
        assert result.nbytes == 0
    rows, no_rows = genesis.empty(0, 3), genesis.empty(0, dtype=genesis.int64)
    assert rows.sin().index_select(0, no_rows).cos().shape == (0, 3)
