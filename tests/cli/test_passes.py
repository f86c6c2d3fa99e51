"""`genesis passes` on a small script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from genesis import engine
from genesis.cli.main import main
from genesis.passes.pipeline import PASSES

SCRIPT = """\
import genesis

x = genesis.ones(4, 8, requires_grad=True)
(x * 2).softmax(-1).square().sum().backward()
x.grad.sum().item()
(x.detach() + 1).sum().item()
"""

ROWS = """
out = genesis.zeros(6)
y = genesis.ones(6, 3)
genesis.eval(out, y)
for i in range(6):
    out[i] = y[i].exp().sum()
out.tolist()
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "small.py"
    path.write_text(SCRIPT)
    return str(path)


def passes(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    engine.reset()
    assert main(["passes", *words]) == status
    return capsys.readouterr().out


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    plan, = json.loads(passes(capsys, *words, "--json"))
    return plan["passes"]


def test_every_row_of_the_list_is_told_in_order(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    head, titles, *lines = passes(capsys, script, "--plan", "1").splitlines()
    assert head.startswith("# plan 1 of 2, for cpu: ") and head.endswith(" ms in passes")
    assert titles.split() == ["pass", "stage", "backends", "ms", "before", "after"]
    assert [line.split()[:2] for line in lines] == [[row.name, row.stage] for row in PASSES]


def test_a_row_says_how_long_it_took_and_what_it_made_of_what(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["name"]: row for row in rows(capsys, script, "--plan", "1")}
    assert found["autodiff"]["ms"] > 0 and found["autodiff"]["after"] > found["autodiff"]["before"]
    assert found["group"]["units"] == ["nodes", "groups"] and found["lower"]["units"] == ["groups", "steps"]
    assert found["canonicalize"]["before"] == found["autodiff"]["after"]


def test_which_backends_want_a_row(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["name"]: row for row in rows(capsys, script)}
    assert found["group"]["backends"] == "all"
    assert found["make_contiguous"]["backends"] == ["cpu"] and found["make_contiguous"]["ms"] > 0
    assert found["split_k"]["backends"] == ["cuda"] and found["split_k"]["ms"] is found["split_k"]["before"] is None


def test_another_target_needs_no_gpu_and_compiles_no_kernel(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = {row["name"]: row for row in rows(capsys, script, "--target", "l4", "--plan", "1")}
    assert found["split_k"]["ms"] > 0 and found["make_contiguous"]["ms"] is None
    assert found["group"]["after"] < found["group"]["before"] and found["lower"]["ms"] is None


def test_a_pass_that_runs_again_has_a_row_each_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "rows.py"
    path.write_text(SCRIPT + ROWS)
    names = [row["name"] for row in rows(capsys, str(path))]
    assert names.count("reroll") == names.count("canonicalize") == 2 and names.index("reroll") == 7
    assert list(dict.fromkeys(names)) == [row.name for row in PASSES]


def test_all_plans(script: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = passes(capsys, script, "--all")
    assert text.count("# plan ") == 2 and text.count("canonicalize_again") == 2


@pytest.mark.parametrize("words, problem", [(("--plan", "3"), "there are 2 plans"), (("--target", "x1"), "no backend")])
def test_what_cannot_be_shown_is_said(script: str, words: tuple[str, ...], problem: str,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    engine.reset()
    assert main(["passes", script, *words]) == 2
    assert problem in capsys.readouterr().err
