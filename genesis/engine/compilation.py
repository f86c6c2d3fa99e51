"""Compilation of a graph: the passes, then the backend's lowering and executor.

Passes and code generation are imported when something is compiled: a plan that comes from disk needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from genesis.config import config, settings
from genesis.engine.backends import backend_of
from genesis.frontend.state import lock
from genesis.ir.flat_graph import FlatGraph
from genesis.ir.graph import Graph
from genesis.ir.node import NUMBER_TYPES, Node
from genesis.ir.ops import leaves
from genesis.ir.types import Device, TensorType
from genesis.runtime.plan import Plan

if TYPE_CHECKING:
    from genesis.codegen.base import Backend, Executor, Memory
    from genesis.engine.symbolic.recompilation import Recompilation
    from genesis.passes.groups import Schedule
    from genesis.passes.pipeline import Passed


PREPARED: Final = ("prepared",)
"""The stages that a plan is made of, besides the code (`plan_of`)."""


@dataclass
class Compiled:
    """A program ready to run.

    Attributes:
        plan: the steps and their memory.
        backend: the backend that compiled it.
        executor: the executor of its plan.
        seconds: how long it took to get the plan.
        origin: "compiled", "other size" (filled in from the template of other sizes) or "disk".
        program: makes the program as captured.
        fixed_sizes: why it serves no other sizes; None if it does, or none was tried.
        background: whether a template that was compiled in the background served it (`background.py`).
        recompilation: why no template of its structure served it; None if there was none.
        constants: which of the captured nodes that storages show, by position, have the same value at every run (set by
            the engine).
        read_on: which of them are results without gradients that others of the program read, where gradients flow
            through some of its results (set by the engine).
        communicates: whether it runs collectives (set by the engine).
        numbers_apart: whether equal numbers are two in what is recorded after it (`repeated_numbers.py`, set by the
            engine); None of a short program, which leaves that as it is.
        settings: those that it was compiled under (`Config.key`).
    """

    plan: Plan
    backend: Backend
    executor: Executor
    seconds: float
    origin: str
    program: Callable[[], Graph]
    constants: Sequence[int] = ()
    read_on: Sequence[int] = ()
    fixed_sizes: str | None = None
    background: bool = False
    recompilation: Recompilation | None = None
    communicates: bool = False
    numbers_apart: bool | None = None
    settings: tuple = field(default_factory=config.key)

    @property
    def exclusive(self) -> bool:
        """Whether no other program can run before a run of it is over: it would be begun again, and what other ranks
        have answered once they do not answer twice."""
        return self.communicates or not self.backend.interruptible

    def start(self, memories: Sequence[Memory],
              numbers: Sequence[bool | int | float]) -> tuple[list[Memory], Sequence[Callable[[], object]]]:
        """All of a run but what overwrites memory: the outputs' memories, and the calls that are left
        (`InterruptibleExecutor`). An executor of another kind does all of it."""
        start = getattr(self.executor, "start", None)
        return (self.executor.run(memories, numbers), ()) if start is None else start(memories, numbers)

    def owing(self, memories: Sequence[Memory], calls: Sequence[Callable[[], object]],
              made: int) -> Callable[[], object] | None:
        """What has the executor make the rest of these calls later (`InterruptibleExecutor.owing`)."""
        owing = getattr(self.executor, "owing", None)
        return None if owing is None else owing(memories, calls, made)

    def explained(self, error: Exception) -> Exception:
        """The error of one of these calls, with what the executor knows of it."""
        explained = getattr(self.executor, "explained", None)
        return error if explained is None else explained(error)

    def run(self, memories: Sequence[Memory], numbers: Sequence[bool | int | float]) -> list[Memory]:
        """Run over these memories and numbers; returns the outputs' memories."""
        return self.executor.run(memories, numbers)

    @cached_property
    def graph(self) -> Graph:
        """The program as captured."""
        return self.program()

    @cached_property
    def passed(self) -> Passed:
        """The program after the passes. They run now, if it is not known from when the plan was made."""
        from genesis.passes.pipeline import run_passes
        with lock, settings(self.settings):
            return run_passes(self.graph, self.backend)

    def forget_passed(self) -> None:
        """Let go of the program after the passes: of each of them a graph, which Python's collector would go through
        again and again."""
        self.__dict__.pop("passed", None)

    @property
    def stages(self) -> dict[str, Any]:
        """The program after each pass, by stage name."""
        return self.passed.stages

    @property
    def schedule(self) -> Schedule:
        """The groups, in order."""
        return self.passed.schedule


def compile_graph(graph: Graph, device: Device, known: bool = True) -> Compiled:
    """Compile a captured program for a device.

    Args:
        known: whether what came out of each pass is kept; else the passes run again for whoever asks.
    """
    from genesis.passes.pipeline import run_passes
    start = perf_counter()
    passed = run_passes(graph, backend_of(device), last="lower", kept=None if known else PREPARED)
    found = ready(plan_of(graph, device, passed), start, "compiled", FlatGraph.of(graph).graph)
    if known:
        found.passed = passed
    return found


def ready(plan: Plan, start: float, origin: str, program: Callable[[], Graph]) -> Compiled:
    """A plan with its executor; getting it began at `start`."""
    backend = backend_of(plan.device)
    return Compiled(plan, backend, backend.executor(plan), perf_counter() - start, origin, program)


def plan_of(graph: Graph, device: Device, passed: Passed) -> Plan:
    """The plan of a program.

    Args:
        graph: the program as captured.
        passed: the program after all passes. Its inputs are the program's own, then the shadow weights.
    """
    from genesis.passes.fusion.shadow_weights import copied_from
    steps, registers = passed.stages["code"]
    prepared, memory = passed.stages["prepared"], passed.memory
    kept = copied_from(prepared, len(graph.inputs))
    inputs = (*graph.inputs, *(copy for copy, _ in kept))
    updated = (*(state for state, _ in graph.updates), *(copy for copy, _ in kept))
    return Plan(device, tuple(x.type for x in inputs), tuple(x.type for x in graph.outputs),
                tuple(state["index"] for state in updated), _number_types(graph), steps, memory.arena_bytes,
                memory.max_live_bytes, registers, tuple(source["index"] for _, source in kept),
                _refresh(device, prepared, len(graph.inputs)))


def _refresh(device: Device, prepared: Graph, given: int) -> Plan | None:
    """The plan that makes the shadow weights anew."""
    from genesis.passes.fusion.shadow_weights import refreshing
    from genesis.passes.pipeline import run_passes
    graph = refreshing(prepared, given)
    return None if graph is None else plan_of(graph, device, run_passes(graph, backend_of(device), last="lower"))


def _number_types(graph: Graph) -> tuple[TensorType, ...]:
    """Weak types of the numbers, in order. One that nothing reads any more may have any."""
    found: dict[int, Node] = {node["index"]: node for node in graph.nodes if node.op is leaves.scalar}
    return tuple(found[i].type if i in found else NUMBER_TYPES[float] for i in range(graph.numbers))
