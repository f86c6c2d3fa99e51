"""From a graph to something that runs: the passes, then the backend's lowering and executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import leaves
from genesis.ir.types import Device, TensorType
from genesis.passes.groups import Schedule
from genesis.passes.pipeline import Backend, run_passes
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
    backend = backend_of(device.type)
    stages, schedule, memory = run_passes(graph, backend)
    plan = _make_plan(graph, device, schedule, memory)
    return Compiled(graph, stages, schedule, plan, _executor(plan), perf_counter() - start)


def backend_of(name: str) -> Backend:
    """The backend for "cpu" or "cuda"."""
    if name == "cpu":
        from genesis.codegen import lower_cpu
        from genesis.passes.single_nodes import single_nodes
        return Backend("cpu", lower_cpu.supports, lambda graph: graph,
                       lambda graph: single_nodes(graph, lower_cpu.is_view), lower_cpu.may_overwrite)
    from genesis.codegen import lower_cuda
    return lower_cuda.BACKEND


def _make_plan(graph: Graph, device: Device, schedule: Schedule, memory: Any) -> Plan:
    registers: tuple = ()
    steps: tuple
    if device.type == "cpu":
        from genesis.codegen import lower_cpu
        steps, registers = lower_cpu.lower(schedule, memory)
    else:
        from genesis.codegen import lower_cuda
        from genesis.runtime.kernel_cache import KernelCache
        steps = lower_cuda.lower(schedule, memory, KernelCache())
    return Plan(device, tuple(x.type for x in graph.inputs), tuple(x.type for x in graph.outputs),
                tuple(state["index"] for state, _ in graph.updates), _number_types(graph), steps, memory.arena_bytes,
                memory.max_live_bytes, registers)


def _number_types(graph: Graph) -> tuple[TensorType, ...]:
    """Weak types of the numbers, in order."""
    found: dict[int, Node] = {node["index"]: node for node in graph.nodes if node.op is leaves.scalar}
    from genesis.ir.node import _NUMBER_TYPES
    return tuple(found[i].type if i in found else _NUMBER_TYPES[float] for i in range(graph.numbers))


def _executor(plan: Plan) -> Any:
    if plan.device.type == "cpu":
        from genesis.runtime.executor_cpu import CPUExecutor
        return CPUExecutor(plan)
    from genesis.runtime.executor_cuda import CudaExecutor
    return CudaExecutor(plan)
