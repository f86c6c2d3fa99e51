"""Checkpoints of tensors on a GPU: their values, and training that goes on while they are read."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import genesis
from genesis import nn, optim
from genesis.checkpointing import CheckpointManager
from genesis.runtime.fake_cuda.driver import HostDriver


def parts() -> dict[str, Any]:
    """A model with parameters in several dtypes and orders, and an optimizer."""
    genesis.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(16, 5)).to("cuda")
    model[0].weight.data = model[0].weight.data.contiguous(memory_format=genesis.channels_last)
    model[2].weight.data = model[2].weight.data.t().contiguous().t()
    model.register_buffer("low", genesis.arange(6, device="cuda").reshape(2, 3).bfloat16())
    model.register_buffer("none", genesis.zeros(0, 3, device="cuda"))
    return {"model": model, "optimizer": optim.AdamW(model.parameters(), lr=0.1)}


def step(found: dict[str, Any]) -> None:
    found["model"](genesis.ones(2, 3, 3, 3, device="cuda")).square().mean().backward()
    found["optimizer"].step()
    found["optimizer"].zero_grad()


def values(found: dict[str, Any]) -> dict[str, Any]:
    return {name: x.tolist() for name, x in found["model"].state_dict().items()}


@pytest.mark.parametrize("async_", [True, False])
def test_what_is_saved_is_what_there_was(async_: bool, cuda: Any, tmp_path: Path) -> None:
    saved, manager = parts(), CheckpointManager(tmp_path, async_=async_)
    step(saved)
    wanted = values(saved)
    manager.save(1, **saved)
    manager.wait()
    step(saved)
    found = parts()
    assert manager.resume(**found).step == 1 and values(found) == wanted
    step(found)
    assert values(found) == values(saved), "the optimizer's state is there, too"


def test_steps_are_taken_while_a_checkpoint_is_read(host_cuda: HostDriver, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that writes waits for the GPU without a lock that a step needs."""
    trained, wait = threading.Event(), HostDriver.synchronize_event
    in_time = []

    def late(self: HostDriver, event: Any) -> None:
        if threading.current_thread().name == "genesis-checkpoint":
            in_time.append(trained.wait(60))
        wait(self, event)
    saved, manager = parts(), CheckpointManager(tmp_path)
    step(saved)
    wanted = values(saved)
    monkeypatch.setattr(HostDriver, "synchronize_event", late)
    manager.save(1, **saved)
    step(saved)
    assert values(saved) != wanted
    trained.set()
    manager.wait()
    assert in_time and all(in_time)
    found = parts()
    manager.resume(**found)
    assert values(found) == wanted
