"""A step that cannot be made drops what it wrote itself; what was written beside it, before it began, is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Final

import numpy as np
import pytest

import genesis
from genesis import nn, optim
from genesis.engine.backends import FakeCUDABackend
from genesis.engine.compilation import Compiled
from genesis.runtime.cuda.driver import DriverError, DriverOutOfMemory
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.sweeping import each_value

Tensor = genesis.Tensor


MOST: Final = 128
"""Programs of a launch, beyond which the pretended GPU refuses it."""


class Refusing(HostDriver):
    """A GPU that refuses large launches, and has no memory for large values."""

    def prepare_launch(self, kernel: Any, image: Any, grid: tuple[int, int, int], arguments: Any,
                       early: bool = True) -> Any:
        if grid[0] > MOST:
            raise DriverError("cuLaunchKernelEx", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many programs")
        return super().prepare_launch(kernel, image, grid, arguments, early)

    def map_memory(self, address: int, nbytes: int) -> None:
        if nbytes > 1 << 26:
            raise DriverOutOfMemory("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY", "too large")
        super().map_memory(address, nbytes)


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """The CPU, and the pretended GPU."""
    with FakeCUDABackend(Refusing(memory_bytes=1 << 26)) if request.param == "cuda" else nullcontext():
        yield request.param


def refused_by_a_kernel(x: Tensor) -> Tensor:
    """A bad index; a GPU finds one later, and refuses a launch here."""
    if x.device.type == "cuda":
        return x * genesis.full((1 << 19,), 2.0, device="cuda").cumsum(0).exp().reshape(-1, 2).sum(1).max()
    return x * genesis.ones(4, device=x.device).index_select(0, genesis.tensor([7], device=x.device))


def no_memory(x: Tensor) -> Tensor:
    return x * genesis.rand(1 << (41 if x.device.type == "cpu" else 27), device=x.device).exp().cumsum(0)[-1]  # 8 TB


FAULTS: dict[str, tuple[Callable[[Tensor], Tensor], type[Exception] | tuple[type[Exception], ...]]] = {
    "a kernel": (refused_by_a_kernel, (IndexError, RuntimeError)),
    "no memory": (no_memory, (MemoryError, genesis.cuda.OutOfMemoryError))}

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda p: optim.SGD(p, lr=0.5),
    "momentum": lambda p: optim.SGD(p, lr=0.5, momentum=0.9),
    "Adam": lambda p: optim.Adam(p, lr=0.1),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1, amsgrad=True),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.1),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1),
    "Adadelta": lambda p: optim.Adadelta(p, lr=0.1),
    "Adamax": lambda p: optim.Adamax(p, lr=0.1),
    "NAdam": lambda p: optim.NAdam(p, lr=0.1),
    "RAdam": lambda p: optim.RAdam(p, lr=0.1),
    "ASGD": lambda p: optim.ASGD(p, lr=0.1),
    "Rprop": lambda p: optim.Rprop(p, lr=0.1),
    "Adafactor": lambda p: optim.Adafactor(p, lr=0.1),
    "by hand": lambda p: ByHand(p, {"lr": 0.5})}


class ByHand(optim.Optimizer):
    """An optimizer as users write them, which writes one tensor after another."""

    @genesis.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.mul_(0.99)
                    p.add_(p.grad, alpha=-group["lr"])


class Run:
    """Two weights, which have no op in common, with what is kept beside their steps."""

    def __init__(self, optimizer: str, device: str):
        self.weights = [nn.Parameter(genesis.ones(3, device=device)), nn.Parameter(genesis.full((2, 2), 2.0,
                                                                                                device=device))]
        self.optimizer = OPTIMIZERS[optimizer](self.weights)
        self.count, self.rows = genesis.zeros(1, device=device), genesis.zeros(3, device=device)
        self.averages = [genesis.zeros_like(w) for w in self.weights]
        self.x = genesis.tensor([1.0, 2.0, 3.0], device=device)
        self.seen = genesis.zeros((), device=device)
        genesis.eval(self.count, self.rows, self.averages, self.x, self.seen)

    def beside(self) -> None:
        """What has nothing to do with the step, and what reads the weights that it is about to write."""
        with genesis.no_grad():
            self.count += 1
            for average, w in zip(self.averages, self.weights, strict=True):
                average.lerp_(w, 0.5)
            self.rows[1] += 1

    def backward(self, fault: Callable[[Tensor], Tensor] | None) -> None:
        first, second = self.weights
        loss = (first * self.x).square().sum()
        if fault is not None:
            loss = fault(loss).sum()
        self.seen += self.x.mean()
        (loss + (second * second).sum()).backward()

    def step(self, fault: Callable[[Tensor], Tensor] | None, order: str) -> None:
        self.optimizer.zero_grad()
        if order == "before the forward":
            self.beside()
        self.backward(fault)
        if order == "before the step":
            self.beside()
        self.optimizer.step()
        if order == "behind the step":
            self.beside()

    def state(self) -> dict[str, Any]:
        kept = [[x.tolist() if isinstance(x, Tensor) else x for x in self.optimizer.state[w].values()]
                for w in self.weights]
        return {"weights": [w.tolist() for w in self.weights], "kept": kept, "count": self.count.tolist(),
                "averages": [x.tolist() for x in self.averages], "rows": self.rows.tolist(), "seen": self.seen.tolist()}


ORDERS = ("before the forward", "before the step", "behind the step")


@each_value
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_is_written_beside_a_step_that_cannot_be_made_is_made(device: str, optimizer: str, fault: str,
                                                                    order: str) -> None:
    """Counts, averages of the weights, statistics of the batch: as where each statement runs by itself. The step can be
    made again, and then is."""
    wrong, error = FAULTS[fault]
    run, beside = Run(optimizer, device), Run(optimizer, device)
    for _ in range(2):
        run.step(None, order)
        beside.step(None, order)
    with pytest.raises(error):
        run.step(wrong, order)
    if order != "behind the step":
        beside.beside()
    beside.seen += beside.x.mean()
    assert run.state() == beside.state()
    run.step(None, order)
    beside.step(None, order)
    assert run.state() == beside.state()


@pytest.mark.parametrize("fault", FAULTS)
def test_of_weights_that_have_nothing_in_common_all_are_stepped_or_none(device: str, fault: str) -> None:
    """A step is one change, also where each weight's is an op of its own."""
    wrong, error = FAULTS[fault]
    weights = [nn.Parameter(genesis.ones(n, device=device)) for n in (2, 3, 4)]
    optimizers = [optim.SGD(weights, lr=1.0), ByHand(weights, {"lr": 1.0})]
    genesis.eval(weights)
    for optimizer in optimizers:
        for bad in weights:
            for w in weights:
                w.grad = wrong(genesis.ones_like(w)).detach() if w is bad else genesis.ones_like(w) * 2
            with pytest.raises(error):
                optimizer.step()
            assert [w.tolist() for w in weights] == [[1] * n for n in (2, 3, 4)]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_write_that_cannot_be_made_takes_the_step_that_needs_it_with_it(device: str, fault: str) -> None:
    """The step raises; what was written before and behind it is made, the step's count is taken back."""
    wrong, error = FAULTS[fault]
    run = Run("AdamW", device)
    first = run.weights[0]
    run.step(None, "before the step")
    before = run.state()
    with genesis.no_grad():
        run.count += 1
        first += wrong(genesis.ones_like(first))
        run.rows += 1
    run.backward(None)
    with pytest.raises(error):
        run.optimizer.step()
    after = run.state()
    assert [after[name] for name in ("weights", "kept", "averages")] == [before[name] for name in (
        "weights", "kept", "averages")]
    assert (after["count"], after["rows"]) == ([2], [1, 2, 1])
    run.optimizer.zero_grad()
    run.backward(None)
    run.optimizer.step()
    assert run.state()["kept"][0][0] == before["kept"][0][0] + 1


@pytest.mark.parametrize("fault", FAULTS)
def test_a_step_is_made_beside_a_write_that_cannot_be(device: str, fault: str) -> None:
    """That one tells its error where it is read, and is not told of before."""
    wrong, error = FAULTS[fault]
    run, beside = Run("momentum", device), Run("momentum", device)
    table = genesis.ones(3, device=device)
    genesis.eval(table)
    table += wrong(genesis.ones_like(table))
    for each in (run, beside):
        each.step(None, "before the step")
    assert run.state() == beside.state()
    with pytest.raises(error):
        table.tolist()
    assert table.tolist() == [1, 1, 1]


@pytest.mark.parametrize("fault", FAULTS)
def test_what_a_norm_writes_is_one_change(device: str, fault: str) -> None:
    """Its count moves with its mean and variance, or none does; of a good batch they do, whatever comes behind."""
    wrong, error = FAULTS[fault]
    norm = nn.BatchNorm1d(2).to(device)
    optimizer = optim.SGD(norm.parameters(), lr=0.1)
    x = genesis.arange(8.0, device=device).reshape(4, 2)

    def statistics() -> list[Any]:
        return [norm.num_batches_tracked.item(), norm.running_mean.tolist()]  # type: ignore[union-attr]
    norm(x).sum().backward()
    optimizer.step()
    before = statistics()
    for at, spoiled in enumerate((lambda: norm(wrong(x)), lambda: wrong(norm(x)))):
        optimizer.zero_grad()
        spoiled().sum().backward()
        with pytest.raises(error):
            optimizer.step()
        after = statistics()
        assert after == before if at == 0 else (after[0] == before[0] + 1 and after[1] != before[1])


@pytest.mark.parametrize("fault", FAULTS)
def test_sums_of_gradients_are_one_change(device: str, fault: str) -> None:
    """A second backward, of losses that have nothing in common, adds to all gradients or to none."""
    wrong, error = FAULTS[fault]
    weights = [nn.Parameter(genesis.ones(n, device=device)) for n in (2, 3)]
    optimizer = optim.SGD(weights, lr=1.0)

    def backward(spoil: Callable[[Tensor], Tensor] | None) -> None:
        first, second = ((w * w).sum() for w in weights)
        ((first if spoil is None else spoil(first).sum()) + second).backward()
    backward(None)
    genesis.eval([w.grad for w in weights])
    backward(wrong)
    with pytest.raises(error):
        optimizer.step()
    assert [w.grad.tolist() for w in weights] == [[2] * 2, [2] * 3]  # type: ignore[union-attr]
    assert [w.tolist() for w in weights] == [[1] * 2, [1] * 3]


@each_value
@pytest.mark.parametrize("calls", range(4))
@pytest.mark.parametrize("order", ["before", "inside"])
@pytest.mark.parametrize("optimizer", ["SGD", "AdamW", "by hand"])
def test_what_is_written_before_a_compiled_step_that_cannot_be_made_is_made(device: str, optimizer: str, order: str,
                                                                           calls: int) -> None:
    """Whether the step is recorded, captured or replayed. What it writes itself is one change, counts inside of it,
    too; what waits before it is no part of that."""
    run, beside = Run(optimizer, device), Run(optimizer, device)
    table = genesis.ones(4, device=device)
    genesis.eval(table)

    def step_of(run: Run) -> Callable[[Tensor], None]:
        @genesis.compile
        def step(places: Tensor) -> None:
            run.optimizer.zero_grad()
            if order == "inside":
                run.beside()
            spoiled = (table[places].cumsum(0).reshape(-1, 2).sum(1) * run.weights[0].sum()).max() * 0
            (spoiled + (run.weights[0] * run.x).square().sum() + run.weights[1].square().sum()).backward()
            run.optimizer.step()
        return step
    good = genesis.tensor([1, 2], device=device)
    bad = genesis.tensor([7, 7]) if device == "cpu" else genesis.tensor(np.ones(1 << 19, np.int64),
                                                                                        device=device)
    genesis.eval(good, bad)
    step, untouched = step_of(run), step_of(beside)
    for _ in range(calls):
        step(good)
        untouched(good)
    for each in (run, beside):
        if order == "before":
            each.beside()
    with pytest.raises((IndexError, RuntimeError)):
        step(bad)
        run.weights[0].tolist()
    found, expected = run.state(), beside.state()
    if found["count"] != expected["count"]:  # a call that is recorded is as each of its statements by itself
        assert order == "inside" and found["count"] == [expected["count"][0] + 1]
        assert [found[name] for name in ("weights", "kept")] == [expected[name] for name in ("weights", "kept")]
        beside.beside()
        expected = beside.state()
    assert found == expected
    for _ in range(3):
        step(good)
        untouched(good)
    assert run.state() == beside.state()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("several", [False, True], ids=["write", "writes at once"])
@pytest.mark.parametrize("optimizer", ["momentum", "by hand"])
def test_what_has_read_a_write_that_is_lost_is_lost_with_it(device: str, optimizer: str, fault: str,
                                                            several: bool) -> None:
    """An average of the weights has read clipped ones, which are dropped with the step that wrote them again."""
    wrong, error = FAULTS[fault]
    weight, bias = nn.Parameter(genesis.full((3,), 4.0, device=device)), nn.Parameter(genesis.ones(3, device=device))
    average, count = genesis.zeros(3, device=device), genesis.zeros(1, device=device)
    stepping = OPTIMIZERS[optimizer]([weight, bias])
    genesis.eval(average, weight, bias, count)
    wrong((weight * bias).sum()).sum().backward()
    with genesis.no_grad():
        count += 1
        if several:
            nn.utils.vector_to_parameters(nn.utils.parameters_to_vector([weight, bias]) / 2, [weight, bias])
        else:
            weight.clamp_(max=2)
        average.lerp_(weight, 0.5)
    with pytest.raises(error):
        stepping.step()
    assert (weight.tolist(), bias.tolist(), average.tolist(), count.tolist()) == ([4] * 3, [1] * 3, [0] * 3, [1])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_read_drops_the_statement_that_fails_and_no_other(device: str, fault: str) -> None:
    wrong, error = FAULTS[fault]
    first, second, third, count = (genesis.ones(2, device=device) for _ in range(4))
    genesis.eval(first, second, third, count)
    count += 1
    first += 1
    second += first
    third += wrong(second)
    total = first + second + third
    with pytest.raises(error):
        total.tolist()
    assert [x.tolist() for x in (first, second, third, count)] == [[2, 2], [3, 3], [1, 1], [2, 2]]
    first += 1
    third += wrong(first)
    first += 1
    second += third
    with pytest.raises(error):
        second.tolist()
    assert [x.tolist() for x in (first, second, third)] == [[2, 2], [3, 3], [1, 1]]


def test_what_a_step_reads_is_there_though_a_statement_before_it_has_overwritten_it(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there was no memory for all at once, and is for each."""
    buffer, weight, factor = genesis.full((2,), 3.0), nn.Parameter(genesis.ones(2)), genesis.ones(())
    genesis.eval(buffer, weight, factor)
    (weight * (buffer * factor)).sum().backward()
    buffer += 1
    failures = [MemoryError("injected")]
    start = Compiled.start

    def scarce(*given: Any) -> Any:
        if failures:
            raise failures.pop()
        return start(*given)
    monkeypatch.setattr(Compiled, "start", scarce)
    optim.SGD([weight], lr=1.0).step()
    assert not failures and (weight.tolist(), buffer.tolist()) == ([-2, -2], [4, 4])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_step_behind_an_average_that_cannot_be_made_is_not_made(device: str, fault: str) -> None:
    """The step raises: made again it would be a second one."""
    wrong, error = FAULTS[fault]
    run = Run("AdamW", device)
    run.step(None, "before the step")
    before = run.state()
    run.backward(None)
    with genesis.no_grad():
        run.averages[0].lerp_(wrong(run.weights[0]), 0.5)
    with pytest.raises(error):
        run.optimizer.step()
    after = run.state()
    assert [after[name] for name in ("weights", "kept", "averages")] == [before[name] for name in (
        "weights", "kept", "averages")]
    run.optimizer.step()
    assert run.optimizer.state[run.weights[0]]["step"] == 2 and run.state()["weights"] != before["weights"]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("several", [False, True], ids=["the memory", "an average of it"])
def test_what_has_read_what_was_written_at_once_with_a_lost_write_is_lost(device: str, fault: str,
                                                                          several: bool) -> None:
    """Weight and bias are halved at once; the weight is stepped again, which cannot be made: what has read the bias
    showed a half that was taken back."""
    wrong, error = FAULTS[fault]
    weight, bias = nn.Parameter(genesis.full((3,), 4.0, device=device)), nn.Parameter(genesis.ones(3, device=device))
    near, far, count = (genesis.zeros(n, device=device) for n in (3, 3, 1))
    optimizer = optim.SGD([weight], lr=0.5, momentum=0.9)
    genesis.eval(weight, bias, near, far, count)
    wrong((weight * bias).sum()).sum().backward()
    with genesis.no_grad():
        count += 1
        nn.utils.vector_to_parameters(nn.utils.parameters_to_vector([weight, bias]) / 2, [weight, bias])
        near.lerp_(bias, 0.5)
        if several:
            far.lerp_(near, 0.5)
    with pytest.raises(error):
        optimizer.step()
    assert (weight.tolist(), bias.tolist(), count.tolist()) == ([4] * 3, [1] * 3, [1])
    assert near.tolist() == far.tolist() == [0] * 3


@pytest.mark.parametrize("by_step", [False, True], ids=["read", "step"])
@pytest.mark.parametrize("faults", [["no memory", "a kernel"], ["a kernel", "no memory"]], ids=" then ".join)
def test_of_two_statements_that_fail_the_first_is_told(faults: list[str], by_step: bool) -> None:
    """Also where the second writes to what was written to before: its place among the pending ones is an older one."""
    (first, told), (second, later) = (FAULTS[fault] for fault in faults)
    x, y, weight = genesis.ones(2), genesis.ones(2), nn.Parameter(genesis.ones(2))
    genesis.eval(x, y, weight)
    x += 1
    y += first(weight.detach().sum())
    x += second(weight.detach().sum())
    weight.grad = genesis.ones(2)
    with pytest.raises(told):
        optim.SGD([weight], lr=1.0).step() if by_step else (x + y).tolist()
    assert y.tolist() == [1, 1]
    with pytest.raises(later):
        x.tolist()
    assert x.tolist() == [1, 1] and weight.tolist() == [1, 1]


_hidden: Tensor | None = None
_steps = 0


def test_what_a_compiled_function_keeps_in_globals_behind_a_step_without_memory_is_put_back(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """A hidden state and a count in variables of the module were a step ahead of the weight."""
    weight = nn.Parameter(genesis.ones(2))
    optimizer = optim.SGD([weight], lr=0.125)
    monkeypatch.setattr(f"{__name__}._hidden", genesis.zeros(2))
    monkeypatch.setattr(f"{__name__}._steps", 0)
    genesis.eval(weight, _hidden)

    @genesis.compile
    def step(x: Tensor) -> None:
        global _hidden, _steps
        optimizer.zero_grad()
        hidden = weight * x + _hidden
        hidden.square().sum().backward()
        optimizer.step()
        _hidden, _steps = hidden.detach(), _steps + 1
    start = Compiled.start

    def scarce(*given: Any) -> Any:
        monkeypatch.setattr(Compiled, "start", start)
        raise MemoryError("injected")
    for turn in range(4):
        x = genesis.tensor([1.0, 2.0])
        genesis.eval(x)
        before = _hidden, _steps, weight.tolist()
        monkeypatch.setattr(Compiled, "start", scarce)
        with pytest.raises(MemoryError):
            step(x)
        assert _hidden is before[0] and (_steps, weight.tolist()) == before[1:]
        step(x)
        assert _hidden is not before[0] and _steps == turn + 1 and weight.tolist() != before[2]
