"""`genesis.cuda`: GPUs, streams, events, memory and random state, under torch.cuda's names.

In: which GPU is meant, and what is asked of it. Out: streams, events, numbers of bytes, random states.

A GPU can be given as a `Device`, a number, "cuda" or "cuda:1"; None is the current one. Sizes are in bytes.
Importing this needs no GPU. Asking for memory that was never used, or seeding, needs none either; other functions do.
"""

from genesis.cuda.block_pool import AsyncMemoryPool
from genesis.cuda.devices import (
    DeviceProperties,
    can_device_access_peer,
    current_device,
    device,
    device_count,
    device_of,
    get_arch_list,
    get_device_capability,
    get_device_name,
    get_device_properties,
    init,
    is_available,
    is_bf16_supported,
    is_current_stream_capturing,
    is_initialized,
    is_tf32_supported,
    set_device,
    synchronize,
)
from genesis.cuda.memory import (
    CUDAStorage,
    OutOfMemoryError,
    empty_cache,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_summary,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from genesis.cuda.random import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from genesis.cuda.streams import Event, Stream, current_stream, default_stream, set_stream, stream
from genesis.ir.suggest import suggesting

StreamContext = stream

__getattr__ = suggesting(__name__, ("amp",))
