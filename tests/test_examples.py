"""The programs that a newcomer tries first run as printed."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README_PROGRAMS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def last_loss(printed: str) -> float:
    return float(printed.split()[-1])


def test_readme_shows_one_program() -> None:
    assert len(README_PROGRAMS) == 1


@pytest.mark.parametrize("program", README_PROGRAMS)
def test_readme_program_learns(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(program, "README.md", "exec"), {"__name__": "__main__"})
    assert last_loss(capsys.readouterr().out) < 0.01


def test_quickstart_learns(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "quickstart.py"), run_name="__main__")
    assert last_loss(capsys.readouterr().out) < 0.01
