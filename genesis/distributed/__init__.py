"""Processes that work together: a run, its groups, collectives between them, and what goes wrong there.

Names are torch.distributed's. What comes in are tensors; a collective goes out as an op of the IR, recorded in the
order of its group, and moved by a transport of the runtime: gloo on the CPU, NCCL on CUDA.
"""

from genesis.distributed import functional as functional
from genesis.distributed.batches import P2POp as P2POp
from genesis.distributed.batches import batch_isend_irecv as batch_isend_irecv
from genesis.distributed.batches import recv_object_list as recv_object_list
from genesis.distributed.batches import send_object_list as send_object_list
from genesis.distributed.collectives import ReduceOp as ReduceOp
from genesis.distributed.collectives import all_gather as all_gather
from genesis.distributed.collectives import all_gather_into_tensor as all_gather_into_tensor
from genesis.distributed.collectives import all_gather_single as all_gather_single
from genesis.distributed.collectives import all_reduce as all_reduce
from genesis.distributed.collectives import all_reduce_coalesced as all_reduce_coalesced
from genesis.distributed.collectives import all_to_all as all_to_all
from genesis.distributed.collectives import all_to_all_single as all_to_all_single
from genesis.distributed.collectives import barrier as barrier
from genesis.distributed.collectives import broadcast as broadcast
from genesis.distributed.collectives import gather as gather
from genesis.distributed.collectives import reduce as reduce
from genesis.distributed.collectives import reduce_scatter as reduce_scatter
from genesis.distributed.collectives import reduce_scatter_single as reduce_scatter_single
from genesis.distributed.collectives import reduce_scatter_tensor as reduce_scatter_tensor
from genesis.distributed.collectives import scatter as scatter
from genesis.distributed.mesh import DeviceMesh as DeviceMesh
from genesis.distributed.mesh import init_device_mesh as init_device_mesh
from genesis.distributed.messages import irecv as irecv
from genesis.distributed.messages import isend as isend
from genesis.distributed.messages import recv as recv
from genesis.distributed.messages import send as send
from genesis.distributed.monitored import monitored_barrier as monitored_barrier
from genesis.distributed.objects import all_gather_object as all_gather_object
from genesis.distributed.objects import broadcast_object_list as broadcast_object_list
from genesis.distributed.objects import gather_object as gather_object
from genesis.distributed.objects import scatter_object_list as scatter_object_list
from genesis.distributed.process_group import ProcessGroup as ProcessGroup
from genesis.distributed.run import GroupMember as GroupMember
from genesis.distributed.run import ProcessGroupNCCL as ProcessGroupNCCL
from genesis.distributed.run import destroy_process_group as destroy_process_group
from genesis.distributed.run import get_backend as get_backend
from genesis.distributed.run import get_backend_config as get_backend_config
from genesis.distributed.run import get_default_backend_for_device as get_default_backend_for_device
from genesis.distributed.run import get_global_rank as get_global_rank
from genesis.distributed.run import get_group_rank as get_group_rank
from genesis.distributed.run import get_node_local_rank as get_node_local_rank
from genesis.distributed.run import get_pg_count as get_pg_count
from genesis.distributed.run import get_process_group_ranks as get_process_group_ranks
from genesis.distributed.run import get_rank as get_rank
from genesis.distributed.run import get_world_size as get_world_size
from genesis.distributed.run import group as group
from genesis.distributed.run import init_process_group as init_process_group
from genesis.distributed.run import is_available as is_available
from genesis.distributed.run import is_backend_available as is_backend_available
from genesis.distributed.run import is_gloo_available as is_gloo_available
from genesis.distributed.run import is_initialized as is_initialized
from genesis.distributed.run import is_mpi_available as is_mpi_available
from genesis.distributed.run import is_nccl_available as is_nccl_available
from genesis.distributed.run import is_torchelastic_launched as is_torchelastic_launched
from genesis.distributed.run import is_ucc_available as is_ucc_available
from genesis.distributed.run import is_xccl_available as is_xccl_available
from genesis.distributed.run import new_group as new_group
from genesis.distributed.store import PrefixStore as PrefixStore
from genesis.distributed.store import TCPStore as TCPStore
from genesis.distributed.subgroups import new_subgroups as new_subgroups
from genesis.distributed.subgroups import new_subgroups_by_enumeration as new_subgroups_by_enumeration
from genesis.distributed.subgroups import split_group as split_group
from genesis.distributed.work import Work as Work
from genesis.ir.suggest import suggesting
from genesis.runtime.collectives import DistBackendError as DistBackendError
from genesis.runtime.collectives import DistError as DistError
from genesis.runtime.collectives import DistNetworkError as DistNetworkError
from genesis.runtime.collectives import DistStoreError as DistStoreError

reduce_op = ReduceOp
Backend = str
"""A backend's name is a word: "gloo" or "nccl"."""

__getattr__ = suggesting(__name__)
