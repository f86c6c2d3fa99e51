"""What `genesis.explain` gives: what of a compiled function is replayed, what was captured again, what is recorded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from genesis.tracing.signature import describe, named_surroundings
from genesis.tracing.snapshot import MISSING
from genesis.tracing.value_texts import Words, two_texts, value_text

_LINES = 12
"""Recaptures that a text shows, the last ones."""


@dataclass(frozen=True)
class Recapture:
    """A call that was captured again, because a guard failed.

    Attributes:
        guard: what the captured call had depended on: a name, an argument, a mode.
        before: its value when it was captured, as text.
        now: its value in this call.
    """

    guard: str
    before: str
    now: str

    def __str__(self) -> str:
        return f"{self.guard}: {self.before} → {self.now}"


class Explanation(str):
    """A text with the numbers in it; called, it calls the function and gives the next one.

    Attributes:
        captures: how many captures are kept.
        hits: how many calls were replayed.
        recaptures: for each call that was captured again, the guard that had failed.
        recorded: why calls are recorded each time instead.
        single: why a capture holds for one value of something only.
    """

    captures: int
    hits: int
    recaptures: tuple[Recapture, ...]
    recorded: tuple[str, ...]
    single: tuple[str, ...]
    _call: Callable[..., Any]

    def __new__(cls, head: str, captures: int, hits: int, recaptures: Iterable[Recapture], recorded: Iterable[str],
                single: Iterable[str], call: Callable[..., Any]) -> Explanation:
        """The text of these numbers; `call` calls the function and explains it."""
        again, why, one = tuple(recaptures), tuple(recorded), tuple(single)
        shown = list(dict.fromkeys(again))
        lines = [head, *[f"  captured again {len(shown) - _LINES} times more"] * (len(shown) > _LINES),
                 *(f"  captured again: {x}" for x in shown[-_LINES:]),
                 *(f"  captured for one value: {x}" for x in one), *(f"  recorded at each call: {x}" for x in why)]
        self = super().__new__(cls, "\n".join(lines))
        self.captures, self.hits, self.recaptures, self.recorded = captures, hits, again, why
        self.single, self._call = one, call
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Explanation:
        found: Explanation = self._call(*args, **kwargs)
        return found


class CallShape:
    """What calls with one signature have in common, by name, to tell two apart.

    Args:
        function: the function that is called.
        views: those of the arguments that are views of other memory, of which the call is given copies.
    """

    def __init__(self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any],
                 views: Sequence[Any] = ()):
        self._around = named_surroundings()
        self._arguments: dict[str, tuple[Any, str]] = {}
        for name, value in _named(function, args, kwargs):
            part: list[Any] = []
            describe(value, part, [], {})
            self._arguments[f"argument {name}"] = (tuple(part), value_text(value))
        seen = ", ".join([f"{kind} of strides {strides}" for kind, strides in
                          dict.fromkeys([(f"tensor {x.spec}", x.stride()) for x in views])]) or "none"
        self._arguments["arguments that are views"] = (seen, seen)

    def difference(self, now: CallShape) -> Recapture:
        """The first part in which the call now differs."""
        for name in {**self._around, **now._around}:
            before, after = (x._around.get(name, _AS_MADE) for x in (self, now))
            if before != after:
                return Recapture(name, *two_texts(*((Words(", ".join(x) or "off") for x in (before, after))
                                                    if name == "autocast" else (before, after))))
        nothing = (MISSING, value_text(MISSING))
        for name in {**self._arguments, **now._arguments}:
            (before, text), (after, text_now) = (x._arguments.get(name, nothing) for x in (self, now))
            if before != after:
                return Recapture(name, *two_texts(Words(text), Words(text_now)))
        return Recapture("arguments", "others", "the same tensor twice, or another order")


_AS_MADE: Any = Words("Genesis' own")
"""What stands for a function of Genesis' own that is not replaced."""


def _named(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    try:
        names = [x.name for x in inspect.signature(function).parameters.values()
                 if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    for at, value in enumerate(args):
        yield (names[at] if at < len(names) else str(at)), value
    yield from kwargs.items()
