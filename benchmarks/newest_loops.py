"""Loops of kinds that the others have not: rotations by `cat`, counters that are tensors, states that are matrices,
outputs that are all kept, decisions that are masks."""

from __future__ import annotations

from typing import Any

from endless_loops import loop


@loop(3000)
def rotated_by_cat(lib: Any, n: int) -> float:
    """The first element goes to the end, and all are scaled."""
    x = lib.linspace(0, 1, 16)
    for _ in range(n):
        x = lib.cat([x[1:], x[:1]]) * 0.999 + 0.001
    return float((x * lib.linspace(0, 1, 16)).sum())


@loop(3000)
def turned_and_reshaped(lib: Any, n: int) -> float:
    """Views of views, with an op between them."""
    x = lib.linspace(-1, 1, 24)
    for _ in range(n):
        x = lib.sin(x.view(2, 3, 4).permute(2, 0, 1)).flip(0).reshape(24) + 0.1
    return float((x * lib.linspace(0, 1, 24)).sum())


@loop(2000)
def counters_in_tensors(lib: Any, n: int) -> float:
    """A count, a power of it and a histogram, all tensors that are written in place."""
    step, counts, x = lib.zeros(()), lib.zeros(5), lib.linspace(0, 1, 8)
    at, mean = lib.tensor([0, 2, 2, 4]), lib.zeros(8)
    for i in range(n):
        step += 1
        counts.index_add_(0, at, lib.ones(4) * (i % 3))
        mean.lerp_(x * step.reciprocal(), 0.25)
        mean /= 1 - 0.5 ** step
    return float(counts.sum() + mean.sum())


@loop(2000)
def linear_attention_outputs_kept(lib: Any, n: int) -> float:
    """The state is a matrix; each turn's output is kept in a list, which is stacked behind the loop."""
    state, found = lib.zeros(8, 8), []
    k, v, q = lib.linspace(0, 1, 8), lib.linspace(-1, 1, 8), lib.linspace(1, 0, 8)
    for i in range(n):
        state = state * 0.95 + (k * (i % 7)).unsqueeze(1) * v
        found.append(state.t() @ q)
    return float(lib.stack(found).mean())


@loop(3000)
def masks_decide(lib: Any, n: int) -> float:
    """Which elements go on is a mask that shrinks, and is counted."""
    x, alive, count = lib.linspace(0, 1, 16), lib.ones(16) > 0, lib.zeros(16)
    for _ in range(n):
        x = lib.where(alive, x * 1.001 + 0.001, x)
        alive = alive & (x < 4)
        count += alive
    return float(count.sum() + x.sum())


@loop(1500)
def predictions_kept(lib: Any, n: int) -> float:
    """An evaluation whose predictions, probabilities and batches' losses are all kept."""
    w, found, losses = lib.linspace(-1, 1, 40).view(8, 5), [], []
    x, y = lib.linspace(-1, 1, 32).view(4, 8), lib.tensor([0, 1, 2, 3])
    with lib.no_grad():
        for i in range(n):
            logits = (x + i % 5) @ w
            best, at = logits.softmax(-1).max(-1)
            found.append((best, at))
            losses.append(lib.nn.functional.cross_entropy(logits, y))
    return float(lib.cat([best for best, _ in found]).mean() + lib.stack(losses).mean() + lib.cat(
        [at for _, at in found]).float().mean())


@loop(1200)
def halves_swapped_in_place(lib: Any, n: int) -> float:
    """Halves of a buffer are read, mixed and written to each other's place."""
    x = lib.linspace(0, 1, 16)
    for _ in range(n):
        first, second = x[:8].clone(), x[8:].clone()
        x[:8] = second * 0.5 + 0.25
        x[8:].copy_(first).add_(0.125).clamp_(-1, 1)
    return float((x * lib.linspace(0, 1, 16)).sum())


@loop(800)
def rmsprop_by_hand_in_two_dtypes(lib: Any, n: int) -> float:
    """Weights in float16 beside sums in float32, gradients by autograd, no optimizer."""
    w, mean = lib.linspace(-1, 1, 8).half(), lib.zeros(8)
    x = lib.linspace(0.5, 1, 8)
    for _ in range(n):
        w.requires_grad_()
        loss = (w.float() * x - 1).square().sum()
        loss.backward()
        g = w.grad.float()
        mean = mean * 0.9 + g * g * 0.1
        w = (w.detach().float() - 0.01 * g / (mean.sqrt() + 1)).half()
    return float(w.float().sum())


@loop(1600)
def batch_norm_in_training(lib: Any, n: int) -> float:
    """Running means are kept, and no gradients wanted. What is read behind the loop is one value: a second one that is
    computed for its own read, `running_mean.sum()`, would be a program of its own."""
    norm, total = lib.nn.BatchNorm1d(16), lib.zeros(())
    x, w = lib.linspace(0, 1, 512).view(32, 16), lib.linspace(-1, 1, 256).view(16, 16)
    with lib.no_grad():
        for i in range(n):
            total += norm((x * (1 + i % 4)) @ w).relu().mean()
    return float(total + norm.running_mean.sum() + norm.running_var.sum() + norm.num_batches_tracked)
