"""Pages that a program writes: they are what it says, or `make pages` writes them anew."""

from __future__ import annotations

import os
from difflib import unified_diff
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
UPDATE = os.environ.get("UPDATE_GOLDEN", "") not in ("", "0")
DIFFERENCES = 40
"""Lines of differences that a failure shows."""


def check_page(page: Path, text: str) -> None:
    """The page has this text. With UPDATE_GOLDEN=1 it is written where it has not.

    Raises:
        pytest.fail.Exception: it has another one. The first line says what to run.
    """
    before = page.read_text(encoding="utf-8")
    if before == text:
        return
    if UPDATE:
        page.write_text(text, encoding="utf-8")
        return
    lines = list(unified_diff(before.splitlines(), text.splitlines(), "as it is", "as it is to be", lineterm="", n=0))
    pytest.fail("\n".join([f"{page.relative_to(ROOT)} is not current: run `make pages`, which writes all such pages, "
                           "and commit what changes", *lines[:DIFFERENCES]]), pytrace=False)
