"""Threads that record, write, read and compute at the same time: what some order of their calls gives.

Every program runs with threads that change places as often as Python lets them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import genesis
from genesis import nn, optim
from genesis.autograd import gradients
from genesis.engine import running
from genesis.frontend.threads import others_record
from genesis.tracing import compiled_function
from tests.sweeping import sweep_but


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    """Threads change places every ten microseconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def together(*functions: Callable[[], object]) -> None:
    """Run the functions in threads of their own, and raise what one of them raises."""
    raised: list[BaseException] = []

    def run(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)
    threads = [threading.Thread(target=run, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if raised:
        raise raised[0]


def test_rows_of_one_tensor() -> None:
    for _ in range(5):
        x = genesis.zeros(64, 8)

        def fill(first: int, x: genesis.Tensor = x) -> None:
            for row in range(first, 64, 4):
                x[row] = float(row + 1)
                if row % 8 == 0:
                    x.sum().item()
        together(*(lambda first=first: fill(first) for first in range(4)))
        assert x[:, 0].tolist() == list(range(1, 65))


def test_elements_that_are_counted_up() -> None:
    x = genesis.zeros(4)

    def count(place: int) -> None:
        for _ in range(50):
            x[place] += 1
    together(*(lambda place=place: count(place) for place in range(4)))
    assert x.tolist() == [50] * 4


@pytest.mark.parametrize("write", [
    lambda x: x.add_(1),
    lambda x: x.add_(genesis.ones(8)),
    lambda x: x.sub_(genesis.ones(8), alpha=-1),
    lambda x: x.index_add_(0, genesis.arange(8), genesis.ones(8)),
    lambda x: x.view(2, 4).add_(1),
], ids=["add", "add a tensor", "sub", "index_add", "through a view"])
def test_calls_that_write_in_place_are_whole(write: Callable[[genesis.Tensor], object]) -> None:
    x = genesis.zeros(8)

    def write_often() -> None:
        for _ in range(25):
            write(x)
    together(*[write_often] * 4)
    assert x.tolist() == [100] * 8


def test_masks_and_indices_of_other_elements_lose_nothing() -> None:
    x = genesis.zeros(32)

    def write(first: int) -> None:
        mask, places = genesis.arange(32) % 4 == first, genesis.arange(first, 32, 4)
        for turn in range(8):
            x[mask] = float(turn)
            x[places] = float(turn)
            x.masked_fill_(mask, float(turn))
            x.index_copy_(0, places, genesis.full((8,), float(turn)))
    together(*(lambda first=first: write(first) for first in range(4)))
    assert x.tolist() == [7] * 32


def test_reading_what_another_thread_overwrites() -> None:
    x = genesis.zeros(1000)

    def write() -> None:
        for _ in range(40):
            x.add_(1)
            x[0].item()

    def read() -> None:
        last = 0
        for _ in range(40):
            found = (x * 2).tolist()
            assert min(found) == max(found) >= last
            last = max(found)
    together(write, read, read)
    assert x[5].item() == 40


def test_an_op_that_another_thread_is_in_is_seen() -> None:
    """It may have looked at a content that is about to be overwritten, in whatever room of Genesis it is."""
    inside, leave = threading.Event(), threading.Event()

    class Slow:
        """A size that takes its time to say what it is."""

        def __index__(self) -> int:
            inside.set()
            leave.wait(10)
            return 2
    thread = threading.Thread(target=lambda: genesis.ones(4).narrow(0, 0, Slow()))  # type: ignore[arg-type]
    thread.start()
    assert inside.wait(10)
    seen = others_record()
    leave.set()
    thread.join(10)
    assert seen


def test_threads_of_genesis_own_hold_no_content() -> None:
    """A watchdog, a store, a writer of checkpoints: with one of them a step would copy what it overwrites."""
    from genesis.distributed.store import TCPStore
    store = TCPStore("127.0.0.1", 0, 1, True)
    store.set("key", "value")
    assert any(thread.name == "genesis store" for thread in threading.enumerate())
    assert not others_record()


def test_gradients_of_one_leaf() -> None:
    w = genesis.ones(4, requires_grad=True)

    def backward() -> None:
        for _ in range(10):
            (w * 2).sum().backward()
    together(*[backward] * 4)
    assert w.grad.tolist() == [80] * 4


def test_a_model_is_looked_at_while_it_is_trained() -> None:
    model = nn.Linear(3, 2)
    optimizer = optim.SGD(model.parameters(), lr=0.01)

    @genesis.compile
    def step(x: genesis.Tensor) -> genesis.Tensor:
        optimizer.zero_grad()
        loss = model(x).pow(2).sum()
        loss.backward()
        optimizer.step()
        return loss
    losses: list[float] = []

    def train() -> None:
        for _ in range(20):
            losses.append(step(genesis.ones(4, 3)).item())

    def look() -> None:
        for _ in range(30):
            model(genesis.ones(4, 3)).sum().item()
            model.weight.tolist()
    together(train, look, look)
    assert losses == sorted(losses, reverse=True) and len(losses) == 20


def test_an_op_that_is_recorded_right_before_a_step_overwrites_its_operand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever runs between two lines of the step, in another thread or in this one: it read the weight as it was."""
    w = genesis.tensor([2.0, 3.0], requires_grad=True)
    optimizer = optim.SGD([w], lr=1.0)

    @genesis.compile
    def step() -> None:
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
    seen: list[tuple[list[float], genesis.Tensor]] = []
    made = running.changes

    def changes(*given: Any) -> Any:
        loop = made(*given)
        if not seen:
            seen.append((before, w.detach() * 10))
        return loop
    for _ in range(3):
        step()
    before = w.tolist()
    (w * 2).tolist()
    monkeypatch.setattr(running, "changes", changes)
    step()
    monkeypatch.undo()
    after = w.tolist()
    step()
    (values, recorded), = seen
    assert recorded.tolist() == [10 * x for x in values]
    assert after == [-x for x in values] and w.tolist() == values


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_while_another_thread_computes() -> None:
    x, over = genesis.ones(4), threading.Event()
    (x + 1).tolist()

    def compute() -> None:
        while not over.is_set():
            (x * 2).sum().item()

    def fork() -> None:
        try:
            for _ in range(5):
                child = os.fork()
                if not child:
                    signal.alarm(20)  # a child that waits for ever ends
                    os._exit(0 if (x + 1).tolist() == [2] * 4 else 1)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        finally:
            over.set()
    together(compute, fork)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_while_other_threads_draw_capture_and_go_backward() -> None:
    """The child has none of the threads that hold these locks."""
    generator, double = genesis.Generator().manual_seed(1), genesis.compile(lambda x: x * 2)
    held, over = threading.Barrier(2), threading.Event()

    def hold() -> None:
        with generator._lock, double._lock, compiled_function._capturing, gradients._accumulating:
            held.wait(10)
            over.wait(20)
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    child = os.fork()
    if not child:
        signal.alarm(20)  # a child that waits for ever ends
        w = genesis.ones(2, requires_grad=True)
        (double(w) * genesis.rand(2, generator=generator)).sum().backward()
        os._exit(0 if w.grad is not None and w.grad.sum().item() > 0 else 1)
    over.set()
    thread.join(10)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


INTERRUPTED = """
import gc, signal, sys, time
import genesis
from genesis import nn, optim

model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = optim.Adam(model.parameters(), lr=1e-3)
x, seen = genesis.ones(32, 8), []

class Gone:
    def __init__(self, value):
        self.value, self.itself = value, self

    def __del__(self):
        seen.append(self.value.sum().item())

def look(*_):
    seen.append(model[0].weight.detach().sum().item())
    for p in model.parameters():
        p.detach().add_(0.0)
    Gone(model[2].weight * 1.5)
    if SIGNALS:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.002)  # of this process' own time: others may use the processor

def step(x):
    optimizer.zero_grad()
    loss = (model(x) - 1).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss

SIGNALS, step = WITH, WRAP(step)
if SIGNALS:
    signal.signal(signal.SIGVTALRM, look)
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.002)
else:
    gc.callbacks.append(lambda phase, info: look() if phase == "stop" else None)
    gc.set_threshold(200)
losses, end = [], time.process_time() + 1
while time.process_time() < end or len(seen) <= 5 or len(losses) < 10:
    losses.append(step(x).item())
signal.setitimer(signal.ITIMER_VIRTUAL, 0)
gc.callbacks.clear()
assert losses[-1] < losses[0], (len(seen), losses[0], losses[-1])
"""


@pytest.mark.parametrize(("signals", "wrap"), sweep_but(
    lambda signals, wrap: signals is (wrap == "genesis.compile"), [True, False], ["lambda f: f", "genesis.compile"]))
def test_training_is_interrupted_by_what_reads_and_writes_its_tensors(signals: bool, wrap: str) -> None:
    """Handlers and finalizers see whole contents, and the ops that they interrupt lose nothing."""
    program = INTERRUPTED.replace("WITH", str(signals)).replace("WRAP", f"({wrap})")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "Exception ignored" not in done.stderr, done.stderr[-2000:]


def _at_the_end(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", f"import atexit, genesis\n{program}"], capture_output=True, text=True,
                          timeout=120, check=False)


def test_a_read_at_exit() -> None:
    done = _at_the_end("(genesis.ones(1) + 1).item()\nx = genesis.ones(2) * 3\n"
                       "atexit.register(lambda: print(x.tolist()))")
    assert done.stdout == "[3.0, 3.0]\n", done.stderr


def test_the_first_read_of_all_at_exit_says_that_nothing_can_be_imported() -> None:
    done = _at_the_end("x = genesis.ones(2) * 3\natexit.register(lambda: print(x.tolist()))")
    assert "RuntimeError: read: the interpreter is shutting down" in done.stderr


def test_finalizers_of_cycles_that_are_left_at_exit() -> None:
    done = _at_the_end("""
class Gone:
    def __init__(self, value):
        self.value, self.itself = value, self
    def __del__(self):
        self.value.sum().item()
genesis.ones(2).sum().item()
for i in range(40):
    gone = Gone(genesis.ones(16, 16) * i)
    if i % 2:
        gone.value.sum().item()
    del gone""")
    assert done.returncode == 0 and not done.stderr, done.stderr[-500:]


def test_a_read_while_modules_are_taken_down_says_so() -> None:
    done = _at_the_end("""
class Gone:
    def __init__(self):
        self.x = genesis.ones(2) * 3
    def __del__(self):
        self.x.tolist()
gone = Gone()""")
    assert "the interpreter is shutting down" in done.stderr and "ImportError" not in done.stderr
