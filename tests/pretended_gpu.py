"""Tests marked `gpu` on a machine without one: `pytest -m gpu --pretend-gpu 60` runs them on the host driver.

The same tests with a GPU's sizes, plans for an H200, kernels in Triton's interpreter. A test that takes longer than the
seconds is skipped and says so, and so is one that takes no fixture `cuda`: it asks for what only a GPU has.
"""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Final, NoReturn

import pytest

MEMORY_BYTES: Final = 6 << 30
"""What a pretended GPU has."""

SOON: Final = 0.02
"""Seconds until an alarm that came at a wrong moment comes again."""


def on_pretended_gpu(request: pytest.FixtureRequest) -> AbstractContextManager[object] | None:
    """The pretended GPU, with the option; None where a GPU is meant."""
    from genesis.engine.backends import FakeCUDABackend
    from genesis.runtime.fake_cuda.driver import HostDriver
    if request.config.getoption("--pretend-gpu") is None:
        return None
    return FakeCUDABackend(HostDriver(memory_bytes=MEMORY_BYTES))


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Inside, a test that takes longer is skipped. What raises is no `Exception`: nothing takes it for an error, but
    numpy, which tells an error of its own where it calls back.

    Not while the interpreter changes Triton's modules, or changes them back: later tests would find half of that.
    """
    from genesis.runtime.fake_cuda.interpreter import interpreting
    changing = interpreting.__wrapped__.__code__  # type: ignore[attr-defined]
    late: list[bool] = []

    def told(number: int, frame: FrameType | None) -> None:
        while frame is not None:
            if frame.f_code is changing:
                signal.setitimer(signal.ITIMER_REAL, SOON)
                return
            frame = frame.f_back
        late.append(True)
        raise_late()

    def raise_late() -> NoReturn:
        pytest.skip(f"takes more than {seconds:g} s in the interpreter")
    before = signal.signal(signal.SIGALRM, told)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    except Exception:
        if late:
            raise_late()
        raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if late:  # else the next test would find what this one left pending, on a GPU that is gone
            gc.collect()


def pretend(config: pytest.Config, wanting: list[pytest.Item]) -> None:
    """Let tests that want a GPU run, each for as long as the option says, if they take the fixture `cuda`."""
    for item in wanting:
        if "cuda" not in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.skip(reason="asks for what only a GPU has"))
    config.pluginmanager.register(Limited(config.getoption("--pretend-gpu")))


class Limited:
    """Ends tests that want a GPU when their time is over."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """The test, with the alarm set."""
        with self._limit(item):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Iterator[None]:
        """What it left pending is computed then."""
        with self._limit(item):
            return (yield)

    def _limit(self, item: pytest.Item) -> AbstractContextManager[None]:
        return nullcontext() if item.get_closest_marker("gpu") is None else at_most(self.seconds)
