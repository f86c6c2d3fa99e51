"""A pretended GPU for the tests here."""

import pytest

from genesis.runtime.cuda import cuda_python_driver
from genesis.runtime.fake_cuda.driver import HostDriver


@pytest.fixture
def host_driver():
    """The host driver in place of CUDA."""
    driver = HostDriver()
    cuda_python_driver.install(driver)
    yield driver
    cuda_python_driver.install(None)
