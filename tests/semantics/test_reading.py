"""The short way to a value: when it is taken, and that it gives what the engine's gives."""

from __future__ import annotations

import weakref

import pytest

import genesis
from genesis import engine
from genesis.engine.short_read import DEEPEST, reading_of


@pytest.fixture
def plans():
    """The plans that are made while the test runs."""
    found = []
    with engine.observe(found.append):
        yield found


def given(*values):
    """Tensors with these values, in memory."""
    tensors = [genesis.tensor(value) for value in values]
    genesis.eval(*tensors)
    return tensors


def test_an_equal_program_runs_the_same_plan(plans):
    x, y = given([1.0, 2.0, 5.0], [3.0, 4.0, 6.0])
    assert (x * y).tolist() == [3.0, 8.0, 30.0]
    first = engine.last_plan()
    made = len(plans)
    assert (y * y[:]).tolist() == [9.0, 16.0, 36.0]  # one memory twice: another program
    assert engine.last_plan() is not first
    assert (y * x).tolist() == [3.0, 8.0, 30.0]
    assert engine.last_plan() is first and len(plans) == made + 1


def test_other_numbers_run_the_same_plan(plans):
    x, = given([1.0, 2.0])
    results = [((x + a) * b).tolist() for a, b in ((1.0, 2.0), (3.0, 3.0), (0.0, -0.0))]
    assert results == [[4.0, 6.0], [12.0, 15.0], [-0.0, -0.0]]
    assert len(plans) == 1


def test_other_sizes_dtypes_and_attributes_are_other_programs(plans):
    programs = [lambda x: x.sum(0), lambda x: x.sum(1), lambda x: x.sum(1, keepdim=True), lambda x: x.mean(0)]
    tensors = given([[1.5, 2.0], [3.0, 4.0]], [[1.5, 2.0, 3.0], [1.0, 3.0, 4.0]])
    tensors.append(tensors[0].double())
    for _ in range(2):
        for program in programs:
            for x in tensors:
                genesis.eval(x)
                assert program(x).tolist() == program(x.detach().clone().double()).tolist()
    assert len({id(plan) for plan in plans}) == len(plans)


def test_what_a_read_needs_besides_its_operands_is_the_engines():
    x, = given([1.0, 2.0])
    deep = x
    for _ in range(DEEPEST + 1):
        deep = genesis.sin(deep)
    assert reading_of(deep.storage) is None
    assert reading_of(x.storage) is None  # it is in memory
    with_gradient = (x.detach().requires_grad_() * 2).storage
    assert reading_of(with_gradient) is None
    written = x + 1
    genesis.eval(written)
    written.add_(1)
    assert reading_of(written.storage) is None  # it has memory to be written to
    assert written.tolist() == [3.0, 4.0]


def test_two_reads_of_one_node_have_memory_of_their_own():
    x, = given([1.0, 2.0])
    first = x * 2
    genesis.eval(first)
    second = x * 2
    genesis.eval(second)
    first.add_(1)
    assert second.tolist() == [2.0, 4.0] and first.tolist() == [3.0, 5.0]


def test_a_read_beside_live_tensors_and_pending_writes():
    x, y = given([1.0, 2.0], [5.0, 6.0])
    before = x * 3
    x.add_(y)
    assert (x * 3).tolist() == [18.0, 24.0]
    assert before.tolist() == [3.0, 6.0]


def test_a_read_that_fails_raises_again_and_harms_nothing():
    x, index = given([1.0, 2.0, 3.0], [0, 2])
    assert x.take(index).tolist() == [1.0, 3.0]
    wrong, = given([0, 9])
    taken = x.take(wrong)
    for _ in range(2):
        with pytest.raises(IndexError, match="index 9 is out of bounds"):
            taken.tolist()
    assert x.take(index).tolist() == [1.0, 3.0]


CONSTANTS = {
    "one value": lambda: genesis.zeros(50, 3), "indices": lambda: genesis.arange(50),
    "a comparison": lambda: genesis.eye(9), "several ops": lambda: genesis.ones(5).exp()}


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_constant_s_memory_goes_with_its_tensor(name):
    """The plan that makes it has the same node, which must not hold the memory, nor be copied from."""
    first = CONSTANTS[name]()
    expected, plan = first.tolist(), engine.last_plan()
    memory = weakref.ref(first.storage.cell.memory)
    del first
    assert memory() is None
    again = CONSTANTS[name]()
    assert again.tolist() == expected and engine.last_plan() is plan
    beside = CONSTANTS[name]()
    assert beside.tolist() == expected and engine.last_plan() is plan
