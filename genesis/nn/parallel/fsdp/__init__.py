"""Fully sharded data parallelism, with the names of torch.distributed.fsdp (FSDP2).

In come modules; what goes out are the same modules, of whose parameters each rank keeps a part. Gathers of whole
parameters and the scattering of their gradients are nodes of the step's program (`ir/ops/collectives.py`), recorded
where a module's forward begins and where backward comes to it.
"""

from genesis.nn.parallel.fsdp.module import FSDPModule as FSDPModule
from genesis.nn.parallel.fsdp.module import fully_shard as fully_shard
from genesis.nn.parallel.fsdp.module import register_fsdp_forward_method as register_fsdp_forward_method
from genesis.nn.parallel.fsdp.policy import MixedPrecisionPolicy as MixedPrecisionPolicy
