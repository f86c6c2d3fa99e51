"""What each kind of scan is, as text: its states, how two of them combine, and what is read from one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


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
