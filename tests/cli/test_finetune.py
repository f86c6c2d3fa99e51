"""`genesis finetune`: a folder and examples → a folder that answers as it was taught, here and in transformers."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

import genesis
from genesis.cli import run_log, train
from genesis.cli.main import main
from genesis.models import AutoModelForCausalLM
from tests.models.text.small import write_folder

pytest.importorskip("tokenizers")
pytest.importorskip("jinja2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two questions and their answers, again and again."""
    rows = [{"messages": [{"role": "user", "content": q}, {"role": "assistant", "content": a}]}
            for q, a in (("a?", "yes"), ("b?", "no!"))] * 8
    path = tmp_path_factory.mktemp("data") / "chats.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return str(path)


def rows(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def words(folder: Path, chats: str, out: Path, *more: str) -> list[str]:
    return ["finetune", str(folder), chats, "-o", str(out), "--device", "cpu", "--context", "128", "--batch", "2",
            "--warmup", "0", "--log-every", "10", *more]


@pytest.mark.parametrize("how", [["--lr", "1e-2"], ["--lora", "8", "--lr", "3e-2"]], ids=str)
def test_it_learns_to_answer(how: list[str], folder: Path, chats: str, tmp_path: Path,
                             capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole path: a folder, examples, a folder, and generate, chat and eval on it."""
    how = [*how, "--validation", chats, "--evaluate-every", "20"]
    assert main(words(folder, chats, tmp_path, "--steps", "40", *how)) == 0
    shown = capsys.readouterr().out
    assert "16 examples in 4 rows of 128 tokens" in shown and "40 steps are done" in shown
    assert [row["step"] for row in rows(tmp_path) if "validation_loss" in row] == [20, 40]
    assert rows(tmp_path)[-1]["validation_loss"] < 0.1
    answers = []
    for question in ("a?", "b?"):
        assert main(["generate", str(tmp_path / "model"), "-p", question, "--device", "cpu", "--no-verbose"]) == 0
        answers.append(capsys.readouterr().out.strip())
    assert answers == ["yes", "no!"], "and it stops behind them"
    monkeypatch.setattr("sys.stdin", io.StringIO("a?\n/new\nb?\n"))
    assert main(["chat", str(tmp_path / "model"), "--temp", "0", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.split() == ["yes", "no!"]
    (tmp_path / "text").write_text("yes")
    assert main(["eval", str(tmp_path / "model"), str(tmp_path / "text"), "--device", "cpu"]) == 0


@pytest.mark.parametrize("how", [["--batch", "3"], ["--lora", "2", "--dropout", "0.2", "--accumulate", "2"]], ids=str)
def test_each_step_is_a_replay_of_the_first(how: list[str], folder: Path, chats: str, tmp_path: Path,
                                            compiled: list[Any]) -> None:
    assert main(words(folder, chats, tmp_path, "--steps", "6", *how)) == 0
    step, = [f for f in compiled if f.__name__ == "one_step"]
    assert (genesis.explain(step).captures, genesis.explain(step).hits) == (1, 5)


def test_the_result_loads_in_transformers(folder: Path, chats: str, tmp_path: Path) -> None:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    low = AutoModelForCausalLM.from_pretrained(folder, dtype=genesis.bfloat16)
    low.save_pretrained(tmp_path / "low")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "low" / name).write_bytes((folder / name).read_bytes())
    how = ["--lora", "4", "--epochs", "2", "--precision", "bfloat16"]
    assert main(words(tmp_path / "low", chats, tmp_path, *how)) == 0
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert theirs.dtype == torch.bfloat16 and ours.lm_head.weight.dtype is genesis.bfloat16
    assert theirs.config.to_dict()["hidden_size"] == 32
    ids = [[60, 61, 62, 63, 64]]
    with torch.no_grad():
        wanted = theirs.float()(torch.tensor(ids)).logits
    found = ours.float()(genesis.tensor(ids)).logits
    assert torch.allclose(wanted, torch.tensor(found.tolist()), atol=1e-4)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert tokenizer.apply_chat_template([{"role": "user", "content": "x"}], tokenize=False) == "<|user|>x<|end|>"


def test_a_stopped_run_goes_on(folder: Path, chats: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Checkpoints of low-rank layers hold their matrices only."""
    how = ["--lora", "2", "--dropout", "0.2"]
    assert main(words(folder, chats, tmp_path / "whole", "--steps", "6", *how)) == 0
    plain = run_log.RunLog.step

    def step(self: Any, number: int, *rest: Any) -> None:
        plain(self, number, *rest)
        if number == 3:
            os.kill(os.getpid(), signal.SIGTERM)
    monkeypatch.setattr(run_log.RunLog, "step", step)
    assert main(words(folder, chats, tmp_path / "cut", "--steps", "6", *how)) == 128 + signal.SIGTERM
    monkeypatch.undo()
    saved = genesis.load(tmp_path / "cut" / "checkpoints" / "step-00000003" / "model.safetensors")["state"]
    assert all("lora" in name for name in saved)
    assert main(words(folder, chats, tmp_path / "cut", "--steps", "6", *how)) == 0
    files = [(tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert files[0] == files[1]
    assert [r["loss"] for r in rows(tmp_path / "whole")] == [r["loss"] for r in rows(tmp_path / "cut")]


def test_examples_that_were_edited_are_another_run(folder: Path, chats: str, tmp_path: Path,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    """Else a run goes on at a row's number in other rows."""
    mine, moved = (str(shutil.copy(chats, tmp_path / name)) for name in ("mine.jsonl", "moved.jsonl"))
    assert main(words(folder, mine, tmp_path / "out", "--steps", "2")) == 0
    assert main(words(folder, moved, tmp_path / "out", "--steps", "3")) == 0
    assert "going on behind step 2 of 3" in capsys.readouterr().out
    with open(mine, "a") as file:
        file.write('\n{"text": "one more"}\n')
    assert main(words(folder, mine, tmp_path / "out", "--steps", "4")) == 2
    assert "(examples has other content than it had): give another 'out'" in capsys.readouterr().err


def test_a_model_is_not_written_over(chats: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run's folder has a config.json, too."""
    model = write_folder(tmp_path / "model")
    before = {path.name: path.read_bytes() for path in model.iterdir()}
    assert main(words(model, chats, model)) == 2
    assert "perhaps of a model: give another 'out'" in capsys.readouterr().err
    assert {path.name: path.read_bytes() for path in model.iterdir()} == before


def test_few_examples_are_a_smaller_batch(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = tmp_path / "few.jsonl"
    few.write_text('{"text": "one"}\n{"prompt": "two", "completion": "three"}')
    how = ["finetune", str(folder), str(few), "-o", str(tmp_path / "out"), "--device", "cpu", "--context", "128"]
    assert main([*how, "--steps", "1"]) == 0
    assert "a batch has 1 rows" in capsys.readouterr().out


def test_what_cannot_be_learnt(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.jsonl"
    for text, message in (('{"say": 1}', "line 1: an example has"), ("", "has no examples"),
                          ('{"text": "one"}', "a step takes 2 × 1: make the batch smaller")):
        bad.write_text(text)
        assert main(words(folder, str(bad), tmp_path / "out")) == 2
        assert message in capsys.readouterr().err
    assert main(words(folder, str(tmp_path / "none.jsonl"), tmp_path / "out")) == 2
    assert main(words(tmp_path / "none", str(bad), tmp_path / "out")) == 2
    assert train.is_due(5, 0, True) is False


@pytest.mark.parametrize(("how", "message"), [
    (["--steps", "0"], "steps = 0 is out of range"), (["--epochs", "0"], "--epochs 0.0 is no number of passes"),
    (["--epochs", "nan"], "is no number of passes"), (["--epochs", "inf"], "is no number of passes"),
    (["--device", "tpu"], "invalid device 'tpu'"), (["--evaluate-every", "5"], "needs --validation"),
    (["--dropout", "0.1"], "give --lora RANK"), (["--alpha", "8"], "give --lora RANK")])
def test_numbers_that_are_no_run(how: list[str], message: str, folder: Path, chats: str, tmp_path: Path,
                                 capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finetune", str(folder), chats, "-o", str(tmp_path / "out"), "--context", "128", *how]) == 2
    assert message in capsys.readouterr().err
