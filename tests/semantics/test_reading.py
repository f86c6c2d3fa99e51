"""The short way to a value: when it is taken, and that it gives what the engine's gives."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.engine.short_read import DEEPEST, reading_of, short_read
from genesis.ir.walk import computed


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


# What is live besides

def read_twice(program):
    """The program's result, after an equal one was computed; whether a short read computes it."""
    genesis.eval(program())
    result = program()
    return result, short_read(result.storage)


def test_a_tensor_that_waits_for_something_else_stays_as_it_is():
    x, = given([1.0, 2.0])
    waiting = genesis.zeros(3) + 1
    result, short = read_twice(lambda: (x * 2).sum())
    assert short and result.storage.settled and not waiting.storage.settled
    assert result.item() == 6.0 and waiting.tolist() == [1.0] * 3


def test_live_values_on_the_way_get_their_content():
    x, = given([1.0, 2.0])
    held = []

    def program():
        held[:] = [x * 2, x + 1]
        return (held[0] * held[1]).sum()
    result, short = read_twice(program)
    assert short and all(y.storage.settled for y in held)
    assert [y.tolist() for y in held] == [[2.0, 4.0], [2.0, 3.0]] and result.item() == 16.0


def test_a_pending_write_is_not_left_behind():
    x, counter = given([1.0, 2.0], [0.0])
    genesis.eval((x * 2).sum())
    counter.add_(1)
    result = (x * 2).sum()
    assert not short_read(result.storage)
    assert result.item() == 6.0 and counter.storage.settled


def test_a_value_that_gradients_flow_through_can_be_differentiated_after_its_read():
    w = genesis.tensor([1.0, 2.0], requires_grad=True)
    x, = given([3.0, 4.0])
    for _ in range(3):
        result, short = read_twice(lambda: (w * x).sum())
        assert short and result.item() == 11.0
        result.backward()
        assert w.grad.tolist() == [3.0, 4.0]
        w.grad = None


def test_what_a_backward_used_is_kept_again():
    """A forward that no backward followed keeps nothing the next time; one that a backward went through does."""
    w = genesis.eye(3).requires_grad_()
    genesis.eval(w)

    def program():
        return ((w @ w) @ w).sum()
    genesis.eval(program())  # keeps w @ w, in vain
    result, short = read_twice(program)
    assert short and not keeps_product(result)
    result.backward()
    assert w.grad.tolist() == [[3.0] * 3] * 3
    for _ in range(3):
        result = program()
        assert short_read(result.storage) and keeps_product(result)
        w.grad = None
        result.backward()
        assert w.grad.tolist() == [[3.0] * 3] * 3


def test_a_view_of_what_is_there_is_read_without_a_program():
    x = genesis.arange(24, dtype=genesis.float32).reshape(2, 3, 4)
    genesis.eval(x)
    before = engine.last_plan()
    expected = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for at in (np.s_[1], np.s_[:, 1:], np.s_[0, ::2, 3], np.s_[..., 1:3], np.s_[:, None]):
        assert x[at].tolist() == expected[at].tolist()
    assert x.permute(2, 0, 1).tolist() == expected.transpose(2, 0, 1).tolist()
    assert x[:, :1].expand(2, 5, 4).tolist() == np.broadcast_to(expected[:, :1], (2, 5, 4)).tolist()
    assert engine.last_plan() is before
    x[1, 0] = 7.0  # pending: it is computed first
    assert x[1, 0].tolist() == [7.0] * 4 and x[0, 0].tolist() == [0.0, 1.0, 2.0, 3.0]


def keeps_product(result):
    """Whether the first product of ((w @ w) @ w).sum() is in memory."""
    return computed(result.storage.node.inputs[0].inputs[0])


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int64", "uint8", "bool"])
def test_one_element_of_memory_is_read_in_place(dtype):
    x = genesis.tensor([0, 1, 3, 1]).to(getattr(genesis, dtype))
    views = x.view(2, 2), x.view(2, 2).t()
    want = np.array([0, 1, 3, 1]).astype(bool if dtype == "bool" else float)
    for y, places in zip(views, ([0, 1, 2, 3], [0, 2, 1, 3]), strict=True):
        found = [y[i, j].item() for i in range(2) for j in range(2)]
        assert found == [want[at] for at in places]
        assert all(type(v) is (bool if dtype == "bool" else float if x.is_floating_point() else int) for v in found)
    y = x + x  # a result of torch's, not yet seen as bytes
    assert y[2].item() == (True if dtype == "bool" else 6)
