"""How much was recorded since a program ran last, and when that is looked at next (`limits.py`)."""

from __future__ import annotations

from genesis.config import config
from genesis.engine.cuts import Cuts
from genesis.engine.state import engine_state
from genesis.frontend.pending import NEVER
from genesis.frontend.state import state
from genesis.ir.interrupting import from_inside


def every() -> int:
    """How many values are recorded from one look to the next, where nothing is due: a look takes time for each pending
    node, so that each is looked at a few times."""
    return max(config.pending_nodes // 4, 1) if config.pending_nodes else 1 << 16


def soon() -> int:
    """How many values are recorded until equal turns are looked for."""
    return every() // 4


def note_end(cuts: Cuts) -> None:
    """A program has run: what is recorded from now on is looked at as if it were the first, wherever the last mark was,
    so that the same loop is cut at the same places when it comes again."""
    try:
        cuts.ran_to = max(cuts.ran_to, next(reversed(state.pending), 0))
    except from_inside(RuntimeError):  # another thread records
        return
    cuts.noted = engine_state.ran
    if state.look_at != NEVER and cuts.ran_to:
        state.look_at = min(state.look_at, cuts.ran_to + soon())


def oldest(number: int) -> int:
    """The number of the first value that may be pending: the first since a program ran, or what that left pending."""
    cuts, over = engine_state.cuts, list[int]()
    if cuts.noted != engine_state.ran:  # what ran was a short read or a replay
        cuts.ran_to, cuts.noted = number - 1, engine_state.ran
    began = cuts.ran_to + 1
    try:
        for at, reference in state.pending.items():
            if at >= began:
                break
            if at <= cuts.left_to:
                continue
            storage = reference()
            if storage is not None and storage._queued == at:
                began = at
                break
            over.append(at)  # computed, or dropped
    except from_inside(RuntimeError):  # another thread records
        return 0
    for at in over:
        state.pending.pop(at, None)
    return min(began, number)
