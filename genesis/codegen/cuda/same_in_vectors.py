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
from genesis.passes.fusion.index_map import Expr

if TYPE_CHECKING:
    from genesis.codegen.cuda.emitter import Body

FEWEST: Final = 1024
"""Elements of a block of a row from which on such loads are told apart: shorter rows have few of them."""

_COORDINATE: Final = re.compile(r"\br(_mask)?\b")


def elements_of_vector(body: Body) -> int:
    """Elements of a vector of a program's row, where all of it is one block; else 1."""
    blocks, kernel = body.blocks, body.kernel
    alone = not body.flat and blocks.x == 1 and kernel.splits is None and blocks.r >= FEWEST
    if not alone or blocks.looped or blocks.tiled or blocks.across or blocks.packed or body.vector:
        return 1
    sizes = [s.out.dtype.itemsize for s in kernel.loads("xr") if plain(s, kernel)]
    count = VECTOR // min(sizes) if sizes else 1
    return count if is_multiple(as_written(kernel.r_size), count) else 1


def same_in_vectors(body: Body, s: Load) -> bool:
    """Does a load depend on the element of a row by quotients alone, which all elements of a vector share?"""
    count = elements_of_vector(body)
    along = [atom for atom, k in s.address.terms if "r" in body.vars_of(Expr(0, ((atom, k),)))]
    return (count > 1 and bool(along) and not s.bounds
            and all(atom.kind == "div" and str(atom.inner) == "r" and is_multiple(as_written(atom.number), count)
                    for atom in along))


def coordinate_lines(body: Body) -> list[str]:
    """Where each vector of the row begins, and whether it lies in the row."""
    count = elements_of_vector(body)
    return [f"r_vector = tl.arange(0, RBLOCK // {count})[None, :] * {count}",
            f"r_vector_mask = {_at_vectors(body.inside_row())}"]


def load_lines(body: Body, name: str, load: str) -> list[str]:
    """The lines for such a load, whose text for every element is given."""
    count = elements_of_vector(body)
    spread = f"tl.broadcast_to({name}_vector[:, :, None], [1, RBLOCK // {count}, {count}])"
    return [f"{name}_vector = {_at_vectors(load)}", f"{name} = tl.reshape({spread}, [1, RBLOCK])"]


def _at_vectors(text: str) -> str:
    """A text over the elements of a row, over its vectors."""
    return _COORDINATE.sub(lambda found: f"r_vector{found.group(1) or ''}", text)
