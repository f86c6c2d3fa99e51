"""Pages under docs/ that are written by a benchmark are what it writes."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def test_the_page_on_accuracy_shows_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    spec = importlib.util.spec_from_file_location("accuracy", ROOT / "benchmarks" / "accuracy.py")
    assert spec is not None and spec.loader is not None
    accuracy = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(accuracy)
    assert (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8") == accuracy.markdown()
    assert "| tanh |" in accuracy.markdown()
    sys.modules.pop("record", None)
