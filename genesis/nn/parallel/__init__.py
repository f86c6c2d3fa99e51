"""Modules that are trained by several processes."""

from genesis.nn.parallel.distributed import DistributedDataParallel as DistributedDataParallel

__all__ = ["DistributedDataParallel"]
