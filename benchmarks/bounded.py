"""Endless loops: what is pending stays bounded, and cost grows with the length of a program.

    python benchmarks/bounded.py [--out] [--match WORDS] [--small]

Each loop runs in a process of its own, for torch and for Genesis, over n and over 2 n rounds. Printed are seconds
(process CPU time), the peak of resident memory above that before the loop, how many plans Genesis made, and the bars:
at most 5 × torch + 1 s, time(2 n) at most 2.3 × time(n), memory at most torch's + 64 MB, at most 3 plans.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import record

Loop = Callable[[Any, int], float]
"""(torch or genesis, rounds) → a number that both must agree on."""

LOOPS: Final[dict[str, tuple[int, Loop]]] = {}
"""Name → rounds, and the loop."""

ABOVE_TORCH_S: Final = 1.0
TIMES_TORCH: Final = 5.0
TIMES_TWICE: Final = 2.3
ABOVE_TORCH_MB: Final = 64
MOST_PLANS: Final = 3


def loop(rounds: int) -> Callable[[Loop], Loop]:
    """Put the function into the table of loops."""
    def put(function: Loop) -> Loop:
        LOOPS[function.__name__] = rounds, function
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


@loop(800)
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


@loop(8000)
def readers_of_one_weight(lib: Any, n: int) -> float:
    """Values of one weight, all alive, summed at the end."""
    w = lib.ones(4)
    values = [w * i for i in range(n)]
    return float(sum(v.sum() for v in values)) / n


@loop(8000)
def readers_of_one_leaf(lib: Any, n: int) -> float:
    """The same, of a weight with gradients, and a backward."""
    w = lib.ones(4, requires_grad=True)
    total = lib.zeros(())
    for i in range(n):
        total = total + (w * (i % 5)).sum()
    total.backward()
    return float(w.grad.sum())


@loop(2000)
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


@loop(20_000)
def long_chain_with_gradients(lib: Any, n: int) -> float:
    """The same, with a backward."""
    w = lib.ones(4, requires_grad=True)
    x = w
    for _ in range(n):
        x = x * 1.0
    x.sum().backward()
    return float(w.grad.sum())


@loop(2000)
def recurrent(lib: Any, n: int) -> float:
    """A recurrence unrolled by hand, with a backward at the end."""
    w = lib.full((8, 8), 0.1, requires_grad=True)
    x, h = lib.ones(4, 8), lib.zeros(4, 8)
    for _ in range(n):
        h = lib.tanh(x + h @ w)
    h.sum().backward()
    return float(w.grad.sum())


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


@loop(4000)
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


@loop(400)
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


@loop(4000)
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


@loop(2000)
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


@loop(80)
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


@loop(6000)
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


@loop(1000)
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


@loop(2000)
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


def _resident() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


class _Peak(threading.Thread):
    """The most resident memory, in MB, looked at every 5 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.found, self.ends = _resident(), False

    def run(self) -> None:
        while not self.ends:
            self.found = max(self.found, _resident())
            time.sleep(0.005)


def run_one(name: str, library: str, rounds: int) -> dict[str, Any]:
    """Run a loop here, and tell what it took. The process is to end right after."""
    function = LOOPS[name][1]
    plans: list[Any] = []
    if library == "genesis":
        import genesis as lib
        from genesis import engine
        warm = lib.ones(3, requires_grad=True)  # what is imported at the first program is no loop's
        (warm * 2).sum().backward()
        warm.grad.tolist()
        engine.observe(plans.append).__enter__()
    else:
        import torch as lib
        lib.set_num_threads(1)
        warm = lib.ones(3, requires_grad=True)
        (warm * 2).sum().backward()
    before = _resident()
    peak = _Peak()
    peak.start()
    start = time.process_time()
    value = function(lib, rounds)
    seconds = time.process_time() - start
    peak.ends = True
    return {"seconds": seconds, "value": value, "mb": max(peak.found, _resident()) - before, "plans": len(plans)}


def measured(name: str, library: str, rounds: int, limit_s: float) -> dict[str, Any]:
    """What `run_one` tells in a process of its own, and how long the process took to end after the loop."""
    words = [sys.executable, __file__, "--one", name, library, str(rounds)]
    start = time.perf_counter()
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit_s,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
    except subprocess.TimeoutExpired:
        return {"seconds": limit_s, "value": None, "mb": float("nan"), "plans": -1, "wall": limit_s, "error": "time"}
    wall = time.perf_counter() - start
    if done.returncode:
        return {"seconds": wall, "value": None, "mb": float("nan"), "plans": -1, "wall": wall,
                "error": done.stderr.strip().splitlines()[-1:]}
    return {**json.loads(done.stdout.splitlines()[-1]), "wall": wall}


def row(name: str, scale: float, limit_s: float) -> dict[str, Any]:
    """A loop's figures, and which bars it misses."""
    n = max(1, int(LOOPS[name][0] * scale))
    theirs = measured(name, "torch", n, limit_s)
    ours, twice = measured(name, "genesis", n, limit_s), measured(name, "genesis", 2 * n, limit_s)
    missed = []
    if "error" in ours or "error" in twice:
        missed.append(str(ours.get("error", twice.get("error"))))
    elif abs(ours["value"] - theirs["value"]) > 1e-3 * max(1.0, abs(theirs["value"])):
        missed.append(f"{ours['value']} is not {theirs['value']}")
    ratio = twice["seconds"] / ours["seconds"]
    if ours["seconds"] > TIMES_TORCH * theirs["seconds"] + ABOVE_TORCH_S:
        missed.append("time")
    if ratio > TIMES_TWICE:
        missed.append("ratio")
    if not ours["mb"] <= theirs["mb"] + ABOVE_TORCH_MB:
        missed.append("memory")
    if ours["plans"] > MOST_PLANS:
        missed.append("plans")
    return {"rounds": n, "torch_s": round(theirs["seconds"], 3), "genesis_s": round(ours["seconds"], 3),
            "twice_s": round(twice["seconds"], 3), "ratio": round(ratio, 2), "torch_mb": round(theirs["mb"]),
            "genesis_mb": round(ours["mb"]) if ours["mb"] == ours["mb"] else None, "plans": ours["plans"],
            "plans_twice": twice["plans"], "process_s": round(twice["wall"], 1), "missed": missed}


def main() -> None:
    """Measure every loop, print a table, and with --out write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    record.add_out(parser)
    parser.add_argument("--match", default="", help="only loops with one of these words in their names, by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="times the rounds (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a process (default: %(default)s)")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, library, rounds = options.one
        print(json.dumps(run_one(name, library, int(rounds))), flush=True)
        return
    words = options.match.split(",")
    print(f"{'loop':30} {'rounds':>7} {'torch':>8} {'genesis':>8} {'2 n':>8} {'ratio':>5} {'MB':>6} {'torch':>6} "
          f"{'plans':>7}")
    found = {}
    for name in LOOPS:
        if any(word in name for word in words):
            it = found[name] = row(name, options.scale, options.limit)
            print(f"{name:30} {it['rounds']:7} {it['torch_s']:8.3f} {it['genesis_s']:8.3f} {it['twice_s']:8.3f} "
                  f"{it['ratio']:5.2f} {it['genesis_mb'] or -1:6} {it['torch_mb']:6} "
                  f"{it['plans']:3},{it['plans_twice']:3}  {' '.join(it['missed'])}", flush=True)
    if options.out:
        record.write(options.out, "bounded", loops=found)


if __name__ == "__main__":
    main()
