"""Kernel IR → Triton text, one statement a line.

A kernel without r has blocks [XBLOCK]. With r they are [XBLOCK, RBLOCK], and a value that does not
depend on a coordinate has size 1 there, so that arithmetic broadcasts. What loops around the
statements is the business of `reduction_loops`.
"""

from __future__ import annotations

import math
from typing import Final

from genesis.codegen.cuda import lowerings, row_edges, rows_across, same_in_vectors
from genesis.codegen.cuda.addresses import Addresses
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
)
from genesis.codegen.cuda.masked_lanes import MaskedLanes
from genesis.codegen.cuda.rounded import rounded_values
from genesis.codegen.cuda.statement_order import FULL_ROW, loads_first, stores_last
from genesis.ir.sym_int import SymInt, literal_value
from genesis.ir.types import DType, bool_, float32, int32, int64
from genesis.passes.fusion.index_map import Expr

_INLINE: Final = {"add", "sub", "mul", "eq", "ne", "lt", "le", "gt", "ge", "bitwise_and", "bitwise_or"}
"""Ops that have a constant operand written into their text as a number, which takes the other operand's dtype."""

BIG: Final = {int32: 2**31 - 1, int64: 2**63 - 1}
"""Type of places → the largest, which stands for none found yet."""

REDUCED_AS: Final = {"sum": "sum", "prod": "prod", "max": "max", "min": "min", "any": "max", "all": "min",
                     "argmax": "max", "argmin": "min"}
"""Reduction → the one that takes two values of it together."""


class Body(Addresses):
    """Prints a kernel's statements for given blocks.

    Attributes:
        constants, positions, casts: value → the number, the expression of coordinates, the operand that it is made of.
        rounded: values that cheap arithmetic is exact enough for (`rounded.py`).
        dtypes: parameter → the dtype of its memory.
        vector: elements of a vector where rows begin anywhere and are read in vectors all the same (`row_edges.py`),
            else 0.
        source: the user's line that was printed last.
        masked: what lanes hold where nothing is loaded.
        passes: whether elements of rows are read for the last time, and what is stored of them is not read soon.
    """

    def __init__(self, kernel: Kernel, blocks: Blocks, index64: bool, first: str = ""):
        super().__init__(kernel, blocks, index64, first)
        self.constants = {s.out.name: s for s in kernel.statements if isinstance(s, Constant)}
        self.rounded = rounded_values(kernel)
        self.positions = {s.out.name: s.e for s in kernel.statements if isinstance(s, Position)}
        self.casts = {s.out.name: s.operands[0] for s in kernel.statements
                      if isinstance(s, Apply) and s.node.op.name == "cast"}
        self.dtypes = {argument.name: argument.node.dtype for argument in kernel.arguments}
        self.vector = 0
        self.source = ""
        self.masked = MaskedLanes()
        self.passes = False

    # The order of things

    def lines(self) -> list[str]:
        """The program's statements after x, x_mask and r are defined."""
        full = self.blocks.across or (not self.blocks.looped and self.blocks.r >= FULL_ROW)
        ordered = loads_first(stores_last(self.kernel.statements), full)
        vectors = any(isinstance(s, Load) and same_in_vectors.same_in_vectors(self, s) for s in ordered)
        first = same_in_vectors.coordinate_lines(self) if vectors else []
        return [*first, *(line for s in ordered for line in self.statement(s))]

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
                if out.name in self.masked.settled:
                    return [f"{out.name} = {a}"]
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
        last = ', eviction_policy="evict_first"' if self.passes and s.out.vars == "xr" else ""
        found = f"tl.load({pointer}{f', mask={masks}, other={self.masked.other(s)}' if masks else ''}{last}){upcast}"
        if same_in_vectors.same_in_vectors(self, s):
            return same_in_vectors.load_lines(self, s, found)
        return [f"{s.out.name} = {found}"]

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
        past = ', cache_modifier=".cs"' if self.passes and s.vars == "xr" else ""
        return [f"tl.store({self.pointer(s, s.vars, block=True)}, {value}{f', mask={masks}' if masks else ''}{past})"]

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
        if name == "div" and compute is float32:
            operands = tuple(map(self.divided, s.operands, operands))
        return lowerings.pointwise(name, compute, operands, rounded)

    def divided(self, value: Value, text: str) -> str:
        """An operand of a quotient, with 1 where a block of whole rows has zeros behind the rows' ends.

        A division of or by 0 leaves the dozen instructions of others for a branch of its own, and takes the whole warp
        with it (H200, normalize of 65,000 rows of 100 float32 with gradients, a fifth of whose blocks is idle: 71 µs
        for 24 by its bytes, torch.compile 37).
        """
        if self.blocks.looped or value.name not in self.masked.zeros:
            return text
        mask = rows_across.wanted_lanes(self.blocks) if self.blocks.across else "r_mask"
        return f"tl.where({mask}, {text}, 1.0)" if self.ragged_r or mask != "r_mask" else text

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
        if s.compute is float32 and self.is_share(over, under):
            return f"g_share({value}, {self.use(under, s.compute)})"
        return ""

    def is_share(self, power: Value, total: Value) -> bool:
        """Whether it is a softmax: of a row's powers exp(v - max(v)), none of which is above 1, by their sum."""
        made = {s.out.name: s for s in self.kernel.statements if isinstance(s, (Apply, Reduce))}
        summed, exp = made.get(total.name), made.get(power.name)
        if not (isinstance(summed, Reduce) and summed.op == "sum" and summed.operand is power
                and isinstance(exp, Apply) and exp.node.op.name == "exp"):
            return False
        below = made.get(exp.operands[0].name)
        if not (isinstance(below, Apply) and below.node.op.name == "sub" and below.compute is float32):
            return False
        top = made.get(below.operands[1].name)
        return isinstance(top, Reduce) and top.op == "max" and top.operand is below.operands[0]

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
        if not mask or (mask == "r_mask" and self.masked.is_neutral(s)):
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
