"""Preparation of a flush: the storages to compute are the wanted ones, all pending writes, and those of live tensors
that could not be computed later."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from genesis.engine.behind_boundaries import that_can_be_asked_for
from genesis.engine.capture import Captured, Written, capture, with_histories
from genesis.engine.overwritten_leaves import SMALL, leaves_to_copy, note_released_parts, released_nodes
from genesis.engine.plan_lookup import Superseded
from genesis.engine.saved_values import Usage, note_use, save_for_backward
from genesis.engine.state import engine_state
from genesis.frontend.detached import live_histories
from genesis.frontend.pending import NEVER, live_differentiable, live_pending
from genesis.frontend.state import state
from genesis.frontend.storage import Cell, Storage
from genesis.frontend.threads import interrupts_op, others, others_record
from genesis.ir.interrupting import of_computing
from genesis.ir.node import Node
from genesis.ir.ops import control
from genesis.ir.types import Device
from genesis.ir.walk import computed, walk, walk_since

if TYPE_CHECKING:
    from collections.abc import Sequence

    from genesis.codegen.base import Memory
    from genesis.engine.compilation import Compiled
    from genesis.engine.situations import Situation

MANY: Final = 32
"""Nodes of a program beyond which live values that need some of them are computed with it. A loop that reads a loss and
carries values on without a gradient computed all its steps again at each read: the graph of what is carried grew."""


@dataclass(slots=True, eq=False, repr=False)
class Flush:
    """One plan's worth of work: the program and the storages that it is for.

    Attributes:
        outputs: storages that get memory with their content.
        updates: storages whose memory is overwritten with their new content.
        snapshots: those of `updates` whose old content is copied first.
        live: all uncomputed storages, which a failure may leave without their content.
        saved: nodes whose values are kept for a backward, and who is to know about them.
        content: what is computed for each storage: it may be written to meanwhile.
        cells, memories: of the updates.
        ran: how many programs had run before it was made.
        doubtful: another thread, or an op that this flush interrupts, may hold the old content of an update, unseen.
        compiled, results: its plan, and what that gave.
        told: storages with the cells that they get.
        writing: memory is being overwritten, or was.
        committed: the results are there, and memory is overwritten where it has to be: this cannot be taken back.
        finished: the storages know of the results.
        situation: what to remember the answers of its preparation by (`situations.py`), if by anything.
        asked: how many of the outputs are computed for their own sake; the others, after these, as they would be lost.
        waited: some of these nobody has asked for (`waiting.py`): where it fails it is as if it had not been tried.
    """

    device: Device
    outputs: list[Storage]
    updates: list[Storage]
    snapshots: list[Storage]
    live: list[Storage]
    captured: Captured
    saved: tuple[list[Node], Usage | None]
    content: dict[Storage, Node]
    cells: list[Cell]
    memories: list[Memory]
    ran: int
    doubtful: bool
    compiled: Compiled | None = None
    results: Sequence[Memory] = ()
    told: dict[Storage, Cell] = field(default_factory=dict)
    writing: bool = False
    committed: bool = False
    finished: bool = False
    situation: Situation | None = None
    asked: int = 0
    waited: bool = False


def prepare(wanted: list[Storage], live: list[Storage], device: Device, rest: Sequence[Storage] = ()) -> Flush | None:
    """The flush that brings the wanted storages and all pending writes into memory; None if nothing is to be done.

    Args:
        live: the storages with pending content.
        rest: others, which stay pending: what they read of memory that is overwritten is copied.

    Raises:
        Superseded: a signal handler or a finalizer has computed something meanwhile.
    """
    ran = engine_state.ran
    try:
        return _prepared(wanted, live, device, ran, rest)
    except of_computing(Exception):
        if ran != engine_state.ran:  # what it looked at has changed under its hands
            raise Superseded from None
        raise


def _prepared(wanted: list[Storage], there: list[Storage], device: Device, ran: int,
              rest: Sequence[Storage]) -> Flush | None:
    live = that_can_be_asked_for(there, wanted) if state.crossings else there
    updates = [s for s in live if s.cell is not None]
    outputs = list(dict.fromkeys([*[s for s in wanted if s.cell is None],
                                  *[s for s in live if s.writes and s.cell is None]]))
    if not outputs and not updates:
        return None
    asked = len(outputs)
    content = {s: node if (node := s._node) is not None else s.node  # the property takes twice as long (`host_time.py`)
               for s in (*outputs, *live, *rest)}
    if state.released_since:
        note_released_parts(content.values())
    if updates and "GENESIS_VERIFY" in os.environ:
        from genesis.engine.old_graphs import verify_ages
        held = [node for s in live_differentiable() if (node := s._node) is not None]
        verify_ages([*content.values(), *held], updates)
    chosen, written = set(outputs), [content[s] for s in updates]
    roots = [*[content[s] for s in outputs], *written]
    order = walk(roots)
    visited, known = with_histories(order)
    from genesis.engine.situations import captured_again, situation_of  # what records imports this module

    cuts = engine_state.cuts
    text = Written(cuts.cutting or cuts.ran == engine_state.ran)  # what follows a cut was begun before it
    text.write(visited, known)
    if text.past:
        from genesis.engine.histories import end_histories
        end_histories(text.past)
    situation = situation_of(text, visited, outputs, live, updates, content, device) if (
        updates and not rest) else None
    note_use(known)
    answer = engine_state.plans.situations.get(situation.key) if situation is not None else None
    way = answer.way() if answer is not None else None
    cells: list[Any] = [s.cell for s in updates]
    compiled: Compiled | None = None
    saved: tuple[list[Node], Usage | None]
    if situation is not None and answer is not None and way is not None:
        outputs += [situation.live[i] for i in answer.kept]
        snapshots = [updates[i] for i in answer.snapshots]
        program, compiled = way
        captured, to_save = captured_again(
            text, visited, known, answer, program, [content[s] for s in outputs], cells, written,
            [(s.cell, s.type) for s in snapshots])  # type: ignore[misc]
        saved = to_save, answer.usage
    else:
        others_alive = [s for s in live if s.cell is None and s not in chosen]
        kept, snapshots = _still_needed(order, updates, others_alive, content)
        outputs += kept
        snapshots += [s for s in needed_by_backwards(updates, [*live, *rest], content, {content[s] for s in outputs})
                      if s not in snapshots]
        if rest:
            read = {id(node.buffer) for node in walk([content[s] for s in rest]) if computed(node)}
            snapshots += [s for s in updates if id(s.cell) in read and s not in snapshots]
        captured = capture([content[s] for s in outputs], cells, written,
                           [(s.cell, s.type) for s in snapshots], (text, visited, known))  # type: ignore[misc]
        if captured.known is not known:
            note_use(captured.known)
        saved = save_for_backward(captured)
        if text.seen < len(visited) or (cuts.cutting and saved[1] is not None):  # it was written down in another order,
            situation = None  # or what a piece of a loop saves is told to the next one
    doubtful = bool(updates) and (cuts.in_op or interrupts_op() or (
        others() > 0 and (others_record() or _moved_on(live, content, there))))
    return Flush(device, outputs, updates, snapshots, [*live, *rest], captured, saved, content, cells,
                 [cell.memory for cell in cells], ran, doubtful, compiled, situation=situation, asked=asked)


def _moved_on(live: list[Storage], content: dict[Storage, Node], there: list[Storage]) -> bool:
    """Whether another thread has recorded something since these contents were looked at: of the live storages, of all
    that were there."""
    return any(s._node is not content[s] for s in live) or any(
        not s.settled and s not in content and s not in there for s in live_pending()
        if s.type.device is live[0].type.device)


def _still_needed(computed_here: dict[Node, None], updates: list[Storage],
                  rest_of: list[Storage], content: dict[Storage, Node]) -> tuple[list[Storage], list[Storage]]:
    """The storages that the flush must also keep, so that every live tensor stays readable.

    Returns the storages to compute now, and the updated storages whose old content to copy. A
    tensor that the program computes anyway is kept, and so is a gradient. One without gradients
    that needs some of a large program's values is computed now. Another one that needs
    content about to be overwritten is computed now, or stays computable from copies of that
    content, whichever takes fewer bytes; a step by hand overwrites all leaves one by one, so
    all are counted at once.
    """
    kept: list[Storage] = []
    rest: list[Storage] = []
    for storage in rest_of:
        (kept if storage.persistent and content[storage] in computed_here else rest).append(storage)
    carried = _carried(computed_here, rest, content) if len(computed_here) > MANY else ()
    if not updates:  # nothing gets lost
        return kept + [s for s in rest if s in carried or _is_in(computed_here, content[s])], []
    if all(s.type.nbytes <= SMALL and _is_in(computed_here, content[s]) for s in rest):
        return kept + rest, []
    from genesis.engine.old_graphs import oldest_in  # here: importing genesis computes nothing
    overwritten = {id(s.cell): s for s in updates}
    oldest = oldest_in(updates)
    lost = _readers(walk_since([content[s] for s in rest], oldest), overwritten)
    dependent = [s for s in rest if content[s] in lost and not s.persistent]
    kept += [s for s in rest if (s.persistent if content[s] in lost else
                                 s in carried or _is_in(computed_here, content[s]))]
    small = [s for s in dependent if s.type.nbytes <= SMALL]
    if len(small) == len(dependent):
        return kept + dependent, []
    reached = walk_since([content[s] for s in dependent], oldest)
    found = {id(node.buffer) for node in reached}
    needed = [s for s in updates if id(s.cell) in found]
    to_copy = max(sum(s.type.nbytes for s in needed), _trained_bytes(reached))
    if to_copy < sum(s.type.nbytes for s in dependent):
        return kept + small, needed
    return kept + dependent, []


def _trained_bytes(nodes: Iterable[Node]) -> int:
    """The bytes of the leaves that want gradients and are read by these nodes."""
    return sum(x.type.nbytes for x in {x for node in nodes for x in node.inputs if x.op is control.watch})


def _carried(computed_here: dict[Node, None], rest: list[Storage], content: dict[Storage, Node]) -> set[Storage]:
    """Those without gradients that need values which the program computes, and does not give."""
    asked = [s for s in rest if not content[s].needs_grad]
    if not asked:
        return set()
    here = {node for node in computed_here if node.inputs and not computed(node)}
    disjoint = here.isdisjoint
    for node in walk_since([content[s] for s in asked], min([node.number for node in here], default=0)):
        if not computed(node) and not disjoint(node.inputs):
            here.add(node)
    return {s for s in asked if content[s] in here}


def _is_in(computed_here: Container[Node], node: Node) -> bool:
    """Whether the value is among these, or one of them whose history was forgotten, as a loss's after its backward."""
    return node in computed_here or (node.op is control.stop_gradient and node.inputs[0] in computed_here)


def needed_by_backwards(updates: list[Storage], live: list[Storage], content: dict[Storage, Node],
                        kept: Container[Node] = ()) -> list[Storage]:
    """The updated storages whose old content a backward of a live tensor may have to read again.

    Those of leaf tensors only where torch has saved what is computed of them (`overwritten_leaves.py`): writing to what
    a backward reads is the program's error there.
    """
    from genesis.engine.old_graphs import oldest_in, that_may_show
    oldest = oldest_in(updates) if updates else NEVER
    differentiable, histories = live_differentiable(oldest), live_histories()  # forget those that nobody holds
    if not updates:
        return []
    overwritten = {id(s.cell): s for s in updates}
    asked = [s.node_in_passing for s in differentiable  # most are held by a list of former turns', and older
             if ((held := s._node) is None or held.number >= oldest) and s.settled and s.needs_grad]
    asked += [node for s in live if (node := content[s]).needs_grad and node.number >= oldest]
    roots = that_may_show(asked, overwritten, oldest)
    roots += [node for node in histories if node.number >= oldest]
    if not roots:
        return []
    gone = set(state.live_released())
    unreleased = [node for node in roots if node not in gone]
    released = released_nodes(oldest) if unreleased else set()  # with all that their gradients would go through
    unreleased = [node for node in unreleased if node not in released]
    stack = unreleased.copy()
    seen: set[Node] = set()
    found: dict[Storage, None] = {}
    while stack:
        node = stack.pop()
        if node.number < oldest or node in seen or node.op is control.watch:
            continue
        seen.add(node)
        if node.needs_grad or not computed(node):
            stack.extend(node.inputs)
        elif id(node.buffer) in overwritten:
            found[overwritten[id(node.buffer)]] = None
    return list(found | dict.fromkeys(leaves_to_copy(unreleased, overwritten, kept, released, oldest)))


def _readers(order: Iterable[Node], overwritten: Container[int]) -> set[Node]:
    """Those of these nodes, operands before users, that need content of the overwritten cells (given by id)."""
    found: set[Node] = set()
    disjoint = found.isdisjoint
    for node in order:
        cell = node.buffer
        if not disjoint(node.inputs) if cell is None or cell.memory is None else id(cell) in overwritten:
            found.add(node)
    return found
