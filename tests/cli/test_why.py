"""`genesis why`: reasons for kernels and refusals, with the script's lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from genesis import engine
from genesis.cli.main import main

SCRIPT = """\
import genesis

x = genesis.randn(64, 32)
rows = (x * 2 + 1).softmax(-1)
print((rows @ x.T).sum().item())
"""


def why(tmp_path: Path, capsys: pytest.CaptureFixture[str], *words: str) -> str:
    path = tmp_path / "small.py"
    path.write_text(SCRIPT)
    engine.reset()
    assert main(["why", str(path), *words]) == 0
    return capsys.readouterr().out


def test_kernels_have_reasons_and_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = why(tmp_path, capsys)
    assert "for cuda" in text
    assert "matmul has a kernel of its own" in text
    assert "small.py:4: rows = (x * 2 + 1).softmax(-1)" in text


def test_one_op(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "softmax" not in why(tmp_path, capsys, "--op", "matmul").splitlines()[1]
    assert "the program has no op named conv" in why(tmp_path, capsys, "--op", "conv")
    assert "no op named sofmax; did you mean 'softmax'?" in why(tmp_path, capsys, "--op", "sofmax")


def test_an_op_that_is_decomposed_is_shown_by_its_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = why(tmp_path, capsys, "--op", "softmax").splitlines()
    assert found[1].startswith("softmax is computed as other ops")
    assert any("over the same 64 rows" in line for line in found)
    assert not any("matmul has a kernel" in line for line in found)


def test_a_missing_script_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "nowhere.py"]) == 2
    assert "there is no file nowhere.py" in capsys.readouterr().err
