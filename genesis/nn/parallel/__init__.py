"""Modules that are trained by several processes, and torch's older names for several GPUs of one.

In: modules, and the processes that have one each. Out: modules whose gradients are all ranks'.
"""

from genesis.ir.suggest import suggesting
from genesis.nn.modules.data_parallel import DataParallel as DataParallel
from genesis.nn.parallel.distributed import DistributedDataParallel as DistributedDataParallel
from genesis.nn.parallel.one_device import data_parallel, gather, parallel_apply, replicate, scatter

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel", "gather", "parallel_apply", "replicate",
           "scatter"]

__getattr__ = suggesting(__name__)
