"""Running CUDA plans: the driver, streams, memory pool, kernels on disk, executor and graphs.

In: a `Plan`, memories and numbers. Out: outputs' memories.

| file | what it does |
|---|---|
| `driver.py`, `cuda_python_*.py` | what is asked of CUDA, and who does it |
| `executor.py`, `shadow_executor.py`, `bound_plan.py`, `launch_arguments.py`, `device_tables.py` | a plan's runs |
| `arena.py`, `memory_*.py`, `storage.py` | scratch memory of plans; the pool of tensors' memory |
| `stream.py`, `stream_order.py`, `foreign.py` | streams, what waits for what, and other libraries' |
| `kernel_cache.py`, `module.py`, `kernel_timer.py` | kernels on disk, on the GPU, and timed |
| `device_checks.py` | errors that kernels note |
| `page_locked.py`, `host_copies.py` | copies to and from the host, also beside the program |
| `nccl.py`, `collective_work.py`, `staged_transport.py` | collectives |
"""
