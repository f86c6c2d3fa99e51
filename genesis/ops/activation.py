"""Activations: one recorded op each, but for a few short formulas; `genesis.nn.functional` has them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend.autocast_policy import cast_for
from genesis.frontend.recording import emit, read, record, wrap
from genesis.ir.errors import failure
from genesis.ir.node import Op
from genesis.ir.ops import activation, pointwise
from genesis.ops.arithmetic import abs, div, sub
from genesis.ops.common import axis_in, pointwise_op
from genesis.ops.comparison import where
from genesis.ops.inplace import write
from genesis.ops.out import into
from genesis.ops.parts import narrow
from genesis.ops.random import rand_like
from genesis.ops.trigonometry import tanh

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["celu", "celu_", "hardshrink", "prelu", "relu", "relu_", "rrelu", "rrelu_", "selu", "selu_", "threshold",
           "threshold_"]


def _recorded(op: Op, input: Tensor, attrs: tuple[Any, ...] = ()) -> Tensor:
    """An activation of a tensor; TypeError for anything else, a number too."""
    return wrap(emit(op, (read(input),), attrs))


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """max(x, 0), element by element; any real dtype.

    >>> import genesis
    >>> relu(genesis.tensor([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return _written(input, pointwise_op(pointwise.relu, input), inplace)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x · Φ(x) with Φ the normal distribution's cdf (Hendrycks and Gimpel 2016).

    Args:
        input: floating point, any shape.
        approximate: "none" for erf, "tanh" for the paper's cheaper formula.
    """
    if approximate not in ("none", "tanh"):
        raise failure("gelu", f"approximate argument must be either none or tanh, not {approximate!r}")
    result: Tensor = _recorded(pointwise.gelu, input, (approximate,))
    return result


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x · sigmoid(x), also known as swish; floating point, any shape."""
    return _written(input, _recorded(pointwise.silu, input), inplace)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), exact where sigmoid(x) rounds to 0 or 1.

    >>> import genesis
    >>> logsigmoid(genesis.tensor([-1000.0])).item()
    -1000.0
    """
    result: Tensor = _recorded(activation.logsigmoid, input)
    return result


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where x > 0, else negative_slope · x (Maas et al. 2013); floating point, any shape.

    >>> import genesis
    >>> leaky_relu(genesis.tensor([-2.0, 2.0]), 0.5).tolist()
    [-1.0, 2.0]
    """
    return _written(input, _recorded(activation.leaky_relu, input, (float(negative_slope),)), inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha · (exp(x) - 1) (Clevert et al. 2016); floating point, any shape."""
    return _written(input, _recorded(activation.elu, input, (float(alpha), 1.0, 1.0)), inplace)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """`elu` times a scale, with numbers that keep mean 0 and variance 1 (Klambauer et al. 2017)."""
    return _written(input, _recorded(activation.elu, input, tuple(activation.SELU.values())), inplace)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where x > 0, else alpha · (exp(x / alpha) - 1) (Barron 2017); floating point, any shape.

    Raises:
        RuntimeError: alpha is 0.
    """
    if alpha == 0:
        raise failure("celu", "ZeroDivisionError: alpha cannot be 0 for CELU", [("input", input)])
    return _written(input, _recorded(activation.elu, input, (float(alpha), 1.0, 1.0 / alpha)), inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x · tanh(softplus(x)) (Misra 2019); floating point, any shape."""
    return _written(input, _recorded(activation.mish, input), inplace)


def softplus(input: Tensor, beta: float = 1.0, threshold: float = 20.0) -> Tensor:
    """log(1 + exp(beta · x)) / beta, and x itself where beta · x is over the threshold.

    >>> import genesis
    >>> softplus(genesis.tensor([0.0, 100.0])).tolist()
    [0.6931471824645996, 100.0]
    """
    input, = cast_for(activation.softplus, input)
    result: Tensor = _recorded(activation.softplus, input, (float(beta), float(threshold)))
    return result


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|); floating point, any shape."""
    return div(input, abs(input) + 1)


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x); floating point, any shape."""
    return sub(input, tanh(input))


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by lambd, at most to 0; floating point, any shape.

    Raises:
        RuntimeError: lambd is negative.
    """
    if lambd < 0:
        raise failure("softshrink", f"lambda must be greater or equal to 0, but found to be {lambd}.",
                      [("input", input)])
    result: Tensor = _recorded(activation.softshrink, input, (float(lambd),))
    return result


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """clamp(x + 3, 0, 6) / 6 (Howard et al. 2019); floating point, any shape."""
    return _written(input, _recorded(activation.hardsigmoid, input), inplace)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x · clamp(x + 3, 0, 6) / 6 (Howard et al. 2019); floating point, any shape."""
    return _written(input, _recorded(activation.hardswish, input), inplace)


def hardtanh(input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Tensor:
    """min(max(x, min_val), max_val); any real dtype but bool.

    Raises:
        ValueError: min_val is over max_val.
    """
    if min_val > max_val:
        raise failure("hardtanh", "min_val cannot be greater than max_val", [("input", input)], error=ValueError)
    if input.spec.dtype.kind == "float":
        return _written(input, _recorded(activation.hardtanh, input, (float(min_val), float(max_val))), inplace)
    if input.spec.dtype.min is None or min_val < input.spec.dtype.min:
        raise failure("hardtanh", "cannot do hardtanh on an unsigned type with negative limits", [("input", input)])
    return _written(input, input.clamp(int(min_val), int(max_val)), inplace)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """min(max(x, 0), 6) (Howard et al. 2017); any real dtype but bool."""
    return hardtanh(input, 0.0, 6.0, inplace)


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False, *,
              out: Tensor | None = None) -> Tensor:
    """x where it is over the threshold, else the value; any real dtype but bool.

    >>> import genesis
    >>> threshold(genesis.tensor([0.5, 2.0]), 1.0, -1.0).tolist()
    [-1.0, 2.0]
    """
    kind = float if input.spec.dtype.kind == "float" else int
    found: Tensor = _recorded(activation.threshold, input, (kind(threshold), kind(value)))
    return _written(input, found, inplace) if out is None else into(out, found)


def rrelu(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
          inplace: bool = False) -> Tensor:
    """x where x ≥ 0, else a slope · x (Xu et al. 2015).

    In training each element draws its slope from [lower, upper), else all have the mean of the two.
    """
    if lower > upper:
        raise failure("rrelu", "Lower bound should be less than or equal to the upper bound", [("input", input)])
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    slope = rand_like(input) * (upper - lower) + lower
    result: Tensor = where(input >= 0, input, input * slope)
    return _written(input, result, inplace)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half of a dimension times the sigmoid of the second (Dauphin et al. 2017).

    Raises:
        RuntimeError: the dimension's size is odd, or there is none.

    >>> import genesis
    >>> glu(genesis.tensor([2.0, 0.0])).tolist()
    [1.0]
    """
    if input.spec.ndim == 0:
        raise failure("glu", "glu does not support 0-dimensional tensors", [("input", input)])
    axis = axis_in("glu", dim, input.spec.ndim)
    size = input.spec.shape[axis]
    if size % 2:
        raise failure("glu", f"Halving dimension must be even, but dimension {axis} is size {size}", [("input", input)])
    return narrow(input, axis, 0, size // 2) * narrow(input, axis, size // 2, size // 2).sigmoid()


def hardshrink(input: Tensor, lambd: float = 0.5, *, out: Tensor | None = None) -> Tensor:
    """x where |x| is over lambd, else 0; floating point, any shape."""
    return into(out, _recorded(activation.hardshrink, input, (float(lambd),)))


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where x > 0, else weight · x (He et al. 2015).

    Args:
        input: (n, channels, ...), floating point.
        weight: one slope, or one for each channel; learned.

    Raises:
        RuntimeError: another number of slopes.

    >>> import genesis
    >>> prelu(genesis.tensor([-2.0, 2.0]), genesis.tensor([0.5])).tolist()
    [-1.0, 2.0]
    """
    rank, count = input.spec.ndim, weight.spec.numel
    named = [("input", input), ("weight", weight)]
    if weight.spec.ndim > 1 or (weight.spec.ndim == 0 and rank == 0 and count != 1):
        raise failure("prelu", f"Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.spec.ndim}",
                      named)
    if input.spec.dtype is not weight.spec.dtype:
        raise failure("prelu", "Type promoting not supported: the dtypes of input and weight differ", named)
    if count != 1:
        channels = input.spec.shape[1] if rank > 1 else 1
        if rank == 0 or count != channels:
            raise failure("prelu", "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                          f"{count} and channel size = {channels}.", named)
        weight = weight.reshape(count, *[1] * (rank - 2))
    else:
        weight = weight.reshape(())
    result: Tensor = record(activation.prelu, (input, weight.expand(input.spec.shape)))
    return result


def relu_(input: Tensor) -> Tensor:
    """`relu` in place."""
    return relu(input, inplace=True)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """`leaky_relu` in place."""
    return leaky_relu(input, negative_slope, inplace=True)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`elu` in place."""
    return elu(input, alpha, inplace=True)


def selu_(input: Tensor) -> Tensor:
    """`selu` in place."""
    return selu(input, inplace=True)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """`celu` in place."""
    return celu(input, alpha, inplace=True)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """`hardtanh` in place."""
    return hardtanh(input, min_val, max_val, inplace=True)


def threshold_(input: Tensor, threshold: float, value: float) -> Tensor:
    """The function `threshold` in place."""
    return _written(input, _threshold(input, threshold, value), inplace=True)


def rrelu_(input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False) -> Tensor:
    """`rrelu` in place."""
    return rrelu(input, lower, upper, training, inplace=True)


_threshold = threshold


def _written(input: Tensor, result: Tensor, inplace: bool) -> Tensor:
    """The result, or the input with the result in its memory."""
    if not inplace:
        return result
    found: Tensor = input.copy_(result)
    return found


class ActivationMethods:
    """The functions above that tensors have as methods."""

    __slots__ = ()

    hardshrink = hardshrink
    prelu = prelu

    def relu(self: Any) -> Tensor:
        """max(x, 0), element by element."""
        found: Tensor = pointwise_op(pointwise.relu, self)
        return found

    def relu_(self: Any) -> Tensor:
        """`relu` in place."""
        return write(self, pointwise.relu)
