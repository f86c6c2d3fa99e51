"""A launch that CUDA refuses, wherever it stands: the state is one that the program had between two statements."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
import pytest

import genesis
from genesis import nn, optim, profiler
from genesis.engine import interruption, running
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.cuda import executor
from genesis.runtime.cuda.driver import DriverError, DriverOutOfMemory
from genesis.runtime.cuda.owed_launches import owed_launches
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.sweeping import by_default

from .compare import array, numbers

OUT_OF_RESOURCES = DriverError("cuLaunchKernelEx", "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "injected")


class Refusing:
    """Refuses launches and graphs of the driver while `error` is one: the number `after`, and all behind it.

    Attributes:
        once: only that one.
        refused: how many were.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.error: Exception | None = None
        self.after = self.refused = 0
        self.once = True
        for name in ("launch", "launch_graph"):
            monkeypatch.setattr(HostDriver, name, self._asked(getattr(HostDriver, name)))

    def _asked(self, work: Callable[..., None]) -> Callable[..., None]:
        def asked(driver: HostDriver, *given: Any) -> None:
            self.after -= 1
            if self.after < 0 and (error := self.error) is not None:
                self.refused += 1
                if self.once:
                    self.error = None
                raise error
            work(driver, *given)
        return asked

    def refuse(self, after: int, error: Exception = OUT_OF_RESOURCES, once: bool = True) -> None:
        """Refuse a launch from now on, behind so many."""
        self.error, self.after, self.once, self.refused = error, after, once, 0

    def stop(self) -> bool:
        """Refuse none any more; whether one was."""
        self.error = None
        return self.refused > 0


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch, host_cuda: HostDriver) -> Refusing:
    return Refusing(monkeypatch)


class Written:
    """Three tensors of other shapes, all written in one program, the last by what is computed of itself."""

    def __init__(self) -> None:
        self.tensors = [genesis.tensor(numbers(*shape), device="cuda") for shape in ((70,), (3, 5), (7, 300))]
        genesis.eval(self.tensors)

    def step(self) -> None:
        a, b, c = self.tensors
        a.add_(1)
        b.mul_(2)
        c.add_(c.sum(1, keepdim=True).tanh())
        genesis.eval(self.tensors)

    def state(self) -> list[np.ndarray]:
        return [array(x) for x in self.tensors]


class Trained:
    """A step with a batch norm, whose running numbers are written before the parameters."""

    def __init__(self, compiled: bool) -> None:
        genesis.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 3)).to("cuda")
        self.optimizer = optim.AdamW(self.net.parameters(), lr=0.1)
        self.x = genesis.tensor(numbers(6, 4), device="cuda")
        self.taken = genesis.compile(self._step) if compiled else self._step

    def _step(self) -> Any:
        self.optimizer.zero_grad()
        loss = self.net(self.x).pow(2).sum()
        loss.backward()
        self.optimizer.step()
        return loss

    def step(self) -> None:
        self.taken()

    def state(self) -> list[np.ndarray]:
        moments = [m for p in self.net.parameters() for m in self.optimizer.state[p].values()
                   if isinstance(m, genesis.Tensor)]
        return [array(x.detach()) for x in (*self.net.parameters(), *self.net.buffers(), *moments)]


def same(a: list[np.ndarray], b: list[np.ndarray]) -> bool:
    return len(a) == len(b) and all((x == y).all() for x, y in zip(a, b, strict=True))


PROGRAMS: dict[str, Callable[[], Any]] = {
    "writes": Written, "step": lambda: Trained(False), "compiled step": lambda: Trained(True)}

STEPS = 24
"""Steps of an undisturbed program: more than one has launches."""


@cache
def states(name: str) -> list[list[np.ndarray]]:
    """The states of an undisturbed program, before its second step and behind each from then on."""
    program = PROGRAMS[name]()
    found = []
    for _ in range(STEPS):
        program.step()
        found.append(program.state())
    return found


@by_default("writes-*", "*-one by one", "compiled step-profile")
@pytest.mark.parametrize("way", ["graphs", "one by one", "blocking", "profile"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_launch_is_refused_once(
        refusing: Refusing, monkeypatch: pytest.MonkeyPatch, name: str, way: str) -> None:
    """The first launch of one step, the second of the next, and so on: the state is the one before the step or the one
    behind it, and the program goes on from there. A plan's first run, and few steps, are launched one by one."""
    if way == "one by one":
        monkeypatch.setattr(executor, "STEPS_WITHOUT_GRAPH", 1000)
    if way == "blocking":
        monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    expected, program = states(name), PROGRAMS[name]()
    program.step()
    at, behind_a_write, was_refused, n = 0, 0, True, 0
    while was_refused:
        with profiler.profile() if way == "profile" else nullcontext():
            refusing.refuse(n)
            try:
                program.step()
            except RuntimeError as error:
                assert "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES" in str(error)
            was_refused = refusing.stop()
            found = program.state()
        now = next((i for i in (at, at + 1) if same(found, expected[i])), None)
        assert now is not None, f"launch {n} left half of a step"
        behind_a_write += was_refused and now > at
        at, n = now, n + 1
    assert behind_a_write or way == "graphs"


def half_written(refusing: Refusing, error: Exception = OUT_OF_RESOURCES, once: bool = True) -> Written:
    """A program of which the last launch is refused, which reads what is between, behind two that have written."""
    program = Written()
    refusing.refuse(3, error, once)
    with pytest.raises(RuntimeError, match="injected"):
        program.step()
    return program


def test_what_is_owed_finds_its_scratch_memory_and_operands(
        refusing: Refusing, monkeypatch: pytest.MonkeyPatch) -> None:
    def unmapped(driver: HostDriver, address: int, nbytes: int) -> None:
        ctypes.memset(address, 0xFF, nbytes)
        unmap(driver, address, nbytes)
    unmap = HostDriver.unmap_memory
    monkeypatch.setattr(HostDriver, "unmap_memory", unmapped)
    expected = states("writes")[0]
    program = half_written(refusing)
    genesis.cuda.empty_cache()
    others = [genesis.full((7, n), 9.0, device="cuda") for n in range(1, 50)]  # recorded: nothing runs
    kept = program.tensors
    program.tensors = []
    genesis.cuda.empty_cache()
    assert all(same([array(x)], [np.full((7, n), 9, np.float32)]) for n, x in enumerate(others, 1))
    program.tensors = kept
    assert same(program.state(), expected)


def test_while_it_is_refused_only_its_gpu_waits(refusing: Refusing) -> None:
    expected = states("writes")[0]
    other = genesis.ones(4, device="cuda")
    genesis.eval(other)
    program = half_written(refusing, once=False)
    six = genesis.ones(3, device="cuda") * 6
    for read in (*program.tensors, other, six, other.add_(1)):
        with pytest.raises(RuntimeError, match=r"injected\nThe launch was refused .* counts as run"):
            read.tolist()
    assert (genesis.ones(3) * 2).tolist() == [2, 2, 2]
    refusing.stop()
    assert same(program.state(), expected) and other.tolist() == [2, 2, 2, 2] and six.tolist() == [6, 6, 6]


def test_what_is_recorded_meanwhile_comes_behind(refusing: Refusing) -> None:
    program = half_written(refusing)
    (a, b, c), expected = program.tensors, states("writes")[0]
    sums = [(x + 1).sum() for x in (a, b, c)]
    b.add_(5)
    assert [round(x.item(), 2) for x in sums] == [round(float((x + 1).sum()), 2) for x in expected]
    assert same(program.state(), [expected[0], expected[1] + np.float32(5), expected[2]])


def test_cached_memory_is_given_back_for_it(refusing: Refusing, host_cuda: HostDriver) -> None:
    expected = states("writes")[0]
    program = half_written(refusing, DriverOutOfMemory("cuLaunchKernelEx", "CUDA_ERROR_OUT_OF_MEMORY", "injected"))
    large = genesis.zeros(1 << 20, device="cuda")
    refusing.refuse(0, DriverOutOfMemory("cuLaunchKernelEx", "CUDA_ERROR_OUT_OF_MEMORY", "injected"))
    assert same(program.state(), expected) and refusing.refused == 1
    assert large.shape == (1 << 20,)


@pytest.mark.parametrize("name", ["writes", "compiled step"])
def test_an_interrupt_behind_the_refusal(refusing: Refusing, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Whoever enters the engine next finds a program that is half launched, and nobody told of it."""
    monkeypatch.setattr(executor, "STEPS_WITHOUT_GRAPH", 1000)
    expected = states(name)
    program = PROGRAMS[name]()
    for _ in range(3):
        program.step()
    counts_as_over = running.counts_as_over

    def interrupted(record: Any) -> bool:
        monkeypatch.setattr(running, "counts_as_over", counts_as_over)
        raise KeyboardInterrupt
    monkeypatch.setattr(running, "counts_as_over", interrupted)
    assert interruption.counts_as_over is counts_as_over
    refusing.refuse(1000)
    program.step()
    launches = 1000 - refusing.after
    program.state()
    refusing.refuse(launches - 1)
    with pytest.raises(KeyboardInterrupt):
        program.step()
    assert refusing.stop()
    assert same(program.state(), expected[4])


def test_another_gpu_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    refusing = Refusing(monkeypatch)
    with FakeCUDABackend(HostDriver(memory_bytes=64 << 20, devices=2)):
        expected = states("writes")[0]
        other = genesis.ones(4, device="cuda:1")
        genesis.eval(other)
        program = half_written(refusing)
        assert (other * 2).tolist() == [2, 2, 2, 2] and other.tolist() == [1, 1, 1, 1]
        assert [x.device for x in owed_launches()] == [0]
        assert same(program.state(), expected) and not owed_launches()
        assert other.tolist() == [1, 1, 1, 1]
