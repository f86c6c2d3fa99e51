"""The names of the first documents are there, and do what these say."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
import torch

import genesis
from genesis import amp, nn


def test_batch_norm_without_dimensions() -> None:
    assert nn.BatchNorm(3)(genesis.ones(4, 3)).shape == (4, 3)
    assert nn.BatchNorm is nn.BatchNorm1d


@pytest.mark.parametrize(("path", "name"), [("nn.modules.module", "Parameter"), ("nn.modules.loss", "BCELoss"),
                                            ("nn.modules.normalization", "BatchNorm1d"), ("functional", "softmax"),
                                            ("nn.modules.activation", "SiLU"), ("nn.modules.container", "ModuleList")])
def test_modules_have_their_names(path: str, name: str) -> None:
    found = getattr(importlib.import_module(f"genesis.{path}"), name)
    assert found is getattr(genesis if path == "functional" else nn, name)


def test_fields_of_devices_and_dtypes() -> None:
    assert (genesis.device("cpu").name, genesis.device("cpu").device_id) == ("cpu", None)
    assert (genesis.device("cuda:1").name, genesis.device("cuda:1").device_id) == ("cuda", 1)
    assert genesis.float32.numpy_dtype == np.float32 and genesis.float32.torch_dtype is torch.float32
    assert genesis.bfloat16.torch_dtype is torch.bfloat16 and genesis.float16.itemsize == 2


def test_enable_autocast_is_a_context() -> None:
    with amp.enable_autocast("cpu"):
        assert amp.is_autocast_enabled("cpu")
        assert (genesis.ones(2, 2) @ genesis.ones(2, 2)).dtype is genesis.bfloat16


def test_a_check_that_is_written_with_torchs_functions() -> None:
    x = genesis.tensor([1.0, float("nan")])
    assert torch.isnan(x).any() and not torch.isinf(x).any()
    assert torch.nn.functional.relu(genesis.tensor([-1.0])).tolist() == [0.0]
    assert isinstance(torch.stack([x, x]), genesis.Tensor)


def test_operands_of_both_libraries_are_refused_by_name() -> None:
    for call in (lambda: torch.ones(2) + genesis.ones(2), lambda: torch.add(torch.ones(2), genesis.ones(2)),
                 lambda: torch.nn.Linear(2, 2)(genesis.ones(1, 2))):
        with pytest.raises(TypeError, match=r"not torch\.(Tensor|Parameter)"):
            call()


def test_the_pool_hands_out_aligned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from genesis.cuda import block_pool
    from genesis.runtime.cuda.memory_pool import MemoryPool
    from genesis.runtime.fake_cuda.driver import HostDriver
    inner = MemoryPool(HostDriver(), device=0)
    monkeypatch.setattr(block_pool, "pool_of", lambda device: inner)
    monkeypatch.setattr(block_pool, "current_device", lambda: 0)
    pool = genesis.cuda.AsyncMemoryPool()
    first = pool.allocate(1000)
    assert first % pool.alignment == 0 and list(pool.allocated_blocks) == [first]
    pool.deallocate(first)
    assert pool.allocate(1000) == first, "it is used again"
    with pytest.raises(RuntimeError, match="no memory of this pool"):
        pool.deallocate(1)
