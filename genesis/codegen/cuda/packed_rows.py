"""Short rows side by side: a program has neighbours in memory, and what belongs to each of their rows once.

In a flat loop over channels of 7 × 7 images each element asks for four numbers of its channel, by a quotient of its
own; blocks of whole rows leave lanes idle, and read one element at a time where rows begin anywhere. Here a program has
BLOCK neighbouring elements, which it loads and stores in vectors. They lie in few rows: what depends on the row alone
is loaded and computed once for each, in a block [XBLOCK], and an element takes its row's value out of that
(`tl.gather`, through shared memory). What depends on the place in a row alone is [RBLOCK] in the same way.

    before: load(in0 + x) - load(in1 + x // 49 % 256)
    after:  x = first // 49 + arange(XBLOCK)
            load(in0 + element) - gather(load(in1 + x % 256), row_near)
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from genesis.codegen.cuda.block_sizes import VECTOR, Blocks, about, power_of_two, reach_of
from genesis.codegen.cuda.blocks import flat_blocks
from genesis.codegen.cuda.emitter import Body
from genesis.codegen.cuda.expressions import divided, expression
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.kernel_ir import (
    Apply,
    Checked,
    Constant,
    Index,
    Kernel,
    Load,
    Random,
    Statement,
    Store,
    Value,
    vars_of,
)
from genesis.codegen.cuda.last_programs import alternatives
from genesis.codegen.cuda.row_edges import plain
from genesis.codegen.cuda.shifted import WORD
from genesis.ir.size_divisors import is_multiple, twos
from genesis.ir.sym_int import as_written, literal_value
from genesis.ir.types import DType, bool_, int64
from genesis.passes.fusion.index_map import Atom, Expr, atoms

SHORTEST: Final = 8
"""Minimum elements of a row: of shorter ones a program has nearly as many values of rows as elements."""

LONGEST: Final = 512
"""Maximum elements of a row: a block of part of a longer one has few rows, and idles little."""

LONGEST_ALIKE: Final = 4096
"""Maximum elements of a row of which nothing is loaded for places: a program has few rows, and moves vectors (H200, a
sum's gradient to 11,912 rows of 853 float16, one by one in blocks of 16 rows: 10.7 µs for 5 by its bytes)."""

SINGLE_BYTES: Final = 2
"""Bytes of an element up to which rows that begin anywhere are slow to load one by one: wider ones fill lines."""

LEAST_VECTOR: Final = 8
"""Bytes of vectors from which on a row's are read as such, each with its row: what a vector finds for itself takes as
long as a word moves (look-ups of 300 bfloat16: 31 instructions an element in words)."""

TABLES: Final = 2
"""Values of a row that are loaded, from which on packed rows are better than blocks of wide elements one by one."""


def packed(kernel: Kernel, flat: Kernel, wasteful: bool, gpu: GpuModel) -> Blocks | None:
    """The blocks of a pointwise kernel in rows and places that goes through packed rows; None where it does not.

    Args:
        flat: the same over one coordinate.
        wasteful: no block of whole rows fits these.
    """
    number = literal_value(kernel.r_size)
    length = kernel.r_size if number is None else number
    if kernel.folds or not all(index.vars == "x" for index in kernel.indices.values()):
        return None
    moved: list[Load | Store] = [s for s in kernel.statements if isinstance(s, (Load, Store)) and _vars(s) == "xr"]
    shared = [*kernel.loads("x"), *kernel.loads("r")]
    draws = any(isinstance(s, Random) or (isinstance(s, Checked | Index) and s.out.vars != "x")
                for s in kernel.statements)
    if draws or not shared or not all(in_pieces(s, kernel) or _is_taken(s, kernel) for s in moved):
        return None
    dtypes = {argument.name: argument.node.dtype for argument in kernel.arguments}
    narrowest = min(dtypes[s.argument].itemsize for s in moved)
    few = narrowest > SINGLE_BYTES and len(kernel.loads("x")) < TABLES
    if not kernel.indices and not wasteful and (few or is_multiple(length * narrowest, VECTOR)):
        return None
    if not SHORTEST <= length <= (LONGEST if kernel.loads("r") else LONGEST_ALIKE):
        return None
    blocks = flat_blocks(about(flat.x_size), flat.bytes_each, gpu)
    shortest, longest = reach_of(length)
    shortest = max(shortest, SHORTEST)
    rows = (shortest + blocks.x - 2) // shortest + 1
    return replace(blocks, x=power_of_two(rows), r=power_of_two(longest), packed=blocks.x)


def _is_taken(s: Load | Store, kernel: Kernel) -> bool:
    """Whether it reads rows as they lie, in a kernel of which an index says where some of them are."""
    if not isinstance(s, Load) or s.bounds or not kernel.indices:
        return False
    along = [(atom.name, k) for atom, k in s.address.terms if vars_of(kernel.indices, [Expr(0, ((atom, k),))]) != "x"]
    return along == [("r", 1)]


def _vars(s: Load | Store) -> str:
    return s.out.vars if isinstance(s, Load) else s.vars


def in_pieces(s: Load | Store, kernel: Kernel) -> bool:
    """Whether it goes through the elements as they lie."""
    whole = Expr(0, s.address.terms)
    bare = replace(s, address=whole, bounds=()) if isinstance(s, Load) else replace(s, address=whole)
    return plain(bare, kernel)


class PackedRows(Body):
    """Prints a kernel of packed rows.

    Attributes:
        here: the coordinates that the statement being printed depends on.
        spread: lines that give elements what was computed for rows or places, by what it is.
    """

    def __init__(self, kernel: Kernel, blocks: Blocks, index64: bool, whole: bool = False):
        super().__init__(kernel, blocks, index64)
        self.whole, self.here = whole, ""
        self.spread: dict[str, str] = {}
        self.pending: list[str] = []
        self.together = self._together()

    @property
    def row(self) -> int:
        """Elements of a row, as a kernel's text names them."""
        return self.kernel.r_size if self.length is None else self.length

    def program_lines(self) -> list[str]:
        """The kernel's lines: where the program is, then its statements, twice where masks would cut vectors."""
        lines = self.lines()
        if self._masks_cut():
            whole = PackedRows(self.kernel, self.blocks, self.index_type is int64, whole=True)
            lines = alternatives(f"{self._end()} - first >= {self.blocks.packed}", whole.lines(), lines)
        return [*self._places("\n".join(lines)), *lines]

    def _masks_cut(self) -> bool:
        """Whether the end of all rows may be no multiple of a vector."""
        narrowest = min(self.dtypes[s.argument].itemsize for s in self.kernel.statements
                        if isinstance(s, (Load, Store)) and _vars(s) == "xr")
        return narrowest <= SINGLE_BYTES and not is_multiple(self.kernel.x_size * self.row, VECTOR // narrowest)

    def _end(self) -> str:
        """How many elements all rows have. The number of rows is an argument of 32 bits where 32 bits hold it."""
        rows = "tl.cast(x_size, tl.int64)" if self.index_type is int64 else "x_size"
        return f"{rows} * {self.row}"

    def _places(self, text: str) -> list[str]:
        """Lines that say where the program's elements, rows and places in them are, as far as the text needs them."""
        packed, row = self.blocks.packed, self.row
        program = "tl.program_id(0).to(tl.int64)" if self.index_type is int64 else "tl.program_id(0)"
        small = ".to(tl.int32)" if self.index_type is int64 else ""
        element = f"first + tl.arange(0, {packed})"
        if self.kernel.indices:  # those begin anywhere: lanes with a word each read lines of memory
            element = self._in_words(element, self.together)
        near = f"(first - first_row * {row}){small} + tl.arange(0, "
        lines = [f"first = {program} * {packed}", f"element = {element}", f"inside = element < {self._end()}",
                 f"first_row = first // {row}", "x = first_row + tl.arange(0, XBLOCK)", "x_mask = x < x_size",
                 "r = tl.arange(0, RBLOCK)", f"r_mask = r < {row}",
                 f"near = {near}{packed})",
                 *([f"near_vector = {near}{packed // self.together}) * {self.together}",
                    f"row_of_vector = {self._row_near('near_vector')}",
                    f"row_near = {self._in_vectors('row_of_vector')}"] if self.in_vectors else
                   [f"row_near = {self._row_near('near')}"]),
                 f"r_each = near - row_near * {row}", "x_each = first_row + row_near"]
        found: list[str] = []
        for line in reversed(lines):
            name = line.partition(" = ")[0]
            if re.search(rf"\b{name}\b", text):
                found.insert(0, line)
                text += f"\n{line.partition(' = ')[2]}"
        return found

    @property
    def in_vectors(self) -> bool:
        """Whether a thread's neighbours are of one row, and more than a word."""
        return self.together > self._word()

    def _moved(self) -> list[Load | Store]:
        """The loads and stores of elements."""
        return [s for s in self.kernel.statements if isinstance(s, Load | Store) and _vars(s) == "xr"]

    def _word(self) -> int:
        """Elements of a word."""
        return max(1, WORD // min(self.dtypes[s.argument].itemsize for s in self._moved()))

    def _together(self) -> int:
        """Elements of a word or, where rows that are read through an index begin at multiples of a wider vector, of
        that: as many neighbours a thread has of them."""
        moved = self._moved()
        sizes = [self.dtypes[s.argument].itemsize for s in moved]
        if not self.kernel.indices:
            return self._word()
        steps = [k for s in moved for k in (s.address.constant, *(k for _, k in s.address.terms if k != 1))]
        vector = min(VECTOR // max(sizes), self.blocks.packed, *(_twos(k) for k in (self.row, *steps)))
        return vector if vector * min(sizes) >= LEAST_VECTOR else self._word()

    def _in_vectors(self, text: str) -> str:
        """What belongs to a vector, for each of its elements."""
        several, each = self.blocks.packed // self.together, self.together
        return f"tl.reshape(tl.broadcast_to({text}[:, None], [{several}, {each}]), [{self.blocks.packed}])"

    def _in_words(self, text: str, count: int) -> str:
        """A text that is said to count `count` neighbours from a multiple of them on: a thread's load or store."""
        return f"tl.max_contiguous(tl.multiple_of({text}, {count}), {count})"

    def _row_near(self, near: str) -> str:
        """The row that a place lies in, counted from the program's first.

        A length that is an argument divides by its reciprocal, which is an argument, too: of 32 bits, rounded up, it is
        exact as long as near · length < 2^32.
        """
        if self.length is not None:
            found = divided(near, self.length + self.blocks.packed - 2, self.length)
            assert found is not None
            return found
        reciprocal = (2**32 - 1) // self.kernel.r_size + 1
        return f"tl.umulhi({near}.to(tl.uint32), tl.full((), {reciprocal}, tl.uint32)).to(tl.int32)"

    def statement(self, s: Statement) -> list[str]:
        """The lines of one statement, behind those that spread what it takes of rows and places."""
        self.here = s.vars if isinstance(s, Store) else "" if isinstance(s, Constant) else s.out.vars  # type: ignore[union-attr]
        lines = super().statement(s)
        pending, self.pending = self.pending, []
        return [*pending, *lines]

    def use(self, value: Value, dtype: DType, inline: bool = False) -> str:
        """An operand; of a row or a place where an element needs it, the element's own."""
        if self.here != "xr" or value.vars not in ("x", "r") or value.name in self.constants:
            return super().use(value, dtype, inline)
        name = self._each(value.name, f"{value.name}_each", value.vars, value.dtype is bool_)
        return super().use(replace(value, name=name, vars="xr"), dtype, inline)

    def _each(self, text: str, name: str, vars: str, truth: bool = False) -> str:
        """The name of what elements take out of a block of rows or places."""
        if text not in self.spread:
            self.spread[text] = name
            place = "r_each" if vars == "r" else "row_of_vector" if self.in_vectors else "row_near"
            taken = f"tl.gather({text}{'.to(tl.int8)' if truth else ''}, {place}, 0)"
            taken = self._in_vectors(taken) if place == "row_of_vector" else taken
            self.pending.append(f"{name} = {taken}{' != 0' if truth else ''}")
        return self.spread[text]

    def text(self, e: Expr) -> str:
        """An index expression; for elements what is a sum of rows and places is computed for these."""
        if self.here != "xr":
            return super().text(e)
        terms = {vars: tuple(term for term in e.terms if self.vars_of(Expr(0, (term,))) == vars) for vars in ("x", "r")}
        found = [(_renamed(atom), k) for atom, k in e.terms if self.vars_of(Expr(0, ((atom, k),))) == "xr"]
        if [(atom.text, k) for atom, k in (*terms["x"], *terms["r"])] == [("x", self.row), ("r", 1)]:
            found.append((Atom("var", "element", 0, 0), 1))
            terms = {}
        for vars, own in terms.items():
            if all(atom.kind == "var" for atom, _ in own):
                found += [(_renamed(atom), k) for atom, k in own]
            else:
                table = expression(Expr(0, own))
                name = self._each(f"({table})", f"{vars}_part{len(self.spread)}", vars)
                found.append((Atom("var", name, 0, 0), 1))
        text = super().text(Expr(e.constant, tuple(found)))
        if not any(atom.kind == "loaded" for atom in atoms([e])):
            return text
        count = min(self.together, *(_twos(k) for k in (self.row, *(k for _, k in e.terms if k != 1))))
        return self._in_words(text, count) if count > 1 and is_multiple(as_written(e.constant), count) else text

    def masks(self, vars: str, bounds: tuple) -> str:
        """The mask of a load or store: elements have one of their own."""
        if vars != "xr":
            return super().masks(vars, bounds)
        parts = [] if self.whole else ["inside"]
        return " & ".join([*parts, self.conditions(bounds)] if bounds else parts)

    def shape(self, vars: str) -> str:
        """The block's shape: one axis, of rows, of places or of elements."""
        return {"": "[1]", "x": "[XBLOCK]", "r": "[RBLOCK]", "xr": f"[{self.blocks.packed}]"}[vars]

    def compared_positions(self, s: Apply) -> None:
        """None: what is compared has other shapes."""


def _twos(size: int) -> int:
    """The power of two that divides a size as a kernel writes it."""
    written = as_written(size)
    return VECTOR if is_multiple(written, VECTOR) else twos(written)


def _renamed(atom: Atom) -> Atom:
    """The same of an element's own row and place."""
    if atom.inner is None:
        return replace(atom, name=f"{atom.name}_each")
    terms = tuple((_renamed(inner), k) for inner, k in atom.inner.terms)
    return replace(atom, inner=Expr(atom.inner.constant, terms))
