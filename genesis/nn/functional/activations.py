"""Activations: one recorded op each."""

from __future__ import annotations

from genesis.amp.policy import cast_for
from genesis.ir.errors import failure
from genesis.ir.ops import composite, pointwise
from genesis.ir.types import DType
from genesis.recording import record
from genesis.tensor import Tensor


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0), element by element; any real dtype.

    >>> import genesis
    >>> relu(genesis.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    result: Tensor = record(pointwise.relu, (input,))
    return input.copy_(result) if inplace else result


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x · Φ(x) with Φ the normal distribution's cdf (Hendrycks and Gimpel 2016).

    Args:
        input: floating point, any shape.
        approximate: "none" for erf, "tanh" for the paper's cheaper formula.
    """
    if approximate not in ("none", "tanh"):
        raise failure("gelu", f"approximate={approximate!r} is unknown", hint="'none' or 'tanh'", error=ValueError)
    result: Tensor = record(pointwise.gelu, (input,), (approximate,))
    return result


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x · sigmoid(x), also known as swish; floating point, any shape."""
    result: Tensor = record(pointwise.silu, (input,))
    return input.copy_(result) if inplace else result


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)); integers become float32."""
    return input.sigmoid()


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), exact where sigmoid(x) rounds to 0 or 1.

    >>> import genesis
    >>> logsigmoid(genesis.tensor([-1000.0])).item()
    -1000.0
    """
    # min(x, 0) - log(1 + exp(-|x|)): at 0 the two halves' gradients, 1/2 and 0, add up to the right 1/2
    negative: Tensor = record(pointwise.minimum, (input, 0.0))
    return negative - (-input.abs()).exp().log1p()


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent; integers become float32."""
    return input.tanh()


def softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """exp(x) / Σ exp(x) along one dimension; the largest element is taken out first.

    Args:
        input: floating point, any shape.
        dim: the dimension along which the result sums to 1; negative counts from the end.
        dtype: cast the input to this first.

    Raises:
        IndexError: dim is not a dimension of the input.

    >>> import genesis
    >>> softmax(genesis.zeros(1, 4), dim=-1).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """
    return _along(composite.softmax, input, dim, dtype)


def log_softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """log(softmax(x)) along one dimension, without the overflow of doing it in two steps.

    Arguments and errors are those of `softmax`.
    """
    return _along(composite.log_softmax, input, dim, dtype)


def _along(op: pointwise.Op, x: Tensor, dim: int, dtype: DType | None) -> Tensor:
    x, = cast_for(op.name, x) if dtype is None else (x.to(dtype),)
    rank = x.type.ndim
    if not -rank <= dim < rank:
        if rank == 0 and dim in (0, -1):
            return _along(op, x.reshape(1), 0, None).reshape(())
        raise failure(op.name, f"dimension {dim} does not exist", [("input", x)],
                      hint=f"a dim from {-rank} to {rank - 1}", error=IndexError)
    result: Tensor = record(op, (x,), (dim % rank,))
    return result
