"""What a flush computes beside what is asked for, remembered: the program and who is alive decide it.

Preparing a flush that overwrites memory asks which live tensors are kept with it, which old contents are copied first
for a backward that may come, and which plan that gives. All of it follows from the *situation*: the program as it is
written down, where in it the contents of the storages are that are asked for, overwritten or alive, and which graphs
backwards have let go of.
Where something outside of the program has a say (a value that was computed before and can still be differentiated, a
history beside the content), there is no situation, and the flush is prepared as if it was the first.

Nothing is guessed: a situation is compared whole, as a plan's key is.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from genesis.config import config
from genesis.engine.capture import Captured, Written
from genesis.engine.state import engine_state
from genesis.frontend.detached import live_histories
from genesis.frontend.pending import live_differentiable
from genesis.frontend.state import state
from genesis.frontend.storage import Storage
from genesis.ir.ops import control

if TYPE_CHECKING:
    from collections.abc import Hashable

    from genesis.engine.compilation import Compiled
    from genesis.engine.preparation import Flush
    from genesis.frontend.storage import Cell
    from genesis.ir.node import Node
    from genesis.ir.types import Device, TensorType


class Answer(NamedTuple):
    """What the first flush in a situation found.

    Attributes:
        kept: places, among the live storages, of those that are computed with the program.
        snapshots: places, among the overwritten ones, of those whose old content is copied.
        key, memory_types: of the captured program.
        compiled: its plan, while this process has it.
    """

    kept: tuple[int, ...]
    snapshots: tuple[int, ...]
    key: tuple[Hashable, ...]
    memory_types: list[TensorType]
    compiled: weakref.ref[Compiled]


ASKED: Final = 4
"""Where in a situation the positions are of what is asked for."""


def situation_of(written: Written, outputs: Sequence[Storage], live: Sequence[Storage], updates: Sequence[Storage],
                 content: Mapping[Storage, Node], device: Device) -> tuple[Hashable, ...] | None:
    """The situation of a flush; None if more has a say than can be written down."""
    if written.differentiable or _beside(updates):
        return None
    position, places = written.position, written.places
    released = tuple(map(position.get, state.live_released()))  # where graphs begin that backwards have let go of
    at = _positions(position, [content[storage] for storage in live])
    if at is None or None in released:
        return None
    memories = [-1 if (cell := storage.cell) is None else places.get(cell) for storage in live]
    alive = (tuple(at), tuple(memories), tuple([storage.persistent for storage in live]),
             tuple(map(set(outputs).__contains__, live)))
    asked = tuple([position[content[storage]] for storage in outputs])
    return device, config.key(), tuple(written.types), tuple(written.key), asked, alive, released


def _positions(position: Mapping[Node, int], contents: Sequence[Node]) -> list[int] | None:
    """Where the contents are; of one whose history was forgotten, as a loss's after its backward, -1 minus the place of
    what it shows. None if one is not computed with the program."""
    found = list(map(position.get, contents))
    for i, at in enumerate(found):
        if at is None:
            node = contents[i]
            below = position.get(node.inputs[0]) if node.op is control.stop_gradient else None
            if below is None:
                return None
            found[i] = -1 - below
    return found  # type: ignore[return-value]  # no None is left


def _beside(updates: Iterable[Storage]) -> bool:
    """Whether a backward through what was computed before may read what is overwritten."""
    differentiable, histories = live_differentiable(), live_histories()  # forget those that nobody holds
    if histories:
        return True
    if not differentiable:
        return False
    from genesis.engine.old_graphs import may_show
    overwritten = {id(s.cell): s for s in updates}
    return any(s.settled and s.needs_grad and may_show(s.node, overwritten) for s in differentiable)


def captured_again(written: Written, answer: Answer, outputs: Sequence[Node], overwritten: Sequence[Cell],
                   contents: Sequence[Node], snapshots: Sequence[tuple[Cell, TensorType]]) -> Captured:
    """The captured program of a flush in a known situation."""
    position, places = written.position, written.places
    for node in outputs:
        if node not in position:
            position[node] = len(position)
    for cell in overwritten:
        places.setdefault(cell, len(places))
    return Captured(written.order, set(), list(places), answer.memory_types,
                    [x.attrs[0] for x in written.number_nodes], written.number_nodes, answer.key, outputs, overwritten,
                    contents, snapshots, twins=written.twins)


def remember(flush: Flush, situation: tuple[Hashable, ...], compiled: Compiled) -> None:
    """Remember what the first flush in a situation found."""
    captured = flush.captured
    if captured.moving:  # where a slice is depends on where it was
        return
    at, of = {s: i for i, s in enumerate(flush.live)}, {s: i for i, s in enumerate(flush.updates)}
    kept = flush.outputs[len(situation[ASKED]):]  # type: ignore[arg-type]  # a tuple
    engine_state.plans.situations.add(situation, Answer(
        tuple([at[s] for s in kept]), tuple([of[s] for s in flush.snapshots]), captured.key, captured.memory_types,
        weakref.ref(compiled)))
