"""Fully sharded training: each rank keeps a part of all parameters, and what they learn is what one process learns."""

from __future__ import annotations

from typing import Any

import pytest

import genesis
from genesis import distributed as dist
from genesis import engine, nn
from genesis.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from tests.distributed.ranks import Ranks
from tests.distributed.test_data_parallel import REASSOCIATED, batch


class Block(nn.Module):
    """A residual block; 33 rows are no multiple of the ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 33), nn.Linear(33, 16)

    def forward(self, x: Any) -> Any:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, checkpointed: bool = False) -> None:
        super().__init__()
        self.embed, self.head, self.checkpointed = nn.Linear(6, 16), nn.Linear(16, 3), checkpointed
        self.blocks = nn.ModuleList([Block() for _ in range(3)])

    def forward(self, x: Any) -> Any:
        x = self.embed(x)
        for block in self.blocks:
            x = genesis.checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(x)


def network(**options: Any) -> Any:
    genesis.manual_seed(3)
    return Net(**options)


def sharded(model: Any, **options: Any) -> Any:
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


def train(rank: int, size: int, how: str, steps: int) -> tuple[list[float], int]:
    """Losses over all samples, of AdamW with clipping; and how many plans the last steps made."""
    torn = size > 1
    model = network(checkpointed=how == "checkpointed")
    if torn:
        sharded(model, reshard_after_forward={"kept": False, "fewer": 2}.get(how))
    optimizer = genesis.optim.AdamW(model.parameters(), lr=3e-3)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        if how == "read early":
            loss.item()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    if how == "compiled":
        step = genesis.compile(step)
    losses, plans = [], []
    for i in range(steps):
        x, y = batch(i, 16)
        mine = slice(rank * 16 // size, (rank + 1) * 16 // size)
        with engine.observe(plans.append):
            loss = step(x[mine], y[mine]).clone()
        if torn:
            dist.all_reduce(loss, dist.ReduceOp.AVG)
        losses.append(loss.item())
        if i == 2:
            plans.clear()
    return losses, len(plans)


@pytest.mark.parametrize("how, steps", [("plain", 50), ("compiled", 12), ("read early", 8), ("kept", 8),
                                        ("checkpointed", 8)])
def test_losses_are_those_of_one_process_on_the_same_batches(two: Ranks, how: str, steps: int) -> None:
    (first, plans), (second, _) = two(train, how, steps)
    assert first == second
    assert plans == 0
    alone, _ = train(0, 1, how, steps)
    assert first == pytest.approx(alone, rel=REASSOCIATED)
    assert first[-1] < first[0]
