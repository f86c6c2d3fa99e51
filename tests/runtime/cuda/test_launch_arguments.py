"""What CUDA reads of a launch's packed arguments is what the plan says, also after memory has moved."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import pytest

from genesis.runtime.cuda.device_tables import DeviceTables
from genesis.runtime.cuda.driver import SCRATCH_POINTERS
from genesis.runtime.cuda.launch_arguments import ArgumentLayout, Arguments
from genesis.runtime.cuda.stream import current_stream
from genesis.runtime.plan import Copy, Launch, MatrixMap, Table
from tests.runtime.kernels import GPU, image, place

BASES = {("input", 0): 1 << 20, ("input", 1): 2 << 20, ("arena", 0): 3 << 20, ("output", 0): 4 << 20}
MANY = 1 << 40
TABLE = Table((7, place("input", 0), place("arena", offset=512)))
STEPS = (Launch(image("scaled_add"), (place("input", 0), place("arena", offset=1024), -5, MANY), (1, 1, 1)),
         Copy(place("arena", offset=1024), place("output", 0)),
         Launch(image("increment_all"), (TABLE, place("input", 1)), (1, 1, 1)))


@pytest.fixture(autouse=True)
def pretended_gpu(host_driver):
    return host_driver


def packed(bases: dict) -> tuple[Arguments, DeviceTables]:
    layout = ArgumentLayout(STEPS)
    tables = DeviceTables(layout.tables, bases, GPU, current_stream(0).handle)
    return Arguments(layout, bases, tables), tables


def read(arguments: Arguments, step: int, count: int) -> list[int]:
    """The values behind the pointers, as 64 bits each."""
    pointers = (ctypes.c_void_p * count).from_address(arguments.of(step).address)
    return [ctypes.c_int64.from_address(pointer).value for pointer in pointers]


def test_values_are_addresses_numbers_and_two_nulls():
    arguments, tables = packed(dict(BASES))
    assert read(arguments, 0, 4 + SCRATCH_POINTERS) == [1 << 20, (3 << 20) + 1024, -5, MANY, 0, 0]
    assert read(arguments, 2, 2 + SCRATCH_POINTERS) == [tables.address, 2 << 20, 0, 0]
    assert arguments.addresses(1) == [4 << 20, (3 << 20) + 1024]


def test_a_number_of_32_bits_is_its_value_s_first_four_bytes():
    arguments, _ = packed(dict(BASES))
    pointers = (ctypes.c_void_p * 4).from_address(arguments.of(0).address)
    assert ctypes.c_int32.from_address(pointers[2]).value == -5


def test_moved_memory_is_elsewhere_in_the_same_values():
    bases = dict(BASES)
    arguments, _ = packed(bases)
    first = arguments.of(0)
    bases["input", 0] = 9 << 20
    arguments.update([("input", 0)])
    assert read(arguments, 0, 2) == [9 << 20, (3 << 20) + 1024]
    assert first.described()[0].address == 9 << 20


def test_an_interpreter_is_told_what_a_launch_may_reach():
    arguments, tables = packed(dict(BASES))
    x, t, count, many = arguments.of(0).described()
    assert (count, many) == (-5, MANY)
    assert x.reach == ((1 << 20, (1 << 20) + 800),) and t.address == (3 << 20) + 1024
    table, _ = arguments.of(2).described()
    start = tables.address
    assert table.reach == ((start, start + 24), (1 << 20, (1 << 20) + 800), ((3 << 20) + 512, (3 << 20) + 1312))


def test_a_matrix_s_map_is_made_once_for_all_steps_that_take_it_and_anew_where_it_moved(host_driver, monkeypatch):
    made: list[tuple[int, int, tuple[int, ...]]] = []
    monkeypatch.setattr(type(host_driver), "encode_map",
                        lambda self, target, address, dtype, sizes, strides, block: made.append(
                            (target, address, tuple(block))), raising=False)
    matrix = MatrixMap(place("arena", offset=512), (10, 20), 20, 3, (8, 8))
    other = MatrixMap(place("input", 0), (10, 20), 20, 0, (8, 8))
    kernels = [replace(image("scaled_add"), maps=blocks) for blocks in (((3, 8, 8),), ((3, 8, 8), (1, 8, 8)))]
    layout = ArgumentLayout((Launch(kernels[0], (matrix,), (1, 1, 1)), Launch(kernels[0], (5, matrix), (1, 1, 1)),
                             Launch(kernels[1], (matrix, matrix), (1, 1, 1)), Launch(kernels[0], (other,), (1, 1, 1))))
    bases = dict(BASES)
    arguments = Arguments(layout, bases, DeviceTables(layout.tables, bases, GPU, current_stream(0).handle))
    start, element = (3 << 20) + 512, place("arena").type.dtype.itemsize
    assert [(address, block) for _, address, block in made] == [
        (start + 3 * element, (3, 8, 8)), (start + 3 * element, (1, 8, 8)), (1 << 20, (3, 8, 8))]
    one, two, third = (target for target, _, _ in made)

    def pointers(step: int, count: int) -> list[int]:
        return list((ctypes.c_int64 * count).from_address(arguments.of(step).address))
    assert pointers(0, 1) == [one] and pointers(1, 2)[1] == one and pointers(3, 1) == [third]
    assert [pointers(2, 6)[at] for at in (0, 5)] == [one, two], "a map, and its sizes and strides"
    assert read(arguments, 1, 6)[0] == 5 and read(arguments, 1, 6)[2:] == [10, 20, 20, 1]
    made.clear()
    bases["input", 0] = 9 << 20
    arguments.update([("input", 0)])
    assert made == [(third, 9 << 20, (3, 8, 8))]


def test_users_of_a_memory_are_those_that_reach_it():
    layout = ArgumentLayout(STEPS)
    assert layout.users({("input", 0): 0}) == [0, 2]
    assert layout.users({("input", 1): 0}) == [2]
    assert layout.users({("output", 0): 0}) == [1]
    assert layout.users({("arena", 0): 0}) == [0, 1, 2]
    assert layout.users({("numbers", 0): 0}) == []
    assert layout.users({("input", 1): 5}) == layout.users({("input", 1): 9}) == [2], "wherever it is now"


def test_a_table_is_there_once_and_points_where_memory_is(host_driver):
    steps = (*STEPS, STEPS[2])
    layout = ArgumentLayout(steps)
    assert layout.tables.count == 3
    bases = dict(BASES)
    tables = DeviceTables(layout.tables, bases, GPU, current_stream(0).handle)

    def words() -> list[int]:
        return list((ctypes.c_int64 * 3).from_address(tables.address))
    assert words() == [7, 1 << 20, (3 << 20) + 512]
    bases["input", 0] = 9 << 20
    tables.move([("input", 0), ("output", 0)], bases, current_stream(0).handle)
    assert words() == [7, 9 << 20, (3 << 20) + 512]
