"""Parametrizations: a weight as length and direction, of spectral norm 1, with orthonormal rows or columns."""

from __future__ import annotations

from typing import Any

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.frontend.writes import assign_all
from genesis.linalg import matrix_exp, qr, solve
from genesis.nn.functional import normalize
from genesis.nn.modules.module import Module
from genesis.nn.utils.parametrize import register_parametrization
from genesis.ops.conversion import copied
from genesis.ops.linalg import mv
from genesis.ops.norms import vector_norm
from genesis.ops.parts import cat
from genesis.ops.ranges import eye

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


def lengths_except(weight: Tensor, dim: int | None) -> Tensor:
    """The norms over all dimensions but one, kept as sizes of 1; over all for None or -1."""
    if dim is None or dim == -1:
        return vector_norm(weight)
    return vector_norm(weight, dim=[d for d in range(weight.ndim) if d != dim % weight.ndim], keepdim=True)


class _WeightNorm(Module):
    def __init__(self, dim: int | None):
        super().__init__()
        self.dim = dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        """Length times direction."""
        return weight_v * (weight_g / lengths_except(weight_v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """A weight's lengths, and itself."""
        return lengths_except(weight, self.dim), weight


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """A weight as length and direction (Salimans and Kingma 2016).

    Args:
        module: has the weight.
        name: its name.
        dim: each slice along it has a length of its own; None for one length of all.

    >>> from genesis import nn
    >>> layer = weight_norm(nn.Linear(3, 2))
    >>> [tuple(p.shape) for p in layer.parametrizations.weight.parameters()]
    [(2, 1), (2, 3)]
    """
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    """Divides by the largest singular value, which power iterations find; see `spectral_norm`."""

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float):
        super().__init__()
        self.dim, self.n_power_iterations, self.eps = dim % weight.ndim, n_power_iterations, eps
        if weight.ndim > 1:
            with no_grad():
                matrix = self._matrix(weight)
                u, v = matrix.new_empty(matrix.shape[0]).normal_(), matrix.new_empty(matrix.shape[1]).normal_()
                self.register_buffer("_u", normalize(u, dim=0, eps=eps))
                self.register_buffer("_v", normalize(v, dim=0, eps=eps))
                self._iterate(matrix, 15)

    def _matrix(self, weight: Tensor) -> Tensor:
        return weight.movedim(self.dim, 0).flatten(1)

    def _iterate(self, matrix: Tensor, times: int) -> None:
        u, v = self._u, self._v
        for _ in range(times):
            u = normalize(mv(matrix, v), dim=0, eps=self.eps)
            v = normalize(mv(matrix.t(), u), dim=0, eps=self.eps)
        assign_all([self._u, self._v], [copied(self._u, u), copied(self._v, v)])

    def forward(self, weight: Tensor) -> Tensor:
        """The weight over its spectral norm; in training the vectors are improved first."""
        if weight.ndim == 1:
            return normalize(weight, dim=0, eps=self.eps)
        matrix = self._matrix(weight)
        if self.training:
            with no_grad():
                self._iterate(matrix.detach(), self.n_power_iterations)
        u, v = self._u.clone(), self._v.clone()
        return weight / u.dot(mv(matrix, v))

    def right_inverse(self, value: Tensor) -> Tensor:
        """The value: its norm is taken to be 1."""
        return value


def spectral_norm(module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> Any:
    """A weight of spectral norm 1 (Miyato et al. 2018).

    Args:
        module: has the weight.
        name: its name.
        n_power_iterations: each time that the weight is read in training.
        eps: least norm of the vectors.
        dim: of the outputs; 0, of transposed convolutions 1.
    """
    if n_power_iterations <= 0:
        raise ValueError("Expected n_power_iterations to be positive, but got "
                         f"n_power_iterations={n_power_iterations}")
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations,
                                                                outputs_of(module) if dim is None else dim, eps))


def outputs_of(module: Any) -> int:
    """The dimension of a weight that is the outputs'."""
    return 1 if type(module).__name__.startswith("ConvTranspose") else 0


class _Orthogonal(Module):
    """Orthonormal columns, or rows of what is wider than tall; see `orthogonal`.

    Attributes:
        base: a square orthogonal matrix that the map's result is multiplied by, where there is one.
    """

    def __init__(self, how: str, shape: tuple[int, ...], use_trivialization: bool):
        super().__init__()
        self.how, self.shape = how, shape
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, weight: Tensor) -> Tensor:
        """Q of the original."""
        wide = weight.shape[-2] < weight.shape[-1]
        x = weight.mT if wide else weight
        q = self._reflections(x) if self.how == "householder" else self._rotation(x)
        base = getattr(self, "base", None)
        if base is not None:
            q = base @ q
        return q.mT if wide else q

    def right_inverse(self, weight: Tensor) -> Tensor:
        """The original whose Q is nearest to a weight; with a base, that becomes the weight's.

        Raises:
            NotImplementedError: an exponential or Cayley's map without a base.
        """
        if weight.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. "
                             f"Got a tensor of shape {weight.shape}.")
        wide = weight.shape[-2] < weight.shape[-1]
        tall = weight.mT if wide else weight
        if not hasattr(self, "base"):
            if self.how != "householder":
                raise NotImplementedError("It is not possible to assign to the matrix exponential or the Cayley "
                                          "parametrizations when use_trivialization=False.")
            found = _reflectors(_rotated(tall)[..., :tall.shape[-1]])
            return found.mT if wide else found
        self.base = _rotated(tall)
        return -eye(*weight.shape[-2:], dtype=weight.dtype, device=weight.device).expand(weight.shape)

    def _rotation(self, x: Tensor) -> Tensor:
        """The exponential, or Cayley's map (I + A/2) (I - A/2)⁻¹, of the skew-symmetric matrix in a lower triangle."""
        n, k = x.shape[-2:]
        a = x.tril(-1)
        if n != k:
            a = a.new_zeros((*a.shape[:-2], n, n)).slice_scatter(a, -1, 0, k)
        a = a - a.mT
        unit = eye(n, dtype=x.dtype, device=x.device)
        q = matrix_exp(a) if self.how == "matrix_exp" else solve(unit - a * 0.5, unit + a * 0.5)
        return q[..., :k]

    @staticmethod
    def _reflections(x: Tensor) -> Tensor:
        """The product of Householder's reflections whose vectors lie below the diagonal."""
        n, k = x.shape[-2:]
        below = x.tril(-1)
        tau = 2.0 / (1.0 + (below * below).sum(-2))
        q = eye(n, k, dtype=x.dtype, device=x.device)
        unit = eye(n, k, dtype=x.dtype, device=x.device)
        vectors = below + unit
        for i in reversed(range(k)):
            v = vectors[..., i:i + 1]
            q = q - tau[..., i:i + 1, None] * v @ (v.mT @ q)
        return q * x.diagonal(dim1=-2, dim2=-1).sign().unsqueeze(-2)


def orthogonal(module: Any, name: str = "weight", orthogonal_map: str | None = None, *,
               use_trivialization: bool = True) -> Any:
    """A weight with orthonormal columns, or rows where it is wider than tall.

    Args:
        module: has the weight, of two dimensions at least. Training starts from an orthonormal matrix near it.
        name: its name.
        orthogonal_map: "matrix_exp", "cayley" or "householder"; by default the first of square weights, else the last.
        use_trivialization: the map is around the initial matrix. Without it, the first two cannot be assigned to, and
            start from the map of the weight, not from near it.

    >>> import genesis
    >>> layer = orthogonal(genesis.nn.Linear(4, 4))
    >>> genesis.allclose(layer.weight @ layer.weight.T, genesis.eye(4), atol=1e-5)
    True
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    how = orthogonal_map or ("matrix_exp" if weight.shape[-2] == weight.shape[-1] else "householder")
    if how not in ("matrix_exp", "cayley", "householder"):
        raise ValueError('orthogonal_map has to be one of "matrix_exp", "cayley", "householder". '
                         f"Got: {orthogonal_map}")
    made = _Orthogonal(how, weight.shape, use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)


def _rotated(tall: Tensor) -> Tensor:
    """A square orthogonal matrix whose first columns are those of QR, with a positive diagonal of R."""
    full, upper = qr(tall, mode="complete")
    signs = upper.diagonal(dim1=-2, dim2=-1).sign()
    return cat([full[..., :tall.shape[-1]] * signs.unsqueeze(-2), full[..., tall.shape[-1]:]], -1)


def _reflectors(q: Tensor) -> Tensor:
    """The lower triangle of reflections' vectors, and signs on the diagonal, whose product is this orthonormal
    matrix."""
    _n, k = q.shape[-2:]
    rest, found = q.clone(), q.new_zeros(q.shape)
    for i in range(k):
        column = rest[..., i:, i]
        sign = column[..., :1].sign()
        sign = sign + (sign == 0).to(sign.dtype)
        v = column.clone()
        v[..., :1] = column[..., :1] + sign * vector_norm(column, dim=-1, keepdim=True)
        v = v / v[..., :1]
        found[..., i + 1:, i] = v[..., 1:]
        found[..., i, i] = -sign[..., 0]
        tau = 2.0 / (v * v).sum(-1, keepdim=True).unsqueeze(-1)
        block = rest[..., i:, :]
        rest[..., i:, :] = block - tau * v.unsqueeze(-1) @ (v.unsqueeze(-2) @ block)
    return found
