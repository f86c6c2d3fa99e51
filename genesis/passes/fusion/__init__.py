"""Which nodes become one kernel, and why.

In: a legalized `Graph`. Out: a `Schedule` of groups (`passes/groups.py`) with the reasons for each group and each
refusal.

| file | what it does |
|---|---|
| `fuse.py`, `cluster.py`, `cluster_graph.py`, `finish_groups.py` | merges clusters of nodes, and makes groups of them |
| `one_loop.py` | whether one loop can compute two clusters, and is worth it |
| `group_per_op.py` | the CPU's grouping: an op a group |
| `materialize.py`, `turned_rows.py` | which values must be in memory, and which are copied there first |
| `index_map.py`, `views.py`, `loop_reads.py`, `operand_view.py`, `other_points.py` | which element a point reads |
| `epilogues.py`, `foreach.py`, `updates_alone.py` | what a product's kernel computes; one launch over many tensors |
| `slices.py`, `side_by_side.py`, `awaited.py` | parts in place; kernels in one launch; what waits for ranks |
| `shadow_weights.py` | low-precision copies of weights |
"""
