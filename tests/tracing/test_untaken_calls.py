"""Calls that no guard can stand for, in branches that are seldom taken: only the calls that take them are recorded."""

from __future__ import annotations

import logging
import random
import time
import warnings
from collections.abc import Callable
from random import randint
from typing import Any

import numpy as np
import pytest
from calls import Pair, ramp

import genesis
from genesis.tracing.code_reads import reads
from genesis.tracing.tracer import is_refused_when_called

LOG = logging.getLogger("test_untaken_calls")
LOG.addHandler(logging.NullHandler())
RANDOM = random.Random(0)


def of_c(x: Any, odd: bool) -> Any:
    return x * (random.random() * 0 + 3) if odd else x * 2


def of_a_library(x: Any, odd: bool) -> Any:
    if odd:
        LOG.info("odd %s", f"{x.shape}")
    return x * (3 if odd else 2)


def of_an_object(x: Any, odd: bool) -> Any:
    return x * (RANDOM.random() * 0 + 3) if odd else x * 2


def imported_by_name(x: Any, odd: bool) -> Any:
    return x * (randint(3, 3) if odd else 2)


def clock(x: Any, odd: bool) -> Any:
    start = time.perf_counter() if odd else 0
    return x * (3 if time.time() > start else 4) if odd else x * 2


def warned(x: Any, odd: bool) -> Any:
    if odd:
        warnings.warn("odd", stacklevel=1)
    return x * (3 if odd else 2)


@pytest.mark.parametrize("function", [of_c, of_a_library, of_an_object, imported_by_name, clock, warned])
@pytest.mark.filterwarnings("ignore:odd")
def test_only_calls_that_come_to_it_are_recorded(function: Callable[..., Any]) -> None:
    pair = Pair(function)
    for call in range(30):
        pair.same(ramp(2), call % 10 == 4)
    assert pair.compiled.hits >= 24, genesis.explain(pair.compiled)
    assert "it calls" in pair.refused and "test_untaken_calls.py:" in pair.refused


@pytest.mark.filterwarnings("ignore:odd")
def test_each_tenth_step_logs() -> None:
    layer = genesis.nn.Linear(2, 1)
    optimizer = genesis.optim.SGD(layer.parameters(), 0.1)

    class Trainer:
        steps = 0

        @genesis.compile
        def step(self, x: Any) -> Any:
            loss = layer(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.steps += 1
            if self.steps % 10 == 0:
                LOG.info("step %d", self.steps)
            return loss.detach()
    trainer = Trainer()
    for _ in range(60):
        trainer.step(ramp(4, 2))
    assert trainer.steps == 60 and genesis.explain(trainer.step).hits >= 40


def test_an_attribute_that_is_called_in_a_branch() -> None:
    class Model(genesis.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.log, self.draws = genesis.nn.Linear(2, 2), LOG, random.Random(0)
            self.clock = time.perf_counter

        def forward(self, x: Any, odd: bool) -> Any:
            if odd:
                self.log.info("odd %s", x.shape)
                x = x * (self.draws.random() * 0 + 2)
            return self.layer(x)
    model = Model()
    pair = Pair(model)
    pair.plain = lambda *given: Model.forward(model, *given)
    for call in range(30):
        pair.same(ramp(2), call % 10 == 4)
    explained = genesis.explain(model)
    assert explained.hits >= 24 and "it calls Logger.info" in explained

    class Drawing(Model):
        def forward(self, x: Any, odd: bool) -> Any:
            draw = self.draws
            return x * draw.random()
    drawing = genesis.compile(Drawing())
    assert len({drawing(ramp(1), False).item() for _ in range(6)}) == 6


def test_a_call_that_comes_each_time_draws_each_time() -> None:
    def direct(x: Any) -> Any:
        return x * random.random()

    def by_c(x: Any) -> Any:
        return x * sum(map(random.uniform, (0, 1), (1, 2)))

    def as_a_value(x: Any) -> Any:
        draw = random.random
        return x * draw()

    def in_a_tuple(x: Any) -> Any:
        return x * (random.random, x)[0]()

    def starred(x: Any, *ends: float) -> Any:
        return x * random.uniform(*(ends or (0, 1)))

    def of_numpy(x: Any) -> Any:
        return x * float(np.random.rand())
    assert 0 <= np.random.rand() < 1  # numpy imports this module when it is asked for, which no capture is to see
    for function in (direct, by_c, as_a_value, in_a_tuple, starred, of_numpy):
        compiled, found = genesis.compile(function), []
        for _ in range(6):
            found.append(compiled(ramp(1)).item())
        assert len(set(found)) == 6 and compiled.hits == 0, function


def test_which_names_are_only_called() -> None:
    def uses(x: Any) -> Any:
        time.time()
        warnings.warn("x", stacklevel=2)
        LOG.info(x)
        random.random()
        (random.gauss, x)[0](0, 1)
        randint(1, *x)
        time.sleep(random.betavariate(1, 2))
        return random.random
    called = reads(uses.__code__).only_called
    assert {("time", "time"), ("warnings", "warn"), ("LOG", "info"), ("random", "betavariate")} <= called
    assert called.isdisjoint({("random", "random"), ("random", "gauss"), ("randint",)})
    assert not is_refused_when_called(np.random.rand, ()) and not is_refused_when_called(np.random, ["rand"])
    assert not is_refused_when_called(of_c, ()) and not is_refused_when_called(len, ())
