"""Where long rows begin and end, when that is at no multiple of a vector, or not known when a kernel is compiled.

Rows that begin anywhere are read and written in whole vectors all the same. A row of 50257 16-bit values begins at a
multiple of 2 bytes, and a thread that loads 16 bytes at once wants a multiple of 16. So a program's blocks begin at the
vector that the row's first element lies in, `shift` elements before it:

    row_start = x * 50257 // 8 * 8, shift = x * 50257 % 8          near = 0, 1, …, r = near - shift

Vectors that lie in the row are loaded and stored as such, the elements at its two edges one by one: what belongs to a
neighbour may be written by another program meanwhile.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.block_sizes import VECTOR, Blocks
from genesis.codegen.cuda.blocks import in_rows_of_vectors
from genesis.codegen.cuda.kernel_ir import Kernel, Load, Random, Store
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import Size, SymInt, as_written, hint, literal_value, rounds

FEWEST: Final = 1024
FEWEST_OF_SYMBOLIC: Final = 4096
"""Elements of a block from which on rows are shifted so: reckoned, not timed against smaller ones. More where the
length may be an argument, as edges then cost a plan for each eighth of the block that a row can end in."""

WIDEST: Final = 2
"""Bytes of an element at most: wider ones fill lines of memory when each lane loads one."""

LONG_ROW: Final = 4096
"""Elements of a block from which on it pays to know in which eighth a row ends: there is a plan for each."""


def vector_of_rows(kernel: Kernel, blocks: Blocks) -> int:
    """Elements of a vector, where a program's row is read and written so; 0 where it is not, or begins with one."""
    alone = kernel.has_r and blocks.x == 1 and not blocks.tiled and kernel.splits is None and not kernel.r_leads
    fewest = FEWEST_OF_SYMBOLIC if isinstance(kernel.r_size, SymInt) else FEWEST
    if not alone or blocks.r < fewest or in_rows_of_vectors(kernel):
        return 0
    moved: list[Load | Store] = [*kernel.stores("xr"), *kernel.loads("xr")]
    if any(isinstance(s, Random) for s in kernel.statements) or not all(plain(s, kernel) for s in moved):
        return 0
    narrowest = min(s.out.dtype.itemsize for s in kernel.loads("xr"))
    vector = VECTOR // narrowest
    return vector if narrowest <= WIDEST and (blocks.looped or kernel.r_size + vector - 1 <= blocks.r) else 0


def ask_for_vectors(kernel: Kernel) -> None:
    """Make it a guard whether long rows, whose length follows from sizes that change, begin at multiples of a
    vector, and whether the elements of a vector are of one channel, where a row has several.

    No class of sizes says it: 56 is a number that 16 does not divide, and 56² · 4 one that 8 does. Not told, a thread
    would load the row's elements one by one, and divide for each.
    """
    length = kernel.r_size
    rows = [s for s in kernel.loads("xr") if s.out.dtype.itemsize <= WIDEST and plain(s, kernel)]
    vector = max((VECTOR // s.out.dtype.itemsize for s in rows), default=1)
    if hint(length) < FEWEST or vector == 1 or not _is_told(length, vector):
        return
    for s in kernel.loads("xr"):
        for atom, _ in s.address.terms:
            if atom.kind == "div" and atom.inner is not None and str(atom.inner) == "r":
                _is_told(atom.number, vector)


def _is_told(size: Size, vector: int) -> bool:
    """Whether a vector divides a size; of one that follows from others, as a product or a quotient, the answer is a
    guard."""
    written = as_written(size)
    if not isinstance(written, SymInt) or is_multiple(written, vector):
        return is_multiple(written, vector)
    return _follows_from_others(written) and written.trace.guard_divisor(written, vector)


def _follows_from_others(size: SymInt) -> bool:
    """Whether a size is a product or a quotient of sizes that change: 56 channels in 8 groups of images of 56 × 56 have
    rows of n·n·n // 8 elements."""
    return any(len(atoms) > 1 or any(size.trace.atoms[atom][0] == "//" for atom in atoms) for atoms, _ in size.terms)


def plain(s: Load | Store, kernel: Kernel) -> bool:
    """Whether it is at x·(elements of a row) + r."""
    terms = {atom.name: k for atom, k in s.address.terms if atom.kind == "var"}
    return (len(terms) == len(s.address.terms) and terms == {"x": kernel.r_size, "r": 1} and s.address.constant == 0
            and not (isinstance(s, Load) and s.bounds))


def start_lines(length: int, vector: int, integer: str) -> list[str]:
    """Where the program's row begins, after the kernel's x; `integer` converts to 64 bits where addresses need them."""
    first = f"tl.program_id(0){integer} * {length}"
    return [f"shift = {first} % {vector}", f"row_start = {first} // {vector} * {vector}"]


def block_lines(kernel: Kernel, blocks: Blocks, length: str, vector: int, integer: str) -> list[str]:
    """A block's elements: `near` counts from the vector that the row begins in, `r` from the row's first element.

    `whole` are those of vectors that lie in the row, `edge` its others: most blocks of a loop have none of them, and of
    one block for all of a row the text says where they can be.
    """
    start = "r_start + " if blocks.looped else ""
    lines = [f"near = {start}tl.arange(0, RBLOCK)[None, :]{integer}", "r = near - shift",
             f"r_mask = (r >= 0) & (r < {length})", f"near_vector = near // {vector} * {vector}",
             f"whole = (near_vector >= shift) & (near_vector + {vector} <= {length} + shift)",
             "edge = r_mask & (whole == 0)"]
    if blocks.looped:
        return [*lines, f"has_edge = (r_start == 0) | (r_start + RBLOCK > {length} + shift)"]
    eighth = blocks.r // 8
    last = (rounds(kernel.r_size, eighth) - 1) * eighth - vector
    end = rounds(kernel.r_size + vector - 1, eighth) * eighth
    return [*lines, f"whole = whole & (near < {end})",
            f"edge = edge & ((near < {vector}) | ((near >= {last}) & (near < {end})))"]


def load_lines(name: str, argument: str, looped: bool) -> list[str]:
    """A load of the row's elements."""
    place = f"{argument} + row_start + near"
    return [f"{name} = tl.load({place}, mask=whole, other=0)",
            *_at_edges(f"{name} = tl.where(edge, tl.load({place}, mask=edge, other=0), {name})", looped)]


def store_lines(argument: str, value: str, looped: bool) -> list[str]:
    """A store of the row's elements."""
    place = f"{argument} + row_start + near"
    return [f"tl.store({place}, {value}, mask=whole)", *_at_edges(f"tl.store({place}, {value}, mask=edge)", looped)]


def _at_edges(line: str, looped: bool) -> list[str]:
    """What is done for edges: in a loop only by the blocks that have one."""
    return ["if has_edge:", f"    {line}"] if looped else [line]


def before_end(length: int, name: str, block: int) -> str:
    """The mask of a block of r from 0 on that a row of this length is in; of other blocks where `block` is 0.

    Of a long row whose length is an argument, the text says in which eighth of the block it ends: the compiler leaves
    out what lies behind, as it does where the length is a number.
    """
    inside = f"r < {name}"
    if block < LONG_ROW or literal_value(length) is not None:
        return inside
    end = rounds(length, block // 8) * (block // 8)
    return f"r < {end}" if length == end else f"({inside}) & (r < {end})"
