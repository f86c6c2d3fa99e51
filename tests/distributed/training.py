"""Training as tests of several ranks do it: of each step's batch a rank takes its rows, one process alone all of them.

So what several ranks learn is what one process learns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import genesis
from genesis import distributed as dist
from genesis import engine
from tests.distributed.ranks import device_type

ROWS = 16
"""Samples of a step, of all ranks together."""

REASSOCIATED = 2e-5
"""Relative difference of two losses after up to 50 steps whose gradients are sums of the same float32 numbers in
another order: each step's gradient differs by a few units of 2^-24, and a step is a contraction here. 6e-8 · 50 steps ·
about 6 reductions of up to 64 numbers."""


def batch(step: int, rows: int = ROWS) -> tuple[Any, Any]:
    """A step's samples: six numbers, and three that can be learnt from them."""
    generator = genesis.Generator().manual_seed(100 + step)
    x = genesis.randn(rows, 6, generator=generator, device="cpu").to(device_type())
    return x, genesis.stack([x[:, 0] + x[:, 1], x[:, 2] * x[:, 3], x[:, 4].abs()], 1)


def rank_batch(step: int, rank: int, size: int) -> tuple[Any, Any]:
    """A rank's rows of a step's samples."""
    x, y = batch(step)
    mine = slice(rank * ROWS // size, (rank + 1) * ROWS // size)
    return x[mine], y[mine]


def one_step(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    """A plain step; the loss of these samples."""
    optimizer.zero_grad()
    loss = ((model(x) - y) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss.detach()


def over_all(loss: Any, size: int) -> float:
    """The mean of all ranks' losses, each over as many samples."""
    if size > 1:
        dist.all_reduce(loss, dist.ReduceOp.AVG)
    return loss.item()


def losses_and_plans(step: Callable[[Any, Any], Any], rank: int, size: int, steps: int, known: int,
                     ) -> tuple[list[float], int]:
    """The losses of steps, and how many plans were made after the first `known`."""
    losses, plans = [], []
    for i in range(steps):
        with engine.observe(plans.append):
            loss = step(*rank_batch(i, rank, size)).clone()
        losses.append(over_all(loss, size))
        if i == known - 1:
            plans.clear()
    return losses, len(plans)
