"""How a tensor lies over a mesh of processes, with torch.distributed.tensor's names.

In: whole tensors, or parts, and where they shall be. Out: parts; gradients come back the same way.

There is no DTensor: a process holds a plain tensor, its *part*, and a `Placement` for each dimension of a `DeviceMesh`
says which part of the whole that is.
"""

from genesis.distributed.tensor.layout import Layout as Layout
from genesis.distributed.tensor.placement import Partial as Partial
from genesis.distributed.tensor.placement import Placement as Placement
from genesis.distributed.tensor.placement import Replicate as Replicate
from genesis.distributed.tensor.placement import Shard as Shard
from genesis.ir.suggest import suggesting

__getattr__ = suggesting(__name__)
