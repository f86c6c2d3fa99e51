"""`genesis train` on GPT-2 124M: against the bare step, and killed in the middle and resumed, bit by bit.

    python benchmarks/train_gpt2.py --out
    python benchmarks/train_gpt2.py --device cpu --tiny       # tries the script anywhere
    python benchmarks/train_gpt2.py --idle 32                 # no GPU: what the host does to a step that takes 32 ms

Three runs of `--steps` steps on tokens with some structure: one that nothing stops; one that gets SIGKILL in the
middle; and the same command again. The rows of the last two runs' metrics.jsonl are compared with the first one's, but
for the clock's fields. Tokens a second are the first run's median between two log lines behind its first quarter. The
bare step's are the same of a loop of ten lines: the same model, optimizer and tokens, as many steps, a loss read
where the run logs one. A GPU at its limit of power is slower when weights are trained than at first. The bar: 0.98 of
the bare step.

With `--idle` one run and the bare step go to a GPU that does nothing for so many milliseconds (`idle_gpu.py`): the rest
of a step is what the loop, its log and the writer of its checkpoints keep the GPU waiting.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import record

import genesis
import genesis.nn.functional as F
from genesis.models import AutoModelForCausalLM, config_for

CLOCK = frozenset({"tokens_per_s", "mfu", "memory", "elapsed"})
"""Fields of a row that no two runs share."""

LOG_EVERY = 20
"""Steps between two log lines."""


def write_data(folder: Path, vocabulary: int, tokens: int) -> None:
    """A folder of tokens as `genesis data` writes it: each is a function of the one before, or drawn."""
    rng = np.random.default_rng(0)
    follow, drawn = rng.integers(0, vocabulary, vocabulary), rng.integers(0, 512, tokens)
    fresh, found = rng.random(tokens) < 0.2, np.empty(tokens, np.uint16)
    found[0] = 0
    for i in range(1, tokens):
        found[i] = drawn[i] if fresh[i] else follow[found[i - 1]] % 512
    folder.mkdir()
    found.tofile(folder / "00000.tokens.bin")
    np.array([tokens], np.uint64).tofile(folder / "00000.documents.bin")
    index = {"format": "genesis-tokens-1", "dtype": "uint16", "vocab_size": vocabulary,
             "shards": [{"tokens": tokens, "documents": 1}]}
    (folder / "tokens.json").write_text(json.dumps(index), encoding="utf-8")


def sizes(tiny: bool) -> dict[str, int]:
    """Fields of GPT-2's config."""
    if tiny:
        return {"vocab_size": 512, "n_positions": 16, "n_embd": 16, "n_layer": 1, "n_head": 2}
    return {"vocab_size": 50304, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}


def write_config(folder: Path, args: argparse.Namespace, out: str) -> Path:
    """A run's TOML file."""
    model = "\n".join(f"{name} = {value}" for name, value in sizes(args.tiny).items())
    path = folder / f"{out}.toml"
    path.write_text(f'''out = "{folder / out}"
steps = {args.steps}
batch = {args.batch}
device = "{args.device}"
[data]
train = "{folder / "data"}"
context = {sizes(args.tiny)["n_positions"]}
[model]
family = "gpt2"
resid_pdrop = 0.0
embd_pdrop = 0.0
attn_pdrop = 0.0
{model}
[checkpoints]
every = {args.steps * 2 // 5}
[log]
every = {LOG_EVERY}
''', encoding="utf-8")
    return path


def lines_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run that tell of a step."""
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [row for row in map(json.loads, lines) if "loss" in row]


def rows_of(folder: Path) -> dict[int, dict[str, Any]]:
    """The rows of a run by step, without the clock's fields; of a step that was done twice the last."""
    return {row["step"]: {k: v for k, v in row.items() if k not in CLOCK} for row in lines_of(folder)}


def speeds_of(folder: Path) -> dict[int, float]:
    """Tokens a second between two log lines, by the step of the second one."""
    return {row["step"]: row["tokens_per_s"] for row in lines_of(folder) if row["step"] % LOG_EVERY == 0}


def told_speeds(speeds: dict[int, float], tokens: int) -> str:
    """Milliseconds a step between log lines, as text."""
    return "ms a step up to step " + ", ".join(f"{at}: {tokens / x * 1e3:.1f}" for at, x in speeds.items())


def train(config: Path, kill_behind: int = 0) -> int:
    """Run `genesis train`; with `kill_behind`, until so many rows are written. Returns the exit status."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "genesis", "train", str(config)], stdout=subprocess.DEVNULL)
    metrics = config.with_suffix("") / "metrics.jsonl"
    while kill_behind and process.poll() is None:
        if metrics.exists() and metrics.read_bytes().count(b"\n") >= kill_behind:
            os.kill(process.pid, signal.SIGKILL)
        time.sleep(0.01)
    status, rows = process.wait(), metrics.read_bytes().count(b"\n")
    print(f"{config.stem}: exit {status} after {time.perf_counter() - began:.1f} s, {rows} rows", flush=True)
    return status


def bare_speeds(args: argparse.Namespace, data: Path) -> list[float]:
    """Tokens a second of the same step without a run around it, for every `LOG_EVERY` steps."""
    genesis.manual_seed(0)
    fields = sizes(args.tiny)
    config = config_for("gpt2", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **fields)
    model = AutoModelForCausalLM.from_config(config).to(args.device)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    parameters = list(model.parameters())
    tokens, length = np.fromfile(data / "00000.tokens.bin", np.uint16), fields["n_positions"]
    rows = np.lib.stride_tricks.sliding_window_view(tokens, length + 1)[::length].astype(np.int64)
    ids = genesis.tensor(rows[:len(rows) // args.batch * args.batch].reshape(-1, args.batch, length + 1),
                         device=args.device)
    batches = [(each[:, :-1].clone(), each[:, 1:].clone()) for each in ids]
    genesis.eval(*(x for batch in batches for x in batch))

    @genesis.compile
    def step(x: Any, y: Any) -> Any:
        with genesis.autocast(args.device, dtype=genesis.bfloat16):
            loss = F.cross_entropy(model(x).logits.flatten(0, 1), y.flatten())
        loss.backward()
        genesis.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss
    found = []
    for window in range(args.steps // LOG_EVERY):
        start = time.perf_counter()
        for i in range(LOG_EVERY):
            loss = step(*batches[(window * LOG_EVERY + i) % len(batches)])
        loss.item()
        found.append(args.batch * length * LOG_EVERY / (time.perf_counter() - start))
    return found


def typical(speeds: list[float]) -> float:
    """The median behind the first quarter."""
    return median(speeds[len(speeds) // 4:])


def idle(args: argparse.Namespace) -> None:
    """A run and the bare step on a GPU that takes its time and does nothing."""
    from idle_gpu import idle_gpu

    from genesis.cli import train as command
    from genesis.cli.run_config import read_config
    tokens = args.batch * sizes(args.tiny)["n_positions"]
    with idle_gpu(args.idle / 1e3) as driver, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder / "data", sizes(args.tiny)["vocab_size"], 50_000 if args.tiny else 1_000_000)
        command.fit(command.prepared(read_config(write_config(folder, args, "whole"))))
        given, speeds = dict(driver.calls), speeds_of(folder / "whole")
        bare = typical(bare_speeds(args, folder / "data"))
    speed = typical([*speeds.values()])
    print(told_speeds(speeds, tokens))
    print(f"given to the GPU in {args.steps} steps: {given}")
    print(f"{tokens / speed * 1e3:.2f} ms a step, {speed / bare:.3f} of the bare step's {tokens / bare * 1e3:.2f} ms")


def main() -> None:
    """Run all and print what came out."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--idle", type=float, metavar="MS", help="no GPU: milliseconds that one takes for a step")
    record.add_out(parser)
    args = parser.parse_args()
    if args.idle is not None:
        idle(args)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder / "data", sizes(args.tiny)["vocab_size"], 50_000 if args.tiny else 1_000_000)
        start = time.perf_counter()
        status = train(write_config(folder, args, "whole"))
        seconds = time.perf_counter() - start
        killed = train(write_config(folder, args, "killed"), kill_behind=args.steps // 2)
        resumed = train(folder / "killed.toml")
        whole, again = rows_of(folder / "whole"), rows_of(folder / "killed")
        different = [step for step in range(1, args.steps + 1) if whole.get(step) != again.get(step)]
        speeds, bare_each = speeds_of(folder / "whole"), bare_speeds(args, folder / "data")
    speed, bare = typical([*speeds.values()]), typical(bare_each)
    print(told_speeds(speeds, args.batch * sizes(args.tiny)["n_positions"]))
    print(f"exit {status}, {killed} (killed), {resumed} (resumed); {len(different)} of {args.steps} steps differ "
          f"{different[:5]}; the whole run took {seconds:.1f} s")
    print(f"{speed:.0f} tokens/s, {speed / bare:.3f} of the bare step's {bare:.0f} (bar 0.98); last loss "
          f"{whole[args.steps]['loss']:.4f}")
    if args.out:
        record.write(args.out, "train_gpt2", steps=args.steps, different=different, exits=[status, killed, resumed],
                     tokens_per_second=speed, bare=bare, speeds=speeds, bare_speeds=bare_each,
                     losses=[whole[i]["loss"] for i in sorted(whole)])


if __name__ == "__main__":
    main()
