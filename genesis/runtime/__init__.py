"""The runtime, all that a program needs to run: plans, memory, drivers and executors; each backend has a folder.

In: a `Plan`, memories and numbers. Out: memories with the outputs. Knows types, and nothing of how a plan came to be.

| file | what it does |
|---|---|
| `plan.py`, `plan_edges.py` | a plan, and which of its steps wait for which |
| `plan_form.py`, `stored_form.py`, `plan_cache.py`, `disk_store.py` | a plan as plain data, and on disk |
| `shadow_weights.py` | copies of weights, and whether they still show their sources |
| `collectives.py`, `nccl_options.py` | what moves data between processes |
| `dlpack.py`, `host_bytes.py` | memory of other libraries |
| `meta.py` | the device whose tensors have no elements |
| `contexts.py`, `own_threads.py`, `references.py` | contexts that C enters, our threads, counts of references |
| `collector.py` | when Python's collector goes through everything |
"""
