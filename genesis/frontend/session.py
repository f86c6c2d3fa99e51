"""The session of a capture: what a function does, besides making nodes, while `genesis.compile` captures it.

Recording, random draws, gradients and optimizers report here what they do beyond making nodes,
so that a replay can do it again. None of them does anything here when no capture runs.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from genesis.frontend.at_once import Change, Expected
from genesis.frontend.state import state
from genesis.ir.node import Node, unique
from genesis.ir.numbers import number
from genesis.ir.ops import leaves
from genesis.ir.source import PACKAGE, here
from genesis.ir.types import TensorType
from genesis.runtime.contexts import Context, Switched, Temporary, leaving, profiled_by


class MadeOf(NamedTuple):
    """What a tensor was made of: its type, and the bytes of its numbers, None for many."""

    kind: TensorType
    content: bytes | None


class Session:
    """The effects of one captured call.

    Attributes:
        numbers: (nodes, again): numbers that a replay asks for anew.
        grads: tensors whose `.grad` was set, with what it was before.
        entry_grads: tensors whose `.grad` was looked at before it was set, with what it was.
        differentiated: leaf tensors that a backward, or a gradient that was asked for, arrived at.
        freed: values whose backward let go of what it had kept.
        options: what an optimizer's groups held when a step asked for it: (group, content); and what a schedule, which
            replays step themselves, found and left there: (group, before, after).
        ended: an optimizer ended a step.
        comes_to_step: called when the first one does.
        put_back: puts back what the call has kept in Python since: the step did not run, and will not.
        at_end: storages that were not computed when it did, with their contents: the plain call computes them there.
        refused: called when there is a refusal: nothing needs to be followed from then on.
        refusal: why the call cannot be replayed, or None.
        beginning: that is something which the next call finds done.
        thread: the thread that runs it; what others do is none of its effects.
        last_values: gives a stand-in for a value that a tensor's method reads, if that only leaves the call; else None.
        may_read: whether a storage's value follows from memory that the capture guards, so that it may be read now;
            None where no value may.
        of_values: memory of tensors that it made from numbers of Python's (`genesis.tensor`) → what it holds: their
            type and, of few of them, their bytes.
        histories: detached tensors whose history it has made (`Detached`), and where. One that is gone when the call
            ends (`buffer.data.add_(x)`) is none of its effects.
        repeating: an action runs that a replay runs again (`repeated`).
        repeats_own_code: such an action called code of the user's.
        looked_into: optimizers whose states the function asked for, by `id`.
        counting: those whose states are counted with the numbers that a replay asks for.
        own_backward: the first function that it called whose backward is Python of the user's, and where, or None. Such
            a call is replayed if no gradient leaves it: its backward has run inside.
        mirrored: what follows a write to a storage of which there is a copy: storage → a call.
        tentative: what it writes to is put back afterwards (`tracing/trial.py`): nothing is counted in Python.
    """

    tentative = False

    def __init__(self) -> None:
        self._writes: dict[weakref.ref[Any], int] = {}
        self.numbers: list[tuple[Sequence[Node], Callable[[], Sequence[Any]]]] = []
        self.grads: dict[int, tuple[Any, Any]] = {}
        self.entry_grads: dict[int, tuple[Any, Any]] = {}
        self.differentiated: list[Any] = []
        self.freed: list[Node] = []
        self.options: list[tuple[dict[str, Any], ...]] = []
        self.ended = False
        self.comes_to_step: Callable[[], None] = lambda: None
        self.put_back: Callable[[], None] = lambda: None
        self.at_end: list[tuple[Callable[[], Any], Node]] = []
        self.refusal: str | None = None
        self.beginning = False
        self.refused: Callable[[], None] = lambda: None
        self.thread = threading.get_ident()
        self.last_values: Callable[[Any, str], Any] | None = None
        self.may_read: Callable[[Any], bool] | None = None
        self.of_values: weakref.WeakKeyDictionary[Any, MadeOf] = weakref.WeakKeyDictionary()
        self.histories: list[tuple[weakref.ref[Any], str]] = []
        self.repeating = self.repeats_own_code = self._given_up = False
        self.mirrored: Mapping[weakref.ref[Any], Callable[[weakref.ref[Any]], None]] = {}
        self.own_backward: str | None = None
        self.looked_into: dict[int, Any] = {}
        self.counting: dict[int, Any] = {}

    @property
    def writes(self) -> Mapping[Any, int]:
        """Storages whose content was replaced, in order, and how often.

        One that the call made and let go of is not among them: nobody can see what was written to it.
        """
        alive = {storage: count for found, count in self._writes.items() if (storage := found()) is not None}
        return MappingProxyType(alive)  # what is written to is noted by `note_write`

    def wrote(self, storage: Any) -> bool:
        """Whether the content of this storage was replaced."""
        return storage._reference in self._writes

    def about_to_write(self, storages: Iterable[Any]) -> None:
        """The contents of these storages are about to be replaced."""

    def looked_at(self, again: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """What `again()` gives; a tentative session asks for it and has nothing move on."""
        return again()

    def note_write(self, reference: weakref.ref[Any]) -> None:
        """The content of the storage that this refers to was replaced."""
        self._writes[reference] = self._writes.get(reference, 0) + 1
        if reference in self.mirrored:
            self.mirrored[reference](reference)

    def note_grad_read(self, tensor: Any) -> None:
        """`.grad` was looked at; a replay needs the same answer unless the call itself set it before."""
        if id(tensor) not in self.grads and id(tensor) not in self.entry_grads:
            self.entry_grads[id(tensor)] = (tensor, tensor._grad)

    def note_grad_written(self, tensor: Any) -> None:
        """`.grad` is about to be set."""
        self.grads.setdefault(id(tensor), (tensor, tensor._grad))

    def note_own_backward(self, name: str) -> None:
        """A function with this name is called, whose backward is Python of the user's."""
        if self.own_backward is None:
            place = here()
            reason = f"it calls {name}, whose backward is Python of its own"
            self.own_backward = reason if place is None else f"{reason} at {place}"

    def note_history(self, detached: weakref.ref[Any]) -> None:
        """A detached tensor gets a history of its own."""
        place = here()
        self.histories.append((detached, OWN_HISTORY if place is None else f"{OWN_HISTORY} at {place}"))

    def note_options(self, groups: Iterable[dict[str, Any]]) -> None:
        """A step asks for what these groups of an optimizer hold."""
        self.options += [(group, dict(group)) for group in groups]

    def forget_made(self, known: Collection[int]) -> None:
        """Let go of tensors that the call made, of which nobody but the session knows any more: their gradients are
        none of its effects.

        Args:
            known: ids of tensors that were there before.
        """
        noted = [(name, weakref.ref(x), before) for name in ("grads", "entry_grads")
                 for x, before in getattr(self, name).values() if id(x) not in known]
        arrived = [weakref.ref(x) for x in self.differentiated]
        self.grads, self.entry_grads = ({key: entry for key, entry in table.items() if key in known}
                                        for table in (self.grads, self.entry_grads))
        self.differentiated = []
        for name, reference, before in noted:
            x = reference()
            if x is not None:
                getattr(self, name)[id(x)] = (x, before)
        self.differentiated = [x for reference in arrived if (x := reference()) is not None]

    def extent(self) -> tuple[Any, ...]:
        """A value that changes with every effect on tensors."""
        return sum(self._writes.values()), len(self.numbers), len(self.grads), self.ended

    def note_own_code(self, frame: Any, event: str, arg: Any) -> None:
        """What a replay runs again calls something: the user's code may read what the call changes."""
        if event == "call" and not frame.f_code.co_filename.startswith(PACKAGE):
            self.repeats_own_code = True

    def give_up(self, reason: str) -> None:
        """The call may do such a thing, in code that says no more; if it does, `refuse` tells what."""
        self.refuse(reason)
        self._given_up = True

    def refuse(self, reason: str, beginning: bool = False) -> None:
        """The call does something that a replay could not do again, at its `beginning` only: calls after it do not."""
        if self.refusal is None or self._given_up:
            self._given_up, self.beginning = False, beginning
            place = None if " at " in reason else here()
            self.refusal = reason if place is None else f"{reason} at {place}"
            self.refused()


OWN_HISTORY: Final = "a detached tensor has a history of its own"
"""Why a call is not replayed that leaves one behind, or reads through it: a replay knows one history of a memory."""

_COMPARED_BYTES: Final = 1024
"""Numbers of so many bytes at most are compared with those of other calls: factors, limits, a row of weights."""

own_storages: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
"""Storages of the framework's own that stay, and that any function may read and write: what orders collectives."""


def rebound() -> None:
    """A tensor became another one."""
    state.rebound += 1


def made_of_values(cell: Any, kind: TensorType, array: Any) -> None:
    """A tensor of this type was made from numbers of Python's, a numpy array: the tensor's memory is the cell's."""
    if state.session is not None and (running := active()) is not None:
        running.of_values[cell] = MadeOf(kind, array.tobytes() if array.nbytes <= _COMPARED_BYTES else None)


def states_shown() -> None:
    """An optimizer's states were handed to somebody who may put other tensors into them, or have been changed."""
    state.states_shown += 1


def states_shown_of(optimizer: Any) -> None:
    """Its states are handed to a user, or what is in them: what a captured function reads there is guarded."""
    states_shown()
    if state.session is not None and (running := active()) is not None:
        running.looked_into[id(optimizer)] = optimizer


def begins(reason: str) -> None:
    """A call that is captured does what the next one finds done: this one is not kept, and that one is captured."""
    if state.session is not None and (running := active()) is not None:
        running.refuse(reason, beginning=True)


def active() -> Session | None:
    """The session of the capture that runs in this thread, or None."""
    found = state.session
    return found if found is None or found.thread == threading.get_ident() else None


def read_of_what_stays(storages: Iterable[Any]) -> bool:
    """Whether the running capture lets the function read these now."""
    running = active()
    return running is not None and running.may_read is not None and running.refusal is None and (
        all(map(running.may_read, storages)))


def stand_in(tensor: Any, method: str) -> Any:
    """What stands for a value that the captured function reads last, None if it is read now."""
    running = active()
    if running is None or running.last_values is None or running.refusal is not None:
        return None
    return running.last_values(tensor, method)


class running(Context):
    """A context inside which a session runs."""

    __slots__ = ("_session",)

    def __init__(self, session: Session):
        self._session = session

    def _entering(self) -> Callable[[], Any]:
        return partial(setattr, state, "session", self._session)

    def _leaving(self) -> Callable[..., Any]:
        return leaving((setattr, state, "session", state.session))


def take_back(numbers: Iterable[Callable[[], Sequence[Any]]]) -> None:
    """Undo what asking for these numbers moved on, the last first, where they can: the step that they were for did not
    run. Of a replay only what was asked for since `forget_last`.

    Not of those that can be looked at ahead: they move on with the step's writes, and back with them."""
    for again in reversed([*numbers]):
        if hasattr(again, "ahead"):
            continue
        undo = getattr(again, "undo", None)
        if undo is not None:
            undo()


def forget_last(numbers: Iterable[Callable[[], Sequence[Any]]]) -> None:
    """A call is about to ask for these numbers: what the call before it moved on stays, whatever is taken back."""
    for again in numbers:
        forget = getattr(again, "forget", None)
        if forget is not None:
            forget()


def ahead_of(again: Callable[[], Sequence[Any]],
             moved: dict[Any, Any]) -> tuple[Sequence[Any], list[Change], list[Expected]]:
    """The numbers that `again()` would give next, the changes that make them given, and what these expect to find.

    Args:
        moved: what the numbers that were looked at before will have moved on, once their changes are made.
    """
    ahead = getattr(again, "ahead", None)
    return (again(), [], []) if ahead is None else ahead(moved)


def about_to_write(storages: Iterable[Any]) -> None:
    """Tell the running capture that contents are about to be replaced."""
    running = active()
    if running is not None:
        running.about_to_write(storages)


def is_tentative() -> bool:
    """Whether what is done now is put back afterwards."""
    running = active()
    return running is not None and running.tentative


def upcoming_numbers(again: Callable[[], Sequence[Any]], moved: dict[Any, Any]) -> tuple[list[Node], list[Change]]:
    """`live_numbers` that are given only once the changes are made, where `again` can look ahead (`ahead_of`)."""
    if is_tentative():
        return live_numbers(again), []
    values, counted, _ = ahead_of(again, moved)
    return _nodes_of(values, again), counted


def live_numbers(again: Callable[[], Sequence[Any]]) -> list[Node]:
    """Operands for numbers that `again()` gives, and gives anew at every replay.

    They are equal to no other number, so that a replay can tell them from the user's.
    """
    running = active()
    return _nodes_of(again() if running is None else running.looked_at(again), again)


def _nodes_of(values: Sequence[Any], again: Callable[[], Sequence[Any]]) -> list[Node]:
    session = active()
    if session is None:
        return [number(value) for value in values]
    nodes = []
    for value in values:
        model = number(value)
        nodes.append(unique(leaves.number, (), model.attrs, model.type))
    session.numbers.append((nodes, again))
    return nodes


def repeated(action: Callable[[], Any], undo: Callable[[], Any], forget: Callable[[], Any]) -> None:
    """Do something in Python that every replay does again, in order with the numbers that replays ask for.

    What runs inside is no part of the captured function: it may change from call to call, and must not compute.
    `undo` takes the last one back, of a step that did not run after all: nothing where `forget` was called since, or
    where it was taken back already.
    """
    session = active()
    if session is None or session.repeating:
        action()
        return
    if session.tentative:  # it is left out
        session.numbers.append(((), _Again(action, undo, forget)))
        return
    before = session.extent()
    with _repeating(session):
        action()
    if session.extent() != before:
        session.refuse("it computes in what a replay runs again")
    session.numbers.append(((), _Again(action, undo, forget)))


def _repeating(session: Session) -> Temporary:
    """A context inside which the user's code that runs is noted as what replays run again."""
    def look() -> Switched:
        set_profile, traced = profiled_by(sys.getprofile())
        return Switched([(setattr, session, "repeating", True), (sys.setprofile, session.note_own_code)],
                        [(set_profile, *traced), (setattr, session, "repeating", False)])
    return Temporary(look)


class _Again:
    """An action of Python, as a source of no numbers."""

    __slots__ = ("_action", "forget", "undo")

    def __init__(self, action: Callable[[], Any], undo: Callable[[], Any], forget: Callable[[], Any]):
        self._action, self.undo, self.forget = action, undo, forget

    def __call__(self) -> Sequence[Any]:
        self._action()
        return ()
