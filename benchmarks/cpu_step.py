"""A training step of the demo's GPT on the CPU beside eager torch, alternating in one process.

    python benchmarks/cpu_step.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import record
import torch
from torch_gpt2 import TorchGPT

import genesis
from genesis.engine import last_plan
from genesis.models import GPT, GPTConfig


def main() -> None:
    """Time both, print medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=40)
    record.add_out(parser)
    args = parser.parse_args()
    ours = GPT(GPTConfig(256, args.context, args.layers, 4, args.dim))
    theirs = TorchGPT(256, args.context, args.layers, 4, args.dim)
    state = {name: torch.tensor(np.asarray(x.detach())) for name, x in ours.state_dict().items()}
    theirs.load_state_dict(state, strict=False)
    own = genesis.optim.AdamW(ours.parameters(), lr=1e-3)
    peer = torch.optim.AdamW(theirs.parameters(), lr=1e-3, fused=True)
    compiled = genesis.compile(lambda x, y: _step(ours, own, x, y))
    times: dict[str, list[float]] = {"genesis": [], "genesis compiled": [], "torch": []}
    rng = np.random.default_rng(0)
    for _ in range(args.steps):
        data = rng.integers(0, 256, (args.batch, args.context + 1))
        pair = genesis.tensor(data[:, :-1]), genesis.tensor(data[:, 1:])
        peers_pair = torch.tensor(data[:, :-1]), torch.tensor(data[:, 1:])
        times["genesis"].append(_seconds(partial(_step, ours, own, *pair)))
        times["genesis compiled"].append(_seconds(partial(compiled, *pair)))
        times["torch"].append(_seconds(partial(_step, theirs, peer, *peers_pair)))
    found = {name: median(values[5:]) * 1e3 for name, values in times.items()}
    for name, ms in found.items():
        print(f"{name:18}{ms:8.2f} ms   {ms / found['torch']:.2f} x torch")
    plan = last_plan()
    assert plan is not None
    print(f"{len(plan.plan.steps)} calls, arena {plan.plan.arena_bytes / 1e6:.1f} MB "
          f"(max live {plan.plan.max_live_bytes / 1e6:.1f} MB)")
    if args.out:
        config = {name: value for name, value in vars(args).items() if name != "out"}
        record.write(args.out, "cpu_step", config=config, ms=found)


def _seconds(run: Callable[[], Any]) -> float:
    start = time.perf_counter()
    run().item()
    return time.perf_counter() - start


def _step(model, optimizer, x, y):  # type: ignore[no-untyped-def]
    _, loss = model(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


if __name__ == "__main__":
    main()
