"""The CUDA path end to end, twice: on host memory with kernels in Triton's interpreter, and on a GPU.

Every test that takes the fixture `cuda` runs on the host driver. With `-m gpu`, or wherever there is a GPU,
it also runs there, with kernels compiled by Triton.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from genesis import config, engine, manual_seed
from genesis.codegen.cuda import lower as lower_cuda
from genesis.codegen.cuda.source import KernelSource
from genesis.runtime.cuda import cuda_python_driver
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.plan import KernelImage


def images_of_sources(sources: Sequence[KernelSource], store: Any = None, gpu: Any = None) -> list[KernelImage]:
    """Kernels as the host driver takes them: their text, and the values of its constants."""
    return [KernelImage(s.name, b"", s.num_warps, 0, f"{s.source}\n\nCONSTEXPRS = {s.constexprs!r}\n") for s in sources]


class CudaUnderTest:
    """The driver that a test's 'cuda' tensors are on.

    Attributes:
        real: whether it is a GPU.
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


@pytest.fixture(params=["host", pytest.param("gpu", marks=pytest.mark.gpu)])
def cuda(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[CudaUnderTest]:
    """Lets device='cuda' be the host driver, or the GPU; seeds the random numbers."""
    real = request.param == "gpu"
    if not real:
        monkeypatch.setattr(lower_cuda, "compile_sources", images_of_sources)
    forget_plans()
    cuda_python_driver.install(None if real else HostDriver(memory_bytes=64 << 20))
    manual_seed(0)
    yield CudaUnderTest(real)
    forget_plans()
    if real:
        cuda_python_driver.driver().use(0)
        cuda_python_driver.driver().synchronize()
    cuda_python_driver.install(None)


@pytest.fixture
def host_cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostDriver]:
    """The host driver alone, for tests that count or refuse what the driver does."""
    monkeypatch.setattr(lower_cuda, "compile_sources", images_of_sources)
    forget_plans()
    driver = HostDriver(memory_bytes=64 << 20)
    cuda_python_driver.install(driver)
    manual_seed(0)
    yield driver
    forget_plans()
    cuda_python_driver.install(None)


@pytest.fixture(params=[True, False], ids=["fused", "unfused"])
def fuse(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both values of `genesis.config.fuse`."""
    monkeypatch.setattr(config, "fuse", request.param)
    return request.param
