"""Endless loops: what is pending stays bounded, and cost grows with the length of a program.

    python benchmarks/bounded.py [--out] [--match WORDS] [--scale TIMES]

All of it takes six to eight minutes on one core.

Each loop runs in a process of its own, for torch and for Genesis, over n and over 2 n rounds. Printed are seconds
(process CPU time), the peak of resident memory above that before the loop, how many programs Genesis compiled (those of
other sizes are filled in), and the bars: at most 5 × torch + 1 s, time(2 n) at most 2.3 × time(n), memory at most
torch's + 64 MB, at most 3 plans for each loop of the program, a backward's among them, and those of turns that differ
(`endless_loops.Loop.plans`).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final

import adversary_loops  # noqa: F401
import drawn_loops  # noqa: F401  (these put their loops into the table)
import further_loops  # noqa: F401
import later_loops  # noqa: F401
import mixed_loops  # noqa: F401
import newest_loops  # noqa: F401
import record
import strangers_loops  # noqa: F401
import unnamed_loops  # noqa: F401
import walked_loops  # noqa: F401
import wide_programs  # noqa: F401
from endless_loops import LOOPS

ABOVE_TORCH_S: Final = 1.0
TIMES_TORCH: Final = 5.0
TIMES_TWICE: Final = 2.3
ABOVE_TORCH_MB: Final = 64


def _resident() -> float:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize() / 2**20


class _Peak(threading.Thread):
    """The most resident memory, in MB, looked at every 5 ms."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.found, self.ends = _resident(), False

    def run(self) -> None:
        while not self.ends:
            self.found = max(self.found, _resident())
            time.sleep(0.005)


def run_one(name: str, library: str, rounds: int) -> dict[str, Any]:
    """Run a loop here, and tell what it took. The process is to end right after."""
    function = LOOPS[name].function
    compiled: Callable[[], int] = int
    if library == "genesis":
        import genesis as lib
        from genesis.engine.state import engine_state
        warm = lib.ones(3, requires_grad=True)  # what is imported at the first program is no loop's
        (warm * 2).sum().backward()
        warm.grad.tolist()
        lib.compile(len)  # imports what captures, too

        def compiled() -> int:
            return engine_state.plans.compiled
    else:
        import torch as lib
        lib.set_num_threads(1)
        warm = lib.ones(3, requires_grad=True)
        (warm * 2).sum().backward()
    plans, before = compiled(), _resident()
    peak = _Peak()
    peak.start()
    start = time.process_time()
    value = function(lib, rounds)
    seconds = time.process_time() - start
    peak.ends = True
    return {"seconds": seconds, "value": value, "mb": max(peak.found, _resident()) - before,
            "plans": compiled() - plans}


def measured(name: str, library: str, rounds: int, limit_s: float) -> dict[str, Any]:
    """What `run_one` tells in a process of its own, and how long the process took to end after the loop."""
    words = [sys.executable, __file__, "--one", name, library, str(rounds)]
    start = time.perf_counter()
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=limit_s,
                              env={**os.environ, "OMP_NUM_THREADS": "1"})
    except subprocess.TimeoutExpired:
        return {"seconds": limit_s, "value": None, "mb": float("nan"), "plans": -1, "wall": limit_s, "error": "time"}
    wall = time.perf_counter() - start
    if done.returncode:
        return {"seconds": wall, "value": None, "mb": float("nan"), "plans": -1, "wall": wall,
                "error": done.stderr.strip().splitlines()[-1:]}
    return {**json.loads(done.stdout.splitlines()[-1]), "wall": wall}


def row(name: str, scale: float, limit_s: float) -> dict[str, Any]:
    """A loop's figures, and which bars it misses."""
    n = max(1, int(LOOPS[name].rounds * scale))
    theirs = measured(name, "torch", n, limit_s)
    ours, twice = measured(name, "genesis", n, limit_s), measured(name, "genesis", 2 * n, limit_s)
    missed = []
    if "error" in ours or "error" in twice:
        missed.append(str(ours.get("error", twice.get("error"))))
    elif abs(ours["value"] - theirs["value"]) > 1e-3 * max(1.0, abs(theirs["value"])):
        missed.append(f"{ours['value']} is not {theirs['value']}")
    ratio = twice["seconds"] / ours["seconds"]
    if ours["seconds"] > TIMES_TORCH * theirs["seconds"] + ABOVE_TORCH_S:
        missed.append("time")
    if ratio > TIMES_TWICE:
        missed.append("ratio")
    if not ours["mb"] <= theirs["mb"] + ABOVE_TORCH_MB:
        missed.append("memory")
    if max(ours["plans"], twice["plans"]) > LOOPS[name].plans:
        missed.append("plans")
    return {"rounds": n, "loops": LOOPS[name].loops, "bodies": LOOPS[name].bodies, "odd": LOOPS[name].odd,
            "torch_s": round(theirs["seconds"], 3),
            "genesis_s": round(ours["seconds"], 3), "twice_s": round(twice["seconds"], 3),
            "ratio": round(ratio, 2), "torch_mb": round(theirs["mb"]),
            "genesis_mb": round(ours["mb"]) if ours["mb"] == ours["mb"] else None, "plans": ours["plans"],
            "plans_twice": twice["plans"], "process_s": round(twice["wall"], 1), "missed": missed}


def main() -> None:
    """Measure every loop, print a table, and with --out write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    record.add_out(parser)
    parser.add_argument("--match", default="", help="only loops with one of these words in their names, by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="times the rounds (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=120, help="seconds for a process (default: %(default)s)")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        name, library, rounds = options.one
        print(json.dumps(run_one(name, library, int(rounds))), flush=True)
        return
    words = options.match.split(",")
    print(f"{'loop':30} {'rounds':>7} {'torch':>8} {'genesis':>8} {'2 n':>8} {'ratio':>5} {'MB':>6} {'torch':>6} "
          f"{'plans':>7}")
    found = {}
    for name in LOOPS:
        if any(word in name for word in words):
            it = found[name] = row(name, options.scale, options.limit)
            print(f"{name:30} {it['rounds']:7} {it['torch_s']:8.3f} {it['genesis_s']:8.3f} {it['twice_s']:8.3f} "
                  f"{it['ratio']:5.2f} {it['genesis_mb'] or -1:6} {it['torch_mb']:6} "
                  f"{it['plans']:3},{it['plans_twice']:3}  {' '.join(it['missed'])}", flush=True)
    if options.out:
        record.write(options.out, "bounded", loops=found)


if __name__ == "__main__":
    main()
