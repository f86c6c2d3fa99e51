"""Kernel IR → Triton text, one statement a line.

A kernel without r has blocks [XBLOCK]. With r they are [XBLOCK, RBLOCK], and a value that does not
depend on a coordinate has size 1 there, so that arithmetic broadcasts. What loops around the
statements is the business of `reduction_loops`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from genesis.codegen.cuda import lowerings, row_edges, rows_across, shifted
from genesis.codegen.cuda.block_sizes import Blocks
from genesis.codegen.cuda.expressions import expression, literal
from genesis.codegen.cuda.folds import fold_lines
from genesis.codegen.cuda.kernel_ir import (
    Apply,
    Checked,
    Constant,
    Fold,
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
    vars_of,
)
from genesis.codegen.cuda.rounded import rounded_values
from genesis.codegen.cuda.statement_order import FULL_ROW, loads_first, stores_last
from genesis.ir.sym_int import SymInt, constant_term, literal_value, most, rounds
from genesis.ir.types import DType, bool_, float32, int32, int64
from genesis.passes.fusion.index_map import Bound, Expr

_INLINE = {"add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or"}
BIG: Final = {int32: 2**31 - 1, int64: 2**63 - 1}

REDUCED_AS: Final = {"sum": "sum", "prod": "prod", "max": "max", "min": "min", "any": "max", "all": "min",
                     "argmax": "max", "argmin": "min"}
"""Reduction → the one that takes two values of it together."""


class Body:
    """Prints a kernel's statements for given blocks.

    Attributes:
        length: how many elements are reduced; None where that is the argument `r_size`.
        r_size: the same as text.
        vector: elements of a vector where rows begin anywhere and are read in vectors all the same (`row_edges.py`),
            else 0.
        ragged_x, ragged_r: whether blocks of x, of r may reach past the end.
        tiles: how many programs share the r of one block of x.
        first: where the block begins along its last axis, as text; given for an x that is not the program's own.
        r_axis: the axis of a block that r lies along.
        shift: how many elements before its first a flat loop's blocks begin (`shifted.py`).
    """

    def __init__(self, kernel: Kernel, blocks: Blocks, index64: bool, first: str = ""):
        self.kernel, self.blocks = kernel, blocks
        self.flat = not kernel.has_r
        self.index_type = int64 if index64 else int32
        self.constants = {s.out.name: s for s in kernel.statements if isinstance(s, Constant)}
        self.rounded = rounded_values(kernel)
        self.positions = {s.out.name: s.e for s in kernel.statements if isinstance(s, Position)}
        self.casts = {s.out.name: s.operands[0] for s in kernel.statements
                      if isinstance(s, Apply) and s.node.op.name == "cast"}
        self.dtypes = {argument.name: argument.node.dtype for argument in kernel.arguments}
        self.length = None if kernel.has_r and kernel.reduces_batch else literal_value(kernel.r_size)
        self.r_size = "r_size" if self.length is None else str(self.length)
        self.ragged_x, self.vector = True, 0
        self.ragged_r = self.length is None or self.reaches_past(self.length)
        self.r_axis = 0 if blocks.across else 1
        self.tiles = self._tiles() if blocks.tiled else 1
        program = "tl.program_id(0).to(tl.int64)" if index64 else "tl.program_id(0)"
        self.first = (first or f"{program} * XBLOCK" if self.flat else "r_start" if blocks.looped
                      else f"program % {self.tiles} * RBLOCK" if self.tiles > 1 else "0")
        self.shift = 0
        self.source = ""

    def reaches_past(self, length: int) -> bool:
        """Whether the last block of a row this long reaches past its end."""
        whole = self.blocks.looped or self.blocks.tiled
        return length % self.blocks.r != 0 if whole else length != self.blocks.r

    def _tiles(self) -> int:
        """How many blocks a row has; of long rows a number, as dividing by an argument takes long."""
        row = self.kernel.r_size
        return rounds(row, self.blocks.r) if most(row) > row_edges.LONG_ROW else -(-row // self.blocks.r)

    def inside_row(self) -> str:
        """Which elements of a block lie in the row."""
        whole = not self.kernel.r_leads and self.tiles == 1
        return row_edges.before_end(self.kernel.r_size, self.r_size, self.blocks.r if whole else 0)

    # The order of things

    def lines(self) -> list[str]:
        """The program's statements after x, x_mask and r are defined."""
        full = self.blocks.across or (not self.blocks.looped and self.blocks.r >= FULL_ROW)
        ordered = loads_first(stores_last(self.kernel.statements), full)
        return [line for s in ordered for line in self.statement(s)]

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
                return self.load(s)
            case Index(out, operand, size):
                value = self.use(operand, operand.dtype)
                if not any(isinstance(x, Checked) and x.out is operand and x.node["size"] == size
                           and x.node["ignored"] is None for x in self.kernel.statements):
                    value = f"tl.minimum(tl.maximum({value}.to(tl.int64), 0), {max(size - 1, 0)})"
                return [f"{out.name} = {value}.to({lowerings.triton_type(self.index_type)})"]
            case Checked():
                return [*self.comment(s.node.source), self.checked(s)]
            case Apply():
                return [*self.comment(s.node.source), f"{s.out.name} = {self.apply(s)}"]
            case Select(out, bounds, inside, outside):
                a, b = self.use(inside, out.dtype), self.use(outside, out.dtype)
                return [f"{out.name} = tl.where({self.conditions(bounds)}, {a}, {b})"]
            case Random(out, word, words, seed, draw, counter):
                key = ", ".join(self.use(v, v.dtype) + ".to(tl.int64)" for v in (seed, draw))
                if self.counts_up(counter, 4 // words):
                    run = f"g_random_run({key}, {self.counters(counter, 4 // words)}, {word}, {words})"
                    return [f"{out.name} = tl.reshape({run}, {self.shape(out.vars)})"]
                return [f"{out.name} = g_random_bits({key}, {self.at(counter, out.vars, block=True)}, {word}, {words})"]
            case Reduce():
                return self.reduce(s)
            case Fold():
                return fold_lines(self, s, lowerings.REDUCE_COMBINE[REDUCED_AS[s.op]])
            case Store():
                return self.store(s)
        raise TypeError(f"no text for {s!r}")

    def checked(self, s: Checked) -> str:
        node, value = s.node, self.use(s.operand, s.operand.dtype) + ".to(tl.int64)"
        vars = self.vars_of(*(bound.e for bound in s.bounds)) + s.out.vars
        conditions = [self.masks("".join(name for name in "xr" if name in vars), s.bounds)]
        if node["ignored"] is not None:
            conditions.append(f"({value} != {node['ignored']})")
        wanted = " & ".join(filter(None, conditions)) or "tl.full((), 1, tl.int1)"
        text = f"g_in_range({value}, {node['size']}, {node['negative']}, {wanted}, {s.report})"
        if node["ignored"] is not None:
            text = f"tl.where({value} == {node['ignored']}, {value}, {text})"
        return f"{s.out.name} = {text}"

    def counters(self, e: Expr, by: int) -> str:
        """e // by, one for each group of `by` numbers that e runs through."""
        axis = "x" if self.flat else "r"
        start = expression(Expr(e.constant, tuple(term for term in e.terms if term[0].name != axis)))
        lanes = f"tl.arange(0, {axis.upper()}BLOCK // {by})" + ("" if self.flat else "[None, :]")
        return f"({start} + {self.first}) // {by} + {lanes}"

    def counts_up(self, e: Expr, by: int) -> bool:
        """Does e run through whole aligned groups of `by` numbers along the block's last axis?"""
        axis, block = ("x", self.blocks.x) if self.flat else ("r", self.blocks.r)
        along = [(atom, k) for atom, k in e.terms if axis in self.vars_of(Expr(0, ((atom, k),)))]
        return (by > 1 and block % by == 0 and len(along) == 1 and along[0][0].kind == "var" and along[0][1] == 1
                and e.constant % by == 0 and all(k % by == 0 for atom, k in e.terms if atom is not along[0][0]))

    def comment(self, source: object) -> list[str]:
        """The user's line, when it is another than the last one printed."""
        text = str(source) if source is not None else ""
        if not text or text == self.source:
            return []
        self.source = text
        return [f"# {text}"]

    def load(self, s: Load) -> list[str]:
        held = lowerings.held(s.out.dtype)
        masks = self.masks(s.out.vars, s.bounds)
        pointer = self.pointer(s, s.out.vars if masks else self.vars_of(s.address))
        upcast = "" if held is s.out.dtype else f".to({lowerings.triton_type(held)})"
        if self.blocks.across and "r" in s.out.vars:
            return [f"{s.out.name} = {rows_across.loaded(self.kernel, self.blocks, s)}{upcast}"]
        if self.vector and s.out.vars == "xr":
            lines = row_edges.load_lines(s.out.name, s.argument, self.blocks.looped)
            return [*lines, f"{s.out.name} = {s.out.name}{upcast}"] if upcast else lines
        return [f"{s.out.name} = tl.load({pointer}{f', mask={masks}, other=0' if masks else ''}){upcast}"]

    def store(self, s: Store) -> list[str]:
        dtype, value = self.dtypes[s.argument], self.stored_value(s)
        if lowerings.held(dtype) is not dtype:
            value = f"{value}.to({lowerings.triton_type(dtype)})"
        if not self.flat:
            value = f"tl.broadcast_to({value}, {self.shape(s.vars)})" if s.vars != s.value.vars else value
        if self.blocks.across and s.vars == "xr":
            return rows_across.store_lines(self.kernel, self.blocks, s, value)
        if self.vector and s.vars == "xr":
            return row_edges.store_lines(s.argument, value, self.blocks.looped)
        masks = self.masks(s.vars, ())
        return [f"tl.store({self.pointer(s, s.vars, block=True)}, {value}{f', mask={masks}' if masks else ''})"]

    def pointer(self, s: Load | Store, vars: str, block: bool = False) -> str:
        """Where a load or store of this shape finds its elements.

        Where a program has one row and its length is an argument, the row's start is added first: neighbours then
        differ by numbers, and need no registers for addresses of their own.
        """
        if shifted.is_shifted(self.shift) and shifted.is_run(s):
            return f"{s.argument} + (near + {shifted.from_vector(s, self.shift)})"
        steps = {atom.name: k for atom, k in s.address.terms if atom.kind == "var"}
        one_row = not self.flat and self.blocks.x == 1 and set(steps) == {"x", "r"} and len(s.address.terms) == 2
        if not one_row or literal_value(steps["x"]) is not None:
            if self.kernel.folds and s.address.terms:  # taps differ by what an instruction adds
                step = constant_term(s.address.constant)
                first = Expr(s.address.constant - step, s.address.terms)
                return f"{s.argument} + {self.at(first, vars, block)}{f' + ({step})' if step else ''}"
            return f"{s.argument} + {self.at(s.address, vars, block)}"
        in_row = Expr(s.address.constant, tuple([term for term in s.address.terms if term[0].name != "x"]))
        return f"{s.argument} + x * {steps['x']} + {self.at(in_row, 'r')}"

    def stored_value(self, s: Store) -> str:
        """The value that is stored, which is rounded once, as it is stored."""
        source = self.casts.get(s.value.name)
        if source is not None and source.dtype is float32 and lowerings.held(self.dtypes[s.argument]) is float32:
            return self.use(source, float32)
        return self.use(s.value, s.value.dtype)

    def apply(self, s: Apply) -> str:
        node, compute = s.node, s.compute
        name = node.op.name
        if name == "cast":
            return lowerings.convert(self.use(s.operands[0], s.operands[0].dtype), s.operands[0].dtype, node.dtype)
        if name == "bitcast":
            return lowerings.reinterpret(self.use(s.operands[0], compute), compute, node.dtype)
        if name == "where":
            dtypes = (bool_, compute, compute)
            return lowerings.pointwise(name, compute, tuple(map(self.use, s.operands, dtypes)))
        if name == "pow" and (power := self.small_power(s)):
            return power
        inline = name in _INLINE and not all(v.name in self.constants for v in s.operands)
        rounded = s.out.name in self.rounded
        if name == "div" and compute.kind == "float" and (product := self.as_product(s, rounded)):
            return product
        if name in ("eq", "ne") and (compared := self.compared_positions(s)):
            return lowerings.pointwise(name, int32, compared)
        operands = tuple(self.use(v, compute, inline) for v in s.operands)
        return lowerings.pointwise(name, compute, operands, rounded)

    def compared_positions(self, s: Apply) -> tuple[str, str] | None:
        """A coordinate and a number of its row in 32 bits, where the IR has 64 of them for every element."""
        for position, other in (s.operands, s.operands[::-1]):
            e = self.positions.get(position.name)
            if (e is not None and s.compute is int64 and self.index_type is int32 and other.dtype is int64
                    and not e.is_constant and "r" in position.vars and "r" not in other.vars
                    and other.name not in self.constants):
                return expression(e), f"g_narrow({other.name})"
        return None

    def as_product(self, s: Apply, rounded: bool) -> str:
        """A quotient as a product, where that is as exact, or exact enough; '' otherwise."""
        over, under = s.operands
        constant = self.constants.get(under.name)
        value = self.use(over, s.compute, over.name not in self.constants)
        if constant is not None and not isinstance(constant.number, SymInt):
            number = float(constant.number)
            exact = number and math.isfinite(number) and abs(math.frexp(number)[0]) == 0.5 and abs(number) < 2.0**100
            if exact or (rounded and number):
                return f"{value} * {literal(1 / number, lowerings.held(s.compute), True)}"
        if rounded and constant is not None and isinstance(constant.number, SymInt):
            return f"{value} * {self.reciprocal(constant.number, under)}"
        if rounded and "r" in s.out.vars and "r" not in under.vars:
            return f"{value} * (1.0 / {self.use(under, s.compute, True)})"
        return ""

    def reciprocal(self, size: SymInt, value: Value) -> str:
        """1 / a size, rounded to nearest: an approximate one has other bits by an argument than by a number in the
        text. Nothing waits for it."""
        number = literal_value(size)
        return literal(1 / number, float32, True) if number else f"tl.math.div_rn(1.0, {self.use(value, float32)})"

    def small_power(self, s: Apply) -> str:
        """x² and x³ as products."""
        power = self.constants.get(s.operands[1].name)
        if (power is None or isinstance(power.number, SymInt) or power.number not in (2, 3)
                or s.operands[0].name in self.constants):
            return ""
        return " * ".join([self.use(s.operands[0], s.compute)] * int(power.number))

    # Reductions

    def reduce(self, s: Reduce) -> list[str]:
        """A reduction of a block that holds whole rows."""
        operand = self.reduced_operand(s)
        block = operand if operand.isidentifier() else f"{s.out.name}_all"
        found = [] if block == operand else [f"{block} = {operand}"]
        if s.position is None:
            return [*found, f"{s.out.name} = {self.finished(s, block)}"]
        position = self.at(s.position, "xr")
        inside = " & r_mask" if self.ragged_r else ""
        return [*found, f"{s.out.name}_at = {position}", *self.first_hit(s, block, f"{s.out.name}_at", inside)]

    def finished(self, s: Reduce, block: str) -> str:
        """One value a row, of a block."""
        text = lowerings.REDUCE_FINISH[REDUCED_AS[s.op]].format(block, self.r_axis)
        if s.out.dtype is bool_:
            return f"{text} != 0"
        held = lowerings.held(s.out.dtype)
        return text if held is self.accumulator(s) else f"{text}.to({lowerings.triton_type(held)})"

    def first_hit(self, s: Reduce, block: str, positions: str, inside: str) -> list[str]:
        """The smallest position of the extremum; the first NaN when there is one."""
        name = s.out.name
        best = "g_row_max" if s.op == "argmax" else "g_row_min"
        hit = f"(({block} == {name}_best) | (({block} != {block}) & ({name}_best != {name}_best))){inside}"
        first = f"tl.min(tl.where({hit}, {positions}, {BIG[self.index_type]}), {self.r_axis}, keep_dims=True)"
        return [f"{name}_best = {best}({block}, {self.r_axis})", f"{name} = {first}.to(tl.int64)"]

    def accumulator(self, s: Reduce | Fold) -> DType:
        """The dtype a reduction accumulates in: at least 32 bits."""
        if s.op in ("any", "all"):
            return int32
        dtype = lowerings.held(s.operand.dtype)
        return int32 if dtype.itemsize < 4 else dtype

    def identity(self, s: Reduce) -> str:
        """What changes nothing, and fits the operand's dtype: a run may be empty."""
        if s.op in ("any", "all"):
            return str(int(s.op == "all"))
        keeps_dtype = s.op in ("max", "min", "argmax", "argmin") and s.operand.dtype.kind == "int"
        return lowerings.REDUCE_IDENTITY[REDUCED_AS[s.op]](s.operand.dtype if keeps_dtype else self.accumulator(s))

    def reduced_operand(self, s: Reduce, mask: str | None = None) -> str:
        """The operand over the whole block, with what lies outside the row (or the mask) made neutral."""
        value, dtype = self.use(s.operand, s.operand.dtype), self.accumulator(s)
        if s.op in ("any", "all") and s.operand.dtype is not bool_:
            value = f"({value} != 0)"
        if dtype is not lowerings.held(s.operand.dtype) or s.op in ("any", "all"):
            value = f"{value}.to({lowerings.triton_type(dtype)})"
        if s.operand.vars != "xr":
            value = f"tl.broadcast_to({value}, {self.shape('xr')})"
        mask = ("r_mask" if self.ragged_r else "") if mask is None else mask
        if not mask:
            return value
        return f"tl.where({mask}, {value}, tl.full((), {self.identity(s)}, {lowerings.triton_type(dtype)}))"

    # Pieces of text

    def use(self, value: Value, dtype: DType, inline: bool = False) -> str:
        """A value as an operand in the dtype that holds `dtype`."""
        constant = self.constants.get(value.name)
        if constant is not None:
            return literal(constant.number, lowerings.held(dtype), inline)
        return lowerings.to_held(value.name, value.dtype, dtype)

    def as_type(self, e: Expr, dtype: DType) -> str:
        """An index expression as a value."""
        held = lowerings.triton_type(lowerings.held(dtype))
        if e.is_constant:
            return f"tl.full((), {e.constant}, {held})"
        return f"({self.text(e)}).to({held})"

    def text(self, e: Expr) -> str:
        """An index expression as text."""
        return expression(e)

    def at(self, e: Expr, vars: str, block: bool = False) -> str:
        """An index expression in the shape of `vars`; a scalar when it has none and `block` is not asked."""
        text, own = self.text(e), self.vars_of(e)
        if own == vars and not (block and not vars):
            return text if e.is_atom else f"({text})"
        shape = self.shape(vars)
        if e.is_constant:
            return f"tl.full({shape}, {text}, {lowerings.triton_type(self.index_type)})"
        return f"tl.broadcast_to({text}, {shape})"

    def shape(self, vars: str) -> str:
        """The block's shape for a value that depends on `vars`."""
        if self.flat:
            return "[XBLOCK]" if vars else "[1]"
        sizes = ["XBLOCK" if "x" in vars else "1", "RBLOCK" if "r" in vars else "1"]
        return f"[{', '.join(reversed(sizes) if self.blocks.across else sizes)}]"

    def masks(self, vars: str, bounds: tuple[Bound, ...]) -> str:
        """The mask of a load or store, '' when every lane is inside."""
        parts = ["x_mask"] if "x" in vars and self.ragged_x else []
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
            text = self.text(bound.e)
            text = text if bound.e.is_atom else f"({text})"
            if low < bound.low:
                parts.append(f"({text} >= {bound.low})")
            if high >= bound.high:
                parts.append(f"({text} < {bound.high})")
        return " & ".join(dict.fromkeys(parts)) or "(tl.full((), 1, tl.int32) != 0)"

    def range(self, axis: str) -> str:
        return f"tl.arange(0, {axis}BLOCK)"

    def vars_of(self, *expressions: Expr) -> str:
        """The variables that expressions depend on, through loaded indices too."""
        return vars_of(self.kernel.indices, expressions)
