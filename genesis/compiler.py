"""From a graph to something that runs: the passes, then the backend's lowering and executor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

from genesis.ir.graph import Graph
from genesis.ir.node import NUMBER_TYPES, Node
from genesis.ir.ops import leaves
from genesis.ir.types import Device, TensorType
from genesis.passes.groups import Schedule
from genesis.passes.pipeline import Backend, run_passes
from genesis.passes.plan_memory import MemoryPlan
from genesis.runtime.plan import Plan


@dataclass
class Compiled:
    """A program ready to run, with every stage that led to it.

    Attributes:
        graph: the program as captured.
        stages: the program after each pass, by stage name.
        schedule: the groups, in order.
        plan: the steps and their memory.
        seconds: how long compiling took.
    """

    graph: Graph
    stages: dict[str, Any]
    schedule: Schedule
    plan: Plan
    executor: Any
    seconds: float

    def run(self, memories: Sequence[Any], numbers: Sequence[bool | int | float]) -> list[Any]:
        """Run over these memories and numbers; returns the outputs' memories."""
        return self.executor.run(memories, numbers)


def compile_graph(graph: Graph, device: Device) -> Compiled:
    """Compile a captured program for a device."""
    start = perf_counter()
    target = TARGETS[device.type]()
    stages, schedule, memory = run_passes(graph, target.backend)
    steps, registers = target.lower(schedule, memory)
    plan = Plan(device, tuple(x.type for x in graph.inputs), tuple(x.type for x in graph.outputs),
                tuple(state["index"] for state, _ in graph.updates), _number_types(graph), steps, memory.arena_bytes,
                memory.max_live_bytes, registers)
    return Compiled(graph, stages, schedule, plan, target.executor(plan), perf_counter() - start)


def backend_of(name: str) -> Backend:
    """What the passes ask the backend for "cpu" or "cuda"."""
    return TARGETS[name]().backend


@dataclass(frozen=True)
class Target:
    """A backend, whole.

    Attributes:
        backend: what the passes ask.
        lower: schedule and memory plan → the plan's steps, and its registers (none on CUDA).
        executor: makes what runs a plan.
    """

    backend: Backend
    lower: Callable[[Schedule, MemoryPlan], tuple[tuple, tuple]]
    executor: Callable[[Plan], Any]


def _cpu() -> Target:
    from genesis.codegen import lower_cpu
    from genesis.passes.single_nodes import single_nodes

    def executor(plan: Plan) -> Any:
        from genesis.runtime.executor_cpu import CPUExecutor
        return CPUExecutor(plan)

    backend = Backend("cpu", lower_cpu.supports, lambda graph: graph,
                      lambda graph: single_nodes(graph, lower_cpu.is_view), lower_cpu.may_overwrite)
    return Target(backend, lower_cpu.lower, executor)


def _cuda() -> Target:
    from genesis.codegen import lower_cuda

    def lower(schedule: Schedule, memory: MemoryPlan) -> tuple[tuple, tuple]:
        from genesis.runtime.kernel_cache import KernelCache
        return lower_cuda.lower(schedule, memory, KernelCache()), ()

    def executor(plan: Plan) -> Any:
        from genesis.runtime.executor_cuda import CudaExecutor
        return CudaExecutor(plan)

    return Target(lower_cuda.BACKEND, lower, executor)


TARGETS: Final[dict[str, Callable[[], Target]]] = {"cpu": _cpu, "cuda": _cuda}
"""Device type → its target, made when first asked: each imports what only it needs."""


def _number_types(graph: Graph) -> tuple[TensorType, ...]:
    """Weak types of the numbers, in order. One that nothing reads any more may have any."""
    found: dict[int, Node] = {node["index"]: node for node in graph.nodes if node.op is leaves.scalar}
    return tuple(found[i].type if i in found else NUMBER_TYPES[float] for i in range(graph.numbers))
