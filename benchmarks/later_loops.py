"""Further loops, of patterns that the others have not: what is written where, what waits, and what is read when."""

from __future__ import annotations

from typing import Any

from endless_loops import loop


@loop(2000)
def ring_of_transitions(lib: Any, n: int) -> float:
    """A replay buffer: four tensors are written at one place of a ring, and nothing is read."""
    size = 64
    seen, done = lib.zeros(size, 4), lib.zeros(size, dtype=lib.bool)
    acted, reward = lib.zeros(size, dtype=lib.int64), lib.zeros(size)
    x = lib.linspace(0, 1, 4)
    for i in range(n):
        at = i % size
        x = x * 0.9 + 0.1 * (i % 5)
        seen[at] = x
        acted[at] = i % 3
        reward[at] = x.sum() * 0.5
        done[at] = i % 50 == 49
    return float(reward.sum() + seen.sum() + acted.sum() + done.sum()) / size


@loop(1500, loops=2)
def cache_written_and_token_read(lib: Any, n: int) -> float:
    """A cache of keys of a fixed size, written at the token's place; the token is read at each turn."""
    lib.manual_seed(0)
    length, total = 48, 0
    keys, values = lib.zeros(length, 8), lib.zeros(length, 8)
    w, table = lib.linspace(-1, 1, 64).reshape(8, 8), lib.linspace(-1, 1, 80).reshape(10, 8)
    places, token = lib.arange(length), 1
    for i in range(n):
        at = i % length
        x = table[token]
        keys[at], values[at] = x @ w, x * 0.5
        scores = (keys @ x).masked_fill(places > at, float("-inf"))
        h = scores.softmax(0) @ values + x
        token = int((table @ h).argmax())
        total += token
    return total / n


@loop(3000)
def counted_tokens(lib: Any, n: int) -> float:
    """Counts of tokens by `index_add_` and `scatter_add_`, a penalty from them, nothing read."""
    counts, total = lib.zeros(50), lib.zeros(())
    tokens = lib.arange(6)
    ones = lib.ones(6)
    for i in range(n):
        at = (tokens * (i % 7 + 1)) % 50
        counts.index_add_(0, at, ones)
        counts.scatter_add_(0, at, ones * 0.5)
        total = total * 0.9 + (counts[at] > 3).float().mean()
    return float(counts.sum() + total) / n


@loop(2000)
def put_at_places(lib: Any, n: int) -> float:
    """index_put_ with and without accumulation, into a grid."""
    grid, rows = lib.zeros(16, 16), lib.arange(8)
    for i in range(n):
        columns = (rows * 3 + i) % 16
        grid.index_put_((rows, columns), lib.ones(8) * (i % 4), accumulate=True)
        grid[rows, (columns + 1) % 16] = 0.5
        grid *= 0.99
    return float(grid.sum())


@loop(3000, loops=2)
def metrics_read_each_tenth(lib: Any, n: int) -> float:
    """Running sums of three metrics, read and set to zero each ten turns."""
    x, found = lib.linspace(0, 1, 32), 0.0
    loss, right, seen = lib.zeros(()), lib.zeros((), dtype=lib.int64), 0
    for i in range(n):
        y = (x * (i % 4)).sin()
        loss += y.square().mean()
        right += (y > 0.5).sum()
        seen += 32
        if i % 10 == 9:
            found += loss.item() / 10 + right.item() / seen
            loss.zero_()
            right.zero_()
            seen = 0
    return found / n


@loop(3000)
def bias_corrected_average(lib: Any, n: int) -> float:
    """Adam's moments by hand, in place, with the correction of the turn."""
    w, m, v = lib.linspace(-1, 1, 16), lib.zeros(16), lib.zeros(16)
    for i in range(1, n + 1):
        g = w * 0.5 + 0.1
        m.mul_(0.9).add_(g, alpha=0.1)
        v.mul_(0.99).addcmul_(g, g, value=0.01)
        w -= 0.01 * (m / (1 - 0.9 ** i)) / ((v / (1 - 0.99 ** i)).sqrt() + 1e-8)
    return float(w.sum())


@loop(3000)
def welford(lib: Any, n: int) -> float:
    """Mean and variance of a stream, by Welford, with a counter that is a tensor."""
    count, mean, m2 = lib.zeros(()), lib.zeros(8), lib.zeros(8)
    x = lib.linspace(0, 1, 8)
    for i in range(n):
        y = (x + 0.01 * (i % 11)).cos()
        count += 1
        delta = y - mean
        mean += delta / count
        m2 += delta * (y - mean)
    return float((m2 / count).sum() + mean.sum())


@loop(1000, loops=4)
def losses_kept_and_one_read(lib: Any, n: int) -> float:
    """A list of losses with their graphs; a value that has nothing to do with them is read at each turn, and a backward
    follows at the end."""
    w, x, losses, seen = lib.full((4,), 0.3, requires_grad=True), lib.linspace(0, 1, 4), [], 0.0
    counter = lib.zeros(())
    for i in range(n):
        losses.append((w * x * (i % 3)).tanh().sum())
        counter += 1
        seen += counter.item()
    lib.stack(losses).mean().backward()
    return seen / n + float(w.grad.sum())


@loop(2000)
def views_of_views_of_rows(lib: Any, n: int) -> float:
    """Nested views: rows of a turned grid, of which parts are written and read on."""
    grid = lib.linspace(0, 1, 64).reshape(8, 8)
    for i in range(n):
        row = grid.t()[i % 8]
        part = row[2:6].view(2, 2).t()
        part.mul_(0.5).add_(0.1)
        row[0] = part[0, 1]
        grid[1:3].view(-1)[3:7] += row[4:].flip(0)
    return float(grid.sum())


@loop(1000, loops=3)
def actor_and_critic(lib: Any, n: int) -> float:
    """Steps of an actor whose advantages are normalized by running statistics; the mean return waits."""
    lib.manual_seed(0)
    model = lib.nn.Linear(4, 3)
    with lib.no_grad():
        model.weight.fill_(0.1)
        model.bias.zero_()
    step = lib.optim.Adam(model.parameters(), lr=1e-3)
    x, mean, var, returns = lib.linspace(-1, 1, 32).reshape(8, 4), lib.zeros(()), lib.ones(()), lib.zeros(())
    for i in range(n):
        out = model(x)
        advantage = (out[:, 2].detach() + 0.1 * (i % 4) - mean) / (var + 1e-5).sqrt()
        mean = mean * 0.99 + 0.01 * advantage.mean()
        var = var * 0.99 + 0.01 * advantage.var()
        loss = -(out[:, :2].log_softmax(1)[:, i % 2] * advantage).mean() + (out[:, 2] - 0.5).square().mean()
        step.zero_grad()
        loss.backward()
        lib.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        step.step()
        returns += loss.detach()
    return float(returns / n + var + mean)


@loop(1500, loops=3)
def averaged_weights(lib: Any, n: int) -> float:
    """Polyak averages of a model's weights that are new tensors each turn, and a best loss that is kept."""
    lib.manual_seed(0)
    model = lib.nn.Linear(4, 4)
    with lib.no_grad():
        model.weight.fill_(0.1)
        model.bias.zero_()
    step = lib.optim.SGD(model.parameters(), lr=0.05)
    averages, best = [p.detach().clone() for p in model.parameters()], lib.full((), 1e9)
    x = lib.linspace(-1, 1, 16).reshape(4, 4)
    for i in range(n):
        loss = (model(x) - 0.1 * (i % 5)).square().mean()
        step.zero_grad()
        loss.backward()
        step.step()
        averages = [a * 0.99 + p.detach() * 0.01 for a, p in zip(averages, model.parameters(), strict=True)]
        best = lib.where(loss.detach() < best, loss.detach(), best)
    return float(sum(a.sum() for a in averages) + best)


@loop(2000)
def queue_of_states(lib: Any, n: int) -> float:
    """A deque of the last states, of which a stack's mean goes on; one tensor collects them row by row."""
    from collections import deque
    states, x, log = deque(maxlen=4), lib.linspace(0, 1, 6), lib.zeros(n, 6)
    for i in range(n):
        states.append(x)
        x = lib.stack(list(states)).mean(0) * 0.9 + 0.1 * (i % 3)
        log[i].copy_(x)
    return float(log.sum()) / n
