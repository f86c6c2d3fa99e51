"""Edges between steps: every hazard has a path, no edge says what others say already."""

from __future__ import annotations

import random

import pytest

from genesis.ir.types import Device, float32, tensor_type
from genesis.runtime.plan import Collective, Copy, KernelImage, Launch, Place, Table
from genesis.runtime.plan_edges import edges_of

KERNEL = KernelImage("kernel", b"", 4, 0)


def part(start: int, end: int, where: str = "arena", index: int = 0) -> Place:
    """Bytes [4·start, 4·end) of a memory."""
    return Place(where, index, 4 * start, tensor_type((end - start,), float32, Device("cuda")))


def launch(reads: list[Place], writes: list[Place], shared: tuple[Place, ...] = ()) -> Launch:
    return Launch(KERNEL, (*reads, *writes, *shared), (1, 1, 1), writes=(*writes, *shared), shared=shared)


A, B, C, D = (part(10 * i, 10 * i + 10) for i in range(4))


def test_read_after_write_and_independent_branches():
    assert edges_of([launch([A], [B]), launch([A], [C]), launch([B, C], [D])]) == ((), (), (0, 1))


def test_what_follows_is_left_out():
    assert edges_of([launch([], [A]), launch([A], [B]), launch([A, B], [C])]) == ((), (0,), (1,))


def test_a_value_that_another_overwrites():
    assert edges_of([launch([], [A]), launch([A], [B]), launch([], [A])]) == ((), (0,), (1,))
    assert edges_of([launch([], [A]), launch([], [A])]) == ((), (0,))


def test_readers_do_not_wait_for_each_other():
    assert edges_of([launch([], [A]), launch([A], [B]), launch([A], [C]), launch([], [A])]) == ((), (0,), (0,), (1, 2))


def test_ranges_that_overlap_in_part():
    steps = [launch([], [part(0, 8)]), launch([], [part(8, 16)]), launch([], [part(4, 12)]), launch([part(0, 4)], [C]),
             launch([part(7, 9)], [D])]
    assert edges_of(steps) == ((), (), (0, 1), (0,), (2,))


def test_parts_of_one_value_do_not_wait_for_each_other():
    steps = [launch([], [A]), launch([A], [B]),  # what was there before
             launch([C], [], (A,)), launch([D], [], (A,)), launch([A], [C]), launch([A], [D])]
    assert edges_of(steps) == ((), (0,), (1,), (1,), (2, 3), (2, 3))


def reduction(of: Place) -> Collective:
    return Collective("all_reduce", "all", (of, ORDER), (of, ORDER))


ORDER = part(90, 91)


def test_an_update_waits_for_its_own_bucket_and_nothing_of_backward_for_any():
    """A layer's gradients of its weight and of its input, twice, and two updates."""
    weight, other = part(40, 50), part(50, 60)
    steps = [launch([A], [B]), launch([A], [weight]), reduction(weight), launch([B], [C]), launch([B], [other]),
             reduction(other), launch([C], [D]), launch([weight], [part(60, 70)]), launch([other], [part(70, 80)])]
    assert edges_of(steps) == ((), (), (1,), (0,), (0,), (2, 4), (3,), (2,), (5,))


def test_what_was_read_is_another_value():
    """Parts of a value that takes the memory of one that was made of parts wait for its readers."""
    steps = [launch([], [], (A,)), launch([], [], (A,)), launch([A], [B]), launch([], [], (A,)), launch([], [], (A,)),
             launch([A], [C]), launch([], [A])]
    assert edges_of(steps) == ((), (), (0, 1), (2,), (2,), (3, 4), (5,))


def test_parts_in_memory_that_several_values_had():
    steps = [launch([], [part(0, 8)]), launch([], [part(8, 20)]), launch([], [], (part(4, 12),)),
             launch([], [], (part(4, 12),)), launch([part(0, 8)], [C]), launch([], [part(10, 12)])]
    assert edges_of(steps) == ((), (), (0, 1), (0, 1), (2, 3), (2, 3))


def test_in_place_is_no_edge_to_itself():
    assert edges_of([launch([A], [A]), launch([A], [A])]) == ((), (0,))


def test_memories_are_kept_apart_and_numbers_are_only_read():
    x, y = part(0, 8, "input", 0), part(0, 8, "input", 1)
    number = part(0, 2, "numbers")
    assert edges_of([launch([number], [x]), launch([number], [y]), launch([number], [part(0, 8, "output", 0)])]) == (
        (), (), ())


def test_copies_and_tables():
    table = Table((3, part(0, 8, "input", 0), part(0, 8, "input", 1)))
    foreach = Launch(KERNEL, (table,), (1, 1, 1), writes=(part(0, 8, "input", 0),))
    steps = [Copy(part(0, 8, "input", 0), A), foreach, Copy(part(0, 8, "input", 1), B), Copy(part(0, 8, "input", 0), C)]
    assert edges_of(steps) == ((), (0,), (), (1,))


def test_a_launch_that_does_not_say_may_write_everything():
    unknown = Launch(KERNEL, (A, B), (1, 1, 1))
    assert edges_of([unknown, launch([A], [C]), unknown]) == ((), (0,), (1,))


@pytest.mark.parametrize("seed", range(20))
def test_random_programs_have_exactly_the_paths_that_hazards_need(seed):
    draw = random.Random(seed)

    def some() -> list[Place]:
        starts = [draw.randrange(60) for _ in range(draw.randrange(3))]
        return [part(start, start + draw.randrange(1, 12)) for start in starts]
    steps = [launch(some(), some()) for _ in range(60)]
    edges = edges_of(steps)

    def cells(places) -> set[int]:
        return {cell for place in places for cell in range(place.offset, place.offset + place.type.nbytes)}
    reads = [cells(step.args) for step in steps]
    writes = [cells(step.writes) for step in steps]
    wanted: list[set[int]] = []  # by brute force: all that must be done before
    for at in range(len(steps)):
        before = {i for i in range(at) if writes[i] & (reads[at] | writes[at]) or reads[i] & writes[at]}
        wanted.append(before.union(*(wanted[i] for i in before)))
    found: list[set[int]] = []
    for after in edges:
        found.append(set(after).union(*(found[i] for i in after)))
    assert found == wanted
    assert all(not (set(after) & set().union(*(found[i] for i in after))) for after in edges), "an edge is superfluous"
