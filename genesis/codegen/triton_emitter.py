"""Kernel IR → Triton text, one statement a line.

A kernel without r has blocks [XBLOCK]. With r they are [XBLOCK, RBLOCK], and a value that does not
depend on a coordinate has size 1 there, so that arithmetic broadcasts. When a row is too long for a
block the program walks over r once for each stage: a pass computes the reductions that need only
what earlier passes have reduced, and writes what can be written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from genesis.codegen import triton_lowerings as table
from genesis.codegen.blocks import Blocks
from genesis.codegen.kernel_ir import (
    Apply,
    Constant,
    Index,
    Kernel,
    Load,
    Number,
    Position,
    Random,
    Reduce,
    Select,
    Statement,
    Store,
    Value,
    operands_of,
)
from genesis.ir.types import DType, bool_, float32, int32, int64
from genesis.passes.index_map import Bound, Expr, atoms

_INLINE = {"add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or"}
_BIG = {int32: 2**31 - 1, int64: 2**63 - 1}


class Body:
    """Prints a kernel's statements for given blocks."""

    def __init__(self, kernel: Kernel, blocks: Blocks, wide: bool):
        self.kernel, self.blocks = kernel, blocks
        self.flat = not kernel.has_r
        self.index_type = int64 if wide else int32
        self.constants = {s.out.name: s for s in kernel.statements if isinstance(s, Constant)}
        self.dtypes = {argument.name: argument.node.dtype for argument in kernel.arguments}
        self.ragged_r = kernel.r_size % blocks.r != 0 if blocks.looped else kernel.r_size != blocks.r
        self.source = ""

    # The order of things

    def lines(self) -> list[str]:
        """The program's statements after x, x_mask (and r, when nothing loops) are defined."""
        if self.blocks.looped:
            return self.passes()
        return [line for s in self.stores_last(self.kernel.statements) for line in self.statement(s)]

    def passes(self) -> list[str]:
        """One walk over r for each stage, with what is computed once a row in between.

        Everything is stored at the end, in the last walk: an output may share memory with an input,
        which earlier walks read.
        """
        statements = self.stores_last(self.kernel.statements)
        found: list[str] = []
        last = max((self.stage(s) for s in statements), default=0)
        for stage in range(last + 1):
            here = [s for s in statements if not isinstance(s, Store) and self.stage(s) == stage]
            stores = [s for s in statements if isinstance(s, Store)] if stage == last else []
            for s in here:
                if not self.inside(s) and not isinstance(s, Reduce):
                    found += self.statement(s)
            ends: list[Statement] = [s for s in here if isinstance(s, Reduce)]
            ends += [s for s in stores if self.inside(s)]
            if ends:
                found += self.walk(ends)
            for store in stores:
                if not self.inside(store):
                    found += self.statement(store)
        return found

    @staticmethod
    def stores_last(statements: Sequence[Statement]) -> list[Statement]:
        """All loads come before the first store."""
        return sorted(statements, key=lambda s: isinstance(s, Store))

    def walk(self, ends: list[Statement]) -> list[str]:
        """A loop over r that computes these reductions and stores."""
        reductions = [s for s in ends if isinstance(s, Reduce)]
        found = [line for s in reductions for line in self.start(s)]
        found.append(f"for r_start in range(0, {self.kernel.r_size}, RBLOCK):")
        inner = [f"r = r_start + {self.range('R')}[None, :]{'.to(tl.int64)' if self.index_type is int64 else ''}"]
        if self.ragged_r:
            inner.append(f"r_mask = r < {self.kernel.r_size}")
        for s in self.needed(ends):
            inner += self.accumulate(s) if isinstance(s, Reduce) else self.statement(s)
        found += ["    " + line for line in inner]
        return found + [line for s in reductions for line in self.finish(s)]

    def needed(self, ends: list[Statement]) -> list[Statement]:
        """What must be computed inside a walk for these ends, in order."""
        wanted: set[str] = set()
        chosen = set(map(id, ends))
        kept = []
        for s in reversed(self.stores_last(self.kernel.statements)):
            if id(s) in chosen or (not isinstance(s, Store | Reduce) and s.out.name in wanted and self.inside(s)):
                kept.append(s)
                wanted.update(value.name for value in operands_of(s, self.kernel.indices))
        return kept[::-1]

    def stage(self, s: Statement) -> int:
        """The pass a statement belongs to; a reduction belongs to the pass that feeds it."""
        if isinstance(s, Store):
            return s.value.stage
        return s.operand.stage if isinstance(s, Reduce) else s.out.stage

    def inside(self, s: Statement) -> bool:
        """Does the statement depend on r, so that it is computed inside a walk?"""
        return "r" in s.vars if isinstance(s, Store) else not isinstance(s, Reduce) and "r" in s.out.vars

    # Statements

    def statement(self, s: Statement) -> list[str]:
        """The lines of one statement."""
        match s:
            case Constant():
                return []
            case Number(out, argument):
                return [f"{out.name} = tl.load({argument})"]
            case Position(out, e):
                return [f"{out.name} = {self.as_type(e, out.dtype)}"]
            case Load():
                return [self.load(s)]
            case Index(out, operand, size):
                value = self.use(operand, operand.dtype)
                clamped = f"tl.minimum(tl.maximum({value}.to(tl.int64), 0), {max(size - 1, 0)})"
                return [f"{out.name} = {clamped}.to({table.triton_type(self.index_type)})"]
            case Apply():
                return [*self.comment(s.node.source), f"{s.out.name} = {self.apply(s)}"]
            case Select(out, bounds, inside, outside):
                a, b = self.use(inside, out.dtype), self.use(outside, out.dtype)
                return [f"{out.name} = tl.where({self.conditions(bounds)}, {a}, {b})"]
            case Random(out, word, seed, draw, counter):
                values = [self.use(v, v.dtype) + ".to(tl.int64)" for v in (seed, draw)]
                at = self.as_type(counter, int64)
                return [f"{out.name} = g_philox({values[0]}, {values[1]}, {at}, {word})"]
            case Reduce():
                return self.reduce(s)
            case Store():
                return [self.store(s)]
        raise TypeError(f"no text for {s!r}")

    def comment(self, source: object) -> list[str]:
        """The user's line, when it is another than the last one printed."""
        text = str(source) if source is not None else ""
        if not text or text == self.source:
            return []
        self.source = text
        return [f"# {text}"]

    def load(self, s: Load) -> str:
        held = table.held(s.out.dtype)
        masks = self.masks(s.out.vars, s.bounds)
        address = self.at(s.address, s.out.vars if masks else self.vars_of(s.address))
        text = f"tl.load({s.argument} + {address}{f', mask={masks}, other=0' if masks else ''})"
        return f"{s.out.name} = {text}" + ("" if held is s.out.dtype else f".to({table.triton_type(held)})")

    def store(self, s: Store) -> str:
        address = self.at(s.address, s.vars, block=True)
        value = self.use(s.value, s.value.dtype)
        dtype = self.dtypes[s.argument]
        if table.held(dtype) is not dtype:
            value = f"{value}.to({table.triton_type(dtype)})"
        if not self.flat:
            value = f"tl.broadcast_to({value}, {self.shape(s.vars)})" if s.vars != s.value.vars else value
        masks = self.masks(s.vars, ())
        return f"tl.store({s.argument} + {address}, {value}{f', mask={masks}' if masks else ''})"

    def apply(self, s: Apply) -> str:
        node, compute = s.node, s.compute
        name = node.op.name
        if name == "cast":
            return table.convert(self.use(s.operands[0], s.operands[0].dtype), s.operands[0].dtype, node.dtype)
        if name == "where":
            dtypes = (bool_, compute, compute)
            return table.pointwise(name, compute, tuple(map(self.use, s.operands, dtypes)))
        if name == "pow" and (power := self.small_power(s)):
            return power
        inline = name in _INLINE and not all(v.name in self.constants for v in s.operands)
        return table.pointwise(name, compute, tuple(self.use(v, compute, inline) for v in s.operands))

    def small_power(self, s: Apply) -> str:
        """x² and x³ as products."""
        power = self.constants.get(s.operands[1].name)
        if power is None or power.number not in (2, 3) or s.operands[0].name in self.constants:
            return ""
        return " * ".join([self.use(s.operands[0], s.compute)] * int(power.number))

    # Reductions

    def reduce(self, s: Reduce) -> list[str]:
        """A reduction of a block that holds whole rows."""
        block = f"{s.out.name}_all"
        found = [f"{block} = {self.reduced_operand(s)}"]
        if s.position is None:
            return [*found, f"{s.out.name} = {self.finished(s, block)}"]
        position = self.at(s.position, "xr")
        inside = " & r_mask" if self.ragged_r else ""
        return [*found, f"{s.out.name}_at = {position}", *self.first_hit(s, block, f"{s.out.name}_at", inside)]

    def start(self, s: Reduce) -> list[str]:
        """The accumulators of a reduction over a walk."""
        dtype = self.accumulator(s)
        found = [f"{s.out.name}_all = tl.full([XBLOCK, RBLOCK], {self.identity(s)}, {table.triton_type(dtype)})"]
        if s.position is not None:
            found.append(f"{s.out.name}_at = tl.full([XBLOCK, RBLOCK], {_BIG[self.index_type]}, "
                         f"{table.triton_type(self.index_type)})")
        return found

    def accumulate(self, s: Reduce) -> list[str]:
        """Take one block of the walk into the accumulators."""
        name = s.out.name
        found = [f"{name}_new = {self.reduced_operand(s)}"]
        if s.position is None:
            combine = table.REDUCE_COMBINE[_REDUCED_AS[s.op]].format(f"{name}_all", f"{name}_new")
            return [*found, f"{name}_all = {combine}"]
        sign = ">" if s.op == "argmax" else "<"
        better = (f"({name}_new {sign} {name}_all) | (({name}_new != {name}_new) & ({name}_all == {name}_all))"
                  f" | ({name}_at == {_BIG[self.index_type]})")
        found.append(f"{name}_better = {f'({better}) & r_mask' if self.ragged_r else better}")
        found.append(f"{name}_all = tl.where({name}_better, {name}_new, {name}_all)")
        found.append(f"{name}_at = tl.where({name}_better, {self.at(s.position, self.vars_of(s.position))}, {name}_at)")
        return found

    def finish(self, s: Reduce) -> list[str]:
        """From accumulators to one value a row."""
        if s.position is not None:
            return self.first_hit(s, f"{s.out.name}_all", f"{s.out.name}_at", "")
        return [f"{s.out.name} = {self.finished(s, s.out.name + '_all')}"]

    def finished(self, s: Reduce, block: str) -> str:
        text = table.REDUCE_FINISH[_REDUCED_AS[s.op]].format(block)
        if s.out.dtype is bool_:
            return f"{text} != 0"
        held = table.held(s.out.dtype)
        return text if held is self.accumulator(s) else f"{text}.to({table.triton_type(held)})"

    def first_hit(self, s: Reduce, block: str, positions: str, inside: str) -> list[str]:
        """The smallest position of the extremum; the first NaN when there is one."""
        name = s.out.name
        best = "g_row_max" if s.op == "argmax" else "g_row_min"
        hit = f"(({block} == {name}_best) | (({block} != {block}) & ({name}_best != {name}_best))){inside}"
        first = f"tl.min(tl.where({hit}, {positions}, {_BIG[self.index_type]}), 1, keep_dims=True)"
        return [f"{name}_best = {best}({block})", f"{name} = {first}.to(tl.int64)"]

    def accumulator(self, s: Reduce) -> DType:
        """The dtype a reduction accumulates in: at least 32 bits."""
        if s.op in ("any", "all"):
            return int32
        dtype = table.held(s.operand.dtype)
        return int32 if dtype.itemsize < 4 else dtype

    def identity(self, s: Reduce) -> str:
        return table.REDUCE_IDENTITY[_REDUCED_AS[s.op]](self.accumulator(s))

    def reduced_operand(self, s: Reduce) -> str:
        """The operand over the whole block, with what lies outside the row made neutral."""
        value, dtype = self.use(s.operand, s.operand.dtype), self.accumulator(s)
        if s.op in ("any", "all") and s.operand.dtype is not bool_:
            value = f"({value} != 0)"
        if dtype is not table.held(s.operand.dtype) or s.op in ("any", "all"):
            value = f"{value}.to({table.triton_type(dtype)})"
        if s.operand.vars != "xr":
            value = f"tl.broadcast_to({value}, [XBLOCK, RBLOCK])"
        if not self.ragged_r:
            return value
        return f"tl.where(r_mask, {value}, tl.full((), {self.identity(s)}, {table.triton_type(dtype)}))"

    # Pieces of text

    def use(self, value: Value, dtype: DType, inline: bool = False) -> str:
        """A value as an operand in the dtype that holds `dtype`."""
        constant = self.constants.get(value.name)
        if constant is not None:
            return literal(constant.number, table.held(dtype), inline)
        return table.to_held(value.name, value.dtype, dtype)

    def as_type(self, e: Expr, dtype: DType) -> str:
        """An index expression as a value."""
        held = table.triton_type(table.held(dtype))
        if e.is_constant:
            return f"tl.full((), {e.constant}, {held})"
        return f"({expression(e)}).to({held})"

    def at(self, e: Expr, vars: str, block: bool = False) -> str:
        """An index expression in the shape of `vars`; a scalar when it has none and `block` is not asked."""
        text = expression(e)
        own = self.vars_of(e)
        if own == vars and not (block and not vars):
            return text if e.is_atom else f"({text})"
        shape = self.shape(vars)
        if e.is_constant:
            return f"tl.full({shape}, {text}, {table.triton_type(self.index_type)})"
        return f"tl.broadcast_to({text}, {shape})"

    def shape(self, vars: str) -> str:
        """The block's shape for a value that depends on `vars`."""
        if self.flat:
            return "[XBLOCK]" if vars else "[1]"
        return f"[{'XBLOCK' if 'x' in vars else '1'}, {'RBLOCK' if 'r' in vars else '1'}]"

    def masks(self, vars: str, bounds: tuple[Bound, ...]) -> str:
        """The mask of a load or store, '' when every lane is inside."""
        parts = ["x_mask"] if "x" in vars else []
        if "r" in vars and self.ragged_r:
            parts.append("r_mask")
        if bounds:
            parts.append(self.conditions(bounds))
        return " & ".join(parts)

    def conditions(self, bounds: Iterable[Bound]) -> str:
        """The conjunction of bounds; what the range proves is left out."""
        parts = []
        for bound in bounds:
            low, high = bound.e.range
            if bound.e.is_constant:
                holds = bound.low <= bound.e.constant < bound.high
                parts += [] if holds else ["(tl.full((), 0, tl.int32) != 0)"]
                continue
            text = expression(bound.e)
            text = text if bound.e.is_atom else f"({text})"
            if low < bound.low:
                parts.append(f"({text} >= {bound.low})")
            if high >= bound.high:
                parts.append(f"({text} < {bound.high})")
        return " & ".join(dict.fromkeys(parts)) or "(tl.full((), 1, tl.int32) != 0)"

    def range(self, axis: str) -> str:
        return f"tl.arange(0, {axis}BLOCK)"

    def vars_of(self, *expressions: Expr) -> str:
        found: set[str] = set()
        for atom in atoms(expressions):
            found.update(self.kernel.indices[atom.name].vars if atom.kind == "loaded" else atom.name)
        return "".join(name for name in "xr" if name in found)


_REDUCED_AS = {"sum": "sum", "prod": "prod", "max": "max", "min": "min", "any": "max", "all": "min",
               "argmax": "max", "argmin": "min"}


def literal(number: bool | int | float, dtype: DType, inline: bool = False) -> str:
    """A number in a dtype, typed unless the other operand gives the type.

    >>> literal(0.5, float32), literal(0.5, float32, inline=True)
    ('tl.full((), 0.5, tl.float32)', '0.5')
    """
    if dtype.kind == "float":
        value = float(number)
        text = repr(value) if math.isfinite(value) else f'float("{value}")'
    else:
        text = repr(int(number))
    if inline and dtype in (float32, int32, int64) and (dtype is not float32 or math.isfinite(float(number))):
        return text if not text.startswith("-") else f"({text})"
    return f"tl.full((), {text}, {table.triton_type(dtype)})"


def expression(e: Expr) -> str:
    """An index expression as Python text over x, r and loaded indices."""
    parts = []
    for atom, k in e.terms:
        if atom.inner is None:
            text = atom.name
        else:
            inside = expression(atom.inner)
            inside = inside if atom.inner.is_atom and atom.inner.terms[0][0].inner is None else f"({inside})"
            text = f"({inside} {'//' if atom.kind == 'div' else '%'} {atom.number})"
        if k == -1:
            text = f"-{text}"
        elif k != 1:
            text = f"{text} * {k}"
        parts.append(text)
    if e.constant or not parts:
        parts.append(str(e.constant))
    return " + ".join(parts).replace("+ -", "- ")
