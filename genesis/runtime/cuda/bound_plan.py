"""A CUDA plan over given addresses: its launches, ready to go, and the CUDA graph of them.

`LoadedSteps` holds what does not depend on addresses. A `BoundPlan` packs every launch's arguments once. When some
memory moves, only the launches that use it are changed, and their nodes in the graph: about a microsecond
each, and nothing on the GPU.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import Final
from weakref import WeakSet

from genesis.ir.place import EXCHANGE_BYTES, MemoryRef, Place
from genesis.runtime.cuda.collective_work import CollectiveWork
from genesis.runtime.cuda.cuda_python_driver import cached_per_driver, driver
from genesis.runtime.cuda.device_tables import DeviceTables
from genesis.runtime.cuda.driver import (
    Call,
    DeviceCopy,
    Driver,
    DriverError,
    GraphHandle,
    GraphNode,
    PreparedLaunch,
    StreamHandle,
)
from genesis.runtime.cuda.launch_arguments import ArgumentLayout, Arguments
from genesis.runtime.cuda.memory_pool import pool_of
from genesis.runtime.cuda.module import load_together
from genesis.runtime.ledger import Together, ledger
from genesis.runtime.overlap import Overlap
from genesis.runtime.plan import Collective, Copy, Edges, Launch, Plan, Step
from genesis.runtime.plan_edges import edges_of, places_of

Bases = Mapping[MemoryRef, int]
"""The address at which each memory starts."""

OVERLAPPED: Final = 1 << 18
"""Bytes that each of two steps reads and writes from which on it is worth a graph that they may run at once: on a
stream the second waits for all of the first. Smaller ones take 2 µs, as much as what later work gains on a stream by
starting while the last step ends."""


class LoadedSteps:
    """The steps of a plan that have work to do, their kernels loaded on a GPU, and the order that they need.

    Raises:
        DriverError: a kernel cannot be loaded.
    """

    def __init__(self, plan: Plan, steps: Sequence[Step]):
        self.plan, self.device = plan, plan.device
        handles = load_together((step for step in steps if isinstance(step, Launch)), self.device.index)
        kernels = [handles[id(step.kernel)] if isinstance(step, Launch) else None for step in steps]
        busy = [(step, kernel) for step, kernel in zip(steps, kernels, strict=True) if _does_something(step)]
        self.steps = [step for step, _ in busy]
        self.kernels = [kernel for _, kernel in busy]
        self.exchanges = max((max(EXCHANGE_BYTES, x.offset + x.type.nbytes) for step in self.steps
                              if isinstance(step, Launch) for x in step.args
                              if isinstance(x, Place) and x.where == "exchange"), default=0)
        self.collectives = [step for step in self.steps if isinstance(step, Collective)]
        self.labels = [step.label or step.kernel.name if isinstance(step, Launch) else step.label
                       for step in self.steps]

    @cached_property
    def arguments(self) -> ArgumentLayout:
        """The layout of the steps' arguments."""
        return ArgumentLayout(self.steps)

    @cached_property
    def after(self) -> Edges:
        """The steps that must be done before each step. Only graphs need it: a plan that runs once has none."""
        return self.plan.edges if len(self.steps) == len(self.plan.steps) else edges_of(self.steps)

    @cached_property
    def overlapping(self) -> bool:
        """Whether two steps with much to do need not wait for each other, as a look-up and its gradient.

        Not where programs hand parts over to each other: beside others they took longer (H200: 100,000 tokens of 32
        bfloat16 with their gradient 30.0 µs as a graph, 25.3 one after another).
        """
        if self.exchanges:
            return False
        large = [isinstance(step, Launch) and _nbytes(step) >= OVERLAPPED for step in self.steps]
        earlier: list[int] = []  # for each step the set of steps that are done before it, as bits
        for number, after in enumerate(self.after):
            done = 0
            for other in after:
                done |= earlier[other] | 1 << other
            if large[number] and any(large[other] and not done >> other & 1 for other in range(number)):
                return True
            earlier.append(done)
        return False

    @cached_property
    def first_overwriting(self) -> int:
        """The number of the first step that may write to an input."""
        for number, step in enumerate(self.steps):
            writes = _written(step)
            if writes is None or any(place.where == "input" for place in writes):
                return number
        return len(self.steps)

    @property
    def in_python(self) -> int:
        """How many steps there are up to the last that functions of Python start: a collective whose ranks have not
        met, or whose transport waits for it (`CollectiveWork.is_of_c`)."""
        for number in range(len(self.steps) if self.collectives else 0, 0, -1):
            step = self.steps[number - 1]
            if isinstance(step, Collective) and not CollectiveWork.is_of_c(step):
                return number
        return 0

    def overwritten_before(self, end: int) -> list[int]:
        """The numbers of the inputs that a step before this one may write to, but for communicators' orders."""
        found: set[int] = set()
        for step in self.steps[:end]:
            writes = step.results[:-1] if isinstance(step, Collective) else _written(step)
            if writes is None:
                return list(self.plan.updates)
            found.update(place.index for place in writes if place.where == "input")
        return sorted(found)

    @property
    def first_left(self) -> int:
        """The number of the first step that is started in the loop that storages are told of it in. All collectives
        are begun there, as other ranks go on from what was begun, but for those that lines of Python start."""
        if not self.collectives:
            return self.first_overwriting
        if end := self.in_python:
            return max(self.first_overwriting, end)
        return min(self.first_overwriting, next(n for n, x in enumerate(self.steps) if isinstance(x, Collective)))

    def starts_early(self, number: int) -> bool:
        """Whether a launch may start on a stream while the kernels before it still run, as far as what it reads before
        it waits says: see `genesis.runtime.overlap`."""
        step = self.steps[number]
        assert isinstance(step, Launch)
        overlap = step.kernel.overlap
        return not overlap.reads_before_it_waits or (
            self.begun(number) and (overlap is Overlap.READS_EARLY or self.beside(number)))

    def begun(self, number: int) -> bool:
        """Whether all that was launched before the plan has ended when this step may start, on a stream: not if it is
        the first, or the step before lets it start before waiting itself."""
        before = self.steps[number - 1] if number else None
        return before is not None and not (isinstance(before, Launch) and before.kernel.lets_next_begin)

    def beside(self, number: int) -> bool:
        """Whether this step may run beside the one before it: neither writes what the other reads or writes."""
        return number - 1 not in self.after[number]

    @cached_property
    def early(self) -> list[bool]:
        """Whether each step may start in a graph while the kernels before it still run."""
        overlapping = (Overlap.WAITS_FIRST, Overlap.READS_EARLY)
        return [isinstance(step, Launch) and step.kernel.overlap in overlapping and bool(after)
                and all(isinstance(self.steps[other], Launch) for other in after)
                for step, after in zip(self.steps, self.after, strict=True)]


def _written(step: Step) -> Sequence[Place] | None:
    """The places that a step writes to; None: all that it can reach."""
    if isinstance(step, Collective):
        return step.results
    return step.writes if isinstance(step, Launch) else (step.destination,)


def _nbytes(step: Launch) -> int:
    """Bytes of the memory that a launch can reach."""
    return sum({id(place): place.type.nbytes for place in places_of(step)}.values())


def _does_something(step: Step) -> bool:
    """Whether a step launches any program or copies any byte: CUDA refuses empty grids and copies."""
    if isinstance(step, Collective):
        return True
    return all(step.grid) if isinstance(step, Launch) else bool(step.destination.type.nbytes)


Work = PreparedLaunch | DeviceCopy | CollectiveWork
"""A step as the driver takes it."""


class BoundPlan:
    """The steps of a plan with every place turned into an address.

    Attributes:
        steps: what it launches.
        uses: runs so far.
        bases: where its memories start now.
        graph: its CUDA graph, once there is one.
        before_first: how many of the calls that start the last run come before the first that gives the GPU work.

    Raises:
        OutOfMemoryError: there is no memory for the tables.
    """

    def __init__(self, steps: LoadedSteps, bases: Bases, stream: StreamHandle):
        self.uses = 0
        self.bases = dict(bases)
        self.graph: GraphHandle = None
        self._started: list[int] = []
        self.before_first = 0
        self._gpu = driver()
        self.steps = steps
        self._retire = _retired().append
        self._tables = DeviceTables(steps.arguments.tables, bases, steps.device, stream)
        self._arguments = Arguments(steps.arguments, self.bases, self._tables)
        # Each step as the driver takes it; None until its first launch.
        self._works: list[Work | None] = [None] * len(steps.steps)
        self._together: Together | None = None  # the graph's collectives, if it has any

    def move(self, bases: Bases, stream: StreamHandle) -> None:
        """Use these memories' new addresses from now on. Work that the GPU was already given uses the old ones."""
        moved = {memory: base for memory, base in bases.items() if self.bases[memory] != base}
        if not moved:
            return
        self.bases.update(moved)
        self._tables.move(moved, self.bases, stream)
        self._arguments.update(moved)
        for number in self.steps.arguments.users(moved):
            if isinstance(self._works[number], DeviceCopy | CollectiveWork):
                self._works[number] = self._bind(number)
            if isinstance(self._works[number], CollectiveWork):
                if self.graph is not None:  # what a collective was captured as cannot be changed
                    self._retire(self.graph)
                    self.graph = None
            elif self.graph is not None:
                self._gpu.update_node(self.graph, number, self._works[number])

    def launched_last(self, stream: StreamHandle,
                      marks: Sequence[Callable[[], object]] = (),
                      pause: Callable[[], object] | None = None, blocking: bool = False) -> list[Callable[[], object]]:
        """Start the steps before the first that overwrites an input, and those that only functions of Python start
        (`LoadedSteps.in_python`). Returns the starts of the others, calls into C to be made once: who makes them may
        ask `explained` for the step that failed.

        Args:
            marks: what to call before each step, and after the last, where a profile wants to know when they start.
            pause: what to call when those are started that are started here.
            blocking: wait for each, so that an error is the step's that caused it.

        Raises:
            RuntimeError: a step failed; the message says which, and what of the user's program it computes.
        """
        first = self.steps.first_left
        self._launch_some(range(first), stream, blocking, marks)
        if pause is not None:
            pause()
        started: list[int] = []
        self._started = started
        self.before_first = 1 + len(marks[first:first + 1])
        found: list[Callable[[], object]] = []
        for number in range(first, len(self._works)):
            work = self._work(number)
            found += marks[number:number + 1]
            found.append(partial(started.append, number))
            found += work.calls(stream) if isinstance(work, CollectiveWork) else [self._call(work, stream)]
            found += [self._gpu.synchronize_call()] if blocking else []
        found += marks[len(self._works):]
        return found

    def explained(self, error: DriverError) -> Exception:
        """The error of the last start that `launched_last` returned and that was made, with its step."""
        return error if not self._started else self._of_step(self._started[-1], error)

    def _launch_some(self, numbers: Iterable[int], stream: StreamHandle, blocking: bool,
                     marks: Sequence[Callable[[], object]] = ()) -> None:
        gpu = self._gpu
        for number in numbers:
            if marks:
                marks[number]()
            work = self._work(number)  # packed only now: meanwhile the GPU runs the steps before it
            try:
                self._start(work, stream)
                if blocking:
                    gpu.synchronize()
            except DriverError as error:
                raise self._of_step(number, error) from error

    def _start(self, work: Work, stream: StreamHandle) -> None:
        if isinstance(work, CollectiveWork):
            work.start(stream)
        else:
            self._call(work, stream)()

    def _call(self, work: PreparedLaunch | DeviceCopy, stream: StreamHandle) -> Call:
        """The call that starts a launch or a copy on a stream."""
        return (self._gpu.copy_call(*work, stream) if isinstance(work, DeviceCopy)
                else self._gpu.launch_call(work, stream))

    @property
    def capturable(self) -> bool:
        """Whether all steps can be part of a graph; they are where there is one."""
        return self.graph is not None or all(map(CollectiveWork.can_be_captured, self.steps.collectives))

    def _of_step(self, number: int, error: DriverError) -> RuntimeError:
        step, label = self.steps.steps[number], self.steps.labels[number]
        origin = f" ({step.origin})" if not isinstance(step, Copy) and step.origin else ""
        return RuntimeError(f"{label}{origin}: {error}")

    def _work(self, number: int) -> Work:
        work = self._works[number]
        if work is None:
            work = self._works[number] = self._bind(number)
        return work

    def launches(self) -> list[tuple[str, Callable[[StreamHandle], object]]]:
        """Each step's label, and a function that starts it alone on a stream."""
        starts = [partial(self._start, work) for work in self._bound()]
        return list(zip(self.steps.labels, starts, strict=True))

    def graph_launch(self, stream: StreamHandle) -> list[Callable[[], object]]:
        """The start of the steps as one graph, built the first time: those that do not need each other may overlap."""
        self._started = []
        if self.graph is None:
            _destroy_retired(self._gpu)
            nodes = list(map(GraphNode, self._bound(), self.steps.after, self.steps.early))
            if works := [work for work in self._works if isinstance(work, CollectiveWork)]:
                _with_collectives().add(self)  # before there is a graph: an exception may come behind it
                self._together = CollectiveWork.together(works)
            self.graph = pool_of(self.steps.device.index).reclaiming(partial(self._gpu.build_graph, nodes))
        begins = [] if self._together is None else ledger.beginning(self._together)
        self.before_first = len(begins)
        return [*begins, self._gpu.graph_call(self.graph, stream)]

    def _bound(self) -> list[Work]:
        """All steps as the driver takes them."""
        self._works = [self._bind(number) if work is None else work for number, work in enumerate(self._works)]
        return self._works

    def _bind(self, number: int) -> Work:
        """The step as the driver takes it."""
        step = self.steps.steps[number]
        if isinstance(step, Copy):
            destination, source = self._arguments.addresses(number)
            return DeviceCopy(destination, source, step.destination.type.nbytes)
        if isinstance(step, Collective):
            return CollectiveWork(step, self._arguments.addresses(number))
        return self._gpu.prepare_launch(self.steps.kernels[number], step.kernel, step.grid, self._arguments.of(number),
                                        self.steps.starts_early(number))

    def __del__(self, ending: Callable[[], bool] = sys.is_finalizing) -> None:  # late there are no globals
        # Python's collector may call this while work of the graph is still running.
        if getattr(self, "graph", None) is not None and not ending():
            self._retire(self.graph)


@cached_per_driver
def _with_collectives() -> WeakSet[BoundPlan]:
    """Plans whose graphs have collectives in them."""
    return WeakSet()


def forget_graphs_with_collectives() -> None:
    """Destroy graphs that have collectives in them: a communicator ends only when no graph refers to it."""
    gpu = driver()
    for bound in list(_with_collectives()):
        if bound.graph is not None:
            _retired().append(bound.graph)
            bound.graph = None
    _destroy_retired(gpu)


@cached_per_driver
def _retired() -> deque[GraphHandle]:
    """Graphs that nobody will launch again, and that work on the GPU may still use."""
    return deque()


def _destroy_retired(gpu: Driver) -> None:
    retired = _retired()
    if retired:
        gpu.synchronize()  # a retired graph may still be running
        while retired:
            gpu.destroy_graph(retired.popleft())
