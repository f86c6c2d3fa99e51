"""Threads that record, write, read and compute at the same time: what some order of their calls gives.

Every program runs with threads that change places as often as Python lets them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

import genesis
from genesis import nn, optim
from genesis.frontend.threads import others_record


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
