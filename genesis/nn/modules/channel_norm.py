"""Layers that normalize channels; the formulas are in `genesis.nn.functional`."""

from __future__ import annotations

from typing import Any, ClassVar

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.frontend.writes import assign_all
from genesis.ir.errors import failure
from genesis.ir.types import DType, int64
from genesis.nn import functional as F
from genesis.nn.functional.channel_norms import batch_norm_counted
from genesis.nn.modules.affine import register_affine, reset_affine
from genesis.nn.modules.module import Module
from genesis.nn.modules.tree import weight_and_bias
from genesis.nn.parameter import Parameter
from genesis.ops.conversion import copied
from genesis.ops.creation import ones, tensor, zeros

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "GroupNorm", "InstanceNorm1d", "InstanceNorm2d",
           "InstanceNorm3d", "LocalResponseNorm"]


class _Running(Module):
    """Parameters and running statistics of a norm: what batch and instance norm share."""

    _version = 2

    ranks: ClassVar[tuple[int, ...]]
    weight: Parameter | None
    bias: Parameter | None
    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def _set_up(self, num_features: int, eps: float, momentum: float | None, affine: bool, track_running_stats: bool,
                device: Any, dtype: DType | None, bias: bool) -> None:
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        register_affine(self, num_features, affine, affine and bias, device, dtype)
        tracked = track_running_stats
        self.register_buffer("running_mean", zeros(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("running_var", ones(num_features, device=device, dtype=dtype) if tracked else None)
        self.register_buffer("num_batches_tracked", tensor(0, dtype=int64, device=device) if tracked else None)

    def reset_running_stats(self) -> None:
        """Mean 0, variance 1, no batch seen: all of it, or nothing where an interrupt comes."""
        mean, variance, seen = self.running_mean, self.running_var, self.num_batches_tracked
        if mean is not None and variance is not None and seen is not None:
            with no_grad():
                assign_all([mean, variance, seen], [copied(mean, 0.0), copied(variance, 1.0), copied(seen, 0)])

    def reset_parameters(self) -> None:
        """Weight 1, bias 0 and no statistics again."""
        self.reset_running_stats()
        reset_affine(self)

    def _check_input_dim(self, input: Tensor) -> None:
        """Refuse an input of other dimensions: torch's name, as layers of a user's own override it."""
        if input.ndim not in self.ranks:
            raise failure(type(self).__name__, f"expected {' or '.join(f'{r}D' for r in self.ranks)} input (got "
                          f"{input.ndim}D input)", [("input", input)], error=ValueError)

    def extra_repr(self) -> str:
        """The arguments."""
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
                f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}")


class _BatchNorm(_Running):
    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device: Any = None, dtype: DType | None = None,
                 *, bias: bool = True):
        super().__init__()
        self._set_up(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape and dtype. In training the running statistics follow those of the input."""
        self._check_input_dim(input)
        factor = 0.0 if self.momentum is None else self.momentum
        tracked = self.num_batches_tracked if self.training and self.track_running_stats else None
        if self.momentum is None and tracked is not None:  # the mean over all batches
            factor = 1.0 / (1.0 + float(tracked.item()))
        mean, variance = self.running_mean, self.running_var
        by_batch = self.training or (mean is None and variance is None)
        kept = not self.training or self.track_running_stats
        weight, bias = weight_and_bias(self, BatchNorm1d if type(self) is BatchNorm1d else BatchNorm2d)
        return batch_norm_counted(input, mean if kept else None, variance if kept else None, weight, bias, by_batch,
                                  factor, self.eps, tracked)


_NormBase = _Running  # the name that programs ask `isinstance` with


class BatchNorm1d(_BatchNorm):
    """Each channel with mean 0 and variance 1 over the batch, times weight plus bias (Ioffe and Szegedy 2015).

    Args:
        num_features: channels.
        eps: added to the variance.
        momentum: how far a batch moves the running statistics, which eval mode uses; None for the
            mean over all batches.
        affine: False leaves weight (initially 1) and bias (initially 0) out; bias: False only that.
        track_running_stats: False keeps no statistics; eval mode then takes the batch's.
        device, dtype: of parameters and statistics.

    >>> import genesis
    >>> BatchNorm1d(3)(genesis.ones(2, 3, 5)).shape
    genesis.Size([2, 3, 5])
    """

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """`BatchNorm1d` for (n, channels, height, width)."""

    ranks = (4,)


class BatchNorm3d(_BatchNorm):
    """`BatchNorm1d` for (n, channels, depth, height, width)."""

    ranks = (5,)


class _InstanceNorm(_Running):
    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
                 track_running_stats: bool = False, device: Any = None, dtype: DType | None = None,
                 *, bias: bool = True):
        super().__init__()
        self._set_up(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias)

    def forward(self, input: Tensor) -> Tensor:
        """(n, channels, ...) or (channels, ...) → the same shape."""
        self._check_input_dim(input)
        alone = input.ndim == self.ranks[0]
        x = input.unsqueeze(0) if alone else input
        y = F.instance_norm(x, self.running_mean, self.running_var, self.weight, self.bias,
                            self.training or not self.track_running_stats,
                            0.0 if self.momentum is None else self.momentum, self.eps)
        return y.squeeze(0) if alone else y


class InstanceNorm1d(_InstanceNorm):
    """Each channel of each element with mean 0 and variance 1 (Ulyanov et al. 2016); arguments as of `BatchNorm1d`."""

    ranks = (2, 3)


class InstanceNorm2d(_InstanceNorm):
    """`InstanceNorm1d` for (n, channels, height, width)."""

    ranks = (3, 4)


class InstanceNorm3d(_InstanceNorm):
    """`InstanceNorm1d` for (n, channels, depth, height, width)."""

    ranks = (4, 5)


class GroupNorm(Module):
    """Each group of channels of each element with mean 0 and variance 1, times weight plus bias (Wu and He 2018).

    Args:
        num_groups: divides the channels.
        num_channels: channels.
        eps: added to the variance.
        affine: False leaves weight (initially 1) and bias (initially 0) out; bias: False only that.
        device, dtype: of the parameters.

    >>> GroupNorm(2, 6)
    GroupNorm(2, 6, eps=1e-05, affine=True, bias=True)
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None,
                 dtype: DType | None = None, *, bias: bool = True):
        super().__init__()
        if num_channels % num_groups:
            raise failure("GroupNorm", f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})",
                          error=ValueError)
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        register_affine(self, num_channels, affine, affine and bias, device, dtype)

    def reset_parameters(self) -> None:
        """Weight 1 and bias 0 again."""
        reset_affine(self)

    def forward(self, input: Tensor) -> Tensor:
        """(n, channels, ...) → the same shape."""
        weight, bias = weight_and_bias(self, GroupNorm)
        return F.group_norm(input, self.num_groups, weight, bias, self.eps)

    def extra_repr(self) -> str:
        """The arguments."""
        return (f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, "
                f"bias={self.bias is not None}")


class LocalResponseNorm(Module):
    """x / (k + alpha·mean(x²))^beta over `size` neighbouring channels (Krizhevsky et al. 2012)."""

    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0):
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, input: Tensor) -> Tensor:
        """(n, channels, ...) → the same shape."""
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)

    def extra_repr(self) -> str:
        """The arguments."""
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"
