"""A captured Graph becomes what runs as one kernel each, in which order, over which memory.

In: a `Graph` as captured. Out: a `Schedule` of groups and a `MemoryPlan`. `pipeline.py` is the list of all passes, in
order; they are pure functions, by kind in `graph/`, `fusion/`, `remat/` and `memory/`.
"""
