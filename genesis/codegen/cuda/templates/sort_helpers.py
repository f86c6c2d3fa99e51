"""The functions that sorting kernels call: exchanges of words in a tile, and keys of values.

A tile is a cube of two words along each bit of the place. The lowest bits lie in a thread's registers, then come the
lanes and the warps. Neighbours in another warp come through shared memory, by a gather whose places are consecutive
from lane to lane: a reduction's would be a thread's words apart, sixteen lanes to a bank. Written out, a network is
long, 36 to 160 KB of code for 4096 words, so its levels are a loop.
"""

from __future__ import annotations

from typing import Final

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
def g_exchange(x, flip, bit: tl.constexpr, REGISTERS: tl.constexpr, WARP: tl.constexpr, ABOVE: tl.constexpr = 64):
    """Neighbours along a bit in order, or the other way round where flip is 1."""
    axis: tl.constexpr = g_log2(x.numel) - 1 - bit
    right = (g_bit(x, bit) ^ flip) != 0
    if bit < REGISTERS or bit >= ABOVE:  # one thread has both
        return tl.where(right, tl.max(x, axis, keep_dims=True), tl.min(x, axis, keep_dims=True))
    else:
        y = x ^ tl.xor_sum(x, axis, True) if bit < WARP else g_from_warps(x, bit, REGISTERS)
        return tl.where((x > y) != right, y, x)
''',
    "g_merge": '''
@triton.jit
def g_merge(x, BITS: tl.constexpr, LAST: tl.constexpr, REGISTERS: tl.constexpr, WARP: tl.constexpr,
            ABOVE: tl.constexpr = 64):
    """Bitonic blocks of 2^BITS words in order: by turns up and down, unless it is the last time."""
    if LAST:
        for i in tl.static_range(BITS):
            x = g_exchange(x, 0, BITS - 1 - i, REGISTERS, WARP, ABOVE)
    elif BITS < REGISTERS:
        flip = g_bit(x, BITS)
        for i in tl.static_range(BITS):
            x = g_exchange(x, flip, BITS - 1 - i, REGISTERS, WARP, ABOVE)
    else:  # the complement of a word is in the opposite order
        mask = 0 - g_bit(x, BITS).to(x.dtype)
        x = x ^ mask
        for i in tl.static_range(BITS):
            x = g_exchange(x, 0, BITS - 1 - i, REGISTERS, WARP, ABOVE)
        x = x ^ mask
    return x
''',
    "g_levels": '''
@triton.jit
def g_levels(x, FIRST: tl.constexpr, LAST: tl.constexpr, SIZE: tl.constexpr, REGISTERS: tl.constexpr,
             WARP: tl.constexpr, ABOVE: tl.constexpr = 64):
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
                x = g_exchange(x, 0, LAST - 1 - i, REGISTERS, WARP, ABOVE)
    return x ^ before.to(x.dtype)
''',
    "g_first": '''
@triton.jit
def g_first(x, KEPT: tl.constexpr, VECTOR: tl.constexpr, WARPS: tl.constexpr, ABOVE: tl.constexpr = 64):
    """The KEPT smallest words of each row in order. VECTOR words of a row are neighbours in a thread, and of columns
    those whose numbers differ in the bits from ABOVE on are in one thread."""
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
        h = g_merge(h, bits, bits == size, registers, warp, ABOVE)
    if straight < kept:
        h = g_levels(h, straight + 1, kept, size, registers, warp, ABOVE)
    for bits in tl.static_range(kept + 1, size + 1):
        h = tl.min(h, g_log2(h.numel) - 1 - kept, keep_dims=h.numel == 2)
        h = g_merge(h, kept, bits == size, registers, 32, ABOVE)
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
    "g_unknown": '''
@triton.jit
def g_unknown(x):
    """x, of which the compiler does not know that neighbours follow each other."""
    if x.dtype == tl.int64:
        return tl.inline_asm_elementwise("mov.b64 $0, $1;", "=l,l", [x], dtype=x.dtype, is_pure=True, pack=1)
    else:
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=True, pack=1)
''',
    "g_compared": '''
@triton.jit
def g_compared(x, apart: tl.constexpr, BLOCK: tl.constexpr):
    """Words of a row that lie so far apart in order; the other way round in each second block of so many words."""
    count: tl.constexpr = x.shape[1] // (2 * apart)
    pairs = tl.reshape(x, [x.shape[0], count, 2, apart])
    turned = (tl.arange(0, count) * (2 * apart) // BLOCK) & 1
    larger = (tl.arange(0, 2)[None, None, :, None] ^ turned[None, :, None, None]) != 0
    return tl.reshape(tl.where(larger, tl.max(pairs, 2, keep_dims=True), tl.min(pairs, 2, keep_dims=True)), x.shape)
''',
    "g_sorted": '''
@triton.jit
def g_sorted(x):
    """The words of each row in order, by a bitonic network, where a thread has all of a row."""
    for level in tl.static_range(1, g_log2(x.shape[1]) + 1):
        for step in tl.static_range(level):
            x = g_compared(x, 1 << (level - 1 - step), 1 << level)
    return x
''',
}


def helpers(lines: list[str]) -> str:
    """The helpers that these lines use, and those that they use."""
    text, wanted = "\n".join(lines), ""
    for name, code in reversed(HELPERS.items()):  # each stands after those that it uses
        if f"{name}(" in text:
            text += code
            wanted = f"{code}\n{wanted}"
    return wanted
