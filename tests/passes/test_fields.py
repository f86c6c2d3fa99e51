"""Passes decide by an op's kind and fields, or by the op itself: a misspelt name in quotes would never match."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import genesis

ROOMS = ("passes", "engine", "frontend", "func", "autograd")
FILES = sorted(file for room in ROOMS for file in (Path(genesis.__file__).parent / room).rglob("*.py"))


def decisions_by_name(tree: ast.AST) -> Iterator[int]:
    """Lines that compare an op's name, or look it up in a table."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            asked: list[ast.expr] = [node.left, *node.comparators]
        elif isinstance(node, ast.Subscript):
            asked = [node.slice]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
            asked = node.args[:1]
        else:
            continue
        if any(_is_name_of_op(x) for x in asked):
            yield node.lineno


def _is_name_of_op(x: ast.expr) -> bool:
    return isinstance(x, ast.Attribute) and x.attr == "name" and ast.unparse(x.value).split(".")[-1] == "op"


@pytest.mark.parametrize("file", FILES, ids=lambda file: "/".join(file.parts[-3:]))
def test_no_decision_is_taken_by_an_ops_name(file: Path) -> None:
    assert list(decisions_by_name(ast.parse(file.read_text()))) == []


@pytest.mark.parametrize("text", ['node.op.name == "matmul"', 'op.name in ("a", "b")', "TABLE[node.op.name]",
                                  "TABLE.get(maker(node).op.name)"])
def test_a_decision_by_name_would_be_seen(text: str) -> None:
    assert list(decisions_by_name(ast.parse(text))) == [1]
