"""Triton functions that generated kernels call: each kernel's text brings those that it uses along."""

from __future__ import annotations

import re
from typing import Final

from genesis.codegen.cuda.float32_functions import FLOAT32_FUNCTIONS
from genesis.codegen.cuda.shared_rows import SHARED_ROWS

PRELUDE: Final[dict[str, str]] = FLOAT32_FUNCTIONS | SHARED_ROWS | {
    "g_sign": '''
@triton.jit
def g_sign(x):
    """-1, 0 or 1; 0 for NaN, as torch has it."""
    return ((x > 0).to(tl.int32) - (x < 0).to(tl.int32)).to(x.dtype)
''',
    "g_low_exp2": '''
@triton.jit
def g_low_exp2(x):
    """2^x in one instruction, to 2^-22; 0 where that is below 2^-126."""
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
''',
    "g_low_log": '''
@triton.jit
def g_low_log(x):
    """The natural logarithm of a normal number, or 0, to 2^-21 near 1 and of its value elsewhere: one instruction, one
    product."""
    return 0.6931471805599453 * tl.inline_asm_elementwise(
        "lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
''',
    "g_low_reciprocal": '''
@triton.jit
def g_low_reciprocal(x):
    """1 / x in one instruction, to 2^-23; 0 where that is below 2^-126."""
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
''',
    "g_low_exp": '''
@triton.jit
def g_low_exp(x):
    """exp to 2^-20, or to |x|·2^-24 where that is more: one product, one instruction (`tl.exp` scales subnormals)."""
    return g_low_exp2(x * 1.4426950408889634)
''',
    "g_sigmoid": '''
@triton.jit
def g_sigmoid(x):
    """1 / (1 + exp(-x)) in float64, from exp(-|x|), which does not overflow: exp(x) / (1 + exp(x)) for x < 0."""
    small = libdevice.exp(-tl.abs(x))
    return tl.where(x < 0, small, 1.0) / (1.0 + small)
''',
    "g_low_sigmoid": '''
@triton.jit
def g_low_sigmoid(x):
    """1 / (1 + exp(-x)) to 2^-19, with 2^-16 times the sum: neither it nor its reciprocal leaves the normal range
    before the result is below bfloat16's least number."""
    return g_low_reciprocal(g_low_exp2(tl.fma(x, -1.4426950408889634, -16.0)) + 2**-16) * 2**-16
''',
    "g_rounded_sigmoid": '''
@triton.jit
def g_rounded_sigmoid(x):
    """The same to 2^-20 for a step of a computation: 0 where the result is below 2^-126."""
    return g_low_reciprocal(g_low_exp(-x) + 1.0)
''',
    "g_wide_logsigmoid": '''
@triton.jit
def g_wide_logsigmoid(x):
    """log(1 / (1 + exp(-x))) in float64."""
    return g_min(x, 0.0) - libdevice.log1p(libdevice.exp(-tl.abs(x)))
''',
    "g_low_logsigmoid": '''
@triton.jit
def g_low_logsigmoid(x):
    """log(1 / (1 + exp(-x))) to 2^-16: log(1 + e) with e = exp(-|x|) ≤ 1 is a polynomial."""
    e = tl.exp(-tl.abs(x))
    p = tl.fma(e, tl.fma(e, -0.023868774995207787, 0.10122130066156387), -0.21004776656627655)
    p = tl.fma(e, tl.fma(e, tl.fma(e, p, 0.32520630955696106), -0.4993613064289093), 0.9999915957450867)
    return g_min(x, 0.0) - e * p
''',
    "g_low_tanh": '''
@triton.jit
def g_low_tanh(x):
    """tanh to 2^-18: (1 - e) / (1 + e) with e = exp(-2|x|), near 0 the first terms of the series."""
    square = x * x
    small = g_low_exp(-2.0 * tl.abs(x))
    far = (1.0 - small) * g_low_reciprocal(1.0 + small)
    near = tl.fma(square, tl.fma(square, tl.fma(square, -17 / 315, 2 / 15), -1 / 3), 1.0) * x
    return tl.where(tl.abs(x) < 0.25, near, tl.where(x < 0, -far, far))
''',
    "g_low_erf": '''
@triton.jit
def g_low_erf(x):
    """erf to 2^-18: Abramowitz and Stegun 7.1.26, near 0 the first terms of the series."""
    square = x * x
    t = g_low_reciprocal(tl.fma(tl.abs(x), 0.3275911, 1.0))
    tail = tl.fma(t, tl.fma(t, tl.fma(t, tl.fma(t, 1.061405429, -1.453152027), 1.421413741), -0.284496736), 0.254829592)
    far = tl.fma(-(t * tail), g_low_exp(-square), 1.0)
    near = tl.fma(square, tl.fma(square, tl.fma(square, -0.026866171, 0.1128379167), -0.3761263890), 1.1283791671) * x
    return tl.where(tl.abs(x) < 0.25, near, tl.where(x < 0, -far, far))
''',
    "g_low_ndtr": '''
@triton.jit
def g_low_ndtr(x):
    """The normal cdf to 2^-15 of its value.

    erfc(z) = t·P(t)·exp(-z²) with t = 1 / (1 + 0.53 z), the form of Abramowitz and Stegun 7.1.26; P is fitted here,
    for the least relative error where z ≤ 9.4. The exponential is 2^24 times as large, so that it does not vanish
    before the result does.
    """
    t = g_low_reciprocal(tl.fma(tl.abs(x), 0.374766594, 1.0))
    p = tl.fma(t, tl.fma(t, -0.0910865854, 0.2017424467), 0.0824396352)
    p = tl.fma(t, tl.fma(t, p, 0.1579628034), 0.1489347592)
    tail = (t * 2**-24) * p * g_low_exp2(tl.fma(x * x, -0.7213475204, 24.0))
    return tl.where(x < 0, tail, 1.0 - tail)
''',
    "g_invert": '''
@triton.jit
def g_invert(x):
    """All bits turned (`~` fails on unsigned integers in the interpreter)."""
    if x.dtype == tl.uint8:
        return x ^ 255
    else:
        return ~x
''',
    "g_in_range": '''
@triton.jit
def g_in_range(index, SIZE, NEGATIVE: tl.constexpr, wanted, report):
    """The index in [0, SIZE). The first one outside is told to the report: where the GPU's word for it is, and
    what the word is for index 0. Only lanes that are wrong touch memory, in assembly: Triton's loads and stores would
    lay all indices out anew for the report, through shared memory."""
    if NEGATIVE:
        row = tl.where(index < 0, index + SIZE, index)
    else:
        row = index
    outside = row.to(tl.uint64) >= SIZE
    operands = [index, (outside & wanted).to(tl.int32), report.to(tl.int64)]
    tl.inline_asm_elementwise("""{ // report
        .reg .pred %wrong, %first;
        .reg .b64 %word, %told, %index;
        setp.ne.b32 %wrong, $2, 0;
        @!%wrong bra DONE;
        ld.global.b64 %word, [$3];
        ld.volatile.global.b64 %told, [%word];
        setp.eq.b64 %first, %told, 0;
        max.s64 %index, $1, -4398046511104;
        min.s64 %index, %index, 4398046511103;
        ld.global.b64 %told, [$3+8];
        add.s64 %told, %told, %index;
        @%first st.global.b64 [%word], %told;
    DONE:
        mov.b32 $0, 0;
        }""", "=r,l,r,l", operands, dtype=tl.int32, is_pure=False, pack=1)
    return tl.where(outside, tl.where(row < 0, 0, tl.maximum(SIZE - 1, 0)), row)
''',
    "g_quotient": '''
@triton.jit
def g_quotient(n, reciprocal):
    """n // d by the reciprocal of d, which is 2^32 / d, rounded up: as long as n times d is below 2^32."""
    return tl.umulhi(n.to(tl.uint32), tl.full((), reciprocal, tl.uint32)).to(n.dtype)
''',
    "g_max": '''
@triton.jit
def g_max(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "g_min": '''
@triton.jit
def g_min(a, b):
    """The smaller; NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "g_row_max": '''
@triton.jit
def g_row_max(x, AXIS: tl.constexpr):
    """The largest along an axis; NaN if any is (`tl.max` skips NaN)."""
    return tl.reduce(x, AXIS, g_max, keep_dims=True)
''',
    "g_row_min": '''
@triton.jit
def g_row_min(x, AXIS: tl.constexpr):
    """The smallest along an axis; NaN if any is (`tl.min` skips NaN)."""
    return tl.reduce(x, AXIS, g_min, keep_dims=True)
''',
    "g_welford": '''
@triton.jit
def g_welford(mean, squares, share, x, inside):
    """Take x into running means and sums of squares around them, lane by lane; x is this share of all so far."""
    off = tl.where(inside, x - mean, 0.0)
    mean = mean + off * share
    return mean, squares + off * (x - mean)
''',
    "g_together": '''
@triton.jit
def g_together(mean, squares, size, LANES: tl.constexpr):
    """(sum, sum of squares around the mean) of a row of that size, from those of its lanes, which took turns."""
    lane = tl.arange(0, LANES)[None, :]
    count = (tl.maximum(size - lane + LANES - 1, 0) // LANES).to(mean.dtype)
    total = tl.sum(mean * count, 1, keep_dims=True)
    off = mean - total / tl.maximum(tl.sum(count, 1, keep_dims=True), 1.0)
    return total, tl.sum(squares + off * off * count, 1, keep_dims=True)
''',
    "g_narrow": '''
@triton.jit
def g_narrow(x):
    """An int64 in 32 bits; -1 for one that does not fit, or is negative, and so is no coordinate."""
    return tl.where((x >= 0) & (x < 0x7FFFFFFF), x, -1).to(tl.int32)
''',
    "g_again": '''
@triton.jit
def g_again(x):
    """x, as a value that the compiler takes for another: it converts it once more rather than keep what it made."""
    if x.dtype.primitive_bitwidth == 64:
        return tl.inline_asm_elementwise("mov.b64 $0, $1;", "=l,l", [x], dtype=x.dtype, is_pure=False, pack=1)
    else:
        PACK: tl.constexpr = 4 // (x.dtype.primitive_bitwidth // 8)
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=x.dtype, is_pure=False, pack=PACK)
''',
    "g_ask": '''
@triton.jit
def g_ask(address, asks, nbytes):
    """Have bytes from an address on brought into the L2, by one thread of a program that asks."""
    tl.inline_asm_elementwise("""{
        .reg .pred %asks;
        .reg .u32 %thread;
        mov.u32 %thread, %tid.x;
        setp.lt.u32 %asks, %thread, $2;
        @%asks cp.async.bulk.prefetch.L2.global [$1], $3;
        mov.u32 $0, 0;
        }""", "=r,l,r,r", [address.to(tl.int64), asks.to(tl.int32), nbytes], dtype=tl.int32, is_pure=False, pack=1)
''',
    "g_exp": '''
@triton.jit
def g_exp(x, ROUNDED: tl.constexpr):
    """exp: to the last bits, or good enough for a result that is rounded to 16 bits."""
    if ROUNDED:
        return g_low_exp(x)
    else:
        return libdevice.exp(x)
''',
    "g_online": '''
@triton.jit
def g_online(top, total, x, LANES: tl.constexpr, ROUNDED: tl.constexpr):
    """Take x into running maxima and sums of exp(x - maximum), LANES neighbours to a running maximum."""
    x = tl.reshape(x, [x.shape[0], x.shape[1] // LANES, LANES])
    higher = g_max(top, tl.reduce(x, 2, g_max))
    zero = tl.where(tl.abs(higher) == float("inf"), 0.0, higher)  # inf - inf would be NaN
    below = tl.sum(g_exp(x - zero[:, :, None], ROUNDED), 2)
    return higher, total * g_exp(top - zero, ROUNDED) + below
''',
    "g_online_each": '''
@triton.jit
def g_online_each(top, total, x, ROUNDED: tl.constexpr):
    """Take x into running maxima and sums of exp(x - maximum), lane by lane: one exponential scales what is smaller."""
    scale = tl.where(x == top, 1.0, g_exp(-tl.abs(x - top), ROUNDED))  # inf - inf would be NaN
    return g_max(top, x), tl.where(x > top, total * scale + 1.0, total + scale)
''',
    "g_add": '''
@triton.jit
def g_add(a, b):
    """a + b, for tl.associative_scan."""
    return a + b
''',
    "g_product": '''
@triton.jit
def g_product(a, b):
    """a · b, for tl.reduce."""
    return a * b
''',
    "g_floor_divide": '''
@triton.jit
def g_floor_divide(a, b):
    """floor(a / b) from the exact remainder, so that a multiple of b is not one too small."""
    rest = libdevice.fmod(a, b)
    quotient = g_divide(a - rest, b)
    quotient = tl.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1.0, quotient)
    whole = libdevice.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1.0, whole)
    exact = g_divide(a, b)
    whole = tl.where(quotient != 0, whole, exact * 0.0)
    return tl.where(b == 0, exact, whole)
''',
    "g_divide": '''
@triton.jit
def g_divide(a, b):
    """a / b rounded to nearest."""
    if a.dtype == tl.float32:
        return tl.math.div_rn(a, b)
    else:
        return a / b
''',
    "g_share": '''
@triton.jit
def g_share(power, total):
    """power / total of float32 rounded to nearest, where 0 <= power <= 1 <= total, one number for a row's powers.

    A product with its reciprocal is corrected by what is left of the power, which one fma gives exactly (Markstein
    1990): three instructions an element, where a division has a dozen and a branch."""
    inverse = tl.broadcast_to(tl.math.div_rn(1.0, total), power.shape)
    share = power * inverse
    return tl.fma(tl.fma(-share, tl.broadcast_to(total, power.shape), power), inverse, share)
''',
    "g_remainder": '''
@triton.jit
def g_remainder(a, b):
    """a - b·floor(a / b): the sign of b."""
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)
''',
    "g_int_floor_divide": '''
@triton.jit
def g_int_floor_divide(a, b):
    """floor(a / b); the machine truncates."""
    quotient = a // b
    rest = a - quotient * b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient).to(a.dtype)
''',
    "g_int_remainder": '''
@triton.jit
def g_int_remainder(a, b):
    """a - b·floor(a / b): the sign of b."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest).to(a.dtype)
''',
    "g_int_pow": '''
@triton.jit
def g_int_pow(a, b):
    """a to the power b by repeated squaring; a negative power of anything but 1 and -1 is 0."""
    zeros = tl.zeros_like(a + b).to(a.dtype)  # a and b may be a number and a block
    ones = zeros + 1
    result = ones
    square = a + zeros
    left = b + zeros
    for _ in range(63):
        result = tl.where((left & 1) != 0, result * square, result)
        square = square * square
        left = tl.where(left > 0, left >> 1, 0).to(b.dtype)
    odd = (b & 1) != 0
    negative = tl.where(a == ones, ones, tl.where(a == -ones, tl.where(odd, a, ones), 0))
    return tl.where(b < 0, negative, result).to(a.dtype)
''',
    "g_gcd": '''
@triton.jit
def g_gcd(a, b):
    """Greatest common divisor by Euclid's algorithm; Lamé's bound on its steps is 1.44 times the width in bits."""
    STEPS: tl.constexpr = (a.dtype.primitive_bitwidth * 3 + 1) // 2
    zeros = tl.zeros_like(a + b).to(a.dtype)  # a and b may be a number and a block
    x = tl.abs(a) + zeros
    y = tl.abs(b) + zeros
    for _ in range(STEPS):
        rest = tl.where(y != 0, x % tl.where(y != 0, y, 1), 0).to(x.dtype)
        x = tl.where(y != 0, y, x)
        y = rest
    return tl.abs(x).to(a.dtype)
''',
    "g_left_shift": '''
@triton.jit
def g_left_shift(a, b):
    """a · 2^b; 0 when b is not less than the width."""
    width: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < width)
    return tl.where(inside, a << tl.where(inside, b, 0).to(a.dtype), 0).to(a.dtype)
''',
    "g_right_shift": '''
@triton.jit
def g_right_shift(a, b):
    """floor(a / 2^b); 0 or -1 when b is not less than the width."""
    width: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < width)
    return tl.where(inside, a >> tl.where(inside, b, 0).to(a.dtype), tl.where(a < 0, -1, 0)).to(a.dtype)
''',
    "g_philox_words": '''
@triton.jit
def g_philox_words(seed, draw, counter):
    """The four words of Philox4x32-10: key = seed, counter = (counter, draw), each as low and high 32 bits."""
    k0 = (seed & 0xFFFFFFFF).to(tl.uint32)
    k1 = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    if counter.dtype == tl.int64:
        c0 = (counter & 0xFFFFFFFF).to(tl.uint32)
        c1 = ((counter >> 32) & 0xFFFFFFFF).to(tl.uint32)
    else:
        c0 = counter.to(tl.uint32)
        c1 = tl.zeros_like(c0)
    c2 = (draw & 0xFFFFFFFF).to(tl.uint32) + tl.zeros_like(c0)
    c3 = ((draw >> 32) & 0xFFFFFFFF).to(tl.uint32) + tl.zeros_like(c0)
    A = tl.full((), 0xD2511F53, tl.uint64)
    B = tl.full((), 0xCD9E8D57, tl.uint64)
    RAISE_0 = tl.full((), 0x9E3779B9, tl.uint32)
    RAISE_1 = tl.full((), 0xBB67AE85, tl.uint32)
    for _ in tl.static_range(10):
        product_0 = c0.to(tl.uint64) * A
        product_2 = c2.to(tl.uint64) * B
        c0 = (product_2 >> 32).to(tl.uint32) ^ c1 ^ k0
        c1 = product_2.to(tl.uint32)
        c2 = (product_0 >> 32).to(tl.uint32) ^ c3 ^ k1
        c3 = product_0.to(tl.uint32)
        k0 = tl.add(k0, RAISE_0, sanitize_overflow=False)
        k1 = tl.add(k1, RAISE_1, sanitize_overflow=False)
    return c0, c1, c2, c3
''',
    "g_random_bits": '''
@triton.jit
def g_random_bits(seed, draw, index, WORD: tl.constexpr, WORDS: tl.constexpr):
    """Word WORD of the WORDS that each element takes from a draw; index: any elements."""
    PER: tl.constexpr = 4 // WORDS
    c0, c1, c2, c3 = g_philox_words(seed, draw, index // PER)
    at = (index % PER) * WORDS + WORD
    word = tl.where(at < 2, tl.where(at == 0, c0, c1), tl.where(at == 2, c2, c3))
    return word.to(tl.int32, bitcast=True)
''',
    "g_random_run": '''
@triton.jit
def g_random_run(seed, draw, counter, WORD: tl.constexpr, WORDS: tl.constexpr):
    """The same for elements in order, from a block of counters: [..., n] of them give [..., n, neighbours]."""
    c0, c1, c2, c3 = g_philox_words(seed, draw, counter)
    if WORDS == 1:
        word = tl.join(tl.join(c0, c2), tl.join(c1, c3))
    elif WORD == 0:
        word = tl.join(c0, c2)
    else:
        word = tl.join(c1, c3)
    return word.to(tl.int32, bitcast=True)
''',
}
"""Helpers in Triton, by name."""


def prelude_for(body: str) -> str:
    """The helpers that a kernel's text uses, and those that they use."""
    wanted: dict[str, None] = {}
    pending = [body]
    while pending:
        for name in re.findall(r"\bg_\w+", pending.pop()):
            if name in PRELUDE and name not in wanted:
                wanted[name] = None
                pending.append(PRELUDE[name])
    return "".join(PRELUDE[name] + "\n" for name in sorted(wanted))
