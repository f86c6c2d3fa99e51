"""Loops that nobody asked for by name: what else a program does endlessly without reading, for `bounded.py`."""

from __future__ import annotations

from typing import Any

from endless_loops import loop


@loop(2000)
def rolling_statistics(lib: Any, n: int) -> float:
    """Mean and deviation of the last sixteen samples, smoothed."""
    samples, smooth = lib.zeros(16), lib.zeros(2)
    for i in range(n):
        samples = lib.cat([samples[1:], lib.full((1,), float(i % 7))])
        smooth = smooth * 0.9 + lib.stack([samples.mean(), samples.std()]) * 0.1
    return float(smooth.sum())


@loop(1000)
def beam_search(lib: Any, n: int) -> float:
    """Four beams over a vocabulary of twelve: scores, topk, gathered states."""
    table = lib.sin(lib.arange(12 * 12, dtype=lib.float32)).reshape(12, 12)
    with lib.no_grad():
        tokens, scores = lib.zeros(4, dtype=lib.int64), lib.zeros(4)
        for _ in range(n):
            found = scores[:, None] + lib.log_softmax(table[tokens], 1)
            best, places = found.reshape(-1).topk(4)
            tokens, scores = places % 12, best - best.max()
    return float(scores.sum())


@loop(4000)
def power_iteration(lib: Any, n: int) -> float:
    """v = A v / |A v|"""
    a, v = lib.eye(8) + 0.1, lib.arange(8, dtype=lib.float32)
    for _ in range(n):
        v = a @ v
        v = v / v.norm()
    return float(v.sum())


@loop(800)
def k_means_by_hand(lib: Any, n: int) -> float:
    """Distances to the centers, the nearest, means by one-hot products."""
    points = lib.sin(lib.arange(128, dtype=lib.float32)).reshape(64, 2)
    centers = points[:4]
    for _ in range(n):
        nearest = ((points[:, None] - centers[None]) ** 2).sum(2).argmin(1)
        members = lib.nn.functional.one_hot(nearest, 4).float()
        centers = (members.t() @ points) / members.sum(0).clamp(min=1)[:, None]
    return float(centers.sum())


@loop(6000)
def running_maximum_in_place(lib: Any, n: int) -> float:
    """The largest so far, and where it was: masks and where."""
    x, best, when = lib.linspace(0, 1, 8), lib.zeros(8), lib.zeros(8)
    for i in range(n):
        value = x * (i % 13)
        larger = value > best
        when = lib.where(larger, float(i % 1000), when)
        best = lib.where(larger, value, best)
    return float(best.sum() + when.sum() / 1000)


@loop(4000)
def queue_of_tensors(lib: Any, n: int) -> float:
    """A first-in first-out queue of four tensors: what comes out is mixed with what goes in."""
    from collections import deque
    waiting = deque(lib.full((8,), float(k)) for k in range(4))
    total = lib.zeros(8)
    for i in range(n):
        first = waiting.popleft()
        waiting.append(lib.tanh(first + waiting[0] * 0.5 + i % 3))
        total = total * 0.99 + first
    return float(total.sum())


@loop(2000)
def replay_buffer(lib: Any, n: int) -> float:
    """Transitions written into a ring, a batch drawn by numbers of Python's, a value updated from it."""
    import random
    draw, room = random.Random(0), 64
    states, rewards, value = lib.zeros(room, 4), lib.zeros(room), lib.zeros(4)
    state = lib.ones(4)
    for i in range(n):
        states[i % room] = state
        rewards[i % room] = float(i % 3)
        places = lib.tensor([draw.randrange(room) for _ in range(8)])
        value = value * 0.9 + (states[places] * rewards[places][:, None]).mean(0) * 0.1
        state = lib.tanh(state + value * 0.01)
    return float(value.sum())


@loop(8000)
def cumulative_product(lib: Any, n: int) -> float:
    """weight *= decay; total = total + weight"""
    weight, decay, total = lib.ones(8), lib.full((8,), 0.999), lib.zeros(8)
    for _ in range(n):
        weight = weight * decay
        total = total + weight
    return float(total.sum())


@loop(4000)
def shifted_window(lib: Any, n: int) -> float:
    """x = cat([x[1:], new])"""
    x = lib.zeros(32)
    for i in range(n):
        x = lib.cat([x[1:], lib.full((1,), float(i % 5))])
    return float(x.sum())


@loop(3000)
def slices_written_in_place(lib: Any, n: int) -> float:
    """A wave: inner points of a line are written from slices of the line before."""
    u, v = lib.linspace(0, 1, 32), lib.zeros(32)
    for _ in range(n):
        v[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
        u[1:-1] += v[1:-1]
        u[0] = 0.0
    return float(u.sum())


@loop(2000)
def triangular_solve_by_hand(lib: Any, n: int) -> float:
    """x[i] = (b[i] - a[i, :4] · x[i - 4:i]): a recurrence of slices at moving places."""
    x, a = lib.ones(n + 4), lib.full((4,), 0.2)
    for i in range(4, n + 4):
        x[i] = 1 - (a * x[i - 4:i]).sum()
    return float(x.sum()) / n


@loop(3000)
def histogram_of_batches(lib: Any, n: int) -> float:
    """counts.index_add_ and scatter_add_ of each batch."""
    places, counts, sums = lib.arange(8) * 3 % 5, lib.zeros(5), lib.zeros(5)
    for i in range(n):
        counts.index_add_(0, places, lib.ones(8))
        sums.scatter_add_(0, places, lib.full((8,), float(i % 3)))
    return float(counts.sum() + sums.sum()) / n


@loop(2000)
def dictionary_of_metrics(lib: Any, n: int) -> float:
    """Five metrics in a dictionary, each an average of what was seen."""
    x = lib.linspace(-1, 1, 32)
    metrics = {name: lib.zeros(()) for name in ("mean", "square", "least", "most", "norm")}
    for i in range(n):
        y = x * (1 + i % 4)
        found = {"mean": y.mean(), "square": (y * y).mean(), "least": y.min(), "most": y.max(), "norm": y.norm()}
        for name, value in found.items():
            metrics[name] = metrics[name] + (value - metrics[name]) / (i + 1)
    return float(sum(metrics.values()))


@loop(1500, loops=2)
def truncated_backward(lib: Any, n: int) -> float:
    """A recurrence whose state is detached every tenth turn, with a backward and a step by hand there."""
    w, h = lib.full((8, 8), 0.05, requires_grad=True), lib.ones(4, 8)
    for i in range(n):
        h = lib.tanh(h @ w + 0.1)
        if i % 10 == 9:
            h.sum().backward()
            with lib.no_grad():
                w -= 0.001 * w.grad
            w.grad = None
            h = h.detach()
    return float(h.sum())


@loop(3000)
def masks_filled(lib: Any, n: int) -> float:
    """masked_fill_, clamp_ and roll in each turn."""
    x = lib.linspace(-2, 2, 32)
    for i in range(n):
        x = lib.roll(x, 1) * 1.01
        x.masked_fill_(x > 2, -1.0 + i % 2)
        x.clamp_(-2, 2)
    return float(x.sum())


@loop(2000)
def kalman_filter(lib: Any, n: int) -> float:
    """Predictions and updates of a state of two and its covariance."""
    f, h = lib.tensor([[1.0, 0.1], [0.0, 0.95]]), lib.tensor([[1.0, 0.0]])
    q, x, p = lib.eye(2) * 0.01, lib.zeros(2, 1), lib.eye(2)
    for i in range(n):
        x, p = f @ x, f @ p @ f.t() + q
        gain = p @ h.t() / (h @ p @ h.t() + 0.5)
        x = x + gain * (float(i % 5) - h @ x)
        p = p - gain @ h @ p
    return float(x.sum() + p.sum())
