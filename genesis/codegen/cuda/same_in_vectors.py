"""Loads that are the same for all elements of a vector: a channel's weight beside the elements of its channel.

A program that has a row of several channels reads, for each element, the weight of the element's channel. Where a
vector's elements are of one channel, because a vector divides a channel's length and each row's, the weight is loaded
once for all of them, and the quotient that finds it is reckoned once. With 8 elements in a vector:

    r_start = 0, 8, 16, …        weight of r_start // 3136        each for the 8 elements from r_start on
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.block_sizes import VECTOR
from genesis.codegen.cuda.kernel_ir import Load
from genesis.codegen.cuda.row_edges import plain
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import as_written
from genesis.passes.fusion.index_map import Atom, Expr

if TYPE_CHECKING:
    from genesis.codegen.cuda.emitter import Body

FEWEST: Final = 1024
"""Elements of a block of a row from which on such loads are told apart: shorter rows have few of them."""

COUNTS: Final = (8, 4, 2)
"""Neighbours that one load is for in a loop over a part of a row."""

_COORDINATE: Final = re.compile(r"\br(_mask)?\b")


def elements_of_vector(body: Body) -> int:
    """Elements of a vector of a program's row, where all of it is one block, or of its part of one; else 1."""
    blocks, kernel = body.blocks, body.kernel
    alone = not body.flat and blocks.x == 1 and blocks.r >= FEWEST
    if not alone or blocks.tiled or blocks.across or blocks.packed or body.vector:
        return 1
    sizes = [s.out.dtype.itemsize for s in kernel.loads("xr") if plain(s, kernel)]
    if kernel.splits is not None:
        return _of_a_part(body)
    if blocks.looped:
        return 1
    count = VECTOR // min(sizes) if sizes else 1
    return count if is_multiple(as_written(kernel.r_size), count) else 1


def _of_a_part(body: Body) -> int:
    """Elements that one such load is for, of parts of rows in a loop: the most that divide what it is the same for."""
    splits, length = body.kernel.splits, as_written(body.kernel.r_size)
    assert splits is not None
    if splits.over != "r" or not body.blocks.looped or body.kernel.space[-1][1] != "r":
        return 1
    loads = [*body.kernel.loads("xr"), *body.kernel.loads("r")]
    numbers = [[as_written(atom.number) for atom in along] for load in loads
               if not load.bounds and (along := _along(body, load)) and all(map(_is_quotient, along))]
    return next((count for count in COUNTS if splits.multiple % count == 0 and is_multiple(length, count)
                 and any(all(is_multiple(number, count) for number in each) for each in numbers)), 1)


def same_in_vectors(body: Body, s: Load) -> bool:
    """Does a load depend on the element of a row by quotients alone, which all elements of a vector share?"""
    count, along = elements_of_vector(body), _along(body, s)
    return (count > 1 and bool(along) and not s.bounds
            and all(_is_quotient(atom) and is_multiple(as_written(atom.number), count) for atom in along))


def _along(body: Body, s: Load) -> list[Atom]:
    """What a load's address has of the element of a row."""
    return [atom for atom, k in s.address.terms if "r" in body.vars_of(Expr(0, ((atom, k),)))]


def _is_quotient(atom: Atom) -> bool:
    return atom.kind == "div" and str(atom.inner) == "r"


def coordinate_lines(body: Body) -> list[str]:
    """Where each vector of the row begins, and whether it lies in the row."""
    count = elements_of_vector(body)
    return [f"r_vector = tl.arange(0, RBLOCK // {count})[None, :] * {count}",
            f"r_vector_mask = {_at_vectors(body.inside_row())}"]


def loop_lines(body: Body, lines: list[str]) -> list[str]:
    """The same of a block in a loop, behind the lines that say where its elements are, and which lie in the row."""
    count = elements_of_vector(body)
    start = f"r_start + tl.arange(0, RBLOCK // {count})[None, :] * {count}"
    masks = [_at_vectors(line) for line in lines if line.startswith("r_mask = ")]
    return [*lines, f"r_vector = {start}", *masks]


def load_lines(body: Body, name: str, load: str) -> list[str]:
    """The lines for such a load, whose text for every element is given."""
    count = elements_of_vector(body)
    spread = f"tl.broadcast_to({name}_vector[:, :, None], [1, RBLOCK // {count}, {count}])"
    return [f"{name}_vector = {_at_vectors(load)}", f"{name} = tl.reshape({spread}, [1, RBLOCK])"]


def _at_vectors(text: str) -> str:
    """A text over the elements of a row, over its vectors."""
    return _COORDINATE.sub(lambda found: f"r_vector{found.group(1) or ''}", text)
