"""A run that fails changes nothing: what was computed stays, the next run is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.nn import functional as F
from genesis.runtime.cuda.driver import DriverError, DriverOutOfMemory
from genesis.runtime.cuda.memory_blocks import FreeList
from genesis.runtime.cuda.memory_pool import MemoryPool, pool_of
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.sweeping import by_default

from .compare import array, numbers


class Failing:
    """Lets the n-th allocation of the pool from now on fail, and all after it while `left` is not None."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, driver: HostDriver):
        self._left: int | None = None
        self.count = 0
        allocate, alloc, map_memory = MemoryPool.allocate_in, driver.alloc, driver.map_memory

        def counted(pool: Any, lane: Any, nbytes: int, source: Any = None) -> Any:
            self.count += 1
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    pool.empty_cache()
                    return self.starved(pool, lane, nbytes, allocate)
            return allocate(pool, lane, nbytes, source)

        def refused(nbytes: int) -> int:
            if self.left is not None and self.left < 0:
                raise DriverOutOfMemory("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY", "injected")
            return alloc(nbytes)

        def not_mapped(address: int, nbytes: int) -> None:  # where intermediates are
            if self.left is not None:
                self.left -= 1
                if self.left < 0:
                    raise DriverOutOfMemory("cuMemCreate", "CUDA_ERROR_OUT_OF_MEMORY", "injected")
            map_memory(address, nbytes)
        monkeypatch.setattr(MemoryPool, "allocate_in", counted)
        monkeypatch.setattr(driver, "alloc", refused)
        monkeypatch.setattr(driver, "map_memory", not_mapped)

    @property
    def left(self) -> int | None:
        """How many allocations there are until one fails; None while none does."""
        return self._left

    @left.setter
    def left(self, count: int | None) -> None:
        if count is not None and self._left is None:
            pool_of(0).segments()  # empties the shelves, from which storages take blocks without asking the pool
        self._left = count

    @staticmethod
    def starved(pool: Any, lane: Any, nbytes: int, allocate: Callable) -> Any:
        """The pool finds nothing in what it has, so it must ask the driver."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FreeList, "best_fit", lambda free, size: None)
            return allocate(pool, lane, nbytes)


class Training:
    """A small model, its optimizer, one step."""

    def __init__(self, device: str):
        genesis.manual_seed(0)
        self.model = genesis.nn.Sequential(genesis.nn.Linear(4, 6), genesis.nn.GELU(), genesis.nn.Dropout(0.3),
                                           genesis.nn.Linear(6, 3)).to(device)
        self.optimizer = genesis.optim.AdamW(self.model.parameters(), lr=0.05)
        self.x = genesis.tensor(numbers(5, 4), device=device)
        self.y = genesis.tensor([0, 1, 2, 1, 0], device=device)

    def step(self) -> Any:
        """One step; the loss, not computed."""
        loss = F.cross_entropy(self.model(self.x), self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def state(self) -> list[np.ndarray]:
        """Parameters and moments."""
        moments = [m for p in self.model.parameters() for m in self.optimizer.state[p].values()
                   if isinstance(m, genesis.Tensor)]
        return [array(t.detach()) for t in (*self.model.parameters(), *moments)]


def same_state(found: list[np.ndarray], expected: list[np.ndarray]) -> bool:
    return all((x == y).all() for x, y in zip(found, expected, strict=True))


def test_out_of_memory_at_every_allocation_of_a_step(host_cuda, monkeypatch):
    """First steps and repeated ones, where the plan, the graph and the tables are there already."""
    failing = Failing(monkeypatch, host_cuda)
    oracle = Training("cuda")
    expected, draws = [], []
    for _ in range(4):
        draws.append(genesis.get_rng_state())
        oracle.step()
        expected.append(oracle.state())
    for done in (0, 1, 3):
        failed = 0
        for n in range(60):
            training = Training("cuda")
            for _ in range(done):
                training.step()
            before = training.state()
            genesis.set_rng_state(draws[done])
            failing.left = n
            try:
                loss = training.step()
                loss.item()
                survived = failing.left >= 0
            except genesis.cuda.OutOfMemoryError as error:
                assert "out of memory" in str(error) and "allocated" in str(error)
                survived = False
            failing.left = None
            if survived:
                assert same_state(training.state(), expected[done])
                break
            failed += 1
            assert same_state(training.state(), before) or same_state(training.state(), expected[done])
            if same_state(training.state(), before):
                genesis.set_rng_state(draws[done])
                training.step()
                assert same_state(training.state(), expected[done]), f"after failure {n} in step {done}"
        else:
            raise AssertionError("the step never got through")
        assert failed or done


@by_default("0", "3")
@pytest.mark.parametrize("done", [0, 1, 3])
def test_out_of_memory_in_a_compiled_step(host_cuda, monkeypatch, done):
    """Outputs that are held make a replay allocate; when it cannot, neither tensors nor step counts move on."""
    failing = Failing(monkeypatch, host_cuda)
    oracle, training = Training("cuda"), Training("cuda")
    expected = []
    for model in (oracle, training):
        model.model.eval()
    for _ in range(5):
        oracle.step()
        expected.append(oracle.state())
    step = genesis.compile(training.step)
    before = training.state()
    held = [step() for _ in range(done)]
    if done:
        before = expected[done - 1]
    failing.left = 0
    with pytest.raises(genesis.cuda.OutOfMemoryError):
        held.append(step())
    failing.left = None
    assert same_state(training.state(), before)
    for later in range(done, 5):
        held.append(step())
        assert same_state(training.state(), expected[later])
    assert [loss.item() for loss in held] == sorted((loss.item() for loss in held), reverse=True)


def test_out_of_memory_in_a_step_that_cannot_be_replayed(host_cuda, monkeypatch):
    """It is recorded at each call; the counts of its optimizer do not move on when it fails."""
    failing = Failing(monkeypatch, host_cuda)
    oracle, training = Training("cuda"), Training("cuda")
    for model in (oracle, training):
        model.model.eval()
    oracle.step()

    @genesis.compile
    def step() -> Any:
        print(end="")
        return training.step()
    before = training.state()
    failing.left = 0
    with pytest.raises(genesis.cuda.OutOfMemoryError):
        step()
    failing.left = None
    assert same_state(training.state(), before)
    step()
    assert same_state(training.state(), oracle.state())
    assert "recorded at each call" in genesis.explain(step)


def test_what_depends_on_a_failed_run_raises_its_error(host_cuda, monkeypatch):
    failing = Failing(monkeypatch, host_cuda)
    x = genesis.tensor(numbers(64), device="cuda")
    y = x * 2
    failing.left = 0
    with pytest.raises(genesis.cuda.OutOfMemoryError):
        genesis.eval(y)
    failing.left = None
    with pytest.raises(genesis.cuda.OutOfMemoryError):
        y.tolist()
    np.testing.assert_array_equal(array(x * 2), numbers(64) * 2)


def test_an_in_place_write_that_fails_leaves_the_old_content(host_cuda, monkeypatch):
    failing = Failing(monkeypatch, host_cuda)
    x = genesis.tensor(numbers(5, 5), device="cuda")
    x[:] = x.t() @ x
    failing.left = 0
    with pytest.raises(genesis.cuda.OutOfMemoryError):
        genesis.eval(x)
    failing.left = None
    np.testing.assert_array_equal(array(x), numbers(5, 5))


def test_a_real_shortage(host_cuda):
    """64 MiB are pretended."""
    held = engine.allocate(32 << 20, genesis.device("cuda"))
    with pytest.raises(genesis.cuda.OutOfMemoryError) as caught:
        genesis.eval(genesis.ones(10 << 20, device="cuda"))
    message = str(caught.value)
    assert "CUDA out of memory on cuda:0" in message and "40 MiB" in message and "smaller batch" in message
    del held
    assert genesis.ones(4, device="cuda").tolist() == [1] * 4


def test_a_kernel_that_fails_names_itself(host_cuda, monkeypatch):
    x = genesis.tensor(numbers(4), device="cuda")

    def launch(prepared: Any, stream: Any) -> None:
        if broken:
            raise DriverError("cuLaunchKernel", "CUDA_ERROR_LAUNCH_FAILED", "injected")
        works(prepared, stream)
    broken, works = True, host_cuda.launch
    monkeypatch.setattr(host_cuda, "launch", launch)
    with pytest.raises(RuntimeError, match=r"mul.*cuLaunchKernel"):
        genesis.eval(x * 2)
    broken = False
    np.testing.assert_array_equal(array(x * 2), numbers(4) * 2)


def test_without_a_gpu_the_error_says_how_to_check(monkeypatch):
    from genesis.runtime.cuda import cuda_python_calls, cuda_python_driver

    class Missing:
        def __init__(self) -> None:
            raise RuntimeError(f"CUDA is not available: none here; {cuda_python_calls.CHECK}")
    monkeypatch.setattr(cuda_python_driver, "CudaDriver", Missing)
    cuda_python_driver.install(None)
    with pytest.raises(RuntimeError, match="nvidia-smi"):
        genesis.eval(genesis.ones(2, device="cuda"))
    assert not genesis.cuda.is_available()


def test_launch_blocking_names_op_kernel_and_line(host_cuda, monkeypatch):
    """Each of two lines with equal programs is told as itself."""
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    x = genesis.tensor(numbers(4), device="cuda")

    def sick() -> None:
        raise DriverError("cuCtxSynchronize", "CUDA_ERROR_ILLEGAL_ADDRESS", "injected")
    messages = []
    for program in (lambda: (x * 2).exp(),
                    lambda: (x * 2).exp()):
        y = program()
        with monkeypatch.context() as patch:
            patch.setattr(host_cuda, "synchronize", sick)
            with pytest.raises(RuntimeError, match=r"^\w*exp\w* \(exp at .*test_failures\.py:\d+ .*lambda.*\): "
                                                   r"cuCtxSynchronize failed: CUDA_ERROR_ILLEGAL_ADDRESS") as caught:
                genesis.eval(y)
        messages.append(str(caught.value))
        del y, caught
    assert messages[0] != messages[1]
    np.testing.assert_allclose(array((x * 2).exp()), np.exp(numbers(4) * 2), rtol=1e-5)
    assert host_cuda.calls["launch_graph"] == 0
