"""Loops of the kinds that once missed a bar, as other programs write them: values that grow and shrink, lists that are
summed, odd turns, reads in an inner loop, exceptions in between."""

from __future__ import annotations

from typing import Any

from endless_loops import loop


@loop(1200)
def grown_and_scaled(lib: Any, n: int) -> float:
    """Rows are appended to a matrix whose other rows shrink in value."""
    x, row = lib.zeros(2, 3), lib.ones(1, 3)
    for _ in range(n):
        x = lib.cat([x * 0.99, row])
    return float(x.sum())


@loop(1500)
def shrunk_at_both_ends(lib: Any, n: int) -> float:
    """x = x[1:-1] * 0.5 + 1, and a sum that follows it."""
    x, total = lib.ones(2 * n + 3), lib.zeros(())
    for _ in range(n):
        x = x[1:-1] * 0.5 + 1
        total = total * 0.9 + x[0]
    return float(x.sum() + total) / n


@loop(4000, loops=2)
def list_summed(lib: Any, n: int) -> float:
    """A list of all values grows, and is summed by Python at the end."""
    x, kept = lib.linspace(0, 1, 8), []
    for i in range(n):
        x = lib.cos(x)
        kept.append(x * (i % 4))
    return float(sum(kept).sum()) / n


@loop(4000, loops=2)
def accuracy_read_every_fifty(lib: Any, n: int) -> float:
    """Right answers and losses are counted, and both are read every fifty batches."""
    x, right, loss, read = lib.linspace(-1, 1, 8), lib.zeros(()), lib.zeros(()), 0.0
    with lib.no_grad():
        for i in range(n):
            scores = x * (i % 7) - 0.5
            right = right + (scores > 0).sum()
            loss = loss + scores.square().mean()
            if i % 50 == 49:
                read += right.item() + loss.item()
    return read / n ** 2


@loop(6000)
def three_bodies_in_turn(lib: Any, n: int) -> float:
    """Three bodies, one after the other."""
    x = lib.linspace(0, 1, 8)
    for i in range(n):
        if i % 3 == 0:
            x = lib.tanh(x) + 0.5
        elif i % 3 == 1:
            x = x * 0.9
        else:
            x = lib.flip(x, (0,)).exp() - 1
            x = x / x.max()
    return float(x.sum())


@loop(100, loops=2)
def inner_loop_read(lib: Any, n: int) -> float:
    """Forty inner turns, then a value is read and decides a number of Python's."""
    x, scale, read = lib.ones(8), 1.0, 0.0
    for _ in range(n):
        for k in range(40):
            x = lib.sin(x) * scale + 0.1 * (k % 3)
        value = float(x.mean())
        scale, read = (0.5 if value > 0.5 else 1.0), read + value
    return read / n


@loop(4000)
def last_twelve(lib: Any, n: int) -> float:
    """A deque of the last twelve values; their mean is mixed in."""
    from collections import deque
    last, x = deque([lib.ones(4)], maxlen=12), lib.ones(4)
    for i in range(n):
        x = lib.tanh(x * 0.5 + lib.stack([last[0], last[-1]]).mean(0) + i % 2)
        last.append(x)
    return float(x.sum())


@loop(2000)
def averages_of_parameters(lib: Any, n: int) -> float:
    """Averages of five parameters that drift."""
    values = [lib.full((k + 1, 3), 1.0 + k) for k in range(5)]
    averages = [lib.zeros(k + 1, 3) for k in range(5)]
    for i in range(n):
        for value, average in zip(values, averages, strict=True):
            value.mul_(0.999).add_(0.001 * (i % 3))
            average.mul_(0.99).add_(value, alpha=0.01)
    return float(sum(average.sum() for average in averages))


@loop(4000)
def errors_in_between(lib: Any, n: int) -> float:
    """Every tenth turn an op is refused, and the program goes on."""
    x, other = lib.linspace(0, 1, 8), lib.ones(3)
    for i in range(n):
        x = lib.cos(x) + 0.1
        try:
            if i % 10 == 9:
                x = x + other
        except RuntimeError:
            x = x * 0.5
    return float(x.sum())


@loop(1500, loops=2)
def loss_read_before_backward(lib: Any, n: int) -> float:
    """Descent by hand; the loss is read first, and its graph is kept until the next."""
    w, x, read = lib.full((8,), 0.5, requires_grad=True), lib.linspace(0, 1, 8), 0.0
    for i in range(n):
        loss = ((w * x - i % 3) ** 2).mean()
        read += loss.item()
        loss.backward()
        with lib.no_grad():
            w -= 0.01 * w.grad
        w.grad = None
    return read / n


@loop(4000, bodies=1, odd=1)
def target_copied_now_and_then(lib: Any, n: int) -> float:
    """A target network follows every two hundredth turn: the loop is cut after it, too."""
    w, target, h = lib.full((4, 4), 0.2), lib.full((4, 4), 0.2), lib.ones(4)
    for i in range(n):
        h = lib.tanh(w @ h + target @ h * 0.5)
        w = w * 0.999 + 0.0001
        if i % 200 == 199:
            target = w * 1.0
    return float(h.sum() + target.sum())
