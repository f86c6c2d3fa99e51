"""Sorting: a program sorts rows, or runs of longer rows, in registers.

A program's tile is a power of two of words, sorted by a bitonic network (Batcher 1968). A word holds the key above the
position: 16 bits above 16 in an int32 for dtypes of 8 and 16 bits, 32 above 32 in an int64. Words differ, so the
network, which is not stable, gives the stable order; and the values come back out of the keys. Only whether a zero was
-0.0 is lost with the key; the lowest bit keeps it.

The k smallest words of a tile take fewer steps than all of it (Shanbhag, Pirk, Madden, SIGMOD 2018): blocks of k are
sorted, then halved by keeping the smaller of two and sorting again.

A tile is a cube of two words along each bit of the place. The lowest bits lie in a thread's registers, then come the
lanes and the warps. Neighbours in another warp come through shared memory, by a gather whose places are consecutive
from lane to lane: a reduction's would be a thread's words apart, sixteen lanes to a bank. Written out, a network is
long, 36 to 160 KB of code for 4096 words, so its levels are a loop.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.blocks import batch_block, block_for, power_of_two
from genesis.codegen.cuda.lowerings import triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.rows import Rows, result
from genesis.ir.node import Node
from genesis.ir.sym_int import hint
from genesis.ir.types import DType, bfloat16, bool_, float16, float32
from genesis.passes.groups import Group

EACH: Final = {True: 64, False: 16}
"""Words per thread, {32-bit: …, 64-bit: …}: the more, the fewer are exchanged with other lanes and warps."""

HELPERS: Final = {
    "g_log2": '''
@triton.constexpr_function
def g_log2(n):
    """The logarithm of a power of two."""
    return n.bit_length() - 1
''',
    "g_bit": '''
@triton.jit
def g_bit(x, bit: tl.constexpr):
    """0 and 1 along the dimension of a cube (2, 2, ...) that is this bit of the flat position."""
    return tl.reshape(tl.arange(0, 2), [1] * (g_log2(x.numel) - bit - 1) + [2] + [1] * bit)
''',
    "g_from_warps": '''
@triton.jit
def g_from_warps(x, bit: tl.constexpr, REGISTERS: tl.constexpr):
    """The neighbour along a bit, from another warp through shared memory: lanes last, so that no two meet in a bank."""
    rest: tl.constexpr = x.numel >> (5 + REGISTERS)
    words = tl.reshape(tl.permute(tl.reshape(x, [rest, 32, 1 << REGISTERS]), [0, 2, 1]), [x.numel])
    words = tl.gather(words, tl.arange(0, x.numel) ^ (1 << bit), 0)
    return tl.reshape(tl.permute(tl.reshape(words, [rest, 1 << REGISTERS, 32]), [0, 2, 1]), x.shape)
''',
    "g_exchange": '''
@triton.jit
def g_exchange(x, flip, bit: tl.constexpr, REGISTERS: tl.constexpr, WARP: tl.constexpr):
    """Neighbours along a bit in order, or the other way round where flip is 1."""
    axis: tl.constexpr = g_log2(x.numel) - 1 - bit
    right = (g_bit(x, bit) ^ flip) != 0
    if bit < REGISTERS:  # one thread has both
        return tl.where(right, tl.max(x, axis, keep_dims=True), tl.min(x, axis, keep_dims=True))
    else:
        y = x ^ tl.xor_sum(x, axis, True) if bit < WARP else g_from_warps(x, bit, REGISTERS)
        return tl.where((x > y) != right, y, x)
''',
    "g_merge": '''
@triton.jit
def g_merge(x, BITS: tl.constexpr, LAST: tl.constexpr, REGISTERS: tl.constexpr, WARP: tl.constexpr):
    """Bitonic blocks of 2^BITS words in order: by turns up and down, unless it is the last time."""
    if LAST:
        for i in tl.static_range(BITS):
            x = g_exchange(x, 0, BITS - 1 - i, REGISTERS, WARP)
    elif BITS < REGISTERS:
        flip = g_bit(x, BITS)
        for i in tl.static_range(BITS):
            x = g_exchange(x, flip, BITS - 1 - i, REGISTERS, WARP)
    else:  # the complement of a word is in the opposite order
        mask = 0 - g_bit(x, BITS).to(x.dtype)
        x = x ^ mask
        for i in tl.static_range(BITS):
            x = g_exchange(x, 0, BITS - 1 - i, REGISTERS, WARP)
        x = x ^ mask
    return x
''',
    "g_levels": '''
@triton.jit
def g_levels(x, FIRST: tl.constexpr, LAST: tl.constexpr, SIZE: tl.constexpr, REGISTERS: tl.constexpr,
             WARP: tl.constexpr):
    """Sorted blocks of 2^(FIRST - 1) words become sorted blocks of 2^LAST, by turns up and down."""
    upper: tl.constexpr = g_log2(x.numel) - FIRST
    block = tl.reshape(tl.arange(0, 1 << upper), [2] * upper + [1] * FIRST)
    before = tl.zeros_like(block)
    for level in range(FIRST, LAST + 1):
        # Where the bit above a block is set, its complement is sorted; not at the last level of a row.
        mask = (0 - ((block >> (level - FIRST)) & 1)) & tl.where(level < SIZE, -1, 0)
        x = x ^ (mask ^ before).to(x.dtype)
        before = mask
        for i in tl.static_range(LAST):
            if level > LAST - 1 - i:
                x = g_exchange(x, 0, LAST - 1 - i, REGISTERS, WARP)
    return x ^ before.to(x.dtype)
''',
    "g_first": '''
@triton.jit
def g_first(x, KEPT: tl.constexpr, VECTOR: tl.constexpr, WARPS: tl.constexpr):
    """The KEPT smallest words of each row in order. VECTOR words of a row are neighbours in a thread."""
    total: tl.constexpr = x.numel
    size: tl.constexpr = g_log2(x.shape[1])
    kept: tl.constexpr = g_log2(KEPT)
    each: tl.constexpr = total // (32 * WARPS) if total > 32 * WARPS else 1
    vector: tl.constexpr = VECTOR if VECTOR < each else each
    h = x
    registers: tl.constexpr = g_log2(each) if x.shape[0] == 1 else g_log2(vector)
    warp: tl.constexpr = registers + 5 if x.shape[0] == 1 and total >= 32 * WARPS else 32
    straight: tl.constexpr = registers if registers < kept else kept
    if x.shape[0] == 1 and each > vector:
        # What a thread has becomes neighbours: in which order the words start does not matter.
        h = tl.reshape(h, [each // vector, WARPS, 32, vector])
        h = tl.permute(h, [1, 2, 0, 3])
    h = tl.reshape(h, [2] * g_log2(total))
    for bits in tl.static_range(1, straight + 1):
        h = g_merge(h, bits, bits == size, registers, warp)
    if straight < kept:
        h = g_levels(h, straight + 1, kept, size, registers, warp)
    for bits in tl.static_range(kept + 1, size + 1):
        h = tl.min(h, g_log2(h.numel) - 1 - kept, keep_dims=h.numel == 2)
        h = g_merge(h, kept, bits == size, registers, 32)
    return tl.reshape(h, [x.shape[0], KEPT])
''',
    "g_key32": '''
@triton.jit
def g_key32(x):
    """The bits of a float32 as an integer in the order of the numbers: NaN is the largest, -0.0 is 0."""
    bits = (x + 0.0).to(tl.int32, bitcast=True)
    return tl.where(x != x, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))
''',
    "g_key_half": '''
@triton.jit
def g_key_half(x):
    """The same of a float16, held as float32."""
    bits = (x + 0.0).to(tl.float16).to(tl.int16, bitcast=True).to(tl.int32)
    return tl.where(x != x, 0x7FFF, bits ^ ((bits >> 15) & 0x7FFF))
''',
    "g_minus_zero": '''
@triton.jit
def g_minus_zero(x):
    """1 where a float32 is -0.0."""
    return (x.to(tl.int32, bitcast=True) == -2147483648).to(tl.int32)
''',
    "g_float32": '''
@triton.jit
def g_float32(key):
    """The float32 of a key."""
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
''',
    "g_bfloat16": '''
@triton.jit
def g_bfloat16(key):
    """The bfloat16 of a key, as float32."""
    return ((key ^ ((key >> 31) & 0x7FFF)) << 16).to(tl.float32, bitcast=True)
''',
    "g_half": '''
@triton.jit
def g_half(key):
    """The float16 of a key, as float32."""
    return (key ^ ((key >> 31) & 0x7FFF)).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
''',
}

KEYS: Final[dict[DType, tuple[str, str]]] = {
    float32: ("g_key32({0})", "g_float32({0})"),
    bfloat16: ("g_key32({0}) >> 16", "g_bfloat16({0})"),
    float16: ("g_key_half({0})", "g_half({0})"),
}
"""Floating dtype → its key in an int32, and the value of a key. Integers are their own keys."""


def emit_sort(group: Group) -> KernelSource:
    """The kernel of a sort group."""
    node = next(n for n in group.nodes if n.op.name in _EMITTERS)
    return _EMITTERS[node.op.name](group, node)


def helpers(lines: list[str]) -> str:
    """The helpers that these lines use, and those that they use."""
    text, wanted = "\n".join(lines), ""
    for name, code in reversed(HELPERS.items()):  # each stands after those that it uses
        if f"{name}(" in text:
            text += code
            wanted = f"{code}\n{wanted}"
    return wanted


class Words:
    """How elements of a dtype become words and come back."""

    def __init__(self, dtype: DType, descending: bool, bits64: bool = False):
        self.dtype, self.descending = dtype, descending
        self.bits32 = dtype.itemsize <= 2 and not bits64
        self.type = "tl.int32" if self.bits32 else "tl.int64"
        self.shift = 16 if self.bits32 else 32
        self.largest = 2**31 - 1 if self.bits32 else 2**63 - 1

    def pack(self, value: str, position: str) -> list[str]:
        """Lines for `word`, from a value in its dtype or the float32 that holds it."""
        floating = self.dtype in KEYS
        key = KEYS[self.dtype][0].format("value") if floating else "value.to(tl.int32)"
        low = f"({position} * 2 + g_minus_zero(value))" if floating else f"({position} * 2)"
        return [f"value = {value}", f"key = {'~' if self.descending else ''}({key})",
                f"word = (key.to({self.type}) << {self.shift}) | {low}.to({self.type})"]

    def unpack(self) -> list[str]:
        """Lines for `index` and `value`, held as the dtype is."""
        lines = [f"low = word & {(1 << self.shift) - 1}", "index = low >> 1",
                 f"key = {'~' if self.descending else ''}(word >> {self.shift}).to(tl.int32)"]
        if self.dtype in KEYS:
            value = KEYS[self.dtype][1].format("key")
            return [*lines, f"bits = ({value}).to(tl.int32, bitcast=True) | (low.to(tl.int32) << 31)",
                    "value = bits.to(tl.float32, bitcast=True)"]
        return [*lines, "value = key != 0" if self.dtype is bool_ else f"value = key.to({triton_type(self.dtype)})"]

    def stores(self, outputs: dict[str, Node], at: str) -> list[str]:
        """Lines that write what is wanted of `value` and `index`, where `inside` holds."""
        value = "value" if self.dtype is bool_ else f"value.to({triton_type(self.dtype)})"
        texts = {"values": value, "indices": "index.to(tl.int64)"}
        return [f"tl.store({name} + {at}, {texts[name]}, mask=inside)" for name in outputs]


def _warps(words: int, bits32: bool) -> int:
    """How many warps a program of so many words has."""
    return max(1, min(words // (32 * EACH[bits32]), 32))


def _tile(group: Group, node: Node) -> KernelSource:
    """sort and topk of rows that fit a tile."""
    axis = node["axis"]
    rows = Rows(group, node.inputs, axis)
    several = node.op.name == "topk"
    words = Words(node.inputs[0].dtype, node["largest"] if several else node["descending"])
    kept = node["k"] if several else rows.length
    tile = power_of_two(rows.length)
    few = min(power_of_two(kept), tile)
    per_program = batch_block(rows.rows, max(1, 1024 // tile))
    warps = _warps(per_program * tile, words.bits32)
    outputs = {name: memory for name, memory in (("values", result(group, 0)), ("indices", result(group, 1)))
               if memory is not None}
    lines = [*rows.x_lines(), *rows.r_lines(), *rows.operand_lines(), *words.pack(rows.names[0], "r"),
             f"word = tl.where(r_mask, word, {words.largest})",
             *([f"word = g_first(word, KEPT, {rows.vector}, {warps})"] if tile > 1 else []), *words.unpack(),
             f"r = tl.arange(0, KEPT)[None, :]{rows.integer}", f"inside = x_mask & (r < {kept})",
             *words.stores(outputs, rows.address(kept, "KEPT"))]
    name = f"{node.op.name}_{'rows' if rows.inner == 1 else 'columns'}"
    return rows.source(name, lines, outputs, {"XBLOCK": per_program, "RBLOCK": tile, "KEPT": few},
                       -(-rows.rows // per_program), warps, helpers(lines))


def _runs(group: Group, node: Node) -> KernelSource:
    """sort_runs: a program sorts one run of a row into words."""
    rows = Rows(group, node.inputs, 1)
    run = block_for(rows.length, node["run"])
    words = Words(node.inputs[0].dtype, node["descending"], bits64=True)
    parts = -(-rows.length // run)
    warps = _warps(8 * run, False)  # few programs: the more threads the better
    lines = [*rows.x_lines("tl.program_id(0) // parts"), *rows.r_lines("tl.program_id(0) % parts * RBLOCK"),
             *rows.operand_lines(), *words.pack(rows.names[0], "r"),
             f"word = tl.where(r_mask, word, {words.largest})",
             f"word = g_first(word, RBLOCK, {rows.vector}, {warps})",
             f"tl.store(words + {rows.address()}, word, mask=x_mask & r_mask)"]
    return rows.source("sort_runs", lines, {"words": group.outputs[0]}, {"XBLOCK": 1, "RBLOCK": run},
                       rows.rows * parts, warps, helpers(lines), {"parts": parts})


def _unsort(group: Group, node: Node) -> KernelSource:
    """unsort: every element goes where its index says."""
    rows = Rows(group, node.inputs, node["axis"])
    r_block = block_for(hint(rows.length), 1024 if rows.inner == 1 else 16)
    x_block = batch_block(rows.rows, max(1, 1024 // r_block))
    parts = -(-rows.length // r_block)
    index = "tl.int64" if rows.int64_index else "tl.int32"
    stored = rows.names[0] if node.dtype is bool_ else f"{rows.names[0]}.to({triton_type(node.dtype)})"
    lines = [*rows.x_lines("tl.program_id(0) // parts"), *rows.r_lines("tl.program_id(0) % parts * RBLOCK"),
             *rows.operand_lines(), "inside = x_mask & r_mask",
             f"r = tl.minimum(tl.maximum({rows.names[1]}, 0), {rows.size} - 1).to({index})",
             f"tl.store(out + {rows.address()}, {stored}, mask=inside)"]
    return rows.source("unsort", lines, {"out": group.outputs[0]}, {"XBLOCK": x_block, "RBLOCK": r_block},
                       -(-rows.rows // x_block) * parts, 4, sizes={"parts": parts})


_EMITTERS = {"sort": _tile, "topk": _tile, "sort_runs": _runs, "unsort": _unsort}
