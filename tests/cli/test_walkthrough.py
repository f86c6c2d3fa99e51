"""docs/walkthrough.md shows what the commands in it print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import genesis
from genesis import engine
from genesis.cli.main import main
from tests.generated_pages import ROOT, check_page

PAGE = ROOT / "docs" / "walkthrough.md"
TRANSCRIPT = re.compile(r"```console\n\$ genesis (.*)\n(?:[^`]|`(?!``))*```")


def timeless(page: str) -> str:
    """The page without the milliseconds of passes, and how wide they make their column."""
    times = r" +\d+\.\d+(?= (ms\n|ms in passes| +\d+ (nodes|groups)))| +ms(?=  )| +-(?=  )"
    return re.sub(times, " TIME", page)


def test_the_transcripts_are_current(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                     capsys: pytest.CaptureFixture[str]) -> None:
    """But for milliseconds."""
    page = PAGE.read_text(encoding="utf-8")
    script = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert script is not None
    (tmp_path / "walk.py").write_text(script[1])
    monkeypatch.chdir(tmp_path)

    def printed(match: re.Match[str]) -> str:
        engine.reset()
        genesis.manual_seed(0)
        assert main(match[1].split()) == 0
        return f"```console\n$ genesis {match[1]}\n{capsys.readouterr().out.rstrip()}\n```"

    current, count = TRANSCRIPT.subn(printed, page)
    assert count == page.count("```console") == 8
    if timeless(page) != timeless(current):
        check_page(PAGE, current)
