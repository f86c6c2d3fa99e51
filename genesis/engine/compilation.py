"""From a graph to something that runs: the passes, then the backend's lowering and executor.

Passes and code generation are imported when something is compiled: a plan that comes from disk needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from genesis.ir.graph import Graph
from genesis.ir.node import NUMBER_TYPES, Node
from genesis.ir.ops import leaves
from genesis.ir.types import Device, TensorType
from genesis.runtime.cuda.kernel_cache import KernelCache
from genesis.runtime.plan import Plan

if TYPE_CHECKING:
    from genesis.codegen.cuda.gpu_model import GpuModel
    from genesis.passes.groups import Schedule
    from genesis.passes.memory.plan_memory import MemoryPlan
    from genesis.passes.pipeline import Backend


@dataclass
class Compiled:
    """A program ready to run.

    Attributes:
        plan: the steps and their memory.
        seconds: how long it took to get.
        origin: "compiled", "other size" (filled in from a plan for another leading size) or "disk".
        program: makes the program as captured.
        constants: which of the captured nodes, by position, have the same value at every run (set by the engine).
    """

    plan: Plan
    executor: Any
    seconds: float
    origin: str
    program: Callable[[], Graph]
    constants: Sequence[int] = ()

    def run(self, memories: Sequence[Any], numbers: Sequence[bool | int | float]) -> list[Any]:
        """Run over these memories and numbers; returns the outputs' memories."""
        return self.executor.run(memories, numbers)

    @cached_property
    def graph(self) -> Graph:
        """The program as captured."""
        return self.program()

    @property
    def backend(self) -> Backend:
        """What the passes asked."""
        return target_of(self.plan.device).backend

    @cached_property
    def stages(self) -> dict[str, Any]:
        """The program after each pass, by stage name. Where the plan was filled in, or read, the passes run now."""
        from genesis.passes.pipeline import run_passes
        return run_passes(self.graph, self.backend)[0]

    @property
    def schedule(self) -> Schedule:
        """The groups, in order."""
        return self.stages["groups"]


def compile_graph(graph: Graph, device: Device) -> Compiled:
    """Compile a captured program for a device."""
    from genesis.passes.pipeline import run_passes
    start = perf_counter()
    target = target_of(device)
    stages, schedule, memory = run_passes(graph, target.backend)
    plan = plan_of(graph, device, stages["prepared"], schedule, memory, target)
    found = ready(plan, start, "compiled", lambda: graph)
    found.stages = stages
    return found


def ready(plan: Plan, start: float, origin: str, program: Callable[[], Graph]) -> Compiled:
    """A plan with what runs it; getting it began at `start`."""
    executor = _EXECUTORS[plan.device.type](plan)
    return Compiled(plan, executor, perf_counter() - start, origin, program)


def plan_of(graph: Graph, device: Device, prepared: Graph, schedule: Schedule, memory: MemoryPlan,
            target: Target) -> Plan:
    """The plan of a program.

    Args:
        graph: the program as captured.
        prepared: what was grouped. Behind the program's own inputs it has those that the plan keeps.
        schedule, memory: of that.
    """
    from genesis.passes.fusion.shadow_weights import copied_from
    steps, registers = target.lower(schedule, memory)
    kept = copied_from(prepared, len(graph.inputs))
    inputs = (*graph.inputs, *(copy for copy, _ in kept))
    updated = (*(state for state, _ in graph.updates), *(copy for copy, _ in kept))
    return Plan(device, tuple(x.type for x in inputs), tuple(x.type for x in graph.outputs),
                tuple(state["index"] for state in updated), _number_types(graph), steps, memory.arena_bytes,
                memory.max_live_bytes, registers, tuple(source["index"] for _, source in kept),
                _refresh(device, prepared, len(graph.inputs), target))


def _refresh(device: Device, prepared: Graph, given: int, target: Target) -> Plan | None:
    """The plan that makes the kept copies anew."""
    from genesis.passes.fusion.shadow_weights import refreshing
    from genesis.passes.pipeline import run_passes
    graph = refreshing(prepared, given)
    if graph is None:
        return None
    stages, schedule, memory = run_passes(graph, target.backend)
    return plan_of(graph, device, stages["prepared"], schedule, memory, target)


def backend_of(name: str) -> Backend:
    """What the passes ask the backend for "cpu", for "cuda" (the GPU at hand, or an H200), or for a GPU by its name.

    >>> backend_of("l4").gpu.multiprocessors
    58
    """
    return _cpu().backend if name == "cpu" else _cuda(gpu_named(name)).backend


def gpu_named(name: str) -> GpuModel:
    """The model of a GPU: of the one at hand for "cuda", or of one that the compiler knows ("a100", "h200", …)."""
    from genesis.codegen.cuda.gpu_model import MODELS
    return gpu_at_hand(0) if name == "cuda" else MODELS[name]


def gpu_at_hand(index: int) -> GpuModel:
    """What GPU number `index` is. Where there is no GPU, programs can still be compiled: for an H200.

    Raises:
        RuntimeError: kernels are not built for such a GPU.
    """
    from genesis.codegen.cuda.gpu_model import H200, model_of
    from genesis.runtime.cuda.cuda_python_driver import driver
    from genesis.runtime.cuda.driver import require_capability
    try:
        gpus = driver()
    except RuntimeError:
        return H200
    properties = gpus.properties(index)
    require_capability(properties)
    return model_of(properties)


def target_of(device: Device) -> Target:
    """What compiles for a device."""
    return _cpu() if device.type == "cpu" else _cuda(gpu_at_hand(device.index))


@dataclass(frozen=True)
class Target:
    """What compiles for a kind of device.

    Attributes:
        backend: what the passes ask.
        lower: schedule and memory plan → the plan's steps, and its registers (none on CUDA).
    """

    backend: Backend
    lower: Callable[[Schedule, MemoryPlan], tuple[tuple, tuple]]


def _cpu() -> Target:
    from genesis.codegen.cpu import lower as lower_cpu
    from genesis.passes.fusion.group_per_op import single_nodes
    from genesis.passes.graph.make_contiguous import straighten
    from genesis.passes.pipeline import Backend
    backend = Backend("cpu", lower_cpu.supports, straighten,
                      lambda graph: single_nodes(graph, lower_cpu.is_view), lower_cpu.may_overwrite)
    return Target(backend, lower_cpu.lower)


def _cuda(gpu: GpuModel) -> Target:
    from genesis.codegen.cuda import lower as lower_cuda

    def lower(schedule: Schedule, memory: MemoryPlan) -> tuple[tuple, tuple]:
        return lower_cuda.lower(schedule, memory, KernelCache(), gpu=gpu), ()

    return Target(lower_cuda.backend_for(gpu), lower)


def _cpu_executor(plan: Plan) -> Any:
    from genesis.runtime.cpu.one_call import OneCall, is_one_call
    if is_one_call(plan):
        return OneCall(plan)
    from genesis.runtime.cpu.executor import CPUExecutor
    return CPUExecutor(plan)


def _cuda_executor(plan: Plan) -> Any:
    if plan.kept:
        from genesis.runtime.cuda.shadow_executor import KeepingExecutor
        return KeepingExecutor(plan)
    from genesis.runtime.cuda.executor import CudaExecutor
    return CudaExecutor(plan)


_EXECUTORS: Final[dict[str, Callable[[Plan], Any]]] = {"cpu": _cpu_executor, "cuda": _cuda_executor}
"""Device type → what runs its plans."""


def _number_types(graph: Graph) -> tuple[TensorType, ...]:
    """Weak types of the numbers, in order. One that nothing reads any more may have any."""
    found: dict[int, Node] = {node["index"]: node for node in graph.nodes if node.op is leaves.scalar}
    return tuple(found[i].type if i in found else NUMBER_TYPES[float] for i in range(graph.numbers))
