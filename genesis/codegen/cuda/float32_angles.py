"""Functions of angles in float32: a part of `float32_functions`, which says how they are made."""

from __future__ import annotations

from typing import Final

ANGLES: Final[dict[str, str]] = {
    "g_tan": '''
@triton.jit
def g_tan(x):
    """In float64: near its poles a float32 of the reduced argument is not enough."""
    return libdevice.tan(x.to(tl.float64)).to(tl.float32)
''',
    "g_asin_of": '''
@triton.jit
def g_asin_of(x):
    """(s, q, far): asin(s) = s + s · q, of s = x, or s = √((1 - |x|) / 2) where |x| is far from 0."""
    far = tl.abs(x) > 0.5
    square = tl.where(far, tl.fma(tl.abs(x), -0.5, 0.5), x * x)
    s = tl.where(far, tl.math.sqrt_rn(square), x)
    p = g_polynomial(square, (0.16666752099990845, 0.074953094124794, 0.04546914994716644, 0.024184778332710266,
                              0.042158305644989014))
    return s, square * p, far
''',
    "g_asin": '''
@triton.jit
def g_asin(x):
    """x + x · q, or π/2 - 2 asin(√((1 - |x|) / 2))."""
    s, q, far = g_asin_of(x)
    end = 1.5707963705062866 - 2.0 * s
    rest = (1.5707963705062866 - end) - 2.0 * s
    end = end + tl.fma(-2.0 * s, q, rest - 4.371138828673793e-08)
    return tl.where(far, tl.where(x < 0, -end, end), tl.fma(s, q, s))
''',
    "g_acos": '''
@triton.jit
def g_acos(x):
    """π/2 - asin(x) in the middle, 2 asin(√((1 - |x|) / 2)) at 1, π minus that at -1."""
    s, q, far = g_asin_of(x)
    middle = 1.5707963705062866 - (s + tl.fma(s, q, 4.371138828673793e-08))
    right = tl.fma(2.0 * s, q, 2.0 * s)
    left = 3.1415927410125732 - (2.0 * s + tl.fma(2.0 * s, q, 8.742277657347586e-08))
    return tl.where(far, tl.where(x < 0, left, right), middle)
''',
    "g_atan_factor": '''
@triton.jit
def g_atan_factor(t):
    """q: atan(t) = t + t · q for |t| ≤ 1."""
    square = t * t
    return square * g_polynomial(square, (-0.33333298563957214, 0.1999853104352951, -0.14264051616191864,
                                          0.10951174795627594, -0.08400475233793259, 0.05790654569864273,
                                          -0.031127002090215683, 0.010887361131608486, -0.0017875476041808724))
''',
    "g_atan": '''
@triton.jit
def g_atan(x):
    """x + x · q, or π/2 - atan(1 / |x|) with x's sign."""
    far = tl.abs(x) > 1.0
    size = tl.minimum(tl.abs(x), 1e30)
    inverse = g_low_reciprocal(size)
    t = tl.where(far, -tl.fma(tl.fma(-size, inverse, 1.0), inverse, inverse), tl.abs(x))  # one step of Newton's
    q = g_atan_factor(t)
    angle = 1.5707963705062866 + t
    rest = (t - (angle - 1.5707963705062866)) - 4.371138828673793e-08
    return g_copysign(tl.where(far, angle + tl.fma(t, q, rest), tl.fma(t, q, t)), x)
''',
    "g_atan2": '''
@triton.jit
def g_atan2(y, x):
    """atan of the smaller size over the larger, added to the nearest multiple of π/2, with y's sign."""
    steep = tl.abs(y) > tl.abs(x)
    left = x.to(tl.int32, bitcast=True) < 0  # -0 is
    over = tl.where(steep, tl.abs(x), tl.abs(y))
    under = tl.where(steep, tl.abs(y), tl.abs(x))
    t = tl.where(over == under, tl.where(under == 0, 0.0, 1.0), tl.math.div_rn(over, under))  # ∞ / ∞ is 1 here
    t = tl.where(steep != left, -t, t)
    start = tl.where(steep, 1.5707963705062866, tl.where(left, 3.1415927410125732, 0.0))
    start_low = tl.where(steep, -4.371138828673793e-08, tl.where(left, -8.742277657347586e-08, 0.0))
    angle = start + t
    rest = (t - (angle - start)) + start_low
    return g_copysign(angle + tl.fma(t, g_atan_factor(t), rest), y)
''',
    "g_hypot": '''
@triton.jit
def g_hypot(a, b):
    """√(a² + b²), both scaled by a power of two where a square would be too large or too small."""
    a = tl.abs(a)
    b = tl.abs(b)
    large = g_max(a, b)
    up = tl.where(large > 1e18, 8.470329472543003e-22, tl.where(large < 1e-18, 1.2676506002282294e30, 1.0))
    down = tl.where(large > 1e18, 1.1805916207174113e21, tl.where(large < 1e-18, 7.888609052210118e-31, 1.0))
    small = g_min(a, b) * up
    found = tl.math.sqrt_rn(tl.fma(large * up, large * up, small * small)) * down
    return tl.where((a == float("inf")) | (b == float("inf")), float("inf"), found)
''',
}
"""tan, the inverse functions and hypot."""
