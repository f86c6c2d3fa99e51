"""Compiling ahead: how long training waits where a class of lengths occurs first, with the background and without.

    python benchmarks/ahead.py                      # on the GPU
    python benchmarks/ahead.py --idle --seconds 40  # no GPU: kernels are compiled, and do nothing

A small GPT is trained over lengths that are drawn at random from 65 to 128 for some seconds, then from 129 to 256, and
so on to 1024: as lengths grow in training, or other data comes. Each way in a process of its own that has nothing on
disk. "waited" are the seconds of the steps in which a plan was compiled or read; "worst" is the longest step.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from typing import Any

PHASES = ((65, 128), (129, 256), (257, 512), (513, 1024))


def train(seconds: float, idle: bool, layers: int, phases: int) -> dict[str, Any]:
    """Train; gives a row for each phase, and what the process in the background says."""
    import genesis
    from genesis import engine
    from genesis.engine import background
    from genesis.models import GPT, GPTConfig
    if idle:
        from idle_gpu import IdleDriver

        from genesis.runtime.cuda.cuda_python_driver import install
        install(IdleDriver())
    genesis.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=512, context=1024, layers=layers, heads=4, dim=128)).to("cuda")
    optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-3)
    chance, made, rows = random.Random(0), [], []
    with engine.observe(made.append):
        for least, most in PHASES[:phases]:
            waited = worst = 0.0
            counts = {"steps": 0, "compiled": 0, "disk": 0, "background": 0}
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                del made[:]
                start = time.perf_counter()
                tokens = genesis.randint(0, 512, (8, chance.randint(least, most)), device="cuda")
                loss = model(tokens, tokens)[1]
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                loss.item()
                took = time.perf_counter() - start
                counts["steps"] += 1
                for plan in made:
                    counts["compiled"] += plan.origin == "compiled"
                    counts["disk"] += plan.origin == "disk"
                    counts["background"] += plan.background and plan.origin == "disk"
                if any(plan.origin in ("compiled", "disk") for plan in made):
                    waited, worst = waited + took, max(worst, took)
            rows.append({"lengths": f"{least} to {most}", "waited": waited, "worst": worst, **counts})
    found = background.report()
    return {"rows": rows, "report": [found.asked, len(found.made), found.others, found.seconds, found.peak_bytes,
                                     found.died, found.error]}


def both(arguments: argparse.Namespace) -> None:
    """Run each way in a process of its own; print a table."""
    print("| background | lengths | steps | waited, s | worst, s | plans compiled | from disk | of these ahead |")
    print("|---|---|---|---|---|---|---|---|")
    for way in ("0", "1"):
        with tempfile.TemporaryDirectory() as folder:
            env = {"GENESIS_BACKGROUND_COMPILE": way, "GENESIS_CACHE_DIR": folder, "GENESIS_PLAN_CACHE": "1"}
            done = subprocess.run([sys.executable, *sys.argv, "--one"], capture_output=True, text=True, check=False,
                                  env={**os.environ, **env})
        if done.returncode:
            sys.exit(done.stderr)
        found = json.loads(done.stdout.splitlines()[-1])
        for row in found["rows"]:
            print(f"| {'on' if way == '1' else 'off'} | {row['lengths']} | {row['steps']} | {row['waited']:.1f} | "
                  f"{row['worst']:.2f} | {row['compiled']} | {row['disk']} | {row['background']} |")
        asked, made, others, seconds, peak, died, error = found["report"]
        if asked:
            print(f"\nin the background: {made} templates of {asked} sizes, {others}, "
                  f"{seconds:.0f} s of processor time, {peak / 1e6:.0f} MB, {died} died{'; ' if error else ''}{error}")


def main() -> None:
    """Parse, run."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--idle", action="store_true", help="without a GPU")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each phase (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=2, help="of the GPT (default: %(default)s)")
    parser.add_argument("--phases", type=int, default=len(PHASES), help="how many of the ranges (default: all)")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(train(arguments.seconds, arguments.idle, arguments.layers, arguments.phases)))
    else:
        both(arguments)


if __name__ == "__main__":
    main()
