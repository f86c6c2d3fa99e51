"""Host memory: aligned, typed views share it, copies check their sizes."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest
import torch

from genesis.ir import types
from genesis.ir.types import tensor_type
from genesis.runtime.cpu import storage as cpu_storage
from genesis.runtime.cpu.storage import CPUStorage


@pytest.mark.parametrize("nbytes", [1, 4, 63, 64, 1000, 1 << 20])
def test_memory_is_aligned_and_of_the_size_asked_for(nbytes):
    memory = CPUStorage(nbytes)
    assert memory.ptr % 64 == 0
    assert memory.ptr == memory.bytes.ctypes.data
    assert memory.nbytes == memory.bytes.nbytes == nbytes
    assert memory.device is types.cpu


def test_empty_memory_is_fine():
    memory = CPUStorage(0)
    assert memory.numpy(tensor_type((0, 3), types.float32)).shape == (0, 3)
    memory.copy_from_host(b"")
    memory.copy_to_host(np.empty((2, 0), np.float64))


@pytest.mark.parametrize("dtype", types.DTYPES, ids=lambda dtype: dtype.name)
def test_numpy_view_has_the_types_shape_and_dtype_and_shares_memory(dtype):
    memory = CPUStorage(6 * dtype.itemsize)
    view = memory.numpy(tensor_type((2, 3), dtype))
    view[...] = 1
    assert view.dtype == dtype.numpy
    assert memory.numpy(tensor_type((6,), dtype)).tolist() == [1] * 6


def test_a_type_larger_than_the_memory_is_refused():
    with pytest.raises(ValueError, match="needs 12 bytes, the storage has 8"):
        CPUStorage(8).numpy(tensor_type((3,), types.float32))


def test_copies_there_and_back():
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    memory = CPUStorage(24)
    memory.copy_from_host(values)
    back = np.empty(6, np.float32)
    memory.copy_to_host(back)
    assert back.tolist() == values.reshape(-1).tolist()


def test_copies_of_bfloat16_which_has_no_buffer_protocol():
    memory = CPUStorage(4)
    memory.copy_from_host(np.array([1, 2], ml_dtypes.bfloat16))
    assert memory.numpy(tensor_type((2,), types.bfloat16)).tolist() == [1, 2]


@pytest.mark.parametrize(("buffer", "message"), [
    (b"123", "between 4 bytes of memory and a buffer of 3 bytes"),
    (np.zeros((2, 4), np.uint8)[:, :2], "not contiguous"),
    (memoryview(bytearray(8))[::2], "not contiguous|non-contiguous"),
])
def test_buffers_that_do_not_match_are_refused(buffer, message):
    with pytest.raises(ValueError, match=message):
        CPUStorage(4).copy_from_host(buffer)


def test_a_read_only_buffer_is_not_written():
    with pytest.raises(ValueError, match="read-only"):
        CPUStorage(4).copy_to_host(b"1234")


def test_wrap_shares_the_arrays_memory():
    array = np.zeros((2, 2), np.int32)
    memory = CPUStorage.wrap(array)
    memory.numpy(tensor_type((4,), types.int32))[3] = 7
    assert array[1, 1] == 7
    assert memory.ptr == array.ctypes.data
    with pytest.raises(ValueError, match="not contiguous"):
        CPUStorage.wrap(np.zeros((2, 3)).T)


def test_wrapping_a_read_only_array_reads_it():
    memory = CPUStorage.wrap(np.frombuffer(b"abcd", np.uint8))
    back = bytearray(4)
    memory.copy_to_host(back)
    assert back == b"abcd"


def test_memory_dies_with_its_last_reference():
    memory = CPUStorage(16)
    watcher = weakref.ref(memory)
    del memory
    gc.collect()
    assert watcher() is None


def test_the_allocation_hook_is_looked_up_at_each_allocation(monkeypatch):
    def refuse(nbytes):
        raise MemoryError(nbytes)
    monkeypatch.setattr(cpu_storage, "allocate", refuse)
    with pytest.raises(MemoryError):
        CPUStorage(4)


def test_importing_the_runtime_loads_no_compiler_driver_or_torch():
    script = ("import sys, genesis.cuda, genesis.runtime.cuda.executor, genesis.runtime.cpu.storage;"
              "print([name for name in sys.modules if name.split('.')[0] in ('torch', 'triton', 'cuda')])")
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"


def test_one_element_of_any_stride_has_bytes() -> None:
    """torch's gradient of a weight of one element over no images has the stride 0: so it does not show it as bytes."""
    held = CPUStorage.holding(torch.zeros(()).expand(1, 1), tensor_type((1, 1), types.float32))
    assert held.bytes.tolist() == [0, 0, 0, 0]
