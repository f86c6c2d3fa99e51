"""What distributions of a user's own are written with: equal shapes, logits, cached attributes, triangles."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import update_wrapper
from typing import Any

import genesis
from genesis.distributions.distribution import broadcast_all
from genesis.frontend.tensor import Tensor
from genesis.ir.suggest import suggesting

__all__ = ["broadcast_all", "clamp_probs", "lazy_property", "logits_to_probs", "probs_to_logits", "tril_matrix_to_vec",
           "vec_to_tril_matrix"]

euler_constant = 0.57721566490153286060
"""Euler and Mascheroni's constant."""


def logits_to_probs(logits: Tensor, is_binary: bool = False) -> Tensor:
    """Probabilities of logits: by `sigmoid` of each, or by `softmax` over the last dimension.

    >>> logits_to_probs(genesis.tensor([0.0]), is_binary=True)
    tensor([0.5000])
    """
    return genesis.sigmoid(logits) if is_binary else genesis.softmax(logits, -1)


def clamp_probs(probs: Tensor) -> Tensor:
    """Probabilities of at least eps and at most 1 - eps, of which a logarithm is finite."""
    eps = genesis.finfo(probs.dtype).eps
    return probs.clamp(eps, 1 - eps)


def probs_to_logits(probs: Tensor, is_binary: bool = False) -> Tensor:
    """Logits of probabilities: log(p / (1 - p)) of each, or log(p) of the classes along the last dimension.

    >>> probs_to_logits(genesis.tensor([0.5]), is_binary=True)
    tensor([0.])
    """
    kept = clamp_probs(probs)
    return kept.log() - (-kept).log1p() if is_binary else kept.log()


class lazy_property:
    """A property that is worked out when it is first read, with gradients, and is an attribute of the instance then.

    >>> class Scale:
    ...     @lazy_property
    ...     def squared(self):
    ...         print("worked out")
    ...         return 4.0
    >>> scale = Scale()
    >>> scale.squared, scale.squared
    worked out
    (4.0, 4.0)
    """

    def __init__(self, wrapped: Callable[[Any], Any]):
        self.wrapped = wrapped
        update_wrapper(self, wrapped)  # type: ignore[arg-type]

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return property(self.wrapped)
        with genesis.enable_grad():
            value = self.wrapped(instance)
        setattr(instance, self.wrapped.__name__, value)
        return value


def tril_matrix_to_vec(mat: Tensor, diag: int = 0) -> Tensor:
    """The elements on and below a diagonal of (*, n, n), row after row.

    Raises:
        ValueError: there is no such diagonal.
    """
    n = mat.shape[-1]
    if not -n <= diag < n:
        raise ValueError(f"diag ({diag}) provided is outside [{-n}, {n - 1}].")
    rows, columns = genesis.tril_indices(n, n, diag, device=mat.device)
    return mat[..., rows, columns]


def vec_to_tril_matrix(vec: Tensor, diag: int = 0) -> Tensor:
    """The matrix, (*, n, n), of which `tril_matrix_to_vec` gives these elements; 0 above.

    Raises:
        ValueError: so many elements are on and below that diagonal of no matrix.
    """
    count = vec.shape[-1]
    n = round((math.sqrt((1 + 2 * diag) ** 2 + 8 * count + 4 * abs(diag) * (diag + 1)) - (1 + 2 * diag)) / 2)
    rows, columns = genesis.tril_indices(n, n, diag, device=vec.device)
    if len(rows) != count:
        raise ValueError(f"The size of last dimension is {count} which cannot be expressed as the lower triangular "
                         "part of a square D x D matrix.")
    mat = vec.new_zeros((*vec.shape[:-1], n, n))
    mat[..., rows, columns] = vec
    return mat


__getattr__ = suggesting(__name__)
