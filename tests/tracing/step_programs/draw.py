"""A random step and what is done with it: drawn from the tables by a seed, made smaller while a condition holds."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from textwrap import indent

from tests.tracing.step_programs import gradient_tables
from tests.tracing.step_programs.tables import (
    BACKWARD,
    BETWEEN,
    CONDITIONS,
    EVENTS,
    FIRST,
    FLAGS,
    FORMS,
    FORWARD,
    LAST,
    LOSS,
    MORES,
    RESULTS,
    SETUP,
    UPDATE,
    WRITTEN,
    WRITTEN_EVENTS,
    XS,
    ZERO,
)

_OPTIMIZERS = ("S.sgd", "S.adam")


@dataclasses.dataclass(frozen=True)
class StepProgram:
    """A training step and what is done with it.

    Attributes:
        seed: what it was drawn from.
        form: what is compiled, around the body.
        body: the step's statements, the last is its return.
        steps: what is done, one after the other.
        written: `S.adam` is an optimizer as people write them.
    """

    seed: int
    form: str
    body: tuple[str, ...]
    steps: tuple[str, ...]
    written: bool = False

    def setup(self) -> str:
        """The state, then the function."""
        inside = "\n".join(self.body)
        function = self.form.format(body=indent(inside, "    "), deep=indent(inside, "        "))
        optimizer = (WRITTEN,) if self.written else ()
        return "\n".join((SETUP.format(), *optimizer, "fixed, held = batch(77), Batch(genesis.ones(4))",
                          "columns = fixed[0].t().contiguous()", "genesis.eval(columns)", function))

    def __str__(self) -> str:
        steps = (f"# step {i}\n{x}" for i, x in enumerate(self.steps))
        return "\n".join((f"# program {self.seed}", self.form.format(body="...", deep="..."), *self.body, *steps))

    def calls(self) -> int:
        """How often it calls the function."""
        return sum("call(" in step for step in self.steps)

    def smaller(self) -> Iterator[StepProgram]:
        """Programs with a step, a statement or a condition less."""
        count = len(self.steps)
        for size in (count // 2, count // 4, 2, 1):
            for at in reversed(range(0, count, size or 1)):
                if size:
                    yield dataclasses.replace(self, steps=(*self.steps[:at], *self.steps[at + size:]))
        for at in reversed(range(len(self.body) - 1)):
            yield dataclasses.replace(self, body=(*self.body[:at], *self.body[at + 1:]))
            first, _, rest = self.body[at].partition("\n")
            if first.startswith(("if ", "try:")) and rest:
                plain = "\n".join(line[4:] for line in rest.split("\n") if line.startswith("    "))
                yield dataclasses.replace(self, body=(*self.body[:at], plain, *self.body[at + 1:]))
        if not self.body[-1].startswith("return None"):
            yield dataclasses.replace(self, body=(*self.body[:-1], "return None"))
        if self.form != next(iter(FORMS)):
            yield dataclasses.replace(self, form=next(iter(FORMS)))


def draw(seed: int) -> StepProgram:
    """The program of this seed."""
    chance = random.Random(seed)
    return StepProgram(seed, _pick(chance, FORMS), tuple(_body(chance)), tuple(_steps(chance)))


def draw_written(seed: int) -> StepProgram:
    """A program of this seed whose steps are an optimizer's that is written in it, and what is done to that."""
    found = draw(seed)
    chance = random.Random(~seed)
    steps: list[str] = []
    for step in found.steps:
        steps += (chance.choice(WRITTEN_EVENTS), step) if chance.random() < 0.1 else (step,)
    body = tuple([x.replace("S.sgd", "S.adam") for x in found.body])
    return dataclasses.replace(found, body=body, steps=tuple(steps), written=True)


def draw_gradients(seed: int) -> StepProgram:
    """A step of this seed that works on the gradients that it finds: their lines in any order, optimizers' among them,
    and what is done to gradients between the calls."""
    chance = random.Random(f"gradients {seed}")
    form, body = _pick(chance, FORMS), tuple(_body_on_gradients(chance))
    return StepProgram(seed, form, body, tuple(_steps_on_gradients(chance)))


def _pick(chance: random.Random, table: dict[str, float]) -> str:
    return chance.choices(list(table), list(table.values()))[0]


def _body(chance: random.Random) -> Iterator[str]:
    optimizer = chance.choice(_OPTIMIZERS)
    k = chance.choice((2, 3, 3, 4))

    def row(table: dict[str, float], conditions: float = 0.15) -> str:
        text = _pick(chance, table)
        if chance.random() < conditions:
            text = f"if {_pick(chance, CONDITIONS)}:\n{indent(text, '    ')}"
        elif chance.random() < 0.03:
            text = f"try:\n{indent(text, '    ')}\nfinally:\n    S.seen += 1"
        return text.format(o=optimizer, k=k)
    yield from (row(FIRST) for _ in range(chance.choice((0, 1, 1, 2, 3))))
    early = chance.random() < 0.7
    if early:
        yield row(ZERO)
    yield _pick(chance, FORWARD).format()
    yield _pick(chance, LOSS).format()
    if chance.random() < 0.9:
        yield _pick(chance, BACKWARD).format()
    yield from (row(BETWEEN) for _ in range(chance.choice((0, 0, 0, 1, 2))))
    if chance.random() < 0.9:
        yield row(UPDATE, 0.1 if early else 0.6)
    yield from (row(LAST, 0.25) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4))))
    yield f"return {_pick(chance, RESULTS).format()}"


def _steps(chance: random.Random) -> Iterator[str]:
    xs, flag, more = _pick(chance, XS), _pick(chance, FLAGS), _pick(chance, MORES)
    if chance.random() < 0.8:
        xs = next(iter(XS))
    events = chance.choice((0.05, 0.2, 0.4))
    for i in range(chance.randint(10, 22)):
        if chance.random() < events:
            yield _pick(chance, EVENTS).format(i=i, k=chance.randint(1, 5))
        parts = [_pick(chance, table) if chance.random() < 0.12 else usual
                 for table, usual in ((XS, xs), (FLAGS, flag), (MORES, more))]
        yield f"call({', '.join(filter(None, parts))})".format(i=i, k=chance.randint(1, 5))
    yield "look()"
    yield "note(bits(results))"


def _body_on_gradients(chance: random.Random) -> Iterator[str]:
    optimizer, tables = chance.choice(_OPTIMIZERS), gradient_tables
    conditions = chance.choice((0, 0.1, 0.3))

    def lines(count: int) -> Iterator[str]:
        for _ in range(count):
            kind = chance.choices((tables.BACKWARDS, tables.ZEROS, tables.STEPS, tables.WORK), (4, 3, 4, 4))[0]
            text = _pick(chance, kind)
            if chance.random() < conditions:
                text = f"if {_pick(chance, tables.CONDITIONS)}:\n{indent(text, '    ')}"
            yield text.format(o=optimizer, k=chance.randint(2, 3))
    yield "out = S.net(x)\nloss = F.cross_entropy(out, y)"
    yield from lines(chance.randint(1, 5))
    if chance.random() < 0.25:
        inside = "\n".join(("loss = F.cross_entropy(S.net(x), y)", *lines(chance.randint(1, 4))))
        yield f"for _ in range({chance.randint(1, 3)}):\n{indent(inside, '    ')}"
    yield from lines(chance.randint(0, 2))
    yield f"return {_pick(chance, tables.RESULTS)}"


def _steps_on_gradients(chance: random.Random) -> Iterator[str]:
    flag = chance.choice(("", "", "", "True", "{i} % 2 == 0"))
    events, others = chance.choice((0.0, 0.1, 0.3)), chance.choice((0, 0, 0.2))
    for i in range(chance.randint(8, 16)):
        if chance.random() < events:
            yield chance.choice(gradient_tables.EVENTS).format(i=i, k=chance.randint(1, 5))
        size = f", {chance.randint(3, 5)}" if chance.random() < others else ""
        yield f"call({', '.join(filter(None, (f'*batch({i}{size})', flag)))})".format(i=i)
    yield "look()"
    yield "note(bits(results))"
