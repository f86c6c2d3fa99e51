"""Loops that mix what the others have one of: writes and views, lists and stacks, breaks, reads now and then."""

from __future__ import annotations

from typing import Any

from endless_loops import loop


@loop(3000)
def mean_through_views(lib: Any, n: int) -> float:
    """A running mean that is written in place through a row of a transposed table."""
    x, table = lib.linspace(0, 1, 8), lib.zeros(8, 4)
    for i in range(n):
        row = table.t()[i % 4]
        row += (x * (i % 5) - row) / (i // 4 + 1)
        table[0, i % 4] = table.mean()
    return float(table.sum())


@loop(4000)
def states_stacked_now_and_then(lib: Any, n: int) -> float:
    """Hidden states in a list that is stacked and emptied every twenty turns."""
    w, h, kept, total = lib.full((8, 8), 0.1), lib.ones(8), [], lib.zeros(8)
    for i in range(n):
        h = lib.tanh(w @ h + 0.2)
        kept.append(h)
        if i % 20 == 19:
            total = total * 0.9 + lib.stack(kept).mean(0)
            kept.clear()
    return float(total.sum())


@loop(700, loops=2)
def inner_loop_that_breaks(lib: Any, n: int) -> float:
    """Up to eight inner turns, as many as a number of Python's says."""
    x, total = lib.ones(8), lib.zeros(8)
    for i in range(n):
        for k in range(8):
            x = lib.sin(x) + 0.1 * k
            if k == i * 7 % 5 + 2:
                break
        total = total * 0.5 + x
    return float(total.sum())


@loop(4000, bodies=3, odd=1)
def last_tensors_summed(lib: Any, n: int) -> float:
    """A deque of the last six values, of which the first and the last are mixed; cleared now and then, which no op
    tells. Bodies are the usual turn, the one that clears, and the one after it."""
    from collections import deque
    last, x = deque([lib.zeros(8)], maxlen=6), lib.ones(8)
    for i in range(n):
        x = lib.cos(x * 0.5 + last[0])
        last.append(x - last[-1] * 0.25)
        if i % 500 == 499:
            last.clear()
            last.append(x)
    return float(sum(last).sum())


@loop(4000, loops=2)
def metrics_read_now_and_then(lib: Any, n: int) -> float:
    """A dictionary of metrics that is updated each turn, and read every hundred: a program for each of two reads."""
    metrics = {"loss": lib.zeros(()), "seen": lib.zeros(()), "most": lib.zeros(())}
    x, read = lib.linspace(0, 1, 16), 0.0
    for i in range(n):
        loss = (x * (i % 3) - 0.5).square().mean()
        metrics["loss"] += loss
        metrics["seen"] += 1
        metrics["most"] = lib.maximum(metrics["most"], loss)
        if i % 100 == 99:
            read += sum(float(value) for value in metrics.values())
            metrics["loss"].zero_()
    return read / n


@loop(1500, loops=2)
def clipped_descent(lib: Any, n: int) -> float:
    """Descent with a norm that clips by hand, momentum in a list, and the losses kept, detached."""
    parameters = [lib.full((4,), 0.5 + 0.1 * k, requires_grad=True) for k in range(3)]
    moments, losses = [lib.zeros(4) for _ in parameters], []
    for i in range(n):
        loss = sum(((p - i % 3) ** 2).sum() for p in parameters)
        gradients = lib.autograd.grad(loss, parameters)
        with lib.no_grad():
            norm = sum((g * g).sum() for g in gradients).sqrt()
            for p, m, g in zip(parameters, moments, gradients, strict=True):
                m.mul_(0.9).add_(g / lib.clamp(norm, min=1.0))
                p -= 0.01 * m
        losses.append(loss.detach())
    return float(lib.stack(losses).mean())


@loop(3000, loops=2)
def warmed_up(lib: Any, n: int) -> float:
    """The first tenth of the turns does something else."""
    x, scale = lib.ones(8), lib.zeros(8)
    for i in range(n):
        if i < n // 10:
            scale = scale + 1.0 / n
            continue
        x = lib.tanh(x + scale) * 0.9
        x[i % 8] = 0.5
    return float(x.sum() + scale.sum())
