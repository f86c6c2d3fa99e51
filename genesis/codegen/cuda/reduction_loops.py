"""The loops around a kernel's statements.

    whole rows      none: a block has every r, and is held in registers from load to store
    long rows       a loop over r for each reduction that needs an earlier one's result, and one for the stores
    a split of r    a loop over the program's split of r; another kernel adds up its `Part`s
    a split of x    a loop over the program's rows, each of them whole; its `Part`s are sums over these rows

A reduction loop computes what its reductions and stores need, from memory on. Loaded values stay in registers between
the loops where there is room (`Blocks.kept_bytes`): the loops are then unrolled, and each converts a value again,
because the registers hold it in its dtype in memory. Else two reductions that wait for each other share a loop where
`online_reductions` knows how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

from genesis.codegen.cuda import lowerings
from genesis.codegen.cuda.accumulators import Accumulators
from genesis.codegen.cuda.block_sizes import VECTOR, Blocks, room_for
from genesis.codegen.cuda.kernel_ir import END, Kernel, Load, Part, Reduce, Statement, Store, Value, operands_of
from genesis.codegen.cuda.last_programs import last_apart
from genesis.codegen.cuda.masked_lanes import MaskedLanes, masked_lanes
from genesis.codegen.cuda.neighbours import neighbours
from genesis.codegen.cuda.rounded import rounded_values
from genesis.codegen.cuda.row_edges import block_lines
from genesis.codegen.cuda.same_in_vectors import loop_lines, same_in_vectors
from genesis.codegen.cuda.shifted import is_shifted, neighbours_of, shift_of
from genesis.codegen.cuda.statement_order import stores_last
from genesis.ir.ops.splits import split_length
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import as_written, literal_value, rounds
from genesis.ir.types import bool_, int64

MASKED: Final = 1024
"""Elements of a block below which one of a row whose length is an argument always has a mask."""

MOST_LOADS: Final = 4
"""Operands of a block up to which their loads should not wait for each other: of seven there are enough under way, and
registers have no room for all of them (a total of seven transposed operands spilled 32 bytes)."""


class Program(Accumulators):
    """Prints a kernel for given blocks, loops and all.

    Attributes:
        chunks: how many blocks of r a row has that registers keep; 0 where they keep none.
        x_size: how many elements are kept, as text: a number when the reduced ones lead (addresses name it anyway), so
            that masks are known to be true or false of whole vectors.

    Args:
        whole: no block of x reaches past the end.
    """

    def __init__(self, kernel: Kernel, blocks: Blocks, index64: bool, whole: bool = False):
        super().__init__(kernel, blocks, index64)
        kernel = self.kernel
        self.shift = shift_of(kernel)
        self.loop_index = self._loop_index()
        self.chunks = rounds(kernel.r_size, blocks.r) if blocks.kept_bytes else 0
        self.held = self._held() if blocks.kept_bytes else set()
        self.loaded: set[str] = set()
        splits = kernel.splits
        self.parts = [s for s in kernel.statements if isinstance(s, Part)]
        if splits is not None and splits.over == "r":
            fills = splits.multiple % blocks.r == 0 and self.length is not None and self.length % blocks.r == 0
            self.ragged_r, self.first = not fills, "r_start"
        # Multiples of 16 are a class of their own anyway: `aligned` tells of them.
        even = splits is None and 16 % blocks.x == 0 and is_multiple(kernel.x_size, 16)
        columns = literal_value(kernel.x_size) if kernel.has_r and kernel.r_leads else None
        self.x_size = "x_size" if columns is None else str(kernel.x_size)
        exact = columns is not None and columns % blocks.x == 0
        self.ragged_x = not whole and (self.flat or not (blocks.x == 1 or even or exact))
        if blocks.run and not blocks.across:
            self.ragged_x = blocks.run != blocks.x
        long = blocks.r >= MASKED and not kernel.r_leads and (splits is None or splits.over == "x")
        if self.length is None and kernel.has_r and long:
            self.ragged_r = self.reaches_past(kernel.r_size)  # of symbolic sizes a guard: a plan has masks or has none
        self.ragged_r = self.ragged_r or self.vector > 0
        self.neighbours = self._neighbours()
        few = len(kernel.loads("xr")) + len(kernel.loads("r")) <= MOST_LOADS
        if few and not blocks.across and not is_shifted(self.shift):
            self.masked = masked_lanes(kernel, self._names_what_is_masked, self.ragged_r, blocks.num_stages < 2)
        elif blocks.across:  # what is read from shared memory behind a row's end, or by lanes without one, is 0
            self.masked = MaskedLanes(zeros=masked_lanes(kernel, lambda _: True, True, False).zeros)

    def _neighbours(self) -> dict[str, int]:
        """How many neighbours along a coordinate a thread of a pointwise loop is to have, where Triton would have it
        otherwise."""
        kernel, blocks = self.kernel, self.blocks
        other = kernel.folds or kernel.column is not None or blocks.across or blocks.looped or blocks.packed
        if other or not (self.flat or blocks.tiled) or (self.flat and neighbours_of(kernel, self.shift)):
            return {}
        x_size = kernel.x_size if self.ragged_x and not (self.flat and last_apart(kernel, blocks)) else None
        r_size = kernel.r_size if self.ragged_r else None
        found = {"x": neighbours(kernel, "x", x_size), "r": neighbours(kernel, "r", r_size, self.length is not None)}
        return {along: count for along, count in found.items() if count}

    def _names_what_is_masked(self, s: Load) -> bool:
        """Whether a load is one whose text says what it gives where its mask does not hold."""
        return not (self.vector and s.out.vars == "xr")

    def lines(self) -> list[str]:
        """The program's statements after x, x_mask and r are defined, as far as no loop defines them."""
        splits = self.kernel.splits
        if splits is not None:
            return self.split_of_x() if splits.over == "x" else self.split_of_r()
        return self.reduction_loops() if self.blocks.looped else super().lines()

    # Long rows

    def reduction_loops(self) -> list[str]:
        """One loop over r for each reduction that waits for an earlier one; between them what is computed once a row.

        Everything is stored at the end, in the last loop: an output may share memory with an input,
        which earlier loops read. Where one loop reads, what it computes is stored in it.
        """
        statements = stores_last(self.kernel.statements)
        found: list[str] = []
        last = max((self.loop_of(s) for s in statements), default=0)
        for index in range(last + 1):
            here = [s for s in statements if not isinstance(s, END) and self.loop_of(s) == index]
            stores = [s for s in statements if isinstance(s, END) and self.stored_in(s, last) == index]
            for s in here:
                if not self.inside(s) and not isinstance(s, Reduce):
                    found += self.statement(s)
            ends: list[Statement] = [s for s in here if isinstance(s, Reduce)]
            ends += [s for s in stores if self.inside(s)]
            if ends:
                found += self.reduction_loop(ends)
            for store in stores:
                if not self.inside(store):
                    found += self.statement(store)
        return found

    def stored_in(self, s: Statement, last: int) -> int:
        """The loop, of those up to the last, that a store belongs to, or comes behind."""
        return 0 if self.inside(s) and self.read_once else last

    @cached_property
    def read_once(self) -> bool:
        """Whether nothing that is computed inside of a loop waits for a reduction: one loop computes everything."""
        return all(self.loop_of(s) == 0 for s in self.kernel.statements if isinstance(s, Reduce) or self.inside(s))

    def reduction_loop(self, ends: list[Statement]) -> list[str]:
        """A loop over r that computes these reductions and stores.

        One that only stores goes back from the end where the L2 has no room for all rows: what was read last is still
        there, and results take no room (H200: a softmax's gradient of 2048 rows of 128,256 bfloat16 404 → 358 µs, 292
        by its bytes; 383 without telling the cache).
        """
        reductions = [s for s in ends if isinstance(s, Reduce)]
        found = [line for s in reductions for line in self.start(s)]
        wanted = self.needed(ends)
        inner, everywhere = self.lines_of_block(wanted), self.rounded
        if self.blocks.kept_bytes:
            first = [s for s in wanted if isinstance(s, Load) and s.out.name in self.held - self.loaded]
            found += [f"{s.out.name}_held = ()" for s in first]
            found.append(f"for chunk in tl.static_range({self.chunks}):")
            inner.insert(0, "r_start = chunk * RBLOCK")
        elif self.blocks.passing and not reductions and not self.vector:
            found.append(self.loop("behind", "0", self.r_size, "RBLOCK"))
            inner.insert(0, f"r_start = ({self.r_size} - 1) // RBLOCK * RBLOCK - behind")
            self.passes = True
        else:
            end = f"{self.r_size} + shift" if self.vector else self.r_size
            found.append(self.loop("r_start", "0", end, "RBLOCK"))
        exact = [s.out.name for s in reductions if s.out.name not in everywhere and not self.averages_out(s)]
        self.rounded = everywhere | rounded_values(self.kernel, wanted, exact)  # what other loops need, they compute
        for s in wanted:
            inner += self.accumulate(s) if isinstance(s, Reduce) else self.statement(s)
        inner[1:1] = self.shares(reductions, "r_start")
        self.rounded, self.passes = everywhere, False
        if self.blocks.kept_bytes:
            self.loaded |= {s.out.name for s in first}
        found += ["    " + line for line in inner]
        return found + [line for s in reductions for line in self.finish(s)]

    def loop(self, name: str, start: str, end: str, step: str) -> str:
        """The head of a loop; its loads are pipelined when the blocks say so."""
        stages = f", num_stages={self.blocks.num_stages}" if self.blocks.num_stages > 1 else ""
        return f"for {name} in {'tl.' if stages else ''}range({start}, {end}, {step}{stages}):"

    def r_lines(self, end: str = "") -> list[str]:
        """r at r_start, and its mask where a block may reach past the end."""
        to_index = ".to(tl.int64)" if self.index_type is int64 else ""
        if self.vector:
            return block_lines(self.kernel, self.blocks, self.r_size, self.vector, to_index)
        lines = [f"r = r_start + {self.range('R')}[None, :]{to_index}"]
        if not self.ragged_r:
            return lines
        whole = f" | (chunk < {self.chunks - 1})" if self.chunks else ""
        return [*lines, f"r_mask = (r < {self.r_size}){whole}" if whole else f"r_mask = r < {end or self.r_size}"]

    def lines_of_block(self, statements: Sequence[Statement], end: str = "") -> list[str]:
        """`r_lines`, and where the block's vectors begin if a statement loads one element for each of them."""
        lines = self.r_lines(end)
        vectors = any(isinstance(s, Load) and same_in_vectors(self, s) for s in statements)
        return loop_lines(self, lines) if vectors else lines

    def needed(self, ends: Sequence[Statement]) -> list[Statement]:
        """What must be computed inside a loop over r for these ends, in order."""
        wanted: set[str] = set()
        chosen = set(map(id, ends))
        kept = []
        for s in reversed(stores_last(self.kernel.statements)):
            if id(s) in chosen or (not isinstance(s, (*END, Reduce)) and s.out.name in wanted and self.inside(s)):
                kept.append(s)
                wanted.update(value.name for value in self.reads(s))
        return kept[::-1]

    def reads(self, s: Statement) -> list[Value]:
        """The values a statement reads. A sum in one loop with the reduction it waits for reads that one's operand."""
        beside = self.online.get(_name(s)) or self.squares.get(_name(s))
        if beside is not None:
            return [beside.operand]
        around = self.squares.get(self.comoments.get(_name(s), ""))
        return [*operands_of(s, self.kernel.indices), *([around.operand] if around is not None else [])]

    def loop_of(self, s: Statement) -> int:
        """The loop over r that a statement belongs to; a reduction belongs to the one that feeds it."""
        if isinstance(s, Store):
            return self.loop_index[s.value.name]
        if isinstance(s, Part):
            return self.loop_index[s.operand.name]
        return self.loop_index[s.out.name] - isinstance(s, Reduce)

    def _loop_index(self) -> dict[str, int]:
        """The loops over r that must end before each value is known."""
        found: dict[str, int] = {}
        for s in self.kernel.statements:
            if not isinstance(s, END):
                found[s.out.name] = max((found[x.name] for x in self.reads(s)), default=0) + isinstance(s, Reduce)
        return found

    def inside(self, s: Statement) -> bool:
        """Does the statement depend on r, so that it is computed inside a loop over r?"""
        if isinstance(s, Part):
            return True
        return "r" in s.vars if isinstance(s, Store) else not isinstance(s, Reduce) and "r" in s.out.vars

    # What registers keep from loop to loop

    def _held(self) -> set[str]:
        """Loads that more than one loop needs, as many as there is room for."""
        last = max(map(self.loop_of, self.kernel.statements))
        uses: dict[Load, int] = {}
        for index in range(last + 1):
            ends = [s for s in self.kernel.statements if (isinstance(s, Reduce) and self.loop_of(s) == index)
                    or (isinstance(s, Store) and index == self.stored_in(s, last) and self.inside(s))]
            for s in self.needed(ends):
                if isinstance(s, Load) and s.out.vars == "xr" and not same_in_vectors(self, s):
                    uses[s] = uses.get(s, 0) + 1
        found, room = set(), self.blocks.kept_bytes
        for s in sorted((s for s in uses if uses[s] > 1), key=lambda s: -uses[s]):
            size = room_for(self.kernel.r_size) * self.dtypes[s.argument].itemsize
            if size <= room:
                room -= size
                found.add(s.out.name)
        return found

    def load(self, s: Load) -> list[str]:
        """A load, or what was kept of it."""
        lines = super().load(s)
        name = s.out.name
        if name not in self.held:
            return lines
        held = lowerings.held(s.out.dtype)
        upcast = "" if held is s.out.dtype else f".to({lowerings.triton_type(held)})"
        if name in self.loaded:
            return [f"{name} = g_again({name}_held[chunk]){upcast}"]
        first, *_ = lines
        loaded = first.removesuffix(upcast) if upcast else first
        return [loaded, f"{name}_held = {name}_held + ({name},)", *([f"{name} = {name}{upcast}"] if upcast else [])]

    # A program for a split

    def split_lines(self, size: str, program: str) -> list[str]:
        """Where the program's split begins and ends."""
        splits = self.kernel.splits
        assert splits is not None
        to_index = ".to(tl.int64)" if self.index_type is int64 else ""
        if size.isdigit():
            length = str(split_length(int(size), splits.count, splits.multiple))
        else:
            length = f"tl.cdiv({size}, {splits.count})"
            if splits.multiple > 1:
                length = f"tl.cdiv({length}, {splits.multiple}) * {splits.multiple}"
        return [f"split = {program}{to_index}", f"length = {length}", "begin = split * length",
                f"end = tl.minimum(begin + length, {size})"]

    def split_of_r(self) -> list[str]:
        """Loop over the split, take its elements into the accumulators, store what depends on r; then the parts."""
        reductions = {id(s): self.part_as_reduction(s) for s in self.parts}
        found = self.split_lines(self.r_size, "tl.program_id(1)")
        outside, inside = self.around_loop(lambda s: self.inside(s))
        found += [line for s in outside for line in self.statement(s)]
        found += [line for s in reductions.values() for line in self.start(s)]
        splits = self.kernel.splits
        assert splits is not None

        def block(head: str) -> list[str]:
            inner = self.lines_of_block(inside, self.r_size if splits.multiple % self.blocks.r == 0 else "end")
            inner += self.shares(reductions.values(), "r_start - begin")
            for s in inside:
                inner += self.accumulate(reductions[id(s)]) if isinstance(s, Part) else self.statement(s)
            return [head, *("    " + line for line in inner)]

        if self.last_apart():
            self.ragged_r = False
            found.append("whole = begin + tl.maximum(end - begin, 0) // RBLOCK * RBLOCK")
            found += block(self.loop("r_start", "begin", "whole", "RBLOCK"))
            self.ragged_r = True
            found.append("r_start = whole")
            found += block("if whole < end:")
        else:
            found += block(self.loop("r_start", "begin", "end", "RBLOCK"))
        found += [line for s in reductions.values() for line in self.finish(s)]
        for part, s in zip(self.parts, reductions.values(), strict=True):
            found.append(self.store_part(part, "split * x_size + x", s.out.name, "x_mask" if self.ragged_x else ""))
        return found

    def last_apart(self) -> bool:
        """Whether the last block of all, which alone reaches past the end, has statements of its own: a mask of each
        round would take vectors apart where the number of elements is no multiple of one."""
        splits, kernel = self.kernel.splits, self.kernel
        assert splits is not None
        if not self.ragged_r or splits.multiple % self.blocks.r or kernel.space[-1][1] != "r":
            return False
        read = [*kernel.loads("xr"), *kernel.loads("r")]
        narrowest = min((s.out.dtype.itemsize for s in read), default=VECTOR)
        return not is_multiple(as_written(kernel.r_size), VECTOR // narrowest)

    def split_of_x(self) -> list[str]:
        """What no row changes first, then the rows one block after the other, then the parts."""
        found = self.split_lines("x_size", "tl.program_id(0)")
        outside, inside = self.around_loop(lambda s: isinstance(s, (*END, Reduce)) or "x" in s.out.vars
                                     or self.loop_index[s.out.name] > 0)
        found += [line for s in outside for line in self.statement(s)]
        reductions = {id(s): self.part_as_reduction(s) for s in self.parts}
        for part in reductions.values():
            kind = lowerings.triton_type(self.accumulator(part))
            found.append(f"{part.out.name}_all = tl.full([XBLOCK, RBLOCK], {self.identity(part)}, {kind})")
        found.append(self.loop("x_start", "begin", "end", "XBLOCK"))
        inner = [f"x = x_start + {self.range('X')}[:, None]", *(["x_mask = x < end"] if self.ragged_x else [])]
        for s in inside:
            inner += self.take_rows(reductions[id(s)]) if isinstance(s, Part) else self.statement(s)
        found += ["    " + line for line in inner]
        found += [line for part in reductions.values() for line in self.finish_rows(part)]
        mask = "r_mask" if self.ragged_r else ""
        for s, part in zip(self.parts, reductions.values(), strict=True):
            value = f"({part.out.name}_all != 0)" if part.out.dtype is bool_ else f"{part.out.name}_all"
            found.append(self.store_part(s, f"split * {self.r_size} + r", value, mask))
        return found

    def around_loop(self, inside: Callable[[Statement], bool]) -> tuple[list[Statement], list[Statement]]:
        """The statements before the loop and those in it; loads come before stores."""
        statements = stores_last(self.kernel.statements)
        return [s for s in statements if not inside(s)], [s for s in statements if inside(s)]

    def store_part(self, s: Part, address: str, value: str, mask: str) -> str:
        """Write a split's results to its row of the output."""
        value = f"{value}.to({lowerings.triton_type(self.dtypes[s.argument])})"
        return f"tl.store({s.argument} + ({address}), {value}{f', mask={mask}' if mask else ''})"

def _name(s: Statement) -> str:
    return "" if isinstance(s, END) else s.out.name
