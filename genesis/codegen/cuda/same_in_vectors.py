"""Loads that are the same for all elements of a vector: a channel's weight beside the elements of its channel.

A program that has a row of several channels reads, for each element, the weight of the element's channel. Where a
vector's elements are of one channel, because a vector divides a channel's length and each row's, the weight is loaded
once for all of them, and the quotient that finds it is reckoned once. With 8 elements in a vector:

    r_start = 0, 8, 16, …        weight of r_start // 3136        each for the 8 elements from r_start on

Loaded for each element, weights come to other threads than the elements, as Triton sees no direction in them, and go
through shared memory in each round of a loop over the row. So where a vector divides the row and not a channel, which
has as many elements or more, two weights are loaded for each vector, that of its first element and of its last:

    weight of r_start // 2809 for those below (r_start // 2809 + 1) * 2809, of (r_start + 7) // 2809 for the others
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from genesis.codegen.cuda.block_sizes import VECTOR
from genesis.codegen.cuda.kernel_ir import Load
from genesis.codegen.cuda.row_edges import plain
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import as_written
from genesis.passes.fusion.index_map import Atom, Expr, constant

if TYPE_CHECKING:
    from genesis.codegen.cuda.emitter import Body

FEWEST: Final = 1024
"""Elements of a block of a row from which on such loads are told apart: shorter rows have few of them."""

COUNTS: Final = (8, 4, 2)
"""Neighbours that one load is for in a loop over a part of a row."""

_COORDINATE: Final = re.compile(r"\br(_mask)?\b")


def elements_of_vector(body: Body) -> int:
    """Elements of a vector of a program's row, or of its part of one; 1 where these begin anywhere."""
    blocks, kernel = body.blocks, body.kernel
    alone = not body.flat and blocks.x == 1 and blocks.r >= FEWEST
    if not alone or blocks.tiled or blocks.across or blocks.packed or body.vector:
        return 1
    sizes = [s.out.dtype.itemsize for s in kernel.loads("xr") if plain(s, kernel)]
    if kernel.splits is not None:
        return _of_a_part(body)
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
    """Does a load depend on the element of a row by quotients alone, which all elements of a vector share, or by one
    quotient, of which these have two?"""
    count, along = elements_of_vector(body), _along(body, s)
    if count == 1 or not along or s.bounds or not all(map(_is_quotient, along)):
        return False
    return not _split_at(body, s) or (len(along) == 1 and body.kernel.splits is None and along[0].number >= count)


def _split_at(body: Body, s: Load) -> Atom | None:
    """The quotient that elements of a vector may have two of; None where they share all that a load's address has."""
    count = elements_of_vector(body)
    return next((atom for atom in _along(body, s) if not is_multiple(as_written(atom.number), count)), None)


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


def load_lines(body: Body, s: Load, load: str) -> list[str]:
    """The lines for such a load, whose text for every element is given."""
    name, count, split = s.out.name, elements_of_vector(body), _split_at(body, s)
    lines = [f"{name}_vector = {_at_vectors(load)}"]
    if split is None:
        return [*lines, f"{name} = {_spread(f'{name}_vector', count)}"]
    number = body.text(constant(split.number))
    return [*lines, f"{name}_last = {_at_vectors(load, f'(r_vector + {count - 1})')}",
            f"{name}_end = (r_vector // {number} + 1) * {number}",
            f"{name} = tl.where(r < {_spread(f'{name}_end', count)}, {_spread(f'{name}_vector', count)}, "
            f"{_spread(f'{name}_last', count)})"]


def _spread(vectors: str, count: int) -> str:
    """What vectors have, for each of their elements."""
    return f"tl.reshape(tl.broadcast_to({vectors}[:, :, None], [1, RBLOCK // {count}, {count}]), [1, RBLOCK])"


def _at_vectors(text: str, coordinate: str = "r_vector") -> str:
    """A text over the elements of a row, over its vectors; `coordinate` is the element of each that counts."""
    return _COORDINATE.sub(lambda found: f"r_vector{found.group(1)}" if found.group(1) else coordinate, text)
