"""A backend is an object and one line that registers it: programs run on it as on the others.

The backend of `numpy_backend.py` has a table of some forty primitives, among them no softmax, no linear layer, no loss
and no optimizer. It is registered under names that no file of `genesis` has, so nothing can be made for it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis import engine, nn
from genesis.array_api.info import __array_namespace_info__
from genesis.engine.backends import backend_named, register
from tests.backends.numpy_backend import LOWERINGS, NumpyBackend, NumpyExecutor

NAME = "ndarray9"  # a word that nobody else has
_backend = NumpyBackend(NAME)
register(NAME, lambda index: _backend)

EPS = float(np.finfo(np.float32).eps)


def test_no_file_of_genesis_knows_it() -> None:
    assert [path for path in Path(genesis.__file__).parent.rglob("*.py") if NAME in path.read_text()] == []


def test_most_ops_are_decomposed() -> None:
    from genesis.ir.node import OPS
    assert len(LOWERINGS) < len(OPS) / 5
    assert not {"linear", "gelu", "softmax", "cross_entropy", "adamw", "sgd", "uniform", "normal"} & LOWERINGS.keys()


# Training

OPTIMIZERS: dict[str, Callable] = {
    "AdamW": lambda parameters: genesis.optim.AdamW(parameters, lr=0.01),
    "SGD": lambda parameters: genesis.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01),
}


def losses_of(device: str, optimizer: str, loss: Callable, compiled: bool = False) -> list[float]:
    """Of six training steps of an MLP whose weights and data are drawn on the device."""
    genesis.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Dropout(0.1), nn.Linear(16, 4)).to(device)
    stepper = OPTIMIZERS[optimizer](model.parameters())
    x = genesis.randn(32, 8, device=device)
    y = genesis.randint(0, 4, (32,), device=device) if loss is F.cross_entropy else genesis.randn(32, 4, device=device)

    def step(x: genesis.Tensor, y: genesis.Tensor) -> genesis.Tensor:
        stepper.zero_grad()
        found = loss(model(x), y)
        found.backward()
        stepper.step()
        return found
    run = genesis.compile(step) if compiled else step
    return [run(x, y).item() for _ in range(6)]


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("loss", [F.cross_entropy, F.mse_loss])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_mlp_trains_with_the_cpus_losses(optimizer: str, loss: Callable, compiled: bool) -> None:
    """The same arithmetic in another order of additions: a few roundings of a float32 around 1 part the losses."""
    found, expected = losses_of(NAME, optimizer, loss, compiled), losses_of("cpu", optimizer, loss)
    np.testing.assert_allclose(found, expected, rtol=16 * EPS)
    assert found[-1] < found[0]


def test_steps_of_a_plan_that_is_there_compile_nothing() -> None:
    genesis.manual_seed(0)
    model = nn.Linear(3, 2).to(NAME)
    optimizer, x, plans = genesis.optim.SGD(model.parameters(), lr=0.1), genesis.ones(5, 3, device=NAME), []
    for step in range(4):
        with engine.observe(plans.append):
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        if step == 1:
            made = len(plans)
    assert made == len(plans) and {plan.backend.name for plan in plans} == {NAME}


# Tensors

def test_random_numbers_are_the_cpus() -> None:
    genesis.manual_seed(5)
    here = [genesis.rand(7), genesis.randint(0, 1000, (9,)), genesis.randn(50)]
    genesis.manual_seed(5)
    there = [genesis.rand(7, device=NAME), genesis.randint(0, 1000, (9,), device=NAME),
             genesis.randn(50, device=NAME)]
    for a, b in zip(here, there, strict=True):
        if a.dtype is genesis.float32 and a.numel() == 50:  # numpy's log and cos round otherwise than torch's
            np.testing.assert_allclose(b.cpu().numpy(), a.numpy(), rtol=16 * EPS, atol=EPS)
        else:
            assert b.tolist() == a.tolist()


def test_a_tensor_says_where_it_is() -> None:
    x = genesis.tensor([[1.0, 2.5], [-3.0, 4.0]], device=NAME)
    assert repr(x) == ("tensor([[ 1.0000,  2.5000],\n        [-3.0000,  4.0000]], device='ndarray9')")
    assert repr(x.device) == "device(type='ndarray9')" and genesis.device(NAME) is x.device
    assert (x.is_cpu, x.is_cuda, x.get_device()) == (False, False, -1)
    assert genesis.device(NAME) in __array_namespace_info__().devices()
    assert NAME in str(x.spec) and genesis.ir.types.parse_type(str(x.spec)) is x.spec


def test_moving_keeps_values_and_gradients() -> None:
    x = genesis.arange(6.0).requires_grad_()
    y = (x * 2).to(NAME)
    z = (y * y).sum()
    assert z.device is genesis.device(NAME) and (z.cpu().item(), z.to(NAME).item()) == (220.0, 220.0)
    z.backward()
    assert x.grad.device is genesis.device("cpu") and x.grad.tolist() == [8.0 * i for i in range(6)]


def test_views_and_writes_reach_the_memory() -> None:
    x = genesis.zeros(3, 4, device=NAME)
    genesis.eval(x)
    x[1:, ::2] = genesis.ones(2, 2, device=NAME)
    x.T[3] += 5
    row = x[2]
    row.mul_(2)
    assert x.tolist() == [[0, 0, 0, 5], [1, 0, 1, 5], [2, 0, 2, 10]]
    assert x[genesis.tensor([2, 0], device=NAME)].tolist() == [[2, 0, 2, 10], [0, 0, 0, 5]]


def test_second_derivatives_and_hooks() -> None:
    x, seen = genesis.tensor([0.5, -1.0], device=NAME, requires_grad=True), []
    y = x.exp()
    y.register_hook(seen.append)
    first, = genesis.autograd.grad((y * y).sum(), x, create_graph=True)
    second, = genesis.autograd.grad(first.sum(), x)
    np.testing.assert_allclose(second.tolist(), 4 * np.exp([1.0, -2.0]), rtol=4 * EPS)
    assert len(seen) >= 1 and seen[0].device is genesis.device(NAME)


def test_autocast_takes_its_device_type() -> None:
    x, y = genesis.ones(2, 3, device=NAME), genesis.ones(2, 3)
    with genesis.autocast(NAME):
        assert (x @ x.T).dtype is genesis.bfloat16 and (y @ y.T).dtype is genesis.float32
    with pytest.raises(RuntimeError, match=r"'ndarray8' is unknown"):
        genesis.autocast("ndarray8")


def test_it_can_be_the_default_device() -> None:
    genesis.set_default_device(NAME)
    try:
        assert (genesis.ones(2) + genesis.arange(2.0)).device is genesis.device(NAME)
    finally:
        genesis.set_default_device("cpu")


def test_a_model_is_saved_from_it(tmp_path: Path) -> None:
    layer = nn.Linear(3, 2).to(NAME)
    genesis.save(layer.state_dict(), tmp_path / "layer.safetensors")
    back = genesis.load(tmp_path / "layer.safetensors", map_location=NAME)
    assert back["weight"].device is genesis.device(NAME) and back["weight"].tolist() == layer.weight.tolist()


def test_a_decomposition_goes_through_the_host() -> None:
    A = genesis.tensor([[2.0, 0.0], [0.0, 4.0]], device=NAME)
    with pytest.warns(RuntimeWarning, match=f"tensors on {NAME} are computed on the CPU"):
        assert genesis.linalg.inv(A).tolist() == [[0.5, 0.0], [0.0, 0.25]]


# What a device cannot do

def test_numpy_needs_a_copy() -> None:
    x = genesis.ones(2, device=NAME)
    with pytest.raises(TypeError, match=r"can't convert a ndarray9 tensor to numpy"):
        x.numpy()
    assert np.asarray(x).tolist() == x.numpy(force=True).tolist() == [1, 1]


def test_memory_without_addresses_is_not_handed_out() -> None:
    x = genesis.ones(2, device=NAME)
    with pytest.raises(RuntimeError, match=r"memory on ndarray9 has no address"):
        x.data_ptr()
    with pytest.raises(BufferError, match=r"DLPack has no type for device ndarray9"):
        np.from_dlpack(x)


def test_devices_do_not_mix() -> None:
    with pytest.raises(RuntimeError, match="ndarray9"):
        genesis.ones(2, device=NAME) + genesis.ones(2)
    assert (genesis.ones(2, device=NAME) + genesis.tensor(1.0)).tolist() == [2, 2]  # a 0-d CPU tensor goes with any


def test_an_op_without_a_lowering_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"no lowering for lgamma of f32\[2\]@ndarray9, and it has no decomposition"):
        genesis.ones(2, device=NAME).lgamma().tolist()


def test_an_unknown_device_is_told_what_there_is() -> None:
    with pytest.raises(RuntimeError, match=r"did you mean 'ndarray9'\? use 'cpu', 'cuda', 'cuda:N'.* 'ndarray9'"):
        genesis.ones(2, device="ndarray8")


def test_an_index_outside_is_told_with_its_line() -> None:
    table = genesis.ones(3, 2, device=NAME)
    with pytest.raises(IndexError, match=r"index 7 is out of bounds.*size 3(.|\n)*test_numpy_backend.py"):
        table.gather(0, genesis.tensor([[7, 0]], device=NAME)).tolist()


def test_a_read_by_a_handler_that_could_see_half_a_write_is_refused(monkeypatch) -> None:
    refused = []

    def read(*_) -> None:
        try:
            x.tolist()
        except RuntimeError as error:
            refused.append(str(error))

    def interrupted(*args):
        signal.raise_signal(signal.SIGUSR1)
        return run(*args)
    run, before = NumpyExecutor.run, signal.signal(signal.SIGUSR1, read)
    try:
        x = genesis.zeros(2, device=NAME)
        genesis.eval(x)
        monkeypatch.setattr(NumpyExecutor, "run", interrupted)
        x += 1
        assert x.tolist() == [1, 1]
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert refused and "while memory is being overwritten" in refused[0]


# Its plans

def test_its_plans_have_every_stage() -> None:
    with engine.observe((plans := []).append):
        (genesis.ones(4, 3, device=NAME).softmax(-1) * 2).sum().item()
    found = plans[-1]
    assert {"capture", "grad", "canonical", "legal", "groups", "memory"} <= found.stages.keys()
    assert not any(node.op.name == "softmax" for node in found.stages["legal"].nodes)
    assert backend_named(NAME) is found.backend
