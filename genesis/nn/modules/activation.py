"""Activations as modules; the formulas are in `genesis.nn.functional`."""

from __future__ import annotations

from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import DType
from genesis.nn import functional as F
from genesis.nn import init
from genesis.nn.modules.module import Module
from genesis.nn.parameter import Parameter
from genesis.ops.creation import empty

__all__ = ["CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
           "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SiLU", "Sigmoid", "Softmax",
           "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold"]


class ReLU(Module):
    """max(x, 0)."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.relu(input, self.inplace)

    def extra_repr(self) -> str:
        """Whether it writes into its input."""
        return "inplace=True" if self.inplace else ""


class SiLU(Module):
    """x · sigmoid(x)."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.silu(input, self.inplace)

    def extra_repr(self) -> str:
        """Whether it writes into its input."""
        return "inplace=True" if self.inplace else ""


class GELU(Module):
    """x · Φ(x); approximate="tanh" for the cheaper formula.

    >>> GELU(approximate="tanh")
    GELU(approximate='tanh')
    """

    def __init__(self, approximate: str = "none"):
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        """Which formula."""
        return f"approximate={self.approximate!r}"


class Sigmoid(Module):
    """1 / (1 + exp(-x))."""

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.sigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.tanh(input)


class SELU(Module):
    """`ELU` with numbers that keep mean 0 and variance 1 (Klambauer et al. 2017)."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.selu(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """Whether it writes into its input."""
        return "inplace=True" if self.inplace else ""


class Mish(Module):
    """x · tanh(softplus(x)) (Misra 2019)."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.mish(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """Whether it writes into its input."""
        return "inplace=True" if self.inplace else ""


class Hardswish(Module):
    """x · clamp(x + 3, 0, 6) / 6 (Howard et al. 2019)."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.hardswish(input, inplace=self.inplace)

    def extra_repr(self) -> str:
        """Whether it writes into its input."""
        return "inplace=True" if self.inplace else ""


class Hardsigmoid(Module):
    """clamp(x + 3, 0, 6) / 6 (Howard et al. 2019)."""

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.hardsigmoid(input, self.inplace)


class LogSigmoid(Module):
    """log(sigmoid(x))."""

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.logsigmoid(input)


class Softsign(Module):
    """x / (1 + |x|)."""

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x)."""

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.tanhshrink(input)


class LeakyReLU(Module):
    """x where x > 0, else negative_slope · x (Maas et al. 2013).

    >>> LeakyReLU(0.2)
    LeakyReLU(negative_slope=0.2)
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False):
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"negative_slope={self.negative_slope}{', inplace=True' if self.inplace else ''}"


class ELU(Module):
    """x where x > 0, else alpha · (exp(x) - 1) (Clevert et al. 2016)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.elu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"alpha={self.alpha}{', inplace=True' if self.inplace else ''}"


class CELU(Module):
    """x where x > 0, else alpha · (exp(x / alpha) - 1) (Barron 2017)."""

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.celu(input, self.alpha, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"alpha={self.alpha}{', inplace=True' if self.inplace else ''}"


class Softplus(Module):
    """log(1 + exp(beta · x)) / beta, and x itself where beta · x is over the threshold."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"beta={self.beta}, threshold={self.threshold}"


class Softshrink(Module):
    """x moved towards 0 by lambd, at most to 0."""

    def __init__(self, lambd: float = 0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.softshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """The bound."""
        return str(self.lambd)


class Hardshrink(Module):
    """x where |x| is over lambd, else 0."""

    def __init__(self, lambd: float = 0.5):
        super().__init__()
        self.lambd = lambd

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.hardshrink(input, self.lambd)

    def extra_repr(self) -> str:
        """The bound."""
        return str(self.lambd)


class Hardtanh(Module):
    """min(max(x, min_val), max_val)."""

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False,
                 min_value: float | None = None, max_value: float | None = None):
        super().__init__()
        min_val = min_val if min_value is None else min_value  # torch's words of old
        max_val = max_val if max_value is None else max_value
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace
        if not max_val > min_val:
            raise failure("Hardtanh", f"max_val {max_val} must be over min_val {min_val}", error=ValueError)

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"min_val={self.min_val}, max_val={self.max_val}{', inplace=True' if self.inplace else ''}"


class ReLU6(Hardtanh):
    """min(max(x, 0), 6) (Howard et al. 2017)."""

    def __init__(self, inplace: bool = False):
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        """Whether it writes into its input."""
        return "inplace=True" if self.inplace else ""


class Threshold(Module):
    """x where it is over the threshold, else the value."""

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"threshold={self.threshold}, value={self.value}{', inplace=True' if self.inplace else ''}"


class RReLU(Module):
    """x where x ≥ 0, else a slope · x that in training is drawn for each element (Xu et al. 2015)."""

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False):
        super().__init__()
        self.lower, self.upper, self.inplace = lower, upper, inplace

    def forward(self, input: Tensor) -> Tensor:
        """Element by element."""
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"lower={self.lower}, upper={self.upper}{', inplace=True' if self.inplace else ''}"


class PReLU(Module):
    """x where x > 0, else weight · x (He et al. 2015).

    Args:
        num_parameters: 1 for one slope, or the number of channels for one each.
        init: what the slopes start with.
        device, dtype: of the slopes.

    >>> PReLU()
    PReLU(num_parameters=1)
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: DType | None = None):
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The initial slope again."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        """(n, channels, ...) → the same shape."""
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        """The number of slopes."""
        return f"num_parameters={self.num_parameters}"


class GLU(Module):
    """The first half of a dimension times the sigmoid of the second (Dauphin et al. 2017)."""

    def __init__(self, dim: int = -1):
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """Half the size along the dimension."""
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        """The dimension."""
        return f"dim={self.dim}"


class Softmax(Module):
    """exp(x) / Σ exp(x) along `dim`."""

    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape; sums to 1 along `dim`."""
        return F.softmax(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        """The dimension."""
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """log(softmax(x)) along `dim`."""

    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape."""
        return F.log_softmax(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        """The dimension."""
        return f"dim={self.dim}"


class Softmin(Module):
    """exp(-x) / Σ exp(-x) along `dim`."""

    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape; sums to 1 along `dim`."""
        return F.softmin(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        """The dimension."""
        return f"dim={self.dim}"


class Softmax2d(Module):
    """Softmax over the channels of (n, channels, height, width) or (channels, height, width)."""

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape; sums to 1 along the channels."""
        if input.ndim not in (3, 4):
            raise failure("Softmax2d", f"expected input to be 3D or 4D, got {input.ndim}D", [("input", input)],
                          error=ValueError)
        return F.softmax(input, -3)
