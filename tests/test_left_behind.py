"""`tests/left_behind.py`: what a test leaves behind is told of, and put back."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import genesis
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.conftest import pytest_runtest_teardown
from tests.left_behind import put_back, settings


class Mode(TorchFunctionMode):
    """Does nothing."""


def new_tensors_on_a_gpu() -> None:
    with FakeCUDABackend(HostDriver(memory_bytes=1 << 20)):
        genesis.set_default_device("cuda")


CHANGES: list[tuple[str, Callable[[], Any]]] = [
    ("genesis.config", lambda: genesis.use_deterministic_algorithms(not genesis.config.deterministic)),
    ("genesis's default dtype", lambda: genesis.set_default_dtype(genesis.float64)),
    ("genesis's default device", new_tensors_on_a_gpu),
    ("genesis's gradients", lambda: genesis.set_grad_enabled(False)),
    ("genesis's anomalies", lambda: genesis.autograd.set_detect_anomaly(True)),
    ("torch's default dtype", lambda: torch.set_default_dtype(torch.float64)),
    ("torch's gradients", lambda: torch.set_grad_enabled(False)),
    ("torch's deterministic algorithms", lambda: torch.use_deterministic_algorithms(True)),
    ("torch's precision of products", lambda: torch.set_float32_matmul_precision("high")),
    ("torch's autocast", lambda: torch.set_autocast_enabled("cpu", True)),
    ("torch's modes of functions (torch.set_default_device is one)", lambda: Mode().__enter__()),
    ("torch's modes of functions (torch.set_default_device is one)", lambda: torch.set_default_device("meta")),
    ("torch's modes of dispatch", lambda: torch.utils._python_dispatch.TorchDispatchMode().__enter__()),
    ("the working directory", lambda: os.chdir(Path(__file__).parent)),
    ("whether the collector runs", gc.disable),
    ("when the collector runs", lambda: gc.set_threshold(99_999)),
    ("the recursion limit", lambda: sys.setrecursionlimit(4321)),
]


@pytest.mark.parametrize(("name", "change"), CHANGES)
def test_what_is_left_is_told_of_and_put_back(name: str, change: Callable[[], Any]) -> None:
    put_back()
    before = [setting.get() for setting in settings()]
    change()
    told, = put_back()
    assert told.startswith(f"{name}: ")
    assert [setting.get() for setting in settings()] == before and put_back() == []


def test_every_setting_is_tried() -> None:
    assert {setting.name for setting in settings()} == {name for name, _ in CHANGES}


def test_a_test_that_leaves_something_fails() -> None:
    """Behind its fixtures, which may put it back themselves."""
    put_back()
    behind = pytest_runtest_teardown()
    next(behind)
    genesis.set_default_dtype(genesis.float64)
    with pytest.raises(pytest.fail.Exception, match="leaves behind for other tests: genesis's default dtype"):
        behind.send(None)
    assert genesis.get_default_dtype() is genesis.float32
