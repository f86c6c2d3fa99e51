"""A kernel as text, with all that is needed to compile and launch it but where its operands are."""

from __future__ import annotations

import hashlib
import linecache
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from genesis.ir.node import Node
from genesis.ir.sym_int import SymInt, literal_value, most, value_of
from genesis.ir.types import TensorType
from genesis.runtime.overlap import EARLY, LAST

if TYPE_CHECKING:
    from genesis.codegen.cuda.gpu_model import GpuModel

HEADER = """import triton
import triton.language as tl
from triton.language.extra import cuda, libdevice
"""
GLUON_HEADER = """import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as tl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait)
from triton.language.extra import cuda, libdevice

load_block = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared
store_block = tma.async_store if hasattr(tma, "async_store") else tma.async_copy_shared_to_global
threads_meet = tl.barrier if hasattr(tl, "barrier") else tl.thread_barrier
memory = tl.shared_memory_descriptor
reshaped = memory.reinterpret if hasattr(memory, "reinterpret") else memory._reinterpret
"""
"""Gluon's language has Triton's names for what both have: an epilogue's lines are the same in both. What Triton 3.6
calls otherwise than 3.9 has a name of its own here."""

_GLUONS_NAMES: Final = {"@triton.jit": "@gluon.jit", "tl.math.": "tl.", "tl.Propagate": "triton.language.Propagate",
                        "tl.debug_barrier": "threads_meet"}
"""What Gluon calls otherwise than Triton's language."""

SIZES = "*sizes, "
"""Stands in a kernel of several functions for the arguments that symbolic sizes become."""

WAIT = "cuda.gdc_wait()"
"""A kernel's first line: it may be started while the kernels before it end, and waits here until they have."""
RELEASE = "cuda.gdc_launch_dependents()"
"""Its second: from when its last programs run, those of the kernels after it may take the places that are left. Before
the wait it would let a whole chain of small kernels onto the GPU: a token's step takes 4 % longer so (H200,
2026-11)."""


MOST_ELEMENTS: Final = 1 << 20
"""Elements of a block, at most, as Triton allows."""

MOST_WARPS: Final = 32
"""Warps of a program, at most: CUDA has 1024 threads."""


def fits(value: int, kind: str) -> bool:
    """Is a number one of this type of Triton's?

    >>> fits(2**31, "i32"), fits(2**31, "i64"), fits(2**31, "*fp32")
    (False, True, False)
    """
    return kind in ("i32", "i64") and -(1 << int(kind[1:]) - 1) <= value < 1 << int(kind[1:]) - 1


@dataclass(frozen=True)
class TensorTable:
    """A kernel argument that is a table of int64: nodes stand for their addresses, ints for themselves."""

    entries: tuple[Node | int, ...]


@dataclass(frozen=True)
class MatrixMap:
    """A kernel argument that tells the GPU's copy engine where a matrix lies, so that whole blocks of it are moved.

    Attributes:
        node: the memory that it lies in.
        shape: rows and columns.
        stride: elements from one row to the next; the elements of a row are side by side.
        start: elements before the first.
        block: rows and columns of what is moved at once, and in front of them a 1 for each of `outer`.
        outer: (how many, elements from one to the next) for each dimension of a stack of such matrices.
    """

    node: Node
    shape: tuple[int, int]
    stride: int
    start: int
    block: tuple[int, ...]
    outer: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class From:
    """A kernel argument that is a memory from one of its elements on.

    Attributes:
        node: whose memory it is.
        start: elements before the first; a multiple of 16 bytes.
    """

    node: Node
    start: int


def memory_of(argument: object) -> Node | None:
    """The node in whose memory an argument points to elements; None for a number, a table and a matrix's map."""
    node = argument.node if isinstance(argument, From) else argument
    return node if isinstance(node, Node) else None


@dataclass(frozen=True)
class Exchange:
    """A kernel argument: memory in which the kernel's programs hand over parts of a sum.

    Attributes:
        offset: bytes from the start of the stream's exchange memory. What begins at 0 are flags, which kernels
            leave 0.
        type: what lies there.
    """

    offset: int
    type: TensorType


@dataclass(frozen=True)
class KernelSource:
    """Everything about a kernel that the group alone decides.

    Attributes:
        name: the function to launch.
        source: a Python module that defines it with `triton.jit`.
        signature: parameter → Triton type ("*fp32", "i32", "constexpr"), in order.
        constexprs: values of the constexpr parameters.
        args: for each parameter that is not a constexpr: a node (its memory), or that from an element on, an int, a
            table, a matrix's map, or a place to hand parts over.
        aligned: parameters known to be multiples of 16 (pointers, sizes).
        eights: others known to be multiples of 8.
        lesser: others, and the 4 or 2 that is known to divide them.
        grid: programs in three dimensions; an empty one needs no launch.
        plain: the same kernel in Triton's own language, where `source` is in Gluon: what an interpreter runs.
        note: why the kernel is of this form, where its template has several; for `genesis why`.
        registers: the most of a thread, where more programs at once are worth more than what it keeps; 0: no bound.
        shared: bytes of shared memory behind Triton's own, for words at computed places (`templates/shared_words.py`).
        flushes: whether results below float32's normal range may be 0, which makes exponentials cheaper.
        choices: which of its template's candidates it was made with, and who said so, for people.
    """

    name: str
    source: str
    signature: dict[str, str]
    constexprs: dict[str, Any]
    args: tuple[Node | From | int | TensorTable | MatrixMap | Exchange, ...]
    aligned: tuple[str, ...]
    grid: tuple[int, int, int]
    num_warps: int = 4
    num_stages: int = 3
    label: str = ""
    flushes: bool = False
    registers: int = 0
    shared: int = 0
    plain: str = ""
    note: str = ""
    eights: tuple[str, ...] = ()
    lesser: tuple[tuple[str, int], ...] = ()
    choices: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no compiler takes, or what it would take for granted though it does not hold: an interpreter,
        which has no warps and no vectors, would run it.

        Raises:
            ValueError: saying what is wrong.
        """
        if self.num_warps < 1 or self.num_warps & (self.num_warps - 1) or self.num_warps > MOST_WARPS:
            raise ValueError(f"{self.name}: {self.num_warps} warps are no power of two up to {MOST_WARPS}")
        blocks = [self.constexprs.get(name, 1) for name in ("XBLOCK", "RBLOCK")]
        if all(block.__class__ is int for block in blocks) and math.prod(blocks) > MOST_ELEMENTS:
            raise ValueError(f"{self.name}: a block of {blocks[0]} × {blocks[1]} elements")
        names = [name for name, kind in self.signature.items() if kind != "constexpr"]
        if len(names) != len(self.args) or len(names) + len(self.constexprs) != len(self.signature):
            raise ValueError(f"{self.name}: its arguments are not those of its signature")
        given = dict(zip(names, self.args, strict=True))
        for name, divisor in self.divisors.items():
            value = given[name]
            if value.__class__ is int and value % divisor:
                raise ValueError(f"{self.name}: {name} = {value} is no multiple of {divisor}")
        for name, value in given.items():
            if isinstance(value, (int, SymInt)) and not fits(value_of(value), self.signature[name]):
                raise ValueError(f"{self.name}: {name} = {value} is no {self.signature[name]}")

    @property
    def readable(self) -> str:
        """The text that an interpreter can run."""
        return self.plain or self.source

    @property
    def divisors(self) -> dict[str, int]:
        """Parameter → the number that is known to divide it."""
        return dict.fromkeys(self.aligned, 16) | dict.fromkeys(self.eights, 8) | dict(self.lesser)

    def key_parts(self) -> dict[str, Any]:
        """What decides the compiled kernel, as plain data: equal parts are one compilation."""
        return {"name": self.name, "source": self.source, "signature": list(self.signature.items()),
                "constexprs": list(self.constexprs.items()), "aligned": list(self.aligned), "eights": list(self.eights),
                "num_warps": self.num_warps, "num_stages": self.num_stages, "flushes": self.flushes,
                **({"lesser": list(self.lesser)} if self.lesser else {}),
                **({"registers": self.registers} if self.registers else {}),
                **({"shared": self.shared} if self.shared else {}),
                "language": "gluon" if self.plain else "triton"}


SMALL: Final = 4
"""Warps for each multiprocessor, at most, of a kernel that lets the next one start before it waits itself."""


def letting_next_begin(source: KernelSource, after: KernelSource, gpu: GpuModel) -> KernelSource:
    """A small kernel before one that reads or asks for memory before it waits: that one begins while the kernels before
    the small one still run, and memory has something to do. Any other kernel lets the next one start once it has
    waited, so that no chain of kernels takes places from those that run."""
    begins = after.source.partition(WAIT)[0].partition(f"def {after.name}(")[2]
    warps = literal_value(math.prod(source.grid) * source.num_warps)
    small = warps is not None and warps <= SMALL * gpu.multiprocessors
    if source.plain or not small or LAST in after.source or not ("g_ask(" in begins or EARLY in after.source):
        return source
    return replace(source, source=source.source.replace(f"    {WAIT}\n    {RELEASE}\n", f"    {RELEASE}\n    {WAIT}\n"))


def waiting_last(source: KernelSource) -> KernelSource:
    """The kernel, beginning with the one before it, of which it needs nothing: it waits for that one at its end.

    When that one's last programs have begun, all before it has ended and may be read. What comes next waits for this
    kernel, and so for both. Where the planner has given this one's results memory of that one, or a plan begins
    between them, it is launched when all before it has ended (`LoadedSteps.beside`).

        before: cuda.gdc_wait()                         after: cuda.gdc_launch_dependents()
                cuda.gdc_launch_dependents()                   x = …
                x = …                                          cuda.gdc_wait()
    """
    begins = f"    {WAIT}\n    {RELEASE}\n"
    if source.plain or source.source.count(begins) != 1 or EARLY in source.source or "return\n" in (
            source.source.partition(f"def {source.name}(")[2]):
        return source
    text = source.source.replace(begins, f"    {LAST}\n    {RELEASE}\n").rstrip("\n")
    return replace(source, source=f"{text}\n    {WAIT}\n")


MOST_BESIDE: Final = 65535
"""Programs along a grid's second and third dimension, at most: CUDA has 2^31 - 1 along the first alone."""


def along_one_dimension(source: KernelSource) -> KernelSource:
    """The kernel with all programs along the grid's first dimension, in the same order, where CUDA has no room for them
    in the others: of rows of millions of elements each program has a few hundred columns.

        before: tl.program_id(1) * COLUMNS, grid (4, 78125, 1)
        after:  (tl.program_id(0) // 4) * COLUMNS, grid (312500, 1, 1)
    """
    _, y, z = source.grid
    if most(y) <= MOST_BESIDE and most(z) <= MOST_BESIDE:
        return source
    along = along_first(source.grid)
    return replace(source, source=along(source.source), plain=along(source.plain), grid=(math.prod(source.grid), 1, 1))


def along_first(grid: tuple[int, int, int]) -> Callable[[str], str]:
    """What writes a text of programs of such a grid for one in which all of these lie along the first dimension."""
    x, y, z = grid
    program = "tl.program_id(0)"
    written = {"tl.program_id(0)": f"({program} % {x})", "tl.program_id(1)": f"({program} // {x} % {y})",
               "tl.program_id(2)": f"({program} // {x * y})",
               "tl.num_programs(0)": f"{x}", "tl.num_programs(1)": f"{y}", "tl.num_programs(2)": f"{z}"}

    def along(text: str) -> str:
        return re.sub("|".join(map(re.escape, written)), lambda match: written[match[0]], text)
    return along


def without_waiting(source: KernelSource) -> KernelSource:
    """The kernel for a GPU that starts none before those before it have ended: without the two lines about that."""
    def without(text: str) -> str:
        return "".join(line for line in text.splitlines(keepends=True) if line.strip() not in (WAIT, RELEASE))
    return replace(source, source=without(source.source), plain=without(source.plain))


def in_gluon(text: str) -> str:
    """A text in Triton's language, as Gluon calls what it uses."""
    for here, there in _GLUONS_NAMES.items():
        text = text.replace(here, there)
    return text


def define(source: str) -> dict[str, Any]:
    """Execute a kernel's module text and return its names.

    Triton reads a kernel's text through `inspect`, so the text is put where `inspect` looks.
    """
    filename = f"<genesis kernel {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    namespace: dict[str, Any] = {"__name__": filename, "__file__": filename}
    exec(compile(source, filename, "exec"), namespace)
    return namespace
