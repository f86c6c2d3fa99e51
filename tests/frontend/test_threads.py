"""Whether a handler of the user's may interrupt the thread that computes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import genesis
from genesis.frontend.threads import handled, others, others_record


@pytest.fixture
def on() -> Iterator[Callable[[int, Any], None]]:
    """Sets a handler; what was there before comes back."""
    before: list[tuple[int, Any]] = []

    def install(number: int, handler: Any) -> None:
        before.append((number, signal.signal(number, handler)))

    yield install
    for number, handler in reversed(before):
        signal.signal(number, handler)


@pytest.fixture(autouse=True)
def none_of_the_test_runner(on: Callable[[int, Any], None]) -> None:
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if callable(signal.getsignal(number)):
            on(number, signal.SIG_DFL)


def test_pythons_own_handler_is_nobodys(on: Callable[[int, Any], None]) -> None:
    assert not handled()
    on(signal.SIGINT, signal.default_int_handler)
    on(signal.SIGUSR1, signal.SIG_IGN)
    assert not handled()


class Handler:
    """Compares equal to anything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        return 0

    def __call__(self, number: int, frame: object) -> None:
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1, signal.SIGALRM, signal.SIGRTMIN + 3])
@pytest.mark.parametrize("handler", [lambda number, frame: None, print], ids=["a function", "a builtin"])
def test_a_handler_of_the_users_counts_on_every_signal(on: Callable[[int, Any], None], number: int,
                                                       handler: Any) -> None:
    on(number, handler)
    assert handled()


def test_a_handler_counts_whatever_it_compares_equal_to(on: Callable[[int, Any], None]) -> None:
    on(signal.SIGINT, Handler())
    assert handled()


def test_the_thread_for_jobs_holds_no_content_while_it_waits(on: Callable[[int, Any], None]) -> None:
    """Else each step after the first would copy all that it overwrites."""
    on(signal.SIGUSR1, print)
    x = genesis.zeros(2)
    genesis.eval(x)
    genesis.eval(x.add_(1))
    assert others() and not others_record()
