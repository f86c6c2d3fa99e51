"""Limits of what is pending: a program that nobody reads is computed when it is long, or holds much memory.

Recording counts (`frontend/pending.py`): a value's number, and the bytes of new memories. When one of them passes a
mark, what is pending is looked at, and the next mark set. At the limit it is cut: all that is alive is computed, as
eager torch would have done already. Cuts are where the recorded code repeats (`cuts.py`), so that an endless loop
takes one plan for what leads to it, one for its turns, and one for the rest.

Nothing is cut between a backward and its step. A value that gradients flow through, recorded after a backward, belongs
to the next forward (gradients accumulate): there a cut may be, and after one also where the last gradients are read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sized
from types import FrameType
from typing import TYPE_CHECKING, Final

from genesis.config import config
from genesis.engine.cuts import Cuts, Turns, position, returns_next, whole_turns
from genesis.engine.interruption import left_behind
from genesis.engine.recorded_since import every, oldest, soon
from genesis.engine.state import engine_state
from genesis.frontend.engine_protocol import connect, engine
from genesis.frontend.pending import NEVER, SHORT, live_pending
from genesis.frontend.state import lock, state
from genesis.frontend.storage import Storage
from genesis.ir.node import Node
from genesis.ir.numbers import set_numbers_apart
from genesis.ir.ops import control, leaves
from genesis.ir.source import PACKAGE
from genesis.ir.walk import computed, needed
from genesis.runtime.contexts import Attempt

if TYPE_CHECKING:
    from genesis.engine.unlike_turns import UnlikeTurns

_WHOLE: Final = (PACKAGE + "optim" + os.sep, PACKAGE + "autograd" + os.sep)
"""Where what is recorded belongs together: the writes of a step, the gradients of a backward."""

_ENDING: Final = frozenset({"wrap", "storage_of", "pointwise_op", "record", "write", "replace", "assign", "update",
                            "write_back"})
"""Names of functions that hold no content once they have recorded it, as special methods and `add_` and the like."""

_CALLING: Final = frozenset({"forward", "inside", "steps"})
"""Names of functions that call the user's, and hold tensors but no contents."""

OFTEN: Final = 128
"""Turns of a loop from which on it is an endless one, rather than the layers of a model. Where gradients flow a model's
step is one plan, up to `DEEP` times the limit; so many equal short turns are cut before there are as many nodes as the
limit says, since what leads to the first cut is a plan of its own."""

UNLIKE: Final = 4
"""Pieces in a row that were compiled, the one before the first cut among them, from which on turns are pieces: one
piece more than a loop has whose second finds places that move (`moving_places.py`)."""

PIECES: Final = 8
"""An endless loop is cut this often for each `config.pending_nodes` that it records: a piece is compiled as long as it
is, 0.1 ms a node, and run as often as it comes."""

EARLY: Final = 4
"""Times that the nodes of a loop of short turns are counted before there are `OFTEN` of these: it is cut earlier if it
has as many as the limit says."""

FEW: Final = 4
"""Values that may have been recorded since a piece was computed when the collector looks at what that has left."""

LOOKED_AT: Final = 4
"""Times that a value which waits is looked at, about, before as many have been recorded."""

DEEP: Final = 4
"""Times `config.pending_nodes` that a program with gradients may have in which no turns of a loop were found."""

BACKWARDS: Final = 16
"""Backwards in a long program from which on it is a loop of them: more than a step accumulates gradients of."""


def look(storage: Storage, number: int) -> None:
    """A storage got content, the `number`-th that was recorded, and a mark is passed: cut, or set the next mark."""
    frame, again = sys._getframe(1), number + every()
    with (attempt := Attempt(lock)):
        if attempt.taken == [False]:  # another thread computes: later
            state.look_at = again
        else:
            _look_once(storage, number, frame, again)


def _look_once(storage: Storage, number: int, frame: FrameType, again: int) -> None:
    """Look; what is recorded meanwhile is not looked at. After an exception the next look is at number `again`."""
    cuts = engine_state.cuts
    from genesis.runtime.collector import put_off_collection  # here: importing genesis records nothing
    put_off_collection()
    try:
        state.look_at = NEVER
        then, cuts.then, cuts.collects = cuts.then, 0, False
        if then and _collected(cuts) and number < then:
            again = then
            return
        found = _look(storage, number, frame)
        if cuts.collects:
            cuts.then, found = found, number + 1
        again = found
    finally:
        state.look_at = again


def _collected(cuts: Cuts) -> bool:
    """A piece was computed in the middle of an op, which held what it was made of: now that is over, and the young
    objects are looked at. False if a program has run since: then it is not known where to look next."""
    from genesis.engine.young_objects import collect_young
    collect_young(recorded=FEW)
    return cuts.ran == engine_state.ran


def _look(storage: Storage, number: int, frame: FrameType) -> int:
    """Look, and return the number to look at next."""
    cuts = engine_state.cuts
    if state.rewriting.calls:
        return number + 1
    if state.session is not None or state.volatile or state.regions or (
            engine_state.record is not None and not left_behind(engine_state.record)):
        return number + every()  # what is recorded now is no program of its own
    if cuts.ran != engine_state.ran:
        cuts.overdue = 0
    if cuts.overdue or (config.pending_bytes > 0 and state.fresh_bytes >= state.bytes_mark):
        return _full(storage, number, frame)
    if cuts.cut_at is not None and cuts.ran == engine_state.ran and cuts.spacing:
        if (again := _next_piece(storage, number, frame)) is not None:
            return again
        cuts.cut_at = cuts.unlike = cuts.odd = None  # the loop is over: another one may follow
        return _equal_turns(storage, number, frame, oldest(number))
    if cuts.watched and cuts.measured[2] == engine_state.ran:
        return _watch(storage, number, frame)
    return _many(storage, number, frame)


def _next_piece(storage: Storage, number: int, frame: FrameType) -> int | None:
    """Cut where the loop that was cut before comes to the same place; None if it does not any more."""
    cuts, unlike = engine_state.cuts, engine_state.cuts.unlike
    if number >= cuts.last + 3 * cuts.spacing:
        return None
    begins = unlike is not None and unlike.begins(frame)
    if unlike is not None and unlike.depth is not None:
        return _next_turn(storage, number, frame, unlike) if begins else number + 1
    after_odd = cuts.odd is not None and cuts.odd.ended(position(frame))
    if not after_odd and (number < cuts.last + cuts.spacing or position(frame) != cuts.cut_at):
        return number + 1
    before, alike, plans = cuts.last, cuts.alike, engine_state.plans.compiled
    if not _cut(storage, number, frame):
        return number + 1
    cuts.alike = engine_state.plans.compiled == plans
    if not (after_odd or alike or cuts.exact):  # else an odd turn in it would make each piece after it longer
        cuts.spacing = number - before
    _note_unlike(after_odd, alike)
    return number + (cuts.spacing if cuts.unlike is None and cuts.odd is None else 1)


def _note_unlike(after_odd: bool, alike: bool) -> None:
    """A piece was cut: begin or end to look for turns that are not alike.

    Args:
        after_odd: it ends with a turn that was another one than those before.
        alike: the piece before it was no new program.
    """
    from genesis.engine.odd_turns import MOST_MISSES as MOST_ODD  # here: importing genesis records no loop
    from genesis.engine.odd_turns import OddTurns
    from genesis.engine.unlike_turns import MOST_MISSES, UnlikeTurns
    cuts, unlike = engine_state.cuts, engine_state.cuts.unlike
    compiled = not cuts.alike
    if unlike is not None:
        cuts.unlike = unlike if (cuts.misses > 0 or unlike.certain) and unlike.found() else None
        cuts.misses = cuts.misses if cuts.unlike else -MOST_MISSES  # no such loop
    elif cuts.odd is not None:
        cuts.odd.misses += compiled
        if cuts.odd.misses >= MOST_ODD or (compiled and not after_odd):  # what is odd is not where they record
            cuts.odd, cuts.unlike = None, UnlikeTurns(certain=True)
    elif cuts.misses == UNLIKE - 1:
        cuts.unlike = UnlikeTurns()
    elif compiled and alike and cuts.cut_at is not None:
        cuts.odd = OddTurns(cuts.cut_at)


def _next_turn(storage: Storage, number: int, frame: FrameType, unlike: UnlikeTurns) -> int:
    """A turn of a loop whose long pieces are not alike begins: cut, before what is being recorded."""
    from genesis.engine.unlike_turns import MOST_MISSES
    cuts, compiled = engine_state.cuts, engine_state.plans.compiled
    if _cut(storage, number, frame, before=True):
        unlike.misses = unlike.misses + 1 if engine_state.plans.compiled != compiled else 0
        if unlike.misses >= MOST_MISSES:
            cuts.unlike, cuts.misses = None, -MOST_MISSES
            return number + cuts.spacing
    return number + 1


def _many(storage: Storage, number: int, frame: FrameType) -> int:
    """Cut if there are many values and the program is a loop."""
    cuts = engine_state.cuts
    cuts.forget_watched()
    if cuts.turns is not None and not cuts.turns.is_full(number, engine_state.ran, OFTEN):
        return _equal_turns(storage, number, frame, cuts.turns.began)
    began = oldest(number)
    if number - began < soon():
        cuts.turns = None
        return began + soon()
    if number - began < every() or cuts.turns is not None:
        return _equal_turns(storage, number, frame, began)
    live = _live()
    return _long(storage, number, frame, needed([s.node for s in live]), len(live))


def _equal_turns(storage: Storage, number: int, frame: FrameType, began: int) -> int:
    """Follow the positions as long as they are short turns of one loop; after `OFTEN` of them, cut. What gradients flow
    through may be a step, of a recurrence: that is cut once it is long, too."""
    cuts = engine_state.cuts
    turns = cuts.turns
    if turns is None:
        turns = cuts.turns = Turns(engine_state.ran, number, began)
    period = turns.period_with(position(frame), number, engine_state.ran, SHORT)
    if period is None:
        cuts.turns = None
        return max(began + every(), number + 1)
    often = OFTEN * period
    if period and not turns.piece and number > turns.first and not (number - turns.first) % (often // EARLY):
        live, enough = _live(), not (number - turns.first) % often
        nodes = len(needed([s.node for s in live]))
        if enough and SHORT * nodes < number - began:  # less than a node a turn: what turns make was dropped, or
            cuts.turns = None  # computed
            return max(began + every(), number + 1)
        step = any(s.needs_grad for s in live)  # it may be one
        if (enough and (number - began >= every() or not step)) or (not step and nodes >= config.pending_nodes > 0):
            values = config.pending_nodes // PIECES * (number - began) // max(nodes, 1)
            turns.piece = whole_turns(max(values, 1), period)
    if not turns.piece or _waits(number, frame, period) or not _cut(storage, number, frame):
        return number + 1
    cuts.begin(place := position(frame), exact=True)
    cuts.spacing = cuts.spacing_at(place, turns.piece, period)
    cuts.turns = None
    return number + cuts.spacing


def _full(storage: Storage, number: int, frame: FrameType) -> int:
    """There is much new memory: cut if only pending work holds it, at the position of the last cut if that comes."""
    cuts, limit = engine_state.cuts, config.pending_bytes
    if not cuts.overdue:
        order = needed([s.node for s in _live()])
        held = held_bytes(order)
        if held < limit:
            state.bytes_mark = state.fresh_bytes + max(limit - held, limit // 4)
            return _many(storage, number, frame)
        cuts.overdue, cuts.ran = state.fresh_bytes + limit // 2, engine_state.ran
    if cuts.cut_at is not None and state.fresh_bytes < cuts.overdue and position(frame) != cuts.cut_at:
        return number + 1
    if not _cut(storage, number, frame):
        return number + 1
    cuts.begin(position(frame), exact=False)
    cuts.spacing = cuts.overdue = 0
    return number + every()


def _long(storage: Storage, number: int, frame: FrameType, order: Sized, live: int) -> int:
    """Begin to watch positions if what is pending is half as long as it may be.

    Args:
        order: the nodes that are pending.
        live: how many values wait for these. Equal values are one node: thousands may wait for a few.
    """
    cuts, nodes = engine_state.cuts, len(order)
    before, cuts.measured = cuts.measured, (number, nodes, engine_state.ran)
    if not config.pending_nodes or nodes < config.pending_nodes // 2:
        return number + max(every(), live // LOOKED_AT)
    if before[2] == engine_state.ran and number > before[0]:
        cuts.spacing = config.pending_nodes // PIECES * (number - before[0]) // max(nodes - before[1], 1)
    else:
        cuts.spacing = config.pending_nodes // (2 * PIECES)
    return _watch(storage, number, frame)


def _watch(storage: Storage, number: int, frame: FrameType) -> int:
    """Note the position; when enough are noted, cut at one that comes again."""
    cuts, place = engine_state.cuts, position(frame)
    enough = max(config.pending_nodes // 8, 8)
    if cuts.watched and number - cuts.watched[0][1] > 2 * enough:  # only some are looked at (`look_behind`)
        enough = 8
    cuts.find_turns(enough, 2 * enough)
    found = cuts.found
    if found is None and len(cuts.watched) < 2 * enough:
        cuts.watch(place, number)
        return number + 1
    if found is not None and place not in found.places:
        return number + 1
    if _is_ending(frame) is None:
        return number + 1
    rarest = cuts.rarest()
    if _one_step(number, rarest.period if rarest is not None else number):
        cuts.forget_watched()
        return number + every()
    if found is not None and _waits(number, frame, found.period):
        return number + 1
    if not _cut(storage, number, frame):
        return number + 1
    cuts.begin(place, exact=found is not None and found.exact)
    if found is None:
        return number + cuts.spacing
    cuts.spacing = whole_turns(cuts.spacing, found.period)
    from genesis.engine.unlike_turns import UnlikeTurns
    cuts.unlike = None if found.alike else UnlikeTurns()
    return number + (cuts.spacing if found.alike else 1)


def _waits(number: int, frame: FrameType, period: int) -> bool:
    """Whether the first cut of a loop waits for the end of an op, which a turn has. What an op has recorded when it is
    cut in its middle has read what was no memory yet: the next piece would be another program than those after it."""
    cuts = engine_state.cuts
    if not cuts.patience or number > cuts.patience + period:  # another loop's
        cuts.patience = number + period
    return number < cuts.patience and not _is_ending(frame)


def _one_step(number: int, period: int) -> bool:
    """Whether the program may be a single step of a deep model, which is one plan."""
    cuts = engine_state.cuts
    _, nodes, _ = cuts.measured
    recorded = nodes * cuts.spacing // max(config.pending_nodes // PIECES, 1)
    if nodes >= DEEP * config.pending_nodes or recorded >= OFTEN * period:
        return False
    live = _live()
    return any(s.needs_grad for s in live) and sum(
        node.op is control.grad for node in needed([s.node for s in live])) < BACKWARDS


def _cut(storage: Storage, number: int, frame: FrameType, before: bool = False) -> bool:
    """Compute all that is alive, the value that is being recorded too, unless the cut is `before` it. False, and
    nothing done, between a backward and its step."""
    cuts = engine_state.cuts
    ending = _is_ending(frame)
    if ending is None:
        return False
    cut_before = cuts.apart and cuts.ran == engine_state.ran  # then it is no step of one plan anyway
    goes_on = storage.needs_grad or cut_before
    if cuts.blocked == engine_state.ran and not goes_on:
        return False
    pending = _live()
    live = _computable(pending)
    if not goes_on and any(map(_is_gradient, live)):
        cuts.blocked = engine_state.ran
        return False
    compiled = engine_state.plans.compiled
    try:
        cuts.cutting, cuts.in_op = True, not ending
        state.pieces += 1
        engine.flush([s for s in live if s is not storage] if before else live)
    finally:
        cuts.cutting = cuts.in_op = False
        cuts.forget_watched()
    cuts.misses = cuts.misses + 1 if engine_state.plans.compiled != compiled else min(cuts.misses, 0)
    cuts.last, cuts.ran, cuts.apart, cuts.patience = number, engine_state.ran, True, 0
    if len(live) < len(pending):
        cuts.left_to = number
    set_numbers_apart(True)
    state.bytes_mark = state.fresh_bytes + config.pending_bytes
    return True


def _is_ending(frame: FrameType | None) -> bool | None:
    """Whether the ops that are being recorded hold no contents any more; None where no cut may be."""
    ending = True
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            name = code.co_name
            if name == "assign_all" or code.co_filename.startswith(_WHOLE):
                return None
            ending = ending and (name in _ENDING or name.endswith("_") or name in _CALLING or returns_next(frame))
        frame = frame.f_back
    return ending


def _live() -> list[Storage]:
    return [s for s in live_pending() if not s.settled]


def _computable(storages: list[Storage]) -> list[Storage]:
    """Those that need no value that is gone, or that is not there yet: an example's of another thread's `vmap`."""
    gone = [node for node in needed([s.node for s in storages]) if node.op is leaves.data and not computed(node)]
    if not gone:
        return storages
    return [s for s in storages if needed([s.node]).isdisjoint(gone)]


def _is_gradient(storage: Storage) -> bool:
    """Whether it waits for a gradient; what a backward of pieces has left is in memory, though no storage was told."""
    node = storage.node
    if computed(node):
        return False
    return storage.persistent or (node.op is control.item and node.inputs[0].op is control.grad)


def held_bytes(order: Iterable[Node]) -> int:
    """Bytes of the memories that these nodes read and that no tensor shows any more."""
    held: dict[int, int] = {}
    for node in order:
        cell = node.buffer
        if cell is not None and computed(node) and (cell.owner is None or cell.owner() is None):
            held[id(cell.memory)] = cell.memory.nbytes
    return sum(held.values())


connect(look=look)
