"""The first token of `genesis generate` on a folder of the 0.6B shape, from the process's start, and the host's memory.

    python benchmarks/first_token.py --out
    python benchmarks/first_token.py --device cpu --tiny          # tries the script anywhere

The folder holds random weights and a tokenizer of as many words, so every token shows as text. The first run may
compile; the others have its plans and kernels on the disk, and the files in memory. Time is from the start of the
process to the first byte of the answer. Memory is the most that was resident, the mapped shard counted; the bar is for
what is beyond it. CUDA's own libraries and context are part of it: `--bare` says how much a process has that only
fills a tensor.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import record
from decode import SHAPES

BARS = {"seconds": 3.0, "beyond_shard_gb": 1.0}
PROMPT = " ".join(f"w{i}" for i in range(3, 131))
"""128 tokens."""

BARE = "import genesis; genesis.ones(4, device='{}').sum().item()"


def write_folder(folder: Path, fields: dict[str, Any], device: str) -> int:
    """A model with random weights and its tokenizer; returns the bytes of the weights' file."""
    import genesis
    from genesis.models.qwen3 import Qwen3Config, Qwen3ForCausalLM
    genesis.manual_seed(0)
    genesis.set_default_device(device)
    model = Qwen3ForCausalLM(Qwen3Config(**fields, max_position_embeddings=8192)).to(genesis.bfloat16)
    model.save_pretrained(folder)
    words = {f"w{i}": i for i in range(fields["vocab_size"])}
    tokens = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
              "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
              "model": {"type": "WordLevel", "vocab": words, "unk_token": "w0"}}
    (folder / "tokenizer.json").write_text(json.dumps(tokens), encoding="utf-8")
    return (folder / "model.safetensors").stat().st_size


def peak(pid: int) -> int:
    """Bytes that a process has had resident at most."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


def run(command: list[str]) -> tuple[float, float, int]:
    """(seconds to the first byte, seconds in all, most bytes resident)."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE)
    assert process.stdout is not None
    os.read(process.stdout.fileno(), 1)
    first, most = time.perf_counter() - start, peak(process.pid)
    while os.read(process.stdout.fileno(), 1 << 16):
        most = max(most, peak(process.pid))
    if process.wait():
        raise RuntimeError(f"exit {process.returncode}")
    return first, time.perf_counter() - start, most


def main() -> None:
    """Make the folder, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--runs", type=int, default=4)
    record.add_out(parser)
    args = parser.parse_args()
    tiny = {"vocab_size": 300, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
            "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": True}
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        shard = write_folder(folder, tiny if args.tiny else SHAPES["0.6B"], args.device)
        for number in range(args.runs):
            first, whole, most = run(["-m", "genesis", "generate", str(folder), "--prompt", PROMPT, "--max-tokens",
                                      "16", "--device", args.device, "--no-verbose"])
            rows.append({"first_s": first, "whole_s": whole, "peak": most, "beyond_shard": most - shard})
            print(f"run {number}: first token {first:.2f} s, 16 tokens {whole:.2f} s, {most / 1e9:.2f} GB resident, "
                  f"{(most - shard) / 1e9:.2f} beyond the shard of {shard / 1e9:.2f}", flush=True)
        *_, bare = run(["-c", f"{BARE.format(args.device)}; print(1, flush=True); import time; time.sleep(0.2)"])
    best = min(row["first_s"] for row in rows[1:])
    print(f"first token, warm: {best:.2f} s (bar {BARS['seconds']}); a process that fills a tensor has "
          f"{bare / 1e9:.2f} GB")
    if args.out:
        record.write(args.out, "first_token", bars=BARS, shard=shard, bare=bare, runs=rows)


if __name__ == "__main__":
    main()
