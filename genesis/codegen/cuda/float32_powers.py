"""Powers and logarithms of their sums in float32: a part of `float32_functions`, which says how they are made."""

from __future__ import annotations

from typing import Final

POWERS: Final[dict[str, str]] = {
    "g_wide_log2": '''
@triton.jit
def g_wide_log2(x):
    """log2(x) in float64, to 2^-37 of its value, for x ≥ 0 in float32."""
    bits = x.to(tl.float64).to(tl.int64, bitcast=True)
    n = ((bits >> 32).to(tl.int32) - 0x3FE6A09E) >> 20
    f = (bits - (n.to(tl.int64) << 52)).to(tl.float64, bitcast=True) - 1.0
    p = g_polynomial(f, (1.442695040887084, -0.7213475203125568, 0.4808983484445032, -0.36067379642012115,
                         0.2885388383797071, -0.24044624687134566, 0.20610519060345917, -0.18044051145919368,
                         0.16025754510921203, -0.14248099335805958, 0.12986756455781884, -0.1343936021311379,
                         0.13406404206701775, -0.07170867802551209))
    edge = tl.where(x == 0, -float("inf"), x).to(tl.float64)
    return tl.where((x > 0) & (x < float("inf")), tl.fma(f, p, n.to(tl.float64)), edge)
''',
    "g_wide_exp2": '''
@triton.jit
def g_wide_exp2(x):
    """2^x for x in float64, to 2^-40, rounded to float32."""
    x = g_min(g_max(x, -200.0), 200.0)
    shifted = x + 6755399441055744.0  # 1.5 · 2^52: the nearest integer is in the last bits
    f = x - (shifted - 6755399441055744.0)
    p = g_polynomial(f, (1.0, 0.6931471805461137, 0.24022650695569242, 0.05550410940786399, 0.009618129216419618,
                         0.0013333450850347914, 0.00015403417311695648, 1.5310021574501884e-05, 1.3263145736334796e-06))
    scale = (shifted.to(tl.int64, bitcast=True) + 1023) << 52
    return (p * scale.to(tl.float64, bitcast=True)).to(tl.float32)
''',
    "g_pow": '''
@triton.jit
def g_pow(x, y):
    """2^(y · log2 |x|); the sign and the special values are those of C99, F.9.4.4."""
    size = g_wide_exp2(y.to(tl.float64) * g_wide_log2(tl.abs(x)))
    whole = libdevice.floor(y) == y
    odd = whole & (libdevice.floor(0.5 * y) != 0.5 * y)
    found = tl.where(odd, g_copysign(size, x), size)
    found = tl.where((x < 0) & (x > -float("inf")) & (y == y) & ~whole, float("nan"), found)
    one = (y == 0) | (x == 1.0) | ((x == -1.0) & (tl.abs(y) == float("inf")))
    return tl.where(one, 1.0, found)
''',
    "g_apart": '''
@triton.jit
def g_apart(a, b):
    """(t, d, e): the larger of two numbers, and the smaller minus it as the sum of two numbers, at least -151."""
    top = g_max(a, b)
    d, low = g_two_sum(g_min(a, b), -top)
    return top, g_max(d, -151.0), tl.where(d > -151.0, low, 0.0)
''',
    "g_log1p_of": '''
@triton.jit
def g_log1p_of(high, low, n):
    """log(1 + (high + low) · 2^n) as the sum of two numbers, for a power between 0 and 1."""
    e = g_scaled(high, n)
    sum = 1.0 + e
    rest = (e - (sum - 1.0)) + g_scaled(low, n)
    f, n = g_mantissa(sum)
    return g_log_sum(f, rest * g_two_to(-n), n)
''',
    "g_logaddexp": '''
@triton.jit
def g_logaddexp(a, b):
    """t + log(1 + e^d), every number in two parts: near 0 the sum cancels."""
    top, d, d_low = g_apart(a, b)
    high, low, n = g_exp_parts(d)
    high, low = g_log1p_of(high, tl.fma(high, d_low, low), n)
    sum, rest = g_two_sum(top, high)
    return tl.where(tl.abs(top) == float("inf"), top, sum + (rest + low))
''',
    "g_logaddexp2": '''
@triton.jit
def g_logaddexp2(a, b):
    """The same to base 2, log 2 and log2(e) in two parts, too."""
    top, d, d_low = g_apart(a, b)
    whole, n = g_nearest(d)
    f = d - whole
    r = f * 0.6931471824645996
    r_low = tl.fma(f, 0.6931471824645996, -r) + tl.fma(f, -1.904654323148236e-09, d_low * 0.6931471824645996)
    high, low = g_exp_near_0(r)
    high, low = g_log1p_of(high, tl.fma(high, r_low, low), n)
    part = high * 1.4426950216293335
    low = tl.fma(high, 1.4426950216293335, -part) + tl.fma(high, 1.925963033500011e-08, low * 1.4426950216293335)
    sum, rest = g_two_sum(top, part)
    return tl.where(tl.abs(top) == float("inf"), top, sum + (rest + low))
''',
}
"""pow, by float64, logaddexp and logaddexp2."""
