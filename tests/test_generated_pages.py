"""`tests/generated_pages.py`: a page that is not what its program writes says what to run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import generated_pages
from tests.generated_pages import ROOT, check_page


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page of three lines."""
    monkeypatch.setattr(generated_pages, "ROOT", tmp_path)
    monkeypatch.setattr(generated_pages, "UPDATE", False)
    path = tmp_path / "ops.md"
    path.write_text("one\ntwo\nthree\n", encoding="utf-8")
    return path


def test_a_failure_says_first_what_to_run_and_then_what_differs(page: Path) -> None:
    check_page(page, "one\ntwo\nthree\n")
    with pytest.raises(pytest.fail.Exception) as raised:
        check_page(page, "one\n2\nthree\n")
    first, *rest = str(raised.value).splitlines()
    assert first.startswith("ops.md is not current: run `make pages`") and {"-two", "+2"} <= set(rest)
    assert page.read_text(encoding="utf-8") == "one\ntwo\nthree\n"


def test_it_is_written_where_that_is_asked_for(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated_pages, "UPDATE", True)
    check_page(page, "one\n2\nthree\n")
    assert page.read_text(encoding="utf-8") == "one\n2\nthree\n"


def test_the_target_runs_each_file_that_checks_a_page() -> None:
    recipe = re.search(r"^pages: install\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert recipe is not None
    checking = [path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py")
                if re.search(r"^ +check_page\(", path.read_text(encoding="utf-8"), re.MULTILINE)]
    own = Path(__file__).relative_to(ROOT).as_posix()
    assert len(checking) == 4 and [name for name in checking if name != own and name not in recipe[1]] == []
    assert "benchmarks/performance.py" in recipe[1]
