"""Communication hooks of `DistributedDataParallel`: how a bucket of gradients becomes the mean of all processes'.

In: a bucket of this rank's. Out: a future of the mean.
"""

from genesis.distributed.algorithms.ddp_comm_hooks import default_hooks as default_hooks
from genesis.ir.suggest import suggesting

__getattr__ = suggesting(__name__)
