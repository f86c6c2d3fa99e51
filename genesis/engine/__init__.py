"""The one seam between recording and running: capture → key → plan → run.

In: storages whose content is wanted (`flushing.py`). Out: memory with that content. `capture.py` makes the program and
its key, `plans.py` finds the key's plan, `compilation.py` makes a new one, `symbolic/` plans for sizes that change.
"""

from genesis.engine.flushing import allocate, end_step, flush, last_plan, materialize, memory_of, observe

__all__ = ["allocate", "end_step", "flush", "last_plan", "materialize", "memory_of", "observe"]
