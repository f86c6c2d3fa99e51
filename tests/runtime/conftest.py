"""The runtime's tests run on the host driver: CUDA's contract on host memory, kernels in Triton's interpreter."""

from __future__ import annotations

import os

import pytest

# Before anything imports triton: its own library functions are interpreted only if this is set by then.
os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU; skipped without one")


@pytest.fixture
def host_driver():
    """A pretended GPU as the process's driver, with pools and streams of its own."""
    from genesis.runtime import cuda_driver
    from genesis.runtime.host_driver import HostDriver
    pretended = HostDriver()
    cuda_driver.install(pretended)
    yield pretended
    cuda_driver.install(None)
