"""Loops as a stranger would try them: queues, confusion matrices, threads, iterators that end, evaluations in between,
values that are let go of in other orders, functions over a batch."""

from __future__ import annotations

from typing import Any

from endless_loops import loop


@loop(800, loops=2)
def predictions_in_lists(lib: Any, n: int) -> float:
    """Evaluation that keeps predictions and labels in lists and concatenates them at the end."""
    import numpy as np
    lib.manual_seed(0)
    model = lib.nn.Sequential(lib.nn.Linear(16, 32), lib.nn.ReLU(), lib.nn.Linear(32, 4))
    model.eval()
    predictions, labels = [], []
    with lib.no_grad():
        for i in range(n):
            x = lib.from_numpy(np.full((32, 16), 0.01 * (i % 11), np.float32))
            predictions.append(model(x).softmax(1).argmax(1).cpu())
            labels.append(lib.from_numpy(np.full((32,), i % 4)))
    return float((lib.cat(predictions) < 4).float().mean() + (lib.cat(labels) == 1).float().mean())


@loop(2000)
def queue_of_keys(lib: Any, n: int) -> float:
    """MoCo's queue: keys enter by cat, old ones leave by slicing, logits against all."""
    queue, q = lib.zeros(64, 8), lib.ones(4, 8)
    for i in range(n):
        k = lib.nn.functional.normalize(q + 0.1 * (i % 3), dim=1)
        logits = k @ queue.t()
        q = q * 0.9 + logits.softmax(1)[:, :8] * 0.1
        queue = lib.cat([queue, k])[-64:]
    return float(q.sum() + queue.sum())


@loop(1200, loops=2)
def confusion_matrix(lib: Any, n: int) -> float:
    """A confusion matrix by index_add_ on its flat view, per batch, and bincount."""
    matrix = lib.zeros(4, 4)
    base = lib.arange(16)
    counts = lib.zeros(4, dtype=lib.int64)
    for i in range(n):
        truth, guess = base * (i % 3 + 1) % 4, (base + i % 5) % 4
        flat = matrix.view(-1)
        flat.index_add_(0, truth * 4 + guess, lib.ones(16))
        counts += lib.bincount(guess, minlength=4)
    return float(matrix.diagonal().sum() / matrix.sum() + counts.sum() / n)


@loop(1500)
def views_of_views_in_place(lib: Any, n: int) -> float:
    """Views of views of a table, unfolded, diagonal, transposed, each written."""
    table = lib.zeros(6, 6)
    for i in range(n):
        inner = table[1:5, 1:5]
        inner.diagonal().add_(0.5)
        inner.t()[i % 4, 1:3].mul_(0.9)
        table.view(36)[::7] -= 0.1
        table[:, 0].copy_(table[0])
    return float(table.sum())


@loop(1500)
def dictionary_of_states(lib: Any, n: int) -> float:
    """A pytree of states that is rebuilt each turn by comprehensions."""
    state = {"h": lib.zeros(4), "cell": {"c": lib.zeros(4), "n": lib.ones(4)}, "steps": lib.zeros((), dtype=lib.int64)}
    w = {name: lib.full((4,), 0.1 * (k + 1)) for k, name in enumerate(("h", "c", "n"))}
    for i in range(n):
        gates = {name: lib.sigmoid(state["h"] * w[name] + 0.1 * (i % 2)) for name in w}
        cell = {"c": state["cell"]["c"] * gates["c"] + gates["n"], "n": state["cell"]["n"] * 0.5 + gates["c"]}
        state = {"h": cell["c"].tanh() * gates["h"], "cell": cell, "steps": state["steps"] + 1}
    return float(state["h"].sum() + state["cell"]["n"].sum() + state["steps"] / n)


@loop(4000, loops=3)
def two_read_periods(lib: Any, n: int) -> float:
    """Two accumulators, one read every 30 turns and one every 70."""
    a, b, x, read = lib.zeros(()), lib.zeros(4), lib.linspace(0, 1, 4), 0.0
    for i in range(n):
        a = a + (x * (i % 3)).sum()
        b = b * 0.9 + x.cos() * (i % 2)
        if i % 30 == 29:
            read += a.item()
            a = lib.zeros(())
        if i % 70 == 69:
            read += float(b.sum())
    return read / n


@loop(240, loops=4)
def accumulated_with_evaluation(lib: Any, n: int) -> float:
    """Four backwards a step, and an evaluation after every tenth batch, which is not read."""
    lib.manual_seed(0)
    model = lib.nn.Sequential(lib.nn.Linear(8, 16), lib.nn.Tanh(), lib.nn.Linear(16, 1))
    with lib.no_grad():
        for p in model.parameters():
            p.fill_(0.05)
    step = lib.optim.AdamW(model.parameters(), lr=0.01)
    x, scores = lib.linspace(-1, 1, 32).reshape(4, 8), []
    for i in range(n):
        loss = (model(x * (i % 5)) - i % 2).square().mean() / 4
        loss.backward()
        if i % 10 == 9:
            model.eval()
            with lib.no_grad():
                scores.append((model(x) - 1).abs().mean())
            model.train()
        if i % 4 == 3:
            step.step()
            step.zero_grad()
    return float(lib.stack(scores).mean())


@loop(1000)
def prioritized_replay(lib: Any, n: int) -> float:
    """A replay memory with priorities: argmax picks, scatter writes the new priority, where ages all."""
    room = 32
    memory, priority = lib.sin(lib.arange(room * 4, dtype=lib.float32)).reshape(room, 4), lib.ones(room)
    q = lib.zeros(4)
    for i in range(n):
        place = priority.argmax()
        sample = memory.index_select(0, place.reshape(1))[0]
        error = sample.sum() - q.sum() + 0.1 * (i % 3)
        q = q + 0.01 * error * sample
        priority = (priority * 1.01).scatter(0, place.reshape(1), error.abs().reshape(1))
        priority = lib.where(priority > 10, lib.ones(()), priority)
    return float(q.sum())


@loop(800, loops=2)
def pool_of_beams(lib: Any, n: int) -> float:
    """A pool of beams as lists of tensors, sorted by topk's indices gathered on each."""
    pool = [(lib.zeros(3), lib.full((3,), 0.1 * k)) for k in range(4)]
    table = lib.cos(lib.arange(9, dtype=lib.float32)).reshape(3, 3)
    for i in range(n):
        grown = [(score + (table @ h).log_softmax(0) + 0.01 * (i % 2), (table @ h).tanh()) for score, h in pool]
        scores = lib.stack([score for score, _ in grown])
        best, which = scores.max(1)
        order = best.argsort(descending=True)
        states = lib.stack([h for _, h in grown])[order]
        pool = [(scores[order[k]] - best.max(), states[k] + which[k] * 0.01) for k in range(4)]
    return float(sum(score.sum() + h.sum() for score, h in pool))


@loop(3000, bodies=3)
def random_branches_and_lengths(lib: Any, n: int) -> float:
    """One of three branches by chance, one of which is an inner loop."""
    import random
    draw, x = random.Random(1), lib.linspace(0, 1, 8)
    for _ in range(n):
        branch = draw.randrange(3)
        if branch == 0:
            x = x.sin() + 0.3
        elif branch == 1:
            x = x - x.mean()
        else:
            for _ in range(3):
                x = x.tanh() * 1.1
    return float(x.sum())


@loop(400)
def vmapped_each_turn(lib: Any, n: int) -> float:
    """A vmap of a gradient in each turn: per-sample descent."""
    func = lib.func
    x, w = lib.linspace(-1, 1, 12).reshape(4, 3), lib.full((4, 3), 0.5)

    def loss(w: Any, x: Any) -> Any:
        return ((w * x).sum() - 1) ** 2
    step = func.vmap(func.grad(loss))
    for _ in range(n):
        w = w - 0.01 * step(w, x)
    return float(w.sum())


@loop(2000)
def list_grows_and_shrinks(lib: Any, n: int) -> float:
    """A list grows to forty values, then is popped to ten, again and again."""
    kept, x = [lib.ones(4)], lib.linspace(0, 1, 4)
    growing = True
    for i in range(n):
        if growing:
            kept.append(lib.sin(kept[-1] + x) + 0.1 * (i % 2))
        else:
            x = x * 0.9 + kept.pop() * 0.1
        growing = len(kept) < 40 if growing else len(kept) <= 10
    return float(x.sum() + sum(kept).sum())


@loop(2000)
def stop_iteration_and_errors(lib: Any, n: int) -> float:
    """Iterators that end and are begun anew, and errors of shapes every seventh turn."""
    x, other = lib.ones(8), lib.ones(5)
    source = iter([lib.full((8,), 0.1 * k) for k in range(5)])
    for i in range(n):
        try:
            value = next(source)
        except StopIteration:
            source = iter([lib.full((8,), 0.1 * k) for k in range(5)])
            value = next(source)
        x = lib.tanh(x + value)
        if i % 7 == 6:
            try:
                x = lib.cat([x, other.reshape(1, 5)])
            except (RuntimeError, ValueError, IndexError):
                x = x * 0.99
    return float(x.sum())


@loop(2000, loops=2)
def two_threads(lib: Any, n: int) -> float:
    """Two threads, each with an endless loop of its own; both are joined before anything is read."""
    import threading
    found: dict[int, Any] = {}

    def work(which: int) -> None:
        x = lib.full((8,), 0.1 * (which + 1))
        for i in range(n):
            x = lib.cos(x) * 0.9 + 0.01 * (i % 3)
        found[which] = x
    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return float(found[0].sum() + found[1].sum())


@loop(3000)
def deleted_in_other_orders(lib: Any, n: int) -> float:
    """Intermediate values are deleted early, late, or when the next turn rebinds them."""
    x, held = lib.linspace(0, 1, 8), {}
    for i in range(n):
        a = x * 0.5
        b = a.cos()
        if i % 2:
            del a
        held[i % 5] = b - x
        x = b + held.get((i + 1) % 5, x) * 0.1
        del b
        if i % 5 == 4:
            held.pop(2, None)
    return float(x.sum())


@loop(600, loops=4)
def trained_and_logged(lib: Any, n: int) -> float:
    """SGD with momentum; an averaged loss is logged every twenty-five steps, the best is kept."""
    lib.manual_seed(0)
    model = lib.nn.Linear(8, 1)
    with lib.no_grad():
        model.weight.fill_(0.1)
        model.bias.zero_()
    step = lib.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, running, best, log = lib.linspace(-1, 1, 32).reshape(4, 8), 0.0, lib.full((), 1e9), []
    for i in range(n):
        step.zero_grad()
        loss = lib.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True) * (i % 3))
        loss.backward()
        step.step()
        running = running * 0.9 + loss.detach() * 0.1
        best = lib.minimum(best, loss.detach())
        if i % 25 == 24:
            log.append(running.item())
    return float(best) + log[-1]


@loop(500, loops=2)
def gradient_penalty(lib: Any, n: int) -> float:
    """Second derivatives in each turn: a gradient's norm is penalized, stepped by hand."""
    w, x = lib.full((4,), 0.3, requires_grad=True), lib.linspace(0, 1, 4)
    for i in range(n):
        y = (w * x).tanh().sum()
        (g,) = lib.autograd.grad(y, w, create_graph=True)
        loss = (y - i % 2) ** 2 + (g.norm() - 1) ** 2
        (gradient,) = lib.autograd.grad(loss, w)
        with lib.no_grad():
            w -= 0.01 * gradient
    return float(w.sum())


@loop(1000, loops=2)
def target_network_lerp(lib: Any, n: int) -> float:
    """DQN: an Adam step, then the target follows by lerp_ over zip(parameters); TD targets under no_grad."""
    lib.manual_seed(0)
    online, target = lib.nn.Linear(4, 2), lib.nn.Linear(4, 2)
    with lib.no_grad():
        for p in (*online.parameters(), *target.parameters()):
            p.fill_(0.1)
    step = lib.optim.Adam(online.parameters(), lr=1e-3)
    state = lib.linspace(-1, 1, 16).reshape(4, 4)
    for i in range(n):
        with lib.no_grad():
            goal = 0.1 * (i % 3) + 0.9 * target(state).max(1).values
        loss = lib.nn.functional.smooth_l1_loss(online(state)[:, i % 2], goal)
        step.zero_grad()
        loss.backward()
        step.step()
        with lib.no_grad():
            for p, q in zip(target.parameters(), online.parameters(), strict=True):
                p.lerp_(q, 0.01)
    return float(target.weight.sum())
