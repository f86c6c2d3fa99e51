"""Tensors come to CUDA and leave it; what mixes devices says so."""

from __future__ import annotations

import numpy as np
import pytest

import genesis
from genesis.frontend.host_values import host_copy
from genesis.ir.types import DTYPES

from .compare import array, numbers, same

VALUES = {"bool": [True, False, True], "int": [0, 3, 100], "float": [0.5, -2.0, float("inf")]}


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_creation_in_every_dtype(cuda, dtype):
    made = {
        "tensor": lambda device: genesis.tensor(VALUES[dtype.kind], dtype=dtype, device=device),
        "zeros": lambda device: genesis.zeros(2, 3, dtype=dtype, device=device),
        "ones": lambda device: genesis.ones((4,), dtype=dtype, device=device),
        "full": lambda device: genesis.full((2, 2), VALUES[dtype.kind][1], dtype=dtype, device=device),
        "scalar": lambda device: genesis.tensor(VALUES[dtype.kind][1], dtype=dtype, device=device),
        "empty": lambda device: genesis.zeros(0, 3, dtype=dtype, device=device),
        "eye": lambda device: genesis.eye(3, dtype=dtype, device=device),
        "zeros_like": lambda device: genesis.zeros_like(genesis.ones(2, dtype=dtype, device=device)),
    }
    if dtype.kind != "bool":
        made["arange"] = lambda device: genesis.arange(1, 9, 2, dtype=dtype, device=device)
    results = {name: (make("cpu"), make("cuda")) for name, make in made.items()}
    genesis.eval([there for _, there in results.values()])
    for name, (here, there) in results.items():
        assert there.device == genesis.device("cuda", 0) and there.dtype is dtype
        same(there, array(here), 0.0, name)


def test_linspace_and_float_arange(cuda):
    same(genesis.linspace(-1, 2, 7, device="cuda"), array(genesis.linspace(-1, 2, 7)))
    same(genesis.arange(0, 1, 0.3, device="cuda"), array(genesis.arange(0, 1, 0.3)))


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (2, 3)])
def test_both_ways(cuda, shape):
    values = numbers(*shape)
    there = genesis.tensor(values).to("cuda")
    assert there.is_cuda and there.device.type == "cuda"
    back = there.cpu()
    assert back.device.type == "cpu"
    np.testing.assert_array_equal(back.numpy(), values)
    np.testing.assert_array_equal(np.asarray(there), values)
    assert there.tolist() == values.tolist()


def test_what_is_there_already_is_not_copied(cuda):
    x = genesis.ones(3, device="cuda")
    assert x.to("cuda") is x and x.cuda() is x and x.to(genesis.device("cuda:0")) is x


def test_transfer_of_views_and_pending_values(cuda):
    values = numbers(4, 6)
    x = genesis.tensor(values).to("cuda")
    np.testing.assert_array_equal(x.t().cpu().numpy(), values.T)
    np.testing.assert_array_equal(x[1:, ::2].cpu().numpy(), values[1:, ::2])
    np.testing.assert_array_equal((x * 2).cpu().numpy(), values * 2)
    y = genesis.tensor(values)
    np.testing.assert_array_equal(y.t().to("cuda").cpu().numpy(), values.T)


def test_a_transfer_with_a_dtype(cuda):
    x = genesis.tensor([1.5, -2.5]).to("cuda", genesis.int32)
    assert x.tolist() == [1, -2] and x.is_cuda


def test_a_host_array_changed_after_the_transfer(cuda):
    buffer = np.ones(3, np.float32)
    there = genesis.from_numpy(buffer).to("cuda")
    buffer[:] = 7
    assert there.tolist() == [1, 1, 1]


def test_copy_between_devices(cuda):
    x = genesis.zeros(2, 3, device="cuda")
    x.copy_(genesis.ones(3))
    assert x.tolist() == [[1, 1, 1]] * 2
    y = genesis.zeros(3)
    y.copy_(x[0] * 4)
    assert y.tolist() == [4, 4, 4]
    x[:, 1] = 5.0
    x[0] = genesis.tensor([7.0, 8.0, 9.0], device="cuda")
    assert x.tolist() == [[7, 8, 9], [1, 5, 1]]


def test_reading_single_values(cuda):
    x = genesis.tensor([[1.5, 2.0]], device="cuda")
    assert x[0, 0].item() == 1.5 and float(x.sum()) == 3.5 and bool((x > 1).all())
    assert "cuda" in repr(x) and "1.5" in repr(x)


def test_a_zero_dimensional_cpu_tensor_goes_with_any_device(cuda):
    x = genesis.ones(3, device="cuda") * genesis.tensor(2.0)
    assert x.is_cuda and x.tolist() == [2, 2, 2]


@pytest.mark.parametrize("program", [
    lambda x, y: x + y,
    lambda x, y: genesis.where(x > 0, x, y),
    lambda x, y: x @ y.t(),
    lambda x, y: genesis.cat([x, y]),
    lambda x, y: x.gather(1, y.long()),
    lambda x, y: genesis.nn.functional.linear(x, y),
], ids=["add", "where", "matmul", "cat", "gather", "linear"])
def test_two_devices_are_an_error(cuda, program):
    x, y = genesis.ones(2, 2, device="cuda"), genesis.zeros(2, 2)
    for a, b in ((x, y), (y, x)):
        with pytest.raises(RuntimeError) as caught:
            program(a, b)
        message = str(caught.value)
        assert "cuda:0" in message and "cpu" in message and "test_creation_and_transfer.py" in message


def test_numpy_of_a_cuda_tensor_is_an_error(cuda):
    with pytest.raises(TypeError, match=r"can't convert a cuda:0 tensor to numpy[\s\S]*cpu\(\)"):
        genesis.ones(2, device="cuda").numpy()


def test_a_device_that_does_not_exist(host_cuda):
    with pytest.raises(RuntimeError, match="there is no cuda:3"):
        genesis.eval(genesis.ones(2, device="cuda:3"))


def test_pending_values_of_both_devices_are_computed_where_they_are(cuda):
    here, there = genesis.ones(2) * 3, genesis.ones(2, device="cuda") * 4
    genesis.eval(here, there)
    assert host_copy(here).tolist() == [3, 3] and array(there).tolist() == [4, 4]


def test_a_file_is_loaded_to_a_device(host_cuda, tmp_path):
    genesis.save({"w": genesis.ones(2)}, tmp_path / "file")
    assert genesis.load(tmp_path / "file")["w"].device.type == "cpu"
    found = genesis.load(tmp_path / "file", map_location="cuda")["w"]
    assert found.device.type == "cuda" and found.tolist() == [1.0, 1.0]
