"""One training step of GPT-2 124M (batch 16 × 1024, bf16 compute) beside torch eager and torch.compile.

All three start from the same float32 weights and see the same token batches. Losses are compared over 20
steps before anything is timed. A time is the median over rounds of many steps without waiting in between, by
CUDA events, in milliseconds a step. Host time is the median time that the call of a step takes.

    python benchmarks/gpt2_step.py --out
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import record
from gpu_rounds import gpu_rounds, step_of

VOCAB, CONTEXT, LAYERS, HEADS, DIM = 50304, 1024, 12, 12, 768
LR, BETAS, DECAY = 3e-4, (0.9, 0.95), 0.1
ROUNDS = 3


def batches(count: int, batch: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Token windows with some structure: each token is a function of the one before, or random."""
    rng = np.random.default_rng(seed)
    follow = rng.integers(0, VOCAB, VOCAB)
    found = []
    for _ in range(count):
        tokens = np.empty((batch, CONTEXT + 1), np.int64)
        tokens[:, 0] = rng.integers(0, VOCAB, batch)
        for t in range(CONTEXT):
            fresh = rng.random(batch) < 0.2
            tokens[:, t + 1] = np.where(fresh, rng.integers(0, 512, batch), follow[tokens[:, t]] % 512)
        found.append((tokens[:, :-1].copy(), tokens[:, 1:].copy()))
    return found


def _rounds(cuda: Any, steps: int, step: Callable[[int], Any]) -> tuple[list[float], list[float], Any]:
    """Milliseconds of a step on the GPU for each round, seconds of the host for each step, and the last loss."""
    host: list[float] = []
    loss = None

    def timed(i: int) -> None:
        nonlocal loss
        start = time.perf_counter()
        loss = step(i)
        host.append(time.perf_counter() - start)
    return gpu_rounds(cuda, ROUNDS, steps, timed), host, loss


def run_genesis(args: argparse.Namespace) -> dict[str, Any]:
    """Losses and times of Genesis, in a process without torch."""
    import genesis
    from genesis.engine import last_plan
    from genesis.models import GPT, GPTConfig
    genesis.manual_seed(0)
    model = GPT(GPTConfig(VOCAB, CONTEXT, LAYERS, HEADS, DIM)).to("cuda")
    weights = np.load(args.weights)
    model.load_state_dict({name: genesis.tensor(weights[name]) for name in weights.files})
    optimizer = genesis.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY)

    step = step_of(genesis, model, optimizer)
    run = genesis.compile(step) if args.compile else step
    data = [(genesis.tensor(x, device="cuda"), genesis.tensor(y, device="cuda")) for x, y in batches(20, args.batch, 1)]
    start = time.perf_counter()
    losses = [run(*data[0])]
    first = losses[0].item()
    cold = time.perf_counter() - start
    losses = [first] + [run(*pair).item() for pair in data[1:]]
    times, host, loss = _rounds(genesis.cuda, args.steps, lambda i: run(*data[i % 20]))
    plan = last_plan()
    assert plan is not None
    from collections import Counter
    kernels = Counter(getattr(s, "label", "?") for s in plan.plan.steps)
    return {"losses": losses, "ms": median(times), "host_ms": median(host) * 1e3, "cold_s": cold,
            "peak_gb": genesis.cuda.max_memory_reserved() / 1e9, "launches": len(plan.plan.steps),
            "arena_gb": plan.plan.arena_bytes / 1e9, "max_live_gb": plan.plan.max_live_bytes / 1e9,
            "kernels": dict(kernels.most_common()), "torch_imported": "torch" in sys.modules, "loss": loss.item()}


def run_torch(args: argparse.Namespace) -> dict[str, Any]:
    """Losses and times of torch, eager or compiled."""
    import torch
    from torch_gpt2 import TorchGPT
    model = TorchGPT(VOCAB, CONTEXT, LAYERS, HEADS, DIM).cuda()
    weights = np.load(args.weights)
    model.load_state_dict({name: torch.tensor(weights[name]) for name in weights.files}, strict=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY, fused=True)

    step = step_of(torch, torch.compile(model) if args.compile else model, optimizer)
    data = [(torch.tensor(x).cuda(), torch.tensor(y).cuda()) for x, y in batches(20, args.batch, 1)]
    start = time.perf_counter()
    first = step(*data[0]).item()
    cold = time.perf_counter() - start
    losses = [first] + [step(*pair).item() for pair in data[1:]]
    times, host, _ = _rounds(torch.cuda, args.steps, lambda i: step(*data[i % 20]))
    return {"losses": losses, "ms": median(times), "host_ms": median(host) * 1e3, "cold_s": cold,
            "peak_gb": torch.cuda.max_memory_allocated() / 1e9, "version": torch.__version__}


def make_weights(path: Path) -> None:
    """The common start: GPT-2's initial distribution, drawn with numpy."""
    rng = np.random.default_rng(0)
    from torch_gpt2 import parameter_shapes
    arrays = {}
    for name, shape in parameter_shapes(VOCAB, CONTEXT, LAYERS, DIM).items():
        if name.endswith("bias"):
            arrays[name] = np.zeros(shape, np.float32)
        elif "norm" in name:
            arrays[name] = np.ones(shape, np.float32)
        else:
            arrays[name] = (rng.standard_normal(shape) * 0.02).astype(np.float32)
    arrays["lm_head.weight"] = arrays["token.weight"]  # tied
    np.savez(path, **arrays)


def main() -> None:
    """Run the contestants in processes of their own, compare, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["genesis", "torch"])
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--weights", default="/tmp/gpt2_weights.npz")
    record.add_out(parser)
    parser.add_argument("--contestants", default="genesis,genesis+compile,torch,torch+compile")
    args = parser.parse_args()
    if args.only:
        print("RESULT " + json.dumps(run_genesis(args) if args.only == "genesis" else run_torch(args)))
        return
    make_weights(Path(args.weights))
    results: dict[str, Any] = {}
    for name in args.contestants.split(","):
        kind, _, compiled = name.partition("+")
        command = [sys.executable, __file__, "--only", kind, "--batch", str(args.batch), "--steps", str(args.steps),
                   "--weights", args.weights] + (["--compile"] if compiled else [])
        done = subprocess.run(command, capture_output=True, text=True)
        line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT ")), None)
        if line is None:
            print(f"{name} failed:\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}")
            continue
        results[name] = json.loads(line.removeprefix("RESULT "))
    reference = results.get("torch") or results.get("torch+compile")
    print(f"\nGPT-2 124M step, batch {args.batch} x {CONTEXT}, bf16")
    print(f"{'':18}{'ms':>8}{'tokens/s':>10}{'x torch':>9}{'host ms':>9}{'cold s':>8}{'peak GB':>9}{'loss off %':>11}")
    for name, r in results.items():
        pairs = zip(r["losses"], reference["losses"], strict=True) if reference else ()
        off = max((abs(a - b) / abs(b) for a, b in pairs), default=0.0) * 100
        r["loss_off_percent"] = off
        ratio = r["ms"] / reference["ms"] if reference else 0.0
        print(f"{name:18}{r['ms']:8.1f}{args.batch * CONTEXT / r['ms'] * 1e3:10.0f}{ratio:9.2f}{r['host_ms']:9.2f}"
              f"{r['cold_s']:8.1f}{r['peak_gb']:9.2f}{off:11.3f}")
    for name, r in results.items():
        if "launches" in r:
            print(f"{name}: {r['launches']} launches a step, torch imported: {r['torch_imported']}, "
                  f"arena {r['arena_gb']:.2f} GB (max live {r['max_live_gb']:.2f})")
    if args.out:
        record.write(args.out, "gpt2_step", results=results)


if __name__ == "__main__":
    main()
