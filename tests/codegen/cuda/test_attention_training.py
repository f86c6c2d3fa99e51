"""Training with attention kernels: a GPT in bf16 autocast gives the CPU's losses. On the host driver."""

from __future__ import annotations

from typing import Any

import numpy as np

import genesis
from genesis import engine
from genesis.codegen.cuda.emit import emit
from genesis.models import GPT, GPTConfig
from tests.gpu.conftest import host_cuda

__all__ = ["host_cuda"]


def losses(device: str, steps: int, read_first: bool) -> list[float]:
    """Losses of a small GPT; with `read_first` they are read before backward, so that it has a plan of its own."""
    genesis.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=16, context=12, layers=1, heads=2, dim=32)).to(device)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = np.random.default_rng(0).integers(0, 16, (1, 13))
    x, y = (genesis.tensor(part, device=device) for part in (tokens[:, :-1], tokens[:, 1:]))
    found = []
    for _ in range(steps):
        with genesis.autocast(device, dtype=genesis.bfloat16):
            _, loss = model(x, y)
        if read_first:
            found.append(loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if not read_first:
            found.append(loss.item())
    return found


def kernels() -> list[str]:
    """Kernels of attention in the plan that ran last."""
    plan: Any = engine.last_plan()
    return sorted(emit(group).label for group in plan.schedule.groups if group.kind.startswith("attention"))


def test_a_training_step_is_the_cpus(host_cuda) -> None:
    """Each step moves the weights, so the last loss has seen all gradients; bf16 keeps 8 bits."""
    found = losses("cuda", 3, False)
    assert kernels() == ["attention", "attention_dkv", "attention_dq"]
    np.testing.assert_allclose(found, losses("cpu", 3, False), rtol=1e-2)


def test_a_loss_read_before_backward(host_cuda) -> None:
    """Its backward is a plan of its own, which makes the log-sum-exp again."""
    found = losses("cuda", 2, True)
    assert kernels() == ["attention_dkv", "attention_dq", "attention_lse"]
    np.testing.assert_allclose(found, losses("cpu", 2, True), rtol=1e-2)
