"""What `genesis.explain` gives: what of a compiled function is replayed, what was captured again, what is recorded."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from reprlib import Repr
from typing import Any

from genesis.frontend.recording import FREED, TensorBase
from genesis.tracing.signature import AROUND, describe
from genesis.tracing.snapshot import MISSING, SIMPLE

_short = Repr()
_short.maxstring = _short.maxother = 60
_ITEMS = 4
"""Elements of a container that a text shows."""
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


def value_text(value: Any) -> str:
    """A value in a few words: of a tensor its type, and how gradients flow."""
    if isinstance(value, TensorBase):
        flows = "a leaf that requires grad" if value.leaf not in (None, FREED) else (
            "of a step" if value.leaf == FREED else "detached" if value.detached is not None else
            "with a gradient" if value.storage.needs_grad else "")
        return f"tensor {value.spec}{flows and f' ({flows})'}"
    if value is MISSING:
        return "missing"
    if type(value) in (list, tuple):
        items = [value_text(x) for x in value[:_ITEMS]] + ["…"] * (len(value) > _ITEMS)
        return f"[{', '.join(items)}]" if type(value) is list else f"({', '.join(items)})"
    if type(value) is dict:
        pairs = [f"{_short.repr(k)}: {value_text(x)}" for k, x in islice(value.items(), _ITEMS)]
        return "{" + ", ".join(pairs + ["…"] * (len(value) > _ITEMS)) + "}"
    return _short.repr(value) if isinstance(value, SIMPLE) else f"a {type(value).__name__}"


class CallShape:
    """The parts of a call's signature by name, to tell two apart.

    Args:
        function: the function that is called.
        key: the signature's key; what it begins with is what is around the call.
    """

    def __init__(self, function: Callable[..., Any], key: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]):
        self._parts = dict(zip(AROUND, key, strict=False))
        for name, value in _named(function, args, kwargs):
            part: list[Any] = []
            describe(value, part, [], {})
            self._parts[f"argument {name}"] = (tuple(part), value_text(value))

    def difference(self, now: CallShape) -> Recapture:
        """The first part in which the call now differs."""
        for name in {**self._parts, **now._parts}:
            before, after = self._parts.get(name, MISSING), now._parts.get(name, MISSING)
            if before != after:
                return Recapture(name, *(_part_text(name, x) for x in (before, after)))
        return Recapture("arguments", "others", "the same tensor twice, or another order")


def _named(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    try:
        names = [x.name for x in inspect.signature(function).parameters.values()
                 if x.kind in (x.POSITIONAL_ONLY, x.POSITIONAL_OR_KEYWORD)]
    except (TypeError, ValueError):
        names = []
    for at, value in enumerate(args):
        yield (names[at] if at < len(names) else str(at)), value
    yield from kwargs.items()


def _part_text(name: str, part: Any) -> str:
    return part[1] if name.startswith("argument ") and part is not MISSING else value_text(part)
