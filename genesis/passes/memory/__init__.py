"""Order and memory: when each group runs, and where each value lies meanwhile.

In: a `Schedule`. Out: the schedule in an order of lower peak (`schedule.py`), with reductions over ranks
(`reduce_early.py`), gathers (`overlap_collectives.py`) and what overwrites memory (`writes_last.py`) in their places,
and a `MemoryPlan` of offsets in one arena (`plan_memory.py`, `arena.py`; `most_alive.py` tells its peak).
"""
