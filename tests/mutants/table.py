"""The table of planted faults: what `faults/*.toml` says, and whether it still fits the code."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
"""The tree that the table is about."""

FOLDER: Final = Path(__file__).parent / "faults"


@dataclass(frozen=True)
class Fault:
    """A mistake that somebody could make.

    Attributes:
        name: what is wrong then, in few words; no two rows have one.
        why: what a user would suffer.
        file: the file it is in, from the root of the tree.
        old, new: the text that is there once, and the mistake in its place.
        tests: the tests that must notice; one that fails is enough.
    """

    name: str
    why: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted(self, text: str) -> str:
        """The file's text with the mistake in it.

        Raises:
            ValueError: the old text is not there, or more than once.

        >>> Fault("sum for product", "", "", "a * b", "a + b", ()).planted("return a * b")
        'return a + b'
        """
        found = text.count(self.old)
        if found != 1:
            raise ValueError(f"{self.name!r}: the old text is {found} times in {self.file}, not once")
        return text.replace(self.old, self.new)


def read() -> list[Fault]:
    """All rows, file by file.

    Raises:
        TypeError: a row has a key too many or too few.
    """
    return [Fault(**{**row, "tests": tuple(row.get("tests", ()))})
            for file in sorted(FOLDER.glob("*.toml")) for row in tomllib.loads(file.read_text())["fault"]]


def problems(fault: Fault) -> Iterator[str]:
    """What is wrong with a row: its text is gone, its tests are, or a column is empty."""
    for column in fields(fault):
        if column.name != "new" and not getattr(fault, column.name):
            yield f"{fault.name!r}: no {column.name}"
    try:
        compile(fault.planted((ROOT / fault.file).read_text()), fault.file, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError) as error:
        yield str(error)
    for test in fault.tests:
        file, _, name = test.partition("::")
        if name.partition("[")[0] not in _functions(file):
            yield f"{fault.name!r}: there is no {test}"


@cache
def _functions(file: str) -> frozenset[str]:
    """The names of a file's functions, and of its doctests."""
    path = ROOT / file
    if not path.is_file():
        return frozenset()
    tree = ast.parse(path.read_text())
    names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    module = file.removesuffix("/__init__.py").removesuffix(".py").replace("/", ".")
    return frozenset(names | {f"{module}.{name}" for name in _qualified(tree.body)})


def _qualified(body: list[ast.stmt], before: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield before + node.name
            yield from _qualified(node.body, f"{before}{node.name}.")
