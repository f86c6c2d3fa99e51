"""A random program: drawn from the tables by a seed, written out as text, made smaller while a condition holds."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator
from textwrap import indent

from tests.tracing.programs.tables import (
    ARGUMENTS,
    CHANGES,
    EFFECTS,
    FORMS,
    MODES,
    PIECES,
    READS,
    RESULTS,
    STATEMENTS,
)


@dataclasses.dataclass(frozen=True)
class Program:
    """A function and what is done with it.

    Attributes:
        seed: what it was drawn from.
        form: what is compiled, around the body.
        body: the function's statements, the last is its return.
        steps: what is done, one after the other.
    """

    seed: int
    form: str
    body: tuple[str, ...]
    steps: tuple[str, ...]

    def setup(self) -> str:
        """What the steps need: the pieces that are named, then the function."""
        inside = "\n".join(self.body)
        function = self.form.format(body=indent(inside, "    "), deep=indent(inside, "        "))
        named, text = set(), "\n".join((function, *self.steps))
        while new := {name for name in PIECES if name not in named and re.search(rf"\b{name}\b", text)}:
            named |= new
            text += "\n".join(PIECES[name] for name in new)
        sources = dict.fromkeys(PIECES[name] for name in PIECES if name in named)
        return "\n".join((*sources, function))

    def __str__(self) -> str:
        steps = (f"# step {i}\n{x}" for i, x in enumerate(self.steps))
        return "\n".join((f"# program {self.seed}", self.setup(), *steps))

    def calls(self) -> int:
        """How often it calls the function."""
        return sum("= f(" in step for step in self.steps)

    def _made(self, at: int) -> str:
        found = re.search(r"\bt(\d)\b", self.body[at])
        return found[1] if found else "_"

    def smaller(self) -> Iterator[Program]:
        """Programs with a statement, a step or a mode less."""
        for at in reversed(range(len(self.steps))):
            yield dataclasses.replace(self, steps=(*self.steps[:at], *self.steps[at + 1:]))
        for at in reversed(range(len(self.body) - 1)):
            without = (*self.body[:at], *self.body[at + 1:])
            yield dataclasses.replace(self, body=without)
            renamed = tuple(re.sub(rf"\bt{self._made(at)}\b", "x", each) for each in without)
            yield dataclasses.replace(self, body=renamed)
        for at, step in enumerate(self.steps):
            mode, _, inside = step.partition("\n    ")
            if mode.startswith("with ") and inside:
                yield dataclasses.replace(self, steps=(*self.steps[:at], inside, *self.steps[at + 1:]))
        if self.form != next(iter(FORMS)):
            yield dataclasses.replace(self, form=next(iter(FORMS)))


def draw(seed: int) -> Program:
    """The program of this seed."""
    chance = random.Random(seed)
    return Program(seed, _pick(chance, FORMS), tuple(_body(chance)), tuple(_steps(chance)))


def _pick(chance: random.Random, table: dict[str, int]) -> str:
    return chance.choices(list(table), list(table.values()))[0]


def _body(chance: random.Random) -> Iterator[str]:
    names, count = ["x"], chance.randint(1, 5)
    effects = chance.sample(range(count), min(count, chance.choices((0, 1, 2), (6, 3, 1))[0]))
    for at in range(count):
        row = _pick(chance, EFFECTS if at in effects else STATEMENTS)
        yield _filled(chance, row, names, f"t{at}")
        if "{t}" in row:
            names.append(f"t{at}")
    yield _filled(chance, _pick(chance, RESULTS), names, "")


def _filled(chance: random.Random, row: str, names: list[str], new: str) -> str:
    recent = [2 ** min(at, 6) for at in range(len(names))]
    first, second = chance.choices(names, recent, k=2)
    return row.format(a=first, b=second, t=new)


def _steps(chance: random.Random) -> Iterator[str]:
    results: list[str] = []
    favourite = _pick(chance, ARGUMENTS)
    for _ in range(chance.randint(5, 12)):
        kind = chance.random()
        if kind < 0.45 or not results:
            argument = favourite if chance.random() < 0.6 else _pick(chance, ARGUMENTS)
            mode = _pick(chance, MODES)
            for _ in range(chance.randint(1, 3)):
                call = f"r{len(results)} = f({argument.format(r=chance.choice(results or ['k']))})"
                results.append(f"r{len(results)}")
                yield f"{mode}\n    {call}" if mode else call
        elif kind < 0.85:
            yield _pick(chance, READS).format(r=chance.choice(results[-4:]))
        else:
            yield _pick(chance, CHANGES)
    yield from (f"note({result})" for result in chance.sample(results, chance.randint(0, len(results))))
    yield "note_state()"
    yield "note(genesis.rand(1))"


__all__ = ["Program", "draw"]
