"""`genesis cache`: what is on disk, and clearing it."""

from __future__ import annotations

from pathlib import Path

import pytest

from genesis.cli.main import main
from genesis.runtime.cuda.kernel_cache import KernelCache
from genesis.runtime.plan_cache import PlanCache


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GENESIS_CACHE_DIR", str(tmp_path))
    KernelCache().put("one", b"ELF", {"name": "add_mul"})
    KernelCache().put("two", b"ELF", {"name": "softmax_rows"})
    PlanCache().store.write("p", {"objects": [["Launch"], ["Place"], ["Launch"], ["Plan"]], "entries": ["one"]})
    return tmp_path


def test_how_much_there_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache"]) == 0
    assert f"{folder}: 2 kernels and 1 plan, 0.0 MB" in capsys.readouterr().out


def test_a_list(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "broken.kernel").write_bytes(b"nothing")
    assert main(["cache", "list"]) == 0
    text = capsys.readouterr().out
    for part in ("add_mul", "softmax_rows", "2 launches of 1 kernels", "damaged", "3 kernels and 1 plan"):
        assert part in text
    assert main(["cache", "list", "--plans"]) == 0
    assert "add_mul" not in capsys.readouterr().out


def test_clearing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "clear", "--plans"]) == 0
    assert "removed 1 plan" in capsys.readouterr().out
    assert len(list(folder.iterdir())) == 2
    assert main(["cache", "clear"]) == 0
    assert "removed 2 kernels and 0 plans" in capsys.readouterr().out
    assert not list(folder.iterdir())


def test_no_cache_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("GENESIS_CACHE_DIR", str(tmp_path / "none"))
    assert main(["cache"]) == 0
    assert "0 kernels and 0 plans" in capsys.readouterr().out


def test_a_directory_that_is_not_used_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder.chmod(0o777)
    assert main(["cache", "clear"]) == 1
    text = capsys.readouterr().out
    assert "not used" in text and "can be written to by others (mode 777)" in text and "chmod go-w" in text
    assert len(list(folder.iterdir())) == 3
