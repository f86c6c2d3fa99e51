"""Loops that were written to break the limits: in-place ops through views and indices, scans, own
derivatives, hooks, transforms, optimizers by themselves, metrics, generators, two models, threads, cycles."""

from __future__ import annotations

from typing import Any

from endless_loops import loop


@loop(2000)
def index_put_accumulated(lib: Any, n: int) -> float:
    """Elements are added at equal places of what decays."""
    x, at = lib.zeros(16), lib.tensor([0, 3, 3, 7])
    v = lib.linspace(0, 1, 4)
    for i in range(n):
        x = x * 0.99
        x.index_put_((at,), v * (i % 3), accumulate=True)
    return float(x.sum())


@loop(2000)
def running_cumsum(lib: Any, n: int) -> float:
    """A scan of the scan before."""
    x = lib.linspace(0, 1, 16)
    for _ in range(n):
        x = x.cumsum(0) / 16 + 0.01
    return float(x.sum())


@loop(600, loops=2)
def own_function(lib: Any, n: int) -> float:
    """A function with its own derivative, and a step by hand."""
    class Twice(lib.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, = ctx.saved_tensors
            return 2 * x * g
    w = lib.linspace(0.1, 0.9, 8).requires_grad_()
    for _ in range(n):
        loss = (Twice.apply(w) - 0.25).square().sum()
        loss.backward()
        with lib.no_grad():
            w -= 0.05 * w.grad
            w.grad = None
    return float(w.detach().sum())


@loop(600, loops=2)
def hooks_on_gradients(lib: Any, n: int) -> float:
    """Hooks of a leaf and of a value between."""
    w, seen = lib.linspace(0.1, 0.9, 8).requires_grad_(), []
    w.register_hook(lambda g: g * 0.5)
    for _ in range(n):
        h = lib.tanh(w * 2)
        h.register_hook(lambda g: seen.append(1))
        (h - 0.5).square().sum().backward()
        with lib.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
    return float(w.detach().sum()) + len(seen) / n


@loop(600, loops=2)
def gradients_by_transform(lib: Any, n: int) -> float:
    """`func.grad`, and a step by hand."""
    grad = lib.func.grad(lambda w, x: (lib.tanh(w * x) - 0.3).square().sum())
    w, x = lib.linspace(0.1, 0.9, 8), lib.linspace(1, 2, 8)
    for _ in range(n):
        w = w - 0.05 * grad(w, x)
    return float(w.sum())


@loop(500, loops=2)
def gradients_of_examples(lib: Any, n: int) -> float:
    """`vmap` over `grad`; nothing is read."""
    each = lib.func.vmap(lib.func.grad(lambda w, x: ((w * x).sum() - 1).square()), in_dims=(None, 0))
    w, x = lib.linspace(0.1, 0.2, 4), lib.linspace(-1, 1, 24).view(6, 4)
    for _ in range(n):
        w = w - 0.01 * each(w, x).mean(0)
    return float(w.sum())


@loop(800, loops=2)
def optimizer_given_gradients(lib: Any, n: int) -> float:
    """Gradients are set, not computed."""
    w = lib.nn.Parameter(lib.linspace(0.1, 0.9, 8))
    o = lib.optim.Adam([w], lr=0.001)
    g = lib.linspace(-1, 1, 8)
    for i in range(n):
        w.grad = g * (i % 5)
        o.step()
    return float(w.detach().sum())


@loop(800, loops=2)
def two_models(lib: Any, n: int) -> float:
    """A teacher is the average of a student."""
    lib.manual_seed(0)
    student, teacher = lib.nn.Linear(4, 4), lib.nn.Linear(4, 4)
    with lib.no_grad():
        for p in (*student.parameters(), *teacher.parameters()):
            p.fill_(0.1)
    o = lib.optim.SGD(student.parameters(), lr=0.01)
    x = lib.linspace(-1, 1, 12).view(3, 4)
    for i in range(n):
        with lib.no_grad():
            target = teacher(x + i % 3)
        ((student(x) - target).square().sum() + student.bias.sum() * 0.01).backward()
        o.step()
        o.zero_grad()
        with lib.no_grad():
            for p, q in zip(student.parameters(), teacher.parameters(), strict=True):
                q.mul_(0.99).add_(p, alpha=0.01)
    return float(teacher.weight.detach().sum())


@loop(2000, loops=2)
def counted_pairs(lib: Any, n: int) -> float:
    """A confusion matrix by `bincount`."""
    counts, y = lib.zeros(5, 5, dtype=lib.int64), lib.tensor([0, 1, 2, 3, 4, 0])
    x = lib.linspace(-1, 1, 30).view(6, 5)
    for i in range(n):
        p = ((x + 0.1 * (i % 7)).sin()).argmax(1)
        counts += lib.bincount(y * 5 + p, minlength=25).view(5, 5)
    return float(counts.float().mean())


@loop(3000)
def from_a_generator(lib: Any, n: int) -> float:
    """A generator yields each turn's value."""
    def values() -> Any:
        x = lib.linspace(0, 1, 8)
        for i in range(n):
            x = (x + 0.01 * (i % 4)).cos()
            yield x
    total = lib.zeros(8)
    for x in values():
        total = total + x
    return float(total.sum()) / n


@loop(1500)
def dictionary_of_values(lib: Any, n: int) -> float:
    """One of six entries is replaced each turn."""
    state = {k: lib.full((4,), 0.1 * k) for k in range(6)}
    for i in range(n):
        k = i % 6
        state[k] = state[k] * 0.9 + state[(k + 1) % 6] * 0.1
    return float(sum(v.sum() for v in state.values()))


@loop(1500)
def queue_of_values(lib: Any, n: int) -> float:
    """The mean of the last seven values."""
    from collections import deque
    q: Any = deque(maxlen=7)
    q.append(lib.linspace(0, 1, 8))
    for _ in range(n):
        q.append(sum(q) / len(q) * 0.99 + 0.01)
    return float(sum(q).sum())


@loop(1500)
def objects_with_cycles(lib: Any, n: int) -> float:
    """Each turn's object refers to itself and holds 256 KB."""
    class Turn:
        pass
    total = lib.zeros(())
    for i in range(n):
        it = Turn()
        it.itself, it.x = it, lib.full((65536,), float(i % 3))
        total += it.x.mean()
    return float(total)


@loop(300)
def megabytes_in_cycles(lib: Any, n: int) -> float:
    """Lists that hold themselves and 1 MB."""
    total, base = lib.zeros(()), lib.linspace(0, 1, 262144)
    for i in range(n):
        it: list[Any] = [base * (i % 3)]
        it.append(it)
        total += it[0].mean()
    return float(total)


@loop(2000)
def diagonal_written(lib: Any, n: int) -> float:
    """Views of a matrix are written: its diagonal, a column."""
    x = lib.linspace(0, 1, 36).view(6, 6)
    for i in range(n):
        x = x * 0.99
        x.diagonal().add_(0.01)
        x.t()[0] += 0.001 * (i % 2)
    return float(x.sum())


@loop(2000)
def strided_writes(lib: Any, n: int) -> float:
    """Every second and every fourth element."""
    x = lib.linspace(0, 1, 32)
    for i in range(n):
        x[::2] = x[1::2] * 0.9
        x[i % 4::4].mul_(1.01)
    return float(x.sum())


@loop(1500)
def masked_writes(lib: Any, n: int) -> float:
    """Elements are replaced where they are large."""
    x = lib.linspace(-1, 1, 32)
    for i in range(n):
        x[x > 0.9] = -0.5
        x += 0.01 * (1 + i % 3)
    return float(x.sum())


@loop(1500)
def scatter_and_gather(lib: Any, n: int) -> float:
    """Elements are moved by an index and added."""
    x, at = lib.linspace(0, 1, 16), (lib.arange(16) * 5) % 16
    for _ in range(n):
        x = x.scatter_add(0, at, x.gather(0, at.flip(0)) * 0.01) * 0.99
    return float(x.sum())


@loop(1200)
def sorted_each_turn(lib: Any, n: int) -> float:
    """Values and places of a sort."""
    x = lib.linspace(1, 0, 16)
    for _ in range(n):
        values, at = x.sort()
        x = (values * 1.3 + at.float() * 0.01).sin()
    return float(x.sum())


@loop(1200)
def top_of_each(lib: Any, n: int) -> float:
    """The largest four are summed."""
    x, total = lib.linspace(0, 1, 32), lib.zeros(4)
    for i in range(n):
        x = (x * 1.7 + 0.1 * (i % 5)).cos()
        total += x.topk(4).values
    return float(total.sum()) / n


@loop(1500)
def lower_precision(lib: Any, n: int) -> float:
    """Through bfloat16 and back."""
    x, total = lib.linspace(0, 1, 16), lib.zeros(16)
    for _ in range(n):
        h = (x.to(lib.bfloat16) * 2).cos()
        total += h.float()
        x = x * 0.999
    return float(total.sum()) / n


@loop(1500)
def integers_and_bits(lib: Any, n: int) -> float:
    """Shifts, xor, and an element that is set."""
    x = lib.arange(16)
    for i in range(n):
        x = ((x * 5 + 3) ^ (x >> 1)) & 1023
        x[i % 3] = i % 7
    return float(x.float().mean())


@loop(800)
def drawn_from_a_generator(lib: Any, n: int) -> float:
    """Draws of a generator of its own."""
    g, total = lib.Generator(), lib.zeros(8)
    g.manual_seed(1)
    for _ in range(n):
        total += lib.rand(8, generator=g) > 2
    return float(total.sum())


@loop(600, loops=2)
def second_derivatives(lib: Any, n: int) -> float:
    """Descent along a second derivative."""
    w = lib.linspace(0.1, 0.9, 6).requires_grad_()
    for _ in range(n):
        g, = lib.autograd.grad((w ** 3).sum(), w, create_graph=True)
        h, = lib.autograd.grad(g.square().sum(), w)
        w = (w - 0.001 * h).detach().requires_grad_()
    return float(w.detach().sum())


@loop(600, loops=2)
def weight_normed(lib: Any, n: int) -> float:
    """A parametrization is computed each turn."""
    lib.manual_seed(0)
    m = lib.nn.utils.parametrizations.weight_norm(lib.nn.Linear(4, 4))
    with lib.no_grad():
        for p in m.parameters():
            p.fill_(0.3)
    o = lib.optim.SGD(m.parameters(), lr=0.01, momentum=0.9)
    x = lib.linspace(-1, 1, 12).view(3, 4)
    for _ in range(n):
        o.zero_grad()
        (m(x) - 0.1).square().mean().backward()
        o.step()
    return float(sum(p.detach().sum() for p in m.parameters()))


@loop(500, loops=2)
def scaled_and_scheduled(lib: Any, n: int) -> float:
    """Accumulated gradients, clipping, a schedule."""
    w = lib.nn.Parameter(lib.linspace(0.1, 0.9, 8))
    o = lib.optim.AdamW([w], lr=0.01)
    s = lib.optim.lr_scheduler.CosineAnnealingLR(o, T_max=50)
    for i in range(n):
        for _ in range(2):
            ((w * (i % 3) - 0.2).square().sum() / 2).backward()
        lib.nn.utils.clip_grad_norm_([w], 1.0)
        o.step()
        o.zero_grad()
        s.step()
    return float(w.detach().sum())


@loop(500, loops=2)
def averaged_model(lib: Any, n: int) -> float:
    """`AveragedModel` after each step."""
    m = lib.nn.Linear(4, 2)
    with lib.no_grad():
        for p in m.parameters():
            p.fill_(0.2)
    a = lib.optim.swa_utils.AveragedModel(m)
    o = lib.optim.SGD(m.parameters(), lr=0.01)
    x = lib.linspace(-1, 1, 12).view(3, 4)
    for _ in range(n):
        o.zero_grad()
        m(x).square().sum().backward()
        o.step()
        a.update_parameters(m)
    return float(sum(p.detach().sum() for p in a.parameters()))


@loop(1500, loops=2)
def compiled_in_a_loop(lib: Any, n: int) -> float:
    """A compiled function's result is its next argument."""
    def f(x: Any, i: Any) -> Any:
        return (x * 0.9 + i).cos()
    if lib.__name__ == "genesis":
        f = lib.compile(f)
    x = lib.linspace(0, 1, 8)
    for i in range(n):
        x = f(x, lib.tensor(0.01 * (i % 3)))
    return float(x.sum())


@loop(1000)
def two_results_and_states(lib: Any, n: int) -> float:
    """An LSTM's cell, states kept."""
    cell = lib.nn.LSTMCell(4, 4)
    with lib.no_grad():
        for p in cell.parameters():
            p.fill_(0.1)
        h = c = lib.zeros(2, 4)
        for i in range(n):
            h, c = cell(lib.full((2, 4), 0.1 * (i % 3)), (h, c))
        return float(h.sum() + c.sum())


@loop(1000)
def powers_of_a_matrix(lib: Any, n: int) -> float:
    """Products, normalized."""
    a, v = lib.linspace(0, 1, 64).view(8, 8), lib.ones(8)
    for _ in range(n):
        v = a @ v
        v = v / v.norm()
    return float(v.sum())


@loop(1000)
def einsum_and_outer(lib: Any, n: int) -> float:
    """A product by `einsum`, and an outer one."""
    a, v = lib.eye(6), lib.linspace(0, 1, 6)
    for i in range(n):
        a = lib.einsum("ij,jk->ik", a, lib.eye(6) * 0.99) + 0.001 * lib.outer(v, v) * (i % 2)
    return float(a.sum())


@loop(600)
def convolved(lib: Any, n: int) -> float:
    """An image is blurred again and again."""
    x, k = lib.linspace(0, 1, 64).view(1, 1, 8, 8), lib.ones(1, 1, 3, 3) / 9
    for _ in range(n):
        x = lib.nn.functional.conv2d(x, k, padding=1).sin() + 0.1
    return float(x.sum())


@loop(800)
def solved_each_turn(lib: Any, n: int) -> float:
    """A system is solved for the solution before."""
    a, b = lib.eye(4) * 2 + 0.1, lib.ones(4, 1)
    for i in range(n):
        b = lib.linalg.solve(a, b + 0.1 * (i % 3))
    return float(b.sum())


@loop(2000)
def copies_to_and_fro(lib: Any, n: int) -> float:
    """Two buffers change places."""
    a, b = lib.linspace(0, 1, 8), lib.zeros(8)
    for _ in range(n):
        b.copy_(a)
        b.mul_(0.5).add_(0.2)
        a, b = b, a
    return float(a.sum())


@loop(1500)
def rolled_and_padded(lib: Any, n: int) -> float:
    """Rolled by other distances, padded and cut."""
    x = lib.linspace(0, 1, 12)
    for i in range(n):
        x = lib.nn.functional.pad(x.roll(i % 3), (1, 1))[1:-1] * 0.99 + 0.01
    return float(x.sum())


@loop(1500)
def chunks_and_stacks(lib: Any, n: int) -> float:
    """Halves are mixed."""
    x = lib.linspace(0, 1, 16)
    for _ in range(n):
        a, b = x.chunk(2)
        x = lib.stack([b.sin(), a.cos()], 1).flatten()
    return float(x.sum())


@loop(700)
def bag_of_words(lib: Any, n: int) -> float:
    """Rows of a table are looked up."""
    table, at = lib.linspace(0, 1, 40).view(10, 4), lib.tensor([[0, 3, 9], [1, 1, 2]])
    total = lib.zeros(4)
    for i in range(n):
        total += lib.nn.functional.embedding((at + i % 3) % 10, table).mean((0, 1))
    return float(total.sum())


@loop(700)
def exceptions_each_turn(lib: Any, n: int) -> float:
    """An op that raises is caught."""
    x, errors = lib.linspace(0, 1, 8), 0
    for i in range(n):
        x = (x + 0.1).cos()
        try:
            if i % 3 == 0:
                x = x @ lib.ones(9)
        except RuntimeError:
            errors += 1
        x = x * 0.99
    return float(x.sum()) + errors / n


@loop(1000)
def numpy_now_and_then(lib: Any, n: int) -> float:
    """An element is read by numpy each tenth turn."""
    x, total = lib.linspace(0, 1, 8), 0.0
    for i in range(n):
        x = (x * 1.1).cos()
        if i % 10 == 0:
            total += float(x.numpy()[0])
    return total / n + float(x.sum())


@loop(1500)
def read_in_a_thread(lib: Any, n: int) -> float:
    """Another thread reads each hundredth turn."""
    import threading
    x, found = lib.linspace(0, 1, 8), []
    for i in range(n):
        x = (x * 1.1 + 0.1).cos()
        if i % 100 == 99:
            t = threading.Thread(target=lambda x=x: found.append(float(x.sum())))
            t.start()
            t.join()
    return sum(found) / len(found) if found else 0.0


@loop(600, loops=2)
def detached_targets(lib: Any, n: int) -> float:
    """Temporal differences: the next value is a target without gradients."""
    w = lib.nn.Parameter(lib.linspace(-0.2, 0.2, 6))
    s = lib.linspace(0, 1, 6)
    for i in range(n):
        nxt = s.roll(1) * 0.9 + 0.01 * (i % 3)
        loss = ((w * s).sum() - (0.1 + 0.9 * (w * nxt).sum().detach())).square()
        loss.backward()
        with lib.no_grad():
            w.sub_(w.grad, alpha=0.01)
            w.grad.zero_()
        s = nxt
    return float(w.detach().sum())
