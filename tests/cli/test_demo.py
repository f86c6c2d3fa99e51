"""`genesis demo` with a model that is too small to learn, on its way through every part."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from genesis.cli.main import main

TINY = ["--steps", "3", "--layers", "1", "--dim", "16", "--heads", "2", "--context", "16", "--batch", "2"]


@pytest.fixture(autouse=True)
def short_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a long validation nor a long sample."""
    from genesis.cli import demo
    monkeypatch.setattr(demo, "FINAL_BATCHES", 2)
    monkeypatch.setattr(demo, "SAMPLE_BYTES", 4)


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in metrics(folder)]


def test_writes_everything_and_fails_the_bar(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *TINY, "--out", str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert "step 3/3" in out and "tokens/s" in out
    assert "kernels of a training step" in out and "gpt.py:" in out and "adamw" in out
    assert "FAIL: validation loss" in out and "bigram entropy" in out
    assert [row["step"] for row in metrics(tmp_path)] == [1, 2, 3]
    assert set(metrics(tmp_path)[0]) == {"step", "loss", "lr", "tokens_per_s", "elapsed"}
    page = (tmp_path / "report.html").read_text()
    assert "layer_norm" in page and "GPT.forward" in page


def test_the_model_can_be_talked_to(tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """`genesis demo`, then `genesis chat`: no folder is named. A chat may be longer than the model's table."""
    pytest.importorskip("tokenizers")
    monkeypatch.chdir(tmp_path)
    assert main(["chat"]) == 2
    assert "there is no model at runs/demo/model yet: genesis demo trains one" in capsys.readouterr().err
    main(["demo", *TINY])
    assert "model: runs/demo/model (talk to it: genesis chat)" in capsys.readouterr().out
    monkeypatch.setattr("sys.stdin", io.StringIO("def f(x):\nand a line that is longer than the model's table\n"))
    assert main(["chat", "--temp", "0"]) == 0
    figures = re.findall(r"prompt (\d+) tokens, .* answer (\d+) tokens", capsys.readouterr().err)
    assert figures == [("8", "8"), ("8", "8")], "half of the table of 16 each"
    assert main(["generate", "runs/demo/model", "--prompt", "x" * 16]) == 2
    said = capsys.readouterr().err
    assert "the prompt has 16 tokens, which leaves no room for an answer: the model's table of positions has 16" in said
    assert main(["eval", "runs/demo/model", "runs/demo/metrics.jsonl"]) == 0


def test_seed_decides_the_run(tmp_path: Path) -> None:
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        main(["demo", *TINY, "--seed", seed, "--out", str(tmp_path / name)])
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert losses(tmp_path / "a") != losses(tmp_path / "c")


def test_compiled_run_has_the_same_losses(tmp_path: Path) -> None:
    main(["demo", *TINY, "--out", str(tmp_path / "plain")])
    main(["demo", *TINY, "--compile", "--out", str(tmp_path / "compiled")])
    assert losses(tmp_path / "compiled") == losses(tmp_path / "plain")


@pytest.mark.parametrize("words, problem", [
    (["--dim", "10", "--heads", "4"], "not a multiple"), (["--steps", "0"], "at least 1"),
    (["--device", "tpu"], "none of cpu, cuda"),
])
def test_impossible_settings_are_refused(words: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", *words]) == 2
    assert problem in capsys.readouterr().err


def test_missing_gpu_says_how_to_check(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import genesis
    monkeypatch.setattr(genesis.cuda, "is_available", lambda: False)
    assert main(["demo", "--device", "cuda"]) == 2
    assert "nvidia-smi" in capsys.readouterr().err


def test_python_dash_m_lists_the_commands() -> None:
    listed = subprocess.run([sys.executable, "-m", "genesis", "--help"], capture_output=True, text=True, check=True)
    assert "demo" in listed.stdout and "dump" in listed.stdout


def test_the_command_line_loads_no_torch() -> None:
    """Only what computes on the CPU does."""
    code = "import sys; from genesis.cli.main import make_parser; make_parser(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.gpu
def test_cuda_run_loads_no_torch(tmp_path: Path) -> None:
    words = ["demo", *TINY, "--device", "cuda", "--out", str(tmp_path)]
    code = f"import sys; from genesis.cli.main import main; main({words!r}); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
