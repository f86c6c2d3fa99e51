"""A random function over sizes and numbers: drawn from the tables by a seed, made smaller while a condition holds."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Iterator
from textwrap import indent
from typing import Any

from tests.tracing.size_programs.tables import (
    CHANGES,
    CONDITIONS,
    DTYPES,
    EFFECTS,
    NUMBERS,
    OPERATIONS,
    RETURNS,
    ROWS,
    STATEMENTS,
    STEADY,
    TENSORS,
    VALUES,
)

CALLS = 24
"""Calls of a function."""

WORLD = """
class Level(enum.IntEnum):
    SOME = 3
    MORE = 5

@dataclasses.dataclass
class Pair:
    t: object
    n: object

class Net(nn.Module):
    def __init__(s):
        super().__init__()
        s.w, s.norm = nn.Parameter(ramp(4, 4) / 20), nn.BatchNorm1d(4)
        s.k, s.rate, s.cache, s.last, s.text, s.seen = 2, 0.5, None, 0, "", []
{method}

def safe(f):
    try:
        return f()
    except (ArithmeticError, ValueError, TypeError):
        return 7

def small(n):
    return 3 if n > 2**70 or n < -2**70 else n  # what is kept is squared at each call

def caught(f, other):
    try:
        return f()
    except Exception:
        return other

def checked(t):
    if t.shape[0] > 20:
        raise ValueError("long")
    return t

def helper(t, n, most=9):
    return t * 2 if n > most else t[:most] + n

def put(t, n):
    t = t.clone()
    t[:2] = n
    return t

s, D, L, G, w, b = Net(), {{"k": 1, 3: 2.0}}, [4, 5.0], 2, ramp(4, 4) / 30, genesis.zeros(8, 4)
"""

FUNCTION = """
def made():
    c = 3
    def f(x, y, i, j=2):
        global G
        nonlocal c
        t, u, n, m = x, y, 1, 2
{body}
    return f

f = made()
"""

METHOD = """
    def forward(s, x, y, i, j=2):
        global G
        t, u, n, m, c = x, y, 1, 2, 4
{body}
"""


@dataclasses.dataclass(frozen=True)
class Program:
    """A function, and what it is called with.

    Attributes:
        seed: what it was drawn from.
        is_method: whether it is the forward of the module.
        body: its statements.
        calls: for each call what happens before, rows of x and y, the numbers, grad mode and dtype.
    """

    seed: int
    is_method: bool
    body: tuple[str, ...]
    calls: tuple[tuple[str, int, int | None, tuple[Any, ...], bool, str], ...]

    def source(self) -> str:
        """The text that makes a world."""
        inside = indent("\n".join(self.body), " " * 8)
        if self.is_method:
            return WORLD.format(method=METHOD.format(body=inside)) + "\nf = s\n"
        return WORLD.format(method="") + FUNCTION.format(body=inside)

    def smaller(self) -> Iterator[Program]:
        """Programs with a call, a change or a statement less, or with a part in place of an expression."""
        for at in reversed(range(len(self.calls))):
            yield dataclasses.replace(self, calls=self.calls[:at] + self.calls[at + 1:])
            if self.calls[at][0]:
                yield dataclasses.replace(
                    self, calls=(*self.calls[:at], ("", *self.calls[at][1:]), *self.calls[at + 1:]))
        for at in reversed(range(len(self.body) - 1)):
            yield dataclasses.replace(self, body=self.body[:at] + self.body[at + 1:])
        for at, line in enumerate(self.body):
            for found in re.finditer(r"\([^()]*\)", line):
                for part in ("x", "3", "i", *re.split(r"[ ,]+", found[0][1:-1])):
                    if 0 < len(part) < len(found[0]):
                        yield dataclasses.replace(self, body=(
                            *self.body[:at], line[:found.start()] + part + line[found.end():], *self.body[at + 1:]))

    def __str__(self) -> str:
        calls = "\n".join(map(repr, self.calls))
        return f"# program {self.seed}, {'forward' if self.is_method else 'f'}(x, y, i, j):\n" + "\n".join(
            self.body) + f"\n# calls\n{calls}"


def grown(rng: random.Random, text: str, depth: int) -> str:
    """The text with random expressions for `N`, `T` and `C` in it."""
    tables = {"T": TENSORS, "C": CONDITIONS}

    def one(found: re.Match[str]) -> str:
        if found[0] == "N":
            table = NUMBERS if depth <= 0 or rng.random() < 0.4 else OPERATIONS
            return grown(rng, rng.choice([*table, "n", "m"] if table is NUMBERS else table), depth - 1)
        if found[0] == "T" and (depth <= 0 or rng.random() < 0.25):
            return rng.choice(("x", "y", "t", "u"))
        if depth <= -2:
            return "True"
        inside = grown(rng, rng.choice(tables[found[0]]), depth - 1)
        return inside if inside.isidentifier() else f"({inside})"
    return re.sub(r"\b[NTC]\b", one, text)


def draw(seed: int) -> Program:
    """The program of a seed."""
    rng = random.Random(seed)
    effects = rng.choice((0.0, 0.0, 0.3))
    body = [grown(rng, rng.choice(EFFECTS if rng.random() < effects else STATEMENTS), 2)
            for _ in range(rng.randint(0, 3))]
    body.append(f"return {grown(rng, rng.choice(RETURNS), 2)}")
    kind = rng.choice((int, int, float, None))
    values = [x for x in VALUES if type(x) is kind or kind is None]
    steady = [x for x in STEADY if type(x) is kind or kind is None]
    change_rows, change_numbers, changes = rng.choice(((1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 0.9), (0.8, 0.3, 0.2)))
    pair, dtype, tracked = rng.choice(("same", "equal", "equal", "other")), rng.choice(DTYPES), rng.random() < 0.6
    rows, numbers, calls = rng.choice(ROWS), [rng.choice(steady), rng.choice(steady)], []
    for at in range(CALLS):
        there = steady if at < 3 else values
        if rng.random() < change_rows:
            rows = rng.choice(ROWS[:6] if at < 3 else ROWS)
        if rng.random() < change_numbers:
            numbers[rng.random() < 0.2] = rng.choice(there)
        change = rng.choice(CHANGES).replace("V", repr(rng.choice(there))) if rng.random() < changes else ""
        other = {"same": None, "equal": rows, "other": rng.choice(ROWS)}[pair]
        odd = changes == 0.2 and rng.random() < 0.1
        calls.append((change, rows, other, tuple(numbers), tracked ^ odd, dtype))
    return Program(seed, rng.random() < 0.4, tuple(body), tuple(calls))
