"""Names of complex arithmetic, of real tensors: conjugation changes nothing, and every element is real."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from genesis.frontend.default_dtypes import default_dtype
from genesis.frontend.recording import TensorBase, require_tensors
from genesis.ir.errors import failure
from genesis.ir.types import bool_
from genesis.ops.arithmetic import sign
from genesis.ops.comparison import where
from genesis.ops.creation import ones_like
from genesis.ops.out import into
from genesis.ops.shape import matrix_transposed, transpose

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["adjoint", "angle", "conj", "conj_physical", "imag", "isreal", "real", "resolve_conj", "resolve_neg",
           "sgn"]


def real(input: Tensor) -> Tensor:
    """The input."""
    require_tensors(input)
    return input


def imag(input: Tensor) -> Tensor:
    """An error, as torch's for real tensors: there is no imaginary part to show."""
    raise failure("imag", "imag is not implemented for tensors with non-complex dtypes.", [("input", input)])


def conj(input: Tensor) -> Tensor:
    """The input."""
    require_tensors(input)
    return input


def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The input."""
    return into(out, input)


def resolve_conj(input: Tensor) -> Tensor:
    """The input."""
    require_tensors(input)
    return input


def resolve_neg(input: Tensor) -> Tensor:
    """The input."""
    require_tensors(input)
    return input


def adjoint(input: Tensor) -> Tensor:
    """A view with the last two dimensions exchanged."""
    require_tensors(input)
    return matrix_transposed("adjoint", input)


def isreal(input: Tensor) -> Tensor:
    """True in every element."""
    return ones_like(input, dtype=bool_)


def sgn(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """-1, 0 or 1: `sign`."""
    return sign(input, out=out)


def angle(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """π where x is negative, 0 where not, NaN of NaN. Integers become floating-point.

    >>> import genesis
    >>> genesis.angle(genesis.tensor([2.0, -2.0]))
    tensor([0.0000, 3.1416])
    """
    x = input if input.spec.dtype.kind == "float" else input.to(default_dtype("float"))
    return into(out, where(x < 0, math.pi, where(x.isnan(), x.detach(), sign(x) * 0)))


class RealMethods(TensorBase):
    """Complex arithmetic's methods."""

    __slots__ = ()

    conj = conj
    conj_physical = conj_physical
    resolve_conj = resolve_conj
    resolve_neg = resolve_neg
    adjoint = adjoint
    isreal = isreal
    sgn = sgn
    angle = angle

    @property
    def real(self: Any) -> Any:
        """Itself."""
        return self

    @property
    def imag(self: Any) -> Any:
        """An error: see `genesis.imag`."""
        return imag(self)

    @property
    def H(self: Any) -> Any:
        """A matrix with its dimensions exchanged."""
        if self.spec.ndim not in (0, 2):
            raise failure("H", f"tensor.H is only supported on matrices (2-D tensors). Got {self.spec.ndim}-D tensor.",
                          [("tensor", self)], hint="use .mH for batches of matrices")
        return self if not self.spec.ndim else transpose(self, 0, 1)

    @property
    def mH(self: Any) -> Any:
        """A view with the last two dimensions exchanged."""
        return matrix_transposed("mH", self)

    def conj_physical_(self: Any) -> Any:
        """Itself."""
        return self

    def sgn_(self: Any) -> Any:
        """`sgn` in place."""
        return self.sign_()
