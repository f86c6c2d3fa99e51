"""The runtime's tests run on the host driver: CUDA's contract on host memory, kernels in Triton's interpreter."""

from __future__ import annotations

import pytest


@pytest.fixture
def host_driver():
    """A pretended GPU as the process's driver, with pools and streams of its own."""
    from genesis.runtime.cuda import cuda_python_driver
    from genesis.runtime.fake_cuda.driver import HostDriver
    pretended = HostDriver()
    cuda_python_driver.install(pretended)
    yield pretended
    cuda_python_driver.install(None)
