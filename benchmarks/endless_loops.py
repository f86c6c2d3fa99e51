"""The loops that `bounded.py` measures: programs that a user of torch would write, and that read little or nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final


@dataclass(frozen=True)
class Loop:
    """A program that turns many times.

    Attributes:
        rounds: how often, where it is measured.
        function: (torch or genesis, rounds) → a number that both must agree on.
        loops: how many loops it has, one after the other or one in the other; a backward through turns is one, and so
            is what is computed for a value that is read on the way.
        bodies: distinct turns that are pieces by themselves, since they come in no order or at places that no two
            longer pieces share.
        odd: turns of another kind that come now and then.
    """

    rounds: int
    function: Callable[[Any, int], float]
    loops: int = 1
    bodies: int = 0
    odd: int = 0

    @property
    def plans(self) -> int:
        """How many plans it may take, however often it turns. Of a loop three: up to its first cut, a piece, the rest.
        A piece with an odd turn in it is another program, twice: then these turns are followed. Each body is one, and
        so is the turn in which the last long piece ended."""
        return 3 * self.loops + 2 * self.odd + (self.bodies + 1 if self.bodies else 0)


LOOPS: Final[dict[str, Loop]] = {}


def loop(rounds: int, loops: int = 1, bodies: int = 0,
         odd: int = 0) -> Callable[[Callable[[Any, int], float]], Callable[[Any, int], float]]:
    """Put the function into the table of loops."""
    def put(function: Callable[[Any, int], float]) -> Callable[[Any, int], float]:
        LOOPS[function.__name__] = Loop(rounds, function, loops, bodies, odd)
        return function
    return put


def _model(lib: Any) -> Any:
    nn = lib.nn
    return nn.Sequential(nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10))


@loop(800)
def evaluation(lib: Any, n: int) -> float:
    """Batches of 1 MB go through a model; a count of right answers stays pending."""
    import numpy as np
    model = _model(lib)
    right, seen = lib.zeros((), dtype=lib.int64), 0
    with lib.no_grad():
        for i in range(n):
            x = lib.from_numpy(np.full((1024, 256), 0.001 * (i % 7), np.float32)).clone()
            right = right + (model(x).argmax(1) < 10).sum()
            seen += len(x)
    return int(right) / seen


@loop(800)
def evaluation_from_numpy(lib: Any, n: int) -> float:
    """The same, of batches that come from numpy, with in-place counting."""
    import numpy as np
    lib.manual_seed(0)
    model = _model(lib)
    total = lib.zeros(())
    with lib.no_grad():
        for i in range(n):
            x, y = lib.tensor(np.full((1024, 256), 0.001 * (i % 7), np.float32)), lib.tensor(np.arange(1024) % 10)
            total += lib.nn.functional.cross_entropy(model(x) * 0, y) / math.log(10)
    return float(total) / n


@loop(800, loops=2)
def evaluation_with_gradients(lib: Any, n: int) -> float:
    """Who forgets no_grad: the losses go to a list, detached."""
    import numpy as np
    lib.manual_seed(0)
    model = _model(lib)
    losses = []
    for i in range(n):
        x = lib.tensor(np.full((1024, 256), 0.001 * (i % 7), np.float32))
        losses.append((model(x) * 0 + 1).mean().detach())
    return float(sum(losses))


@loop(8000)
def running_total(lib: Any, n: int) -> float:
    """total += (w * i).sum().detach()"""
    w = lib.ones(16, requires_grad=True)
    total = lib.zeros(())
    for i in range(n):
        total += (w * (i % 3)).sum().detach()
    return float(total)


@loop(8000)
def moving_average(lib: Any, n: int) -> float:
    """An exponential moving average of one value."""
    x, average = lib.ones(16), lib.zeros(16)
    for _ in range(n):
        average = 0.99 * average + 0.01 * x
    return float(average.sum())


@loop(8000)
def moving_average_in_place(lib: Any, n: int) -> float:
    """The same, in place."""
    x, average = lib.ones(16), lib.zeros(16)
    for _ in range(n):
        average.mul_(0.99).add_(x, alpha=0.01)
    return float(average.sum())


@loop(8000)
def moving_averages_of_parameters(lib: Any, n: int) -> float:
    """An average model, in place, and no step."""
    parameters = [lib.ones(8) for _ in range(4)]
    averages = [lib.zeros(8) for _ in range(4)]
    for _ in range(n // 4):
        for average, p in zip(averages, parameters, strict=True):
            average.lerp_(p, 0.01)
    return float(sum(a.sum() for a in averages))


@loop(4000)
def chain_of_views(lib: Any, n: int) -> float:
    """x = x.view(2, 1).t().t().reshape(2)"""
    x = lib.ones(2)
    for _ in range(n):
        x = x.view(2, 1).t().t().reshape(2)
    return float(x.sum())


@loop(3000)
def shrinking_view_written(lib: Any, n: int) -> float:
    """x = x[1:]; x[0] = 1"""
    base = x = lib.zeros(n + 2)
    for _ in range(n):
        x = x[1:]
        x[0] = 1
    return float(base.sum())


@loop(3000)
def rows_written(lib: Any, n: int) -> float:
    """out[i] = f(row), one after the other."""
    out, row = lib.zeros(n, 4), lib.ones(4)
    for i in range(n):
        out[i] = row * i
    return float(out.sum() / n)


@loop(4000)
def views_of_views_written(lib: Any, n: int) -> float:
    """Views of transposed views, written to through what they show."""
    x = lib.zeros(4, 4)
    for _ in range(n):
        x = x.t()
        x[0].add_(1)
    return float(x.sum())


@loop(8000, loops=2)
def readers_of_one_weight(lib: Any, n: int) -> float:
    """Values of one weight, all alive, summed at the end."""
    w = lib.ones(4)
    values = [w * i for i in range(n)]
    return float(sum(v.sum() for v in values)) / n


@loop(8000, loops=2)
def readers_of_one_leaf(lib: Any, n: int) -> float:
    """The same, of a weight with gradients, and a backward."""
    w = lib.ones(4, requires_grad=True)
    total = lib.zeros(())
    for i in range(n):
        total = total + (w * (i % 5)).sum()
    total.backward()
    return float(w.grad.sum())


@loop(2000, loops=3)
def losses_summed(lib: Any, n: int) -> float:
    """A list of losses, summed at the end, and one backward."""
    w = lib.ones(16, requires_grad=True)
    x = lib.ones(16)
    losses = [((w * x - i % 3) ** 2).mean() for i in range(n)]
    sum(losses).backward()
    return float(w.grad.sum())


@loop(100_000)
def long_chain(lib: Any, n: int) -> float:
    """One op after the other."""
    x = lib.ones(4)
    for _ in range(n):
        x = x + 1.0
    return float(x.sum())


@loop(100_000)
def long_chain_dropped(lib: Any, n: int) -> float:
    """The same, and nobody reads it."""
    x = lib.ones(4)
    for _ in range(n):
        x = x * 1.0
    return 0.0


@loop(20_000, loops=2)
def long_chain_with_gradients(lib: Any, n: int) -> float:
    """The same, with a backward."""
    w = lib.ones(4, requires_grad=True)
    x = w
    for _ in range(n):
        x = x * 1.0
    x.sum().backward()
    return float(w.grad.sum())


@loop(2000, loops=2)
def recurrent(lib: Any, n: int) -> float:
    """A recurrence unrolled by hand, with a backward at the end."""
    w = lib.full((8, 8), 0.1, requires_grad=True)
    x, h = lib.ones(4, 8), lib.zeros(4, 8)
    for _ in range(n):
        h = lib.tanh(x + h @ w)
    h.sum().backward()
    return float(w.grad.sum())


@loop(800, loops=3)
def written_and_read(lib: Any, n: int) -> float:
    """A recurrence that writes what it forecasts to its data, and reads a number of it, at each turn."""
    w, data, h = lib.full((9, 8), 0.1, requires_grad=True), lib.ones(n + 1, 8), lib.zeros(8, 8)
    found, seen = [], 0.0
    for t in range(n):
        h = lib.tanh(lib.cat([data[t][:, None], h], 1) @ w)
        found.append(h.mean(1))
        data[t + 1] = found[-1].detach()
        seen += data[t].sum().item()
    lib.stack(found).sum().backward()
    return (seen + float(w.grad.sum())) / n


@loop(8000)
def running_maximum(lib: Any, n: int) -> float:
    """best = maximum(best, value), with Python numbers mixed in."""
    x, best = lib.ones(8), lib.zeros(8)
    for i in range(n):
        best = lib.maximum(best, x * (i % 13) + 0.5)
    return float(best.sum())


@loop(1600)
def concatenated(lib: Any, n: int) -> float:
    """out = cat([out, row])"""
    row = lib.ones(1, 4)
    out = lib.zeros(1, 4)
    for _ in range(n):
        out = lib.cat([out, row])
    return float(out.sum())


@loop(4000, loops=4)
def many_parameters(lib: Any, n: int) -> float:
    """Thousands of small parameters, each with a gradient and a step."""
    parameters = [lib.ones(2, requires_grad=True) for _ in range(n)]
    step = lib.optim.SGD(parameters, lr=0.1)
    for _ in range(2):
        step.zero_grad()
        sum((p * p).sum() for p in parameters).backward()
        step.step()
    return float(sum(p.detach().sum() for p in parameters)) / n


@loop(8000)
def leaves_from_numpy(lib: Any, n: int) -> float:
    """Thousands of small tensors of host data, stacked."""
    import numpy as np
    rows = [lib.tensor(np.full(4, i % 5, np.float32)) for i in range(n)]
    return float(lib.stack(rows).sum())


@loop(400, loops=2)
def accumulated(lib: Any, n: int) -> float:
    """Gradients of many batches before one step."""
    import numpy as np
    lib.manual_seed(0)
    model = _model(lib)
    step = lib.optim.SGD(model.parameters(), lr=0.1)
    for i in range(n):
        x = lib.tensor(np.full((1024, 256), 0.001 * (i % 7), np.float32))
        model(x).square().mean().backward()
    step.step()
    return n


@loop(2000)
def stateful_module(lib: Any, n: int) -> float:
    """BatchNorm in training mode, evaluated only for its running statistics."""
    norm = lib.nn.BatchNorm1d(8)
    x = lib.ones(16, 8)
    with lib.no_grad():
        for _ in range(n):
            norm(x)
    return float(norm.running_mean.sum())


@loop(4000, loops=2)
def detached_losses_read(lib: Any, n: int) -> float:
    """Each loss is read for the log, and kept detached."""
    w, losses = lib.ones(16, requires_grad=True), []
    for i in range(n):
        loss = (w * (i % 3)).sum()
        loss.item()
        losses.append(loss.detach())
    return float(sum(losses)) / n


@loop(2000)
def descent_by_hand(lib: Any, n: int) -> float:
    """Gradient descent without an optimizer: each step makes a new leaf."""
    w, x = lib.ones(8, requires_grad=True), lib.full((8,), 0.5)
    for _ in range(n):
        (gradient,) = lib.autograd.grad(((w * x - 1) ** 2).sum(), w)
        w = (w - 0.01 * gradient).detach().requires_grad_()
    return float(w.sum())


@loop(2000, loops=2)
def descent_in_place(lib: Any, n: int) -> float:
    """The same in place, under no_grad, and nothing read."""
    w, x = lib.ones(8, requires_grad=True), lib.full((8,), 0.5)
    for _ in range(n):
        ((w * x - 1) ** 2).sum().backward()
        with lib.no_grad():
            w -= 0.01 * w.grad
        w.grad = None
    return float(w.detach().sum())


@loop(4000)
def shrinking_view(lib: Any, n: int) -> float:
    """x = x[1:]"""
    x = lib.arange(n + 2, dtype=lib.float32)
    for _ in range(n):
        x = x[1:]
    return float(x.sum()) / n


@loop(2000)
def shrinking_value(lib: Any, n: int) -> float:
    """x = x[1:] + 1: another size each turn."""
    x = lib.zeros(n + 2)
    for _ in range(n):
        x = x[1:] + 1
    return float(x.sum()) / n


@loop(4000)
def growing_list(lib: Any, n: int) -> float:
    """Results kept in a list, stacked at the end."""
    x, found = lib.full((4, 4), 0.1), []
    with lib.no_grad():
        h = lib.ones(4)
        for _ in range(n):
            h = lib.tanh(x @ h) + 1
            found.append(h.mean())
    return float(lib.stack(found).sum()) / n


@loop(4000)
def ring_buffer(lib: Any, n: int) -> float:
    """buffer[i % 8] = f(buffer)"""
    buffer = lib.zeros(8, 4)
    for i in range(n):
        buffer[i % 8] = buffer.mean(0) + 1
    return float(buffer.sum()) / n


@loop(4000)
def window(lib: Any, n: int) -> float:
    """The last eight values in a deque."""
    from collections import deque
    last, x = deque([lib.zeros(4)] * 8, maxlen=8), lib.full((4,), 0.1)
    for _ in range(n):
        last.append(lib.tanh(sum(last) * 0.2 + x))
    return float(sum(v.sum() for v in last))


@loop(2000)
def concatenated_window(lib: Any, n: int) -> float:
    """window = cat([window[1:], value])"""
    window = lib.zeros(8, 4)
    for _ in range(n):
        window = lib.cat([window[1:], window.mean(0, keepdim=True) * 0.5 + 1])
    return float(window.sum())


@loop(8000)
def running_mean(lib: Any, n: int) -> float:
    """mean += (x - mean) / (i + 1)"""
    x, mean = lib.full((16,), 3.0), lib.zeros(16)
    for i in range(n):
        mean += (x * (i % 5) - mean) / (i + 1)
    return float(mean.sum())


@loop(400)
def averages_of_many_tensors(lib: Any, n: int) -> float:
    """An average model of fifty tensors."""
    parameters, averages = [lib.ones(8) for _ in range(50)], [lib.zeros(8) for _ in range(50)]
    for _ in range(n):
        for average, p in zip(averages, parameters, strict=True):
            average.mul_(0.99).add_(p, alpha=0.01)
    return float(sum(a.sum() for a in averages))


@loop(2000)
def until_small(lib: Any, n: int) -> float:
    """while x > eps, with the value read each turn."""
    x = lib.full((4,), 2.0)
    turns = 0
    while x.sum().item() > 1e-9 and turns < n:
        x = x * 0.999
        turns += 1
    return float(x.sum())


@loop(8000)
def read_now_and_then(lib: Any, n: int) -> float:
    """A value read every hundredth turn."""
    x, seen = lib.full((4,), 2.0), 0.0
    for i in range(n):
        x = lib.sin(x) + 1
        if i % 100 == 0:
            seen += x.sum().item()
    return seen / n


@loop(80, loops=2)
def nested_loops(lib: Any, n: int) -> float:
    """Ten layers, ten samples, in each of n turns."""
    weights = [lib.full((4,), 0.9) for _ in range(10)]
    total = lib.zeros(4)
    for _ in range(n):
        for k in range(10):
            h = lib.full((4,), float(k))
            for w in weights:
                h = lib.relu(h * w + 0.1)
            total = total * 0.9 + h
    return float(total.sum())


@loop(6000)
def alternating_bodies(lib: Any, n: int) -> float:
    """Two bodies in turn."""
    x = lib.ones(8)
    for i in range(n):
        if i % 2:
            x = lib.tanh(x * 2)
        else:
            x = lib.exp(-x) + x.mean()
    return float(x.sum())


@loop(6000, bodies=2)
def chosen_bodies(lib: Any, n: int) -> float:
    """One of two bodies by a random number of Python's."""
    import random
    chosen, x = random.Random(0), lib.ones(8)
    for _ in range(n):
        x = lib.tanh(x * 2) if chosen.random() < 0.5 else lib.exp(-x) + 1
    return float(x.sum())


@loop(6000)
def generated(lib: Any, n: int) -> float:
    """A generator makes values, the loop takes them."""
    def values() -> Any:
        h = lib.ones(8)
        for _ in range(n):
            h = lib.cos(h)
            yield h
    total = lib.zeros(8)
    for value in values():
        total = total * 0.5 + value
    return float(total.sum())


@loop(1000, loops=2)
def two_models_in_turn(lib: Any, n: int) -> float:
    """Two optimizers in turn, as of a GAN, and nothing read."""
    a, b = lib.ones(8, requires_grad=True), lib.full((8,), 0.5, requires_grad=True)
    steps = lib.optim.SGD([a], lr=0.01), lib.optim.SGD([b], lr=0.01)
    for i in range(n):
        steps[i % 2].zero_grad()
        ((a * b - 1) ** 2).sum().backward()
        steps[i % 2].step()
    return float((a * b).detach().sum())


@loop(4000)
def filled_table(lib: Any, n: int) -> float:
    """table[i] = table[i - 1] * 0.5 + table[i - 2]: dynamic programming."""
    table = lib.ones(n + 2)
    for i in range(2, n + 2):
        table[i] = table[i - 1] * 0.5 + table[i - 2] * 0.4
    return float(table.sum())


@loop(4000)
def rows_read(lib: Any, n: int) -> float:
    """total += data[i]"""
    data, total = lib.ones(n, 4), lib.zeros(4)
    for i in range(n):
        total = total * 0.5 + data[i]
    return float(total.sum())


@loop(200)
def batches_sliced(lib: Any, n: int) -> float:
    """One epoch over slices of a data set in memory, losses in a list."""
    lib.manual_seed(0)
    data, model = lib.ones(n * 32, 256), _model(lib)
    losses = []
    with lib.no_grad():
        for i in range(n):
            losses.append((model(data[i * 32:(i + 1) * 32]) * 0 + 1).mean())
    return float(sum(losses)) / n


@loop(2000, loops=2)
def policy_gradient(lib: Any, n: int) -> float:
    """Log-probabilities kept over an episode, and a backward at its end."""
    w = lib.full((4, 2), 0.1, requires_grad=True)
    x, kept = lib.ones(4), []
    for i in range(n):
        kept.append(lib.log_softmax(x @ w, 0)[i % 2] * (i % 7))
    lib.stack(kept).sum().backward()
    return float(w.grad.abs().sum()) / n


@loop(4000)
def random_walk(lib: Any, n: int) -> float:
    """x = x + noise"""
    lib.manual_seed(0)
    x = lib.zeros(64)
    for _ in range(n):
        x = x + lib.randn(64) * 0
    return float(x.sum())


@loop(4000, loops=2)
def losses_of_their_own(lib: Any, n: int) -> float:
    """A loss for each of thousands of parameters, each with a backward of its own."""
    parameters = [lib.ones(2, requires_grad=True) for _ in range(n)]
    for p in parameters:
        (p * p).sum().backward()
    return float(sum(p.grad.sum() for p in parameters)) / n


@loop(4000, loops=5)
def stepped_by_hand(lib: Any, n: int) -> float:
    """Thousands of parameters, each stepped by a line of a Python loop."""
    parameters = [lib.ones(2, requires_grad=True) for _ in range(n)]
    sum((p * p).sum() for p in parameters).backward()
    with lib.no_grad():
        for p in parameters:
            p -= 0.1 * p.grad
    return float(sum(p.detach().sum() for p in parameters)) / n
