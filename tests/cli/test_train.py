"""`genesis train`: a run that is stopped or killed goes on bit by bit as one that was not; the rest of the command."""

from __future__ import annotations

import ast
import errno
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import genesis
from genesis.cli import run_config, run_folder, run_log, train
from genesis.cli.main import main
from genesis.cli.run_config import TrainConfig, from_table, read_config
from genesis.models import AutoModelForCausalLM, LoRA
from genesis.models.data import write_tokens
from genesis.models.text import byte_tokenizer, write_byte_tokenizer

pytest.importorskip("tokenizers")

ROOT = Path(train.__file__).parents[2]
MODEL = {"family": "llama", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
         "num_attention_heads": 2, "attention_dropout": 0.1}


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("data") / "tokens"
    write_byte_tokenizer(folder)
    write_tokens([f"{n} squared is {n * n}; " * (n % 7 + 1) for n in range(20)], byte_tokenizer(), folder)
    return str(folder)


def written(folder: Path, tokens: str, name: str = "run", **changes: Any) -> tuple[str, Path]:
    """A configuration's file, and the run's folder."""
    out = folder / name
    table: dict[str, Any] = {
        "out": str(out), "steps": 14, "batch": 2, "accumulate": 2, "device": "cpu",
        "data": {"train": tokens, "validation": tokens, "context": 12, "documents": True}, "model": MODEL,
        "optimizer": {"lr": 1e-2}, "schedule": {"warmup": 3}, "evaluation": {"every": 5, "batches": 2},
        "samples": {"every": 7, "tokens": 4, "prompt": "2"}, "checkpoints": {"every": 4}, "log": {"every": 3}}
    table.update(changes)
    lines = [f"{k} = {json.dumps(v)}" for k, v in table.items() if not isinstance(v, dict)]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += [f"[{key}]", *(f"{k} = {json.dumps(v)}" for k, v in value.items())]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines))
    return str(path), out


def rows(out: Path) -> list[dict[str, Any]]:
    """What does not depend on the clock."""
    found = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k not in ("tokens_per_s", "elapsed", "memory", "mfu")} for row in found]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, tokens: str) -> Path:
    """An uninterrupted run: of a copy of the file, which makes the same of it, in a process of its own, as are those
    that it is compared with."""
    folder = tmp_path_factory.mktemp("whole")
    path, out = written(folder, tokens)
    shutil.copyfile(train.__file__, folder / "mine.py")
    subprocess.run([sys.executable, str(folder / "mine.py"), path], check=True, capture_output=True,
                   env={**os.environ, "PYTHONPATH": str(ROOT)})
    return out


SIGNALLED = """
import json, os, sys
from genesis.cli import main, run_log
plain, signals = run_log.RunLog.step, json.loads(sys.argv[2])
def step(self, number, *rest):
    plain(self, number, *rest)
    if signals and signals[0][0] == number:
        os.kill(os.getpid(), signals.pop(0)[1])
run_log.RunLog.step = step
while (status := main.main(["train", sys.argv[1]])) and signals:
    print("status", status, flush=True)
sys.exit(status)
"""


def signalled(path: str, *signals: tuple[int, int]) -> subprocess.CompletedProcess[str]:
    """A run that signals come to, each in the middle of a step; it is begun again as long as there are more."""
    return subprocess.run([sys.executable, "-c", SIGNALLED, path, json.dumps(signals)], cwd=ROOT, text=True,
                          capture_output=True, check=False)


def test_the_log_has_every_step(whole: Path) -> None:
    found = rows(whole)
    steps = [row for row in found if "loss" in row]
    assert [row["step"] for row in steps] == list(range(1, 15))
    assert [row["step"] for row in found if "validation_loss" in row] == [5, 10, 14]
    assert [row["step"] for row in found if "sample" in row] == [7, 14]
    assert steps[-1]["loss"] < steps[0]["loss"] - 0.5
    assert [p.name for p in sorted((whole / "checkpoints").iterdir())] == [f"step-{n:08d}" for n in (8, 12, 14)]


def test_a_stopped_and_killed_run_goes_on_bit_by_bit(tmp_path: Path, tokens: str, whole: Path) -> None:
    """SIGTERM saves at the end of its step; SIGKILL leaves the newest checkpoint, and rows of steps behind it."""
    path, out = written(tmp_path, tokens)
    first = signalled(path, (6, signal.SIGTERM), (10, signal.SIGKILL))
    assert first.returncode == -signal.SIGKILL and f"status {128 + signal.SIGTERM}" in first.stdout, first.stderr
    assert "stopped behind step 6 of 14: the same command goes on" in first.stdout
    assert "going on behind step 6 of 14" in first.stdout and not (out / "model").exists()
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 11, "loss": 1.0}\n{"step": 12, "lo')
    assert signalled(path).returncode == 0
    assert rows(out) == rows(whole)
    model = "model/model.safetensors"
    assert (out / model).read_bytes() == (whole / model).read_bytes()


@pytest.mark.parametrize("changes", [{"accumulate": 1}, {"accumulate": 2},
                                     {"optimizer": {"name": "muon"}, "precision": "bfloat16"}], ids=str)
def test_each_step_is_a_replay_of_the_first(changes: dict[str, Any], tmp_path: Path, tokens: str,
                                            compiled: list[Any]) -> None:
    """Whatever comes between: another learning rate, an evaluation, a sample, a checkpoint."""
    path, _ = written(tmp_path, tokens, **changes)
    assert main(["train", path]) == 0
    step, *others = [f for f in compiled if f.__name__ == "one_step"]
    assert not others and (genesis.explain(step).captures, genesis.explain(step).hits) == (1, 13)


def test_the_second_signal_interrupts() -> None:
    before = signal.getsignal(signal.SIGINT)
    with train.StopFlag() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.signal == signal.SIGTERM
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_run_of_another_configuration_is_not_gone_on_with(tmp_path: Path, tokens: str, whole: Path,
                                                            capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(whole, tmp_path / "run")
    path, _ = written(tmp_path, tokens, optimizer={"lr": 0.5})
    assert main(["train", path]) == 2
    assert "a run of another configuration (optimizer.lr was 0.01, is 0.5)" in capsys.readouterr().err
    path, _ = written(tmp_path, tokens, steps=15)
    assert main(["train", path]) == 0
    assert "step 15/15" in capsys.readouterr().out


def test_data_that_was_moved_is_gone_on_with_and_other_data_is_not(
        tmp_path: Path, tokens: str, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both lie in the middle of a pass, of which rows were counted."""
    shutil.copytree(whole, tmp_path / "run")
    moved = str(shutil.copytree(tokens, tmp_path / "elsewhere"))
    path, out = written(tmp_path, moved, steps=15)
    assert main(["train", path]) == 0
    assert "step 15/15" in capsys.readouterr().out
    binary = tmp_path / "elsewhere" / "00000.tokens.bin"
    binary.write_bytes(binary.read_bytes()[2:] + binary.read_bytes()[:2])
    path, out = written(tmp_path, moved, steps=16)
    assert main(["train", path]) == 2
    assert "another configuration (data.train has other content than it had)" in capsys.readouterr().err
    shutil.rmtree(out / "checkpoints")
    assert main(["train", path]) == 0, "a run that begins anew may have other data"


def test_a_run_that_did_not_note_what_it_read(tmp_path: Path, tokens: str, whole: Path,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    """Of an earlier version: paths are compared."""
    shutil.copytree(whole, tmp_path / "run")
    noted = json.loads((tmp_path / "run" / "config.json").read_text())
    assert set(noted.pop("inputs")) == {"data.train", "data.validation"}
    (tmp_path / "run" / "config.json").write_text(json.dumps(noted))
    moved = str(shutil.copytree(tokens, tmp_path / "elsewhere"))
    path, _ = written(tmp_path, moved, steps=15)
    assert main(["train", path]) == 2
    assert "data.train was" in capsys.readouterr().err
    path, _ = written(tmp_path, tokens, steps=15)
    assert main(["train", path]) == 0


def test_two_programs_in_one_folder(tmp_path: Path, tokens: str, capsys: pytest.CaptureFixture[str],
                                    monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one waits for one that is ending, and leaves a running one alone."""
    monkeypatch.setattr(run_folder, "PATIENCE", 0.3)
    path, out = written(tmp_path, tokens, steps=2)
    with run_folder.alone_in(out):
        assert main(["train", path]) == 2
        assert f"another program is training in {out}" in capsys.readouterr().err and list(out.iterdir()) == []
    monkeypatch.setattr(run_folder, "PATIENCE", 60)
    ending = threading.Event()

    def other() -> None:
        with run_folder.alone_in(out):
            ending.set()
            time.sleep(0.5)
    thread = threading.Thread(target=other)
    thread.start()
    ending.wait()
    assert main(["train", path]) == 0
    thread.join()


def test_a_folder_on_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    monkeypatch.setattr(fcntl, "flock", refused)
    with run_folder.alone_in(tmp_path / "run"):
        assert (tmp_path / "run").is_dir()


@pytest.mark.parametrize("end", ["rename", "write"])
def test_a_kill_while_the_configuration_is_written_leaves_one(end: str, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written each time that the run goes on."""
    config = from_table(TrainConfig, {"out": str(tmp_path), "steps": 1, "model": {},
                                      "data": {"train": "x", "context": 8}})
    run_config.check_same(config, tmp_path, False)

    def killed(*_: Any) -> Any:
        raise KeyboardInterrupt
    with monkeypatch.context() as patch:
        patch.setattr(os, {"rename": "replace", "write": "fsync"}[end], killed)
        with pytest.raises(KeyboardInterrupt):
            run_config.check_same(replace(config, steps=2), tmp_path, True)
    assert json.loads((tmp_path / "config.json").read_text())["steps"] == 1
    run_config.check_same(replace(config, steps=2), tmp_path, True)


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_a_damaged_configuration_is_named(text: str, tmp_path: Path) -> None:
    config = from_table(TrainConfig, {"out": str(tmp_path), "steps": 1, "model": {},
                                      "data": {"train": "x", "context": 8}})
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ValueError, match=r"config\.json is (damaged|no JSON object)"):
        run_config.check_same(config, tmp_path, True)


def test_the_result_loads_in_transformers(whole: Path) -> None:
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    ids = [[50, 32, 115, 113]]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(whole / "model")
    ours = AutoModelForCausalLM.from_pretrained(whole / "model")
    with torch.no_grad():
        wanted = theirs(torch.tensor(ids)).logits
    assert torch.allclose(wanted, torch.tensor(ours(genesis.tensor(ids)).logits.tolist()), atol=1e-5)
    assert transformers.AutoTokenizer.from_pretrained(whole / "model").encode("2 sq") == ids[0]
    assert (theirs.config.bos_token_id, theirs.config.eos_token_id) == (None, 256), "it has defaults of its own"


def losses(path: str, out: Path) -> list[float]:
    assert main(["train", path]) == 0
    return [row["loss"] for row in rows(out) if "loss" in row]


QUIET = {"evaluation": {}, "samples": {}, "steps": 4, "model": {**MODEL, "attention_dropout": 0.0}}


@pytest.fixture(scope="module")
def plain_losses(tmp_path_factory: pytest.TempPathFactory, tokens: str) -> list[float]:
    return losses(*written(tmp_path_factory.mktemp("plain"), tokens, **QUIET))


@pytest.mark.parametrize("changes", [
    {"batch": 4, "accumulate": 1}, {"compile": False}, {"workers": 1}, {"log": {"every": 1}},
    {"precision": "bfloat16"}, {"precision": "float16"}], ids=str)
def test_what_changes_only_how_a_step_is_computed(tmp_path: Path, tokens: str, changes: dict[str, Any],
                                                  plain_losses: list[float]) -> None:
    """Accumulated gradients are those of one batch, and so on; low precisions are within their rounding."""
    found = losses(*written(tmp_path, tokens, **{**QUIET, **changes}))
    rel = 1e-5 if "precision" not in changes else 2e-2
    assert found == pytest.approx(plain_losses, rel=rel)


def test_on_a_terminal_there_is_a_bar(tmp_path: Path, tokens: str, monkeypatch: pytest.MonkeyPatch,
                                      capsys: pytest.CaptureFixture[str]) -> None:
    """And the lines stand above it."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert len(losses(*written(tmp_path, tokens, **QUIET))) == 4
    shown = capsys.readouterr().out
    assert "step 3/4  loss" in shown and "4 steps are done" in shown


def test_muon_takes_the_matrices_of_the_blocks(tmp_path: Path, tokens: str) -> None:
    path, out = written(tmp_path, tokens, **{**QUIET, "optimizer": {"name": "muon", "lr": 1e-2}})
    config = read_config(Path(path))
    model = train.build_model(config.model, 257, "cpu")
    found = train.build_optimizers(model, config.optimizer)
    inside = {id(p) for p in found["matrix_optimizer"].param_groups[0]["params"]}
    names = {name for name, p in model.named_parameters() if id(p) in inside}
    assert names == {name for name, p in model.named_parameters() if "layers" in name and p.ndim == 2}
    decayed, plain = found["optimizer"].param_groups
    assert len(decayed["params"]) == 2 and plain["weight_decay"] == 0 and len(plain["params"]) == 3
    values = losses(path, out)
    assert values[-1] < values[0]


def test_a_run_says_that_it_leaves_the_balance_of_experts_out(
        tmp_path: Path, tokens: str, capsys: pytest.CaptureFixture[str]) -> None:
    small = {"family": "qwen3_moe", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "head_dim": 8,
             "num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 2, "num_experts_per_tok": 1,
             "moe_intermediate_size": 8}
    for balanced in (False, True):
        path, _ = written(tmp_path, tokens, f"run{balanced}", steps=1, samples={"every": 0},
                          evaluation={"every": 0}, model={**small, "output_router_logits": balanced})
        assert main(["train", path]) == 0
        assert ("not the experts' balance" in capsys.readouterr().err) == balanced


def test_the_work_of_a_step(tokens: str) -> None:
    """Six operations for each weight and token, but for tables that are looked up in and experts that are passed by."""
    config = from_table(TrainConfig, {"out": "x", "steps": 1, "batch": 2, "accumulate": 3, "device": "cpu",
                                      "data": {"train": tokens, "context": 12}, "model": {}})
    sizes = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
             "num_key_value_heads": 2, "head_dim": 4}
    attention, head = 4 * 8 * 8, 10 * 8
    dense = train.build_model({"family": "qwen3", **sizes}, 10, "cpu")
    work = run_log.work_of(dense, 12, config)
    assert (work.tokens, work.peak_flops) == (72, 0.0)
    assert work.flops == 72 * (6 * (attention + head + 3 * 8 * 16) + 6 * 8 * 12)
    experts = train.build_model({"family": "qwen3_moe", **sizes, "num_experts": 5, "num_experts_per_tok": 2,
                                 "moe_intermediate_size": 6}, 10, "cpu")
    router = 5 * 8
    assert run_log.work_of(experts, 12, config).flops == 72 * (
        6 * (attention + head + router + 2 * 3 * 8 * 6) + 6 * 8 * 12)
    LoRA(dense, rank=1)
    low = sum(p.numel() for p in dense.parameters() if p.requires_grad)
    assert run_log.work_of(dense, 12, config).flops == 72 * (
        4 * (attention + head + 3 * 8 * 16 + low) + 2 * low + 6 * 8 * 12)


@pytest.mark.parametrize(("table", "message"), [
    ({"stepz": 1}, "the configuration has no field 'stepz'; did you mean 'steps'?"),
    ({"optimizer": {"learning": 1}}, r"\[optimizer\] has no field 'learning'"),
    ({"data": {"train": "x"}}, r"\[data\] needs 'context'"),
    ({"steps": "many"}, "steps = 'many' is not a whole number"),
    ({"steps": True}, "steps = True is not a whole number"),
    ({"out": ""}, "out = '' is no folder"), ({"steps": 0}, "steps = 0 is out of range: it is at least 1"),
    ({"optimizer": {"betas": [0.9]}}, r"optimizer.betas = \[0.9\] is no list of 2 numbers"),
    ({"optimizer": {"name": "adam"}}, "optimizer.name = 'adam' is none of 'adamw', 'muon'"),
    ({"schedule": 5}, r"schedule is a table: \[schedule\]"), ({"clip": float("nan")}, "clip = nan is out of range"),
    ({"schedule": {"final": float("nan")}}, "schedule.final = nan is out of range"),
    ({"samples": {"temperature": -1}}, "samples.temperature = -1.0 is out of range"),
    ({"evaluation": {"every": 2}}, "evaluation.every = 2 needs data.validation")])
def test_bad_fields_are_named(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_table(TrainConfig, {"out": "x", "steps": 1, "data": {"train": "x", "context": 8}, "model": {}, **table})


@pytest.mark.parametrize(("changes", "message"), [
    ({"model": {**MODEL, "hiden_size": 8}}, "LlamaConfig does not know the field hiden_size.*did you mean hidden_size"),
    ({"model": {"family": "lama"}}, "no family 'lama' of language models; did you mean 'llama'"),
    ({"model": {"family": 3}}, "model.family = 3 is no text"),
    ({"model": {"folder": 3}}, "model.folder = 3 is no text"),
    ({"model": {"folder": "x", "dtype": "bfloat16"}}, "takes no 'dtype' beside 'folder': weights that are learnt"),
    ({"model": {}}, "needs 'family'"), ({"model": {**MODEL, "vocab_size": 99}}, "a vocabulary of 99"),
    ({"model": {**MODEL, "max_position_embeddings": 8}}, "longer than the model's context, 8"),
    ({"samples": {"every": 1, "prompt": ""}}, "samples.prompt = '' has no token to continue"),
    ({"samples": {"every": 1}, "model": {"family": "gpt2", "n_embd": 8, "n_head": 1, "n_layer": 1, "n_positions": 64}},
     "samples.tokens = 64 and a prompt are more than the model's 64 positions"),
    ({"batch": 1000}, "rows, a step takes 1000 × 2")])
def test_a_model_that_does_not_fit_is_refused(tmp_path: Path, tokens: str, changes: dict[str, Any], message: str,
                                              capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", written(tmp_path, tokens, **changes)[0]]) == 2
    assert re.search(message, capsys.readouterr().err)


def test_missing_and_malformed_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(tmp_path / "no.toml")]) == 2
    (tmp_path / "bad.toml").write_text("steps = ")
    assert main(["train", str(tmp_path / "bad.toml")]) == 2
    error = capsys.readouterr().err
    assert "there is no file" in error and "bad.toml is no TOML" in error


def test_the_loop_uses_public_names_only() -> None:
    tree = ast.parse(Path(train.__file__).read_text())
    rooms = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    ours = {name for name in rooms if name.startswith("genesis")}
    assert ours <= {"genesis", "genesis.checkpointing", "genesis.models", "genesis.models.data", "genesis.models.text",
                    "genesis.nn.utils", "genesis.utils.data", "genesis.cli", "genesis.cli.run_config",
                    "genesis.cli.run_folder", "genesis.cli.run_inputs", "genesis.cli.run_log"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and node.attr != "__file__":
            assert isinstance(node.value, ast.Name) and node.value.id == "self", ast.unparse(node)


def test_tensorboard_gets_the_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Through the package's own writer, of which this stands in the place."""
    got: list[Any] = []

    def module(name: str, **names: Any) -> None:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        vars(sys.modules[name]).update(names)

    def record(**fields: Any) -> Any:
        return types.SimpleNamespace(**fields)

    class Writer:
        def __init__(self, folder: str):
            self.add_event, self.close = got.append, lambda: got.append("closed")
    for package in ("tensorboard", "tensorboard.compat", "tensorboard.compat.proto", "tensorboard.summary",
                    "tensorboard.summary.writer"):
        module(package)
    summary = type("Summary", (types.SimpleNamespace,), {"Value": staticmethod(record)})
    session = type("SessionLog", (types.SimpleNamespace,), {"START": 1})
    module("tensorboard.compat.proto.event_pb2", Event=record, SessionLog=session)
    module("tensorboard.compat.proto.summary_pb2", Summary=summary)
    module("tensorboard.summary.writer.event_file_writer", EventFileWriter=Writer)
    write = run_log.events(tmp_path, 5)
    assert write is not None
    write(6, {"loss": 2.5})
    write(None, {})
    assert (got[0].step, got[0].session_log.status) == (6, 1)
    assert (got[1].step, got[1].summary.value[0].tag, got[1].summary.value[0].simple_value) == (6, "loss", 2.5)
    assert got[2:] == ["closed"]
