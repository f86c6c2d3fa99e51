"""The backends: code generation and runtime of each kind of device, joined in one `Backend`.

Each imports what it needs when it is asked: making a tensor on the CPU needs no torch, a plan from disk no compiler.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from genesis.codegen.base import Backend, Executor, Memory
from genesis.config import config
from genesis.engine.state import reset
from genesis.ir.source import here
from genesis.ir.types import Device, DeviceKind, add_device_kind

if TYPE_CHECKING:
    from genesis.codegen.cuda.gpu_model import GpuModel
    from genesis.codegen.cuda.source import KernelSource
    from genesis.codegen.cuda.tuning import Timer, Trial
    from genesis.ir.graph import Graph
    from genesis.ir.node import Node
    from genesis.passes.groups import Group, Late, Schedule
    from genesis.passes.memory.plan_memory import MemoryPlan
    from genesis.runtime.cuda.driver import Driver
    from genesis.runtime.plan import KernelImage, Plan

_makers: Final[dict[str, Callable[[int], Backend]]] = {}
"""Device type → the function that makes the backend of the device with a number."""


def register(name: str, make: Callable[[int], Backend], *, numbered: bool = False) -> None:
    """Register a type of device, on which programs can run then. Registering a name again replaces its backend.

    Args:
        name: the device type: `genesis.ones(2, device=name)`.
        make: the device's number → its backend. Called often: it returns the same object for the same device.
        numbered: there may be several, "name:0", "name:1".
    """
    _makers[name] = make
    add_device_kind(DeviceKind(name, numbered))


def backend_of(device: Device) -> Backend:
    """The backend of a device."""
    return _makers[device.type](device.index)


def backend_named(name: str) -> Backend:
    """The backend of a device type, or CUDA's for a GPU by its name ("a100", "h200", …). No device has to be there.

    >>> backend_named("l4").gpu.multiprocessors
    58
    """
    if name in _makers:
        return _makers[name](0)
    from genesis.codegen.cuda.gpu_model import MODELS
    return cuda_backend(MODELS[name])


class CPUBackend(Backend):
    """torch calls over planned memory, one op or composite a group."""

    name = "cpu"
    passes = frozenset({"add_into", "chunk_loss", "lay_out_images", "make_contiguous", "save_recurrent",
                        "save_statistics", "writes_apart", "writes_last"})
    interruptible = True
    any_size = True

    @cached_property
    def supports(self) -> Callable[[Node], bool]:
        from genesis.codegen.cpu.lower import supports
        return supports

    @cached_property
    def may_overwrite(self) -> Callable[[Group, Node, Node], bool]:
        from genesis.codegen.cpu.lower import may_overwrite
        return may_overwrite

    @cached_property
    def overwrites_late(self) -> Callable[[Group], Late]:
        from genesis.codegen.cpu.lower import overwrites_late
        return overwrites_late

    def group(self, graph: Graph) -> Schedule:
        from genesis.codegen.cpu.lower import is_view
        from genesis.passes.fusion.group_per_op import group_per_op
        return group_per_op(graph, is_view)

    def lower(self, schedule: Schedule, memory: MemoryPlan) -> tuple[tuple, tuple]:
        from genesis.codegen.cpu.lower import lower
        return lower(schedule, memory)

    def executor(self, plan: Plan) -> Executor:
        from genesis.runtime.cpu.one_call import OneCall, is_one_call
        if is_one_call(plan):
            return OneCall(plan)
        from genesis.runtime.cpu.executor import CPUExecutor
        return CPUExecutor(plan)

    def aside(self) -> AbstractContextManager[None]:
        from genesis.runtime.cpu.executor import arena
        return arena.aside()

    def allocate(self, nbytes: int, device: Device) -> Memory:
        from genesis.runtime.cpu.storage import CPUStorage
        return CPUStorage(nbytes)

    def device_count(self) -> int:
        return 1


class MetaBackend(Backend):
    """Shapes and dtypes alone: every op is there, and none runs."""

    name = "meta"

    def supports(self, node: Node) -> bool:
        return True

    def may_overwrite(self, group: Group, output: Node, operand: Node) -> bool:
        return False

    def group(self, graph: Graph) -> Schedule:
        from genesis.passes.fusion.group_per_op import group_per_op
        return group_per_op(graph, lambda node: False, "meta")

    def lower(self, schedule: Schedule, memory: MemoryPlan) -> tuple[tuple, tuple]:
        return (), ()

    def executor(self, plan: Plan) -> Executor:
        from genesis.runtime.meta import MetaExecutor
        return MetaExecutor(plan)

    def allocate(self, nbytes: int, device: Device) -> Memory:
        from genesis.runtime.meta import MetaMemory
        return MetaMemory(nbytes, device)

    def device_count(self) -> int:
        return 1


class CUDABackend(Backend):
    """Triton kernels for a model of a GPU, launched through cuda-python."""

    name = "cuda"
    passes = frozenset({"add_into", "chunk_loss", "heads_beside", "matrix_vector", "patch_products", "scale_products",
                        "sum_products", "thin_products", "turn_products", "turn_operands", "align_operands", "split_k",
                        "split_attention", "reduce_in_order", "split_argmax", "take_in_rows", "split_scans",
                        "split_reductions", "slice_early", "snapshots", "shadow_weights", "remat", "side_by_side",
                        "overlap_collectives", "reduce_early"})
    patterns = ("flash_attention", "flash_attention_backward", "convolution_last", "convolution_input_last",
                "convolution_weight_last")
    asynchronous = True
    checks_indices = True
    keeps_plans = True
    compiles_apart = True
    notes_sources = True

    def __init__(self, gpu: GpuModel):
        self.gpu: GpuModel = gpu

    @cached_property
    def supports(self) -> Callable[[Node], bool]:
        from genesis.codegen.cuda.lower import supports
        return partial(supports, gpu=self.gpu)

    @cached_property
    def may_overwrite(self) -> Callable[[Group, Node, Node], bool]:
        from genesis.codegen.cuda.lower import may_overwrite
        return may_overwrite

    def group(self, graph: Graph) -> Schedule:
        from genesis.passes.fusion.fuse import fuse
        return fuse(graph, config.fuse, self.gpu)

    def lower(self, schedule: Schedule, memory: MemoryPlan) -> tuple[tuple, tuple]:
        from genesis.codegen.cuda.lower import lower
        if config.tune == "max" and self.device_count():
            from genesis.engine.tuning import tune_schedule
            tune_schedule(schedule, self.compile, self.microseconds, self.gpu)
        with self.deciding():
            return lower(schedule, memory, self.compile, self.gpu), ()

    def deciding(self) -> AbstractContextManager[None]:
        """Inside, the user's table of measured choices decides, where `config.tune` says so."""
        if config.tune != "max":
            return nullcontext()
        from genesis.codegen.cuda.choices import deciding
        from genesis.engine.tuning import user_rows
        return deciding(user_rows(self.gpu))

    def microseconds(self, trial: Trial) -> float:
        """How long a kernel takes on the GPU at hand.

        Raises:
            NotTimed: it cannot be started, or there is no room for its operands.
        """
        from genesis.engine.tuning import timed
        return timed(trial.plan)

    @property
    def decided_by(self) -> str:
        if config.tune != "max":
            return ""
        from genesis.engine.tuning import digest
        return digest(self.gpu)

    def compile(self, sources: Sequence[KernelSource]) -> Sequence[KernelImage]:
        """Kernels as the driver loads them: from the disk, or by Triton in worker processes."""
        from genesis.codegen.cuda.compile import compile_sources
        from genesis.runtime.cuda.kernel_cache import KernelCache
        return compile_sources(sources, KernelCache(), self.gpu)

    def kernel_source(self, group: Group, settled: frozenset[Node] = frozenset()) -> KernelSource | None:
        from genesis.codegen.cuda.emit import emit
        if group.kind in ("collective", "joined"):
            return None
        with self.deciding():
            return emit(group, self.gpu, settled)

    def executor(self, plan: Plan) -> Executor:
        if plan.kept:
            from genesis.runtime.cuda.shadow_executor import ShadowWeightsExecutor
            return ShadowWeightsExecutor(plan)
        from genesis.runtime.cuda.executor import CudaExecutor
        return CudaExecutor(plan)

    def allocate(self, nbytes: int, device: Device) -> Memory:
        from genesis.runtime.cuda.storage import CUDAStorage
        return CUDAStorage(nbytes, device, here())

    def device_count(self) -> int:
        from genesis.runtime.cuda.cuda_python_driver import driver
        try:
            return driver().device_count()
        except RuntimeError:
            return 0


class FakeCUDABackend(CUDABackend):
    """CUDA without a GPU: the same plans and kernels, run by Triton's interpreter on host memory. Slow; for tests.

    Args:
        driver: the pretended GPU.
        timer: how long a kernel takes (`config.tune`), as an interpreter's times say nothing; by default what the model
            thinks.

    >>> import genesis
    >>> from genesis.runtime.fake_cuda.driver import HostDriver
    >>> with FakeCUDABackend(HostDriver(memory_bytes=1 << 20)):
    ...     backend_named("cuda").device_count(), (genesis.ones(3, device="cuda") * 2).tolist()
    (1, [2.0, 2.0, 2.0])
    """

    compiles_apart = False  # another process has no such driver

    def __init__(self, driver: Driver, timer: Timer | None = None):
        from genesis.codegen.cuda.gpu_model import model_of
        super().__init__(model_of(driver.properties(0)))
        self.driver = driver
        self.timer = timer

    def microseconds(self, trial: Trial) -> float:
        """What the model thinks, or what the test says."""
        return trial.taken.candidate.microseconds if self.timer is None else self.timer(trial)

    def compile(self, sources: Sequence[KernelSource]) -> Sequence[KernelImage]:
        """Kernels as the interpreter takes them: their text, its constants' values, and what divides its arguments."""
        from genesis.runtime.plan import KernelImage
        return [KernelImage(source.name, b"", source.num_warps, 0,
                            f"{source.readable}\n\nCONSTEXPRS = {source.constexprs!r}\n"
                            f"DIVISORS = {source.divisors!r}\n") for source in sources]

    def __enter__(self) -> FakeCUDABackend:
        """Make "cuda" mean the fake GPU from here on. Plans belong to a driver: those that there were are forgotten."""
        from genesis.runtime.cuda.cuda_python_driver import install
        reset()
        install(self.driver)
        register("cuda", lambda index: self, numbered=True)
        return self

    def __exit__(self, *error: object) -> None:
        from genesis.runtime.cuda.cuda_python_driver import install
        reset()
        install(None)
        register("cuda", lambda index: cuda_backend(gpu_at_hand(index)), numbered=True)


@cache
def cuda_backend(gpu: GpuModel) -> CUDABackend:
    """CUDA's backend for a model of a GPU."""
    return CUDABackend(gpu)


def gpu_at_hand(index: int) -> GpuModel:
    """The model of GPU number `index`; an H200 where there is no GPU, so that programs can still be compiled.

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
    known = _known_gpus.setdefault(gpus, {})
    if index not in known:
        properties = gpus.properties(index)
        require_capability(properties)
        known[index] = model_of(properties)
    return known[index]


_known_gpus: Final[WeakKeyDictionary[Driver, dict[int, GpuModel]]] = WeakKeyDictionary()
"""Driver → the models of its GPUs, by number; kept because a backend is asked for at every flush."""


_cpu: Final = CPUBackend()
_meta: Final = MetaBackend()
register("cpu", lambda index: _cpu)
register("cuda", lambda index: cuda_backend(gpu_at_hand(index)), numbered=True)
register("meta", lambda index: _meta)
