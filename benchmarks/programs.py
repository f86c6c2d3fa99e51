"""The programs of tests/programs beside eager torch, libraries in turn: on the CPU by one thread's processor time, on a
GPU by the clock, a step until the next one is asked for.

    python benchmarks/programs.py [--only ppo,unet] [--rounds 4] [--device cuda] [--out [--more]]

Each program runs whole: it makes its model and takes ten steps or so. Columns are ratios of times, above 1 faster than
torch, and seconds beyond torch's:

    step    least time between two calls of the program's step, in rounds after the first; undecorated, compiled
    run     least time of a whole run after the first: every plan is known; undecorated, compiled
    first   seconds from the first call of the step to the second, with nothing compiled, beyond torch's
    total   seconds of the first whole run, beyond torch's

`captures` and `hits` are those of the compiled run of the last round; why a step is recorded instead is in the file. A
program without a step of its own (`-`) has runs only. Sizes are those of the tests: the time is mostly the host's. The
file's `load` is the machine's mean load while this ran, its least and largest.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import record
import torch
import torch.distributions

import genesis

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.programs.families import PROGRAMS
from tests.programs.lab import Lab

WAYS = ("torch", "undecorated", "compiled")


def clock_of(device: str) -> Callable[[], float]:
    """What time is taken by: on a GPU the processor may wait."""
    return time.process_time if device == "cpu" else time.perf_counter


@dataclass
class TimedLab(Lab):
    """A run of which the calls of the first step that the program decorates are timed.

    Attributes:
        timed_on: the device, which says what they are timed by.
        starts: the time at the beginning of each of these calls.
        functions: the steps as the program calls them.
    """

    timed_on: str = "cpu"
    starts: list[float] = field(default_factory=list)
    functions: list[Any] = field(default_factory=list)

    def step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A decorator of a program's step."""
        made = super().step(function)
        self.functions.append(made)
        if len(self.functions) > 1:
            return made
        starts, clock = self.starts, clock_of(self.timed_on)

        def timed(*args: Any, **kwargs: Any) -> Any:
            starts.append(clock())
            return made(*args, **kwargs)
        return timed


@dataclass
class Times:
    """What a way of running took, in seconds.

    Attributes:
        total: the first run.
        first: from its first step to its second; None where there is no step.
        run, step: the least since.
        captures, hits: of its steps, in its last run.
        recorded: why its steps are recorded at each call.
    """

    total: float
    first: float | None
    run: float = float("inf")
    step: float = float("inf")
    captures: int = 0
    hits: int = 0
    recorded: list[str] = field(default_factory=list)


def run_once(name: str, way: str, device: str) -> tuple[float, list[float], list[Any]]:
    """The time of a run, those between the calls of its step, and its steps."""
    found, library, clock = PROGRAMS[name], torch if way == "torch" else genesis, clock_of(device)
    dtype = "float64" if found.chaotic else "float32"
    library.manual_seed(0)
    library.set_default_dtype(getattr(library, dtype))
    lab = TimedLab(library, dtype, way == "compiled", timed_on=device)
    try:
        start = clock()
        result = found.run(lab)
        if way != "torch":
            genesis.eval(*[x for x in _leaves(result) if isinstance(x, genesis.Tensor)])
        if device != "cpu":
            torch.cuda.synchronize()
            genesis.cuda.synchronize()
        took = clock() - start
    finally:
        library.set_default_dtype(library.float32)
    return took, [b - a for a, b in zip(lab.starts, lab.starts[1:], strict=False)], lab.functions


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [x for part in value for x in _leaves(part)] if isinstance(value, (list, tuple)) else [value]


def measure(name: str, rounds: int, device: str) -> dict[str, Times]:
    """All ways of running a program, in turn."""
    found: dict[str, Times] = {}
    for number in range(rounds):
        for way in WAYS:
            if not number:
                genesis.engine.reset()
            took, between, functions = run_once(name, way, device)
            if not number:
                found[way] = Times(took, between[0] if between else None)
                continue
            times = found[way]
            times.run, times.step = min(times.run, took), min([times.step, *between[1:]])
            if way == "compiled":
                told = [genesis.explain(f) for f in functions if hasattr(f, "hits")]
                times.captures, times.hits = sum(x.captures for x in told), sum(x.hits for x in told)
                times.recorded = [str(reason) for x in told for reason in x.recorded]
        gc.collect()
    return found


def row_of(name: str, found: dict[str, Times]) -> dict[str, Any]:
    """A program's figures."""
    peer = found["torch"]
    row: dict[str, Any] = {"program": name, "torch_step_ms": peer.step * 1e3, "torch_run_ms": peer.run * 1e3}
    for way in WAYS[1:]:
        ours = found[way]
        stepped = ours.first is not None and peer.first is not None and peer.step < float("inf")
        row[way] = {"step": peer.step / ours.step if stepped else None, "run": peer.run / ours.run,
                    "first_s": ours.first - peer.first if stepped else None,  # type: ignore[operator]
                    "total_s": ours.total - peer.total}
    if peer.step == float("inf"):
        row["torch_step_ms"] = None
    ours = found["compiled"]
    row.update(captures=ours.captures, hits=ours.hits, recorded=[re.sub(r" at \S+$", "", x) for x in ours.recorded])
    return row


def line_of(row: dict[str, Any]) -> str:
    """A row as it is printed."""
    def number(x: float | None, width: int = 8) -> str:
        return f"{'-':>{width}}" if x is None else f"{x:{width}.2f}"
    a, b = row["undecorated"], row["compiled"]
    cells = [row["torch_step_ms"], *[way[key] for key in ("step", "run", "first_s", "total_s") for way in (a, b)]]
    return f"{row['program']:28}" + "".join(map(number, cells)) + f"{row['captures']:6}{row['hits']:6}"


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="programs whose name contains one of these words")
    parser.add_argument("--rounds", type=int, default=4)
    record.add_out(parser)
    parser.add_argument("--more", action="store_true", help="only what the file in --out has no row of")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    args = parser.parse_args()
    torch.set_num_threads(1)
    record.on_device(args.device)
    warnings.simplefilter("ignore")
    words = [word for word in args.only.split(",") if word]
    out = "programs" if args.device == "cpu" else f"programs_{args.device}"
    rows, loads = rows_before(args.out / f"{out}.json") if args.more else ([], [])
    known = {row["program"] for row in rows}
    pairs = "".join(f"{key + ' u':>8}{key + ' c':>8}" for key in ("step", "run", "first", "total"))
    print(f"{'':28}{'torch ms':>8}{pairs}{'capt':>6}{'hits':>6}")
    for name in PROGRAMS:
        if name in known or (words and not any(word in name for word in words)):
            continue
        loads.append(os.getloadavg()[0])
        rows.append(row_of(name, measure(name, max(2, args.rounds), args.device)))
        print(line_of(rows[-1]), flush=True)
        if args.out:
            config = {"rounds": args.rounds, "threads": 1, "device": args.device, "load": [min(loads), max(loads)]}
            record.write(args.out, out, config=config, medians=medians(rows), rows=rows)
    print("medians: " + ", ".join(f"{key} {value:.2f}" for key, value in medians(rows).items()))


def rows_before(file: Path) -> tuple[list[dict[str, Any]], list[float]]:
    """Rows and loads of a file that an earlier run has written, of programs that there are."""
    found = json.loads(file.read_text(encoding="utf-8"))
    return [row for row in found["rows"] if row["program"] in PROGRAMS], found["config"]["load"]


def medians(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Of each figure, over the programs that have it."""
    found = {f"{way} {key}": [x for row in rows if (x := row[way][key]) is not None]
             for way in WAYS[1:] for key in ("step", "run", "first_s", "total_s")}
    return {key: median(values) for key, values in found.items() if values}


if __name__ == "__main__":
    main()
