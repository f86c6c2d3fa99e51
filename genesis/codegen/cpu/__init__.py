"""The CPU backend's code: groups → torch calls over planned memory.

In: a `Schedule` and its `MemoryPlan`. Out: the steps of a `Plan`. `lowerings/` is the table, op by op.
"""
