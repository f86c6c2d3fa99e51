"""The one seam between recording and running: capture → key → plan → run.

In: storages whose content is wanted. Out: memory with that content.

| file | what it does |
|---|---|
| `flushing.py` | what the rest of Genesis calls |
| `limits.py`, `cuts.py`, `recorded_since.py` | when pending work is too much, and where the program is cut then |
| `odd_turns.py`, `unlike_turns.py`, `repeated_numbers.py` | the same in loops whose turns are not alike |
| `preparation.py`, `situations.py` | which storages a flush computes, what it keeps for others; that, remembered |
| `overwritten_leaves.py` | the leaf tensors whose old content a backward after the step will ask for |
| `old_graphs.py`, `histories.py`, `behind_boundaries.py` | what earlier programs made that a backward may come to |
| `capture.py` | from live nodes to a program and its key; `saved_values.py` adds what a backward will read |
| `moving_places.py` | where slices begin, as numbers of the program |
| `plan_lookup.py`, `plans.py` | the key's plan: this process', another size's (`symbolic/`), the disk's, a new one |
| `compilation.py`, `backends.py`, `tuning.py` | passes, lowering and executor make a new one, with measured choices |
| `running.py`, `failures.py`, `interruption.py` | run it and tell the storages; when it fails; when it is interrupted |
| `in_parts.py` | what of a program that failed is made without the rest |
| `short_read.py` | all of this at once for a small value that nothing else depends on |
| `young_objects.py` | when Python's collector looks at what a flush left |
| `state.py` | all that is remembered from one flush to the next |
"""

from genesis.engine.flushing import allocate, end_step, flush, held_at_step, materialize, memory_of
from genesis.engine.limits import look
from genesis.engine.plan_lookup import Superseded, last_plan, observe
from genesis.engine.preparation import Flush, prepare
from genesis.engine.running import Divisible, run
from genesis.engine.state import reset

__all__ = ["Divisible", "Flush", "Superseded", "allocate", "end_step", "flush", "held_at_step", "last_plan", "look",
           "materialize", "memory_of", "observe", "prepare", "reset", "run"]
