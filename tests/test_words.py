"""Words that Genesis once had for what the field has a word for stay out of the compiler's rooms, and of its pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("amp", "autograd", "checkpointing", "codegen", "distributed", "engine", "frontend", "func", "linalg", "optim",
         "passes", "profiler", "runtime", "tracing")

WORDS = {
    r"famil(y|ies)": "plan template, shape-erased key",
    r"free values?": "inlined value",
    r"matmul_runs|split_runs": "splits, split-K",
    r"one_walk|walk_ahead": "reduction loop, online reduction, prefetch",
    r"straighten\w*": "make_contiguous",
    r"single_nodes": "group_per_op",
    r"batch_rows": "reroll",
    r"outline[ds]?": "structural memo",
    r"low_cop(y|ies)|low cop(y|ies)": "shadow weights",
    r"freeing": "graph release",
}
"""The word → what to say instead."""

OTHER_MEANINGS = {("codegen/cuda/templates/attention.py", "family"): "of kernels, as in any book"}
"""(file, word) → why it may stand there."""


FRAGMENTS = frozenset({
    "about", "above", "after", "along", "among", "around", "as", "at", "before", "behind", "below", "beside", "between",
    "beyond", "by", "during", "for", "from", "of", "off", "on", "since", "through", "to", "toward", "under", "until",
    "up", "upon", "with", "within", "without"})
"""Words that the first line of a docstring does not begin with: "Of a run, in rows" says nothing by itself."""

SENTENCES = {
    "frontend/storage.py": ("Up to this size, a content", "On a GPU, make our later work"),
    "ir/ops/attention.py": ("With P the probabilities: dv =",),
    "ir/ops/bounds.py": ("On a bound the gradient is",),
    "ir/ops/lu.py": ("With A = P L U, square: P L",),
    "engine/symbolic/symbolic_program.py": ("Of an attribute that is no shape only",),
}
"""File → docstrings that begin with one and are sentences, or formulas."""


def docstrings(text: str) -> Iterator[str]:
    """Every string that stands as a statement: of modules, classes, functions, and behind constants."""
    for node in _statements(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value.strip()


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements inside a node: most nodes are expressions, which have none."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from _statements(child)


def fragments(text: str) -> list[str]:
    """The first lines of the docstrings that begin with a preposition."""
    return [said.splitlines()[0] for said in docstrings(text)
            if said and said.split(maxsplit=1)[0].lower() in FRAGMENTS]


def unexplained(text: str) -> list[str]:
    """The public constants of a module that are numbers, and neither have a comment nor stand before a docstring.

    >>> unexplained("A, B = 1, 2\\nC = 3\\n'What both are.'\\nD = 4  # so many\\nE = 5\\nF = 'name'\\n")
    ['E']
    """
    lines, found, waiting = text.splitlines(), [], []
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and (name := _number(node)):
            if "#" not in lines[(node.end_lineno or node.lineno) - 1] and not lines[node.lineno - 2].startswith("#"):
                waiting.append(name)
            continue
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            found += waiting
        waiting = []
    return found + waiting


def _number(node: ast.Assign | ast.AnnAssign) -> str:
    """The name of a constant that is a number, "" for any other assignment."""
    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
    plain = (ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop)
    named = isinstance(target, ast.Name) and target.id.isupper() and not target.id.startswith("_")
    value = node.value
    if not named or value is None or not all(isinstance(part, plain) for part in ast.walk(value)):
        return ""
    return "" if isinstance(value, ast.Constant) and isinstance(value.value, str) else target.id  # type: ignore


def test_a_constant_says_what_it_is() -> None:
    found = {str(path.relative_to(ROOT / "genesis")): names for path in sorted((ROOT / "genesis").rglob("*.py"))
             if (names := unexplained(path.read_text(encoding="utf-8")))}
    assert found == {}


def words_in(text: str) -> set[str]:
    """The words of the table that are in a text.

    >>> sorted(words_in("the Families of outlines, familiar"))
    ['families', 'outlines']
    """
    return {found.group(0).lower() for word in WORDS
            for found in re.finditer(rf"(?<![a-z]){word}(?![a-z])", text, re.IGNORECASE)}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_says_the_words_of_the_field(room: str) -> None:
    found = {(str(path.relative_to(ROOT / "genesis")), word)
             for path in sorted((ROOT / "genesis" / room).rglob("*.py"))
             for word in words_in(f"{path.stem}\n{path.read_text(encoding='utf-8')}")}
    assert sorted(found - set(OTHER_MEANINGS)) == []


def test_a_docstring_has_a_subject_or_a_verb() -> None:
    found = {str(path.relative_to(ROOT / "genesis")): fragments(path.read_text(encoding="utf-8"))
             for path in sorted((ROOT / "genesis").rglob("*.py"))}
    wrong = [(file, said) for file, several in found.items() for said in several
             if not said.startswith(SENTENCES.get(file, "\n"))]
    assert wrong == []
    assert [(file, start) for file, starts in SENTENCES.items() for start in starts
            if not any(said.startswith(start) for said in found[file])] == [], "exceptions that nothing needs"


def test_a_fragment_is_noticed() -> None:
    assert fragments('SHARE = 8\n"""Of a program, in rows."""') == ["Of a program, in rows."]
    assert fragments('SHARE = 8\n"""Minimum rows of a program."""\nx = "Of no statement"') == []


def test_a_word_that_the_field_does_not_have_is_noticed() -> None:
    assert words_in("self._family = straightened(x)  # low copies") == {"family", "straightened", "low copies"}


def test_each_exception_is_needed() -> None:
    assert [each for each in OTHER_MEANINGS
            if each[1] not in words_in((ROOT / "genesis" / each[0]).read_text(encoding="utf-8"))] == []
