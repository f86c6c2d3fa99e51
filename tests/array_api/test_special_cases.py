"""Element-wise functions at the edges: NaN, infinities, zeros of both signs, subnormal and huge numbers.

The standard's tables of special cases are what C and IEEE 754 say, and numpy follows them; so numpy is asked.
"""

from __future__ import annotations

import numpy as np
import pytest

from genesis import array_api as xp

EDGES = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, 1.5, -1.5, 700.0, -800.0, 1e17,
         5e-324, 1e-310, -1e-310, 1e308, -1e308]
INTEGERS = [-128, 127, 0, 1, 2, 3, 5, 7, -1, -2, -3, -7]

def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


OF_ONE = words("abs acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor isfinite isinf isnan log log1p log2 "
               "log10 logical_not negative positive reciprocal round sign signbit sin sinh square sqrt tan tanh trunc")
OF_TWO = words("add atan2 copysign divide equal floor_divide greater greater_equal hypot less less_equal logaddexp "
               "logical_and logical_or logical_xor maximum minimum multiply nextafter not_equal pow remainder subtract")
OF_INTEGERS = words("abs ceil floor isfinite isinf isnan negative positive round sign square trunc bitwise_invert")
OF_TWO_INTEGERS = words("add subtract multiply maximum minimum equal less floor_divide remainder bitwise_and "
                        "bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift pow")


def assert_same(got: np.ndarray, want: np.ndarray) -> None:
    """NaN, infinities, zeros and their signs are the same; other numbers are close, subnormal ones to a few steps."""
    assert got.dtype == want.dtype
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, want)
        return
    limits = np.finfo(got.dtype)
    step = float(limits.smallest_normal * limits.eps)
    np.testing.assert_allclose(got, want, rtol=50 * float(limits.eps), atol=4 * step)
    zero = (want == 0) & (got == 0)
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(want[zero]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", OF_ONE)
def test_one_operand(name: str, dtype: type) -> None:
    with np.errstate(all="ignore"):
        x = np.array(EDGES).astype(dtype)
        assert_same(getattr(xp, name)(xp.asarray(x)).numpy(), getattr(np, name)(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", OF_TWO)
def test_every_pair_of_operands(name: str, dtype: type) -> None:
    with np.errstate(all="ignore"):
        x, y = (a.reshape(-1) for a in np.meshgrid(*[np.array(EDGES).astype(dtype)] * 2))
        if name == "remainder":  # torch's kernel gives NaN where the quotient of two numbers is too large for the dtype
            kept = np.isfinite(x / y) | ~np.isfinite(x) | ~np.isfinite(y) | (y == 0)
            x, y = x[kept], y[kept]
        assert_same(getattr(xp, name)(xp.asarray(x), xp.asarray(y)).numpy(), getattr(np, name)(x, y))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("name", OF_INTEGERS)
def test_one_integer(name: str, dtype: type) -> None:
    x = integers(dtype)
    assert_same(getattr(xp, name)(xp.asarray(x)).numpy(), getattr(np, name)(x))


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64, np.uint8])
@pytest.mark.parametrize("name", OF_TWO_INTEGERS)
def test_every_pair_of_integers(name: str, dtype: type) -> None:
    """Sums wrap around; what the standard leaves open is left out: division by 0, negative shifts and exponents."""
    x, y = (a.reshape(-1) for a in np.meshgrid(*[integers(dtype)] * 2))
    if name in ("floor_divide", "remainder"):
        kept = (y != 0) & ~((x == np.iinfo(dtype).min) & (y + 1 == 0))
    else:
        kept = (y >= 0) & (y < 8) if name in ("pow", "bitwise_left_shift", "bitwise_right_shift") else y == y
    with np.errstate(all="ignore"):
        assert_same(getattr(xp, name)(xp.asarray(x[kept]), xp.asarray(y[kept])).numpy(),
                    getattr(np, name)(x[kept], y[kept]))


def integers(dtype: type) -> np.ndarray:
    """Small ones and the dtype's limits."""
    limits = np.iinfo(dtype)
    return np.array([limits.min, limits.max, *(n for n in INTEGERS if limits.min < n < limits.max)], dtype)
