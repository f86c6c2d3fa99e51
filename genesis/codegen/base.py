"""What a backend is: everything that Genesis asks one kind of device, in one object.

A new backend is a lowering table (a folder beside `cpu/`), what runs its plans (a folder in `runtime/`), and one line
that registers it (`genesis.engine.backends.register`). The passes see that part of it which `passes/pipeline.py` calls
`Target`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from genesis.passes.groups import Group, Late, Schedule

if TYPE_CHECKING:
    import numpy as np

    from genesis.codegen.cuda.source import KernelSource
    from genesis.ir.graph import Graph
    from genesis.ir.node import Node
    from genesis.ir.types import Device
    from genesis.passes.gpu import Gpu
    from genesis.passes.memory.plan_memory import MemoryPlan
    from genesis.runtime.plan import Plan


class Memory(Protocol):
    """Memory on a device, `nbytes` long."""

    nbytes: int

    def copy_from_host(self, buffer: np.ndarray) -> None:
        """Overwrite all of it with a numpy array of the same size in bytes."""

    def copy_to_host(self, buffer: np.ndarray) -> None:
        """Write all of it into a numpy array of the same size in bytes, when it is computed."""

    def clone(self) -> Memory:
        """Other memory with the same content."""


M = TypeVar("M")
"""The memory of one backend: a `Memory`, with what its own executors ask of it."""


class Executor(Protocol[M]):
    """What runs a plan."""

    def run(self, memories: Sequence[M], numbers: Sequence[bool | int | float], /) -> list[M]:
        """Run over these memories and numbers; returns the outputs' memories."""


class InterruptibleExecutor(Executor[M], Protocol[M]):
    """What runs a plan so that an exception finds memory that is all old, or all new."""

    def start(self, memories: Sequence[M], numbers: Sequence[bool | int | float], /) -> tuple[
            list[M], Sequence[Callable[[], object]]]:
        """Run all of it but what overwrites these memories.

        Returns the outputs' memories, and what is left: calls into C, which are made in order, each once, when nothing
        can come between that raises or looks at the memory. An exception before leaves all as it was.
        """

    def owing(self, memories: Sequence[M], calls: Sequence[Callable[[], object]],
              made: int, /) -> Callable[[], object] | None:
        """What to call where one of these calls fails: the number `made`, behind those that were made.

        Returns a call that has the executor make the rest, before anything else runs on its device or is read there;
        None if nothing was overwritten: then the run has not begun.
        """


class Backend(ABC):
    """One kind of device, from what its kernels can do to memory on it.

    Attributes:
        name: the device type that users write: "cpu", "cuda".
        passes: names of the optional rows of `passes/pipeline.py` that it wants.
        patterns: names of the rules of `passes/graph/patterns.py` that it has kernels for.
        gpu: the GPU that it compiles for, None where that is none.
        asynchronous: a run returns before its work is done, which goes on in the order of the calling thread's stream.
            Reading a value waits, so ops read none only to check it. What is not asynchronous may run in any thread.
        interruptible: while a program that only makes new memory runs, a signal handler may run another (see `aside`).
        checks_indices: its kernels look at indices themselves, and note those outside with the recorded line. Without,
            a run that fails is looked through for such an index.
        keeps_plans: its plans are launches (`runtime.plan.Launch`): made for sizes that change, and kept on disk.
        any_size: its plans are calls that are filled in for other sizes (`engine/symbolic/call_template.py`): a call's
            function knows no more of sizes than its attributes and operands say.
        compiles_apart: any process may compile for it, and write to the disk what this one would
            (`engine/background.py`).
        notes_sources: its memory says which line of the user's holds it (`source`).
    """

    name: str
    passes: frozenset[str] = frozenset()
    patterns: tuple[str, ...] = ()
    gpu: Gpu | None = None
    asynchronous: bool = False
    interruptible: bool = False
    checks_indices: bool = False
    keeps_plans: bool = False
    any_size: bool = False
    compiles_apart: bool = False
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

    def overwrites_late(self, group: Group) -> Late:
        """Whether what runs the group may overwrite the program's memory as one of its last calls (`Late`)."""
        return Late.ALWAYS

    # Code

    @abstractmethod
    def lower(self, schedule: Schedule, memory: MemoryPlan) -> tuple[tuple, tuple]:
        """The steps that run a schedule over planned memory, and the registers that they work on (none on CUDA)."""

    def kernel_source(self, group: Group, settled: frozenset[Node] = frozenset()) -> KernelSource | None:
        """The kernel that it generates for a group, as text; None where a group is a call.

        Args:
            settled: the program's inputs that nothing in it writes.
        """
        return None

    @property
    def decided_by(self) -> str:
        """What decides its kernels beside the program, the settings and what comes with Genesis: part of the names of
        plans on disk."""
        return ""

    # Running

    @abstractmethod
    def executor(self, plan: Plan) -> Executor[Any]:
        """What runs a plan of its steps."""

    def aside(self) -> AbstractContextManager[None]:
        """Inside, programs run while another is in the middle: they get scratch memory of their own."""
        return nullcontext()

    @abstractmethod
    def allocate(self, nbytes: int, device: Device) -> Memory:
        """Memory of this size, its content undefined."""

    @abstractmethod
    def device_count(self) -> int:
        """How many devices of this kind there are now."""
