"""Lets the tests here import `torch_peer` from the folder above; a pretended GPU for them."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.fake_cuda.driver import HostDriver

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


@pytest.fixture
def host_driver() -> Iterator[HostDriver]:
    """The host driver in place of CUDA, and kernels as its interpreter takes them."""
    driver = HostDriver()
    with FakeCUDABackend(driver):
        yield driver
