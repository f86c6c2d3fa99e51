"""A plan: what to run, over which memory. It is made once for a program's structure and runs many times."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import numpy as np

from genesis.ir.place import MemoryRef, Place, memory_of
from genesis.ir.types import Device, DType, TensorType
from genesis.runtime.overlap import Overlap

if TYPE_CHECKING:
    from genesis.ir.source import Source, TextSource

TILES: Final = 16 << 10
"""Bytes of shared memory from which on it holds tiles, and not only what warps tell each other."""


@dataclass(frozen=True)
class KernelImage:
    """A compiled kernel: what the driver needs to load and launch it.

    `entry` is its name in a `KernelCache`, '' if it is in none. `maps` say of each matrix that its copy engine reads or
    writes how it lies in shared memory: the swizzle, then the sizes of the block that one copy moves.
    """

    name: str
    cubin: bytes
    num_warps: int
    shared_bytes: int
    source: str = ""
    entry: str = ""
    maps: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def digest(self) -> bytes:
        """The sha256 of what is loaded: the cubin and the kernel's name in it, or the source when there is no cubin."""
        return hashlib.sha256(self.name.encode() + b"\0" + (self.cubin or self.source.encode())).digest()

    @cached_property
    def overlap(self) -> Overlap:
        """Where it waits for the kernels before it, which says when it may run beside them."""
        return Overlap.of(self.source)

    @cached_property
    def shares_multiprocessors(self) -> bool:
        """Whether its programs are to be on a multiprocessor beside those of the kernels before or after it: they read
        or ask for memory before they wait, or let the next ones begin."""
        asks = "g_ask(" in self.source.partition("gdc_wait()")[0].rpartition("@triton.jit")[2]
        early = self.overlap.reads_before_it_waits
        return early or self.lets_next_begin or (asks and self.shared_bytes >= TILES)

    @cached_property
    def lets_next_begin(self) -> bool:
        """Whether the next kernel may start before this one has waited for those before it."""
        release = self.source.find("gdc_launch_dependents()")
        return 0 <= release < self.source.find("gdc_wait()")


@dataclass(frozen=True)
class Launch:
    """One kernel launch on CUDA.

    `args` are in the kernel's order: a `Place` is passed as a device pointer, an `int` as int32
    (as int64 where it does not fit), `Table` as a pointer to a device array, and a `MatrixMap` as CUDA's tensor
    map with its shape and strides behind it. The two hidden scratch pointers that Triton adds are the executor's
    business. `writes` are the places that it may write to;
    None: all that it can reach. `origin` says what it computes for whom: "gelu at train.py:41 forward". Of the places
    `shared` it writes a part, as other launches write the others: these need not wait for each other. `choices` say
    which of its template's tiles or forms the kernel was made with where there were several, and who said so. `flops`
    are the floating-point operations of what it computes; `multiplies` says that they are a product's of matrices;
    `moves` are the bytes that it reads and writes.
    """

    kernel: KernelImage
    args: tuple[Place | int | Table | MatrixMap, ...]
    grid: tuple[int, int, int]
    label: str = ""
    writes: tuple[Place, ...] | None = None
    origin: str = ""
    shared: tuple[Place, ...] = ()
    choices: tuple[str, ...] = ()
    flops: int = 0
    multiplies: bool = False
    moves: int = 0


@dataclass(frozen=True)
class Check:
    """A kernel's check of an index: that it is inside a dimension.

    Attributes:
        name: the op that takes the index.
        size: the size of the dimension.
        dim: the number of the dimension.
        line: the user's line, as "file:line function".
    """

    name: str
    size: int
    dim: int
    line: str


@dataclass(frozen=True)
class MatrixMap:
    """A matrix in memory as the GPU's copy engine is told of it: rows `stride` elements apart, from `start` on.

    `outer` are the dimensions of a stack of such matrices: how many, and the elements from one to the next. Sizes and
    strides are `sizes` and `strides` with these dimensions in front.
    """

    place: Place
    shape: tuple[int, int]
    stride: int
    start: int
    block: tuple[int, ...]
    outer: tuple[tuple[int, int], ...] = ()

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The size of every dimension."""
        return (*[size for size, _ in self.outer], *self.shape) if self.outer else self.shape

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Elements from one to the next along every dimension; 1 for the last."""
        return (*[stride for _, stride in self.outer], self.stride, 1) if self.outer else (self.stride, 1)


@dataclass(frozen=True)
class Table:
    """A device array of int64, built when the plan is loaded: places become addresses, checks their error words."""

    entries: tuple[Place | int | Check, ...]

    @cached_property
    def parts(self) -> TableParts:
        """The table's entries, sorted into places, checks and numbers."""
        others = [(at, x) for at, x in enumerate(self.entries) if not isinstance(x, int)]  # few of very many entries
        pointers = [(at, x) for at, x in others if isinstance(x, Place)]
        checks = [(at, x) for at, x in others if isinstance(x, Check)]
        positions, places = [at for at, _ in pointers], [place for _, place in pointers]
        numbers = list(self.entries)
        for at, _ in others:
            numbers[at] = 0
        memories: dict[MemoryRef, int] = {}
        memory = [memories.setdefault(memory_of(place), len(memories)) for place in places]
        return TableParts(np.array(numbers, np.int64), checks, places, np.array(positions, np.int64), memories,
                          np.array(memory, np.int64), np.array([place.offset for place in places], np.int64))


class TableParts(NamedTuple):
    """The entries of a table, sorted by their kind.

    Attributes:
        numbers: int64[entries], 0 where an entry is no number.
        checks: (position among the entries, check).
        places: the places, in order.
        positions: int64[places]: the position of each place among the entries.
        memories: memory that places are in → its number.
        memory: int64[places]: the number of the memory that each place is in.
        offsets: int64[places]: the offset of each place in its memory, in bytes.
    """

    numbers: np.ndarray
    checks: list[tuple[int, Check]]
    places: list[Place]
    positions: np.ndarray
    memories: dict[MemoryRef, int]
    memory: np.ndarray
    offsets: np.ndarray

    def reaches(self, memories: Iterable[MemoryRef]) -> bool:
        """Whether a place of the table is in one of these memories."""
        return not self.memories.keys().isdisjoint(memories)


@dataclass(frozen=True)
class Copy:
    """A device-to-device copy of one whole value."""

    source: Place
    destination: Place
    label: str = "copy"


@dataclass(frozen=True)
class Collective:
    """A collective of a CUDA plan, which the group's transport gives the stream (`runtime/collectives.py`).

    Attributes:
        op: the op's name.
        communicator: the group's name.
        operands, results: the op's; the last of each is the communicator's order, which only keeps collectives in it.
        reduce, peer, sent, received: the op's attributes, where it has them; of messages to and from whom they go.
        more: the attributes that have to be equal on all ranks, as `text` shows them.
        origin: the user's line.
        compared: the types of operands that have to be equal on all ranks, as the program has them; of messages the
            types of all that goes and comes. They are of the sizes that a plan is filled in for: one rank may have met
            another size before, others not.
    """

    op: str
    communicator: str
    operands: tuple[Place, ...]
    results: tuple[Place, ...]
    reduce: str = ""
    peer: int = 0
    sent: tuple[int, ...] = ()
    received: tuple[int, ...] = ()
    more: str = ""
    origin: str = ""
    compared: tuple[TensorType, ...] = ()

    @property
    def label(self) -> str:
        """The op's name."""
        return self.op

    @cached_property
    def text(self) -> str:
        """All that has to be equal on all ranks; of messages what goes where."""
        shown = [f"{x.dtype.name}{list(x.shape)}" for x in self.compared]
        if self.op == "messages":
            ways = [f"to {peer}" for peer in self.sent] + [f"from {peer}" for peer in self.received]
            shown = [f"{x} {way}" for x, way in zip(shown, ways, strict=True)]
        return f"{self.op}({', '.join(shown)}{self.more})"


Step = Launch | Copy | Collective
"""A step of a CUDA plan."""

Edges = tuple[tuple[int, ...], ...]
"""The numbers of the steps that each step waits for, in order."""

@dataclass(frozen=True)
class NumberTensor:
    """A register of a CPU plan that holds a number as a tensor without dimensions.

    torch makes such a tensor of each number that it is given, which takes longer than a small kernel.

    Attributes:
        value: a literal, or its place among the plan's numbers.
        dtype: of the tensor.
    """

    value: Place | bool | int | float
    dtype: DType


Register = Place | NumberTensor | bool | int | float | None
"""What a register of a CPU plan starts as: a place in memory or in the numbers, a literal number, a number as a tensor,
or None for a value that a call makes."""


class Direct(NamedTuple):
    """The call of torch's that is all there is to a `Call`: `function(*operands, *after, out=result)`.

    Attributes:
        function: it may allocate its result where that has no place of its own; then nothing is passed for it.
        after: what stands behind the operands: names of the call's attributes, or other values; None is all of the
            attributes, in order.
        out: the keyword of the result; "" where the result stands first, and is never allocated.
    """

    function: Callable[..., object]
    after: tuple[object, ...] | None = ()
    out: str = "out"

    def arguments(self, attributes: Mapping[str, object]) -> list[object]:
        """What stands behind the operands of a call with these attributes."""
        if self.after is None:
            return list(attributes.values())
        return [attributes[x] if isinstance(x, str) else x for x in self.after]


NO_ATTRIBUTES: Final[Mapping[str, object]] = MappingProxyType({})
"""Those of a call without any."""


class Call(NamedTuple):
    """One call of a CPU lowering. Operands and results are indices into the plan's registers.

    A tuple, as long programs have tens of thousands, and share all else that is in one.

    `kind` is "out" (writes the results' places), "view" (the result shows the operand's memory),
    "fresh" (the results are in memory that the call allocates, and are adopted), "made" (so are they, by a call
    that could also write to a place) or "number" (the result is a Python number).
    `late(outs, *operands, **attributes)` returns the calls into C that do what an "out" call does. From the first call
    on that writes to an input's place, each has one; what it raises and allocates it does before.
    `direct` is all that an "out" or "made" call of one result does.
    `source` is the user's line that it was first made for.
    """

    function: Callable
    args: tuple[int, ...]
    outs: tuple[int, ...]
    kind: str
    attributes: Mapping[str, object] = NO_ATTRIBUTES
    label: str = ""
    late: Callable[..., Sequence[Callable[[], object]]] | None = None
    direct: Direct | None = None
    source: Source | TextSource | None = None

    def direct_as(self, kind: str) -> Direct | None:
        """`direct`, if a call of this kind may be made so."""
        direct = self.direct
        return direct if len(self.outs) == 1 and direct is not None and (
            kind == "out" or (kind == "made" and direct.out != "")) else None


@dataclass(frozen=True)
class Plan:
    """An ordered list of steps and the memory they need.

    Attributes:
        device: the device that it runs on.
        inputs: types of the memories that the caller passes; an updated one is written in place.
        outputs: types of the memories that a run returns, each freshly allocated (or reused when
            nobody holds it any more).
        updates: positions of the inputs that the run overwrites.
        numbers: weak types of the numbers, in order.
        steps: launches and copies (CUDA) or calls (CPU), in order.
        registers: the values that the calls of a CPU plan read and write.
        kept: positions of the inputs whose shadow weights (copies in a lower precision) are the plan's last inputs. The
            plan overwrites both.
        refresh: the plan that makes the shadow weights anew; its inputs are the sources, then the copies. None if there
            are none.
        arena_bytes: bytes of scratch memory, which all plans of a stream share.
        max_live_bytes: the fewest bytes that any plan of this order would need, for the planner's report.
        larger: a plan of the same steps whose values start at the same places and are no smaller.
    """

    device: Device
    inputs: tuple[TensorType, ...]
    outputs: tuple[TensorType, ...]
    updates: tuple[int, ...]
    numbers: tuple[TensorType, ...]
    steps: tuple[Launch | Copy | Collective | Call, ...]
    arena_bytes: int
    max_live_bytes: int = 0
    registers: tuple[Register, ...] = ()
    kept: tuple[int, ...] = ()
    refresh: Plan | None = None
    larger: Plan | None = field(default=None, compare=False, repr=False)

    @cached_property
    def edges(self) -> Edges:
        """The steps that each step of a CUDA plan must wait for. The edges of a larger plan are right for it,
        too: memory that overlaps here overlaps there."""
        from genesis.runtime.plan_edges import edges_of
        return edges_of(self.steps) if self.larger is None else self.larger.edges  # type: ignore[arg-type]


M = TypeVar("M")
"""The memory of one backend."""


@dataclass(frozen=True)
class Rewritten:
    """Outputs of a plan's last run that its caller holds, and nobody else: the next run may write there again.

    Attributes:
        stamp: what `Memories.outputs` was after that run.
        others: positions of the outputs that are not among them, which somebody may hold.
    """

    stamp: object
    others: tuple[int, ...]


class Memories(list[M]):
    """A list of memories that a plan runs over again and again.

    Attributes:
        stamp: an object that is replaced whenever a memory is: who knows the stamp need not look at the memories.
        extended: what the plan's executor made of the memories; it lives as long as the list.
        rewritten: the last outputs that the next run may write to although they are held; None for none.
        outputs: an object that stands for the last run's outputs, another one when one of them is other memory; None
            where each run makes new ones.
    """

    def __init__(self, memories: Iterable[M]):
        super().__init__(memories)
        self.stamp = object()
        self.extended: object = None
        self.rewritten: Rewritten | None = None
        self.outputs: object = None

    def changed(self) -> None:
        """Note that a memory of the list was replaced."""
        self.stamp = object()


__all__ = ["Call", "Check", "Collective", "Copy", "Direct", "Edges", "KernelImage", "Launch", "Memories",
           "NumberTensor", "Place", "Plan", "Rewritten", "Step", "Table"]
