"""Programs that are wide, and not only long: thousands of parameters, groups, outputs, views, operands and values that
wait, each of which a step, a flush or a backward has to do with at once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from endless_loops import loop


def _parameters(lib: Any, n: int) -> list[Any]:
    return [lib.full((2,), 1 + 0.001 * (i % 7), requires_grad=True) for i in range(n)]


def _mean(lib: Any, tensors: list[Any]) -> float:
    return float(lib.stack([x.detach() for x in tensors]).mean())


@loop(2000, loops=3)
def momentum_of_many_parameters(lib: Any, n: int) -> float:
    """SGD with Nesterov's momentum over thousands of parameters, three steps."""
    parameters = _parameters(lib, n)
    step = lib.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)
    for _ in range(3):
        step.zero_grad()
        sum((p * p).sum() for p in parameters).backward()
        step.step()
    return _mean(lib, parameters)


@loop(1000, loops=4)
def a_group_for_each_parameter(lib: Any, n: int) -> float:
    """Adam with a group of its own, and so a rate, for each parameter."""
    parameters = _parameters(lib, n)
    step = lib.optim.Adam([{"params": [p], "lr": 0.01 * (1 + i % 3)} for i, p in enumerate(parameters)])
    for _ in range(3):
        step.zero_grad()
        sum((p * p).sum() for p in parameters).backward()
        step.step()
    return _mean(lib, parameters)


@loop(2000, loops=4)
def clipped_gradients_of_many(lib: Any, n: int) -> float:
    """The norm of thousands of gradients, and AdamW."""
    parameters = _parameters(lib, n)
    step = lib.optim.AdamW(parameters, lr=0.01)
    for _ in range(3):
        step.zero_grad(set_to_none=False)
        sum((p * p).sum() for p in parameters).backward()
        lib.nn.utils.clip_grad_norm_(parameters, 1.0)
        step.step()
    return _mean(lib, parameters)


@loop(2000, loops=2)
def average_of_many_parameters(lib: Any, n: int) -> float:
    """An average model of thousands of tensors, three turns."""
    parameters, averages = [lib.ones(8) for _ in range(n)], [lib.zeros(8) for _ in range(n)]
    for _ in range(3):
        for average, p in zip(averages, parameters, strict=True):
            average.lerp_(p, 0.1)
    return _mean(lib, averages)


@loop(4000, loops=2)
def outputs_of_one_op(lib: Any, n: int) -> float:
    """A tensor is unbound into thousands, each of which is scaled and kept."""
    x = lib.arange(2 * n, dtype=lib.float32).reshape(n, 2)
    kept = [part * (i % 3) for i, part in enumerate(x.unbind(0))]
    return _mean(lib, kept) / n


@loop(4000, loops=2)
def views_of_one_base(lib: Any, n: int) -> float:
    """Thousands of views of one tensor are alive while that is written twice."""
    base = lib.zeros(n, 2)
    views = [base[i] for i in range(n)]
    base += 1
    first = lib.stack(views).sum()
    base *= 2
    return float(first + lib.stack(views).sum()) / n


@loop(4000, loops=3)
def operands_of_one_cat(lib: Any, n: int) -> float:
    """Thousands of leaves that require grad are joined, and a backward gives each its part."""
    parameters = _parameters(lib, n)
    (lib.cat(parameters) ** 2).sum().backward()
    return _mean(lib, [p.grad for p in parameters])


@loop(4000, loops=2)
def tree_of_sums(lib: Any, n: int) -> float:
    """Thousands of values are added up in pairs."""
    x = lib.ones(4)
    level = [x * (i % 5) for i in range(n)]
    while len(level) > 1:
        level = [a + b for a, b in zip(level[::2], level[1::2], strict=False)] + level[len(level) // 2 * 2:]
    return float(level[0].sum()) / n


@loop(100, loops=3)
def deep_and_wide(lib: Any, n: int) -> float:
    """Layers of thirty-two branches, each of which reads the mean of all branches before; a backward through all."""
    weights = [lib.full((4,), 0.5 + 0.01 * k, requires_grad=True) for k in range(32)]
    h = lib.ones(4)
    for _ in range(n):
        h = sum(lib.tanh(h * w) for w in weights) / 32
    h.sum().backward()
    return float(h.detach().sum() + sum(w.grad.sum() for w in weights))


@loop(3000, loops=2)
def parts_of_one_buffer(lib: Any, n: int) -> float:
    """All parameters lie in one buffer; each part is written in place."""
    flat = lib.ones(4 * n)
    parts = [flat[4 * i:4 * i + 4] for i in range(n)]
    for _ in range(2):
        for i, part in enumerate(parts):
            part.mul_(0.5 + 0.1 * (i % 3))
    return float(flat.mean())


@loop(8000, loops=2)
def buffers_written_once(lib: Any, n: int) -> float:
    """Thousands of buffers, each written once, and read one at a time."""
    buffers = [lib.zeros(4) for _ in range(n)]
    for i, b in enumerate(buffers):
        b.add_(i % 5)
    return sum(b.sum().item() for b in buffers) / n


@loop(3000, loops=2)
def waiting_values_read_one_by_one(lib: Any, n: int) -> float:
    """Thousands of values wait, and are read one after the other."""
    x = lib.ones(4)
    waiting = [(x * (i % 5)).sum() for i in range(n)]
    return sum(v.item() for v in waiting) / n


@loop(3000, loops=2)
def waiting_values_read_backwards(lib: Any, n: int) -> float:
    """A chain of values, all alive, read from the last to the first."""
    x, waiting = lib.ones(4), []
    for _ in range(n):
        x = x * 0.999 + 0.001
        waiting.append(x)
    return sum(v.sum().item() for v in reversed(waiting)) / n


@loop(2000, loops=3)
def gradients_asked_for(lib: Any, n: int) -> float:
    """`autograd.grad` of one loss by thousands of leaves."""
    parameters = _parameters(lib, n)
    loss = (lib.stack(parameters) ** 3).sum()
    return _mean(lib, list(lib.autograd.grad(loss, parameters)))


@loop(2000, loops=3)
def rows_of_one_table(lib: Any, n: int) -> float:
    """Thousands of look-ups at one table that requires grad, and a backward."""
    table = lib.full((64, 4), 0.5, requires_grad=True)
    loss = sum((table[i % 64] * (i % 3)).sum() for i in range(n))
    loss.backward()
    return float(table.grad.sum()) / n


@loop(1000, loops=5)
def a_model_of_many_layers(lib: Any, n: int) -> float:
    """A thousand small layers one after the other, a backward and a step, twice."""
    lib.manual_seed(0)
    nn = lib.nn
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(n)])
    with lib.no_grad():
        for p in model.parameters():
            p.fill_(0.25)
    step = lib.optim.SGD(model.parameters(), lr=1e-6)
    for _ in range(2):
        step.zero_grad()
        model(lib.ones(2, 4)).mean().backward()
        step.step()
    return _mean(lib, [p.detach().mean() for p in model.parameters()])


@loop(2000, loops=3)
def hooks_of_many_parameters(lib: Any, n: int) -> float:
    """Each of thousands of parameters has a hook that changes its gradient."""
    parameters = _parameters(lib, n)
    for p in parameters:
        p.register_hook(lambda g: g * 0.5)
    (lib.stack(parameters) ** 2).sum().backward()
    return _mean(lib, [p.grad for p in parameters])


@loop(3000, loops=3)
def copied_one_by_one(lib: Any, n: int) -> float:
    """Thousands of tensors are copied to others, as a target network's."""
    sources, targets = [lib.full((4,), i % 5.0) for i in range(n)], [lib.zeros(4) for _ in range(n)]
    with lib.no_grad():
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
    return _mean(lib, targets)


@loop(2000, loops=2)
def loaded_and_saved(lib: Any, n: int) -> float:
    """A model of thousands of parameters loads another's state, after its own was kept as copies."""
    def model(value: float) -> Any:
        return lib.nn.ParameterList([lib.nn.Parameter(lib.full((4,), value + i % 3)) for i in range(n)])
    one, other = model(1.0), model(2.0)
    kept = {name: p.clone() for name, p in one.state_dict().items()}
    one.load_state_dict(other.state_dict())
    return _mean(lib, list(one.parameters())) + _mean(lib, list(kept.values()))


@loop(2000, loops=3)
def as_one_vector_and_back(lib: Any, n: int) -> float:
    """Parameters become one vector, which is scaled, and are set from it."""
    parameters = _parameters(lib, n)
    with lib.no_grad():
        vector = lib.nn.utils.parameters_to_vector(parameters)
        lib.nn.utils.vector_to_parameters(vector * 0.5, parameters)
    return _mean(lib, parameters)


@loop(2000, loops=3)
def penalties_of_all_pairs_in_a_row(lib: Any, n: int) -> float:
    """Neighbours are pulled together: each parameter is in two terms."""
    parameters = _parameters(lib, n)
    loss = lib.stack([((a - b) ** 2).sum() for a, b in pairwise(parameters)]).sum()
    loss.backward()
    with lib.no_grad():
        for p in parameters:
            p.sub_(p.grad, alpha=0.1)
    return _mean(lib, parameters)


@loop(4000, loops=2)
def drawn_one_by_one(lib: Any, n: int) -> float:
    """Thousands of draws, all kept."""
    lib.manual_seed(0)
    kept = [lib.rand(4) * 0 + i % 3 for i in range(n)]
    return _mean(lib, kept)


@loop(3000, loops=2)
def read_through_lists(lib: Any, n: int) -> float:
    """Thousands of values wait, and each is asked for as a list."""
    x = lib.ones(4)
    return sum(sum(v.tolist()) for v in [x + i % 7 for i in range(n)]) / n


@loop(1000, loops=3)
def a_sum_for_each_prefix(lib: Any, n: int) -> float:
    """Running sums of thousands of leaves, all kept, each with a loss of its own."""
    parameters, total, losses = _parameters(lib, n), lib.zeros(2), []
    for p in parameters:
        total = total + p
        losses.append((total * 0.01).mean())
    lib.stack(losses).mean().backward()
    return _mean(lib, [p.grad for p in parameters])


def _compiled(lib: Any, function: Any) -> Any:
    return lib.compile(function) if lib.__name__ == "genesis" else function


@loop(2000, loops=3)
def compiled_step_of_many(lib: Any, n: int) -> float:
    """A compiled step over thousands of parameters, eight calls."""
    parameters = _parameters(lib, n)
    step = lib.optim.SGD(parameters, lr=0.01, momentum=0.9)

    def once() -> Any:
        step.zero_grad()
        loss = (lib.stack(parameters) ** 2).sum()
        loss.backward()
        step.step()
        return loss
    called = _compiled(lib, once)
    for _ in range(8):
        called()
    return _mean(lib, parameters)


@loop(1000, loops=2)
def compiled_call_of_many(lib: Any, n: int) -> float:
    """A compiled function that takes a list of a thousand tensors, and returns as many, eight calls."""
    called = _compiled(lib, lambda xs: [x * 0.5 + 1 for x in xs])
    xs = [lib.full((4,), i % 5.0) for i in range(n)]
    for _ in range(8):
        xs = called(xs)
    return _mean(lib, xs)
