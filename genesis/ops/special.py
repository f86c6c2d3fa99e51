"""Special functions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, emit, read, require_tensors, wrap
from genesis.ir.errors import failure
from genesis.ir.numbers import number
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import special as s
from genesis.ops.common import operands, pointwise_op, result_type
from genesis.ops.inplace import write, write_back
from genesis.ops.out import into
from genesis.ops.ranges import arange

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["digamma", "erf", "erfc", "erfinv", "i0", "lgamma", "logit", "mvlgamma", "polygamma", "sigmoid"]


def sigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 / (1 + exp(-x)), element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.sigmoid, input, floating=True)
    return found if out is None else into(out, found)


def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Error function, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(p.erf, input, floating=True)
    return found if out is None else into(out, found)


def erfc(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """1 - erf(x), exact for large x. Integers become floating-point."""
    found: Tensor = pointwise_op(p.erfc, input, floating=True)
    return found if out is None else into(out, found)


def erfinv(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of erf: NaN outside [-1, 1]. Integers become floating-point."""
    found: Tensor = pointwise_op(s.erfinv, input, floating=True)
    return found if out is None else into(out, found)


def lgamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """log|Γ(x)|, element by element. Integers become floating-point."""
    found: Tensor = pointwise_op(s.lgamma, input, floating=True)
    return found if out is None else into(out, found)


def digamma(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The derivative of log|Γ(x)|. Integers become floating-point."""
    found: Tensor = pointwise_op(s.digamma, input, floating=True)
    return found if out is None else into(out, found)


def i0(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The modified Bessel function of the first kind of order 0. Integers become floating-point."""
    found: Tensor = pointwise_op(s.i0, input, floating=True)
    return found if out is None else into(out, found)


def logit(input: Tensor, eps: float | None = None, *, out: Tensor | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of sigmoid; x is kept within [eps, 1 - eps] first where eps is given. Without it
    the result is NaN outside [0, 1]. Integers become floating-point.

    >>> import genesis
    >>> genesis.logit(genesis.tensor([0.5, 1.0]), eps=1e-6)
    tensor([ 0.0000, 13.8023])
    """
    nodes = operands("logit", (input,), floating=True)
    return into(out, wrap(emit(s.logit, nodes if eps is None else (*nodes, number(float(eps))))))


def polygamma(n: int, input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The n-th derivative of digamma, element by element; n = 0 is digamma. Integers become floating-point.

    >>> import genesis
    >>> genesis.polygamma(1, genesis.tensor([1.0]))
    tensor([1.6449])
    """
    if n < 0:
        raise failure("polygamma", f"polygamma(n, x) does not support negative n, such as {n}.", [("input", input)])
    if n == 0:
        return into(out, digamma(input))
    return into(out, wrap(emit(s.polygamma, operands("polygamma", (input,), floating=True), (n,))))


def mvlgamma(input: Tensor, p: int, *, out: Tensor | None = None) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p: Σ lgamma(x - i/2) and a constant.

    Source: Muirhead, Aspects of Multivariate Statistical Theory (1982), theorem 2.1.12.
    """
    require_tensors(input)
    if p < 1:
        raise failure("mvlgamma", f"p has to be greater than or equal to 1, not {p}", [("input", input)])
    halves = arange(p, dtype=result_type(input, 0.5), device=input.spec.device) * -0.5
    return into(out, lgamma(input.unsqueeze(-1) + halves).sum(-1) + p * (p - 1) / 4 * math.log(math.pi))


class SpecialMethods(TensorBase):
    """Special functions as methods."""

    __slots__ = ()

    sigmoid = sigmoid
    erf = erf
    erfc = erfc
    erfinv = erfinv
    lgamma = lgamma
    digamma = digamma
    i0 = i0
    logit = logit
    mvlgamma = mvlgamma

    def sigmoid_(self: Any) -> Tensor:
        """`sigmoid` in place."""
        return write(self, p.sigmoid, floating=True)

    def erf_(self: Any) -> Tensor:
        """`erf` in place."""
        return write(self, p.erf, floating=True)

    def erfc_(self: Any) -> Tensor:
        """`erfc` in place."""
        return write(self, p.erfc, floating=True)

    def erfinv_(self: Any) -> Tensor:
        """`erfinv` in place."""
        return write(self, s.erfinv, floating=True)

    def lgamma_(self: Any) -> Tensor:
        """`lgamma` in place."""
        return write(self, s.lgamma, floating=True)

    def digamma_(self: Any) -> Tensor:
        """`digamma` in place."""
        return write(self, s.digamma, floating=True)

    def i0_(self: Any) -> Tensor:
        """`i0` in place."""
        return write(self, s.i0, floating=True)

    def logit_(self: Any, eps: float | None = None) -> Tensor:
        """`logit` in place."""
        return write_back("logit_", self, lambda: read(logit(self, eps)))

    def polygamma(self: Any, n: int) -> Tensor:
        """The n-th derivative of digamma."""
        return polygamma(n, self)

    def polygamma_(self: Any, n: int) -> Tensor:
        """`polygamma` in place."""
        return write_back("polygamma_", self, lambda: read(polygamma(n, self)))

    def mvlgamma_(self: Any, p: int) -> Tensor:
        """`mvlgamma` in place."""
        return write_back("mvlgamma_", self, lambda: read(mvlgamma(self, p)))
