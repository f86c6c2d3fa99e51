"""Covariance and correlation of variables, and distances between whole tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.frontend.recording import TensorBase, read, require_tensors
from genesis.ir.errors import failure
from genesis.ops.common import axis_in, result_type, to_dtype
from genesis.ops.comparison import where
from genesis.ops.inplace import write_back
from genesis.ops.norms import norm
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["corrcoef", "cov", "dist", "renorm"]


def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None,
        aweights: Tensor | None = None) -> Tensor:
    """Covariances of the variables in the rows, of observations in the columns.

    Args:
        input: (variables, observations), or the observations of one variable, for which the variance comes back.
        correction: the sum is over observations minus this.
        fweights: integers: how often each observation was made.
        aweights: how much each observation counts.

    Raises:
        RuntimeError: more than two dimensions, or weights that do not fit or are negative.

    >>> import genesis
    >>> genesis.cov(genesis.tensor([[0.0, 1.0, 2.0], [2.0, 1.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    require_tensors(input, fweights, aweights)
    ndim = input.spec.ndim
    if ndim > 2:
        raise failure("cov", f"expected input to have two or fewer dimensions but got an input with {input.spec.ndim} "
                      "dimensions", [("input", input)])
    x = input.reshape(1, -1) if input.spec.ndim < 2 else input
    if x.spec.dtype.kind != "float":
        x = x.float()
    dtype = x.spec.dtype if aweights is None else result_type(x, aweights)
    x, count, weight = to_dtype(x, dtype), x.spec.shape[1], None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        if given.spec.ndim > 1 or given.spec.numel != count:
            raise failure("cov", f"expected {name} to have the same numel as there are observations in the input but "
                          f"got {given.spec.numel} != {count}", [("input", input), (name, given)])
        if (given.spec.dtype.kind == "float") != (name == "aweights"):
            raise failure("cov", f"expected {name} to have {'floating point' if name == 'aweights' else 'integral'} "
                          f"dtype but got {name} with {given.spec.dtype!r} dtype", [(name, given)])
        if bool((given < 0).any()):
            raise failure("cov", f"{name} cannot be negative", [(name, given)])
        weight = given if weight is None else weight * given
    if weight is None:
        centred = x - x.mean(1, keepdim=True)
        return (centred @ centred.mT / max(count - correction, 0)).squeeze()
    weight = to_dtype(weight, dtype)
    total = weight.sum()
    centred = x - (x * weight).sum(1, keepdim=True) / total
    lost = 1 if aweights is None else (weight * to_dtype(aweights, dtype)).sum() / total
    return (centred * weight @ centred.mT / (total - correction * lost).clamp(min=0)).squeeze()


def corrcoef(input: Tensor) -> Tensor:
    """Pearson's correlations of the variables in the rows: `cov` over the square roots of the variances.

    >>> import genesis
    >>> genesis.corrcoef(genesis.tensor([[0.0, 1.0, 2.0], [4.0, 2.0, 0.0]]))
    tensor([[ 1., -1.],
            [-1.,  1.]])
    """
    found = cov(input)
    if found.spec.ndim == 0:
        return found / found
    scale = found.diagonal().sqrt()
    return (found / scale.unsqueeze(1) / scale.unsqueeze(0)).clamp(-1, 1)


def dist(input: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """The p-norm of the difference.

    >>> import genesis
    >>> genesis.dist(genesis.tensor([3.0, 0.0]), genesis.tensor([0.0, 4.0]))
    tensor(5.)
    """
    return norm(input - other, p)


def renorm(input: Tensor, p: float, dim: int, maxnorm: float, *, out: Tensor | None = None) -> Tensor:
    """Slices along `dim` whose p-norm is above maxnorm are scaled down to it.

    >>> import genesis
    >>> genesis.renorm(genesis.tensor([[3.0, 4.0], [0.0, 1.0]]), 2, 0, 1.0)
    tensor([[0.6000, 0.8000],
            [0.0000, 1.0000]])
    """
    if input.spec.ndim < 2:
        raise failure("renorm", "input needs at least 2 dimensions", [("input", input)])
    if p <= 0 or maxnorm < 0:
        raise failure("renorm", f"non-positive-norm not supported: p={p}, maxnorm={maxnorm}")
    axis = axis_in("renorm", dim, input.spec.ndim)
    rest = tuple(i for i in range(input.spec.ndim) if i != axis)
    length = norm(input, p, rest, True)
    factor = where(length > maxnorm, maxnorm / (length + 1e-7), length.new_ones(()))
    return into(out, (input * factor).contiguous())


class CovarianceMethods(TensorBase):
    """Covariances and distances as methods."""

    __slots__ = ()

    cov = cov
    corrcoef = corrcoef
    dist = dist
    renorm = renorm

    def renorm_(self, p: float, dim: int, maxnorm: float) -> Tensor:
        """`renorm` in place."""
        return write_back("renorm_", self, lambda: read(renorm(self, p, dim, maxnorm)))  # type: ignore[arg-type]
