"""Groups become code: what each backend makes of a Schedule, a folder a backend.

In: a `Schedule` and its `MemoryPlan`. Out: the steps of a `Plan`.
"""
