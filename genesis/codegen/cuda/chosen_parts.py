"""A concatenation of many short parts as one loop with one load: an element chooses where it is read, not what.

As a loop over the result every element has a load under a mask for each part, and chooses among what they gave: of
eight parts eight loads, of which each waits for memory. Loops side by side write a piece of a sector each, and what
meets in the L2 has to find its way there. Here an element chooses an address, and loads once:

    before: where(near < 3, load(in0 + …), where(near < 6, load(in1 + …), load(in2 + …)))
    after:  load(where(near < 3, in0, where(near < 6, in1 - 3, in2 - 6)) + (row * 3 + near))

A part that lies in another order has an address of its own, which is chosen in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from genesis.codegen.cuda.block_sizes import VECTOR
from genesis.codegen.cuda.build_kernel import build
from genesis.codegen.cuda.expressions import expression
from genesis.codegen.cuda.kernel_ir import Kernel, Load, Store
from genesis.codegen.cuda.loops import any_needs_int64, integer_type, module, multiples_of_16
from genesis.codegen.cuda.lowerings import POINTER, triton_type
from genesis.codegen.cuda.naming import kernel_name
from genesis.codegen.cuda.neighbours import steps_along
from genesis.codegen.cuda.source import KernelSource
from genesis.ir.node import Node
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import as_written, hint
from genesis.passes.fusion.index_map import Expr, floordiv, mod_, offset, variable
from genesis.passes.groups import Group

MOST: Final = 16
"""The most parts: each costs an element three instructions."""

MANY: Final = 6
"""Parts from which on one in six may lie in an order of which no neighbours are neighbours in the result, and elements
may be of two bytes: what the others move takes longer than what each element chooses."""

NEAR_BYTES: Final = 4 << 20
"""Bytes of what lies in such an order up to which more than one of `MANY` parts may: the L2 brings a sector for each of
their elements."""

BLOCK: Final = 512
"""Elements of a program of four warps (H200, eight parts of 12 bytes, 182 MB: 49.0 µs in blocks of 512 and 62.2 of
2048; loops side by side 117, a load for each part 80, torch.compile 97)."""

WARPS: Final = 4
"""Warps of a program."""


def emit_chosen_parts(group: Group, whole: Node, span: int, parts: Sequence[tuple[int, Group]]) -> KernelSource | None:
    """The kernel of a loop that concatenates what lies in memory; None where a part is computed, or parts are too many.

    Args:
        whole: the result, in rows of `span` elements.
        parts: how many elements of a row each has, and the loop that would make it alone.
    """
    many = len(parts) >= MANY
    if not 1 < len(parts) <= MOST or whole.dtype.itemsize < (2 if many else 4):
        return None
    if not many and all(is_multiple(as_written(size) * whole.dtype.itemsize, VECTOR) for size, _ in parts):
        return None  # vectors under masks are few instructions
    found = [read for _, member in parts if (read := _only_read(build(member))) is not None]
    if len(found) < len(parts) or any(memory.dtype is not whole.dtype for memory, _ in found):
        return None
    turned = [memory for memory, address in found if not steps_along(address, "x")]
    if MANY * len(turned) > len(parts) and not (many and sum(hint(x.type.nbytes) for x in turned) <= NEAR_BYTES):
        return None
    return _source(group, whole, span, [(size, *read) for (size, _), read in zip(parts, found, strict=True)])


def _only_read(kernel: Kernel) -> tuple[Node, Expr] | None:
    """The memory and the address that a loop copies from; None where it does anything else."""
    load, *rest = kernel.statements
    if not isinstance(load, Load) or load.bounds or len(rest) != 1 or not isinstance(rest[0], Store):
        return None
    return next(x.node for x in kernel.arguments if x.name == load.argument), load.address


def _source(group: Group, whole: Node, span: int, parts: Sequence[tuple[int, Node, Expr]]) -> KernelSource:
    """The kernel that reads these parts of rows: their sizes, memories, and addresses by an element's number."""
    memories = list(dict.fromkeys(memory for _, memory, _ in parts))
    wide = any_needs_int64(whole.type.numel, *(memory.type.numel for memory in memories))
    x = variable("x", whole.type.numel)
    lines = [f"x = tl.program_id(0){'.to(tl.int64)' if wide else ''} * XBLOCK + tl.arange(0, XBLOCK)",
             "x_mask = x < x_size", f"row = {expression(floordiv(x, span), True)}",
             f"near = {expression(mod_(x, span), True)}"]
    bases, places, ends, begin = [], [], [], 0
    for number, (size, memory, address) in enumerate(parts):
        base, constant = f"in{memories.index(memory)}", address.constant
        if address.is_atom and address.terms and address.terms[0][0].kind == "var":
            places.append(f"row * {size} + near")
            constant = constant - begin
        else:
            lines.append(f"x{number} = row * {size} + (near - {begin})")
            places.append(expression(_of(offset(address, -constant), f"x{number}"), True))
        bases.append(f"({base} + ({constant})).to(tl.int64)" if constant.__class__ is not int or constant else
                     f"{base}.to(tl.int64)")
        begin = begin + size
        ends.append(begin)
    element = triton_type(whole.dtype)
    lines += [f"base = {_chosen(bases, ends)}", f"place = {_chosen(places, ends)}",
              f"found = tl.load(base.to(tl.pointer_type({element})) + place, mask=x_mask, other=0)",
              "tl.store(out0 + x, found, mask=x_mask)"]
    names = [*(f"in{number}" for number in range(len(memories))), "out0"]
    signature = {**dict.fromkeys(names, POINTER[whole.dtype.name]), "x_size": integer_type(whole.type.numel),
                 "XBLOCK": "constexpr"}
    name = kernel_name(group)
    return KernelSource(
        name, module(name, signature, lines), signature, {"XBLOCK": BLOCK}, (*memories, whole, whole.type.numel),
        (*names, *multiples_of_16({"x_size": whole.type.numel})), (-(-whole.type.numel // BLOCK), 1, 1), WARPS,
        label=name)


def _of(e: Expr, name: str) -> Expr:
    """The expression with another name for x."""
    return Expr(e.constant, tuple([
        (replace(atom, name=name) if atom.inner is None else replace(atom, inner=_of(atom.inner, name)), k)
        for atom, k in e.terms]))


def _chosen(texts: Sequence[str], ends: Sequence[int]) -> str:
    """The text for the part that an element lies in, by where the parts end in a row."""
    found = texts[-1]
    for at in reversed(range(len(texts) - 1)):
        if texts[at] != texts[at + 1]:
            found = f"tl.where(near < {ends[at]}, {texts[at]}, {found})"
    return found
