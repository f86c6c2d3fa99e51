"""The arguments of all launches of a plan, packed as CUDA takes them.

cuLaunchKernel wants an array of pointers to a launch's arguments. Here the arguments of all steps are one array of
8-byte values, each the start of a memory plus an offset; a number is an offset in no memory. So binding a plan to
addresses, or moving some of its memory, is one addition of arrays, and makes no object for an argument.

    launch 0 (x, 5), launch 1 (y):    memory  [x, -, -, -, y, -, -]
                                      offset  [0, 5, 0, 0, 0, 0, 0]      two nulls each: Triton's scratch pointers

A matrix's map is 128 bytes beside that array, made anew when the matrix has moved; its value in the array is the
address that it was made for. Its shape and strides follow it as numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from genesis.ir.place import MemoryRef, Place, memory_of
from genesis.ir.types import int64
from genesis.runtime.cuda.cuda_python_driver import driver
from genesis.runtime.cuda.device_tables import DeviceTables, TableLayout
from genesis.runtime.cuda.driver import MAP_ALIGNMENT, MAP_BYTES, SCRATCH_POINTERS, MappedMatrix, Pointer
from genesis.runtime.plan import Collective, Copy, Launch, MatrixMap, Step, Table

NOWHERE: MemoryRef = ("", 0)
"""Stands for the memory of an argument that is a number: it starts at address 0."""

TABLES: MemoryRef = ("tables", 0)
"""Stands for the memory that a plan's tables are in."""


class ArgumentLayout:
    """Which memory and offset each argument of a plan is, whatever the addresses: see the module's docstring.

    Attributes:
        steps: the steps that the arguments belong to. A copy has two arguments, destination and
            source, a collective its operands and results.
        tables: the layout of these steps' tables.
        starts: for each step the position of its first argument.
        memories: the memories that arguments are in, with the numbers that `memory` has for them.
        memory: int32[arguments]: the number of the memory that each argument is in.
        offset: int64[arguments]: the offset of each argument in its memory, in bytes.
        maps: (the map, how its block lies in shared memory), each once: a matrix that several steps take has one.
        map_positions: positions of the arguments that are a matrix's map.
        map_numbers: for each the number of its map.
        first_map: for each map the position of an argument that is it.

    Each new size of a program has one made: places and numbers come first, of which there are most.
    """

    def __init__(self, steps: Sequence[Step]):
        self.steps = steps
        self.tables = TableLayout(steps)
        self.starts: list[int] = []
        self.maps: list[tuple[MatrixMap, tuple[int, ...]]] = []
        of_map: dict[tuple[int, tuple[int, ...]], int] = {}
        map_positions: list[int] = []
        map_numbers: list[int] = []
        known: dict[MemoryRef, int] = {NOWHERE: 0, TABLES: 1}
        of_place: dict[int, int] = {}  # by its id: the steps keep it alive
        memory: list[int] = []
        offset: list[int] = []
        for step in steps:
            self.starts.append(len(memory))
            blocks = iter(step.kernel.maps if isinstance(step, Launch) else ())
            for x in _arguments_of(step):
                if isinstance(x, Place):
                    if (of_it := of_place.get(id(x))) is None:
                        of_it = of_place[id(x)] = known.setdefault(memory_of(x), len(known))
                    memory.append(of_it)
                    offset.append(x.offset)
                elif isinstance(x, int):
                    memory.append(0)
                    offset.append(x)
                elif isinstance(x, MatrixMap):
                    block = next(blocks, ())
                    number = of_map.setdefault((id(x), block), len(of_map))
                    if number == len(self.maps):
                        self.maps.append((x, block))
                    map_positions.append(len(memory))
                    map_numbers.append(number)
                    numbers = (*x.sizes, *x.strides)
                    memory += (known.setdefault(memory_of(x.place), len(known)), *[0] * len(numbers))
                    offset += (x.place.offset + x.start * x.place.type.dtype.itemsize, *numbers)
                else:
                    memory.append(1)
                    offset.append(self.tables.offset(x))
            if isinstance(step, Launch):
                memory += [0] * SCRATCH_POINTERS
                offset += [0] * SCRATCH_POINTERS
        self.memories = known
        self._by_table = [(number, argument.parts) for number, step in enumerate(steps)
                          if isinstance(step, Launch) for argument in step.args if isinstance(argument, Table)]
        self.map_positions, self.map_numbers = np.array(map_positions, np.int64), np.array(map_numbers, np.int64)
        self.first_map = np.zeros(len(self.maps), np.int64)
        self.first_map[self.map_numbers] = self.map_positions
        self.memory, self.offset = np.array(memory, np.int32), np.array(offset, np.int64)
        self._asked: tuple[frozenset[MemoryRef], list[int]] = frozenset(), []

    def users(self, moved: Mapping[MemoryRef, int]) -> list[int]:
        """The numbers of the steps that use one of these memories, also through a table. In a loop the same ones are
        asked for at each turn: the last answer is kept."""
        asked = frozenset(moved)
        if asked != self._asked[0]:
            used = np.zeros(len(self.memories), bool)
            used[[self.memories[memory] for memory in moved if memory in self.memories]] = True
            found = set((np.searchsorted(self.starts, np.flatnonzero(used[self.memory]), "right") - 1).tolist())
            found.update(number for number, parts in self._by_table if parts.reaches(moved))
            self._asked = asked, sorted(found)
        return self._asked[1]


def _arguments_of(step: Step) -> Sequence[Place | int | Table | MatrixMap]:
    """What a step is given."""
    if isinstance(step, Copy):
        return step.destination, step.source
    return (*step.operands, *step.results) if isinstance(step, Collective) else step.args


class Arguments:
    """The arguments of a plan's steps over given addresses."""

    def __init__(self, layout: ArgumentLayout, bases: Mapping[MemoryRef, int], tables: DeviceTables):
        self.layout, self.bases, self._tables = layout, bases, tables
        self._values = np.empty(len(layout.memory), np.int64)
        self._addresses = self._values.ctypes.data + 8 * np.arange(len(layout.memory), dtype=np.int64)
        self._address = self._addresses.ctypes.data
        self._starts = np.zeros(len(layout.memories), np.int64)
        self._mapped = [0] * len(layout.maps)
        room = np.zeros(MAP_BYTES * len(layout.maps) + MAP_ALIGNMENT, np.uint8)
        self._maps = room[-room.ctypes.data % MAP_ALIGNMENT:]
        self._map_address = self._maps.ctypes.data
        self._addresses[layout.map_positions] = self._map_address + MAP_BYTES * layout.map_numbers
        self.update(bases)

    def update(self, moved: Iterable[MemoryRef]) -> None:
        """Compute all arguments anew, with the addresses that are in `bases` now of these memories."""
        numbers, starts = self.layout.memories, self._starts
        starts[numbers[TABLES]] = self._tables.address
        for memory in moved:
            if memory in numbers:
                starts[numbers[memory]] = self.bases[memory]
        np.add(starts[self.layout.memory], self.layout.offset, out=self._values)
        addresses, encode_map = self._values[self.layout.first_map].tolist(), driver().encode_map
        for number, (address, before) in enumerate(zip(addresses, self._mapped, strict=True)):
            if address != before:
                x, block = self.layout.maps[number]
                encode_map(self._map_address + MAP_BYTES * number, address, x.place.type.dtype, x.sizes, x.strides,
                           block)
                self._mapped[number] = address

    def of(self, number: int) -> StepArguments:
        """The arguments of launch `number`, which follow later updates."""
        return StepArguments(self, number, self._address + 8 * self.layout.starts[number])

    def addresses(self, number: int) -> list[int]:
        """The addresses of copy `number`, destination and source, or of a collective's operands, then results."""
        start = self.layout.starts[number]
        found: list[int] = self._values[start:start + len(_arguments_of(self.layout.steps[number]))].tolist()
        return found

    def described(self, number: int) -> list[Pointer | MappedMatrix | int]:
        """The arguments of launch `number` with what their pointers point to."""
        step = self.layout.steps[number]
        assert isinstance(step, Launch)
        return [x if isinstance(x, int) else self._mapped_matrix(x) if isinstance(x, MatrixMap) else self._pointer(x)
                for x in step.args]

    def _mapped_matrix(self, x: MatrixMap) -> MappedMatrix:
        dtype, reach = x.place.type.dtype, self._range(x.place)
        return MappedMatrix(Pointer(reach[0] + x.start * dtype.itemsize, dtype, (reach,)), x.sizes, x.strides, x.block)

    def _pointer(self, argument: Place | Table) -> Pointer:
        if isinstance(argument, Place):
            reach = self._range(argument)
            return Pointer(reach[0], argument.type.dtype, (reach,))
        start = self._tables.address + self.layout.tables.offset(argument)
        targets = [self._range(place) for place in argument.parts.places]
        return Pointer(start, int64, ((start, start + 8 * len(argument.entries)), *targets))

    def _range(self, place: Place) -> tuple[int, int]:
        start = self.bases[memory_of(place)] + place.offset
        return start, start + place.type.nbytes


class StepArguments:
    """The arguments of one launch, as `Driver.prepare_launch` takes them.

    Attributes:
        address: where an array of pointers to the arguments is.
    """

    __slots__ = ("_all", "_number", "address")

    def __init__(self, all: Arguments, number: int, address: int):
        self._all, self._number, self.address = all, number, address

    def described(self) -> list[Pointer | MappedMatrix | int]:
        """The arguments as numbers, and as pointers with what they point to, for an interpreter."""
        return self._all.described(self._number)
