"""Rows that begin at no multiple of a vector, and are scanned in vectors all the same.

A program's blocks begin with the vector that a row's first element lies in, `shift` elements before it (as in
`row_edges.py`, for which rows have blocks of their own: here several may share one). Vectors that lie in the row are
stored whole, the elements at its two ends one by one. A state is that of no element before the row begins; what lies
behind its end comes after all that is kept.
"""

from __future__ import annotations

from genesis.codegen.cuda.kernel_ir import Load
from genesis.codegen.cuda.lowerings import held, triton_type
from genesis.codegen.cuda.templates.rows import Rows


def start_lines(rows: Rows, vector: int) -> list[str]:
    """Where each row begins, and the vector that it begins in."""
    return [f"row_start = x * {rows.size} // {vector} * {vector}", f"shift = x * {rows.size} - row_start"]


def near_lines(rows: Rows, vector: int, begin: str, reverse: bool) -> list[str]:
    """The elements of a block of shifted rows: `near` counts from the vector that a row begins in, `r` from its
    first element. `whole` are those of vectors that lie in the row, `edge` its others: of a block that is all of a
    row the text says where they can be. A loop has a block at `begin`."""
    length = rows.size
    lines = [f"near = {begin}tl.arange(0, RBLOCK)[None, :]{rows.integer}", "r = near - shift",
             f"near_vector = near // {vector} * {vector}",
             f"inside = (near_vector + {vector} <= {length}) | (near_vector + {vector} <= {length} + shift)",
             f"whole = x_mask & inside & ((near_vector >= {vector}) | (shift == 0))",
             f"at_end = (near >= {length} - {vector}) & (near < {length} + shift) & (inside == 0)",
             f"edge = x_mask & (((near < {vector}) & (near >= shift) & (shift > 0)) | at_end)",
             f"kept = (near < {length}) | (near < {length} + shift)" if reverse else
             f"kept = (near >= {vector}) | (near >= shift)"]
    if begin:
        lines += ["is_first = begin == 0", f"is_last = begin + RBLOCK > {length} - {vector}"]
    return lines


def load_lines(rows: Rows, loops: bool) -> list[str]:
    """The operands' values. Vectors are loaded whole, with what they have of neighbouring rows: the operand's last
    one, of which something may lie behind its end, element by element, by the program that has it."""
    lines = [f"wanted = x_mask & (inside | ((x + 1 < x_size) & (near_vector < {rows.size} + shift)))",
             "last_ones = at_end & (x + 1 == x_size)",
             f"if {'is_last & ' if loops else ''}((tl.program_id(0) + 1) * XBLOCK >= x_size):"]
    lines, last, values = lines[:2], lines[2:], []
    kernel = rows.kernel
    moved = kernel.loads("xr")
    for s in kernel.statements:
        if not (isinstance(s, Load) and s in moved):
            values += rows.body.statement(s)
            continue
        place, name = f"{s.argument} + row_start + near", s.out.name
        lines.append(f"{name}_near = tl.load({place}, mask=wanted, other=0)")
        last.append(f"    {name}_near = tl.where(last_ones, tl.load({place}, mask=last_ones, other=0), "
                    f"{name}_near)")
        values.append(f"{name} = {name}_near.to({triton_type(held(s.out.dtype))})")
    return [*lines, *last, *values]


def kept_lines(line: str, loops: bool, reverse: bool) -> list[str]:
    """A line that keeps what is in the row, by the blocks that have something else."""
    return [f"if {'is_last' if reverse else 'is_first'}:", f"    {line}"] if loops else [line]


def store_lines(argument: str, value: str, loops: bool) -> list[str]:
    """A store of the rows' elements."""
    place = f"{argument} + row_start + near"
    edges = f"tl.store({place}, {argument}_value, mask=edge)"
    return [f"{argument}_value = {value}", f"tl.store({place}, {argument}_value, mask=whole)",
            *(["if is_first | is_last:", f"    {edges}"] if loops else [edges])]
