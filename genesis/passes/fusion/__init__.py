"""Which nodes become one kernel, and why.

In: a legalized `Graph`. Out: a `Schedule` of groups (`passes/groups.py`) with the reasons for each group and each
refusal. `fuse.py` merges clusters, `materialize.py` says which values must be in memory, the index files say which
element a kernel's point reads.
"""
