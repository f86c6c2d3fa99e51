"""Where the elements of a block are, as Triton text: its shape, addresses of loads and stores, and masks.

A kernel without r has blocks [XBLOCK]. With r they are [XBLOCK, RBLOCK], and a value that does not depend on a
coordinate has size 1 there, so that arithmetic broadcasts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from genesis.codegen.cuda import lowerings, neighbours, row_edges, shifted
from genesis.codegen.cuda.block_sizes import VECTOR, Blocks
from genesis.codegen.cuda.carried import carried_text, carries_of, carry_of
from genesis.codegen.cuda.expressions import expression
from genesis.codegen.cuda.kernel_ir import Kernel, Load, Store, Value, vars_of
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import constant_term, literal_value, most, rounds
from genesis.ir.types import DType, int32, int64
from genesis.passes.fusion.index_map import Bound, Expr

ALONG: Final = 4
"""How many times as long as high a tile is at least for the starts of its rows to be reckoned once each."""


def in_two_dimensions(kernel: Kernel, blocks: Blocks) -> bool:
    """Whether the programs that share a row lie along the grid's first dimension, and blocks of rows along its second.

    So it is where the row's length is an argument: each program would divide its number by how many share the row, or
    have that in its text, and a plan would serve no other. The order of programs is the same.
    """
    return blocks.tiled and literal_value(kernel.r_size) is None


def start_and_place(address: Expr, dtype: DType, indices: Mapping[str, Value]) -> tuple[Expr, Expr] | None:
    """What an address has of x, and r times a number, where neighbours in memory are no vectors; None where they may
    be, or r is in quotients.

    Example: of r·59 + x % 59 + x // 59 · 47849 in 16 bits (x % 59 + x // 59 · 47849, r·59); of r + x·64 none.
    """
    place = tuple([(atom, k) for atom, k in address.terms if atom.kind == "var" and atom.name == "r"])
    start = tuple([term for term in address.terms if term not in place])
    if len(place) != 1 or vars_of(indices, [Expr(0, start)]) != "x":
        return None
    numbers = [k for _, k in address.terms if k != 1] + [atom.number for atom, k in start if k == 1 and atom.inner]
    if all(is_multiple((number if (known := literal_value(number)) is None else known) * dtype.itemsize, VECTOR)
           for number in numbers):
        return None
    return Expr(0, start), Expr(address.constant, place)


class Addresses:
    """The coordinates of a kernel's blocks.

    Attributes:
        flat: the kernel has no r.
        index_type: the dtype of coordinates.
        length: how many elements are reduced; None where that is the argument `r_size`.
        r_size: the same as text.
        ragged_x, ragged_r: whether blocks of x, of r may reach past the end.
        tiles: how many programs share the r of one block of x.
        program_of_row, program_of_x: as text, which of these programs this one is, and which block of x it has.
        first: where the block begins along its last axis, as text; given for an x that is not the program's own.
        r_axis: the axis of a block that r lies along.
        shift: how many elements before its first a flat loop's blocks begin (`shifted.py`).
        neighbours: coordinate → how many elements side by side along it a thread has of what could be moved in more
            (`neighbours.py`); a coordinate of which Triton is to decide is not in it.
        reciprocals: whether it divides by arguments with their reciprocals.
        starts_apart: whether there are registers for where rows begin, apart from where in them an element is.
    """

    reciprocals = True
    starts_apart = True

    def __init__(self, kernel: Kernel, blocks: Blocks, index64: bool, first: str = ""):
        self.kernel, self.blocks = kernel, blocks
        self.flat = not kernel.has_r
        self.index_type = int64 if index64 else int32
        self.length = None if kernel.has_r and kernel.reduces_batch else literal_value(kernel.r_size)
        self.r_size = "r_size" if self.length is None else str(self.length)
        self.ragged_x = True
        self.ragged_r = self.length is None or self.reaches_past(self.length)
        self.r_axis = 0 if blocks.across else 1
        self.tiles = self._tiles() if blocks.tiled else 1
        integer = ".to(tl.int64)" if index64 else ""
        program = f"tl.program_id(0){integer}"
        if in_two_dimensions(kernel, blocks):
            self.program_of_row, self.program_of_x = program, f"tl.program_id(1){integer}"
        elif self.tiles > 1:
            self.program_of_row, self.program_of_x = f"program % {self.tiles}", f"program // {self.tiles}"
        else:
            self.program_of_row, self.program_of_x = "", program
        self.first = (first or f"{program} * XBLOCK" if self.flat else "r_start" if blocks.looped
                      else f"{self.program_of_row} * RBLOCK" if self.program_of_row else "0")
        self.shift = 0
        self.neighbours: dict[str, int] = {}

    def reaches_past(self, length: int) -> bool:
        """Whether the last block of a row this long reaches past its end."""
        whole = self.blocks.looped or self.blocks.tiled
        return length % self.blocks.r != 0 if whole else length != self.blocks.r

    def _tiles(self) -> int:
        """How many blocks a row has; of long rows that programs divide by, a number."""
        row = self.kernel.r_size
        divided = most(row) > row_edges.LONG_ROW and not in_two_dimensions(self.kernel, self.blocks)
        return rounds(row, self.blocks.r) if divided else -(-row // self.blocks.r)

    def inside_row(self) -> str:
        """Which elements of a block lie in the row."""
        whole = not self.kernel.r_leads and not self.program_of_row
        return row_edges.before_end(self.kernel.r_size, self.r_size, self.blocks.r if whole else 0)

    def text(self, e: Expr) -> str:
        """An index expression as text."""
        return expression(e, self.reciprocals)

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

    def pointer(self, s: Load | Store, vars: str, block: bool = False) -> str:
        """Where a load or store of this shape finds its elements.

        Where a program has one row and its length is an argument, the row's start is added first: neighbours then
        differ by numbers, and need no registers for addresses of their own. So it is where rows begin at no multiple of
        a vector, and their elements come one by one or two by two: each address would be two instructions (sm_90,
        cross-entropy of 96,137 rows of 691 float16: 792 instructions a program of 4 rows, 696 so).
        """
        if shifted.is_shifted(self.shift) and shifted.is_run(s):
            return f"{s.argument} + (near + {shifted.from_vector(s, self.shift)})"
        carry = carry_of(self.kernel, self.blocks, s.address) if vars == "xr" else None
        carried = "" if carry is None else carried_text(
            carry, carries_of(self.kernel, self.blocks)[carry.coordinate, carry.period], self.reciprocals)
        if self._is_told(s):
            return f"{s.argument} + {self._in_neighbours(s, carried or self.at(s.address, vars, block))}"
        if carried:
            return f"{s.argument} + ({carried})"
        steps = {atom.name: k for atom, k in s.address.terms if atom.kind == "var"}
        one_row = not self.flat and self.blocks.x == 1 and set(steps) == {"x", "r"} and len(s.address.terms) == 2
        if not (one_row and literal_value(steps["x"]) is None):
            if self.kernel.folds and s.address.terms:  # taps differ by what an instruction adds
                step = constant_term(s.address.constant)
                first = Expr(s.address.constant - step, s.address.terms)
                return f"{s.argument} + {self.at(first, vars, block)}{f' + ({step})' if step else ''}"
            if (apart := self._apart(s)) is not None:
                return f"{s.argument} + {self.at(apart[0], 'x')} + {self.at(apart[1], 'r')}"
            return f"{s.argument} + {self.at(s.address, vars, block)}"
        in_row = Expr(s.address.constant, tuple([term for term in s.address.terms if term[0].name != "x"]))
        return f"{s.argument} + x * {steps['x']} + {self.at(in_row, 'r')}"

    def counts_near(self) -> bool:
        """Whether some address is a flat loop's coordinate of which Triton is told how many neighbours a thread has."""
        return self.flat and any(shifted.is_run(s) and self._is_told(s) for s in self.kernel.statements
                                 if isinstance(s, Load | Store))

    def tells_of_r(self) -> bool:
        """Whether Triton is told of r itself how many neighbours a thread has: it is in no remainder, of which it knows
        neighbours only if it knows that all of a block of what is divided are."""
        return set(self.neighbours) == {"r"} and not self.flat and not neighbours.divides(self.kernel, "r")

    def _is_told(self, s: Load | Store) -> bool:
        """Whether Triton is told of an address how many neighbours a thread has."""
        along = neighbours.lies_along(s, self.flat)
        return not self.tells_of_r() and neighbours.has_more(s, self.kernel, along, self.neighbours.get(along, 0))

    def _in_neighbours(self, s: Load | Store, address: str) -> str:
        """An address of which Triton is told how many neighbours a thread has. Of a coordinate another one is told so:
        what it is told of a value it takes for true wherever that is used."""
        if self.flat and shifted.is_run(s):
            return f"(near + {s.address.constant})" if s.address.constant else "near"
        along = neighbours.lies_along(s, self.flat)
        return self.told(address, along, anywhere=not self.flat and neighbours.is_aimless(s, along))

    def told(self, text: str, along: str, anywhere: bool = False) -> str:
        """A coordinate or an address of which Triton is told how many neighbours along a coordinate a thread has. In a
        block of rows there are neighbours at all, two at the least, though not from a multiple of two on: of runs of
        one in both directions it would have lanes go from row to row. `anywhere`: they begin at no multiple."""
        count = self.neighbours[along]
        if self.flat:
            return f"tl.max_contiguous(tl.multiple_of({text}, {count}), {count})"
        multiple, run = ((f"[1, {n}]" if along == "r" else f"[{n}, 1]") for n in (
            1 if anywhere else count, max(count, 2)))
        return f"tl.max_contiguous(tl.multiple_of({text}, {multiple}), {run})"

    def _apart(self, s: Load | Store) -> tuple[Expr, Expr] | None:
        """Where a row begins and where in it an element is, of a block whose elements come one by one; else None."""
        blocks, kernel = self.blocks, self.kernel
        if not self.starts_apart or self.flat or blocks.across or blocks.packed or kernel.folds or kernel.r_leads:
            return None
        if blocks.tiled and blocks.r < ALONG * blocks.x:  # threads of square tiles have as many rows as places
            return None
        dtype = next(x.node.dtype for x in kernel.arguments if x.name == s.argument)
        return start_and_place(s.address, dtype, kernel.indices)

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
