"""What a flush computes beside what is asked for, remembered: the program and who is alive decide it.

Preparing a flush that overwrites memory asks which live tensors are kept with it, which old contents are copied first
for a backward that may come, and which plan that gives. All of it follows from the *situation*: the program as it is
written down, where in it the contents of the storages are that are asked for, overwritten or alive, and which graphs
backwards have let go of.
What is in memory and is differentiated through is a part of the program, and what other live values need of it, and how
they came to be, is written down behind it. Where more has a say (a value that was computed before, of what is
overwritten now, and can still be differentiated; a history beside the content; many live values), there is no
situation, and the flush is prepared as if it was the first.

Nothing is guessed: a situation is compared whole, as a plan's key is.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from genesis.config import config
from genesis.engine.capture import Captured, Written
from genesis.engine.old_graphs import oldest_in, that_may_show, that_touch
from genesis.engine.state import engine_state
from genesis.frontend.detached import live_histories
from genesis.frontend.pending import live_differentiable
from genesis.frontend.state import state
from genesis.frontend.storage import Storage
from genesis.ir.ops import control
from genesis.ir.walk import computed, walk

if TYPE_CHECKING:
    from collections.abc import Hashable

    from genesis.engine.compilation import Compiled
    from genesis.engine.preparation import Flush
    from genesis.engine.saved_values import Usage
    from genesis.frontend.storage import Cell
    from genesis.ir.node import Node
    from genesis.ir.types import Device, TensorType


class Way(NamedTuple):
    """A captured program, apart from what it is run over.

    Attributes:
        key: of the program.
        places: its last numbers, the places of slices (`moving_places.py`), which the situation fixes.
    """

    key: tuple[Hashable, ...]
    places: tuple[Node, ...]


class Answer(NamedTuple):
    """What the first flush in a situation found.

    Attributes:
        kept: places, among the situation's live storages, of those that are computed with the program.
        snapshots: places, among the overwritten ones, of those whose old content is copied.
        memory_types: of the captured program.
        usage: of the values that it saves for a backward, if there may be any.
        ways: whether these died unused the last time → the captured program, and its plan while this process has it.
    """

    kept: tuple[int, ...]
    snapshots: tuple[int, ...]
    memory_types: list[TensorType]
    usage: Usage | None
    ways: dict[bool, tuple[Way, weakref.ref[Compiled]]]

    def way(self) -> tuple[Way, Compiled] | None:
        """The program and its plan this time; None where they are to be found out."""
        if self.usage is not None:
            self.usage.look_back()
        found = self.ways.get(self.usage is not None and self.usage.skip)
        compiled = found[1]() if found is not None else None
        return (found[0], compiled) if found is not None and compiled is not None else None


ASKED: Final = 4
"""Where in a situation's key the positions are of what is asked for."""


MOST_BESIDE: Final = 64
"""Nodes that live values outside of the program may need, beyond which a flush is prepared as if it was the first."""


class Situation(NamedTuple):
    """What decides what a flush computes beside what is asked for.

    Attributes:
        key: all of it, written down.
        live: the live storages that have a say.
    """

    key: tuple[Hashable, ...]
    live: Sequence[Storage]


def situation_of(written: Written, visited: Mapping[Node, None], outputs: Sequence[Storage], live: Sequence[Storage],
                 updates: Sequence[Storage], content: Mapping[Storage, Node], device: Device) -> Situation | None:
    """The situation of a flush; None if more has a say than can be written down.

    Args:
        written: the program, with what it differentiates through.
        visited: the walk that it was written down of.
    """
    contents = [content[storage] for storage in live]
    position, places, types = written.position, written.places, written.types
    at = _positions(position, contents)
    if None in at:
        live = _without_apart(live, contents, at, updates, position)
        contents = [content[storage] for storage in live]
        at = _positions(position, contents)
    text: tuple[Hashable, ...] = tuple(written.key)
    if None in at or written.unwritten:
        more = _with_others(written, visited, [node for i, node in zip(at, contents, strict=True) if i is None])
        if more is None:
            return None
        position, places, types, text = more.position, more.places, more.types, (*text, len(text), *more.key)
        at = _positions(position, contents)
    beside = _beside(updates, position)
    released = _released(updates, position)
    if beside is None or released is None:
        return None
    memories = [-1 if (cell := storage.cell) is None else places.get(cell) for storage in live]
    alive = (tuple(at), tuple(memories), tuple([storage.persistent for storage in live]),
             tuple(map(set(outputs).__contains__, live)))
    asked = tuple([position[content[storage]] for storage in outputs])
    return Situation((device, config.key(), tuple(types), text, asked, alive, released, beside,
                      engine_state.cuts.cutting), live)


def _without_apart(live: Sequence[Storage], contents: Sequence[Node], at: Sequence[int | None],
                   updates: Sequence[Storage], program: Collection[Node]) -> Sequence[Storage]:
    """The live storages without those whose contents have nothing to do with the program. A value that is held, and was
    not read, is asked about at every step."""
    overwritten = {id(s.cell) for s in updates}
    first = min([node.number for node in program if node.inputs and not computed(node)], default=0)
    touching = that_touch([node for i, node in zip(at, contents, strict=True) if i is None], overwritten, program,
                          min(oldest_in(updates), first))
    if touching is None:
        return live
    return [storage for storage, node, i in zip(live, contents, at, strict=True) if i is not None or node in touching]


def _with_others(written: Written, visited: Mapping[Node, None], others: Sequence[Node]) -> Written | None:
    """What has a say beside the program, written down behind it: what live values outside of it need, and how values in
    memory came to be that gradients of it do not go through, but those of a live value may. None if that is much."""
    ways = [node for node in written.unwritten if node.op is not control.watch]
    roots = [*others, *[x for node in ways for x in node.inputs]]
    if _are_many(roots, visited):
        return None
    order = walk(roots, _HISTORIES, dict(visited))
    more = written.behind()
    more.write(order, _HISTORIES)
    for node in ways:
        more.write_way(node)
    return more


def _are_many(roots: Iterable[Node], visited: Container[Node]) -> bool:
    """Whether the walk from these goes on for more than `MOST_BESIDE` nodes. It is not made where it does: the history
    of what a loop carries on has all its turns."""
    found: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in found or node in visited:
            continue
        found.add(node)
        if len(found) > MOST_BESIDE:
            return True
        if node in _HISTORIES or not computed(node):
            stack.extend(node.inputs)
    return False


class _Histories:
    """The nodes whose history gradients can go through: walks go on behind those that are in memory."""

    def __contains__(self, node: object) -> bool:
        return node.needs_grad and node.op is not control.watch  # type: ignore[attr-defined]  # walks ask of nodes


_HISTORIES: Final = _Histories()


def _positions(position: Mapping[Node, int], contents: Sequence[Node]) -> list[int | None]:
    """Where the contents are; of one whose history was forgotten, as a loss's after its backward, -1 minus the place of
    what it shows. None for one that is not computed with the program."""
    found: list[int | None] = [position.get(node) for node in contents]
    for i, at in enumerate(found):
        if at is None and (node := contents[i]).op is control.stop_gradient:
            below = position.get(node.inputs[0])
            found[i] = None if below is None else -1 - below
    return found


def _beside(updates: Sequence[Storage], position: Mapping[Node, int]) -> tuple[int, ...] | None:
    """Where in the program the values are that were computed before and can be differentiated; None if one that a
    backward may come from, which may read what is overwritten, is none of the program's."""
    oldest = oldest_in(updates)
    differentiable, histories = live_differentiable(oldest), live_histories()  # forget those that nobody holds
    if histories:
        return None
    found, elsewhere = [], []
    for storage in differentiable:
        if (held := storage._node) is not None and held.number < oldest:
            continue
        if storage.settled and storage.needs_grad:
            node = storage.node
            at = position.get(node)
            if at is not None:
                found.append(at)
                continue
            elsewhere.append(node)
    if elsewhere and that_may_show(elsewhere, {id(s.cell): s for s in updates}, oldest, listed=True):
        return None
    return tuple(found)


def _released(updates: Iterable[Storage], position: Mapping[Node, int]) -> tuple[int, ...] | None:
    """Where in the program graphs begin that backwards have let go of; None if one begins elsewhere that has to do with
    what is overwritten."""
    roots = state.live_released()
    found = list(map(position.get, roots))
    if None not in found:
        return tuple(found)  # type: ignore[arg-type]
    oldest = oldest_in(updates)
    elsewhere = [node for at, node in zip(found, roots, strict=True) if at is None and node.number >= oldest]
    if elsewhere and that_may_show(elsewhere, {id(s.cell): s for s in updates}, oldest, listed=True):
        return None
    return tuple([at for at in found if at is not None])


def captured_again(written: Written, visited: dict[Node, None], known: set[Node], answer: Answer,
                   way: Way, outputs: Sequence[Node], overwritten: Sequence[Cell], contents: Sequence[Node],
                   snapshots: Sequence[tuple[Cell, TensorType]]) -> tuple[Captured, list[Node]]:
    """The captured program of a flush in a known situation, as `capture` goes on with what is written down, and the
    nodes that it saves for a backward."""
    if not all(map(visited.__contains__, outputs)):
        written.write(walk(outputs, known, visited), known)
    places = written.places
    for cell in overwritten:
        places.setdefault(cell, len(places))
    order, usage = written.order, answer.usage
    saved = [order[i] for i in usage.positions or ()] if usage is not None and not usage.skip else []
    numbers = [*written.number_nodes, *way.places]
    return Captured(order, known, list(places), answer.memory_types, [x.attrs[0] for x in numbers], numbers, way.key,
                    [*outputs, *saved], overwritten, contents, snapshots, twins=written.twins), saved


def remember(flush: Flush, situation: Situation, compiled: Compiled) -> None:
    """Remember what the first flush in a situation found. One with places that move does not come again."""
    captured, usage = flush.captured, flush.saved[1]
    if captured.moving:
        return
    way = Way(captured.key, tuple(captured.places)), weakref.ref(compiled)
    situations, skips = engine_state.plans.situations, usage is not None and usage.skip
    known = situations.get(situation.key)
    if known is not None and known.usage is usage:
        known.ways[skips] = way
        return
    at, of = {s: i for i, s in enumerate(situation.live)}, {s: i for i, s in enumerate(flush.updates)}
    kept = flush.outputs[len(situation.key[ASKED]):]  # type: ignore[arg-type]  # a tuple
    situations.add(situation.key, Answer(tuple([at[s] for s in kept]), tuple([of[s] for s in flush.snapshots]),
                                     captured.memory_types, usage, {skips: way}))
