"""Scans along one axis: sums, products, extremes, linear recurrences.

The tensor is seen as (outer, length, inner). A program takes a block of rows (outer × inner). A row that fits is
scanned in one piece; of a longer one the program walks along the axis with the state at the end as its carry. Where
rows are too few to fill a GPU, the passes split the axis into chunks with a program each (`split_scans`), and a chunk
begins with the state that the one before ends with. The order of the additions is fixed by the sizes alone.

A state is one number or two (`Scan`), and two states combine as two stretches of a row do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from genesis.codegen.cuda.block_sizes import batch_block, power_of_two
from genesis.codegen.cuda.column_blocks import SHORT_COLUMNS, stages_with_room
from genesis.codegen.cuda.gpu_model import H200, GpuModel
from genesis.codegen.cuda.kernel_ir import Load
from genesis.codegen.cuda.lowerings import held, triton_type
from genesis.codegen.cuda.row_edges import plain
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates import sort_helpers
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.rows import Rows, result
from genesis.codegen.cuda.templates.scanned_rows import Stretches, load_lines, store_lines, stretches_of
from genesis.ir.node import Node
from genesis.ir.size_divisors import is_multiple, twos
from genesis.ir.sym_int import as_written, hint
from genesis.ir.types import DType, bool_, int32
from genesis.passes.graph.split_scans import COLUMNS
from genesis.passes.groups import Group


@dataclass(frozen=True)
class Scan:
    """One kind of scan, as text.

    Attributes:
        lift: the state of one element, from the operands {0} and {1}; {at} is its place in the row.
        nothing: the state of no element. {low} and {high} are the dtype's bounds, {least} its least finite number.
        combine: the helper that joins the state of a stretch with that of the next one.
        read: the results, from the state {0}, {1} and the operands {2}, {3}, {4}.
        low: the same where results have 16 bits; () where there is no cheaper form.
        heavy: whether to combine two states costs more than to load an element alone.
    """

    lift: tuple[str, ...]
    nothing: tuple[str, ...]
    combine: str
    read: tuple[str, ...] = ("{0}",)
    low: tuple[str, ...] = ()
    heavy: bool = False


SCANS: Final[dict[str, Scan]] = {
    "cumsum": Scan(("{0}",), ("0",), "g_add"),
    "cumprod": Scan(("{0}",), ("1",), "g_product"),
    "cummax": Scan(("{0}", "{at}"), ("{low}", "0"), "g_later_max", ("{0}", "{1}")),
    "cummin": Scan(("{0}", "{at}"), ("{high}", "0"), "g_later_min", ("{0}", "{1}")),
    "recurrence": Scan(("{0}", "{1}"), ("1", "0"), "g_recur", ("{1}",)),
    "logcumsumexp": Scan(("g_finite({0})", "g_unit({0})"), ("{least}", "0"), "g_exp_sum",
                         ("{0} + libdevice.log({1})",), ("{0} + g_low_log({1})",), heavy=True),
    "logcumsumexp_backward": Scan(("g_finite(-({2}))", "g_weight({0}, {2})"), ("{least}", "0"), "g_exp_sum",
                                  ("{1} * libdevice.exp({3} + {0})",), ("{1} * g_low_exp({3} + {0})",), heavy=True),
}

HELPERS: Final = {
    "g_later_max": '''
@triton.jit
def g_later_max(a, i, b, j):
    """The larger of two and where it is; the later of equal ones, and NaN before all."""
    later = (b >= a) | (b != b)
    return tl.where(later, b, a), tl.where(later, j, i)
''',
    "g_later_min": '''
@triton.jit
def g_later_min(a, i, b, j):
    """The smaller of two and where it is; the later of equal ones, and NaN before all."""
    later = (b <= a) | (b != b)
    return tl.where(later, b, a), tl.where(later, j, i)
''',
    "g_recur": '''
@triton.jit
def g_recur(a, x, b, y):
    """The steps v → a·v + x, then v → b·v + y, as one. After b = 0 it does not matter what came before."""
    return a * b, tl.where(b == 0, y, b * x + y)
''',
    "g_finite": '''
@triton.jit
def g_finite(x):
    """The nearest finite number; of NaN the least."""
    if x.dtype == tl.float64:
        return tl.minimum(tl.maximum(x, -1.7976931348623157e308), 1.7976931348623157e308)
    else:
        return tl.minimum(tl.maximum(x, -3.4028234663852886e38), 3.4028234663852886e38)
''',
    "g_exp_sum": '''
@triton.jit
def g_exp_sum(a, s, b, t):
    """Σ exp as exp(a)·s, the largest exponent taken out (Milakov and Gimelshein 2018)."""
    if a.dtype == tl.float64:
        less = libdevice.exp(-tl.abs(a - b))
    else:  # at most 1 and exact at 0: what a cheap form is off counts less, the further a and b are apart
        less = g_low_exp2(tl.abs(a - b) * -1.4426950408889634)
    first = a > b
    return tl.where(first, a, b), tl.where(first, s, t) + tl.where(first, t, s) * less
''',
    "g_unit": '''
@triton.jit
def g_unit(x):
    """exp(x - g_finite(x))."""
    return tl.where(x == float("-inf"), 0.0, tl.where(x - x == 0, 1.0, x))
''',
    "g_weight": '''
@triton.jit
def g_weight(g, y):
    """What g counts for where the logarithm of a sum is y: nothing where the sum is infinite, NaN where it is 0."""
    return tl.where(y == float("inf"), 0.0, tl.where(y - y == 0, g, float("nan")))
''',
}

PERSISTENT: Final = 8192
"""Maximum elements of a row that is scanned in one piece; half as many where the state is two numbers."""

STEP: Final = 4096
"""Elements of a longer row that are scanned at a time."""

TILE: Final = 8192
"""Elements of a block of columns that are scanned at a time."""

AHEAD_TILE: Final = 4096
"""The same where what is scanned next waits in registers, for states of one number."""

AHEAD_EACH: Final = 16
"""Elements of a thread there (H200, kernels alone: cumsum of bfloat16[100, 3000, 51] along its second axis, 160
programs of 8192 elements that waited for memory in each of 12 rounds, 155 µs; 54 so)."""

COPIED: Final = 8
"""Bytes of neighbours from which on they are copied to shared memory ahead of their use. Two bytes cannot be; of four
Triton knows no vector, and lays them out so that lanes meet in one bank (H200: cumsum of float32[200, 1500, 63] along
its second axis 203 µs, torch.compile 90)."""

ALONE_EACH, ALONE_WARPS = 16, 8
"""Elements of a thread that has them of one column, twice as many where that is all of it, and most warps that share
columns."""

SMALLEST: Final = 2048
"""Elements of a block of short columns below which it takes those of neighbouring outer indices, too (H200: cumsum of
7,600 times 23 × 8 bfloat16 10.2 µs in as many programs, torch.compile 5.5)."""

SHORTEST: Final = 16
"""The block of a class of the shortest rows."""

MOST_EACH, LEAST_EACH = 32, 4
"""Elements of a thread of a block of rows, where rows are many, and down to which it has fewer where they are few: a
warp alone takes thousands of cycles for 32 of each of its threads (H200: logcumsumexp of float32[3279, 32] 6.2 µs in
103 programs of one warp). Half as many where a state is two numbers."""

BUSY_WARPS: Final = 16
"""Warps of a multiprocessor that keep it busy."""

LEAST_IN_VECTOR, MOST_IN_VECTOR = 4, 8
"""Elements of a vector that are worth it to begin blocks of rows with one: of two there is little to gain."""

SHORTEST_SHIFTED: Final = 32
"""Minimum elements of rows whose blocks begin with a vector."""

MANY: Final = 1 << 18
"""Elements of blocks of short rows from which on a plan for each length is worth it: of 3 of 16 lanes of a class (H200:
cummax over 3 of 631,488 float16 14.7 µs, torch 10.6)."""

PROGRAMS: Final = 512
"""Minimum programs that are left where one takes the short columns of neighbouring outer indices, too."""


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
        alone: whether a thread has elements of one column alone: so many more of the column, and fewer combinations
            with other threads' states.
        stretches: of columns, how many threads share a row of the block: each has a stretch of neighbours.
        types, nothing: dtype, and value of no element, of each number of the state.
    """

    def __init__(self, group: Group, node: Node, gpu: GpuModel):
        self.group, self.node, self.scan = group, node, SCANS[node.op.name]
        attributes = node.attributes
        self.chunk: int = attributes.get("chunk", 0)
        self.reverse: bool = attributes.get("reverse", False)
        self.rows = Rows(group, node.inputs[:1] if self.chunk else node.inputs, node["axis"])
        self.extent = self.chunk or self.rows.length
        self.parts = -(-self.rows.length // self.extent) if self.extent else 0
        self.types = _state_types(node, self.scan)
        stored = [x.dtype for i in range(len(self.scan.read)) if (x := result(group, i)) is not None]
        self.across = None if self.chunk else stretches_of(self.rows, stored, gpu)
        self.alone = self.scan.heavy and self.rows.inner > 1 and self.types[0].itemsize == 4
        self.shifted = 0 if self.chunk or self.across is not None else _shifted(self.rows, _value_bytes(node))
        self.blocks = _blocks(self.rows, self.extent + max(self.shifted - 1, 0), self.types, bool(self.chunk),
                              self.shifted or self.rows.vector, gpu, self.alone)
        self.loops = self.extent > self.blocks.step
        self.ahead = self.loops and not self.chunk and (self.alone or _come_one_by_one(self.rows))
        self.ahead = self.ahead and _are_loads(self.rows)
        loads = [s for vars in ("xr", "r") for s in self.rows.kernel.loads(vars)]
        elements = self.blocks.x * self.blocks.step
        self.stages = stages_with_room(elements * sum(s.out.dtype.itemsize for s in loads), 1, gpu,
                                       elements * self.types[0].itemsize)  # states change threads there
        self.columns = self.rows.inner > 1
        self.stretches = _stretches(self.rows, self.blocks, self.alone)
        self.nothing = [text.format(**_bounds(self.types[0])) for text in self.scan.nothing]
        self.count = len(self.types)
        self.reads = self.scan.low if self.scan.low and self.node.dtype.itemsize == 2 else self.scan.read

    def source(self) -> KernelSource:
        """The finished kernel."""
        lines = self.lines()
        outputs = {name: memory for i, name in enumerate(_names(self.scan))
                   if (memory := result(self.group, i)) is not None}
        ends = {"ends": input_of(self.node.inputs[1], self.group)} if self.chunk else {}
        name = f"{self.node.op.name}_{'rows' if self.rows.inner == 1 else 'columns'}"
        if self.across is not None:
            return self.rows.source(
                name, lines, outputs, {"XBLOCK": self.across.block, "RBLOCK": self.across.threads},
                -(-self.rows.rows // self.across.x), self.across.threads // 32, self.helpers("\n".join(lines)))
        return self.rows.source(
            name, lines, outputs,
            {"XBLOCK": self.blocks.x, "RBLOCK": self.blocks.step}, -(-self.rows.rows // self.blocks.x) * self.parts,
            self.blocks.warps, self.helpers("\n".join(lines)),
            {"parts": self.parts} if self.chunk else None, ends)

    def helpers(self, text: str) -> str:
        """The functions that the lines use."""
        found = "".join(code + "\n" for name, code in HELPERS.items() if name in text)
        found += sort_helpers.helpers(["g_unknown(x)"]) if self.alone else ""
        return found + self.with_rest() if "g_with_rest" in text else found

    def lines(self) -> list[str]:
        """The kernel's statements."""
        if self.across is not None:
            return [*load_lines(self.rows, self.across, self.reverse), *self.lifted(),
                    *self.by_threads(self.across), *self.stores()]
        rows, program = self.rows, "tl.program_id(0)"
        first = ["part = tl.program_id(0) % parts"] if self.chunk else []
        first += rows.x_lines(f"{program} // parts" if self.chunk else program)
        first += ["x = g_unknown(x)"] if self.alone else []  # of a run Triton would give a thread several neighbours
        if self.loops or self.chunk:
            first += [f"carry{i} = tl.full([XBLOCK, 1], {self.nothing[i]}, {triton_type(self.types[i])})"
                      for i in range(self.count)]
        if self.chunk:
            first += self.entry()
        begin = f"part * {self.extent}{' + begin' if self.loops else ''}" if self.chunk else (
            "begin" if self.loops else "0")
        whole = 0 if self.chunk or self.loops else self.blocks.step
        if self.shifted:
            first += self.start_lines()
            body = self.near_lines("" if begin == "0" else f"{begin} + ")
        else:
            body = self.column_lines(begin) if self.columns else rows.r_lines(begin, whole)
        if self.chunk:
            body.append(f"r_mask = r_mask & (r < part * {self.extent} + {self.extent})")
        loaded = [f"{name} = {name}_held{upcast}" for name, _, upcast in rows.loads()]
        body += loaded if self.ahead else self.vector_loads() if self.shifted else rows.operand_lines()
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

    def loads_of_round(self) -> list[str]:
        """The loads of the block at `begin`, of which a round behind the last has no element."""
        inside = ["r_mask = r_mask & (r >= 0)"] if self.reverse else []
        return [*self.column_lines("begin"), *inside, *(f"{name}_next = {load}" for name, load, _ in self.rows.loads())]

    def column_lines(self, begin: str) -> list[str]:
        """The elements of a block of columns, stretch by stretch, in the order of the scan."""
        each = self.blocks.step // self.stretches
        place = f"tl.arange(0, {self.stretches})[None, :] * {each} + tl.arange(0, {each})[:, None]"
        near = f"RBLOCK - 1 - ({place})" if self.reverse else place
        return [f"r = {begin} + tl.reshape({near}, [1, RBLOCK]){self.rows.integer}", f"r_mask = r < {self.rows.size}"]

    def start_lines(self) -> list[str]:
        """Where each row begins, and the vector that it begins in."""
        vector = self.shifted
        return [f"row_start = x * {self.rows.size} // {vector} * {vector}",
                f"shift = x * {self.rows.size} - row_start"]

    def near_lines(self, begin: str) -> list[str]:
        """The elements of a block of shifted rows: `near` counts from the vector that a row begins in, `r` from its
        first element. `whole` are those of vectors that lie in the row, `edge` its others: of a block that is all of a
        row the text says where they can be."""
        vector, length = self.shifted, self.rows.size
        lines = [f"near = {begin}tl.arange(0, RBLOCK)[None, :]{self.rows.integer}", "r = near - shift",
                 f"near_vector = near // {vector} * {vector}",
                 f"inside = (near_vector + {vector} <= {length}) | (near_vector + {vector} <= {length} + shift)",
                 f"whole = x_mask & inside & ((near_vector >= {vector}) | (shift == 0))",
                 f"at_end = (near >= {length} - {vector}) & (near < {length} + shift) & (inside == 0)",
                 f"edge = x_mask & (((near < {vector}) & (near >= shift) & (shift > 0)) | at_end)",
                 f"kept = (near < {length}) | (near < {length} + shift)" if self.reverse else
                 f"kept = (near >= {vector}) | (near >= shift)"]
        if self.loops:
            lines += ["is_first = begin == 0", f"is_last = begin + RBLOCK > {length} - {vector}"]
        return lines

    def vector_loads(self) -> list[str]:
        """The operands' values. Vectors are loaded whole, with what they have of neighbouring rows: the operand's last
        one, of which something may lie behind its end, element by element, by the program that has it."""
        lines = [f"wanted = x_mask & (inside | ((x + 1 < x_size) & (near_vector < {self.rows.size} + shift)))",
                 "last_ones = at_end & (x + 1 == x_size)",
                 f"if {'is_last & ' if self.loops else ''}((tl.program_id(0) + 1) * XBLOCK >= x_size):"]
        lines, last, values = lines[:2], lines[2:], []
        kernel = self.rows.kernel
        moved = kernel.loads("xr")
        for s in kernel.statements:
            if not (isinstance(s, Load) and s in moved):
                values += self.rows.body.statement(s)
                continue
            place, name = f"{s.argument} + row_start + near", s.out.name
            lines.append(f"{name}_near = tl.load({place}, mask=wanted, other=0)")
            last.append(f"    {name}_near = tl.where(last_ones, tl.load({place}, mask=last_ones, other=0), "
                        f"{name}_near)")
            values.append(f"{name} = {name}_near.to({triton_type(held(s.out.dtype))})")
        return [*lines, *last, *values]

    def entry(self) -> list[str]:
        """The carry that a chunk begins with: the state at the end of the one before."""
        inner, edge = self.rows.inner, "parts - 1" if self.reverse else "0"
        return [f"begins = part == {edge}",
                f"before = x // {inner} * parts + part {'+' if self.reverse else '-'} 1",
                f"entry = tl.load(ends + (before * {inner} + x % {inner}), mask=x_mask & (begins == 0), other=0)",
                "entry = entry.to(carry0.dtype)",
                *(f"carry{i} = tl.where(begins, carry{i}, {text.format('entry')})"
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
            kept = f"state{i} = tl.where({'kept' if self.shifted else 'r_mask'}, state{i}, {none})"
            lines.append(f"state{i} = ({value}).to({triton_type(dtype)})")
            if self.shifted and self.loops:
                lines.append(f"if {'is_last' if self.reverse else 'is_first'}:")
                kept = f"    {kept}"
            lines.append(kept)
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
        return [
            *(f"state{i} = {turn[0]}tl.reshape(state{i}, {shape}){turn[1]}" for i in states),
            self.call("state", axis, forward=True),
            f"last = (tl.arange(0, {each}) == {each - 1}){place}",
            *(f"whole{i} = tl.sum(tl.where(last, state{i}, 0), {axis}).to(state{i}.dtype)" for i in states),
            *(f"later{i} = tl.full([XBLOCK, {stretches}], {self.nothing[i]}, {triton_type(self.types[i])})"
              for i in states),
            f"{pair} = tl.associative_scan(({pair}), 1, g_with_rest{turned})",
            f"{self.all('state')} = {self.scan.combine}({spread_states}, {self.all('state')})",
            *(f"state{i} = tl.reshape({turn[0]}state{i}{turn[1]}, [XBLOCK, RBLOCK])" for i in states),
        ]

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
                    at_edges = f"tl.store({name} + row_start + near, {name}_value, mask=edge)"
                    lines += [f"{name}_value = {value}",
                              f"tl.store({name} + row_start + near, {name}_value, mask=whole)",
                              *(["if is_first | is_last:", f"    {at_edges}"] if self.loops else [at_edges])]
                    continue
                place = self.rows.address(dtype=memory.dtype)
                lines.append(f"tl.store({name} + {place}, {value}, mask=x_mask & r_mask)")
        return lines


@dataclass(frozen=True)
class _Blocks:
    x: int
    step: int
    warps: int


def _blocks(rows: Rows, extent: int, types: Sequence[DType], chunks: bool, vector: int, gpu: GpuModel,
            alone: bool = False) -> _Blocks:
    """Rows and elements that a program has at a time, whose states are numbers of these dtypes.

    Args:
        vector: elements of a row that a thread loads at once.
        chunks: a program has a chunk of a row.
        alone: a thread has elements of one column.
    """
    size, numbers = power_of_two(extent), len(types)
    if size <= SHORTEST and hint(rows.rows) * size >= MANY:
        size = next((short for short in SHORT_COLUMNS if extent <= short), size)
    if rows.inner == 1:
        step = size if size <= PERSISTENT // numbers else STEP // numbers
        each = (MOST_EACH if step <= 512 or step > 4096 else MOST_EACH // 2) // numbers
        x, threads = batch_block(rows.rows, max(1, 1024 // step)), BUSY_WARPS * 32 * gpu.multiprocessors
        while each > max(LEAST_EACH, vector) and hint(rows.rows) * step < each * threads:
            each //= 2
        while x > 1 and hint(rows.rows) < 2 * gpu.multiprocessors * x and (x // 2) * step >= 32 * each:
            x //= 2
        return _Blocks(x, step, max(1, min(x * step // (32 * each), 16)))
    if numbers > 1 and types[0].itemsize == 8:
        numbers *= 2  # registers have no room for as many states of 64 bits (logcumsumexp: a kilobyte was spilled)
    if alone:
        return _blocks_of_single_columns(rows, size, gpu)
    states = len(types)
    x = min(power_of_two(rows.inner), COLUMNS)
    if not chunks and size > AHEAD_TILE // numbers // x and _come_one_by_one(rows):
        return _Blocks(x, AHEAD_TILE // numbers // x, AHEAD_TILE // numbers // AHEAD_EACH // 32)
    step = min(size, TILE // numbers // x)
    while step == size and x * step < SMALLEST // numbers and hint(rows.rows) >= 2 * x * PROGRAMS:
        x *= 2
    return _Blocks(x, step, max(4, min(x * step * states // 1024, 16)))


def _blocks_of_single_columns(rows: Rows, size: int, gpu: GpuModel) -> _Blocks:
    """A thread has a short column, or a stretch of a longer one beside others of 32 columns."""
    if size <= 2 * ALONE_EACH:
        warps = 4
        while warps > 1 and hint(rows.rows) < 64 * warps * gpu.multiprocessors:
            warps //= 2
        return _Blocks(32 * warps, size, warps)
    step = min(size, ALONE_EACH * ALONE_WARPS)
    return _Blocks(32, step, step // ALONE_EACH)


def _are_loads(rows: Rows) -> bool:
    """Whether operands are loaded as they are."""
    return bool(rows.loads()) and len(rows.kernel.loads("xr")) == len(rows.kernel.statements)


def _shifted(rows: Rows, nbytes: int) -> int:
    """Elements of a vector of results of so many bytes each, where rows begin at no multiple of one, else 0."""
    vector = min(16 // nbytes, MOST_IN_VECTOR)
    if rows.inner != 1 or vector < LEAST_IN_VECTOR or is_multiple(as_written(rows.length), vector):
        return 0
    kernel = rows.kernel
    loads = kernel.loads("xr")
    return vector if loads and all(plain(s, kernel) for s in loads) and hint(rows.length) >= SHORTEST_SHIFTED else 0


def _value_bytes(node: Node) -> int:
    """Bytes of an element of a scan's values."""
    kind = node.type[0] if isinstance(node.type, tuple) else node.type
    return kind.dtype.itemsize


def _stretches(rows: Rows, blocks: _Blocks, alone: bool) -> int:
    """How many threads share a row of a block of columns, if a thread loads 16 bytes of neighbouring columns, or one
    element `alone`."""
    if alone:
        return max(1, 32 * blocks.warps // blocks.x)
    sizes = [a.node.dtype.itemsize for a in rows.kernel.arguments if a.role == "in"]
    aligned = twos(as_written(rows.inner))
    neighbours = min(16 // max(sizes, default=16) or 1, aligned, blocks.x)
    return max(1, min(32 * blocks.warps * neighbours // blocks.x, blocks.step))


def _come_one_by_one(rows: Rows) -> bool:
    """Whether columns are loaded as they are, a word or less at a time: nothing good copies such ahead to shared
    memory, and without that a program would wait for memory in each round."""
    loads = rows.kernel.loads("xr")
    return (rows.inner > 1 and bool(rows.loads()) and len(loads) == len(rows.kernel.statements)
            and all(s.out.dtype.itemsize * twos(as_written(rows.inner)) < COPIED for s in loads))


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
