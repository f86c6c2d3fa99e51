"""benchmarks/compare_trees.py: trees take turns, the least time counts, and a script that fails leaves the others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import compare_trees

OLD, NEW = Path("old"), Path("new")


def test_trees_take_turns_and_the_one_that_ended_a_round_begins_the_next() -> None:
    seen: list[Path] = []

    def run_in(tree: Path, cache: Path) -> dict[str, float]:
        assert cache.name == tree.name
        seen.append(tree)
        return {"x": float(len(seen))}
    found = compare_trees.compare((OLD, NEW), 3, run_in, (Path("caches/old"), Path("caches/new")))
    assert seen == [OLD, NEW, NEW, OLD, OLD, NEW]
    assert found == ({"x": [1.0, 4.0, 5.0]}, {"x": [2.0, 3.0, 6.0]})


def test_the_least_times_are_compared_and_noise_is_the_old_trees() -> None:
    row, = compare_trees.rows("recording", {"x": [2.0, 3.0], "gone": [1.0]}, {"x": [5.0, 4.0], "came": [1.0]})
    assert (row["what"], row["old"], row["new"], row["ratio"], row["noise"]) == ("x", 2.0, 4.0, 2.0, 1.5)


def tree_with(folder: Path, script: str) -> Path:
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "benchmarks" / "recording.py").write_text(script)
    return folder


def test_a_script_runs_in_its_own_tree(tmp_path: Path) -> None:
    found = {"ops": {"x + y": {"least_ns": 7, "median_ns": 9}}}
    tree = tree_with(tmp_path / "tree", "import os, sys, pathlib\n"
                     "assert os.environ['PYTHONPATH'] == os.getcwd() and os.environ['GENESIS_CACHE_DIR'] == 'cache'\n"
                     f"pathlib.Path(sys.argv[-1], 'recording.json').write_text({json.dumps(found)!r})")
    measurement = compare_trees.MEASUREMENTS["recording"]
    assert compare_trees.run(tree, measurement, (), Path("cache")) == {"x + y": 7}


def test_a_script_that_fails_is_shown_and_gives_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = tree_with(tmp_path / "tree", "raise SystemExit('no such GPU')")
    assert compare_trees.run(tree, compare_trees.MEASUREMENTS["recording"], (), Path("cache")) == {}
    assert "no such GPU" in capsys.readouterr().out
