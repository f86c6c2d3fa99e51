"""The tables of a plan in device memory: arrays of addresses and numbers that kernels read.

An optimizer's table has tens of thousands of entries, and is the same object in the plans for all batch sizes: what
of it depends on no address is worked out once (`Table.parts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from genesis.ir.place import Memory, memory_of
from genesis.ir.types import Device
from genesis.runtime.cuda_driver import driver
from genesis.runtime.cuda_storage import CUDAStorage
from genesis.runtime.device_checks import told_of
from genesis.runtime.host_bytes import address_of
from genesis.runtime.plan import Launch, Step, Table

ALIGNMENT: Final = 2  # entries of 8 bytes: a kernel may load 16 bytes at once


class TableLayout:
    """Where each table of the steps is among all of them.

    Attributes:
        count: entries of all.
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
        """The table's first byte."""
        return 8 * self._start_of[id(table)]


class DeviceTables:
    """All tables of a plan in one piece of device memory.

    Attributes:
        address: where that is.

    Raises:
        OutOfMemoryError: there is no memory for them.
    """

    def __init__(self, layout: TableLayout, bases: Mapping[Memory, int], device: Device, stream: object):
        self._entries: dict[Memory, tuple[list[int], list[int]]] = {}  # memory → (positions, offsets) of what points in
        self._host = np.zeros(layout.count, np.int64)
        for table, start in layout.tables:
            parts = table.parts
            self._host[start:start + len(table.entries)] = parts.numbers
            for position, check in parts.checks:
                self._host[start + position] = told_of(check)
            for position, place in parts.places:
                positions, offsets = self._entries.setdefault(memory_of(place), ([], []))
                positions.append(start + position)
                offsets.append(place.offset)
        self._point(self._entries, bases)
        self._memory = CUDAStorage(self._host.nbytes, device)
        self.address = self._memory.ptr
        if layout.count:
            self._write(0, layout.count, stream)

    def move(self, moved: Iterable[Memory], bases: Mapping[Memory, int], stream: object) -> None:
        """Write the new addresses of moved memories, after what the GPU still does with the old ones."""
        changed = [memory for memory in moved if memory in self._entries]
        if changed:
            self._point(changed, bases)
            positions = [position for memory in changed for position in self._entries[memory][0]]
            self._write(min(positions), max(positions) + 1, stream)

    def _point(self, memories: Iterable[Memory], bases: Mapping[Memory, int]) -> None:
        positions, addresses = [], []
        for memory in memories:
            base = bases[memory]
            positions += self._entries[memory][0]
            addresses += [base + offset for offset in self._entries[memory][1]]
        self._host[positions] = addresses

    def _write(self, start: int, end: int, stream: object) -> None:
        part = self._host[start:end].view(np.uint8)
        driver().copy_to_device(self.address + 8 * start, address_of(part), part.nbytes, stream)
