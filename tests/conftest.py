"""What all tests share: tests marked `gpu` are skipped where no GPU can be used."""

from __future__ import annotations

import ctypes
import importlib.util
import os
from functools import cache

import pytest

os.environ.setdefault("GENESIS_PLAN_CACHE", "0")  # a test is to see what it made, not what an earlier run left


@cache
def missing_gpu() -> str:
    """Why a test cannot use a GPU here, '' when it can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no NVIDIA driver (libcuda.so.1 is missing)"
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)) or not count.value:
        return "the NVIDIA driver finds no GPU"
    if importlib.util.find_spec("cuda") is None:
        return "cuda-python is not installed (pip install 'genesis-compiler[cuda]')"
    return ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a GPU when there is none; the driver is asked only if some test wants one."""
    wanting = [item for item in items if item.get_closest_marker("gpu")]
    if wanting and (reason := missing_gpu()):
        for item in wanting:
            item.add_marker(pytest.mark.skip(reason=reason))
