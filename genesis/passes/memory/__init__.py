"""Order and memory: when each group runs, and where each value lies meanwhile.

In: a `Schedule`. Out: the schedule in an order of lower peak (`schedule.py`), and a `MemoryPlan` of offsets in one
arena (`plan_memory.py`).
"""
