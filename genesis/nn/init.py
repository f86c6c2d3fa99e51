"""Initial values of parameters, written in place. Random ones come from Genesis' own generator.

Each function returns the tensor that it was given. A parameter that is a part of a larger tensor gets its part of the
whole tensor's values. Being lazy, a value that is overwritten
before anybody reads it is never computed.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from genesis.frontend.draw_parts import Shown, layout_of, sharded, shown_part
from genesis.frontend.generator import Generator
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.public_functions import bind_own, bound
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.suggest import suggesting
from genesis.ops import ranges
from genesis.ops.creation import empty, zeros
from genesis.ops.random import rand, randn

_Fill = TypeVar("_Fill", bound=Callable[..., Tensor])


def _of_the_whole(fill: _Fill) -> _Fill:
    """The function, which fills a part of a larger tensor with what the whole has there: ranks draw different bits, and
    the same whatever their number."""
    fill = bound(fill, __name__, fill.__name__)  # type: ignore[arg-type, assignment]

    @wraps(fill)
    def filling(tensor: Tensor, *args: Any, **options: Any) -> Tensor:
        shown = _shown(tensor)
        if shown is None:
            return fill(tensor, *args, **options)
        whole = fill(empty(shown.shape, dtype=tensor.dtype, device=tensor.device), *args, **options)
        with no_grad():
            return tensor.copy_(shown.own(whole))
    return filling  # type: ignore[return-value]


def _shown(tensor: Tensor) -> Shown | None:
    """What the tensor shows of a whole that ranks share out: a parameter, its `data`, or a view of these."""
    layout = layout_of(tensor) if sharded else None
    return None if layout is None else shown_part(layout, tensor)


_GAINS = {"linear": 1.0, "identity": 1.0, "sigmoid": 1.0, "tanh": 5 / 3, "relu": math.sqrt(2), "selu": 0.75}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor by which the deviation must grow to make up for what the nonlinearity takes away.

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
    shown = _shown(tensor)
    outputs, inputs, *window = tensor.shape if shown is None else shown.shape
    return inputs * math.prod(window), outputs * math.prod(window)


@_of_the_whole
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


@_of_the_whole
def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform in [a, b)."""
    with no_grad():
        return tensor.uniform_(a, b, generator=generator)


@_of_the_whole
def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with this mean and standard deviation."""
    with no_grad():
        return tensor.normal_(mean, std, generator=generator)


@_of_the_whole
def trunc_normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0,
                  generator: Generator | None = None) -> Tensor:
    """Normal, of what lies within [a, b]: uniform draws through the inverse of the distribution function."""
    low, high = (0.5 * math.erfc((mean - x) / (std * math.sqrt(2))) for x in (a, b))
    with no_grad():
        drawn = tensor.uniform_(2 * low - 1, 2 * high - 1, generator=generator).erfinv()
        return tensor.copy_((drawn * (std * math.sqrt(2)) + mean).clamp(a, b))


@_of_the_whole
def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Uniform with variance 2·gain² / (fan in + fan out) (Glorot and Bengio 2010)."""
    fan_in, fan_out = fan_in_and_fan_out(tensor)
    bound = gain * math.sqrt(6 / (fan_in + fan_out))
    return uniform_(tensor, -bound, bound, generator)


@_of_the_whole
def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Normal with variance 2·gain² / (fan in + fan out) (Glorot and Bengio 2010)."""
    fan_in, fan_out = fan_in_and_fan_out(tensor)
    return normal_(tensor, 0.0, gain * math.sqrt(2 / (fan_in + fan_out)), generator)


@_of_the_whole
def kaiming_uniform_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                     generator: Generator | None = None) -> Tensor:
    """Uniform with variance gain² / fan (He et al. 2015).

    Args:
        tensor: (out, in, *window).
        a: the negative slope of leaky_relu, which the gain takes into account.
        mode: "fan_in" keeps the variance forward, "fan_out" backward.
        nonlinearity: what follows the layer.

    A tensor without elements stays as it is, with a warning.
    """
    if _nothing(tensor):
        return tensor
    bound = math.sqrt(3) * _kaiming_std(tensor, a, mode, nonlinearity)
    return uniform_(tensor, -bound, bound, generator)


@_of_the_whole
def kaiming_normal_(tensor: Tensor, a: float = 0.0, mode: str = "fan_in", nonlinearity: str = "leaky_relu",
                    generator: Generator | None = None) -> Tensor:
    """Normal with variance gain² / fan; arguments as of `kaiming_uniform_`."""
    if _nothing(tensor):
        return tensor
    return normal_(tensor, 0.0, _kaiming_std(tensor, a, mode, nonlinearity), generator)


def _nothing(tensor: Tensor) -> bool:
    """Whether a tensor has no elements, which is told."""
    if tensor.numel():
        return False
    warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
    return True


def _calculate_correct_fan(tensor: Tensor, mode: str) -> int:
    """The fan that a mode names; the name is torch's, which programs call though it begins with an underscore."""
    if mode.lower() not in ("fan_in", "fan_out"):
        raise failure("kaiming", f"mode {mode!r} is unknown", hint="'fan_in' or 'fan_out'", error=ValueError)
    fan_in, fan_out = fan_in_and_fan_out(tensor)
    return fan_in if mode.lower() == "fan_in" else fan_out


_calculate_fan_in_and_fan_out = fan_in_and_fan_out
"""Its name in torch, which programs that write a layer's weights themselves call."""


def _kaiming_std(tensor: Tensor, a: float, mode: str, nonlinearity: str) -> float:
    return calculate_gain(nonlinearity, a) / math.sqrt(_calculate_correct_fan(tensor, mode))


@_of_the_whole
def eye_(tensor: Tensor) -> Tensor:
    """Ones on a matrix's diagonal, zeros elsewhere.

    Raises:
        ValueError: not two dimensions.
    """
    _matrix("eye_", tensor)
    with no_grad():
        return tensor.copy_(ranges.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device))


@_of_the_whole
def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """A convolution's weight that passes as many channels on as it can: a one in the middle of their own windows.

    Args:
        tensor: (out, in, *window), of 3 to 5 dimensions.
        groups: of channels.

    Raises:
        ValueError: other dimensions, or groups that do not divide `out`.
    """
    if tensor.ndim not in (3, 4, 5):
        raise failure("dirac_", "Only tensors with 3, 4, or 5 dimensions are supported", [("tensor", tensor)],
                      error=ValueError)
    out, inner, *window = tensor.shape
    if out % groups:
        raise failure("dirac_", "dim 0 must be divisible by groups", [("tensor", tensor)], error=ValueError)
    middle = tuple(size // 2 for size in window)
    with no_grad():
        whole = zeros(*tensor.shape, dtype=tensor.dtype, device=tensor.device)
        for group in range(groups):
            for channel in range(min(out // groups, inner)):
                whole[(group * (out // groups) + channel, channel, *middle)] = 1.0
        return tensor.copy_(whole)


@_of_the_whole
def orthogonal_(tensor: Tensor, gain: float = 1.0, generator: Generator | None = None) -> Tensor:
    """Orthonormal rows or columns, whichever are fewer, times the gain (Saxe, McClelland and Ganguli 2014).

    Args:
        tensor: (rows, *columns).

    Raises:
        ValueError: fewer than two dimensions.
    """
    if tensor.ndim < 2:
        raise failure("orthogonal_", "Only tensors with 2 or more dimensions are supported", [("tensor", tensor)],
                      error=ValueError)
    from genesis.linalg import qr
    rows, columns = tensor.shape[0], math.prod(tensor.shape[1:])
    with no_grad():
        drawn = randn(max(rows, columns), min(rows, columns), generator=generator, device=tensor.device)
        q, r = qr(drawn)
        q = q * r.diagonal().sign()  # makes the distribution uniform
        q = q.mT if rows < columns else q
        return tensor.copy_(q.reshape(tensor.shape) * gain)


@_of_the_whole
def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Generator | None = None) -> Tensor:
    """Normal, with this part of each column 0 (Martens 2010).

    Raises:
        ValueError: not two dimensions.
    """
    _matrix("sparse_", tensor)
    nothing = math.ceil(sparsity * tensor.shape[0])
    with no_grad():
        order = rand(*tensor.shape, generator=generator, device=tensor.device).argsort(0).argsort(0)
        drawn = tensor.normal_(0, std, generator=generator)
        return tensor.copy_(drawn.masked_fill(order < nothing, 0.0))


def _matrix(name: str, tensor: Tensor) -> None:
    if tensor.ndim != 2:
        raise failure(name, "Only tensors with 2 dimensions are supported", [("tensor", tensor)], error=ValueError)


def _by_its_name_of_old(fill: _Fill) -> _Fill:
    """The function without the underline, with torch's warning."""
    @wraps(fill)
    def old(*args: Any, **options: Any) -> Any:
        warnings.warn(f"`nn.init.{fill.__name__[:-1]}` is now deprecated in favor of `nn.init.{fill.__name__}`.",
                      FutureWarning, stacklevel=2)
        return fill(*args, **options)
    old.__name__ = old.__qualname__ = fill.__name__[:-1]
    return old  # type: ignore[return-value]


# torch's private names, which programs import: here all fill without gradients.
_no_grad_uniform_, _no_grad_normal_, _no_grad_trunc_normal_ = uniform_, normal_, trunc_normal_
_no_grad_fill_, _no_grad_zero_ = constant_, zeros_

constant = _by_its_name_of_old(constant_)
uniform = _by_its_name_of_old(uniform_)
normal = _by_its_name_of_old(normal_)
eye = _by_its_name_of_old(eye_)
dirac = _by_its_name_of_old(dirac_)
orthogonal = _by_its_name_of_old(orthogonal_)
sparse = _by_its_name_of_old(sparse_)
xavier_uniform = _by_its_name_of_old(xavier_uniform_)
xavier_normal = _by_its_name_of_old(xavier_normal_)
kaiming_uniform = _by_its_name_of_old(kaiming_uniform_)
kaiming_normal = _by_its_name_of_old(kaiming_normal_)


bind_own(globals(), __name__)
__getattr__ = suggesting(__name__)
