"""Loops of a reader who had seen none of the others: filters, automata, integrators, attacks, distillation, states of
optimizers by hand, rates that are tensors, casts, masks that are assigned through, stacks that are made again.

Those that differentiate in each turn, or whose first step makes an optimizer's state, count as two."""

from __future__ import annotations

from typing import Any

from endless_loops import loop


@loop(1200)
def kalman_filter(lib: Any, n: int) -> float:
    """A covariance and a mean, whose gain is a solution."""
    a, q, r = lib.eye(4) * 0.99, lib.eye(4) * 0.01, lib.eye(4) * 0.5
    p, m, total = lib.eye(4), lib.zeros(4), lib.zeros(())
    for i in range(n):
        p = a @ p @ a.t() + q
        gain = lib.linalg.solve(p + r, p).t()
        m = a @ m + gain @ (lib.full((4,), float(i % 5)) - m)
        p = p - gain @ p
        total = total + m.sum()
    return float(total + p.trace())


@loop(1500)
def game_of_life(lib: Any, n: int) -> float:
    """Neighbours by rolls, and rules by masks."""
    board = (lib.arange(64) % 3 == 0).view(8, 8).float()
    for _ in range(n):
        near = sum(lib.roll(board, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1) if i or j)
        board = ((near == 3) | ((board == 1) & (near == 2))).float()
    return float(board.sum())


@loop(2500)
def leapfrog(lib: Any, n: int) -> float:
    """Positions and momenta in place; every tenth energy is kept."""
    x, p, kept = lib.linspace(-1, 1, 6), lib.zeros(6), []
    for i in range(n):
        p.sub_(x, alpha=0.005)
        x.add_(p, alpha=0.01)
        p.sub_(x, alpha=0.005)
        if i % 10 == 0:
            kept.append((p * p + x * x).sum() / 2)
    return float(lib.stack(kept).mean())


@loop(2000)
def streamed_softmax(lib: Any, n: int) -> float:
    """Maximum, normalizer and weighted sum of keys that come one by one."""
    q, top, norm, total = lib.linspace(-1, 1, 8), lib.full((), -1e30), lib.zeros(()), lib.zeros(8)
    for i in range(n):
        k = lib.sin(lib.linspace(0, 1, 8) + i % 11)
        score = q @ k
        now = lib.maximum(top, score)
        old, new = (top - now).exp(), (score - now).exp()
        norm, total, top = norm * old + new, total * old + k * new, now
    return float((total / norm).sum())


@loop(800)
def rows_of_a_table_by_hand(lib: Any, n: int) -> float:
    """Gradients of rows by `grad`, written back through their index."""
    table = lib.linspace(-1, 1, 60).view(20, 3).clone()
    for i in range(n):
        at = lib.tensor([i % 20, (3 * i) % 20, (7 * i) % 20])
        rows = table[at].requires_grad_()
        g, = lib.autograd.grad((rows.sin() * rows).sum(), rows)
        table.index_add_(0, at, g, alpha=-0.05)
    return float(table.sum())


@loop(1000)
def pinball_quantiles(lib: Any, n: int) -> float:
    """Quantiles that follow sorted batches."""
    q, level = lib.zeros(3), lib.tensor([0.1, 0.5, 0.9])
    for i in range(n):
        batch = lib.sin(lib.arange(16).float() * (1 + i % 7)).sort().values
        under = (batch.unsqueeze(1) < q).float().mean(0)
        q += 0.05 * (level - under)
    return float(q.sum())


@loop(500, loops=2)
def gradients_that_only_grow(lib: Any, n: int) -> float:
    """Each loss is scaled by the one before; nobody steps, or reads."""
    w, before = lib.linspace(-1, 1, 12).view(4, 3).clone().requires_grad_(), lib.ones(())
    x = lib.linspace(0, 1, 8).view(2, 4)
    for i in range(n):
        loss = (x @ w).tanh().square().mean() * before * (1 + i % 3)
        loss.backward()
        before = loss.detach() + 0.5
    return float(w.grad.sum() / n)


@loop(700)
def rate_in_a_tensor(lib: Any, n: int) -> float:
    """A step by hand whose rate is computed from a count, both tensors."""
    w, step = lib.linspace(-1, 1, 6).clone().requires_grad_(), lib.zeros(())
    for i in range(n):
        ((w - i % 4).square().sum() / 6).backward()
        with lib.no_grad():
            step += 1
            rate = 0.1 * lib.minimum(step / 50, (step / 50) ** -0.5)
            w -= rate * w.grad
        w.grad = None
    return float(w.detach().sum())


@loop(150, loops=2)
def unrolled_inner_steps(lib: Any, n: int) -> float:
    """Eight inner steps of a fast weight are differentiated for the slow one."""
    slow = lib.linspace(0.1, 0.4, 6).view(2, 3).clone().requires_grad_()
    opt = lib.optim.SGD([slow], lr=0.05, momentum=0.5)
    x = lib.linspace(-1, 1, 8).view(4, 2)
    for i in range(n):
        fast = slow * 1
        for _ in range(8):
            loss = ((x @ fast).sin() - (i % 3) / 3).square().mean()
            g, = lib.autograd.grad(loss, fast, create_graph=True)
            fast = fast - 0.1 * g
        opt.zero_grad()
        (x @ fast).square().mean().backward()
        opt.step()
    return float(slow.detach().sum())


@loop(500, loops=2)
def adam_by_names(lib: Any, n: int) -> float:
    """Parameters and their moments in dictionaries; corrections are Python's numbers, never the same."""
    sizes = {"a": 4, "b": 3, "c": 5}
    params = {k: lib.linspace(-1, 1, s).clone().requires_grad_() for k, s in sizes.items()}
    first, second = ({k: lib.zeros(s) for k, s in sizes.items()} for _ in range(2))
    for i in range(1, n + 1):
        sum((p.square() - i % 2).square().mean() for p in params.values()).backward()
        with lib.no_grad():
            for k, p in params.items():
                first[k].mul_(0.9).add_(p.grad, alpha=0.1)
                second[k].mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                p -= 0.01 * (first[k] / (1 - 0.9 ** i)) / ((second[k] / (1 - 0.99 ** i)).sqrt() + 1e-8)
                p.grad = None
    return float(sum(p.detach().sum() for p in params.values()))


@loop(2500)
def stacked_again_and_again(lib: Any, n: int) -> float:
    """A window that grows to fifty, is stacked and averaged, and begins anew."""
    window, mean = [], lib.zeros(5)
    for i in range(n):
        window.append(lib.cos(lib.linspace(0, 1, 5) * (i % 9)))
        if len(window) == 50:
            mean = 0.5 * mean + 0.5 * lib.stack(window).mean(0)
            window = []
    return float(mean.sum())


@loop(3000)
def casts_there_and_back(lib: Any, n: int) -> float:
    """Half precision and back in each turn."""
    x = lib.linspace(0, 1, 8)
    for _ in range(n):
        x = (x.to(lib.bfloat16) * 1.5).float() * 0.5 + x.double().float() * 0.25
    return float(x.sum())


@loop(1500)
def masks_assigned_through(lib: Any, n: int) -> float:
    """Elements that a mask names are set, and the mask moves."""
    x, at = lib.zeros(4, 8), lib.arange(32).view(4, 8)
    for i in range(n):
        x += 1
        x[at % 5 == i % 5] = 0
        x[:, i % 8] *= 0.5
    return float(x.sum())


@loop(300, loops=2)
def projected_attack(lib: Any, n: int) -> float:
    """An input that is a new leaf in each turn follows its gradient's sign, within a ball."""
    w, x = lib.linspace(-1, 1, 12).view(4, 3), lib.linspace(0, 1, 8).view(2, 4)
    y, adversarial = lib.tensor([0, 2]), x.clone()
    for _ in range(n):
        adversarial = adversarial.clone().detach().requires_grad_(True)
        loss = lib.nn.functional.cross_entropy(adversarial @ w, y)
        g, = lib.autograd.grad(loss, adversarial)
        adversarial = x + (adversarial.detach() + 0.01 * g.sign() - x).clamp(-0.1, 0.1)
    return float(adversarial.sum())


@loop(300, loops=2)
def teacher_and_student(lib: Any, n: int) -> float:
    """The teacher is an average of the student; losses are appended, and read behind the loop."""
    nn, losses = lib.nn, []
    student, teacher = nn.Linear(4, 3), nn.Linear(4, 3)
    with lib.no_grad():
        for net in (student, teacher):
            for p in net.parameters():
                p.copy_(lib.linspace(-1, 1, p.numel()).view(p.shape))
    opt = lib.optim.AdamW(student.parameters(), lr=0.01)
    x = lib.linspace(-1, 1, 20).view(5, 4)
    for i in range(n):
        with lib.no_grad():
            target = teacher(x + i % 3).softmax(-1)
        loss = -(target * student(x).log_softmax(-1)).sum(-1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        with lib.no_grad():
            for t, s in zip(teacher.parameters(), student.parameters(), strict=True):
                t.mul_(0.9).add_(s, alpha=0.1)
        losses.append(loss.detach())
    return float(lib.stack(losses).mean())
