"""Calls that differ in sizes and numbers alone: the captured ones, and the templates that replay the others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

from genesis.tracing.erased_signature import Erased, erased
from genesis.tracing.snapshot import NotReplayable
from genesis.tracing.stand_ins import Symbols
from genesis.tracing.symbolic_call import SymbolicCall

_SAMPLES = 4
"""Captured calls of an erased signature that a template is made of, the last ones."""
_TEMPLATES = 4
"""Templates of an erased signature: a function that branches by a size has one for each branch."""
_TRIES = 8
"""Attempts to make a template of an erased signature, of which each costs as much as a capture."""
_SIGNATURES = 64
"""Erased signatures that are remembered."""


class CallTemplates:
    """The templates of a compiled function, by erased signature."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Any, ...], _Calls] = OrderedDict()
        self._some = False

    def __bool__(self) -> bool:
        return self._some

    def find(self, key: Any, tensors: list[Any]) -> Iterator[tuple[Any, list[Any]]]:
        """(a captured call, the tensors that its replay takes) for a call with this key."""
        arguments = erased(key)
        described: dict[int, Any] = {}
        for calls in [calls for (own, _), calls in self._known.items() if own == arguments.key]:
            for template in calls.templates:
                slots = template.kept.slots
                call, given = arguments, tensors
                if slots is not None:
                    if id(slots) not in described:
                        described[id(slots)] = slots.describe(tensors)
                    found = described[id(slots)]
                    if found is None:
                        continue
                    call, given = _joined(arguments, found[0]), found[1]
                    if call.key != calls.key:
                        continue
                entry = template.entry(call)
                if entry is None or (slots is not None and entry.shares(given) and not entry.shares(tensors)):
                    continue
                yield entry, given

    def latest(self, key: Any) -> Any:
        """The last capture of a call that differs from one with this key in sizes and numbers alone; None for none."""
        own = erased(key).key
        return next((calls.latest for (name, _), calls in reversed(self._known.items()) if name == own), None)

    @property
    def count(self) -> int:
        """How many templates there are."""
        return sum(len(calls.templates) for calls in self._known.values())

    def refusals(self) -> Iterator[str]:
        """Why sizes and numbers that change have a capture each, of calls that no template was made for."""
        return (calls.refusal for calls in self._known.values() if calls.refusal and not calls.templates)

    def captured(self, key: Any, capture: Any, kept: Any, function: Callable[..., Any]) -> None:
        """Note a call that was captured, and make a template of it where one before had other sizes or numbers."""
        arguments = erased(key)
        call = arguments if kept.slots is None else _joined(arguments, kept.slots.key)
        name = arguments.key, None if kept.slots is None else call.key
        calls = self._known.setdefault(name, _Calls(call.key))
        self._known.move_to_end(name)
        while len(self._known) > _SIGNATURES:
            self._known.popitem(last=False)
        calls.note(call, capture, kept, function)
        self._some = self._some or bool(calls.templates)

    def forget(self, key: Any) -> None:
        """Let no call like one with this key be replayed by a template."""
        own = erased(key).key
        for name in [name for name in self._known if name[0] == own]:
            del self._known[name]


class _Calls:
    """The captured calls of one erased signature.

    Attributes:
        key: what they have in common.
        templates: what replays others, the last first.
        refusal: why the last try to make one failed, '' for none.
    """

    def __init__(self, key: tuple[Any, ...]):
        self.key = key
        self.templates: list[SymbolicCall] = []
        self.refusal = ""
        self._samples: list[tuple[Erased, Any]] = []
        self._tries = 0

    @property
    def latest(self) -> Any:
        """The last capture."""
        return self._samples[0][1]

    def note(self, call: Erased, capture: Any, kept: Any, function: Callable[..., Any]) -> None:
        self._samples = [(call, kept), *((x, entry) for x, entry in self._samples if x != call)][:_SAMPLES]
        if len(self._samples) < 2 or self._tries >= _TRIES or len(self.templates) >= _TEMPLATES:
            return
        try:
            if not self._take_over(capture, kept, function, positions=True):  # what an op refuses to do with a symbol
                self._take_over(capture, kept, function, positions=False)  # it may do with a number
        except NotReplayable as refusal:
            self.refusal = str(refusal)

    def _take_over(self, capture: Any, kept: Any, function: Callable[..., Any], positions: bool) -> bool:
        """Make a template of the last call. False where that failed, and may not where no number is a position.

        Raises:
            NotReplayable: it failed otherwise.
        """
        symbols = Symbols([x for x, _ in self._samples], positions)
        self._tries += 1
        try:
            made = SymbolicCall(capture, kept, function, symbols)
            if not all(made.same_as(x, entry) for x, entry in self._samples):
                raise NotReplayable("on stand-ins it makes another program")
        except NotReplayable:
            if symbols.trace.positions:
                return False
            raise
        self.templates.insert(0, made)
        return True


def _joined(arguments: Erased, slots_key: tuple[Any, ...]) -> Erased:
    """A call's signature with that of what is in its slots."""
    more = erased(slots_key, 0)
    return Erased((arguments.key, more.key), arguments.sizes + more.sizes, arguments.numbers + more.numbers,
                  arguments.strides + more.strides)
