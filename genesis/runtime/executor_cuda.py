"""Runs a plan on a GPU.

The steady state is: write the plan's numbers to the device, copy the inputs that never are where they
were (a batch) to where the graph reads them, launch the graph. All else happens when something moved.

A set of addresses is launched step by step the first time and captured into a graph the second time,
so what runs once costs no capture. A few sets are kept, since memory from the pool tends to alternate.

Outputs are the executor's memory, written again by the next run. If somebody still holds one by then, its
contents move away first: the holder's storage gets other memory (`CUDAStorage.trade`), the graph keeps its
addresses. A weak reference does not hold.
"""

from __future__ import annotations

import operator
import os
import struct
from collections.abc import Sequence
from sys import getrefcount
from typing import Any, Final

from genesis.ir.types import TensorType
from genesis.runtime.bound_plan import BoundPlan
from genesis.runtime.cuda_arena import arena_of
from genesis.runtime.cuda_driver import driver
from genesis.runtime.cuda_module import load
from genesis.runtime.cuda_storage import CUDAStorage
from genesis.runtime.cuda_stream import current_stream
from genesis.runtime.host_bytes import address_of, as_bytes
from genesis.runtime.plan import Copy, Launch, Plan

STAGED_BYTES: Final = 4 << 20  # up to here copying an input costs less than another graph
CHANGES_BEFORE_STAGING: Final = 2  # memory that moved once may never move again
GIVEN_AWAY_BYTES: Final = 256 << 20  # above, a held output keeps its memory and the graph gets other
SETS_KEPT: Final = 4

_NUMBER_FORMATS: Final = {"float": "d", "int": "q", "bool": "?7x"}

_addresses_of = operator.attrgetter("ptr")
_UNHELD: Final = next(map(getrefcount, [object()]))  # what `getrefcount` says of an object that only a list holds


class CudaExecutor:
    """A plan that is ready to run on its GPU.

    Args:
        plan: its steps are launches and copies.

    Raises:
        TypeError: the plan is not for CUDA.
        DriverError: a kernel cannot be loaded.

    >>> executor = CudaExecutor(plan)                            # doctest: +SKIP
    >>> [sums] = executor.run([x, y], numbers=[0.5])             # doctest: +SKIP
    """

    def __init__(self, plan: Plan):
        self.plan = plan
        self._device = plan.device
        self._gpu = driver()
        self._steps: list[Launch | Copy] = []
        for step in plan.steps:
            if not isinstance(step, Launch | Copy):
                raise TypeError(f"a CUDA plan has launches and copies, not {type(step).__name__}")
            self._steps.append(step)
        index = plan.device.index
        self._kernels = [load(step.kernel, index) if isinstance(step, Launch) else None for step in self._steps]
        self._blocking = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"
        self._updated = frozenset(plan.updates)

        self._pack = struct.Struct("<" + "".join(_NUMBER_FORMATS[type.dtype.kind] for type in plan.numbers)).pack
        self._packed = bytearray(8 * len(plan.numbers))  # where the driver reads the numbers
        self._packed_ptr = address_of(as_bytes(self._packed, len(self._packed)))
        self._written = b""  # the numbers on the device now
        self._numbers = CUDAStorage(0, plan.device)

        self._arena = arena_of(plan.device)
        self._arena_version = -1
        self._outputs: list[CUDAStorage] = []
        self._unheld = [_UNHELD] * len(plan.outputs)
        self._staged: list[tuple[int, CUDAStorage, int]] = []  # (input, the copy that is read, bytes)
        self._changes = [0] * len(plan.inputs)
        self._seen: list[int] = []  # addresses of the inputs when they were last looked at
        self._sets: dict[tuple, BoundPlan] = {}  # the least recently used first
        self._current: BoundPlan | None = None
        self._current_inputs: list[int] = []  # what `_current` was bound to

    def run(self, inputs: Sequence[CUDAStorage], numbers: Sequence[bool | int | float] = ()) -> list[CUDAStorage]:
        """Give the GPU the plan's work on these inputs; does not wait for it.

        Args:
            inputs: memories of the types `plan.inputs`; those in `plan.updates` are written.
            numbers: values of the types `plan.numbers`.

        Returns:
            Memories of the types `plan.outputs`. They stay as they are while somebody holds them.

        Raises:
            OutOfMemoryError: there is not enough memory. Nothing was launched and no value has changed.
            ValueError: inputs or numbers are not what the plan takes.
            RuntimeError: a launch failed.
        """
        gpu, index = self._gpu, self._device.index
        packed = self._pack_numbers(numbers)
        with self._arena.lock:
            gpu.use(index)
            stream = current_stream(index).handle
            bound = self._current
            sources, addresses = self._look_at(inputs)
            if (bound is None or addresses != self._current_inputs or self._arena.version != self._arena_version
                    or list(map(getrefcount, self._outputs)) != self._unheld):
                self._current = None  # until the end of `_bind`: what comes before may fail half-way
                self._reserve(inputs)
                self._move_held_outputs()
                sources, addresses = self._look_at(inputs)  # anew: an output may have come back as an input
                bound = self._bind(addresses, stream)
            if packed != self._written:
                self._packed[:] = packed
                gpu.copy_to_device(self._numbers.ptr, self._packed_ptr, len(packed), stream)
                self._written = packed
            for source, (_, copy, nbytes) in zip(sources, self._staged, strict=True):
                gpu.copy(copy.ptr, source, nbytes, stream)
            bound.uses += 1
            if bound.uses == 1 or self._blocking:
                bound.launch_each(stream, self._blocking)
            else:
                bound.launch_graph(stream)
            return self._outputs.copy()

    def release(self) -> None:
        """Give back all memory and graphs; the next run makes them anew. Held outputs stay with their holders."""
        with self._arena.lock:
            self._outputs, self._staged = [], []
            self._numbers, self._written = CUDAStorage(0, self._device), b""
            self._forget_addresses()

    def _pack_numbers(self, numbers: Sequence[bool | int | float]) -> bytes:
        try:
            return self._pack(*numbers)
        except struct.error as error:
            raise ValueError(f"the plan takes numbers {self.plan.numbers}, got {tuple(numbers)}: {error}") from error

    def _look_at(self, inputs: Sequence[CUDAStorage]) -> tuple[list[int], list[int]]:
        """Where the staged inputs are, and the addresses that the graph would read all inputs at."""
        addresses = list(map(_addresses_of, inputs))
        sources = []
        for position, copy, _ in self._staged:
            sources.append(addresses[position])
            addresses[position] = copy.ptr
        return sources, addresses

    def _reserve(self, inputs: Sequence[CUDAStorage]) -> None:
        """Take the memory that any run needs."""
        plan, device = self.plan, self._device
        _check_inputs(plan.inputs, inputs)
        self._arena.reserve(plan.arena_bytes)
        if self._arena.version != self._arena_version:
            self._forget_addresses()
            self._arena_version = self._arena.version
        if self._numbers.nbytes != len(self._packed):
            self._numbers = CUDAStorage(len(self._packed), device)
        if len(self._outputs) != len(plan.outputs):
            self._outputs = [CUDAStorage(type.nbytes, device) for type in plan.outputs]
        self._stage_restless_inputs(inputs)

    def _stage_restless_inputs(self, inputs: Sequence[CUDAStorage]) -> None:
        """Give small inputs that keep moving a copy at a fixed address."""
        addresses = list(map(_addresses_of, inputs))
        staged = {position for position, _, _ in self._staged}
        for position, (before, now) in enumerate(zip(self._seen, addresses, strict=False)):
            if before != now:
                self._changes[position] += 1
            nbytes = self.plan.inputs[position].nbytes
            if (self._changes[position] >= CHANGES_BEFORE_STAGING and 0 < nbytes <= STAGED_BYTES
                    and position not in self._updated and position not in staged):
                self._staged.append((position, CUDAStorage(nbytes, self._device), nbytes))
        self._seen = addresses

    def _move_held_outputs(self) -> None:
        """Save the contents of outputs of earlier runs that somebody still has."""
        counts = list(map(getrefcount, self._outputs))
        held = [position for position, count in enumerate(counts) if count > _UNHELD]
        fresh = {position: CUDAStorage(self._outputs[position].nbytes, self._device) for position in held}
        for position, memory in fresh.items():
            output = self._outputs[position]
            if not output.pinned and output.nbytes <= GIVEN_AWAY_BYTES:
                memory.copy_from(output)
                output.trade(memory)
            self._outputs[position] = memory

    def _bind(self, inputs: list[int], stream: Any) -> BoundPlan:
        """The plan over these addresses, current from now on; made if it is not among the sets kept."""
        outputs = list(map(_addresses_of, self._outputs))
        key = (tuple(inputs), tuple(outputs))
        bound = self._sets.pop(key, None)
        if bound is None:
            bases = {"input": inputs, "output": outputs, "arena": [self._arena.ptr], "numbers": [self._numbers.ptr]}
            bound = BoundPlan(self._steps, self._kernels, bases, self._device, stream)
            if len(self._sets) == SETS_KEPT:
                del self._sets[next(iter(self._sets))]
        self._sets[key] = bound
        self._current, self._current_inputs = bound, inputs
        return bound

    def _forget_addresses(self) -> None:
        self._sets.clear()
        self._current = None


def _check_inputs(types: Sequence[TensorType], inputs: Sequence[CUDAStorage]) -> None:
    if len(types) != len(inputs):
        raise ValueError(f"the plan takes {len(types)} inputs, got {len(inputs)}")
    for position, (type, memory) in enumerate(zip(types, inputs, strict=True)):
        if memory.nbytes < type.nbytes or memory.device is not type.device:
            raise ValueError(f"input {position} should be {type} ({type.nbytes} bytes), got {memory}")
