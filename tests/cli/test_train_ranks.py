"""`genesis train --mesh`: ranks that share the rows of a batch learn what one process does, and go on after a fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import genesis
from genesis.cli import train
from genesis.cli.main import main
from genesis.cli.ranks import Ranks, sizes_of
from genesis.models.data import write_tokens
from genesis.models.text import byte_tokenizer, write_byte_tokenizer
from tests.distributed.ranks import VARIABLE

pytest.importorskip("tokenizers")

ROOT = Path(train.__file__).parents[2]

DEVICE = "cuda" if os.environ.get(VARIABLE) == "cuda" else "cpu"


def written(folder: Path, name: str, batch: int = 4, steps: int = 6) -> Path:
    """A configuration's file, beside which its run goes."""
    data = folder / "tokens"
    if not data.exists():
        write_tokens([f"{n} squared is {n * n}; " * (n % 7 + 1) for n in range(20)], byte_tokenizer(), data)
        write_byte_tokenizer(data, end=False)
    lines = [f'out = "{folder / name}"', f"steps = {steps}", f"batch = {batch}", "accumulate = 2",
             f'device = "{DEVICE}"', 'precision = "float32"', "[data]", f'train = "{data}"',
             f'validation = "{data}"', "context = 12", "[model]", 'family = "gpt2"',
             "n_embd = 16", "n_layer = 1", "n_head = 2", "embd_pdrop = 0.1", "resid_pdrop = 0.1", "attn_pdrop = 0.1",
             "[evaluation]", "every = 2", "batches = 1", "[checkpoints]", "every = 2", "[log]", "every = 1",
             "[schedule]", 'decay = "constant"', "[samples]", "every = 6", "tokens = 4", "temperature = 0.0"]
    path = folder / f"{name}.toml"
    path.write_text("\n".join(lines))
    return path


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("RANK", "TORCHELASTIC"))}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=300,
                          env={**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **variables})


def numbers(out: Path, key: str) -> list[float]:
    rows = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [row[key] for row in rows if key in row]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of one process."""
    folder = tmp_path_factory.mktemp("alone")
    assert main(["train", str(written(folder, "alone"))]) == 0
    return folder / "alone"


def test_two_ranks_learn_what_one_process_does(alone: Path, tmp_path: Path) -> None:
    """With the same dropout; sums of float32 in another order."""
    shared = run("-m", "genesis", "train", str(written(tmp_path, "shared")), "--mesh", "dp=2")
    assert shared.returncode == 0, shared.stderr
    compared(tmp_path / "shared", alone)
    told = shared.stdout.splitlines()
    assert sum(line.startswith("step 1/6") for line in told) == 1 and told[-1].startswith("6 steps are done")


def test_meshes_that_no_run_can_have_are_refused(tmp_path: Path) -> None:
    for wrong in ("dp", "dp=0", "pp=2", "dp=2,dp=2", "fsdp=2,tp", "zero1=2,fsdp=2"):
        with pytest.raises(ValueError, match="--mesh"):
            sizes_of(wrong)
    done = run("-m", "genesis", "train", str(written(tmp_path, "odd", batch=3)), "--mesh", "dp=2")
    assert done.returncode != 0 and "cannot be shared out evenly over 2 ranks" in done.stderr


def compared(here: Path, alone: Path) -> None:
    """Losses, norms, the sample and the model's file of one process; with the same dropout, sums in another order."""
    for key in ("loss", "grad_norm", "validation_loss"):
        assert numbers(here, key) == pytest.approx(numbers(alone, key), rel=1e-4), key
    first, second = (genesis.load(folder / "model" / "model.safetensors") for folder in (here, alone))
    assert {name: x.shape for name, x in first.items()} == {name: x.shape for name, x in second.items()}
    assert (here / "model" / "config.json").read_text() == (alone / "model" / "config.json").read_text()


@pytest.mark.parametrize("meshes", [
    ["fsdp=2", ""], *(pytest.param(each, marks=pytest.mark.sweep) for each in (
        ["fsdp=2", "zero1=2", ""], ["zero1=2", "fsdp=2", ""])),
    pytest.param(["fsdp=2,tp=2", "fsdp=2"], marks=pytest.mark.sweep),
    pytest.param(["dp=2,tp=2", "dp=2,fsdp=2", ""], marks=pytest.mark.sweep),
    pytest.param(["zero1=2,tp=2", "dp=2,zero1=2", "dp=2"], marks=pytest.mark.sweep)])
def test_a_run_goes_on_with_another_mesh(meshes: list[str], alone: Path, tmp_path: Path,
                                         capsys: pytest.CaptureFixture[str]) -> None:
    """Each mesh trains two steps, the last one to the end; all write parts, and read those of others. Without a mesh
    the run is this process."""
    for number, mesh in enumerate(meshes, 1):
        config = written(tmp_path, "parts", steps=6 if number == len(meshes) else 2 * number)
        if mesh:
            done = run("-m", "genesis", "train", str(config), "--mesh", mesh)
            assert done.returncode == 0, done.stderr
            told = done.stdout
        else:
            assert main(["train", str(config)]) == 0
            told = capsys.readouterr().out
        assert number == 1 or f"going on behind step {2 * number - 2} of " in told
        newest = max((tmp_path / "parts" / "checkpoints").iterdir())
        assert (newest / "model.part-00001.safetensors").is_file() == ("fsdp" in mesh or "tp" in mesh)
        assert (newest / "optimizer.part-00001.safetensors").is_file() == (mesh not in ("", "dp=2"))
    compared(tmp_path / "parts", alone)


def test_an_optimizer_of_whole_matrices_is_refused() -> None:
    for mesh in ("fsdp=2", "zero1=2", "tp=2"):
        with pytest.raises(ValueError, match=r"optimizer\.name = 'muon' needs whole matrices"):
            Ranks(0, 2, sizes_of(mesh)).share_out(None, "muon")


KILLED = """
import os, signal, sys
from genesis.cli import main, run_log
def step(self, number, *rest):
    if number == 4 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
run_log.SilentLog.step = step
sys.exit(main.main(["train", sys.argv[1], "--mesh", "dp=2"]))
"""


@pytest.mark.sweep
def test_torchrun_restarts_a_run_that_goes_on_from_the_newest_checkpoint(tmp_path: Path) -> None:
    """Rank 1 is killed in step 4, the first time; the checkpoint behind step 2 is the newest."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    whole = run("-m", "genesis", "train", str(written(tmp_path, "whole")), "--mesh", "dp=2")
    assert whole.returncode == 0, whole.stderr
    done = run("-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1",
               "--standalone", str(script), str(written(tmp_path, "killed")), GENESIS_HEARTBEAT_TIMEOUT="20")
    assert done.returncode == 0, done.stderr
    assert "going on behind step 2 of 6" in done.stdout
    assert numbers(tmp_path / "killed", "loss") == numbers(tmp_path / "whole", "loss")
