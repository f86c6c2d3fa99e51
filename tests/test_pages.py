"""Pages say what is so: numbers that a benchmark wrote, commands that work as printed, files that are there."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
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


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"^    (genesis (?:dump|why|ops) (?!script\.py)[^#\n]*)", re.MULTILINE)
LINK = re.compile(r"\]\((?!http)([^)#]+)")


@pytest.mark.parametrize("command", COMMAND.findall((ROOT / "README.md").read_text(encoding="utf-8")))
def test_the_commands_of_the_readme_work_as_printed(command: str) -> None:
    """With the environment's folder on the path, as after `source .venv/bin/activate`, from the project's folder."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(shlex.split(command), capture_output=True, text=True, cwd=ROOT, timeout=120,
                          env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stderr
    assert "# plan " in done.stdout


def test_the_readme_shows_commands() -> None:
    assert len(COMMAND.findall((ROOT / "README.md").read_text(encoding="utf-8"))) == 4


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    broken = [target for target in LINK.findall(text) if not (page.parent / target).exists()]
    assert broken == []
