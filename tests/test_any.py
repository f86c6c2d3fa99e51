"""`Any` stays where a value can be anything, with its reason: elsewhere a type or a protocol says what a thing has.

The rooms below are the compiler and what runs its plans. The table may only shrink: an `Any` that is not in it, and one
of it that went, fail here.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "genesis"

ROOMS = ("ir", "passes", "engine", "runtime")

ALLOWED: dict[str, tuple[int, str]] = {
    "ir/errors.py": (1, "what a user gave is described, of whatever library"),
    "ir/node.py": (5, "of an attribute the op's type rule says the type; what the engine and autograd hang on a node"),
    "ir/ops/convolution.py": (1, "a row of sample sizes, read with a star"),
    "ir/polynomials.py": (2, "an atom's first part says what the others are"),
    "ir/suggest.py": (3, "a constructor's arguments, which its `__init__` names"),
    "passes/pipeline.py": (2, "what comes out of a pass: a graph, groups, memory, a backend's code"),
    "passes/remat/rewrite.py": (2, "a key's first part says what the others are"),
    "passes/structural_memo.py": (2, "answers of all kinds; `memoized` types each by its question"),
    "engine/compilation.py": (1, "stages, as in passes/pipeline.py"),
    "engine/preparation.py": (1, "cells that another thread may have ended are compared as they are"),
    "engine/symbolic/call_template.py": (1, "what a field of a form stands for, as of runtime/plan_form.py"),
    "engine/symbolic/shape_erased_key.py": (1, "an attribute's value or a part of it, told apart by its class"),
    "engine/symbolic/symbolic_program.py": (8, "rules of attributes by name; the IR says int of a symbolic size"),
    "runtime/cpu/one_call.py": (1, "a literal operand, or where it is found"),
    "runtime/cuda/cuda_python_calls.py": (1, "what a call of the driver's returns"),
    "runtime/cuda/driver.py": (5, "handles are a driver's own objects, which the rest hands back"),
    "runtime/disk_store.py": (1, "JSON of an entry on disk"),
    "runtime/host_bytes.py": (1, "an array has a buffer, and numpy's types say so from Python 3.12 on"),
    "runtime/plan_form.py": (1, "JSON of a plan on disk, as an argument of the class that it names"),
    "runtime/stored_form.py": (1, "JSON of a plan on disk, whose types are what is checked"),
}
"""File → how many annotations say `Any`, and why."""


def uses_of_any(text: str) -> int:
    """How many expressions of a module name `Any`; its import is none."""
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(ast.parse(text)))


def test_any_stays_where_the_table_says_why() -> None:
    found = {str(path.relative_to(PACKAGE)): count for room in ROOMS for path in (PACKAGE / room).rglob("*.py")
             if (count := uses_of_any(path.read_text()))}
    assert found == {file: count for file, (count, _) in ALLOWED.items()}


@pytest.mark.parametrize("text, count", [
    ("from typing import Any", 0),
    ("def f(x: Any, *y: list[Any]) -> None: ...", 2),
    ("x: dict[str, object] = {}", 0),
])
def test_uses_are_counted(text: str, count: int) -> None:
    assert uses_of_any(text) == count
