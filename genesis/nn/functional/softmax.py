"""Softmax and its relatives, with the arguments that torch.nn.functional gives them."""

from __future__ import annotations

import warnings

from genesis.frontend.autocast_policy import cast_for
from genesis.frontend.recording import record, require_tensors
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.node import Op
from genesis.ir.ops import composite
from genesis.ir.types import DType
from genesis.ops.common import axis_in
from genesis.ops.random import rand_like
from genesis.ops.ranges import arange

__all__ = ["gumbel_softmax", "log_softmax", "softmax", "softmin"]


def softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """exp(x) / Σ exp(x) along one dimension; the largest element is taken out first.

    Args:
        input: floating point, any shape.
        dim: the dimension along which the result sums to 1; negative counts from the end. Without
            it 0 for tensors of 0, 1 or 3 dimensions, else 1.
        dtype: cast the input to this first.

    Raises:
        IndexError: dim is not a dimension of the input.

    >>> import genesis
    >>> softmax(genesis.zeros(1, 4), dim=-1).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    return _along(composite.softmax, input, dim, dtype, "softmax", _stacklevel)


def log_softmax(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """log(softmax(x)) along one dimension, without the overflow of doing it in two steps.

    Arguments and errors are those of `softmax`.
    """
    return _along(composite.log_softmax, input, dim, dtype, "log_softmax", _stacklevel)


def softmin(input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None) -> Tensor:
    """softmax(-x) along one dimension; arguments and errors are those of `softmax`."""
    require_tensors(input)
    return _along(composite.softmax, -input, dim, dtype, "softmin", _stacklevel)


def gumbel_softmax(logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1) -> Tensor:
    """A soft draw of a class: softmax((logits + Gumbel noise) / tau) (Jang et al. 2017).

    Args:
        logits: floating point; unnormalized log-probabilities.
        tau: a temperature above 0; the lower, the harder the draw.
        hard: give a vector of one 1 instead, with the gradient of the soft one.
        eps: not used, as in torch.
        dim: the dimension of the classes.
    """
    exponential = -rand_like(logits).clamp(min=1e-30 if logits.spec.dtype.itemsize > 2 else 1e-7).log()
    soft = softmax((logits - exponential.log()) / tau, dim)
    if not hard:
        return soft
    axis = axis_in("gumbel_softmax", dim, logits.spec.ndim)
    best = soft.detach().argmax(axis, keepdim=True)
    classes = arange(logits.spec.shape[axis], device=logits.device).reshape(-1, *[1] * (logits.spec.ndim - axis - 1))
    chosen = (classes == best).to(soft.dtype)
    return chosen - soft.detach() + soft


def _along(op: Op, x: Tensor, dim: int | None, dtype: DType | None, name: str = "", stacklevel: int = 3) -> Tensor:
    require_tensors(x)
    if dim is None:  # as torch chose it before there was the argument
        warnings.warn(f"Implicit dimension choice for {name} has been deprecated. Change the call to include dim=X as "
                      "an argument.", stacklevel=stacklevel + 1)
        dim = 0 if x.spec.ndim in (0, 1, 3) else 1
    x, = cast_for(op, x) if dtype is None else (x.to(dtype),)
    rank = x.spec.ndim
    if not -rank <= dim < rank:
        if rank == 0 and dim in (0, -1):
            return _along(op, x.reshape(1), 0, None).reshape(())
        raise failure(op.name, f"dimension {dim} does not exist", [("input", x)],
                      hint=f"a dim from {-rank} to {rank - 1}", error=IndexError)
    result: Tensor = record(op, (x,), (dim % rank,))
    return result
