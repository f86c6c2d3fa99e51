"""A trial: a step that is run once more, on stand-ins, after which all that it wrote to is as it was before.

A step writes to parameters, gradients and an optimizer's state. A trial knows which of them the captured call wrote to:
before anything else is written to, it ends. Counts (of steps, of random draws) are looked at ahead and do not move on,
and what a replay does again in Python (a schedule's step) is left out.

The contents are put back by one call of C, so no exception and no signal leaves a part of them. The program's signal
handlers wait meanwhile (`frontend/held_handlers.py`). Another thread that could look at them is a reason against a
trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat, starmap
from operator import call
from typing import Any, Final

from genesis.autograd.gradients import observers
from genesis.frontend.at_once import Change, attributes
from genesis.frontend.held_handlers import handlers_left
from genesis.frontend.pending import next_number
from genesis.frontend.session import Session
from genesis.frontend.storage import Storage
from genesis.frontend.threads import others_may_read
from genesis.frontend.traced_number import unguarded, value_in_run
from genesis.runtime.contexts import Context, in_order, leaving
from genesis.tracing.snapshot import NotReplayable


class Trial(Session):
    """The session of a trial. What it does not know how to put back it refuses, by an exception, before it is done.

    Args:
        storages: what it may write to, beside what it makes.
        tensors: whose gradients it may set.
    """

    tentative = True

    def __init__(self, storages: Iterable[Storage], tensors: Iterable[Any]):
        super().__init__()
        self._to_undo = list(storages), list(tensors)
        self._storages, self._tensors = frozenset(self._to_undo[0]), frozenset(map(id, self._to_undo[1]))
        self._first = next_number()
        self._moved: dict[Any, Any] = {}

    def undone(self) -> AsBefore:
        """A context after which these are as they were before it."""
        return AsBefore(*self._to_undo)

    def about_to_write(self, storages: Iterable[Any]) -> None:
        """Refuse what is not put back. What the trial makes itself has no memory."""
        for storage in storages:
            if storage not in self._storages and (storage.cell is not None or storage.queued < self._first):
                self.refuse("on stand-ins it writes to something else")

    def note_grad_written(self, tensor: Any) -> None:
        """Refuse to set a gradient that is not put back."""
        if id(tensor) not in self._tensors:
            self.refuse("on stand-ins it sets another gradient")
        super().note_grad_written(tensor)

    def looked_at(self, again: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """The numbers that `again()` would give, behind those that were looked at before."""
        ahead = getattr(again, "ahead", None)
        if ahead is None:
            self.refuse("it asks for numbers that cannot be looked at ahead")
        with unguarded():  # of a rate that changes, too: a replay asks anew
            return [value_in_run(x) for x in ahead(self._moved)[0]]  # type: ignore[misc]

    def refuse(self, reason: str, beginning: bool = False) -> None:
        """End the trial."""
        super().refuse(reason, beginning)
        raise NotReplayable(self.refusal)


class AsBefore(Context):
    """A context after which these storages have the contents, and these tensors the gradients, of before.

    Inside, what is not computed yet is not written yet: a call that the trial is made beside has written it, and the
    trial finds what that found. What is replaced then lives as long as the context: the end of an object may be a line
    of Python.
    """

    __slots__ = ("_begin", "_puts", "_replaced")

    def __init__(self, storages: Sequence[Storage], tensors: Sequence[Any]):
        self._replaced: list[Any] = []
        self._puts: list[Change] = [
            (self._replaced.extend, map(getattr, storages, repeat("_node"))),
            (self._replaced.extend, map(getattr, tensors, repeat("_grad")))]
        self._puts += [attributes(storages, name, [getattr(x, name) for x in storages]) for name in _OF_CONTENTS]
        self._puts.append(attributes(tensors, "_grad", [x._grad for x in tensors]))
        self._begin = [attributes([x for x in storages if not x.settled], "_node", repeat(None))]

    def _entering(self) -> Callable[[], object]:
        return partial(in_order, starmap(call, self._begin))

    def _leaving(self) -> Callable[..., object]:
        return leaving((in_order, starmap(call, self._puts)))


_OF_CONTENTS: Final = ("_node", "_queued", "writes", "error")
"""What a write changes of a storage."""


def check_alone() -> None:
    """Raise NotReplayable if something could look at what a trial writes to, or is told of it."""
    if others_may_read():
        raise NotReplayable("another thread may read what a run on stand-ins writes to")
    if handlers_left():
        raise NotReplayable("a signal handler may read what a run on stand-ins writes to")
    if observers:
        raise NotReplayable("others are told of its gradients")
