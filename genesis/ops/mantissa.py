"""Floating-point numbers taken apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.frontend.recording import TensorBase
from genesis.ir.errors import failure
from genesis.ir.types import float64, int32
from genesis.ops import return_types
from genesis.ops.common import to_dtype
from genesis.ops.comparison import where
from genesis.ops.exponential import exp2, log2
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["frexp"]


def frexp(input: Tensor, *, out: tuple[Tensor, Tensor] | None = None) -> return_types.MantissaExponent:
    """input = mantissa · 2^exponent with 1/2 ≤ |mantissa| < 1; 0, infinities and NaN are their own mantissas.

    Returns:
        (mantissa, exponent): of the input's dtype, and int32.

    Raises:
        RuntimeError: the input is not floating-point.

    >>> import genesis
    >>> genesis.frexp(genesis.tensor([8.0, -0.75])).exponent
    tensor([4, 0], dtype=genesis.int32)
    """
    if input.spec.dtype.kind != "float":
        raise failure("frexp", "torch.frexp() only supports floating-point dtypes", [("input", input)])
    exact = to_dtype(input, float64)
    size = exact.detach().abs()
    usual = (size > 0) & size.isfinite()
    small = size < 2.0**-1000  # subnormal numbers, or nearly: brought up before their logarithm is taken
    scaled = where(usual, where(small, size * 2.0**200, size), 1.0)
    power = log2(scaled).floor() + 1
    rest = scaled * exp2(-power)
    power = power + where(rest >= 1, 1.0, where(rest < 0.5, -1.0, 0.0)) - where(small, 200.0, 0.0)
    power = where(usual, power, 0.0)
    half = (power / 2).floor()
    mantissa = exact * exp2(-half) * exp2(half - power)
    return into(out, return_types.frexp(to_dtype(mantissa, input.spec.dtype), to_dtype(power, int32)))


class MantissaMethods(TensorBase):
    """`frexp` as a method."""

    __slots__ = ()

    frexp = frexp
