"""`genesis train --mesh`: ranks that share the rows of a batch learn what one process does, and go on after a fault."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from genesis.cli import train
from genesis.cli.ranks import ranks_of
from genesis.models.data import write_tokens
from genesis.models.text import byte_tokenizer

pytest.importorskip("tokenizers")

ROOT = Path(train.__file__).parents[2]


def written(folder: Path, name: str, batch: int = 4) -> Path:
    """A configuration's file, beside which its run goes."""
    data = folder / "tokens"
    if not data.exists():
        write_tokens([f"{n} squared is {n * n}; " * (n % 7 + 1) for n in range(20)], byte_tokenizer(), data)
    lines = [f'out = "{folder / name}"', "steps = 6", f"batch = {batch}", "accumulate = 2", 'device = "cpu"',
             "[data]", f'train = "{data}"', f'validation = "{data}"', "context = 12", "[model]", 'family = "gpt2"',
             "n_embd = 16", "n_layer = 1", "n_head = 2", "embd_pdrop = 0.1", "resid_pdrop = 0.1", "attn_pdrop = 0.1",
             "[evaluation]", "every = 3", "batches = 1", "[checkpoints]", "every = 2", "[log]", "every = 1"]
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


def test_two_ranks_learn_what_one_process_does(tmp_path: Path) -> None:
    """With the same dropout; sums of float32 in another order."""
    alone = run("-m", "genesis", "train", str(written(tmp_path, "alone")))
    assert alone.returncode == 0, alone.stderr
    shared = run("-m", "genesis", "train", str(written(tmp_path, "shared")), "--mesh", "dp=2")
    assert shared.returncode == 0, shared.stderr
    for key in ("loss", "grad_norm", "validation_loss"):
        expected = numbers(tmp_path / "alone", key)
        assert numbers(tmp_path / "shared", key) == pytest.approx(expected, rel=1e-4), key
    told = shared.stdout.splitlines()
    assert sum(line.startswith("step 1/6") for line in told) == 1 and told[-1].startswith("6 steps are done")
    assert (tmp_path / "shared" / "model" / "config.json").is_file()


def test_meshes_that_no_run_can_have_are_refused(tmp_path: Path) -> None:
    for wrong in ("dp", "dp=0", "pp=2"):
        with pytest.raises(ValueError, match="--mesh"):
            ranks_of(wrong)
    done = run("-m", "genesis", "train", str(written(tmp_path, "odd", batch=3)), "--mesh", "dp=2")
    assert done.returncode != 0 and "cannot be shared out evenly over 2 ranks" in done.stderr


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
