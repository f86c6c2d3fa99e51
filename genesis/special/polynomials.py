"""Orthogonal polynomials, each by its recurrence of three terms: p(n+1) = (a + b x) p(n) - c p(n-1).

Source: Abramowitz and Stegun, Handbook of Mathematical Functions (1964), table 22.7.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import is_foreign, not_a_tensor
from genesis.ops.comparison import where
from genesis.ops.out import into
from genesis.special.upcast import Operand, in_float64

Recurrence = Callable[[int], tuple[float, float, float]]


def _twice(n: int) -> tuple[float, float, float]:
    return 0.0, 2.0, 1.0


def _shifted(n: int) -> tuple[float, float, float]:
    return -2.0, 4.0, 1.0


def _polynomial(input: Operand, degree: Operand, first: tuple[float, float], rule: Recurrence,
                out: Tensor | None) -> Tensor:
    """p(0) = 1, p(1) = first[0] + first[1] · x, and the rule; 0 for negative degrees. No gradients, as in torch.

    A degree that is a tensor is looked at: its largest element says how far to go.
    """
    for given in (input, degree):
        if is_foreign(given):
            raise not_a_tensor(given)
    x = input.detach() if isinstance(input, Tensor) else input
    degrees: Any = degree.detach() if isinstance(degree, Tensor) else degree
    most = int(degrees.max().item()) if isinstance(degrees, Tensor) and degrees.spec.numel else degrees
    most = int(most) if not isinstance(most, Tensor) else -1

    def formula(x: Tensor, n: Tensor) -> Tensor:
        result = x * 0 + n * 0
        before, now = result, result + 1
        for k in range(most + 1):
            result = where(n.trunc() == k, now, result)
            a, b, c = (*first, 0.0) if k == 0 else rule(k)
            before, now = now, (a + b * x) * now - c * before
        return result
    return into(out, in_float64(formula, x, degrees))


def chebyshev_polynomial_t(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev's polynomial of the first kind: cos(n arccos x).

    >>> import genesis
    >>> genesis.special.chebyshev_polynomial_t(genesis.tensor([0.0, 0.5, 1.0]), 2)
    tensor([-1.0000, -0.5000,  1.0000])
    """
    return _polynomial(input, n, (0.0, 1.0), _twice, out)


def chebyshev_polynomial_u(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev's polynomial of the second kind."""
    return _polynomial(input, n, (0.0, 2.0), _twice, out)


def chebyshev_polynomial_v(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev's polynomial of the third kind."""
    return _polynomial(input, n, (-1.0, 2.0), _twice, out)


def chebyshev_polynomial_w(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev's polynomial of the fourth kind."""
    return _polynomial(input, n, (1.0, 2.0), _twice, out)


def shifted_chebyshev_polynomial_t(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev's polynomial of the first kind at 2x - 1."""
    return _polynomial(input, n, (-1.0, 2.0), _shifted, out)


def shifted_chebyshev_polynomial_u(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev's polynomial of the second kind at 2x - 1."""
    return _polynomial(input, n, (-2.0, 4.0), _shifted, out)


def shifted_chebyshev_polynomial_v(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev's polynomial of the third kind at 2x - 1."""
    return _polynomial(input, n, (-3.0, 4.0), _shifted, out)


def shifted_chebyshev_polynomial_w(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Chebyshev's polynomial of the fourth kind at 2x - 1."""
    return _polynomial(input, n, (-1.0, 4.0), _shifted, out)


def hermite_polynomial_h(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """The physicists' Hermite polynomial."""
    return _polynomial(input, n, (0.0, 2.0), lambda k: (0.0, 2.0, 2.0 * k), out)


def hermite_polynomial_he(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """The probabilists' Hermite polynomial."""
    return _polynomial(input, n, (0.0, 1.0), lambda k: (0.0, 1.0, float(k)), out)


def laguerre_polynomial_l(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Laguerre's polynomial."""
    return _polynomial(input, n, (1.0, -1.0), lambda k: ((2 * k + 1) / (k + 1), -1 / (k + 1), k / (k + 1)), out)


def legendre_polynomial_p(input: Operand, n: Operand, *, out: Tensor | None = None) -> Tensor:
    """Legendre's polynomial."""
    return _polynomial(input, n, (0.0, 1.0), lambda k: (0.0, (2 * k + 1) / (k + 1), k / (k + 1)), out)
