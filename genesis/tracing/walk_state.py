"""What a walk along bytecode knows before an instruction: what entries of the stack and variables are to a value."""

from __future__ import annotations

import types
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple


class Item(NamedTuple):
    """An item of a dictionary, as a part of a path."""

    key: str


Path = tuple[Any, ...]
"""A variable, then attributes (their names) and items of it."""
ANYWHERE: Final = None
"""A key of which nothing is known, or the end of a list."""


@dataclass(frozen=True)
class Method:
    """A method of what is at the path, of an `Answer`, or of a container that the code has made; None for something
    else."""

    owner: Any
    name: str


@dataclass(frozen=True)
class Answer:
    """What a call gives that comes while the value is where it may be looked at: of a `Method`, or of what is at a
    path."""

    callee: Any


@dataclass(frozen=True)
class Made:
    """A function that is made on the way: a comprehension."""

    code: types.CodeType


@dataclass(frozen=True)
class Constant:
    """A constant of the code."""

    value: Any


@dataclass(frozen=True)
class Own:
    """A list or dictionary that the code has made and nobody else knows: in this variable, '' for none."""

    variable: str


class Kind(Enum):
    """What an entry of the stack is to the value."""

    NUMBER = "the value, or what arithmetic made of it"
    HOLDER = "a container that was made on the way and has it inside, or what no arithmetic is done with"
    PLAIN = "a number or tensor that has nothing to do with the value"


NUMBER, HOLDER, PLAIN = Kind


def is_value(x: Any) -> bool:
    """Whether an entry of the stack is the value, or has it inside."""
    return x is NUMBER or x is HOLDER


def any_value(entries: Iterable[Any]) -> bool:
    """Whether one of these is."""
    return any(map(is_value, entries))


class Lost(Exception):
    """The value may be looked at."""


class State:
    """What is known before an instruction.

    Attributes:
        stack: of each entry a kind, a path, a `Method`, ...; None for anything else.
        variables: NUMBER, HOLDER, an `Own` or an `Answer` for those that hold such; the others are not in it.
        there: the value is in a list or attribute that others may know.
    """

    __slots__ = ("stack", "there", "variables")

    def __init__(self, stack: list[Any], variables: dict[str, Any], there: bool):
        self.stack, self.variables, self.there = stack, variables, there

    def copy(self) -> State:
        return State(self.stack.copy(), self.variables.copy(), self.there)

    def take(self, count: int) -> list[Any]:
        """Take as many entries off the stack, the deepest one first."""
        if count > len(self.stack):
            raise Lost
        taken = self.stack[len(self.stack) - count:]
        del self.stack[len(self.stack) - count:]
        return taken

    def use(self, taken: Iterable[Any]) -> None:
        """Somebody else gets these: containers of this function's own are not its own any more."""
        for x in taken:
            owner = x.owner if type(x) is Method else x
            if type(owner) is Own and owner.variable:
                self.variables.pop(owner.variable, None)

    def joined(self, other: State) -> State | None:
        """The state that holds after either; None if this one does."""
        if len(self.stack) != len(other.stack):
            raise Lost
        stack = list(map(_either, self.stack, other.stack))
        variables = {name: kind for name in {**self.variables, **other.variables} if (kind := _either(
            self.variables.get(name), other.variables.get(name))) is not None}
        there = self.there or other.there
        if stack == self.stack and variables == self.variables and there == self.there:
            return None
        return State(stack, variables, there)


def _either(a: Any, b: Any) -> Any:
    if a == b:
        return a
    if type(a) is Method and type(b) is Method and a.name == b.name:
        return Method(_either(a.owner, b.owner), a.name)
    if HOLDER in (a, b):
        return HOLDER
    if NUMBER in (a, b):
        return HOLDER if Own in (type(a), type(b)) else NUMBER
    return None
