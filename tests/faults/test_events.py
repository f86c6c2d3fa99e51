"""Instants are those of the function that is run, and of nothing that ends meanwhile."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from typing import Any

import pytest

import genesis
from genesis.utils.data import DataLoader, TensorDataset
from tests.faults.events import AtExit, Place, Traced, chosen, injected, turns_of
from tests.faults.table import quiet_collector
from tests.faults.trial import RUNS, Bench, Program, unit_of


def test_a_pass_that_is_collected_meanwhile_is_no_instant() -> None:
    """One that an earlier test has left in a circle ends by lines of its room, in which an error would be dropped."""
    def loader(workers: int = 0) -> DataLoader:
        return DataLoader(TensorDataset(genesis.arange(4)), batch_size=2, num_workers=workers)

    def begun() -> None:
        """Begin a pass over a loader, where the collector looks at what came since the circle."""
        gc.set_threshold(50, 100, 100)
        left: list[Any] = [[] for _ in range(100)]
        iter(loader())
        del left
    threshold = gc.get_threshold()
    try:
        begun()
        lines = Traced("line", ("utils/data/",))
        expected = lines.places(begun)
        gc.set_threshold(0)
        circle: list[Any] = [batches := iter(loader(workers=1))]
        next(batches)
        circle.append(circle)
        del circle, batches
        assert lines.places(begun) == expected and gc.isenabled() and sys.gettrace() is None
    finally:
        gc.set_threshold(*threshold)


@pytest.mark.parametrize("kind", ["line", "opcode"])
def test_a_place_in_its_turn_is_the_instant_of_that_number(kind: str) -> None:
    """Loops, generators and lambdas of one line among them."""
    net = genesis.nn.Sequential(genesis.nn.Flatten(), genesis.nn.Sequential(genesis.nn.ReLU(), genesis.nn.Softmax(1)))

    def described() -> str:
        return repr(net)
    instants, last = Traced(kind), list[AtExit]()
    places = instants.places(described)
    turns, numbers = turns_of(places), chosen(places)
    assert len(numbers) > 30 and any(turns[at] > 1 for at in numbers)
    for at in numbers:
        last.clear()
        for inject in (lambda error, at=at: instants.fail(described, at, error),
                       lambda error, at=at: instants.fail_in_turn(described, places[at], turns[at], error)):
            with pytest.raises(KeyboardInterrupt, match="injected"):
                inject(injected(KeyboardInterrupt))
            last.append(instants.last)
        assert last[0] == last[1] and sys.gettrace() is None


def test_a_lines_instants_are_opcodes() -> None:
    """What the sweep need not raise at lines where it does at each opcode."""
    program = Program("reads")

    def noted(kind: str) -> Counter[Place]:
        found: list[Place] = []
        for unit in program.units:
            statement = unit_of(program.case(unit.first), unit).statement
            with Traced(kind)._installed(lambda frame: found.append(
                    Place(frame.f_code.co_filename, frame.f_lineno, frame.f_lasti))):
                statement.run()
        return Counter(found)
    with Bench("cpu"), quiet_collector():  # the engine has lines that run where a collection is near
        for unit in program.units:
            program.places(unit, "line")
        for _ in range(RUNS):  # whether a flush waits depends on those before it, of earlier tests too
            lines, opcodes, again = noted("line"), noted("opcode"), noted("line")
            if lines == again:
                break
    left = lines - opcodes  # how deep in functions other threads of the tests are differs in between
    assert lines.total() > 1000 and not [place for place in left if not place.file.endswith("frontend/threads.py")]
