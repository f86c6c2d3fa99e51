"""What a backend is: everything that Genesis asks one kind of device, in one object.

A new backend is a lowering table (a folder beside `cpu/`), what runs its plans (a folder in `runtime/`), and one line
that registers it (`genesis.engine.backends.register`). The passes see that part of it which `passes/pipeline.py` calls
`Target`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from genesis.ir.graph import Graph
    from genesis.ir.node import Node
    from genesis.ir.types import Device
    from genesis.passes.gpu import Gpu
    from genesis.passes.groups import Group, Schedule
    from genesis.passes.memory.plan_memory import MemoryPlan
    from genesis.runtime.plan import Plan


class Executor(Protocol):
    """What runs a plan."""

    def run(self, memories: Sequence[Any], numbers: Sequence[bool | int | float]) -> list[Any]:
        """Run over these memories and numbers; returns the outputs' memories."""


class Backend(ABC):
    """One kind of device, from what its kernels can do to memory on it.

    Attributes:
        name: the device type that users write: "cpu", "cuda".
        passes: names of the optional rows of `passes/pipeline.py` that it wants.
        patterns: names of the rules of `passes/graph/patterns.py` that it has kernels for.
        gpu: the GPU that it compiles for, None where that is none.
        checks_indices: its kernels look at indices themselves, and note those outside with the recorded line.
        keeps_plans: its plans are made for sizes that change, and kept on disk.
        notes_sources: its memory says which line of the user's holds it.
    """

    name: str
    passes: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    gpu: Gpu | None = None
    checks_indices: bool = False
    keeps_plans: bool = False
    notes_sources: bool = False

    # Asked by the passes

    @abstractmethod
    def supports(self, node: Node) -> bool:
        """Whether it has a lowering for a node; other nodes are decomposed."""

    @abstractmethod
    def group(self, graph: Graph) -> Schedule:
        """What becomes one kernel, in which order."""

    @abstractmethod
    def may_overwrite(self, group: Group, output: Node, operand: Node) -> bool:
        """Whether the group's kernel may write this output over this operand's memory."""

    # Code

    @abstractmethod
    def lower(self, schedule: Schedule, memory: MemoryPlan) -> tuple[tuple, tuple]:
        """The steps that run a schedule over planned memory, and the registers that they work on (none on CUDA)."""

    # Running

    @abstractmethod
    def executor(self, plan: Plan) -> Executor:
        """What runs a plan of its steps."""

    @abstractmethod
    def allocate(self, nbytes: int, device: Device) -> Any:
        """Memory of this size: `copy_from_host(array)` and `copy_to_host(array)` move what is in it."""

    @abstractmethod
    def device_count(self) -> int:
        """How many devices of this kind there are now."""
