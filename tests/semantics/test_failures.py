"""A flush that fails changes nothing: injected at every allocation that a step makes."""

from __future__ import annotations

import gc
import signal
import weakref
from dataclasses import replace

import numpy as np
import pytest

import genesis
from genesis import engine, nn, optim
from genesis.codegen.cpu import lower
from genesis.engine import plans
from genesis.runtime.cpu import executor as executor_cpu
from genesis.runtime.cpu import storage as cpu_storage


class Fault:
    """Makes the n-th allocation from now on fail; None lets all pass and counts them."""

    def __init__(self, monkeypatch):
        self.count, self.at, self.times = 0, None, 1
        for module in (cpu_storage, executor_cpu):
            monkeypatch.setattr(module, "allocate", self.counting(module.allocate))
        lowering_for = lower._lowering_for
        monkeypatch.setattr(lower, "_lowering_for", lambda node: self.allocating(lowering_for(node)))

    def counting(self, original):
        def allocate(*what, **how):
            self.count += 1
            if self.at is not None and self.count > self.at:
                self.times -= 1
                if not self.times:
                    self.at = None
                raise MemoryError(f"injected: no memory for {original.__name__}")
            return original(*what, **how)
        return allocate

    def allocating(self, row):
        """The lowering, whose calls count where they allocate their results."""
        def run(outs, *operands, **attributes):
            return (counted if outs[0] is None else row.function)(outs, *operands, **attributes)
        if row is None or not row.allocates:
            return row
        counted, direct = self.counting(row.function), row.direct
        if direct is not None and direct.out:  # of torch's functions, which a plan that runs again calls itself
            alone = self.counting(direct.function)
            direct = direct._replace(function=lambda *operands, **named: (
                row.direct.function if row.direct.out in named else alone)(*operands, **named))
        return replace(row, function=run, direct=direct)

    def arm(self, at, times=1):
        """Fail the allocation with this number, from 0, and those after it until so many have failed; the others
        pass."""
        self.count, self.at, self.times = 0, at, times


@pytest.fixture
def fault(monkeypatch):
    """The fault, and an arena and plans that start from nothing."""
    monkeypatch.setattr(executor_cpu, "arena", executor_cpu._HostArena())
    engine.reset()
    return Fault(monkeypatch)


class Task:
    """A model that is trained with dropout-free, deterministic data."""

    def __init__(self, optimizer):
        self.net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
        with genesis.no_grad():
            for i, p in enumerate(self.net.parameters()):
                p.copy_(genesis.sin(genesis.arange(p.numel()).float() + i).view(p.shape))
        self.opt = optimizer(self.net.parameters())
        self.x = genesis.tensor([[1.0, 2.0, -1.0], [0.5, -2.0, 1.0]])
        self.y = genesis.tensor([0, 1])
        engine.materialize(list(self.net.parameters()))

    def step(self):
        """One step, all names bound."""
        logits = self.net(self.x)
        loss = nn.functional.cross_entropy(logits, self.y)
        self.opt.zero_grad()
        loss.backward()
        held.append((logits, loss))
        self.opt.step()

    def state(self):
        """Every number that a step changes."""
        tensors = [t for p in self.net.parameters() for t in (p, *self.opt.state[p].values())]
        return [t.tolist() if isinstance(t, genesis.Tensor) else t for t in tensors]


held: list = []

OPTIMIZERS = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    "adam": lambda p: optim.Adam(p, lr=0.1),
    "adamw": lambda p: optim.AdamW(p, lr=0.1),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("warm", [0, 2])
def test_a_step_that_fails_at_any_allocation(name, warm, times, fault):
    """State keeps its last value, what was computed on the way can be read again, the next step gives the same numbers
    as if the failed one had not happened. Where memory is there for the step without its loss the step is made."""
    expected = Task(OPTIMIZERS[name])
    states, values = [expected.state()], []
    held.clear()
    for _ in range(warm + 2):
        expected.step()
        values.append([x.tolist() for x in (*held.pop(), *(p.grad for p in expected.net.parameters()))])
        states.append(expected.state())
    at, failures, made = 0, 0, 0
    while True:
        held.clear()
        engine.reset()
        executor_cpu.arena.storage = cpu_storage.CPUStorage(0)
        task = Task(OPTIMIZERS[name])
        for _ in range(warm):
            task.step()
        held.clear()
        fault.arm(at, times)
        try:
            task.step()
        except MemoryError:
            fault.arm(None)
            failures += 1
            pure = [*held[0], *(p.grad for p in task.net.parameters())]
            assert task.state() == states[warm]
            for tensor, value in zip(pure, values[warm], strict=True):
                assert tensor.tolist() == pytest.approx(value, rel=1e-6) if tensor.ndim < 2 else np.allclose(
                    tensor.tolist(), value, rtol=1e-6)  # the program of another flush may add in another order
            assert task.state() == states[warm]
            task.step()
        else:
            if fault.at is not None and fault.times == times:
                fault.arm(None)
                break
            assert times == 1, "the injected failures were swallowed"
            made += 1
        assert task.state() == states[warm + 1]
        task.step()
        assert task.state() == states[warm + 2]
        at += 1
    assert failures + made >= 1 and (failures or times == 1)
    assert task.state() == states[warm + 1]


def test_the_loss_and_gradients_are_allocations_of_a_warm_step(fault):
    """The test above reaches the outputs of a plan that ran before."""
    task = Task(OPTIMIZERS["adamw"])
    for _ in range(3):
        task.step()
    held.clear()
    fault.arm(None)
    task.step()
    assert fault.count >= 5  # four gradients and the loss


def test_a_read_that_fails_can_be_repeated(fault):
    """There may be memory the next time."""
    x = genesis.tensor([1.0, 2.0])
    y = x * 3
    z = x + 1
    fault.arm(0)
    for _ in range(2):
        fault.arm(0)
        with pytest.raises(MemoryError, match="injected"):
            y.tolist()
    assert x.tolist() == [1, 2] and z.tolist() == [2, 3] and (x * 3).tolist() == [3, 6]
    assert y.tolist() == [3, 6]


def test_what_is_computed_from_a_lost_value_raises_its_error(fault):
    """Of a value that raised for another reason: it would do so again."""
    x = genesis.tensor([1.0, 2.0])
    y = x[genesis.tensor([1, 7])] * 3
    below = y + 1
    view = y[1:]
    for lost in (y, below, view, y * 2):
        with pytest.raises(IndexError, match="index 7"):
            lost.tolist()
    y.copy_(x)
    assert y.tolist() == [1, 2] and view.tolist() == [2]


def test_what_depends_on_a_dropped_write_raises_and_all_else_is_read_again(fault):
    x, w = genesis.tensor([1.0, 2.0]), genesis.ones(2)
    genesis.eval(x, w)
    before = w * 3
    w.add_(x)
    after = w * 10
    fault.arm(0, times=3)  # of all, of the value, of the write that it is made of
    with pytest.raises(MemoryError):
        after.tolist()
    with pytest.raises(MemoryError):
        after.tolist()
    assert w.tolist() == [1, 1] and before.tolist() == [3, 3]


def test_what_is_asked_for_is_computed_alone_where_there_is_no_memory_for_all(fault):
    x, w = genesis.tensor([1.0, 2.0]), genesis.ones(2)
    genesis.eval(x, w)
    fresh = genesis.zeros(2)
    fresh.add_(x)
    w.add_(x)
    after = w * 10
    fault.arm(0)
    assert after.tolist() == [20, 30] and not fresh.storage.settled
    assert w.tolist() == [2, 3] and fresh.tolist() == [1, 2]


def test_a_pending_write_is_dropped(fault):
    """The memory keeps what it had; what was recorded from the write raises."""
    x = genesis.tensor([1.0, 2.0])
    x.tolist()
    x.add_(1)
    after = x * 10
    fault.arm(0, times=3)
    with pytest.raises(MemoryError):
        after.tolist()
    assert x.tolist() == [1, 2]
    x.add_(1)
    assert x.tolist() == [2, 3]


def test_a_failed_copy_of_a_shared_array(fault):
    import numpy as np
    a = np.array([1.0, 2.0], np.float32)
    x = genesis.from_numpy(a)
    fault.arm(0)
    with pytest.raises(MemoryError):
        x * 2
    assert (x * 2).tolist() == [2, 4]


def test_an_error_while_compiling_is_no_different(monkeypatch):
    task = Task(OPTIMIZERS["adam"])
    expected = Task(OPTIMIZERS["adam"])
    expected.step()

    def broken(graph, device, known):
        raise RuntimeError("no compiler")

    with monkeypatch.context() as patch:
        engine.reset()
        patch.setattr(plans, "compile_graph", broken)
        with pytest.raises(RuntimeError, match="no compiler"):
            task.step()
    task.step()
    assert task.state() == expected.state()


def test_errors_hold_no_memory(fault):
    """The error that a lost tensor keeps does not keep the program that failed."""
    x = genesis.tensor([1.0, 2.0])
    genesis.eval(x)
    x.add_(1)
    y, other = x * 3, x.sum() * 1.0
    fault.arm(0, times=3)
    with pytest.raises(MemoryError):
        y.tolist()
    storage = weakref.ref(other.storage)
    del other
    gc.collect()
    assert storage() is None


@pytest.mark.parametrize("handler", [False, True], ids=["", "signal handler"])
@pytest.mark.parametrize("index", [False, True], ids=["allocation", "index"])
@pytest.mark.parametrize("pending", [1, 2])
def test_a_failed_program_dies_with_its_error(fault, pending, index, handler):
    """The error's frames hold it as long as somebody holds the error; no collection is needed then."""
    x = genesis.tensor([1.0, 2.0])
    w = genesis.ones(2)
    before = signal.signal(signal.SIGUSR1, lambda *_: None) if handler else None
    try:
        y = x.exp()[genesis.tensor([0, 7])] if index else x.exp() * 3
        if pending == 2:
            w.add_(x)
        program = weakref.ref(y.storage.node)
        if not index:
            fault.arm(0, times=pending)  # of all that is pending, then of what is asked for
        gc.disable()
        with pytest.raises((MemoryError, IndexError)):
            y.tolist()
        del y
        assert program() is None
    finally:
        gc.enable()
        if handler:
            signal.signal(signal.SIGUSR1, before)
