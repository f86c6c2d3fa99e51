"""Loops that nobody had measured before 2026-11-30: slices of slices that are written, lists and dictionaries of many
values, losses of pairs, batches padded by hand, compiled functions over dictionaries."""

from __future__ import annotations

from typing import Any

from endless_loops import loop


@loop(3000, loops=2)
def slices_of_slices_written(lib: Any, n: int) -> float:
    """A window that moves along a buffer: each turn takes a slice of the slice before, and writes its inner part."""
    x = lib.zeros(2 * n + 8)
    window = x[:]
    for i in range(n):
        window = window[1:]
        window[1:5] += 0.5 * (i % 3)
        window[2:4].mul_(0.9)
    return float(x.sum()) / n


@loop(5000, loops=3)
def losses_summed_by_python(lib: Any, n: int) -> float:
    """sum() of a list of thousands of losses of one weight, and one backward."""
    w = lib.full((3,), 0.5, requires_grad=True)
    losses = [((w * (i % 7)) ** 2).sum() for i in range(n)]
    loss = sum(losses) / n
    loss.backward()
    return float(loss.detach() + w.grad.sum())


@loop(20, loops=3)
def averages_in_a_dictionary(lib: Any, n: int) -> float:
    """Averages of 300 parameters in a dictionary, updated in each turn and not read."""
    lib.manual_seed(0)
    parameters = {f"p{i}": lib.full((4, 1 + i % 3), 1 + 0.01 * i) for i in range(300)}
    averages = {name: p.clone() for name, p in parameters.items()}
    for _ in range(n):
        for name, p in parameters.items():
            parameters[name] = p * 0.999
            averages[name] = averages[name] * 0.99 + parameters[name] * 0.01
    return float(sum(a.sum() for a in averages.values())) / 300


@loop(4000, loops=2)
def scalars_stacked(lib: Any, n: int) -> float:
    """Thousands of 0-d values of one tensor are stacked and sorted."""
    x = lib.linspace(0, 1, 16)
    return float(lib.stack([(x * (i % 11)).max() for i in range(n)]).sort().values[n // 2])


@loop(3000, loops=2)
def puts_into_one_buffer(lib: Any, n: int) -> float:
    """buffer[places] = values and += of it, at places that differ from turn to turn."""
    buffer, places = lib.zeros(64), lib.arange(8)
    for i in range(n):
        buffer[places * 3 + i % 5] = 0.1 * (i % 9)
        buffer.index_put_((places,), lib.ones(8), accumulate=True)
    return float(buffer.sum())


@loop(3000, loops=2)
def products_of_views(lib: Any, n: int) -> float:
    """A running product over views of the value before: halves, turned, and put together again."""
    x = lib.full((4, 4), 1.0)
    for i in range(n):
        top, bottom = x.chunk(2)
        x = lib.cat([bottom.t().reshape(2, 4) * 0.99, top.cumprod(0) * 1.001 + 0.001 * (i % 3)])
    return float(x.sum())


@loop(2000, loops=4)
def grid_of_cells(lib: Any, n: int) -> float:
    """Thousands of cells in a dictionary, each of which becomes the mean of its neighbours, three times."""
    cells = {i: lib.full((2,), float(i % 5)) for i in range(n)}
    for _ in range(3):
        cells = {i: (cells[i - 1] + cells[i] + cells[(i + 1) % n]) / 3 if i else cells[i] for i in cells}
    return float(sum(c.sum() for c in cells.values())) / n


@loop(1000, loops=4)
def a_loss_for_each_pair(lib: Any, n: int) -> float:
    """A margin for each pair of an anchor and its negatives, collected in a list, with a backward."""
    anchors = [lib.full((4,), 0.1 * (i % 5), requires_grad=True) for i in range(n)]
    terms = []
    for i, a in enumerate(anchors):
        for k in (1, 2, 3):
            terms.append((1 + (a * anchors[(i + k) % n]).sum() - (a * a).sum()).clamp(min=0))
    loss = lib.stack(terms).mean()
    loss.backward()
    return float(loss.detach() + lib.stack([a.grad for a in anchors]).abs().sum())


@loop(500, loops=3)
def ragged_batches_padded(lib: Any, n: int) -> float:
    """Sequences of different lengths, each padded by hand into a row, then masked."""
    rows = [lib.full((1 + i % 12, 4), 0.1 * (i % 7)) for i in range(n)]
    padded = lib.zeros(n, 12, 4)
    for i, row in enumerate(rows):
        padded[i, :len(row)] = row
    lengths = lib.tensor([len(row) for row in rows])
    mask = lib.arange(12)[None] < lengths[:, None]
    return float((padded.sum(-1) * mask).sum()) / n


@loop(1500, loops=3)
def a_tape_of_states(lib: Any, n: int) -> float:
    """An explicit solver of two coupled equations whose states are all kept and interpolated at the end."""
    x, v, states = lib.ones(3), lib.zeros(3), []
    for _ in range(n):
        k1 = -x
        k2 = -(x + 0.005 * v)
        v = v + 0.01 * k2
        x = x + 0.01 * v + 0.00005 * k1
        states.append((x, v))
    xs, vs = lib.stack([s[0] for s in states]), lib.stack([s[1] for s in states])
    return float((xs * xs + vs * vs).mean())


@loop(600, loops=2)
def results_of_a_dictionary(lib: Any, n: int) -> float:
    """A compiled function over a dictionary of hundreds of tensors, which returns another, twenty calls."""
    def decayed(d: dict[str, Any]) -> dict[str, Any]:
        return {name: x * 0.9 + 0.1 for name, x in d.items()}
    called = lib.compile(decayed) if lib.__name__ == "genesis" else decayed
    d = {f"p{i}": lib.full((4,), i % 5.0) for i in range(n)}
    for _ in range(20):
        d = called(d)
    return float(lib.stack(list(d.values())).mean())


@loop(2000, loops=3)
def gradients_accumulated_by_hand(lib: Any, n: int) -> float:
    """For each of thousands of samples autograd.grad of a small loss, added to a list of sums."""
    ws = [lib.full((3,), 0.5 + 0.1 * k, requires_grad=True) for k in range(3)]
    sums = [lib.zeros(3) for _ in ws]
    for i in range(n):
        loss = ((ws[0] * ws[1] + ws[2] * (i % 3)) ** 2).sum()
        for s, g in zip(sums, lib.autograd.grad(loss, ws), strict=True):
            s += g
    return float(sum(s.sum() for s in sums)) / n
