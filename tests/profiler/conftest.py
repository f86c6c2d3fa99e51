"""A pretended GPU for the tests here."""

from collections.abc import Iterator

import pytest

from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.fake_cuda.driver import HostDriver


@pytest.fixture
def host_driver() -> Iterator[HostDriver]:
    """The host driver in place of CUDA, and kernels as its interpreter takes them."""
    driver = HostDriver()
    with FakeCUDABackend(driver):
        yield driver
