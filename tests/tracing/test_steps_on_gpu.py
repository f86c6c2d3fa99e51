"""Compiled steps on a GPU, whose gradients' memory a plan writes again at each call: on the host driver."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import genesis
from genesis import nn
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.cuda.executor import CudaExecutor
from genesis.runtime.fake_cuda.driver import HostDriver


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    """A GPU that is the host."""
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)):
        yield


X = genesis.tensor([[1.0, -2.0], [0.5, 3.0]])


def made() -> tuple[Any, Any]:
    """A model, and its step, compiled: returns the loss."""
    model = nn.Linear(2, 1).to("cuda")
    with genesis.no_grad():
        model.weight.copy_(genesis.tensor([[0.5, -1.0]]))
        model.bias.zero_()
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.25, momentum=0.5)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss
    return model, genesis.compile(step)


def uninterrupted(steps: int) -> tuple[list[list[float]], list[list[float]]]:
    """(weights, gradients) after each step of the same program on the CPU, as it is written."""
    weight, bias = np.array([0.5, -1.0]), 0.0
    momentum, momentum_of_bias = np.zeros(2), 0.0
    x, weights, gradients = X.numpy(), [], []
    for _ in range(steps):
        error = x @ weight + bias
        gradient, gradient_of_bias = error @ x, error.sum()  # of the mean of two squares
        momentum, momentum_of_bias = 0.5 * momentum + gradient, 0.5 * momentum_of_bias + gradient_of_bias
        weight, bias = weight - 0.25 * momentum, bias - 0.25 * momentum_of_bias
        weights.append(weight.tolist())
        gradients.append(gradient.tolist())
    return weights, gradients


def test_gradients_are_those_of_the_call_whoever_looked_at_those_before() -> None:
    model, step = made()
    x = X.to("cuda")
    weights, gradients = uninterrupted(9)
    held: list[Any] = []
    losses = []
    for number in range(9):
        loss = step(x)
        if number == 4:
            losses.append(loss)  # the next call has other memory for its loss
        del loss
        if number in (3, 6):
            held.append((number, model.weight.grad))  # these stay as they are
        if number == 7:
            np.testing.assert_allclose(model.weight.grad.cpu().numpy()[0], gradients[number], rtol=1e-5)
    assert step.hits >= 7
    for number, gradient in held:
        np.testing.assert_allclose(gradient.cpu().numpy()[0], gradients[number], rtol=1e-5)
    np.testing.assert_allclose(model.weight.grad.cpu().numpy()[0], gradients[-1], rtol=1e-5)
    np.testing.assert_allclose(model.weight.detach().cpu().numpy()[0], weights[-1], rtol=1e-5)
    assert losses[0].item() > 0


@pytest.mark.parametrize("quiet", [1, 3])
def test_a_call_that_fails_leaves_no_gradients_and_the_next_one_makes_them(
        quiet: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, step = made()
    x = X.to("cuda")
    weights, gradients = uninterrupted(3 + quiet)
    for _ in range(2 + quiet):
        step(x)
    with monkeypatch.context() as patch:
        patch.setattr(CudaExecutor, "start", lambda *_: (_ for _ in ()).throw(MemoryError("none is left")))
        with pytest.raises(MemoryError):
            step(x)
    assert [p.grad for p in model.parameters()] == [None, None]
    np.testing.assert_allclose(model.weight.detach().cpu().numpy()[0], weights[-2], rtol=1e-5)
    step(x)
    np.testing.assert_allclose(model.weight.grad.cpu().numpy()[0], gradients[-1], rtol=1e-5)
    np.testing.assert_allclose(model.weight.detach().cpu().numpy()[0], weights[-1], rtol=1e-5)


def test_a_call_that_fails_unseen() -> None:
    """As above, where nobody looks at a gradient between the failure and the next call."""
    model, step = made()
    x = X.to("cuda")
    gradients = uninterrupted(4)[1]
    for _ in range(3):
        step(x)
    start = CudaExecutor.start
    try:
        CudaExecutor.start = lambda *_: (_ for _ in ()).throw(MemoryError("none is left"))  # type: ignore
        with pytest.raises(MemoryError):
            step(x)
    finally:
        CudaExecutor.start = start  # type: ignore[method-assign]
    step(x)
    np.testing.assert_allclose(model.weight.grad.cpu().numpy()[0], gradients[-1], rtol=1e-5)


def test_a_step_that_nobody_looks_at_tells_no_gradient_of_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from genesis.tracing.replay_step import StepReplay
    _, step = made()
    x = X.to("cuda")
    told = []
    gradients = StepReplay._gradients
    monkeypatch.setattr(StepReplay, "_gradients", lambda *args: told.append(len(found := gradients(*args))) or found)
    for _ in range(6):
        step(x)
    assert told[-3:] == [0, 0, 0]


@pytest.mark.parametrize("looks", [1, 4, 15])
def test_gradients_of_steps_of_other_sizes_are_those_of_the_call_whoever_holds_them(looks: int) -> None:
    """All sizes give them to the same tensors, whose memory each plan writes in turn. Now and then somebody looks."""
    model, step = made()
    plain, own = made()
    held: list[tuple[Any, list[list[float]]]] = []
    for number, rows in enumerate((2, 3, 4, 5, 3, 3, 4, 6, 3, 3, 3, 6, 2, 4, 4)):
        x = genesis.tensor(np.linspace(-1, 2, 2 * rows, dtype=np.float32).reshape(rows, 2)).to("cuda")
        loss, expected = step(x), own.function(x)
        if number % looks == looks - 1:
            assert loss.item() == expected.item() and model.weight.tolist() == plain.weight.tolist()
            assert model.weight.grad.tolist() == plain.weight.grad.tolist()
        if number in (5, 9) and looks < 15:
            held.append((model.weight.grad, plain.weight.grad.tolist()))
        if number == 11 and looks < 15:
            model.weight.grad = plain.weight.grad = None
    for gradient, values in held:
        assert gradient.tolist() == values
    assert genesis.explain(step).captures <= 4


def test_gradients_that_were_returned_stay_as_they_were() -> None:
    """The plan of a step writes to its gradients' memory again: what others got of it is not written to."""
    model, _ = made()

    @genesis.compile
    def step(x: Any) -> Any:
        model.zero_grad()
        model(x).square().mean().backward()
        return model.weight.grad
    given = [step(X.to("cuda") * (i + 1)) for i in range(5)]
    alone = given[0].cpu().numpy().copy()
    for i, gradient in enumerate(given):
        assert np.array_equal(gradient.cpu().numpy(), alone * (i + 1) ** 2)
    assert given[-1] is model.weight.grad
