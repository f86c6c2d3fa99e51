"""Two trees of Genesis beside each other in one run: recording, host time, import time, GPT-2's step and the bars.

    git worktree add /tmp/before 55266ab                                # the tree to compare with
    python benchmarks/compare_trees.py /tmp/before . --out              # all of it: wants a GPU, about ten minutes
    python benchmarks/compare_trees.py /tmp/before . --only import,recording,host_cpu      # what needs none
    python benchmarks/compare_trees.py /tmp/before . --only bars --match softmax,sum       # a part of the bars

Each tree runs the scripts of its own `benchmarks/`, in processes of their own, in turns, with caches of its own. Of
several rounds the least counts: other processes can only add to a time. A ratio is the new tree's time by the old
one's, above 1 slower. `noise` is how far the old tree's rounds are from each other, its largest time by its least: a
ratio within it says nothing. torch has one thread: two wait for each other on a machine that others use, too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from typing import Any, Final

import record

IMPORT: Final = "import time; start = time.process_time(); import genesis; print(time.process_time() - start)"
IMPORTS: Final = 8
"""Processes in a round that import Genesis, of which the least counts."""


@dataclass(frozen=True)
class Measurement:
    """What one benchmark says of a tree.

    Attributes:
        script: in the tree's `benchmarks/`.
        arguments: of the script.
        times: the script's JSON → (what was timed, time), in any unit.
        rounds: how often each tree runs it.
        limit: seconds that a run may take.
    """

    script: str
    arguments: tuple[str, ...]
    times: Callable[[dict[str, Any]], Iterator[tuple[str, float]]]
    rounds: int = 2
    limit: int = 240


def _recording(found: dict[str, Any]) -> Iterator[tuple[str, float]]:
    return ((name, row["least_ns"]) for name, row in found["ops"].items())


def _host(found: dict[str, Any]) -> Iterator[tuple[str, float]]:
    return ((row["name"], row["host"]) for row in found["seconds"] if row["host"] and "torch" not in row["name"])


def _gpt2(found: dict[str, Any]) -> Iterator[tuple[str, float]]:
    return ((name, row["ms"]) for name, row in found["results"].items())


def _bars(found: dict[str, Any]) -> Iterator[tuple[str, float]]:
    return ((f"{row['workload']}, {row['direction']}", row["ms"]) for row in found["rows"]
            if row["contestant"] == "genesis")


MEASUREMENTS: Final = {
    "recording": Measurement("recording.py", ("--batch", "100", "--rounds", "25"), _recording, rounds=3),
    "host_cpu": Measurement("host_time.py", (), _host, limit=900),
    "host_idle": Measurement("host_time.py", ("--device", "idle"), _host),
    "host_cuda": Measurement("host_time.py", ("--device", "cuda"), _host),
    "gpt2": Measurement("gpt2_step.py", ("--contestants", "genesis,genesis+compile"), _gpt2),
    "bars": Measurement("bars.py", ("--peers", ""), _bars),
}

Times = dict[str, list[float]]
"""What was timed → a time for each round."""


def run(tree: Path, measurement: Measurement, more: tuple[str, ...], cache: Path) -> dict[str, float]:
    """One run of a script in a tree; empty, with the script's last lines printed, where it failed."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, f"benchmarks/{measurement.script}", *measurement.arguments, *more, "--out", out]
        try:
            done = subprocess.run(command, cwd=tree, env=_environment(tree, cache), capture_output=True, text=True,
                                  timeout=measurement.limit)
        except subprocess.TimeoutExpired:
            print(f"{tree}: {measurement.script} took more than {measurement.limit} s", flush=True)
            return {}
        written = list(Path(out).glob("*.json"))
        if not written:
            print(f"{tree}: {measurement.script} failed:\n{done.stdout[-800:]}\n{done.stderr[-1500:]}", flush=True)
            return {}
        return dict(measurement.times(json.loads(written[0].read_text(encoding="utf-8"))))


def import_time(tree: Path, cache: Path) -> dict[str, float]:
    """The least processor seconds of `import genesis`, behind one that leaves bytecode."""
    environment = {**_environment(tree, cache), "PYTHONPYCACHEPREFIX": str(cache / "bytecode"),
                   "PYTHONDONTWRITEBYTECODE": ""}
    found = [subprocess.run([sys.executable, "-c", IMPORT], cwd=tree, env=environment, capture_output=True, text=True,
                            check=True).stdout for _ in range(IMPORTS + 1)]
    return {"import genesis": min(map(float, found[1:]))}


def _environment(tree: Path, cache: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree), "GENESIS_CACHE_DIR": str(cache), "OMP_NUM_THREADS": "1"}


def compare(trees: tuple[Path, Path], rounds: int, run_in: Callable[[Path, Path], dict[str, float]],
            caches: tuple[Path, Path]) -> tuple[Times, Times]:
    """Both trees' times, round by round, in turns: the second round begins with the tree that the first ended with."""
    found: tuple[Times, Times] = {}, {}
    for turn in range(rounds):
        for which in (0, 1) if turn % 2 == 0 else (1, 0):
            for name, time in run_in(trees[which], caches[which]).items():
                found[which].setdefault(name, []).append(time)
    return found


def rows(name: str, old: Times, new: Times) -> list[dict[str, Any]]:
    """A row for each time that both trees have."""
    return [{"measurement": name, "what": what, "old": min(old[what]), "new": min(new[what]),
             "ratio": min(new[what]) / min(old[what]), "noise": max(old[what]) / min(old[what])}
            for what in old if what in new]


def show(name: str, found: list[dict[str, Any]]) -> None:
    """The rows, and the geometric mean of their ratios."""
    if not found:
        print(f"{name}: nothing to compare", flush=True)
        return
    for row in found:
        print(f"{name:10} {row['what']:44} {row['old']:12.6g} {row['new']:12.6g} {row['ratio']:7.3f} "
              f"{row['noise']:7.3f}{'   slower' if row['ratio'] > max(1.02, row['noise']) else ''}")
    mean = exp(sum(log(row["ratio"]) for row in found) / len(found))
    print(f"{name:10} {'geometric mean':44} {'':25} {mean:7.3f}\n", flush=True)


def main() -> None:
    """Run both trees, print ratios, and with --out write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, help="a checkout of the tree to compare with")
    parser.add_argument("new", type=Path, help="a checkout of the tree that is asked about")
    parser.add_argument("--only", default=",".join(["import", *MEASUREMENTS]), help="default: %(default)s")
    parser.add_argument("--match", default="", help="only bars with one of these in their name, comma-separated")
    parser.add_argument("--rounds", type=int, help="runs of each script in each tree (default: two or three)")
    parser.add_argument("--caches", type=Path, help="folder whose old/ and new/ keep what was compiled (default: none)")
    record.add_out(parser)
    options = parser.parse_args()
    wanted = options.only.split(",")
    if unknown := set(wanted) - {"import", *MEASUREMENTS}:
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are import, {', '.join(MEASUREMENTS)}")
    trees = options.old.resolve(), options.new.resolve()
    found: list[dict[str, Any]] = []
    print(f"{'':10} {'':44} {'old':>12} {'new':>12} {'ratio':>7} {'noise':>7}")
    with tempfile.TemporaryDirectory() as folder:
        kept = options.caches.resolve() if options.caches else Path(folder)
        caches = kept / "old", kept / "new"
        for name in wanted:
            if name == "import":
                times = compare(trees, options.rounds or 2, import_time, caches)
            else:
                measurement = MEASUREMENTS[name]
                more = ("--match", options.match) if name == "bars" and options.match else ()
                times = compare(trees, options.rounds or measurement.rounds,
                                lambda tree, cache, m=measurement, more=more: run(tree, m, more, cache), caches)
            found += (these := rows(name, *times))
            show(name, these)
    if options.out:
        record.write(options.out, "compare_trees", rows=found)


if __name__ == "__main__":
    main()
