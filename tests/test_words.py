"""Words that Genesis once had for what the field has a word for stay out of the compiler's rooms, and of its pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("codegen", "engine", "passes", "runtime", "tracing")

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


def test_a_word_that_the_field_does_not_have_is_noticed() -> None:
    assert words_in("self._family = straightened(x)  # low copies") == {"family", "straightened", "low copies"}


def test_each_exception_is_needed() -> None:
    assert [each for each in OTHER_MEANINGS
            if each[1] not in words_in((ROOT / "genesis" / each[0]).read_text(encoding="utf-8"))] == []
