"""The tables of a plan in device memory: arrays of addresses and numbers that kernels read.

An optimizer's table has tens of thousands of entries, and is the same object in the plans for all batch sizes: the
part of the work that depends on no address is done once for each table (`Table.parts`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import numpy as np

from genesis.ir.place import MemoryRef
from genesis.ir.types import Device
from genesis.runtime.cuda.cuda_python_driver import driver
from genesis.runtime.cuda.device_checks import failure_word
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.host_bytes import address_of
from genesis.runtime.plan import Launch, Step, Table, TableParts

ALIGNMENT: Final = 2
"""Entries (of 8 bytes) that a table's start is a multiple of: a kernel may load 16 bytes at once."""


class TableLayout:
    """The position of each table of the steps in one piece of device memory.

    Attributes:
        count: how many entries all tables have.
    """

    def __init__(self, steps: Iterable[Step]):
        self.count = 0
        self.tables: list[tuple[Table, int]] = []
        self._start_of: dict[int, int] = {}
        for step in steps:
            for argument in step.args if isinstance(step, Launch) else ():
                if isinstance(argument, Table) and id(argument) not in self._start_of:
                    self.count += -self.count % ALIGNMENT
                    self._start_of[id(argument)] = self.count
                    self.tables.append((argument, self.count))
                    self.count += len(argument.entries)

    def offset(self, table: Table) -> int:
        """The position of the table's first byte."""
        return 8 * self._start_of[id(table)]


class DeviceTables:
    """All tables of a plan in one piece of device memory.

    Attributes:
        address: where that piece begins.

    Raises:
        OutOfMemoryError: there is no memory for them.
    """

    def __init__(self, layout: TableLayout, bases: Mapping[MemoryRef, int], device: Device, stream: object):
        self._layout = layout
        self._host = np.zeros(layout.count, np.int64)
        for table, start in layout.tables:
            parts = table.parts
            self._host[start:start + len(table.entries)] = parts.numbers
            for position, check in parts.checks:
                self._host[start + position] = failure_word(check)
            self._point(parts, start, bases)
        self._memory = CUDAStorage(self._host.nbytes, device)
        self.address = self._memory.ptr
        if layout.count:
            self._write(0, layout.count, stream)

    def move(self, moved: Collection[MemoryRef], bases: Mapping[MemoryRef, int], stream: object) -> None:
        """Write the new addresses of moved memories, after the GPU's earlier work has read the old ones."""
        for table, start in self._layout.tables:
            parts = table.parts
            if parts.reaches(moved):
                self._point(parts, start, bases)
                changed = [parts.memories[memory] for memory in moved if memory in parts.memories]
                positions = parts.positions[np.isin(parts.memory, changed)]
                self._write(start + int(positions[0]), start + int(positions[-1]) + 1, stream)

    def _point(self, parts: TableParts, start: int, bases: Mapping[MemoryRef, int]) -> None:
        """Fill in the addresses of the table's places, on the host."""
        starts = np.array([bases[memory] for memory in parts.memories], np.int64)
        self._host[start + parts.positions] = starts[parts.memory] + parts.offsets

    def _write(self, start: int, end: int, stream: object) -> None:
        part = self._host[start:end].view(np.uint8)
        driver().copy_to_device(self.address + 8 * start, address_of(part), part.nbytes, stream)
