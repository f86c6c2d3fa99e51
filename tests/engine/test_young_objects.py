"""Python's collector looks at young objects behind a flush, unless a recorded program is alive."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import traceback
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

import genesis
from genesis.engine.flushing import LOOKS
from genesis.engine.state import engine_state
from genesis.frontend.state import state
from genesis.ir.node import Node
from tests.short_limits import short_limits

limited = short_limits(nodes=4096, often=8, autouse=False)

NATURAL = 6
"""Looks at the youngest generation after which the collector goes on to the second by itself."""

OPS = 250
"""Ops whose objects the youngest generation does not hold at once."""


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Generations that were looked at, with a collector that does not go through everything, and nothing alive of tests
    before."""
    found: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "stop":
            found.append(about["generation"])
    before = gc.get_threshold()
    gc.set_threshold(700, NATURAL, 1 << 30)
    gc.collect()
    monkeypatch.setattr(state, "pending", {})
    monkeypatch.setattr(state, "differentiable", {})
    gc.callbacks.append(note)
    yield found
    gc.callbacks.remove(note)
    gc.set_threshold(*before)
    gc.enable()


def recorded(x: Any) -> Any:
    for _ in range(OPS):
        x = (x + 1).cos()
    return x


def test_young_objects_are_looked_at_when_a_long_program_is_over(collected: list[int]) -> None:
    x = genesis.ones(3)
    genesis.eval(x)
    recorded(x).tolist()  # tables know the ops from here on
    gc.collect()
    del collected[:]
    y = recorded(x)
    assert gc.get_count()[1] >= LOOKS and 1 not in collected
    y.tolist()
    assert collected.count(1) == 1 and gc.get_count()[1] < LOOKS


def test_a_graph_that_is_alive_is_not_taken_for_old(collected: list[int]) -> None:
    """A loss that is read before its backward, and values that wait while another one is read."""
    for _ in range(2):  # the first compiles
        waiting: Any = None
        y = None
        x = genesis.ones(3, requires_grad=True)
        gc.collect()
        del collected[:]
        y = recorded(x)
        y.sum().item()
        waiting, x = y.detach() * 2, genesis.ones(3)
        genesis.eval(x)
    assert gc.get_count()[1] >= LOOKS
    assert 1 not in collected and not waiting.isnan().any()


def test_a_collector_that_is_off_stays_off(collected: list[int]) -> None:
    y = recorded(genesis.ones(3))
    gc.disable()
    del collected[:]
    y.tolist()
    assert not collected and not gc.isenabled()


@pytest.mark.usefixtures("limited")
def test_a_piece_of_a_loop_is_not_taken_for_old(collected: list[int]) -> None:
    """A loop is cut in the middle of an op, which holds all that the piece was made of until it is over."""
    gc.set_threshold(700, 1 << 30, 1 << 30)
    alive: list[int] = []

    def count(phase: str, about: dict[str, int]) -> None:
        if phase == "start" and about["generation"] == 1:
            alive.append(sum(type(x) is Node for i in range(2) for x in gc.get_objects(generation=i)))
    u, v = genesis.linspace(0, 1, 32), genesis.zeros(32)

    def turns(n: int) -> None:
        for _ in range(n):
            v[1:-1] += 0.1 * (u[2:] - 2 * u[1:-1] + u[:-2])
            u[1:-1] += v[1:-1]
            u[0] = 0.0
    turns(200)
    gc.callbacks.append(count)
    ran = engine_state.ran
    turns(600)
    gc.callbacks.remove(count)
    assert engine_state.ran - ran >= 10, "it is cut"
    assert len(alive) >= 10 and max(alive[5:]) < 100


def test_young_objects_are_not_looked_at_more_often_than_the_collector_would(collected: list[int]) -> None:
    """What is alive behind a step, gradients and contents of parameters, is taken for old at each look."""
    gc.set_threshold(700, 1 << 20, 1 << 30)
    x = genesis.ones(3)
    genesis.eval(x)
    for _ in range(4):
        recorded(x).tolist()
        assert gc.get_count()[1] >= LOOKS
    assert 1 not in collected


def test_the_collector_stays_out_while_a_program_is_prepared_for_its_runs() -> None:
    """What a backward would read of a new program is found, and what the plan keeps is bound to memory."""
    found: set[str] = set()

    def note(phase: str, about: dict[str, int]) -> None:
        found.update(frame.name for frame in traceback.extract_stack(limit=40))
    w = genesis.ones(3, requires_grad=True)
    x = w
    for i in range(200):  # a program that no other test has
        x = (x * (i + 0.25)).sin() - i
    genesis.ones(1).tolist()
    before = gc.get_threshold()
    gc.set_threshold(20, 5, 1 << 30)
    gc.callbacks.append(note)
    try:
        loss = x.sum()
        loss.item()
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)
    assert "start" in found and "_prepared" in found, "it was looked at on the way"
    assert found.isdisjoint({"_positions_read", "_list", "compile_graph"})
    assert loss.requires_grad


LOOPS = """
import gc
import genesis
from genesis.runtime import collector

def loops(count=20):
    x = genesis.ones(3)
    for _ in range(count):
        y = x
        for _ in range(250):
            y = (y + 1).cos()
        y.tolist()

lines = compile("\\n".join(f"terms.append(((p[{i}] - p[{i + 1}]) ** 2).sum())" for i in range(1500)), "lines", "exec")

def recording():
    exec(lines, {"p": [genesis.ones(3, requires_grad=True) for _ in range(1501)], "terms": terms})

def views(count=6000):
    x = genesis.ones(9 * count, 1)
    for i in range(count):
        x = x[i % 7:]

terms = []
found = []
gc.callbacks.append(lambda phase, about: found.append(about["generation"]) if phase == "stop" else None)
loops()
gc.disable()
gc.collect()
made = [[] for _ in range(len(gc.get_objects()) // 2)]  # as `import torch`: a third of what there is, and taken for old
gc.collect(1)
collector.last_collection.is_recent()
gc.set_threshold(700, 6, 3)
gc.enable()
del found[:]
"""
"""A new process whose collector counts far less than there is."""


CHECKS = {
    "nothing new": "loops(); print(found.count(1) > 10, found.count(2))",
    "twice as much": "collector.last_collection.blocks //= 4; loops(); print(found.count(1) > 10, found.count(2))",
    "nothing new later": "gc.collect(); del found[:]; loops(100); print(found.count(1) > 10, found.count(2))",
    "one recording": "gc.set_threshold(700, 6, 6); recording(); print(found.count(1) > 4, found.count(2))",
    "one recording that doubles": "gc.set_threshold(700, 6, 6); collector.last_collection.blocks //= 4; "
                                       "recording(); print(found.count(1) > 4, found.count(2))",
    "garbage": "gc.collect(1); gc.collect(1); ring = [{1}]; ring.append(ring); gone = weakref.ref(ring[0]); "
               "ring = None; collector.put_off_collection(); print(gc.get_count()[2] == 0, gone() is None)",
    "views": "views(); print(found.count(1) > 10, found.count(2))",
    "frozen and asked": "gc.freeze(); gc.collect(1); gc.collect(1); collector.put_off_collection(); gc.collect(1); "
                        "looks = gc.get_count()[2]; collector.put_off_collection(); print(gc.get_count()[2] == looks)",
    "frozen": "gc.freeze(); kept = gc.get_freeze_count(); loops(); loops(); "
              "print(gc.get_freeze_count() > kept // 2 > 0)",
}
"""What is done there, each in a child of that process of its own: all begin with the same objects."""

CHILDREN = """
for check in json.loads(sys.argv[1]):
    if (child := os.fork()) == 0:
        exec(check)
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


@cache
def looked_at() -> dict[str, str]:
    """What each check prints."""
    done = subprocess.run([sys.executable, "-c", "import json, os, sys, weakref" + LOOPS + CHILDREN,
                           json.dumps(list(CHECKS.values()))],
                          capture_output=True, text=True, check=True, timeout=120)
    return dict(zip(CHECKS, done.stdout.splitlines(), strict=True))


def test_everything_is_not_gone_through_because_of_what_was_imported() -> None:
    assert looked_at()["nothing new"] == "True 0"


def test_everything_is_not_gone_through_because_of_programs_that_are_over() -> None:
    """The collector counts a program's nodes as it takes them for old, and never takes them off again."""
    assert looked_at()["nothing new later"] == "True 0"


def test_everything_is_not_gone_through_in_a_long_recording() -> None:
    assert looked_at()["one recording"] == "True 0"


def test_everything_is_gone_through_in_a_recording_that_doubles_it() -> None:
    assert looked_at()["one recording that doubles"] == "True 1"


def test_everything_is_gone_through_once_there_is_twice_as_much() -> None:
    """From then on the collector knows how much there is."""
    assert looked_at()["twice as much"] == "True 1"


def test_what_a_program_has_frozen_stays_frozen() -> None:
    assert looked_at()["frozen"] == "True"


def test_what_a_step_s_result_kept_alive_is_looked_at_when_gradients_are_let_go_of(collected: list[int]) -> None:
    """A model's scores hold what they were made of behind the flush. Nobody does when the next step begins."""
    gc.set_threshold(700, 1 << 30, 1 << 30)
    w = genesis.ones(3, requires_grad=True)
    optimizer = genesis.optim.SGD([w], lr=0.1)

    def step() -> Any:
        scores = recorded(w)
        scores.sum().backward()
        optimizer.step()
        return scores
    step()  # tables know the ops from here on
    optimizer.zero_grad()
    gc.collect()
    scores = step()
    gc.set_threshold(700, gc.get_count()[1] + 1, 1 << 30)
    del collected[:]
    optimizer.zero_grad()
    assert not collected, "what the scores hold would be taken for old"
    del scores
    optimizer.zero_grad()
    assert collected == [1]


def test_garbage_is_not_taken_for_old_where_everything_is_not_gone_through() -> None:
    """What a cycle holds, such as a batch, would be held until there is twice as much."""
    assert looked_at()["garbage"] == "True True"


def test_views_that_were_not_seen_before_put_the_look_at_everything_off() -> None:
    """Nothing else is asked where only views are made."""
    assert looked_at()["views"] == "True 0"


def test_where_objects_are_frozen_it_is_not_asked_again_and_again() -> None:
    """Each time they are counted, and the young objects looked at."""
    assert looked_at()["frozen and asked"] == "True"
