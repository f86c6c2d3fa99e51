"""Compiled steps that find gradients: what they add to, write over, replace and drop is what the plain step leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pytest
from calls import ramp, values

import genesis
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.cuda.executor import CudaExecutor
from genesis.runtime.fake_cuda.driver import HostDriver

CALLS = 7
OPTIMIZERS: dict[str, Callable[[list[Any]], Any]] = {
    "sgd": lambda weights: genesis.optim.SGD(weights, lr=0.0625),
    "momentum": lambda weights: genesis.optim.SGD(weights, lr=0.0625, momentum=0.5),
    "adam": lambda weights: genesis.optim.Adam(weights, lr=0.0625),
}


class Model(NamedTuple):
    """What a step works on: two weights of three numbers, and their optimizer."""

    w: Any
    v: Any
    optimizer: Any

    def loss(self, x: Any) -> Any:
        """A loss that both weights have a gradient of."""
        return (x.detach() * self.w * self.v).sum()


def steps_after(model: Model, x: Any, number: int, to_none: bool = True) -> Any:
    """Add to the gradients that it finds, then take this many steps of its own."""
    (x * model.w).sum().backward()
    losses = []
    for _ in range(number):
        model.optimizer.zero_grad(set_to_none=to_none)
        loss = model.loss(x)
        loss.backward()
        model.optimizer.step()
        losses.append(loss.detach())
    return losses


def one_step(model: Model, x: Any) -> Any:
    return steps_after(model, x, 1)


def two_steps(model: Model, x: Any) -> Any:
    return steps_after(model, x, 2)


def three_steps(model: Model, x: Any) -> Any:
    return steps_after(model, x, 3)


def two_steps_over_zeros(model: Model, x: Any) -> Any:
    return steps_after(model, x, 2, to_none=False)


def zeros_and_others(model: Model, x: Any) -> Any:
    """The gradients are set to zero where they are, and replaced by sums with these."""
    model.optimizer.zero_grad(set_to_none=False)
    weights = [model.w, model.v]
    for weight, gradient in zip(weights, genesis.autograd.grad(model.loss(x), weights), strict=True):
        weight.grad = gradient if weight.grad is None else weight.grad + gradient
    model.optimizer.step()


def scaled_and_replaced(model: Model, x: Any) -> Any:
    """Nothing is written where the gradients are."""
    weights = [model.w, model.v]
    for weight, gradient in zip(weights, genesis.autograd.grad(model.loss(x), weights), strict=True):
        weight.grad = gradient if weight.grad is None else weight.grad.flip(0) * 0.5 + gradient
    model.optimizer.step()


def scaled_where_they_are(model: Model, x: Any) -> Any:
    for weight in (model.w, model.v):
        if weight.grad is not None:
            weight.grad.mul_(0.5)
    model.loss(x).backward()
    model.optimizer.step()


def dropped_at_the_end(model: Model, x: Any) -> Any:
    """One gradient is written over and dropped, the other one is added to."""
    model.loss(x).backward()
    model.optimizer.step()
    model.w.grad.zero_()
    model.w.grad = None


def one_stays_and_one_is_another(model: Model, x: Any) -> Any:
    """One gradient is added to where it is; the other one is, and is replaced then."""
    model.loss(x).backward()
    model.v.grad = model.v.grad * 0.5
    model.optimizer.step()


def through_one_graph_twice(model: Model, x: Any) -> Any:
    loss = model.loss(x)
    loss.backward(retain_graph=True)
    model.optimizer.zero_grad()
    loss.tanh().backward()
    model.optimizer.step()


def clipped(model: Model, x: Any) -> Any:
    model.loss(x).backward()
    norm = genesis.nn.utils.clip_grad_norm_([model.w, model.v], 1.0)
    model.optimizer.step()
    model.v.grad = None
    return norm


def given_back(model: Model, x: Any) -> Any:
    """The gradient that it finds stays as it is for whoever gets it."""
    before = model.w.grad
    model.optimizer.zero_grad()
    model.loss(x).backward()
    model.optimizer.step()
    return before


def of_two(model: Model, x: Any) -> Any:
    """One tensor is the gradient of both."""
    model.optimizer.zero_grad()
    model.loss(x).backward()
    model.w.grad = model.v.grad
    model.optimizer.step()


def added_for_two(model: Model, x: Any) -> Any:
    (x * model.w).sum().backward()
    of_two(model, x)
    model.v.grad.mul_(0.5)


def exchanged(model: Model, x: Any) -> Any:
    model.loss(x).backward()
    model.w.grad, model.v.grad = model.v.grad, model.w.grad
    model.optimizer.step()


STEPS = (one_step, two_steps, three_steps, two_steps_over_zeros, zeros_and_others, scaled_and_replaced,
         scaled_where_they_are, dropped_at_the_end, one_stays_and_one_is_another, through_one_graph_twice, clipped,
         given_back, of_two, added_for_two, exchanged)


def found(step: Callable[[Model, Any], Any], optimizer: str, compiled: bool, begun: bool, looks: Iterable[int],
          held: Iterable[int] = (), device: str = "cpu") -> tuple[list[Any], int]:
    """What a loop over the step leaves, and how often it was replayed.

    Args:
        begun: the weights have gradients before the first call.
        looks: calls behind which the gradients are read.
        held: calls behind which the gradients are kept, and read at the end.
    """
    w, v = (x.to(device).requires_grad_() for x in (ramp(3), ramp(3, start=0.5)))
    model = Model(w, v, OPTIMIZERS[optimizer]([w, v]))
    function: Any = lambda x: step(model, x)  # noqa: E731
    if compiled:
        function = genesis.compile(function)
    if begun:
        w.grad, v.grad = ramp(3, start=4.0).to(device), ramp(3, start=5.0).to(device)
    seen, kept = [], []
    for call in range(CALLS):
        seen.append(function(ramp(2, 3, start=call % 3).to(device)))
        if call in held:
            kept.append([w.grad, v.grad])
        if call in looks:
            seen.append(values([w.grad, v.grad]))
    state = [x for each in model.optimizer.state_dict()["state"].values() for x in each.values()]
    same = w.grad is v.grad, w.grad is not None and any(w.grad is x for x in seen)
    if w.grad is not None:
        w.grad.mul_(2.0)
    return [same, values([seen, kept, w, v, w.grad, v.grad, state])], function.hits if compiled else 0


SITUATIONS: tuple[tuple[str, bool, Iterable[int], Iterable[int]], ...] = (
    ("sgd", False, (), ()), ("momentum", True, (), ()), ("adam", False, (4,), ()), ("momentum", False, (), (4,)),
    ("sgd", True, range(CALLS), ()), ("adam", True, (), (4,)))
"""Optimizers, and who looks at the gradients: the arguments of `found`."""


@pytest.mark.parametrize("step", STEPS, ids=lambda f: f.__name__)
def test_a_step_that_finds_gradients(step: Any) -> None:
    for optimizer, begun, looks, held in SITUATIONS:
        ours, hits = found(step, optimizer, True, begun, looks, held)
        assert ours == found(step, optimizer, False, begun, looks, held)[0], (optimizer, begun, looks, held)
        assert hits >= 3 or step is exchanged or (step is given_back and begun)  # these are recorded


@pytest.mark.parametrize("step", [two_steps, zeros_and_others, scaled_and_replaced, given_back, of_two],
                         ids=lambda f: f.__name__)
def test_a_step_that_finds_gradients_on_a_gpu(step: Any) -> None:
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)):
        for looks in ((), (4,)):
            ours, hits = found(step, "momentum", True, False, looks, device="cuda")
            assert ours == found(step, "momentum", False, False, looks, device="cuda")[0], looks
            assert hits >= 3


def test_a_gradient_that_it_finds_and_keeps_stays_as_it_was() -> None:
    def trained(compiled: bool) -> Any:
        w, kept = ramp(3).requires_grad_(), list[Any]()
        optimizer = genesis.optim.SGD([w], lr=0.125)

        def step(x: Any) -> None:
            kept.append(w.grad)
            w.grad = None
            (x * w).square().sum().backward()
            optimizer.step()
        function: Any = genesis.compile(step) if compiled else step
        for call in range(CALLS):
            function(ramp(3, start=call))
        assert not compiled or function.hits >= 3
        return values([w.grad, kept])
    assert trained(True) == trained(False)


@pytest.mark.parametrize("before", [None, "another", "the same"])
def test_a_gradient_that_is_set_to_a_tensor_that_stays(before: str | None) -> None:
    """The captured call found that tensor there already."""
    def trained(compiled: bool) -> Any:
        w, buffer = ramp(3).requires_grad_(), genesis.zeros(3)
        optimizer = genesis.optim.SGD([w], lr=0.5)

        def step(x: Any) -> None:
            buffer.add_(x)
            w.grad = buffer
            optimizer.step()
        function: Any = genesis.compile(step) if compiled else step
        for call in range(9):
            if call >= 5:
                w.grad = None if before is None else buffer if before == "the same" else ramp(3)
            function(ramp(3, start=call))
        assert not compiled or function.hits >= 3
        return w.grad is buffer, values([w, w.grad, buffer])
    assert trained(True) == trained(False)


def replaced_on_a_gpu(size: int) -> tuple[Any, Callable[[Any], None]]:
    """A weight, and a step that replaces its gradient by one that is computed from that."""
    weight = genesis.zeros(size, device="cuda").requires_grad_()

    def step(x: Any) -> None:
        gradient, = genesis.autograd.grad((weight * x).sum(), [weight])
        weight.grad = gradient if weight.grad is None else weight.grad.flip(0) * 0.5 + gradient
        with genesis.no_grad():
            weight.sub_(weight.grad)
    return weight, step


def test_a_run_does_not_write_its_gradients_to_the_memory_of_those_that_it_reads() -> None:
    """The blocks of a kernel that come last read what the first ones would write over."""
    def trained(compiled: bool) -> Any:
        weight, step = replaced_on_a_gpu(5000)
        function: Any = genesis.compile(step) if compiled else step
        for call in range(7):
            function(ramp(5000, start=call).to("cuda"))
        assert not compiled or function.hits >= 3
        return values([weight, weight.grad])
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)):
        assert trained(True) == trained(False)


@pytest.mark.parametrize("calls", [3, 4, 6])
@pytest.mark.parametrize("looks", [True, False])
def test_a_call_that_fails_leaves_the_gradients_that_it_found(calls: int, looks: bool,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeCUDABackend(HostDriver(memory_bytes=16 << 20)):
        plain, own = replaced_on_a_gpu(3)
        after = []
        for call in range(calls + 1):
            own(ramp(3, start=call).to("cuda"))
            after.append(values([plain, plain.grad]))
        weight, step = replaced_on_a_gpu(3)
        compiled = genesis.compile(step)
        for call in range(calls):
            compiled(ramp(3, start=call).to("cuda"))
        with monkeypatch.context() as patch:
            patch.setattr(CudaExecutor, "start", lambda *_: (_ for _ in ()).throw(MemoryError("none is left")))
            with pytest.raises(MemoryError):
                compiled(ramp(3).to("cuda"))
        if looks:
            assert values([weight, weight.grad]) == after[-2]
        compiled(ramp(3, start=calls).to("cuda"))
        assert values([weight, weight.grad]) == after[-1]
        assert compiled.hits == calls  # the one that failed among them
