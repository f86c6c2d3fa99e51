"""Scans along one axis: sums, products, extremes, linear recurrences.

The tensor is seen as (outer, length, inner). A program takes a block of rows (outer × inner). A row that fits is
scanned in one piece; of a longer one the program walks along the axis with the state at the end as its carry. Where
rows are too few to fill a GPU, the passes split the axis into chunks with a program each (`split_scans`), and a chunk
begins with the state that the one before ends with. The order of the additions is fixed by the sizes alone.

A state is one number or two (`Scan`), and two states combine as two stretches of a row do.
"""

from __future__ import annotations

import re
from typing import Final

from genesis.codegen.cuda.column_blocks import stages_with_room
from genesis.codegen.cuda.gpu_model import H200, GpuModel
from genesis.codegen.cuda.kernel_ir import Load
from genesis.codegen.cuda.lowerings import held, triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates import shifted_scans, sort_helpers
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.rows import Rows, result
from genesis.codegen.cuda.templates.scan_blocks import (
    alone,
    blocks_of,
    in_vectors,
    shifted_by,
    stretches_beside,
)
from genesis.codegen.cuda.templates.scan_kinds import HELPERS, SCANS, Scan
from genesis.codegen.cuda.templates.scanned_rows import Stretches, load_lines, store_lines, stretches_of
from genesis.codegen.cuda.templates.shifted_scans import kept_lines
from genesis.ir.node import Node
from genesis.ir.types import DType, bool_, int32
from genesis.passes.groups import Group

SHIFTED_REGISTERS: Final = 128
"""Registers of a thread that goes along shifted rows: two programs of 8 warps are on a multiprocessor then. Unbounded
it takes up to 160, for one."""


def emit_scan(group: Group, gpu: GpuModel = H200) -> KernelSource:
    """The kernel of a scan group."""
    node = next(n for n in group.nodes if n.op.kind == "scan")
    return _Emitter(group, node, gpu).source()


class _Emitter:
    """One scan's kernel.

    Attributes:
        chunk: elements of a chunk, 0 where a program scans whole rows.
        loops: whether the program loops along the axis, and in how many pipeline `stages`.
        ahead: whether what a round scans waits in registers from the round before on.
        across: how threads share short rows at odd places that go through shared memory (`scanned_rows.py`), or None.
        shifted: elements of a vector, where rows begin at no multiple of one: blocks begin with the vector that the
            row's first element lies in (`row_edges.py`). Else 0.
        columns: whether neighbours in memory belong to different rows. Then a block is read in the order in which it
            is scanned, so that a scan from the end is one from the start.
        alone: whether a thread has elements of one column alone, or all of a vector of short ones: so many more of the
            column, and fewer combinations with other threads' states.
        stretches: of columns, how many threads share a row of the block: each has a stretch of neighbours.
        types, nothing: dtype, and value of no element, of each number of the state.
    """

    def __init__(self, group: Group, node: Node, gpu: GpuModel):
        self.group, self.node, self.scan = group, node, SCANS[node.op.name]
        attributes = node.attributes
        self.chunk: int = attributes.get("chunk", 0)
        self.reverse: bool = attributes.get("reverse", False)
        operands = node.inputs[:-1] if self.chunk else node.inputs
        self.rows = Rows(group, operands, node["axis"])
        self.extent = self.chunk or self.rows.length
        self.parts = -(-self.rows.length // self.extent) if self.extent else 0
        self.types = _state_types(node, self.scan)
        stored = [x.dtype for i in range(len(self.scan.read)) if (x := result(group, i)) is not None]
        self.across = None if self.chunk else stretches_of(self.rows, stored, gpu)
        self.alone = alone(self.rows, self.types, self.scan.heavy, gpu)
        single = len(self.scan.read) == 1  # places of 64 bits beside have no vectors of as many elements
        plain = single and not self.chunk and not self.across
        self.shifted = shifted_by(self.rows, node.dtype.itemsize) if plain else 0
        self.blocks = blocks_of(self.rows, self.extent, self.types, bool(self.chunk), self.shifted, gpu,
                                self.scan.heavy)
        self.loops = self.extent > self.blocks.step
        self.ahead = self.loops and self.alone and bool(self.rows.loads())
        loads = [s for vars in ("xr", "r") for s in self.rows.kernel.loads(vars)]
        elements = self.blocks.x * self.blocks.step
        self.stages = stages_with_room(elements * sum(s.out.dtype.itemsize for s in loads), 1, gpu,
                                       elements * self.types[0].itemsize)  # states change threads there
        self.columns = self.rows.inner > 1
        self.stretches = stretches_beside(self.rows, self.blocks, self.alone)
        self.nothing = [text.format(**_bounds(self.types[0])) for text in self.scan.nothing]
        self.count = len(self.types)
        self.reads = self.scan.low if self.scan.low and self.node.dtype.itemsize == 2 else self.scan.read

    def source(self) -> KernelSource:
        """The finished kernel."""
        lines = self.lines()
        outputs = {name: memory for i, name in enumerate(_names(self.scan))
                   if (memory := result(self.group, i)) is not None}
        ends = {"ends": input_of(self.node.inputs[-1], self.group)} if self.chunk else {}
        name = f"{self.node.op.name}_{'rows' if self.rows.inner == 1 else 'columns'}"
        if self.across is not None:
            return self.rows.source(
                name, lines, outputs, {"XBLOCK": self.across.block, "RBLOCK": self.across.threads},
                -(-self.rows.rows // self.across.x), self.across.threads // 32, self.helpers("\n".join(lines)))
        return self.rows.source(
            name, lines, outputs,
            {"XBLOCK": self.blocks.x, "RBLOCK": self.blocks.step}, -(-self.rows.rows // self.blocks.x) * self.parts,
            self.blocks.warps, self.helpers("\n".join(lines)),
            {"parts": self.parts} if self.chunk else None, ends,
            registers=SHIFTED_REGISTERS if self.shifted and self.loops and self.blocks.warps >= 8 else 0)

    def helpers(self, text: str) -> str:
        """The functions that the lines use."""
        found = "".join(code + "\n" for name, code in HELPERS.items() if name in text)
        found += sort_helpers.helpers(["g_unknown(x)"]) if "g_unknown(x)" in text else ""
        return found + self.with_rest() if "g_with_rest" in text else found

    def lines(self) -> list[str]:
        """The kernel's statements."""
        if self.across is not None:
            return [*load_lines(self.rows, self.across, self.reverse), *self.lifted(),
                    *self.by_threads(self.across), *self.stores()]
        rows, program = self.rows, "tl.program_id(0)"
        first = ["part = tl.program_id(0) % parts"] if self.chunk else []
        first += rows.x_lines(f"{program} // parts" if self.chunk else program)
        if self.alone and not in_vectors(rows, self.blocks):
            first.append("x = g_unknown(x)")  # of a run Triton would give a thread several neighbours
        if self.loops or self.chunk:
            first += [f"carry{i} = tl.full([XBLOCK, 1], {self.nothing[i]}, {triton_type(self.types[i])})"
                      for i in range(self.count)]
        if self.chunk:
            first += self.entry()
        first += shifted_scans.start_lines(rows, self.shifted) if self.shifted else []
        body = self.block_lines()
        body += (self.loaded_before() if self.ahead else shifted_scans.load_lines(rows, self.loops) if self.shifted
                 else rows.operand_lines())
        body += [*self.lifted(), *self.scanned()]
        if self.loops or self.chunk:
            body += self.carried_in()
        if self.loops:
            body += self.carried_out()
        body += self.stores()
        if not self.loops:
            return first + body
        steps = -(-(self.extent + max(self.shifted - 1, 0)) // self.blocks.step)
        turned = f"({steps - 1} - step) * RBLOCK" if self.reverse else "step * RBLOCK"
        body.insert(0, f"begin = {turned}")
        if self.ahead:
            first += [f"begin = {turned.replace('step', '0')}", *self.loads_of_round()]
            after = turned.replace("step", "(step + 1)")
            held_now = [f"{name}_held = {name}_next" for name, _, _ in rows.loads()]
            body = [*held_now, f"begin = {after}", *self.loads_of_round(), *body]
        stages = "" if self.ahead else f", num_stages={self.stages}"
        return [*first, f"for step in tl.range(0, {steps}{stages}):", *(f"    {line}" for line in body)]

    def block_lines(self) -> list[str]:
        """The elements of a block, which a loop has at `begin`."""
        begin = "begin" if self.loops else "0"
        if self.chunk:
            begin = f"part * {self.extent}{' + begin' if self.loops else ''}"
        if self.shifted:
            return shifted_scans.near_lines(self.rows, self.shifted, "begin + " if self.loops else "", self.reverse)
        whole = 0 if self.chunk or self.loops else self.blocks.step
        lines = self.column_lines(begin) if self.columns else self.rows.r_lines(begin, whole)
        chunk = [f"r_mask = r_mask & (r < part * {self.extent} + {self.extent})"] if self.chunk else []
        return [*lines, *chunk]

    def loads_of_round(self) -> list[str]:
        """The loads of the block at `begin`, of which a round behind the last has no element."""
        least = f"part * {self.extent}" if self.chunk else "0"
        inside = [f"r_mask = r_mask & (r >= {least})"] if self.reverse else []
        return [*self.block_lines(), *inside, *(f"{name}_next = {load}" for name, load, _ in self.rows.loads())]

    def loaded_before(self) -> list[str]:
        """The operands' values, of what the round before has loaded."""
        waiting = {name: f"{name} = {name}_held{upcast}" for name, _, upcast in self.rows.loads()}
        return [line for s in self.rows.kernel.statements for line in (
            [waiting[s.out.name]] if isinstance(s, Load) and s.out.name in waiting else self.rows.body.statement(s))]

    def column_lines(self, begin: str) -> list[str]:
        """The elements of a block of columns, stretch by stretch, in the order of the scan."""
        each = self.blocks.step // self.stretches
        place = f"tl.arange(0, {self.stretches})[None, :] * {each} + tl.arange(0, {each})[:, None]"
        near = f"RBLOCK - 1 - ({place})" if self.reverse else place
        return [f"r = {begin} + tl.reshape({near}, [1, RBLOCK]){self.rows.integer}", f"r_mask = r < {self.rows.size}"]

    def entry(self) -> list[str]:
        """The carry that a chunk begins with: the state at the end of the one before. Where that has more to do with an
        operand than its end says, the operand's element there is loaded, too."""
        inner, edge = self.rows.inner, "parts - 1" if self.reverse else "0"
        place = f"(part + 1) * {self.extent}" if self.reverse else f"part * {self.extent} - 1"
        there = [f"r = tl.zeros([1, 1], tl.int32){self.rows.integer} + {place}",
                 f"r_mask = (begins == 0) & (r >= 0) & (r < {self.rows.size})", *self.rows.operand_lines()]
        names = {"r", "r_mask", *(line.partition(" = ")[0] for line in there)}
        apart = re.compile(rf"\b({'|'.join(sorted(names))})\b")  # a loop behind it has others of these names
        values = ["entry", *(apart.sub(r"\1_before", name) for name in self.rows.names[1:])]
        return [f"begins = part == {edge}",
                f"before = x // {inner} * parts + part {'+' if self.reverse else '-'} 1",
                f"entry = tl.load(ends + (before * {inner} + x % {inner}), mask=x_mask & (begins == 0), other=0)",
                "entry = entry.to(carry0.dtype)",
                *([apart.sub(r"\1_before", line) for line in there] if len(values) > 1 else []),
                *(f"carry{i} = tl.where(begins, carry{i}, {text.format(*values)})"
                  for i, text in enumerate(self.scan.lift))]

    def all(self, name: str) -> str:
        """Each number of a state."""
        return ", ".join(f"{name}{i}" for i in range(self.count))

    def lifted(self) -> list[str]:
        """The states of a block's elements."""
        lines = []
        for i, (text, dtype) in enumerate(zip(self.scan.lift, self.types, strict=True)):
            value = text.format(*self.rows.names, at="tl.broadcast_to(r, [XBLOCK, RBLOCK])")
            none = f"tl.full((), {self.nothing[i]}, {triton_type(dtype)})"
            lines.append(f"state{i} = ({value}).to({triton_type(dtype)})")
            kept = f"state{i} = tl.where({'kept' if self.shifted else 'r_mask'}, state{i}, {none})"
            lines += kept_lines(kept, self.loops, self.reverse) if self.shifted else [kept]
        return lines

    def call(self, name: str, axis: int, forward: bool = False) -> str:
        """A scan of states along an axis of their block."""
        states = f"({self.all(name)})" if self.count > 1 else f"{name}0"
        turned = ", reverse=True" if self.reverse and not forward and not self.columns else ""
        return f"{self.all(name)} = tl.associative_scan({states}, {axis}, {self.scan.combine}{turned})"

    def scanned(self) -> list[str]:
        """The states of all that came before an element in the block, and of itself.

        Triton turns a block around to scan it from the end, five times between threads for each element. So what a
        thread has of a row is turned and scanned first, which costs nothing; then the threads' states, without their
        own.
        """
        vector = self.shifted or self.rows.vector
        if self.columns:
            return self.by_stretches(self.stretches, self.blocks.step // self.stretches, 1)
        if self.reverse and vector > 1 and self.blocks.step > vector:
            return self.by_stretches(self.blocks.step // vector, vector, 2)
        return [self.call("state", 1)]

    def by_stretches(self, stretches: int, each: int, axis: int) -> list[str]:
        """What a thread has of a row, along `axis` of a block of three dimensions; then the threads' states."""
        states, place = range(self.count), "[None, :, None]" if axis == 1 else "[None, None, :]"
        shape = f"[XBLOCK, {each}, {stretches}]" if axis == 1 else f"[XBLOCK, {stretches}, {each}]"
        turn = ("tl.flip(", ", 2)") if axis == 2 else ("", "")
        spread = "[:, None, :]" if axis == 1 else "[:, :, None]"
        pair = self.all("whole") + ", " + self.all("later")
        spread_states = ", ".join(f"tl.broadcast_to(later{i}{spread}, {shape})" for i in states)
        turned = ", reverse=True" if axis == 2 else ""
        back = [f"state{i} = tl.reshape({turn[0]}state{i}{turn[1]}, [XBLOCK, RBLOCK])" for i in states]
        lines = [*(f"state{i} = {turn[0]}tl.reshape(state{i}, {shape}){turn[1]}" for i in states),
                 self.call("state", axis, forward=True)]
        if stretches == 1 and not self.loops and not self.chunk:  # a thread has whole columns
            return lines + back
        return [
            *lines, f"last = (tl.arange(0, {each}) == {each - 1}){place}",
            *(f"whole{i} = tl.sum(tl.where(last, state{i}, 0), {axis}).to(state{i}.dtype)" for i in states),
            *(f"later{i} = tl.full([XBLOCK, {stretches}], {self.nothing[i]}, {triton_type(self.types[i])})"
              for i in states),
            f"{pair} = tl.associative_scan(({pair}), 1, g_with_rest{turned})",
            f"{self.all('state')} = {self.scan.combine}({spread_states}, {self.all('state')})", *back]

    def by_threads(self, found: Stretches) -> list[str]:
        """What a thread has of a row, then the states of the threads before it."""
        states, pair = range(self.count), f"{self.all('whole')}, {self.all('later')}"
        lines = [self.call("state", 0, forward=True)]
        if found.beside == 1:
            return lines
        return [
            *lines, f"last = tl.arange(0, XBLOCK)[:, None] == {found.each - 1}",
            *(f"whole{i} = tl.reshape(tl.sum(tl.where(last, state{i}, 0), 0).to(state{i}.dtype), "
              f"[{found.x}, {found.beside}])" for i in states),
            *(f"later{i} = tl.full([{found.x}, {found.beside}], {self.nothing[i]}, {triton_type(self.types[i])})"
              for i in states),
            f"{pair} = tl.associative_scan(({pair}), 1, g_with_rest)",
            f"{self.all('state')} = {self.scan.combine}("
            + ", ".join(f"tl.broadcast_to(tl.reshape(later{i}, [1, RBLOCK]), [XBLOCK, RBLOCK])" for i in states)
            + f", {self.all('state')})"]

    def with_rest(self) -> str:
        """A combination that also has the state without the last element: (all, all but the last)."""
        a, p, b, q = (", ".join(f"{name}{i}" for i in range(self.count)) for name in "apbq")
        return f'''
@triton.jit
def g_with_rest({a}, {p}, {b}, {q}):
    """Stretches one after another: the state of both, and without the last element of the second."""
    {self.all("whole")} = {self.scan.combine}({a}, {b})
    {self.all("rest")} = {self.scan.combine}({a}, {q})
    return {self.all("whole")}, {self.all("rest")}
'''

    def carried_in(self) -> list[str]:
        """What came before the block."""
        spread_states = ", ".join(f"tl.broadcast_to(carry{i}, [XBLOCK, RBLOCK])" for i in range(self.count))
        return [f"{self.all('state')} = {self.scan.combine}({spread_states}, {self.all('state')})"]

    def carried_out(self) -> list[str]:
        """The state at the end of the block."""
        if self.columns:  # that of the stretches, and what came before
            ends = [f"tl.sum(tl.where(end, whole{i}, 0), 1, keep_dims=True).to(carry{i}.dtype)"
                    for i in range(self.count)]
            return [f"end = tl.arange(0, {self.stretches})[None, :] == {self.stretches - 1}",
                    f"{self.all('carry')} = {self.scan.combine}({self.all('carry')}, {', '.join(ends)})"]
        return [f"last = tl.arange(0, RBLOCK)[None, :] == {'0' if self.reverse else 'RBLOCK - 1'}",
                *(f"carry{i} = tl.sum(tl.where(last, state{i}, 0), 1, keep_dims=True).to(state{i}.dtype)"
                  for i in range(self.count))]

    def stores(self) -> list[str]:
        """Write the results."""
        lines = []
        for i, (name, read) in enumerate(zip(_names(self.scan), self.reads, strict=True)):
            memory = result(self.group, i)
            if memory is not None:
                value = f"({read.format('state0', 'state1' if self.count > 1 else '', *self.rows.names)})"
                value += " != 0" if memory.dtype is bool_ else f".to({triton_type(memory.dtype)})"
                if self.across is not None:
                    lines += store_lines(self.across, name, value, memory.dtype)
                    continue
                if self.shifted:
                    lines += shifted_scans.store_lines(name, value, self.loops)
                    continue
                place = self.rows.address(dtype=memory.dtype)
                lines.append(f"tl.store({name} + {place}, {value}, mask=x_mask & r_mask)")
        return lines


def _state_types(node: Node, scan: Scan) -> list[DType]:
    """Dtypes of the state's numbers: of at least 32 bits."""
    dtype = held(node.inputs[0].dtype)
    number = int32 if dtype.itemsize < 4 else dtype
    return [number, int32][:len(scan.lift)] if scan.combine.startswith("g_later") else [number] * len(scan.lift)


def _bounds(dtype: DType) -> dict[str, str]:
    if dtype.kind != "float":
        return {"low": str(dtype.min), "high": str(dtype.max)}
    return {"low": '-float("inf")', "high": 'float("inf")', "least": repr(dtype.min)}


def _names(scan: Scan) -> list[str]:
    return ["out"] if len(scan.read) == 1 else ["values", "indices"]
