"""`SyncBatchNorm`: batch norm over the batches of all processes."""

from __future__ import annotations

from typing import Any

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import DType, float32, float64
from genesis.nn.functional.channel_norms import followed
from genesis.nn.modules.channel_norm import _BatchNorm
from genesis.nn.modules.module import Module
from genesis.ops.creation import full
from genesis.ops.parts import cat

__all__ = ["SyncBatchNorm"]


class SyncBatchNorm(_BatchNorm):
    """`BatchNorm1d` for (n, channels, ...), with mean and variance over the batches of all processes of a group.

    In eval mode, and where there is one process, it is batch norm. Processes may have batches of different sizes.

    Args:
        num_features, eps, momentum, affine, track_running_stats, device, dtype: as of `BatchNorm1d`.
        process_group: the group; None for all.

    >>> SyncBatchNorm.convert_sync_batchnorm(__import__("genesis").nn.BatchNorm2d(4))
    SyncBatchNorm(4, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, process_group: Any = None, device: Any = None,
                 dtype: DType | None = None, *, bias: bool = True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.ndim < 2:
            raise failure("SyncBatchNorm", f"expected at least 2D input (got {input.ndim}D input)", [("input", input)],
                          error=ValueError)

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape and dtype."""
        from genesis import distributed as dist
        by_batch = self.training or self.running_mean is None
        if not by_batch or not dist.is_initialized() or dist.get_world_size(self.process_group) == 1:
            return super().forward(input)
        self._check_input_dim(input)
        mean, variance, count = self._statistics(input)
        shape = (1, -1, *(1 for _ in input.shape[2:]))
        upcast = float64 if input.dtype is float64 else float32
        y = (input.to(upcast) - mean.view(shape)) * (variance + self.eps).rsqrt().view(shape)
        if self.weight is not None:
            y = y * self.weight.view(shape)
        if self.bias is not None:
            y = y + self.bias.view(shape)
        if self.training and self.track_running_stats:
            self._follow(mean, variance, count)
        return y.to(input.dtype)

    def _statistics(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean, biased variance and number of values a channel, of all processes: put together from each one's (Chan,
        Golub and LeVeque 1979), so that no large sums are subtracted."""
        from genesis.distributed import functional
        axes = (0, *range(2, x.ndim))
        x = x.to(float64 if x.dtype is float64 else float32)
        own = x.numel() // max(x.shape[1], 1)
        n = full((1,), float(own), dtype=x.dtype, device=x.device)
        mean = x.sum(axes) / max(own, 1)
        spread = ((x - mean.view((1, -1, *(1 for _ in x.shape[2:])))) ** 2).sum(axes)
        all_of = functional.all_gather_tensor(cat([mean, spread, n]).unsqueeze(0), self.process_group)
        channels = x.shape[1]
        means, spreads, counts = all_of[:, :channels], all_of[:, channels:2 * channels], all_of[:, 2 * channels:]
        counts = counts.detach()
        count = counts.sum()
        whole = (means * counts).sum(0) / count
        return whole, (spreads + counts * (means - whole) ** 2).sum(0) / count, count

    def _follow(self, mean: Tensor, variance: Tensor, count: Tensor) -> None:
        """Let the running statistics follow."""
        factor = 0.0 if self.momentum is None else self.momentum
        if self.momentum is None and self.num_batches_tracked is not None:
            factor = 1.0 / (1.0 + float(self.num_batches_tracked.item()))
        with no_grad():
            unbiased = variance.detach() * (count / (count - 1).clamp(min=1))
            followed([(self.running_mean, mean.detach()), (self.running_var, unbiased)], factor,
                     self.num_batches_tracked)

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module, or a SyncBatchNorm over the same parameters and buffers for a batch norm; so for all inside."""
        converted: Module = module
        if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
            converted = cls(module.num_features, module.eps, module.momentum, module.affine,
                            module.track_running_stats, process_group)
            converted._parameters.update(module._parameters)
            converted._buffers.update(module._buffers)
            converted.training = module.training
        for name, child in list(module._modules.items()):
            if child is not None:
                converted.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return converted
