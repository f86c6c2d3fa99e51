"""Rows of an operand along one axis, for templates that take whole rows or walk along them.

The operand is seen as (outer, length, inner): x counts the rows (outer × inner), r the elements of one. What leads to
the operand without touching memory (views, casts, numbers, random bits) is computed where it is read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from genesis.codegen.cuda.addresses import start_and_place
from genesis.codegen.cuda.block_sizes import Blocks
from genesis.codegen.cuda.build_kernel import build_operands
from genesis.codegen.cuda.emitter import Body
from genesis.codegen.cuda.expressions import expression
from genesis.codegen.cuda.kernel_ir import Load
from genesis.codegen.cuda.loops import (
    any_needs_int64,
    integer_type,
    lesser_divisors,
    module,
    multiples_of_8,
    multiples_of_16,
    needs_int64,
)
from genesis.codegen.cuda.lowerings import POINTER, held, triton_type
from genesis.codegen.cuda.row_edges import before_end
from genesis.codegen.cuda.source import Exchange, KernelSource
from genesis.ir.node import Node
from genesis.ir.size_divisors import twos
from genesis.ir.sym_int import as_written
from genesis.ir.types import DType
from genesis.passes.fusion.loop_reads import coordinates
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group, Space


def space_of(shape: tuple[int, ...], axis: int) -> Space:
    """(outer, length, inner) as an iteration space, without the sizes that are 1.

    >>> space_of((2, 3, 4), 1), space_of((5, 1), 1)
    (((2, 'x'), (3, 'r'), (4, 'x')), ((5, 'x'), (1, 'r')))
    """
    outer, inner = prod(shape[:axis]), prod(shape[axis + 1:])
    return (*(((outer, "x"),) if outer != 1 else ()), (shape[axis], "r"), *(((inner, "x"),) if inner != 1 else ()))


class Rows:
    """The operands of an op, of one shape, as rows along an axis.

    Attributes:
        rows, length, inner: how many rows, elements of a row, elements between neighbours of a row.
        names: of the operands' values, as texts, each held as `lowerings.held` says.
    """

    def __init__(self, group: Group, operands: tuple[Node, ...], axis: int):
        self.group, self.axis = group, axis
        self.shape = operands[0].shape
        self.space = space_of(self.shape, axis)
        self.length, self.inner = self.shape[axis], prod(self.shape[axis + 1:])
        self.rows = prod(self.shape[:axis]) * self.inner
        self.kernel, self.values = build_operands(group, self.space, operands)
        self.body = Body(self.kernel, Blocks(2, 2, True, 4), self.int64_index)
        self.body.ragged_x = self.body.ragged_r = True  # blocks of what size the template says are not these
        self.names = [self._block(self.body.use(value, value.dtype), value.vars, "RBLOCK") for value in self.values]

    @property
    def int64_index(self) -> bool:
        """Are addresses of 64 bits needed? Sums at places that are data may have a larger result than operands."""
        return needs_int64(self.kernel) or any_needs_int64(*(x.type.numel for x in self.group.outputs))

    @property
    def integer(self) -> str:
        """The conversion to 64-bit addresses, where needed."""
        return ".to(tl.int64)" if self.int64_index else ""

    @property
    def vector(self) -> int:
        """How many neighbours of a row a thread loads at once: 16 bytes, if rows begin there."""
        return self.vector_beside(())

    def vector_beside(self, stored: Iterable[Node]) -> int:
        """How many neighbours of a row a thread has, where values are stored from the block that operands are loaded
        to: Triton gives it what the narrowest of them lets be loaded or stored at once."""
        sizes = [a.node.dtype.itemsize for a in self.kernel.arguments if a.role == "in"]
        if self.inner != 1 or not sizes:
            return 1
        aligned = twos(as_written(self.length)) if self.rows > 1 else 16
        return max(1, min(16 // min((max(sizes), *(node.dtype.itemsize for node in stored))), aligned))

    @property
    def size(self) -> str:
        """The length as text: the argument `r_size` where it leads, else a number."""
        return self.body.r_size

    def x_lines(self, block: str = "tl.program_id(0)") -> list[str]:
        """Which rows a program has."""
        return [f"x = ({block}){self.integer} * XBLOCK + tl.arange(0, XBLOCK)[:, None]", "x_mask = x < x_size"]

    def r_lines(self, start: str = "0", block: int = 0) -> list[str]:
        """Which elements of them, from `start` on; `block` of them, if these are whole rows."""
        first = "" if start == "0" else f"{start} + "
        inside = before_end(self.length, self.size, 0 if self.kernel.r_leads else block)
        return [f"r = {first}tl.arange(0, RBLOCK)[None, :]{self.integer}", f"r_mask = {inside}"]

    def operand_lines(self) -> list[str]:
        """The operands' values at (x, r)."""
        return [line for statement in self.kernel.statements for line in self.body.statement(statement)]

    def loads(self) -> list[tuple[str, str, str]]:
        """What is loaded of the operands' rows: each value's name, its load, and what makes the value of what is loaded
        (a conversion to float32, or nothing)."""
        return raw_loads(self, self.kernel.loads("xr"))

    def address(self, length: int | None = None, block: str = "RBLOCK", dtype: DType | None = None) -> str:
        """Where (x, r) lies in a result whose axis has `length` elements, by default the operands' own.

        `block` names the size of r's block. Of a result of that dtype whose elements come one by one the row's start
        comes first (`addresses.py`).
        """
        shape = (*self.shape[:self.axis], self.length if length is None else length, *self.shape[self.axis + 1:])
        e = coordinates(space_of(shape, self.axis)).element
        if e.is_constant:
            return f"tl.full([XBLOCK, {block}], {e.constant}, tl.int32)"
        apart = None if dtype is None or self.kernel.r_leads else start_and_place(e, dtype, {})
        if apart is not None:
            return " + ".join(f"({expression(part)})" for part in apart)
        return self._block(f"({expression(e)})", self.body.vars_of(e), block)

    @staticmethod
    def _block(text: str, vars: str, block: str) -> str:
        """A value over the whole block, although it may not depend on x or on r."""
        return text if vars == "xr" else f"tl.broadcast_to({text}, [XBLOCK, {block}])"

    def source(self, name: str, lines: list[str], outputs: dict[str, Node], constexprs: dict[str, int], programs: int,
               num_warps: int, more: str = "", sizes: dict[str, int] | None = None,
               inputs: Mapping[str, Node | Exchange] | None = None, shared: int = 0,
               registers: int = 0) -> KernelSource:
        """The finished kernel. `inputs` and `sizes` are arguments besides the operands and the number of rows;
        `shared` and `registers` are `KernelSource`'s."""
        sizes = {"x_size": self.rows, **({"r_size": self.length} if self.size == "r_size" else {}), **(sizes or {})}
        inputs = inputs or {}
        pointers: dict[str, Node | Exchange] = {a.name: a.node for a in self.kernel.arguments if a.role == "in"}
        pointers |= {**inputs, **outputs}
        numbers = {a.name: a.node for a in self.kernel.arguments if a.role in ("number", "report")}
        signature = {**{p: POINTER[x.type.dtype.name] for p, x in (pointers | numbers).items()},
                     **{size: integer_type(value) for size, value in sizes.items()},
                     **dict.fromkeys(constexprs, "constexpr")}
        bound = "r_size" if self.inner == 1 else "x_size"  # the one that cuts vectors off
        bounds = {bound: sizes[bound]} if bound in sizes else {}
        empty = not self.rows or not any(node.type.numel for node in outputs.values())
        return KernelSource(name, module(name, signature, lines, more), signature, constexprs,
                            (*pointers.values(), *numbers.values(), *sizes.values()),
                            (*pointers, *multiples_of_16(bounds)), (0 if empty else programs, 1, 1), num_warps,
                            label=name, eights=tuple(multiples_of_8(bounds)), lesser=lesser_divisors(bounds),
                            shared=shared, registers=registers)


def raw_loads(rows: Rows, loads: Iterable[Load]) -> list[tuple[str, str, str]]:
    """Each load's name, its text without a conversion, and the conversion."""
    found = []
    for s in loads:
        line, = rows.body.statement(s)
        name, _, load = line.partition(" = ")
        upcast = "" if held(s.out.dtype) is s.out.dtype else f".to({triton_type(held(s.out.dtype))})"
        found.append((name, load.removesuffix(upcast) if upcast else load, upcast))
    return found


def result(group: Group, index: int) -> Node | None:
    """The memory of one of an op's results; None if nobody reads it."""
    for node in group.outputs:
        made = stored_as(node)
        if made.op.name != "item" or made["index"] == index:
            return node
    return None

