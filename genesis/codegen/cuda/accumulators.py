"""What a reduction keeps while a loop goes over its elements: how that begins, takes a block, and becomes a result.

Mostly it is a value for each lane of a block. The index of the largest has a place beside it; sums of exponentials have
a running maximum, and sums of squared distances a running mean, where `online_reductions` found two reductions that
share a loop.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from genesis.codegen.cuda import lowerings
from genesis.codegen.cuda.block_sizes import Blocks
from genesis.codegen.cuda.blocks import in_rows_of_vectors
from genesis.codegen.cuda.column_blocks import turned
from genesis.codegen.cuda.emitter import BIG, REDUCED_AS, Body
from genesis.codegen.cuda.kernel_ir import Kernel, Part, Reduce, Value
from genesis.codegen.cuda.masked_lanes import largest_beside_places
from genesis.codegen.cuda.online_reductions import (
    beside_spreads,
    sums_of_exponentials,
    sums_of_squares,
    with_early_sums,
)
from genesis.codegen.cuda.row_edges import vector_of_rows

LANES, FEWEST_LANES = 8, 4
"""The most and the fewest elements of a row that share a running maximum: as many as a thread loads at once, or has.
Of columns every lane has its own: neighbours along r are in other threads; and so of rows not read in vectors."""


class Accumulators(Body):
    """A kernel's statements, with those of its reductions as a loop has them.

    Attributes:
        online: sum of exponentials → the reduction to the largest that shares its loop.
        squares: sum of squared distances → the sum that shares its loop.
        comoments: sum of values times distances from a mean → the sum of the squares of these.
        placed: place of the largest element → the reduction to the largest, which is known when its place is.
        exponentials: as `online`, of all loops.
        with_others: the names of what comes out of another reduction's accumulators.
        lanes: elements of a row that share a running maximum.
    """

    def __init__(self, kernel: Kernel, blocks: Blocks, index64: bool):
        read_again = blocks.looped and not blocks.kept_bytes and kernel.splits is None
        kernel, self.comoments = with_early_sums(kernel) if read_again else (kernel, {})
        super().__init__(kernel, blocks, index64)
        self.exponentials = sums_of_exponentials(kernel.statements)
        self.online = dict(self.exponentials) if read_again else {}
        self.squares = sums_of_squares(kernel.statements, kernel.r_size) if read_again else {}
        parts = [self.part_as_reduction(s) for s in kernel.statements if isinstance(s, Part)]
        self.squares |= beside_spreads(parts, "squares", "sum")
        self.online |= beside_spreads(parts, "exponentials", "max")
        loops = [s for s in kernel.statements if isinstance(s, Reduce)] if blocks.looped and not kernel.splits else []
        self.placed = largest_beside_places(loops)
        self.with_others = {s.out.name for s in (*self.online.values(), *self.squares.values(), *self.placed.values())}
        self.vector = 0 if self.squares else vector_of_rows(kernel, blocks)
        of_rows = bool(kernel.space) and kernel.space[-1][1] == "r" and not kernel.r_leads
        in_vectors = of_rows and in_rows_of_vectors(kernel) and not turned(kernel)
        each = max(blocks.x * blocks.r // (32 * blocks.num_warps), FEWEST_LANES)
        self.lanes = min(LANES, each) if self.vector or in_vectors else 1

    def part_as_reduction(self, s: Part) -> Reduce:
        """The partial reduction as one over the elements that a program has."""
        dtype = next(a.node.dtype for a in self.kernel.arguments if a.name == s.argument)
        return Reduce(Value(f"{s.argument}_part", dtype, "x", 0), s.op, s.operand)

    def take_rows(self, s: Reduce) -> list[str]:
        """Take a block of rows into the accumulators, of which each of its elements has one: a sum of its columns in
        each round would go through shared memory, as warps have rows of their own."""
        value = self.reduced_operand(s, "x_mask" if self.ragged_x else "")
        return [f"{s.out.name}_all = {lowerings.REDUCE_COMBINE[REDUCED_AS[s.op]].format(f'{s.out.name}_all', value)}"]

    def finish_rows(self, s: Reduce) -> list[str]:
        """The lines that make one value a column of the accumulators."""
        columns = lowerings.REDUCE_FINISH[REDUCED_AS[s.op]].format(f"{s.out.name}_all", 0)
        return [f"{s.out.name}_all = {columns}"]

    def shares(self, reductions: Iterable[Reduce], done: str) -> list[str]:
        """Which part of a lane's elements so far a round of the loop brings: one over the number of rounds."""
        kinds = {lowerings.triton_type(self.accumulator(s)) for s in reductions if s.out.name in self.squares}
        return [f"share_{kind[3:]} = tl.full((), 1.0, {kind}) / (({done}) // RBLOCK + 1)" for kind in sorted(kinds)]

    def start(self, s: Reduce) -> list[str]:
        """The accumulators of a reduction, before its loop."""
        name, dtype = s.out.name, self.accumulator(s)
        kind = lowerings.triton_type(dtype)
        if name in self.with_others:
            return []
        if name in self.squares or name in self.comoments:
            parts = ("mean", "all") if name in self.squares else ("beside", "all")
            return [f"{name}_{part} = tl.full([XBLOCK, RBLOCK], 0.0, {kind})" for part in parts]
        if name in self.online:
            shape = "[XBLOCK, RBLOCK]" if self.lanes == 1 else f"[XBLOCK, RBLOCK // {self.lanes}]"
            return [f'{name}_top = tl.full({shape}, -float("inf"), {kind})',
                    f"{name}_all = tl.full({shape}, 0.0, {kind})"]
        found = [f"{name}_all = tl.full([XBLOCK, RBLOCK], {self.identity(s)}, {kind})"]
        if s.position is not None:
            found.append(f"{name}_at = tl.full([XBLOCK, RBLOCK], {BIG[self.index_type]}, "
                         f"{lowerings.triton_type(self.index_type)})")
        return found

    def accumulate(self, s: Reduce) -> list[str]:
        """Take one block of the loop into the accumulators."""
        name = s.out.name
        if name in self.with_others:
            return []
        if name in self.squares:
            names = f"{name}_mean, {name}_all"
            value = self.reduced_operand(self.squares[name])
            share = f"share_{lowerings.triton_type(self.accumulator(s))[3:]}"
            before = [f"{name}_before = {name}_mean"] if name in self.comoments.values() else []
            return [*before, f"{names} = g_welford({names}, {share}, {value}, {'r_mask' if self.ragged_r else 'True'})"]
        if name in self.comoments:
            around, value = self.comoments[name], f"{name}_new"
            off = self.use(self.squares[around].operand, self.squares[around].operand.dtype)
            taken = self.reduced_operand(replace(s, op="sum"))
            return [f"{value} = {taken}", f"{name}_beside = {name}_beside + {value}",
                    f"{name}_all = {name}_all + (({around}_before - {around}_mean) * {name}_beside"
                    f" + {value} * ({off} - {around}_before))"]
        if name in self.online:
            value = self.reduced_operand(self.online[name])
            names, cheap = f"{name}_top, {name}_all", self.cheap(s)
            if self.lanes == 1:
                return [f"{names} = g_online_each({names}, {value}, {cheap})"]
            return [f"{names} = g_online({names}, {value}, {self.lanes}, {cheap})"]
        found = [f"{name}_new = {self.reduced_operand(s)}"]
        if s.position is None:
            combine = lowerings.REDUCE_COMBINE[REDUCED_AS[s.op]].format(f"{name}_all", f"{name}_new")
            return [*found, f"{name}_all = {combine}"]
        sign = ">" if s.op == "argmax" else "<"
        better = (f"({name}_new {sign} {name}_all) | (({name}_new != {name}_new) & ({name}_all == {name}_all))"
                  f" | ({name}_at == {BIG[self.index_type]})")
        found.append(f"{name}_better = {f'({better}) & r_mask' if self.ragged_r else better}")
        found.append(f"{name}_all = tl.where({name}_better, {name}_new, {name}_all)")
        found.append(f"{name}_at = tl.where({name}_better, {self.at(s.position, self.vars_of(s.position))}, {name}_at)")
        return found

    def cheap(self, s: Reduce) -> bool:
        """Whether cheap exponentials are good enough for this sum."""
        return s.out.name in self.rounded or self.averages_out(s)

    def averages_out(self, s: Reduce) -> bool:
        """Whether it sums exponentials of 16-bit values in memory: the errors of cheap exponentials are far below those
        of such values, and average out in the sum."""
        largest = self.exponentials.get(s.out.name)
        return largest is not None and largest.operand.name in self.casts and (
            self.casts[largest.operand.name].dtype.itemsize == 2)

    def finish(self, s: Reduce) -> list[str]:
        """The lines that make one value a row of the accumulators."""
        name = s.out.name
        if s.position is not None:
            extreme = self.placed.get(name)
            beside = [] if extreme is None else [f"{extreme.out.name} = {name}_best"]
            return [*self.first_hit(s, f"{name}_all", f"{name}_at", ""), *beside]
        if name in self.with_others:
            return []
        if name in self.squares:
            size = self.r_size if self.kernel.splits is None else "tl.maximum(end - begin, 0)"
            return [f"{self.squares[name].out.name}, {name} = g_together({name}_mean, {name}_all, {size}, RBLOCK)"]
        if name in self.comoments:
            around = self.comoments[name]
            size = f"tl.full((), {self.r_size}, tl.float32)"
            mean = f"tl.math.div_rn({self.squares[around].out.name}, {size})"
            return [f"{name} = tl.sum({name}_all + ({around}_mean - {mean}) * {name}_beside, 1, keep_dims=True)"]
        if name in self.online:
            largest = around = self.online[name].out.name
            if s.op == "exponentials":
                around = f'tl.where(tl.abs({largest}) == float("inf"), 0.0, {largest})'
            return [f"{largest} = g_row_max({name}_top, 1)",
                    f"{name} = tl.sum({name}_all * g_exp({name}_top - {around}, {self.cheap(s)}), 1, keep_dims=True)"]
        return [f"{name} = {self.finished(s, f'{name}_all')}"]
