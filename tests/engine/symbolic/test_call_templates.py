"""On the CPU a program that comes with another size is filled in from a template: the plan, to the bit, of its size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import genesis
import genesis.nn.functional as F
from genesis import engine, nn
from genesis.engine import observe
from genesis.models.gpt import GPT, GPTConfig
from genesis.runtime.plan import Call, Place, Plan

LATER = (6, 11, 24, 40)
"""Sizes that are filled in: larger and smaller ones than the first two, and a multiple of 8."""


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """An engine that knows nothing of what ran before, and forgets what ran here."""
    engine.reset()
    yield
    engine.reset()


def data(*shape: int) -> Any:
    size = int(np.prod(shape))
    return genesis.tensor(np.sin(np.arange(size, dtype=np.float32)).reshape(shape))


def statistics(n: int) -> list[Any]:
    x = data(n, 5)
    return [x.mean(0), x.std(), x.var(1), x.median(0).values, (x - x.mean()) / x.std(), x.softmax(0), x.logsumexp(0)]


def rows(n: int) -> list[Any]:
    x = data(n, 4)
    grown = genesis.cat([x, data(3, 4)])
    return [grown, grown[1:-1].flip(0), grown.view(-1)[::2], F.pad(x, (1, 1)), x.t().contiguous(),
            genesis.roll(x, 2, 0), x.cumsum(0), x.sort(0).values, x.topk(3, 0).indices, genesis.tril(x @ x.t()),
            x.repeat(2, 1), x.chunk(2)[1]]


def indexed(n: int) -> list[Any]:
    x, places = data(n, 4), genesis.arange(n).flip(0) % 5
    return [x[places], genesis.zeros(5, 4).index_add(0, places, x), x.gather(0, places[:, None].expand(n, 4)),
            F.one_hot(places, 5).float().t() @ x, genesis.arange(n)]


def trained(make: Callable[[], Any], batch: Callable[[int], Any]) -> Callable[[int], list[Any]]:
    """A model's step: its loss, and the parameters after it."""
    def step(n: int) -> list[Any]:
        genesis.manual_seed(0)
        model = make()
        genesis.eval(list(model.parameters()))
        optimizer = genesis.optim.AdamW(model.parameters(), lr=0.1)
        loss = (model(batch(n)) ** 2).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return [loss, *model.parameters()]
    return step


def language(n: int) -> list[Any]:
    genesis.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=51, context=64, layers=2, heads=2, dim=8))
    genesis.eval(list(model.parameters()))
    tokens = genesis.tensor(np.arange(3 * (n + 1)).reshape(3, n + 1) % 51)
    logits = model(tokens[:, :-1])
    logits = logits[0] if isinstance(logits, tuple) else logits
    loss = F.cross_entropy(logits.reshape(-1, 51), tokens[:, 1:].reshape(-1))
    loss.backward()
    return [loss, *(p.grad for p in model.parameters())]


PROGRAMS = {
    "statistics": statistics, "rows": rows, "indices": indexed, "a GPT over lengths": language,
    "perceptron": trained(lambda: nn.Sequential(nn.Linear(5, 7), nn.GELU(), nn.LayerNorm(7), nn.Dropout(0.5),
                                                nn.Linear(7, 2)), lambda n: data(n, 5)),
    "convolutions": trained(lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(),
                                                  nn.MaxPool2d(2), nn.Flatten(2)), lambda n: data(2, 2, n, 12)),
    "a recurrent layer": trained(lambda: _Last(), lambda n: data(2, n, 3)),
}


class _Last(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(3, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.layer(x)[0][:, -1]


def computed(program: Callable[[Any], list[Any]], n: Any) -> list[Any]:
    found = program(n)
    genesis.eval(*found)
    return [x.detach().numpy() for x in found]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_plan_that_is_filled_in_gives_the_bits_of_the_one_that_is_compiled(name: str) -> None:
    program, origins = PROGRAMS[name], list[str]()
    with observe(lambda compiled: origins.append(compiled.origin)):
        for n in (9, 13):
            computed(program, n)
        found = {n: computed(program, n) for n in LATER}
    assert origins.count("other size") >= len(LATER) - 1  # sizes that are as large as a number of the program are not
    for n in LATER:
        engine.reset()
        for a, b in zip(found[n], computed(program, n), strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def plain(plan: Plan) -> list[object]:
    """What a plan of calls is: types, and each call with its attributes and the types of what it works on. In which
    order values are made, and so where they lie, follows from the sizes that a template was made for."""
    def kinds(registers: tuple[int, ...]) -> list[object]:
        return [x.type if isinstance(x, Place) else x for x in map(plan.registers.__getitem__, registers)]
    calls = [(call.label, call.kind, call.attributes, kinds(call.args), kinds(call.outs)) for call in plan.steps
             if isinstance(call, Call)]
    return [plan.inputs, plan.outputs, plan.updates, plan.numbers, sorted(map(repr, calls))]


def test_it_is_the_same_plan() -> None:
    """Where no number follows from sizes: 1 / n is folded over plain numbers, and divided by a call here."""
    plans: list[Any] = []
    step = PROGRAMS["rows"]
    with observe(plans.append):
        for n in (9, 13, 21):
            computed(step, n)
        filled = plans[-1]
        engine.reset()
        computed(step, 21)
    assert filled.origin == "other size" and plans[-1].origin == "compiled"
    assert plain(filled.plan) == plain(plans[-1].plan)


def test_one_size_alone_is_compiled_over_plain_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs whose sizes never change pay nothing for those that do."""
    from genesis.engine.symbolic import call_template
    monkeypatch.setattr(call_template.CallTemplate, "__init__", lambda *given: pytest.fail("a template was made"))
    for _ in range(2):
        computed(statistics, 9)


def test_a_guard_that_does_not_hold_makes_another_template() -> None:
    """What a pass asks of a size divides the sizes: each side has a template, and fills in its own."""
    def turned(n: int) -> list[Any]:
        return [genesis.cat([data(n, 6), data(8, 6)])[:20] * 2]  # a slice that is whole up to 12 rows
    origins: list[str] = []
    with observe(lambda compiled: origins.append(compiled.origin)):
        for n in (9, 10, 11, 17, 18, 19, 21, 23, 10, 22):
            computed(turned, n)
    assert origins.count("compiled") <= 5 and origins[-1] == "other size"


def test_the_size_that_a_program_names_by_chance_is_compiled_by_itself() -> None:
    """As long as a weight is wide, a batch cannot be told from it."""
    step = PROGRAMS["perceptron"]
    found = {n: computed(step, n) for n in (9, 13, 7, 5, 21)}
    for n, values in found.items():
        engine.reset()
        assert all(a.tobytes() == b.tobytes() for a, b in zip(values, computed(step, n), strict=True))


def test_a_cache_that_grows_stops_compiling() -> None:
    """Keys that are appended token by token: a size is met once, and never compiled after the first few."""
    origins: list[str] = []
    query, row = data(1, 4), data(1, 4)
    with observe(lambda compiled: origins.append(compiled.origin)):
        keys = data(3, 4)
        for _ in range(40):
            keys = genesis.cat([keys, row * len(keys)])
            ((query @ keys.t()).softmax(-1) @ keys).tolist()
    assert origins.count("compiled") <= 6 and origins[20:].count("compiled") == 0


def parted(counts: tuple[int, ...]) -> list[Any]:
    """Rows that are shared out to layers by what they hold, as experts take them: so many to each."""
    x, kind = data(sum(counts), 6), genesis.tensor(np.repeat(np.arange(len(counts)), counts))
    out = genesis.zeros_like(x)
    for k in range(len(counts)):
        rows, = genesis.where(kind == k)
        out[rows] += (x[rows] @ data(6, 6) * (k + 1)).tanh()
    return [out, x[kind == 1]]


def test_counts_that_meet_and_part_are_not_compiled_each_time() -> None:
    """Once some count is another one, all are sizes of their own, whichever are equal in the run at hand."""
    parts = [(30, 30, 40), (30, 29, 41), (28, 36, 36), (40, 30, 30), (31, 38, 31), (50, 33, 17), (20, 70, 10)]
    origins, found = list[str](), list[list[Any]]()
    with observe(lambda compiled: origins.append(compiled.origin)):
        for counts in parts[:3]:
            found.append(computed(parted, counts))
        for counts in parts[3:]:
            before = len(origins)
            found.append(computed(parted, counts))
            assert "compiled" not in origins[before:]
    for counts, values in zip(parts, found, strict=True):
        engine.reset()
        assert all(a.tobytes() == b.tobytes() for a, b in zip(values, computed(parted, counts), strict=True))


def test_rows_that_a_constant_mask_chooses_stay_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from genesis.engine.symbolic import call_template
    monkeypatch.setattr(call_template.CallTemplate, "__init__", lambda *given: pytest.fail("a template was made"))
    for _ in range(3):
        computed(parted, (4, 5, 6))


def read_at(n: int, at: int) -> list[Any]:
    x = data(n, 4)
    return [x[at] * 2 + x.sum(0), (x - x[at:at + 2].mean(0)).exp()]


def written_at(n: int, at: int) -> list[Any]:
    x = data(n, 4) + 0
    x[at:at + 2] = data(2, 4) * 5
    return [x, x * x]


def differentiated_at(n: int, at: int) -> list[Any]:
    x = data(n, 4).requires_grad_()
    loss = (x[at] @ x.t()).softmax(-1).square().sum()
    loss.backward()
    return [loss, x.grad]


SIZES_AND_PLACES = [(9, 3), (12, 5), (13, 2), (30, 17), (11, 0), (40, 33), (8, 6), (21, 4)]


@pytest.mark.parametrize("program", [read_at, written_at, differentiated_at])
def test_places_that_move_while_sizes_change_are_filled_in(program: Callable[[int, int], list[Any]]) -> None:
    """A place was a number of the template, which served no other program. One at the beginning may have its own."""
    origins, found = list[str](), list[list[Any]]()
    with observe(lambda compiled: origins.append(compiled.origin)):
        for n, at in SIZES_AND_PLACES:
            found.append(computed(lambda n, at=at: program(n, at), n))
    assert origins.count("compiled") <= 3 and origins.count("other size") >= len(SIZES_AND_PLACES) - 3
    for (n, at), values in zip(SIZES_AND_PLACES, found, strict=True):
        engine.reset()
        for a, b in zip(values, computed(lambda n, at=at: program(n, at), n), strict=True):
            assert a.shape == b.shape and a.tobytes() == b.tobytes()


def test_boxes_that_are_taken_out_one_by_one_stop_compiling() -> None:
    """Suppression of detections: the best box, wherever it is, and those of the others that overlap it little."""
    rng = np.random.default_rng(3)
    corners = rng.random((40, 2)).astype(np.float32)
    boxes = genesis.tensor(np.concatenate([corners, corners + 0.05], 1))
    scores = genesis.tensor(rng.random(40).astype(np.float32))
    order, kept, origins = scores.argsort(descending=True), list[int](), list[str]()
    with observe(lambda compiled: origins.append(compiled.origin)):
        while len(order) > 3:
            best, order = int(order[0]), order[1:]
            kept.append(best)
            low = genesis.maximum(boxes[order][:, :2], boxes[best][:2])
            high = genesis.minimum(boxes[order][:, 2:], boxes[best][2:])
            shared = (high - low).clamp(min=0).prod(1)
            order = order[shared <= 0.3 * 0.05 ** 2]
    assert len(kept) > 20 and origins[len(origins) // 2:].count("compiled") <= 2
