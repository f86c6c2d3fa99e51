"""The CUDA path end to end, twice: on host memory with kernels in Triton's interpreter, and on a GPU.

Every test that takes the fixture `cuda` runs on the host driver. With `-m gpu`, or wherever there is a GPU,
it also runs there, with kernels compiled by Triton. `--pretend-gpu 60` runs a GPU's tests on the host driver, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from genesis import config, engine, manual_seed
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.cuda import cuda_python_driver
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.pretended_gpu import on_pretended_gpu


class CudaUnderTest:
    """The driver that a test's 'cuda' tensors are on.

    Attributes:
        real: whether it is a GPU, or stands for one: programs have a GPU's sizes.
    """

    def __init__(self, real: bool):
        self.real = real

    @property
    def driver(self) -> Any:
        """The process's driver now."""
        return cuda_python_driver.driver()


def forget_plans() -> None:
    """Plans belong to a driver: the next test makes its own."""
    engine.reset()


def leave_nothing_pending() -> None:
    """Compute what tests so far have left pending, as the traceback of one that failed holds it: it would be computed
    with what the next test asks for, in its plan or in one that runs after it."""
    with suppress(Exception):  # of a test before; it has its own report
        engine.flush([])


@pytest.fixture(params=["host", pytest.param("gpu", marks=pytest.mark.gpu)])
def cuda(request: pytest.FixtureRequest) -> Iterator[CudaUnderTest]:
    """Lets device='cuda' be the host driver, or the GPU; seeds the random numbers."""
    real = request.param == "gpu"
    pretended = on_pretended_gpu(request) if real else FakeCUDABackend(HostDriver(memory_bytes=64 << 20))
    leave_nothing_pending()
    forget_plans()
    with pretended or nullcontext():
        manual_seed(0)
        yield CudaUnderTest(real)
        leave_nothing_pending()
        forget_plans()
    if not pretended:
        cuda_python_driver.driver().use(0)
        cuda_python_driver.driver().synchronize()
    cuda_python_driver.install(None)


@pytest.fixture
def host_cuda() -> Iterator[HostDriver]:
    """The host driver alone, for tests that count or refuse what the driver does."""
    driver = HostDriver(memory_bytes=64 << 20)
    with FakeCUDABackend(driver):
        manual_seed(0)
        yield driver


@pytest.fixture(params=[True, False], ids=["fused", "unfused"])
def fuse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both values of `genesis.config.fuse`."""
    monkeypatch.setattr(config, "fuse", request.param)
    return request.param
