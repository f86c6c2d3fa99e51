"""A plan: what to run, over which memory. Made once for a program's structure, run many times."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from genesis.ir.types import Device, TensorType


@dataclass(frozen=True)
class Place:
    """Where a value lives while a plan runs.

    `where` is "input" (the index-th memory that the caller passes), "output" (the index-th that
    the run allocates and returns), "arena" (at byte `offset`) or "numbers" (the table of the
    plan's numbers: 8 bytes each, float64, int64 or bool as the number's weak dtype says, at `offset`).
    """

    where: str
    index: int
    offset: int
    type: TensorType


@dataclass(frozen=True)
class KernelImage:
    """A compiled kernel: what the driver needs to load and launch it."""

    name: str
    cubin: bytes
    num_warps: int
    shared_bytes: int
    source: str = ""


@dataclass(frozen=True)
class Launch:
    """One kernel launch on CUDA.

    `args` are in the kernel's order: a `Place` is passed as a device pointer, an `int` as int32,
    and `Table` as a pointer to a device array. The two hidden scratch pointers that Triton adds
    are the executor's business.
    """

    kernel: KernelImage
    args: tuple[Place | int | Table, ...]
    grid: tuple[int, int, int]
    label: str = ""


@dataclass(frozen=True)
class Table:
    """A device array of int64, built when the plan is loaded: places become addresses."""

    entries: tuple[Place | int, ...]


@dataclass(frozen=True)
class Copy:
    """A device-to-device copy of one whole value."""

    source: Place
    destination: Place
    label: str = "copy"


@dataclass(frozen=True)
class Call:
    """One call of a CPU lowering: `function(out, *args, **attributes)`.

    `args` are places, or literal Python numbers. `outs` are where the results go. `view` says that
    the results share the first operand's memory and nothing is written; `adopts` that the
    lowering returns fresh memory, which then is the value (no place is planned for it).
    """

    function: Callable[..., Any]
    args: tuple[Place | bool | int | float, ...]
    outs: tuple[Place, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    view: bool = False
    adopts: bool = False
    label: str = ""


@dataclass(frozen=True)
class Plan:
    """An ordered list of steps and the memory they need.

    Attributes:
        device: where it runs.
        inputs: types of the memories the caller passes; an updated one is written in place.
        outputs: types of the memories that a run returns, each freshly allocated (or reused when
            nobody holds it any more).
        updates: positions of the inputs that the run overwrites.
        numbers: weak types of the numbers, in order.
        steps: launches and copies (CUDA) or calls (CPU), in order.
        arena_bytes: scratch memory, shared by all plans of a device.
        max_live_bytes: the least any plan of this order would need, for the planner's report.
    """

    device: Device
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    updates: tuple[int, ...]
    numbers: tuple[TensorType, ...]
    steps: tuple[Launch | Copy | Call, ...]
    arena_bytes: int
    max_live_bytes: int = 0
    labels: tuple[str, ...] = ()
