"""docs/performance.md and its plots are what benchmarks/results says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

import performance


def test_the_page_and_its_plots_are_up_to_date() -> None:
    assert performance.stale() == [], "not current: run `make pages`, and commit what changes"


def test_every_figure_has_its_command_and_each_bar_its_number() -> None:
    found = performance.figures()
    assert {"gpt2_step", "attention", "bars"} <= {figure.name for figure in found}
    for figure in found:
        assert figure.origin.startswith("`python benchmarks/")
        root = ElementTree.fromstring(performance.svg(figure))
        bars = sum(value is not None for _, values in figure.groups for value in values)
        assert sum(each.tag.endswith("rect") for each in root) == 1 + len(figure.contestants) + bars


def test_a_new_result_makes_the_page_old(tmp_path: Path) -> None:
    origin = {"command": "python benchmarks/sweep.py", "gpu": None, "processor": "any", "torch": "2", "date": "today"}
    family = {"family": "norm", "geometric_mean": 1.2, "worst": 0.5, "cases": 8, "wrong": 0}
    (tmp_path / "sweep_3.json").write_text(json.dumps({**origin, "seed": 3, "families": [family]}))
    assert performance.DOCS / "performance.md" in performance.stale(tmp_path)
    assert "| norm | 1.20 | 0.50 |" in performance.page(performance.figures(tmp_path))
