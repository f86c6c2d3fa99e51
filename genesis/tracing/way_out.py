"""What a walk along a function's code has found: where the value goes, and what may meet it there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from genesis.tracing.walk_state import (
    ANYWHERE,
    HOLDER,
    NUMBER,
    PLAIN,
    Answer,
    Constant,
    Kind,
    Lost,
    Method,
    Own,
    Path,
    State,
)

Place = tuple[Path, str | None]
"""(container, key) of an item, ANYWHERE for the end of a list; (object, attribute)."""


@dataclass(frozen=True)
class WayOut:
    """Where a value goes from the call that gives it to the end of its function.

    Attributes:
        callee: the path of what is called, a `Method`, a `Made`, or None where the code does not show it.
        returned: NUMBER or HOLDER where it is in the result; None where it is not.
        gives: what else the function gives: paths, an `Answer`, PLAIN, ...; None for what the code does not show.
        put: (container, key) where it, or something after it, is put: the key of a dictionary's item, or ANYWHERE.
        stored: (object, attribute) where it, or something after it, is stored.
        looked_up: attributes and items that are looked up while it is in such places.
        given: (callee, position of the argument) of functions that it is given to.
        called: what is called while it is in such places. It must not look there.
        arguments: (method, path) of what methods among these are given, None for a path that the code does not show.
        plain: what has to be a plain number, a text or a tensor, which look nowhere: what is at a path, an `Answer`.
        fixed: which of them may be no tensor, as an operator would write to that.
    """

    callee: Any
    returned: Kind | None
    gives: tuple[Any, ...]
    put: tuple[tuple[Path, str | None], ...]
    stored: tuple[tuple[Path, str], ...]
    looked_up: tuple[Path, ...]
    given: tuple[tuple[Any, int], ...]
    called: tuple[Any, ...]
    arguments: tuple[tuple[Method, Path | None], ...]
    plain: tuple[Path | Answer, ...]
    fixed: tuple[Path, ...]


@dataclass
class Found:
    """What a walk has found so far; each in the order of the code, once.

    Attributes:
        put, stored: with what is there, NUMBER or HOLDER; None for something else in `put`.
        also_stored: (object, attribute) that something else is stored in, after the value is kept.
        before: where something is kept before the value is.
        keys: of items that the value is put into.
        assigned: variables that are given something else once the value is kept.
    """

    callee: Any = None
    returned: Kind | None = None
    gives: dict[Any, None] = field(default_factory=dict)
    put: dict[Place, Kind | None] = field(default_factory=dict)
    stored: dict[tuple[Path, str], Kind] = field(default_factory=dict)
    also_stored: dict[tuple[Path, str], None] = field(default_factory=dict)
    before: set[Place] = field(default_factory=set)
    looked_up: dict[Path, None] = field(default_factory=dict)
    fixed: dict[Path, None] = field(default_factory=dict)
    keys: set[str] = field(default_factory=set)
    given: dict[tuple[Any, int], None] = field(default_factory=dict)
    called: dict[Any, None] = field(default_factory=dict)
    arguments: dict[tuple[Method, Path | None], None] = field(default_factory=dict)
    plain: dict[Path | Answer, None] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)

    def returns(self, kind: Kind) -> None:
        """The value is in the result."""
        self.returned = kind if self.returned in (None, kind) else HOLDER

    def hold(self, state: State, owner: Any, key: str | None, kind: Kind) -> None:
        """The value, or what has it inside, is put into a container.

        Raises:
            Lost: the code does not show which one.
        """
        if type(owner) is Own:
            if owner.variable:
                state.variables[owner.variable] = HOLDER
        elif owner != HOLDER:
            if type(owner) is not tuple:
                raise Lost
            self.put[owner, key] = kind if self.put.get((owner, key), kind) is kind else HOLDER
            state.there = True

    def needs_plain(self, x: Any) -> None:
        """What this is must look nowhere when it is asked for something.

        Raises:
            Lost: it is something that the code does not show.
        """
        if type(x) is tuple or type(x) is Answer:
            self.plain[x] = None
        elif type(x) is not Constant and x not in (PLAIN, NUMBER):
            raise Lost

    def way(self) -> WayOut | None:
        """The way out, if there is one moment at which all is kept, in places that are the same then as at the end."""
        stored = (*self.stored, *self.also_stored)
        if not self.before.isdisjoint((*self.put, *stored)):  # there is no one moment for the place
            return None
        if self._meets_an_end():
            return None
        if not {path[0] for path in self._paths() if path}.isdisjoint(self.assigned):
            return None  # what is called then is not what is there now
        return WayOut(self.callee, self.returned, tuple(self.gives), tuple(self.put), stored, tuple(self.looked_up),
                      tuple(self.given), tuple(self.called), tuple(self.arguments), tuple(self.plain),
                      tuple(self.fixed))

    def _meets_an_end(self) -> bool:
        """Whether a list whose end gets something is written to both before the value is kept and then."""
        put, before = {path for path, _ in self.put}, {path for path, _ in self.before}
        return any(key is ANYWHERE and path in put for path, key in self.before) or any(
            key is ANYWHERE and path in before for path, key in self.put)

    def _paths(self) -> Iterator[Path]:
        """The paths of all that is asked or written to once the value is kept."""
        yield from map(path_of, self.plain)
        yield from self.looked_up
        yield from (path for _, path in self.arguments if path is not None)
        yield from map(path_of, self.called)
        for path, _ in (*self.put, *self.stored, *self.also_stored):
            yield path


def path_of(x: Any) -> Path:
    """The path that something is looked up by, () for what is looked up nowhere.

    >>> path_of(Answer(Method(Answer(Method(("x",), "argmax")), "sum")))
    ('x',)
    """
    while type(x) in (Answer, Method):
        x = x.callee if type(x) is Answer else x.owner
    return x if type(x) is tuple else ()
