"""Initial values of parameters, written in place. Random ones come from Genesis' own generator.

Each function returns the tensor that it was given. Being lazy, a value that is overwritten
before anybody reads it is never computed.
"""

from __future__ import annotations

import math

from genesis.gradmode import no_grad
from genesis.ir.errors import failure
from genesis.tensor import Tensor

_GAINS = {"linear": 1.0, "identity": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """By how much the deviation must grow to make up for what the nonlinearity takes away.

    Args:
        nonlinearity: "linear", "sigmoid", "tanh", "relu", "leaky_relu" or "selu".
        param: the negative slope of leaky_relu, 0.01 by default.

    >>> round(calculate_gain("relu"), 4)
    1.4142
    """
    if nonlinearity == "leaky_relu":
        slope = 0.01 if param is None else param
        return math.sqrt(2 / (1 + slope * slope))
    if nonlinearity not in _GAINS:
        raise failure("calculate_gain", f"nonlinearity {nonlinearity!r} is unknown",
                      hint=f"one of leaky_relu, {', '.join(_GAINS)}", error=ValueError)
    return _GAINS[nonlinearity]


def fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """How many inputs an output of this weight sums, and how many outputs an input goes to.

    Args:
        tensor: (out, in, *window).

    Raises:
        ValueError: the tensor has fewer than two dimensions.

    >>> import genesis
    >>> fan_in_and_fan_out(genesis.empty(5, 2, 3, 3))
    (18, 45)
    """
    if tensor.ndim < 2:
        raise failure("init", "a fan can only be computed for two or more dimensions", [("tensor", tensor)],
                      hint="uniform_ or normal_ with bounds of your own", error=ValueError)
    window = math.prod(tensor.shape[2:])
    return tensor.shape[1] * window, tensor.shape[0] * window


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Every element is `val`."""
    with no_grad():
        return tensor.fill_(val)


def zeros_(tensor: Tensor) -> Tensor:
    """Every element is 0."""
    return constant_(tensor, 0.0)


def ones_(tensor: Tensor) -> Tensor:
    """Every element is 1."""
    return constant_(tensor, 1.0)


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0) -> Tensor:
    """Uniform in [a, b)."""
    with no_grad():
        return tensor.uniform_(a, b)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    """Normal with this mean and standard deviation."""
    with no_grad():
        return tensor.normal_(mean, std)


def xavier_uniform_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Uniform with variance 2·gain² / (fan in + fan out) (Glorot and Bengio 2010)."""
    fan_in, fan_out = fan_in_and_fan_out(tensor)
    bound = gain * math.sqrt(6 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound)


def xavier_normal_(tensor: Tensor, gain: float = 1.0) -> Tensor:
    """Normal with variance 2·gain² / (fan in + fan out) (Glorot and Bengio 2010)."""
    fan_in, fan_out = fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2 / (fan_in + fan_out)))


def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Uniform with variance gain² / fan (He et al. 2015).

    Args:
        tensor: (out, in, *window).
        a: the negative slope of leaky_relu, which the gain takes into account.
        mode: "fan_in" keeps the variance forward, "fan_out" backward.
        nonlinearity: what follows the layer.
    """
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound)


def kaiming_normal_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu") -> Tensor:
    """Normal with variance gain² / fan; arguments as of `kaiming_uniform_`."""
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity))


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    if mode not in ("fan_in", "fan_out"):
        raise failure("kaiming", f"mode {mode!r} is unknown", hint="'fan_in' or 'fan_out'", error=ValueError)
    fan_in, fan_out = fan_in_and_fan_out(tensor)
    return calculate_gain(nonlinearity, a) / math.sqrt(fan_in if mode == "fan_in" else fan_out)
