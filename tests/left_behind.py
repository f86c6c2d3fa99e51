"""What a test leaves behind for those that run after it in its process: settings of Genesis, torch and Python.

A test that left Genesis non-deterministic made four others fail, which pass alone. After each test the settings are
held against those before the first one (4 µs), and put back."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple


class Setting(NamedTuple):
    """Something that holds for a whole process or thread, and how it is asked for and put back."""

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], Any]


def settings() -> list[Setting]:
    """All that is looked at. Only where Genesis and torch are imported."""
    import torch
    from torch.utils import _python_dispatch

    import genesis
    from genesis.autograd import anomaly
    config, names = genesis.config, [field.name for field in fields(genesis.config)]

    def put_config(values: tuple[Any, ...]) -> None:
        for name, value in zip(names, values, strict=True):
            setattr(config, name, value)

    def shorten(length: Callable[[], int], pop: Callable[[], Any]) -> Callable[[int], None]:
        def put(count: int) -> None:
            while length() > count:
                pop()
        return put

    functions, dispatches = torch._C._len_torch_function_stack, torch._C._len_torch_dispatch_stack
    return [
        Setting("genesis.config", lambda: tuple([getattr(config, name) for name in names]), put_config),
        Setting("genesis's default dtype", genesis.get_default_dtype, genesis.set_default_dtype),
        Setting("genesis's default device", genesis.get_default_device, genesis.set_default_device),
        Setting("genesis's gradients", genesis.is_grad_enabled, genesis.set_grad_enabled),
        Setting("genesis's anomalies", anomaly.is_anomaly_enabled, genesis.autograd.set_detect_anomaly),
        Setting("torch's default dtype", torch.get_default_dtype, torch.set_default_dtype),
        Setting("torch's gradients", torch.is_grad_enabled, torch.set_grad_enabled),
        Setting("torch's deterministic algorithms", torch.are_deterministic_algorithms_enabled,
                torch.use_deterministic_algorithms),
        Setting("torch's precision of products", torch.get_float32_matmul_precision,
                torch.set_float32_matmul_precision),
        Setting("torch's autocast", lambda: torch.is_autocast_enabled("cpu"),
                lambda value: torch.set_autocast_enabled("cpu", value)),
        Setting("torch's modes of functions (torch.set_default_device is one)", functions,
                shorten(functions, torch._C._pop_torch_function_stack)),
        Setting("torch's modes of dispatch", dispatches, shorten(dispatches, _python_dispatch._pop_mode)),
        Setting("the working directory", os.getcwd, os.chdir),
        Setting("whether the collector runs", gc.isenabled, lambda value: gc.enable() if value else gc.disable()),
        Setting("when the collector runs", gc.get_threshold, lambda value: gc.set_threshold(*value)),
        Setting("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    ]


@cache
def _at_first() -> list[tuple[Setting, Any]]:
    return [(setting, setting.get()) for setting in settings()]


def put_back() -> list[str]:
    """Put back each setting that is not as it was at the first call, and tell of it: none at the first one, nor before
    Genesis and torch are imported."""
    if "genesis" not in sys.modules or "torch" not in sys.modules:
        return []
    found = []
    for setting, before in _at_first():
        now = setting.get()
        if now != before:
            setting.put(before)
            found.append(f"{setting.name}: {now!r}, was {before!r}")
    return found
