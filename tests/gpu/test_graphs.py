"""Plans as CUDA graphs: what may overlap does, and the bits are those of one launch after another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.models import GPT, GPTConfig
from genesis.nn import functional as F
from genesis.runtime.cuda import executor as executor_cuda

from .compare import array, numbers
from .conftest import forget_plans


@pytest.fixture(autouse=True)
def every_plan_as_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short."""
    monkeypatch.setattr(executor_cuda, "STEPS_WITHOUT_GRAPH", 0)


def gpt_steps(count: int, compiled: bool) -> list[Any]:
    """Losses and parameters of a tiny GPT with dropout, clipping and AdamW."""
    genesis.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=16, context=4, layers=1, heads=2, dim=8, dropout=0.2)).to("cuda")
    optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-2)
    rng = np.random.default_rng(0)

    def step(ids: Any) -> Any:
        _, loss = model(ids[:, :-1].clone(), ids[:, 1:].clone())
        optimizer.zero_grad()
        loss.backward()
        genesis.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss
    run = genesis.compile(step) if compiled else step
    losses = [run(genesis.tensor(rng.integers(0, 16, (2, 5)), device="cuda")) for _ in range(count)]
    return [*map(array, losses), *(array(p.detach()) for p in model.parameters())]


def test_the_bits_of_a_graph_are_those_of_single_launches(cuda, monkeypatch):
    count = 20 if cuda.real else 3  # launched one by one, captured, replayed
    found = [gpt_steps(count, compiled=False), gpt_steps(count, compiled=True)]
    forget_plans()
    monkeypatch.setattr(executor_cuda, "STEPS_WITHOUT_GRAPH", 1 << 30)
    expected = gpt_steps(count, compiled=False)
    for of_graph in found:
        for x, y in zip(of_graph, expected, strict=True):
            np.testing.assert_array_equal(x, y)


def test_branches_and_memory_that_is_used_again(cuda, monkeypatch):
    """One kernel an op, so that the arena is reused while branches are under way."""
    monkeypatch.setattr(genesis.config, "fuse", False)
    size = 1 << 16 if cuda.real else 64
    x = genesis.tensor(numbers(size), device="cuda")

    def branch(x: Any, k: float) -> Any:
        for _ in range(6):
            x = (x * k + 0.5).abs()
        return x
    expected = None
    for _ in range(6):
        with genesis.no_grad():
            total = branch(x, 1.0) * branch(x, 2.0) - branch(x, 3.0) + branch(x, 4.0).sum() * 0
        found = array(total)
        expected = found if expected is None else expected
        np.testing.assert_array_equal(found, expected)
    plan = engine.last_plan()
    assert plan is not None and len(plan.plan.steps) > 30
    after = plan.executor._steps.after
    assert sum(not edges for edges in after) >= 2, "two branches start at once; later ones use their memory"


def test_two_streams_at_once(cuda):
    """Each stream trains its own model with the same plan; both read the same batch."""
    def models() -> tuple[Any, Any]:
        genesis.manual_seed(1)
        model = genesis.nn.Sequential(genesis.nn.Linear(6, 8), genesis.nn.GELU(), genesis.nn.Linear(8, 3)).to("cuda")
        return model, genesis.optim.AdamW(model.parameters(), lr=1e-2)
    x, y = genesis.tensor(numbers(5, 6), device="cuda"), genesis.tensor(np.arange(5) % 3, device="cuda")

    def step(model: Any, optimizer: Any) -> Any:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    count = 6 if cuda.real else 3  # launched one by one, captured, replayed
    alone = models()
    expected = [step(*alone).item() for _ in range(count)]
    pairs, streams = [models(), models()], [genesis.cuda.Stream(), genesis.cuda.Stream()]
    losses: list[list[Any]] = [[], []]
    for _ in range(count):
        for k in range(2):
            with genesis.cuda.stream(streams[k]):
                losses[k].append(step(*pairs[k]))
    for found in losses:
        assert [loss.item() for loss in found] == expected


def test_a_stream_without_a_name(cuda):
    x = genesis.tensor(numbers(8, 8), device="cuda")
    with genesis.cuda.stream():
        y = x @ x
        z = y + 1
    np.testing.assert_allclose(array(z), numbers(8, 8) @ numbers(8, 8) + 1, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(array(y * 2), array(y) * 2)


def test_events_count_what_was_recorded_before_them(cuda):
    x = genesis.tensor(numbers(16), device="cuda")
    start, end = genesis.cuda.Event(enable_timing=True), genesis.cuda.Event(enable_timing=True)
    start.record()
    y = x * 3
    end.record()
    assert y.storage.settled, "recording an event gives the GPU what came before"
    end.synchronize()
    assert end.query() and start.elapsed_time(end) >= 0
