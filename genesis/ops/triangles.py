"""Triangles of matrices: copies with zeros on the other side of a diagonal."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, emit, read, wrap
from genesis.frontend.writes import update
from genesis.ir.errors import failure
from genesis.ir.numbers import number
from genesis.ir.ops.triangle import triangle
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["tril", "triu"]


def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The lower triangle of the last two dimensions, zeros above the diagonal."""
    return into(out, _triangle(input, diagonal, upper=False))


def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The upper triangle of the last two dimensions, zeros below the diagonal."""
    return into(out, _triangle(input, diagonal, upper=True))


def _triangle(input: Tensor, diagonal: int, upper: bool) -> Tensor:
    if input.spec.ndim < 2:
        raise failure("triu" if upper else "tril", "the input must have at least 2 dimensions", [("input", input)])
    return wrap(emit(triangle, (read(input), number(operator.index(diagonal))), (upper,)))


class TriangleMethods(TensorBase):
    """The methods of a tensor that are the functions above."""

    __slots__ = ()

    tril = tril
    triu = triu

    def tril_(self: Any, diagonal: int = 0) -> Tensor:
        """`tril` in place."""
        update(self, lambda: read(tril(self, diagonal)))
        return self

    def triu_(self: Any, diagonal: int = 0) -> Tensor:
        """`triu` in place."""
        update(self, lambda: read(triu(self, diagonal)))
        return self
