"""A CUDA plan over given addresses: its launches, ready to go, and the CUDA graph of them."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np

from genesis.ir.types import Device, int64
from genesis.runtime.cuda_driver import cached_per_driver, driver
from genesis.runtime.cuda_storage import CUDAStorage
from genesis.runtime.driver import DriverError, Pointer
from genesis.runtime.host_bytes import address_of
from genesis.runtime.memory_pool import pool_of
from genesis.runtime.plan import Copy, Launch, Place, Table

TABLE_ALIGNMENT: Final = 2  # entries of 8 bytes: a kernel may load 16 bytes at once

Bases = Mapping[str, Sequence[int]]
"""Where memory is: "input" and "output" hold an address for each index, "arena" and "numbers" one."""


class BoundPlan:
    """The steps of a plan with every place turned into an address.

    Tables are written to the device when this is made; a run of it writes nothing but results.

    Raises:
        OutOfMemoryError: there is no memory for the tables.
    """

    def __init__(self, steps: Sequence[Launch | Copy], kernels: Sequence[Any], bases: Bases, device: Device,
                 stream: Any):
        self.uses = 0
        self.graph: Any = None
        self._gpu = driver()
        self._device = device
        self._retire = _retired().append
        self._tables, tables = _write_tables(steps, bases, device, stream)
        self._steps = list(_bind(steps, kernels, bases, tables))

    def launch_each(self, stream: Any, blocking: bool) -> None:
        """Start the steps one by one.

        Args:
            blocking: wait for each, so that an error is the step's that caused it.

        Raises:
            RuntimeError: a step failed; its label is in the message.
        """
        for label, start in self._steps:
            try:
                start(stream)
                if blocking:
                    self._gpu.synchronize()
            except DriverError as error:
                raise RuntimeError(f"{label}: {error}") from error

    def launch_graph(self, stream: Any) -> None:
        """Start the steps as one graph, captured the first time."""
        if self.graph is None:
            _destroy_retired(self._gpu)
            self.graph = pool_of(self._device.index).reclaiming(partial(self._capture, stream))
        self._gpu.launch_graph(self.graph, stream)

    def _capture(self, stream: Any) -> Any:
        self._gpu.begin_capture(stream)
        try:
            self.launch_each(stream, blocking=False)
        except BaseException:
            with suppress(DriverError):  # what went wrong first is what to tell
                self._gpu.end_capture(stream)
            raise
        return self._gpu.end_capture(stream)

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:  # late there are no globals
        # Python's collector may call this in the middle of a capture, where the driver allows no more than a launch.
        if getattr(self, "graph", None) is not None and not ending():
            self._retire(self.graph)


@cached_per_driver
def _retired() -> deque[Any]:
    """Graphs that nobody will launch again."""
    return deque()


def _destroy_retired(gpu: Any) -> None:
    retired = _retired()
    if retired:
        gpu.synchronize()  # one of them may still be running
        while retired:
            gpu.destroy_graph(retired.popleft())


def _bind(steps: Sequence[Launch | Copy], kernels: Sequence[Any], bases: Bases,
          tables: Mapping[Table, int]) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """(label, what starts it on a stream) of every step that has something to do."""
    gpu = driver()
    for step, kernel in zip(steps, kernels, strict=True):
        if isinstance(step, Copy):
            nbytes = step.destination.type.nbytes
            if nbytes:
                destination, source = _address(step.destination, bases), _address(step.source, bases)
                yield step.label, partial(_copy, gpu, destination, source, nbytes)
        elif all(step.grid):  # CUDA refuses a grid without programs
            arguments = [_argument(argument, bases, tables) for argument in step.args]
            prepared = gpu.prepare_launch(kernel, step.kernel, step.grid, arguments)
            yield step.label or step.kernel.name, partial(gpu.launch, prepared)


def _copy(gpu: Any, destination: int, source: int, nbytes: int, stream: Any) -> None:
    gpu.copy(destination, source, nbytes, stream)


def _argument(argument: Place | int | Table, bases: Bases, tables: Mapping[Table, int]) -> Pointer | int:
    if isinstance(argument, Place):
        return Pointer(_address(argument, bases), argument.type.dtype, (_range(argument, bases),))
    if isinstance(argument, Table):
        start = tables[argument]
        targets = [_range(entry, bases) for entry in argument.entries if isinstance(entry, Place)]
        return Pointer(start, int64, ((start, start + 8 * len(argument.entries)), *targets))
    return argument


def _range(place: Place, bases: Bases) -> tuple[int, int]:
    start = _address(place, bases)
    return start, start + place.type.nbytes


def _address(place: Place, bases: Bases) -> int:
    base = bases[place.where]
    return base[place.index if place.where in ("input", "output") else 0] + place.offset


def _write_tables(steps: Sequence[Launch | Copy], bases: Bases, device: Device,
                  stream: Any) -> tuple[CUDAStorage | None, dict[Table, int]]:
    """All tables of the steps in one piece of device memory, and each one's address; equal ones once."""
    starts: dict[Table, int] = {}
    values: list[int] = []
    for step in steps:
        for argument in step.args if isinstance(step, Launch) else ():
            if isinstance(argument, Table) and argument not in starts:
                values.extend([0] * (-len(values) % TABLE_ALIGNMENT))
                starts[argument] = len(values)
                values.extend(entry if isinstance(entry, int) else _address(entry, bases) for entry in argument.entries)
    if not values:
        return None, dict.fromkeys(starts, 0)
    host = np.array(values, np.int64)
    memory = CUDAStorage(host.nbytes, device)
    driver().copy_to_device(memory.ptr, address_of(host.view(np.uint8)), host.nbytes, stream)
    return memory, {table: memory.ptr + 8 * start for table, start in starts.items()}
