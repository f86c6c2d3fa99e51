"""Elementary functions in float32, for results that are not rounded to 16 bits: Triton text, by name.

The GPU's library has them too, but some are more than two units in the last place (ulp) off, and some divide and take
roots approximately under Triton. These are made of operations that IEEE 754 rounds (+, ·, fma, `div_rn`, `sqrt_rn`), so
they give the same results in Triton's interpreter as on a GPU, and their errors are measured on the host
(tests/codegen/cuda/test_float32_functions.py). An approximate reciprocal is taken where one step of Newton's follows:
what is left of its error is 2^-44. For tan and pow float64 is used: its errors vanish in the rounding to float32.

The largest errors found, in ulp, and instructions an element on sm_90 (without the rare paths of a division or root):
exp2 0.85, 17; sigmoid 0.84, 35; logsigmoid 1.81, 26; log10 0.85, 36; asin 1.15, 33; acos 1.11, 31; atan 1.21, 25;
atan2 1.47, 47; sinh 1.20, 32; cosh 1.10, 30; acosh 1.20, 70; atanh 1.00, 53; hypot 1.02, 35; erfc 1.0, 82; pow 0.51,
138, 32 of them in float64; tan 0.51, 103 and 31; where the result is not below 1/8, logaddexp 1.4, 83, and logaddexp2
2.0, 93.

Polynomials are fitted here for the least relative error of the function (Lawson's weights on Chebyshev's points); their
coefficients were rounded to float32 one after another, those left fitted again after each. Numbers in two parts, high
and low, are as in Muller et al., Handbook of Floating-Point Arithmetic, 2nd ed.: ch. 4, and ch. 10 for reductions.
"""

from __future__ import annotations

from typing import Final

from genesis.codegen.cuda.float32_angles import ANGLES
from genesis.codegen.cuda.float32_powers import POWERS

FLOAT32_FUNCTIONS: Final[dict[str, str]] = ANGLES | POWERS | {
    "g_polynomial": '''
@triton.jit
def g_polynomial(x, C: tl.constexpr):
    """C[0] + C[1]·x + C[2]·x² + …, by Horner's rule."""
    result = tl.full((), C[len(C) - 1], x.dtype)
    for i in tl.static_range(2, len(C) + 1):
        result = tl.fma(result, x, tl.full((), C[len(C) - i], x.dtype))
    return result
''',
    "g_copysign": '''
@triton.jit
def g_copysign(size, x):
    """A size ≥ 0 with the sign of x, which may be -0."""
    sign = (x.to(tl.int32, bitcast=True) >> 31) << 31
    return (size.to(tl.int32, bitcast=True) | sign).to(tl.float32, bitcast=True)
''',
    "g_two_to": '''
@triton.jit
def g_two_to(n):
    """2^n for an int32 between -126 and 127; 0 for -127."""
    return ((n + 127) << 23).to(tl.float32, bitcast=True)
''',
    "g_scaled": '''
@triton.jit
def g_scaled(x, n):
    """x · 2^n in two steps: rounded once where the result is below the normal range, infinite where it is too large."""
    half = n >> 1
    return x * g_two_to(half) * g_two_to(n - half)
''',
    "g_nearest": '''
@triton.jit
def g_nearest(x):
    """The nearest integer, as float32 and as int32, for |x| < 2^22: it is in the last bits of x + 1.5 · 2^23."""
    shifted = x + 12582912.0
    return shifted - 12582912.0, shifted.to(tl.int32, bitcast=True) - 0x4B400000
''',
    "g_exp2": '''
@triton.jit
def g_exp2(x):
    """2^x = 2^n · 2^f with |f| ≤ 1/2."""
    x = g_min(g_max(x, -151.0), 129.0)
    whole, n = g_nearest(x)
    f = x - whole
    return g_scaled(g_polynomial(f, (1.0, 0.6931471824645996, 0.24022650718688965, 0.055503591895103455,
                                     0.009618067182600498, 0.0013391174143180251, 0.000154608758748509)), n)
''',
    "g_minus_ln2": '''
@triton.jit
def g_minus_ln2(x, n):
    """x - n · log 2, log 2 as the sum of two numbers: the first product cancels exactly."""
    return tl.fma(n, 1.904654323148236e-09, tl.fma(n, -0.6931471824645996, x))
''',
    "g_exp_near_0": '''
@triton.jit
def g_exp_near_0(r):
    """e^r as the sum of two numbers, for |r| ≤ log(2) / 2."""
    p = g_polynomial(r, (0.5, 0.16666515171527863, 0.04166637733578682, 0.008369393646717072, 0.0013942922232672572))
    square = r * r
    more = tl.fma(square, p, r)
    high = 1.0 + more
    return high, (more - (high - 1.0)) + tl.fma(square, p, r - more)
''',
    "g_exp_parts": '''
@triton.jit
def g_exp_parts(x):
    """(h, l, n): e^x = (h + l) · 2^n, for x ≤ 0."""
    x = g_max(x, -104.0)
    whole, n = g_nearest(x * 1.4426950408889634)
    high, low = g_exp_near_0(g_minus_ln2(x, whole))
    return high, low, n
''',
    "g_exp_below_1": '''
@triton.jit
def g_exp_below_1(x):
    """e^x as the sum of two numbers, for x ≤ 0.

    n + 127 + 32 is in the last bits of `shifted`: one shift makes 2^(n + 32) of them, and the product with 2^-32 what
    is below the normal range. NaN stays NaN, as 2^n is a factor and not added to an exponent.
    """
    x = g_max(x, -104.0)
    shifted = tl.fma(x, 1.4426950408889634, 12583071.0)
    high, low = g_exp_near_0(g_minus_ln2(x, shifted - 12583071.0))
    scale = (shifted.to(tl.int32, bitcast=True) << 23).to(tl.float32, bitcast=True) * 2.3283064365386963e-10
    return high * scale, low * scale
''',
    "g_exact_sigmoid": '''
@triton.jit
def g_exact_sigmoid(x):
    """1 / (1 + e), or e / (1 + e) where x < 0, with e = exp(-|x|), which does not overflow: one step of Newton's."""
    e, e_low = g_exp_below_1(-tl.abs(x))
    under = 1.0 + e
    under_low = (e - (under - 1.0)) + e_low
    inverse = g_low_reciprocal(under)
    over = tl.where(x < 0, e, 1.0)
    found = over * inverse
    rest = tl.fma(-found, under, over) + tl.fma(-found, under_low, tl.where(x < 0, e_low, 0.0))
    return tl.fma(rest, inverse, found)
''',
    "g_logsigmoid": '''
@triton.jit
def g_logsigmoid(x):
    """min(x, 0) - log(1 + e) with e = exp(-|x|): a polynomial, as e is at most 1."""
    e, _ = g_exp_below_1(-tl.abs(x))
    p = g_polynomial(e, (-0.4999993145465851, 0.333304762840271, -0.2495824694633484, 0.1969374567270279,
                         -0.1535084992647171, 0.10673169046640396, -0.05759408697485924, 0.02016826532781124,
                         -0.0033106280025094748))
    return g_min(x, 0.0) - tl.fma(e, e * p, e)
''',
    "g_hyperbolic": '''
@triton.jit
def g_hyperbolic(x, NEAR: tl.constexpr):
    """(e^a / 4, e^-a / 4, r, sinh(r) - r, cosh(r) - 1) with x = a + r and a a multiple of log 2.

    Quarters, so that nothing is infinite before the result is. Where |x| < NEAR ≤ 1, r is x and only sinh(r) is right.
    """
    x = g_min(g_max(x, -89.6), 89.6)
    whole, n = g_nearest(x * 1.4426950408889634)
    r = tl.where(tl.abs(x) < NEAR, x, g_minus_ln2(x, whole))
    square = r * r
    odd = g_polynomial(square, (0.1666666716337204, 0.00833331048488617, 0.00019842895562760532,
                                2.7822131869470468e-06))
    even = g_polynomial(square, (0.5, 0.04166645184159279, 0.001393627026118338))
    return g_two_to(tl.maximum(n - 2, -127)), g_two_to(tl.maximum(-2 - n, -127)), r, odd * (r * square), even * square
''',
    "g_sinh": '''
@triton.jit
def g_sinh(x):
    """sinh(a + r) = sinh a + (cosh a · r + (sinh a · (cosh r - 1) + cosh a · (sinh r - r))); near 0 a polynomial."""
    up, down, r, odd, even = g_hyperbolic(x, 1.0)
    sinh = up - down
    cosh = up + down
    far = 2.0 * (sinh + tl.fma(cosh, r, tl.fma(sinh, even, cosh * odd)))
    return tl.where(tl.abs(x) < 1.0, r + odd, far)
''',
    "g_cosh": '''
@triton.jit
def g_cosh(x):
    """cosh(a + r) = cosh a + (sinh a · r + (cosh a · (cosh r - 1) + sinh a · (sinh r - r)))."""
    up, down, r, odd, even = g_hyperbolic(x, 0.0)
    sinh = up - down
    return 2.0 * (up + (tl.fma(sinh, r, tl.fma(up + down, even, sinh * odd)) + down))  # up + down is rounded
''',
    "g_mantissa": '''
@triton.jit
def g_mantissa(x):
    """(f, n) with x = (1 + f) · 2^n and 1 + f between √½ and √2, for a normal x > 0."""
    bits = x.to(tl.int32, bitcast=True)
    n = (bits - 0x3F3504F3) >> 23
    return (bits - (n << 23)).to(tl.float32, bitcast=True) - 1.0, n
''',
    "g_log_sum": '''
@triton.jit
def g_log_sum(f, low, n):
    """log((1 + f + low) · 2^n) as the sum of two numbers, f as `g_mantissa` has it and low less than an ulp of 1 + f.

    log(1 + s) = s + s² · p(s); log 2 in two parts, the first so short that its product with n is exact.
    """
    s = f + low
    p = g_polynomial(s, (-0.5, 0.3333331346511841, -0.25000008940696716, 0.2000207155942917, -0.16667990386486053,
                         0.14220362901687622, -0.12406208366155624, 0.1188347116112709, -0.11670182645320892,
                         0.06749539077281952))
    n = n.to(tl.float32)
    large = n * 0.693145751953125
    high = large + s
    rest = (s - (high - large)) + (low - (s - f))
    return high, tl.fma(s * s, p, tl.fma(n, 1.428606765330187e-06, rest))
''',
    "g_log10": '''
@triton.jit
def g_log10(x):
    """log(x) · log10(e), both in two parts; a number below the normal range is scaled first."""
    tiny = x < 1.1754943508222875e-38
    f, n = g_mantissa(tl.where(tiny, x * 16777216.0, x))
    high, low = g_log_sum(f, 0.0, tl.where(tiny, n - 24, n))
    found = tl.fma(high, 0.4342944920063019, tl.fma(low, 0.4342944920063019, high * -1.0103049952192578e-08))
    edge = tl.where(x == 0, -float("inf"), tl.where(x > 0, x, float("nan")))
    return tl.where((x > 0) & (x < float("inf")), found, edge)
''',
    "g_two_sum": '''
@triton.jit
def g_two_sum(a, b):
    """(s, e): the rounded sum of a and b, and what was rounded off (Knuth)."""
    s = a + b
    part = s - a
    return s, (a - (s - part)) + (b - part)
''',
    "g_acosh": '''
@triton.jit
def g_acosh(x):
    """log(1 + t + √(t² + 2t)) with t = x - 1, every sum in two parts; log(2x) where x is large."""
    large = x > 4096.0
    t = x - 1.0
    square = tl.fma(t, t, t + t)
    root = tl.math.sqrt_rn(square)
    root_low = tl.fma(-root, root, square) * (0.5 * g_low_reciprocal(tl.maximum(root, 1e-4)))  # 0 is for x = 1 only
    u = t + root
    sum, low = g_two_sum(1.0, u)
    low = low + ((t - (u - root)) + root_low)
    f, n = g_mantissa(tl.where(large, x, sum))
    high, low = g_log_sum(f, tl.where(large, 0.0, low * g_two_to(-n)), tl.where(large, n + 1, n))
    return tl.where(x < 1.0, float("nan"), tl.where(x < float("inf"), high + low, x))
''',
    "g_atanh": '''
@triton.jit
def g_atanh(x):
    """log(1 + 2|x| / (1 - |x|)) / 2, the quotient and the sum in two parts."""
    size = tl.abs(x)
    under = 1.0 - size
    inverse = g_low_reciprocal(under)
    u = (size + size) * inverse
    u_low = (tl.fma(-u, under, size + size) - u * ((1.0 - under) - size)) * inverse
    sum, low = g_two_sum(1.0, u)
    f, n = g_mantissa(sum)
    high, low = g_log_sum(f, (low + u_low) * g_two_to(-n), n)
    found = tl.where(size < 1.0, 0.5 * (high + low), tl.where(size == 1.0, float("inf"), float("nan")))
    return g_copysign(found, x)
''',
    "g_erfc": '''
@triton.jit
def g_erfc(x):
    """exp(-a²) · (1 + p(t)) / (1 + 2a) with a = |x| and t = (a - 4) / (a + 4), and 2 minus that where x < 0; near 0
    1 - x - x · q(x²).

    The form of Shepherd and Laframboise, Math. Comp. 36 (1981); fitted here. The exponential takes a² in two parts: its
    relative error is the absolute error of a². One step of Newton's for each of the two quotients.
    """
    size = tl.abs(x)
    q = g_polynomial(x * x, (0.12837915122509003, -0.3761257231235504, 0.11282934993505478, -0.02681720443069935,
                             0.00508402194827795, -0.0006556573789566755))
    near, near_low = g_two_sum(1.0, -x)
    near = near + tl.fma(-x, q, near_low)

    a = g_min(size, 10.2)
    inverse = g_low_reciprocal(a + 4.0)
    t = (a - 4.0) * inverse
    t = tl.fma(tl.fma(-t, a + 4.0, a - 4.0), inverse, t)
    p = g_polynomial(t, (0.23299512267112732, -0.13962112367153168, 0.015379293821752071, 0.06809670478105545,
                         -0.101033516228199, 0.09375050663948059, -0.0663451999425888, 0.03700315207242966,
                         -0.016361121088266373, 0.0054266382940113544))
    square = a * a
    high, low, n = g_exp_parts(-square)
    low = tl.fma(tl.fma(-a, a, square), high, low)
    more = tl.fma(high, p, tl.fma(low, p, low))
    over = high + more
    over_low = more - (over - high)
    under = 1.0 + 2.0 * a
    under_low = 1.0 - (under - 2.0 * a)
    inverse = g_low_reciprocal(under)
    far = over * inverse
    far = tl.fma(tl.fma(-far, under, over) + tl.fma(-far, under_low, over_low), inverse, far)
    far = g_scaled(far, n)
    return tl.where(size < 0.75, near, tl.where(x < 0, 2.0 - far, far))
''',
}
"""Helpers for the `f32` column of `lowerings.POINTWISE`, and what they share."""
