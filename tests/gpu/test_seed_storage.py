"""The programs of the CUDA storage guide, as printed there (the comments are ours).

Without a GPU they run on the host driver, with the sizes that each test names made smaller.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import re
import time
from typing import Any

import numpy as np
import pytest
import torch

import genesis
from genesis.ops import sharing
from genesis.runtime.cuda.driver import Pointer
from genesis.runtime.fake_cuda import interpreter

from .compare import array


class Blocks:
    """Runs blocks of the guide one after the other, in one namespace."""

    def __init__(self, real: bool):
        self.real = real
        self.names: dict[str, Any] = {"genesis": genesis, "torch": torch, "time": time}

    def run(self, code: str, smaller: dict[str, str] | None = None) -> None:
        """Run a block; without a GPU with these numbers, and whatever else needs one, replaced."""
        if not self.real:
            for old, new in (smaller or {}).items():
                assert re.search(rf"(?<!\w){re.escape(old)}(?!\w)", code), f"{old} is not in the block"
                code = re.sub(rf"(?<!\w){re.escape(old)}(?!\w)", new, code)
        exec(compile(code, "<guide>", "exec"), self.names)

    def __getattr__(self, name: str) -> Any:
        return self.names[name]


@pytest.fixture
def guide(cuda) -> Blocks:
    """A fresh namespace with what the guide's blocks take for granted."""
    return Blocks(cuda.real)


INDEXING = """
import genesis

# a tensor on the GPU
x = genesis.randn(1000, 1000, device='cuda')

# basic indexing: a view, nothing is copied
y = x[10:20, 50:100]

# an integer tensor gathers rows
indices = genesis.tensor([1, 3, 5, 7], device='cuda')
z = x[indices]

# a mask
mask = x > 0.5
w = x[mask]
"""


def test_efficient_indexing(guide):
    guide.run(INDEXING, {"1000": "120"})
    x = array(guide.x)
    assert guide.y.storage is guide.x.storage
    np.testing.assert_array_equal(array(guide.y), x[10:20, 50:100])
    np.testing.assert_array_equal(array(guide.z), x[[1, 3, 5, 7]])
    np.testing.assert_array_equal(array(guide.w), x[x > 0.5])


MEMORY = """
# in place: no memory is taken
x = genesis.randn(1000, 1000, device='cuda')
x += 1.0

# views: nothing is copied
y = x.view(100, 10000)
z = x.transpose(0, 1)

# every second row and third column
w = x[::2, ::3]
"""


def test_memory_efficient_operations(guide):
    guide.run(MEMORY, {"1000": "120", "10000": "144"})
    x = array(guide.x)
    for view in (guide.y, guide.z, guide.w):
        assert view.storage is guide.x.storage
    np.testing.assert_array_equal(array(guide.y), x.reshape(100, -1))
    np.testing.assert_array_equal(array(guide.z), x.T)
    np.testing.assert_array_equal(array(guide.w), x[::2, ::3])
    assert guide.w.data_ptr() == guide.x.data_ptr()


TRITON = """
import triton
import triton.language as tl
from genesis.cuda.triton_kernels import CUDATensor

@triton.jit
def add_kernel(x_ptr, y_ptr, output_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    block_start = pid * BLOCK_SIZE
    offsets = block_start + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements

    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    output = x + y

    tl.store(output_ptr + offsets, output, mask=mask)

def add_cuda_tensor(x: CUDATensor, y: CUDATensor) -> CUDATensor:
    output = CUDATensor(x.shape, x.dtype)

    n_elements = x.numel()
    BLOCK_SIZE = 1024
    grid = lambda meta: (triton.cdiv(n_elements, meta['BLOCK_SIZE']),)

    add_kernel[grid](x.data_ptr(), y.data_ptr(), output.data_ptr(),
                     n_elements, BLOCK_SIZE=BLOCK_SIZE)

    return output
"""


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_a_triton_kernel_of_the_users(cuda, tmp_path, monkeypatch, dtype):
    """It is read from a file, as Triton asks. On the host driver it is interpreted, which asks more of a pointer."""
    if not cuda.real:
        monkeypatch.setattr(sharing, "DevicePointer",
                            lambda address, dtype: interpreter.HostPointer(Pointer(address, dtype)))
    file = tmp_path / "kernels.py"
    file.write_text(TRITON)
    with contextlib.nullcontext() if cuda.real else interpreter.interpreting():
        spec = importlib.util.spec_from_file_location("kernels", file)
        kernels = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(kernels)
        x = (genesis.randn(50, 60, device="cuda") * 10).to(getattr(genesis, dtype))
        total = x
        for _ in range(3):  # each on the result of the one before, with work of ours between
            total = kernels.add_cuda_tensor(total, x * 2)
            assert type(total) is kernels.CUDATensor and total.device.type == "cuda"
    np.testing.assert_allclose(array(total + 0), array(x) * 7, rtol=5e-3 if dtype == "float16" else 1e-6)


CREATING = """
import genesis

# from data
data = [[1.0, 2.0], [3.0, 4.0]]
tensor = genesis.tensor(data, device='cuda')

# of a shape
zeros = genesis.zeros(100, 100, device='cuda')
ones = genesis.ones(50, 50, device='cuda')
random = genesis.randn(200, 200, device='cuda')

# of a dtype
float16_tensor = genesis.randn(100, 100, dtype=genesis.float16, device='cuda')
int_tensor = genesis.randint(0, 10, (50, 50), device='cuda')

print(f"shape: {tensor.shape}")
print(f"dtype: {tensor.dtype}")
print(f"device: {tensor.device}")
print(f"strides: {tensor.strides}")
"""


def test_creating_tensors(guide, capsys):
    guide.run(CREATING)
    assert capsys.readouterr().out.splitlines() == [
        "shape: genesis.Size([2, 2])", "dtype: genesis.float32", "device: cuda:0", "strides: (2, 1)"]
    assert array(guide.zeros).sum() == 0 and array(guide.ones).sum() == 2500
    assert guide.float16_tensor.dtype is genesis.float16 and guide.int_tensor.dtype is genesis.int64
    assert array(guide.int_tensor).min() == 0 and array(guide.int_tensor).max() == 9


OPERATIONS = """
# mathematics
x = genesis.randn(100, 100, device='cuda')
y = genesis.randn(100, 100, device='cuda')

# element by element
z = x + y
w = x * y
u = x.pow(2)
v = x.exp()

# reductions
sum_all = x.sum()
sum_dim = x.sum(dim=0)
mean_val = x.mean()
max_val, indices = x.max(dim=1)

# linear algebra
a = genesis.randn(100, 50, device='cuda')
b = genesis.randn(50, 200, device='cuda')
c = genesis.matmul(a, b)

# shapes
reshaped = x.view(10, 1000)
transposed = x.transpose(0, 1)
flattened = x.flatten()
"""


def test_basic_operations(guide):
    guide.run(OPERATIONS)
    x, y = (array(t).astype(np.float64) for t in (guide.x, guide.y))
    close = {"rtol": 1e-5, "atol": 1e-4}
    for name, wanted in {"z": x + y, "w": x * y, "u": x**2, "v": np.exp(x), "sum_all": x.sum(), "sum_dim": x.sum(0),
                         "mean_val": x.mean(), "max_val": x.max(1), "indices": x.argmax(1),
                         "c": array(guide.a).astype(np.float64) @ array(guide.b), "reshaped": x.reshape(10, 1000),
                         "transposed": x.T, "flattened": x.ravel()}.items():
        np.testing.assert_allclose(array(getattr(guide, name)), wanted, err_msg=name, **close)


ADVANCED = """
data = genesis.arange(0, 100, device='cuda').view(10, 10)
print("data:")
print(data)

# slices
slice_basic = data[2:5, 3:7]
print("slice:", slice_basic.shape)

# steps
slice_stride = data[::2, 1::2]
print("steps:", slice_stride.shape)

# two integer tensors: chosen positions
row_indices = genesis.tensor([0, 2, 4, 6], device='cuda')
col_indices = genesis.tensor([1, 3, 5, 7], device='cuda')
advanced = data[row_indices, col_indices]
print("positions:", advanced)

# a mask
mask = data > 50
masked_data = data[mask]
print("mask:", masked_data)

# rows by tensor, columns by slice
mixed = data[row_indices, 2:8]
print("mixed:", mixed.shape)
"""


def test_advanced_indexing(guide, capsys):
    guide.run(ADVANCED)
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("tensor([[ 0,  1,  2") and "device='cuda:0'" in lines[10]
    assert "slice: genesis.Size([3, 4])" in lines
    assert "steps: genesis.Size([5, 5])" in lines
    assert "positions: tensor([ 1, 23, 45, 67], device='cuda:0')" in lines
    assert "mixed: genesis.Size([4, 6])" in lines
    data = np.arange(100).reshape(10, 10)
    np.testing.assert_array_equal(array(guide.masked_data), data[data > 50])
    np.testing.assert_array_equal(array(guide.mixed), data[[0, 2, 4, 6], 2:8])


POOL = """
# how much is in use
print(f"allocated: {genesis.cuda.memory_allocated() / 1024**2:.1f} MB")
print(f"cached: {genesis.cuda.memory_cached() / 1024**2:.1f} MB")

# by hand
x = genesis.randn(1000, 1000, device='cuda')
print(f"with the tensor: {genesis.cuda.memory_allocated() / 1024**2:.1f} MB")

del x
genesis.cuda.empty_cache()
print(f"without it: {genesis.cuda.memory_allocated() / 1024**2:.1f} MB")

# for debugging
snapshot = genesis.cuda.memory_snapshot()
for entry in snapshot[:3]:
    print(f"address: {entry['address']}, size: {entry['size']} bytes")
"""


def test_the_memory_pool(guide, capsys):
    held = genesis.ones(1, device="cuda")
    genesis.eval(held)
    guide.run(POOL, {"1000": "160"})
    lines = capsys.readouterr().out.splitlines()
    start, _, made, dropped = (float(re.search(r"([\d.]+) MB", line)[1]) for line in lines[:4])
    size = 3.8 if guide.real else 0.1
    assert made >= start + size and dropped <= start
    assert re.fullmatch(r"address: \d+, size: \d+ bytes", lines[4])


ASYNCHRONOUS = """
with genesis.cuda.stream():
    x = genesis.randn(1000, 1000, device='cuda')
    y = genesis.randn(1000, 1000, device='cuda')
    z = genesis.matmul(x, y)  # does not wait

    # the CPU is free for other work
    print("the product is on its way...")

    # wait for it
    genesis.cuda.synchronize()
    print("done:", z.shape)
"""


def test_asynchronous_operations(guide, capsys):
    guide.run(ASYNCHRONOUS, {"1000": "32"})
    size = 1000 if guide.real else 32
    assert capsys.readouterr().out.splitlines()[1] == f"done: genesis.Size([{size}, {size}])"
    assert guide.z.storage.settled, "synchronize computes what is live"
    np.testing.assert_allclose(array(guide.z), array(guide.x) @ array(guide.y), rtol=1e-4, atol=1e-3)


ACCESS = """
def inefficient_access():
    x = genesis.randn(1000, 1000, device='cuda')
    result = genesis.zeros(1000, device='cuda')

    # one strided row at a time
    for i in range(1000):
        result[i] = x[i, ::10].sum()

    return result

def efficient_access():
    x = genesis.randn(1000, 1000, device='cuda')

    # all rows at once
    indices = genesis.arange(0, 1000, 10, device='cuda')
    selected = x[:, indices]
    result = selected.sum(dim=1)

    return result

# side by side
import time

start = time.time()
result1 = inefficient_access()
time1 = time.time() - start

start = time.time()
result2 = efficient_access()
time2 = time.time() - start

print(f"one at a time: {time1:.4f}s")
print(f"all at once: {time2:.4f}s")
print(f"ratio: {time1/time2:.2f}x")
"""


def test_memory_access(guide, capsys):
    state = genesis.get_rng_state()
    guide.run(ACCESS, {"1000": "40"})
    size = 1000 if guide.real else 40
    assert len(capsys.readouterr().out.splitlines()) == 3
    genesis.set_rng_state(state)
    for result in (guide.result1, guide.result2):
        x = array(genesis.randn(size, size, device="cuda"))
        np.testing.assert_allclose(array(result), x[:, ::10].sum(1), rtol=1e-4, atol=1e-4)


BATCHES = """
def batch_operations_demo():
    matrices = [genesis.randn(100, 100, device='cuda') for _ in range(10)]

    # one by one
    start = time.time()
    results1 = []
    for matrix in matrices:
        result = matrix.exp().sum()
        results1.append(result)
    time1 = time.time() - start

    # as one batch
    start = time.time()
    batched = genesis.stack(matrices, dim=0)  # [10, 100, 100]
    results2 = batched.exp().sum(dim=(1, 2))  # [10]
    time2 = time.time() - start

    print(f"one by one: {time1:.4f}s")
    print(f"as a batch: {time2:.4f}s")
    print(f"ratio: {time1/time2:.2f}x")
    return results1, results2

results1, results2 = batch_operations_demo()
"""


def test_batches(guide, capsys):
    guide.run(BATCHES, {"100": "20"})
    assert len(capsys.readouterr().out.splitlines()) == 3
    one_by_one = np.array([float(result) for result in guide.results1])
    np.testing.assert_allclose(array(guide.results2), one_by_one, rtol=1e-5)


IN_PLACE = """
def inplace_operations_demo():
    # new tensors
    x = genesis.randn(1000, 1000, device='cuda')
    start_memory = genesis.cuda.memory_allocated()

    y = x + 1.0
    z = y * 2.0
    w = z.exp()

    memory_after = genesis.cuda.memory_allocated()
    print(f"new tensors: {(memory_after - start_memory) / 1024**2:.1f} MB")

    # the tensor itself
    x = genesis.randn(1000, 1000, device='cuda')
    start_memory = genesis.cuda.memory_allocated()

    x += 1.0
    x *= 2.0
    x.exp_()

    memory_after = genesis.cuda.memory_allocated()
    print(f"in place: {(memory_after - start_memory) / 1024**2:.1f} MB")

inplace_operations_demo()
"""


def test_in_place_operations(guide, capsys):
    guide.run(IN_PLACE, {"1000": "160"})
    grown, in_place = (float(re.search(r"([-\d.]+) MB", line)[1]) for line in capsys.readouterr().out.splitlines())
    assert grown >= (11.4 if guide.real else 0.3) and in_place == 0


LEAKS = """
def detect_memory_leaks():
    genesis.cuda.empty_cache()
    initial_memory = genesis.cuda.memory_allocated()

    for i in range(100):
        x = genesis.randn(100, 100, device='cuda')
        y = x.matmul(x)
        del x, y

    genesis.cuda.empty_cache()
    final_memory = genesis.cuda.memory_allocated()

    if final_memory > initial_memory:
        print(f"there may be a leak: {(final_memory - initial_memory) / 1024**2:.1f} MB")
    else:
        print("no leak was found")

detect_memory_leaks()
"""


def test_leak_detection(guide, capsys):
    guide.run(LEAKS)
    assert capsys.readouterr().out == "no leak was found\n"


def test_loops_that_compute_hold_no_more_memory_after_them(guide):
    """The loop of the guide's detector, with its products read so that they are computed."""
    loops, size = (10_000, 100) if guide.real else (60, 8)
    allocated = []
    for step in range(loops + 1):
        x = genesis.randn(size, size, device="cuda")
        y = x.matmul(x)
        genesis.eval(y)
        del x, y
        if step in (0, loops):
            gc.collect()
            genesis.cuda.empty_cache()
            allocated.append((genesis.cuda.memory_allocated(), genesis.cuda.memory_reserved()))
    assert allocated[0] == allocated[1]


ERRORS = """
def diagnose_cuda_errors():
    try:
        # shapes that do not fit
        x = genesis.randn(1000, 1000, device='cuda')
        y = genesis.randn(500, 500, device='cuda')
        z = genesis.matmul(x, y)

    except RuntimeError as e:
        print(f"CUDA error: {e}")

        # what CUDA says
        if genesis.cuda.is_available():
            print(f"device: {genesis.cuda.get_device_name()}")
            print(f"capability: {genesis.cuda.get_device_capability()}")
            print(f"memory: {genesis.cuda.get_device_properties().total_memory / 1024**3:.1f} GB")
        else:
            print("no CUDA")

diagnose_cuda_errors()
"""


def test_diagnosing_errors(guide, capsys):
    guide.run(ERRORS)
    text = capsys.readouterr().out
    assert text.startswith("CUDA error: matmul: ") and "1000" in text and "500" in text
    lines = text.splitlines()[-3:]
    assert lines[0] == f"device: {genesis.cuda.get_device_name()}" and "no CUDA" not in text
    assert re.fullmatch(r"capability: \(\d+, \d+\)", lines[1]) and re.fullmatch(r"memory: [\d.]+ GB", lines[2])


TORCH = """
import torch

def pytorch_interop_demo():
    # to torch
    genesis_tensor = genesis.randn(100, 100, device='cuda')

    pytorch_tensor = torch.as_tensor(genesis_tensor.detach().cpu().numpy()).cuda()

    print(f"Genesis: {genesis_tensor.shape}")
    print(f"PyTorch: {pytorch_tensor.shape}")

    # and back
    torch_data = torch.randn(50, 50, device='cuda')
    genesis_from_torch = genesis.tensor(torch_data.cpu().numpy(), device='cuda')

    print(f"there and back: {genesis_from_torch.shape}")
    return genesis_tensor, pytorch_tensor, torch_data, genesis_from_torch

here, there, source, back = pytorch_interop_demo()
"""


def test_torch_interoperability(guide, capsys):
    guide.run(TORCH if guide.real else TORCH.replace(".cuda()", "").replace("torch.randn(50, 50, device='cuda')",
                                                                           "torch.randn(50, 50)"))
    assert capsys.readouterr().out.splitlines() == [
        "Genesis: genesis.Size([100, 100])", "PyTorch: torch.Size([100, 100])",
        "there and back: genesis.Size([50, 50])"]
    np.testing.assert_array_equal(array(guide.here), guide.there.cpu().numpy())
    np.testing.assert_array_equal(array(guide.back), guide.source.cpu().numpy())


BENCHMARK = """
def benchmark_cuda_tensor():
    sizes = [100, 500, 1000, 2000]

    print("matrix products (Genesis vs PyTorch):")
    print("-" * 50)

    for size in sizes:
        # Genesis
        x_gen = genesis.randn(size, size, device='cuda')
        y_gen = genesis.randn(size, size, device='cuda')

        genesis.cuda.synchronize()
        start = time.time()
        for _ in range(10):
            z_gen = genesis.matmul(x_gen, y_gen)
        genesis.cuda.synchronize()
        genesis_time = (time.time() - start) / 10

        # PyTorch
        x_torch = torch.randn(size, size, device='cuda')
        y_torch = torch.randn(size, size, device='cuda')

        torch.cuda.synchronize()
        start = time.time()
        for _ in range(10):
            z_torch = torch.matmul(x_torch, y_torch)
        torch.cuda.synchronize()
        pytorch_time = (time.time() - start) / 10

        ratio = genesis_time / pytorch_time
        print(f"{size}x{size}: Genesis {genesis_time:.4f}s, PyTorch {pytorch_time:.4f}s, ratio {ratio:.2f}")

benchmark_cuda_tensor()
"""


def test_the_benchmark(guide, capsys):
    if guide.real:
        guide.run(BENCHMARK)
    else:
        on_cpu = re.sub(r"torch\.randn\(size, size, device='cuda'\)", "torch.randn(size, size)", BENCHMARK)
        guide.run(on_cpu.replace("torch.cuda.synchronize()", "pass"),
                  {"[100, 500, 1000, 2000]": "[8, 16, 24, 32]"})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6 and all("ratio" in line for line in lines[2:])


PRACTICE = """
def good_memory_practice():
    with genesis.cuda.device(0):
        x = genesis.randn(1000, 1000, device='cuda')

        # in place
        x += 1.0
        x *= 0.5

        # let go of large tensors early
        del x
        genesis.cuda.empty_cache()

def bad_memory_practice():
    tensors = []
    for i in range(100):
        x = genesis.randn(1000, 1000, device='cuda')
        y = x + 1.0  # another copy
        tensors.append(y)  # all of them are kept

def vectorized_operations():
    x = genesis.randn(1000, 1000, device='cuda')

    result = genesis.relu(x).sum(dim=1).mean()
    return result

def avoid_loops():
    x = genesis.randn(1000, 1000, device='cuda')

    result = 0
    for i in range(1000):
        result += x[i].sum()  # a kernel each time
    return result

good_memory_practice()
bad_memory_practice()
vectorized, looped = vectorized_operations(), avoid_loops()
"""


def test_good_and_bad_practice(guide):
    before = genesis.cuda.memory_allocated()
    state = genesis.get_rng_state()
    guide.run(PRACTICE, {"1000": "24"})
    size = 1000 if guide.real else 24
    genesis.cuda.empty_cache()
    assert genesis.cuda.memory_allocated() < before + 100 * 4 * size * size
    genesis.set_rng_state(state)
    for _ in range(101):
        genesis.randn(size, size, device="cuda")
    x = array(genesis.randn(size, size, device="cuda"))
    np.testing.assert_allclose(float(guide.vectorized), np.maximum(x, 0).sum(1).mean(), rtol=1e-5)
    x = array(genesis.randn(size, size, device="cuda"))
    np.testing.assert_allclose(float(guide.looped), x.sum(dtype=np.float64), rtol=1e-3, atol=1e-2)


DEBUGGING = """
import os
os.environ['CUDA_LAUNCH_BLOCKING'] = '1'

def safe_tensor_operation(x, y):
    assert x.device == y.device, "tensors must be on one device"
    assert x.shape == y.shape, f"shapes differ: {x.shape} vs {y.shape}"

    return x + y
"""


def test_debugging(guide, monkeypatch):
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "0")
    guide.run(DEBUGGING)
    assert os.environ["CUDA_LAUNCH_BLOCKING"] == "1"
    x = genesis.ones(3, device="cuda")
    for _ in range(3):
        assert guide.safe_tensor_operation(x, x).tolist() == [2, 2, 2]
    with pytest.raises(AssertionError, match="one device"):
        guide.safe_tensor_operation(x, genesis.ones(3))
    with pytest.raises(AssertionError, match=r"shapes differ: genesis.Size\(\[3\]\) vs genesis.Size\(\[2\]\)"):
        guide.safe_tensor_operation(x, genesis.ones(2, device="cuda"))


OUT_OF_MEMORY = """
batch_size = 32  # 16 or 8

accumulation_steps = 4
effective_batch_size = batch_size * accumulation_steps

# half the bytes
x = genesis.randn(1000, 1000, dtype=genesis.float16, device='cuda')

genesis.cuda.empty_cache()
"""

SLOW = """
# on the GPU?
assert x.device.type == 'cuda'

# not like this
for i in range(1000):
    cpu_data = x.cpu().numpy()  # each time

# like this
cpu_data = x.cpu().numpy()  # once

# in a smaller dtype
x = genesis.randn(1000, 1000, dtype=genesis.float16, device='cuda')
"""


def test_frequent_questions(guide):
    guide.run(OUT_OF_MEMORY, {"1000": "24"})
    assert guide.x.nbytes == 2 * guide.x.numel()
    before = array(guide.x)
    guide.run(SLOW, {"1000": "24"})
    np.testing.assert_array_equal(guide.cpu_data, before)


CHECKING = """
import os
os.environ['CUDA_LAUNCH_BLOCKING'] = '1'

def check_tensor(tensor, name):
    assert not torch.isnan(tensor).any(), f"{name} has NaN"
    assert not torch.isinf(tensor).any(), f"{name} has Inf"
    print(f"{name}: shape={tensor.shape}, dtype={tensor.dtype}")
"""


def test_checking_a_tensor(guide, monkeypatch, capsys):
    """The guide checks with torch's functions; a tensor of ours gets there without a copy."""
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "0")
    guide.run(CHECKING)
    tensor = genesis.ones(2, 3, device="cuda" if guide.real else "cpu")
    guide.check_tensor(torch.from_dlpack(tensor), "ones")
    assert capsys.readouterr().out == "ones: shape=torch.Size([2, 3]), dtype=torch.float32\n"
    with pytest.raises(AssertionError, match="weights has NaN"):
        guide.check_tensor(torch.from_dlpack(tensor * float("nan")), "weights")
