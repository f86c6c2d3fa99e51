"""Runs a plan on a GPU.

In the steady state a run writes the plan's numbers to the device and launches the graph. All else happens when some
memory moved.

What runs once costs no graph: a plan is launched step by step the first time, as one graph from then on.
When an input is elsewhere, the launches that use it are given its new address.

Outputs are the executor's memory, written again by the next run. If somebody still holds one by then, it
is theirs: the plan writes to fresh memory instead. A weak reference does not hold, nor does a caller that says so
(`Memories.rewritten`): the gradients of a compiled step.
"""

from __future__ import annotations

import operator
import os
import struct
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from sys import getrefcount
from typing import Final

from genesis.ir.place import MemoryRef
from genesis.ir.types import TensorType
from genesis.runtime import shadow_weights
from genesis.runtime.contexts import Attempt
from genesis.runtime.cuda.arena import arena_of, exchange_of
from genesis.runtime.cuda.bound_plan import BoundPlan, LoadedSteps
from genesis.runtime.cuda.cuda_python_driver import driver
from genesis.runtime.cuda.device_checks import word_of
from genesis.runtime.cuda.driver import DriverError, StreamHandle
from genesis.runtime.cuda.memory_pool import pool_of
from genesis.runtime.cuda.owed_launches import Owed, owed_launches, settle
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.cuda.stream import Stream, current_stream
from genesis.runtime.cuda.stream_order import order
from genesis.runtime.host_bytes import address_of, as_bytes
from genesis.runtime.plan import Collective, Copy, Launch, Memories, Plan, Rewritten, Step
from genesis.runtime.references import HELD_ONCE

_NUMBER_FORMATS: Final = {"float": "d", "int": "q", "bool": "?7x"}

_addresses_of = operator.attrgetter("ptr")


Started = tuple[list[CUDAStorage], list[Callable[[], object]]]
"""A run's outputs, and the calls that are left of it."""


def completed(started: Started, explained: Callable[[Exception], Exception]) -> list[CUDAStorage]:
    """The outputs, once what is left of the run was called; `explained` says what a call that failed computes."""
    outputs, writes = started
    try:
        for write in writes:
            write()
    except DriverError as error:
        raise explained(error) from error
    return outputs


class CudaExecutor:
    """A plan that is ready to run on its GPU.

    Args:
        plan: its steps are launches, copies and collectives.
        invalidates: whether a run invalidates the shadow weights of the inputs that it overwrites.

    Raises:
        TypeError: the plan is not for CUDA.
        DriverError: a kernel cannot be loaded.

    >>> executor = CudaExecutor(plan)                            # doctest: +SKIP
    >>> [sums] = executor.run([x, y], numbers=[0.5])             # doctest: +SKIP
    """

    def __init__(self, plan: Plan, invalidates: bool = True):
        self.plan = plan
        self._invalidates = invalidates and bool(plan.updates)
        steps: list[Step] = []
        for step in plan.steps:
            if not isinstance(step, Launch | Copy | Collective):
                raise TypeError(f"a CUDA plan has launches, copies and collectives, not {type(step).__name__}")
            steps.append(step)
        self._steps = LoadedSteps(plan, steps)
        self._pack = struct.Struct("<" + "".join(_NUMBER_FORMATS[type.dtype.kind] for type in plan.numbers)).pack
        self._on: dict[Stream, _PlanOnStream] = {}

    def run(self, inputs: Sequence[CUDAStorage], numbers: Sequence[bool | int | float] = ()) -> list[CUDAStorage]:
        """Give the current stream the plan's work on these inputs; does not wait for it.

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
        return completed(self.start(inputs, numbers), self.explained)

    def explained(self, error: Exception) -> Exception:
        """The error of one of the calls that `start` returned, with what it computes for whom."""
        found = self._on.get(current_stream(self.plan.device.index).handle)
        return error if found is None or not isinstance(error, DriverError) else found.explained(error)

    def start(self, inputs: Sequence[CUDAStorage], numbers: Sequence[bool | int | float] = ()) -> Started:
        """Do all of a run but the launches from the first on that overwrites an input, which are returned as calls.

        A graph is one launch. Where several streams' work on memory is noted, all of the run is done here.
        """
        try:
            packed = self._pack(*numbers)
        except struct.error as error:
            raise ValueError(f"the plan takes numbers {self.plan.numbers}, got {tuple(numbers)}: {error}") from error
        stream = current_stream(self.plan.device.index)
        found = self._on.get(stream.handle)
        if found is None:
            found = self._on[stream.handle] = _PlanOnStream(self.plan, self._steps, stream)
        if self._invalidates and shadow_weights.copies:
            shadow_weights.overwritten([inputs[at] for at in self.plan.updates])
        return found.start(inputs, packed)

    def owing(self, inputs: Sequence[CUDAStorage], calls: Sequence[Callable[[], object]],
              made: int) -> Callable[[], object] | None:
        """A call that makes the rest of these calls, which `start` returned over these inputs, owed
        (`owed_launches.py`); None if none of the first `made`, which were made, overwrites anything."""
        found = self._on.get(current_stream(self.plan.device.index).handle)
        return None if found is None else found.owing(inputs, calls, made)

    def launches(self) -> list[tuple[str, Callable[[StreamHandle], object]]]:
        """Each step's label, and a function that starts it on a stream over the last run's memory; for profilers."""
        return self._on[current_stream(self.plan.device.index).handle].launches()

    def release(self) -> None:
        """Give back all memory and graphs; the next run makes them anew. Held outputs stay with their holders."""
        self._on = {}


STEPS_WITHOUT_GRAPH: Final = 4
"""Plans of at most so many steps are launched one by one, unless some had better overlap: that takes the host no longer
than a graph, and later work may start while the last of them ends, where a graph is waited for as a whole."""

KEPT: Final = 1 << 20
"""Bytes of outputs from which on a plan that ran once gives them back when another one runs again."""


class _PlanOnStream:
    """A plan with its memory on one stream: each stream's runs have memory of their own, so that they may overlap."""

    def __init__(self, plan: Plan, steps: LoadedSteps, stream: Stream):
        self._plan, self._steps, self._stream, self._handle = plan, steps, stream, stream.handle
        self._device = plan.device
        self._gpu = driver()
        self._blocking = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"
        self._arena, self._exchange = arena_of(stream), exchange_of(stream)
        self._packed = bytearray(8 * len(plan.numbers))  # the host memory from which the driver reads the numbers
        self._packed_ptr = address_of(as_bytes(self._packed, len(self._packed)))
        self._written: bytes | None = b""  # the numbers on the device now; None: not known
        self._numbers = CUDAStorage(0, plan.device)
        self._outputs: list[CUDAStorage] = []
        self._output_ids: frozenset[int] = frozenset()
        self._outputs_stamp = object()  # another one when an output is
        self._unheld = [HELD_ONCE] * len(plan.outputs)
        self._bound: BoundPlan | None = None
        self._inputs: list[int] | None = None  # the addresses that `_bound` is bound to; None: to be bound anew
        self._binding = True  # until memory is allocated and bound; also after a failure of that
        self._stamp: object = None  # the stamp of the `Memories` that have these addresses
        self._exchanged = steps.exchanges
        self._few = len(steps.steps) <= STEPS_WITHOUT_GRAPH
        self._order, self._owed = order(), owed_launches()
        self._read = sorted(set(range(len(plan.inputs))).difference(plan.updates))
        pool_of(plan.device.index).keepers.add(self)

    def start(self, inputs: Sequence[CUDAStorage], packed: bytes) -> Started:
        """See `CudaExecutor.start`; `packed` are the numbers."""
        if self._owed:
            settle(self._owed, {memory.device.index for memory in (*inputs, *self._outputs)} | {self._device.index})
        with self._arena.lock:
            self._gpu.use(self._device.index)
            graph = self._as_graph()
            copies = {} if graph or not self._steps.collectives else self._copies_of(inputs)
            given = [copies.get(at, memory) for at, memory in enumerate(inputs)] if copies else inputs
            again = given.rewritten if isinstance(given, Memories) else None
            if again is not None and again.stamp is not self._outputs_stamp:
                again = None
            addresses = self._moved(given)
            if (addresses is not None or self._held(again)
                    or self._arena.nbytes < self._plan.arena_bytes or self._exchange.zeros < self._exchanged):
                self._prepare(given, addresses, again)
            if isinstance(given, Memories):
                given.outputs = self._outputs_stamp
            if shadow_weights.copies and not self._output_ids.isdisjoint(shadow_weights.copies):
                shadow_weights.overwritten(self._outputs)
            if self._order.noted:
                uses = ([inputs[at] for at in self._read],
                        [*(inputs[at] for at in self._plan.updates), *self._outputs])
                self._order.wait(self._stream, *uses)
                launches = self._launches_over(inputs, copies, packed, graph)
                return self._outputs.copy(), [*launches, self._order.note(self._stream, *uses)]
            return self._outputs.copy(), self._launches_over(inputs, copies, packed, graph)

    def _as_graph(self) -> bool:
        """Whether the next run is launched as one graph."""
        bound = self._bound
        return (bound is not None and bound.uses > 0 and not self._blocking
                and not (self._few and not self._steps.overlapping) and bound.capturable)

    def _copies_of(self, inputs: Sequence[CUDAStorage]) -> dict[int, CUDAStorage]:
        """Memory for the inputs that are overwritten before the last step that lines of Python start, by their numbers.
        The run overwrites these, and the last of the calls that are left of it copy them back: what comes out of
        Python's lines, an interrupt while other ranks are waited for, finds the inputs as they were."""
        end = self._steps.in_python
        found = self._steps.overwritten_before(end) if end else ()
        return {at: CUDAStorage(self._plan.inputs[at].nbytes, self._device) for at in found if inputs[at].nbytes}

    def _launches_over(self, inputs: Sequence[CUDAStorage], copies: dict[int, CUDAStorage], packed: bytes,
                       graph: bool) -> list[Callable[[], object]]:
        """`_launches` over copies of some inputs."""
        gpu, stream = self._gpu, self._handle
        for at, copy in copies.items():
            gpu.copy_call(copy.ptr, inputs[at].ptr, copy.nbytes, stream)()
        found = self._launches(packed, graph)
        for at, copy in copies.items():
            found += gpu.copy_call(inputs[at].ptr, copy.ptr, copy.nbytes, stream), partial(id, copy)  # which holds it
        return found

    def _launches(self, packed: bytes, graph: bool) -> list[Callable[[], object]]:
        """Give the stream what overwrites no input; returns the launches that are left."""
        gpu, stream, bound = self._gpu, self._handle, self._bound
        assert bound is not None
        if packed != self._written:
            self._written = None  # first: an exception may come before or after the copy
            self._packed[:] = packed
            gpu.copy_to_device(self._numbers.ptr, self._packed_ptr, len(packed), stream)
            self._written = packed
        bound.uses += 1
        if bound.uses == 2:
            self._let_others_go()
        return bound.graph_launch(stream) if graph else bound.launched_last(stream, blocking=self._blocking)

    def explained(self, error: DriverError) -> Exception:
        """See `CudaExecutor.explained`."""
        return error if self._bound is None else self._bound.explained(error)

    def owing(self, inputs: Sequence[CUDAStorage], calls: Sequence[Callable[[], object]],
              made: int) -> Callable[[], object] | None:
        """See `CudaExecutor.owing`."""
        bound, index = self._bound, self._device.index
        if bound is None or made <= bound.before_first:
            return None
        owed = Owed(index, calls[made:], (self._arena, self._exchange),
                    (bound, self._numbers, *inputs, *self._outputs), bound.explained, pool_of(index).empty_cache)
        return partial(self._owed.append, owed)

    def launches(self) -> list[tuple[str, Callable[[StreamHandle], object]]]:
        """See `CudaExecutor.launches`."""
        assert self._bound is not None, "there was no run"
        return self._bound.launches()

    def _held(self, again: Rewritten | None) -> bool:
        """Whether somebody holds an output of the last run, besides those that it may write to again."""
        if again is None:
            return list(map(getrefcount, self._outputs)) != self._unheld
        others = again.others
        return list(map(getrefcount, map(self._outputs.__getitem__, others))) != self._unheld[:len(others)]

    def _moved(self, inputs: Sequence[CUDAStorage]) -> list[int] | None:
        """The inputs' addresses, where some are others than in the last run."""
        stamp = inputs.stamp if isinstance(inputs, Memories) else None
        if stamp is not None and stamp is self._stamp:
            return None
        addresses = list(map(_addresses_of, inputs))
        if addresses != self._inputs:
            return addresses
        self._stamp = stamp
        return None

    def _prepare(self, inputs: Sequence[CUDAStorage], moved_to: list[int] | None, again: Rewritten | None) -> None:
        """Allocate the memory that the run needs, and bind the plan to the addresses of everything.

        What takes time goes by what moved: of a model's hundreds of weights none does from token to token.

        Args:
            moved_to: the inputs' addresses; None for those of the last run.
        """
        self._binding = True  # first
        before, self._inputs, self._stamp = self._inputs, None, None  # until the end: what follows may fail half-way
        addresses = moved_to or before or list(map(_addresses_of, inputs))  # an interrupt may have left neither
        changed = _positions_of_others(addresses, before)
        _check_inputs(self._plan.inputs, inputs, changed)
        self._arena.reserve(self._plan.arena_bytes)
        self._exchange.reserve(self._exchanged)
        if self._numbers.nbytes != len(self._packed):
            self._numbers = CUDAStorage(len(self._packed), self._device)
        self._replace_held_outputs(again)
        moved: dict[MemoryRef, int] = {("output", at): memory.ptr for at, memory in enumerate(self._outputs)}
        moved.update((("input", at), addresses[at]) for at in changed)
        if self._bound is None:
            moved["arena", 0], moved["numbers", 0] = self._arena.ptr, self._numbers.ptr
            moved["errors", 0], moved["exchange", 0] = word_of(self._device.index), self._exchange.ptr
            self._bound = BoundPlan(self._steps, moved, self._handle)
        else:
            bound, self._bound = self._bound, None  # until the end: half moved it is of no use
            bound.move(moved, self._handle)
            self._bound = bound
        self._inputs = addresses
        self._stamp = inputs.stamp if isinstance(inputs, Memories) else None
        self._binding = False

    def _replace_held_outputs(self, again: Rewritten | None) -> None:
        """Replace outputs of earlier runs that somebody holds by fresh memory; the holders keep them."""
        types = self._plan.outputs
        if len(self._outputs) != len(types):
            self._outputs_stamp = object()
            self._outputs = [CUDAStorage(type.nbytes, self._device) for type in types]
            self._output_ids = frozenset(map(id, self._outputs))
            return
        counts, sizes = list(map(getrefcount, self._outputs)), [memory.nbytes for memory in self._outputs]
        most = self._unheld if again is None else [HELD_ONCE + (at not in again.others) for at in range(len(types))]
        gone = [at for at, type in enumerate(types) if counts[at] > most[at] or sizes[at] != type.nbytes]
        if not gone:
            return
        fresh = [CUDAStorage(types[at].nbytes, self._device) for at in gone]
        self._outputs_stamp = object()  # first: an exception may come between any two of these
        for at, memory in zip(gone, fresh, strict=True):
            self._outputs[at] = memory
        self._output_ids = frozenset(map(id, self._outputs))

    def _let_others_go(self) -> None:
        """Let plans that ran once, with large outputs, give those back that nobody holds: a loop's first steps are
        often other plans than the rest, and their gradients would stay beside its."""
        for other in tuple(pool_of(self._device.index).keepers):
            if isinstance(other, _PlanOnStream) and other._ran_once:
                other.let_go()

    @property
    def _ran_once(self) -> bool:
        """Whether it ran once, with outputs of so many bytes that it should not keep them for another run."""
        return (self._bound is not None and self._bound.uses == 1
                and sum(memory.nbytes for memory in self._outputs) >= KEPT)

    def let_go(self) -> None:
        """Give back the outputs that nobody holds, unless memory is being bound; the next run allocates others.

        What is held now is given back by a later call: parameters that are drawn whole and then shared out, one layer
        after another.
        """
        if self._binding:
            return
        with (attempt := Attempt(self._arena.lock)):
            if attempt.taken == [False]:
                return
            self._outputs_stamp = object()
            for at, count in enumerate(map(getrefcount, self._outputs)):
                if count <= HELD_ONCE:
                    self._outputs[at] = CUDAStorage(0, self._device)
            self._inputs = self._stamp = None  # an equal stamp would say that nothing moved


def _positions_of_others(addresses: Sequence[int], before: Sequence[int] | None) -> Sequence[int]:
    """The positions of the addresses that are others than before."""
    if before is None or len(before) != len(addresses):
        return range(len(addresses))
    return list(compress(range(len(addresses)), map(operator.ne, addresses, before)))


def _check_inputs(types: Sequence[TensorType], inputs: Sequence[CUDAStorage], positions: Sequence[int]) -> None:
    """Raise ValueError unless there are as many inputs as types, and those at these positions are of theirs."""
    if len(types) != len(inputs):
        raise ValueError(f"the plan takes {len(types)} inputs, got {len(inputs)}")
    for position in positions:
        type, memory = types[position], inputs[position]
        if memory.nbytes < type.nbytes or memory.device is not type.device:
            raise ValueError(f"input {position} should be {type} ({type.nbytes} bytes), got {memory}")
