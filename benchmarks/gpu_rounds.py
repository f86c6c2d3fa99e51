"""A step and how long it takes on a GPU, between two events: what the benchmarks of whole training steps share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def step_of(lib: Any, model: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    """The training step of a language model that returns (logits, loss), in bfloat16 on the GPU."""
    def step(x: Any, y: Any) -> Any:
        with lib.autocast("cuda", dtype=lib.bfloat16):
            _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    return step


def gpu_rounds(cuda: Any, rounds: int, steps: int, step: Callable[[int], object]) -> list[float]:
    """Milliseconds of a step, a mean for each round.

    Args:
        cuda: `genesis.cuda` or `torch.cuda`.
        steps: in a round, which are given their number; nothing waits for the GPU between them.
    """
    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    times = []
    for _ in range(rounds):
        begin.record()
        for i in range(steps):
            step(i)
        end.record()
        cuda.synchronize()
        times.append(begin.elapsed_time(end) / steps)
    return times
