"""Every benchmark that wants a GPU, one after the other, in one run: what the committed results come from.

    python benchmarks/run_all.py --out                  # about eight minutes on an H200 machine with torch
    python benchmarks/run_all.py --only bars,attention

Each runs in a process of its own, with a limit. Its output goes to a log beside the results; here a line says whether
it ended well, and its last lines follow if it did not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import record


@dataclass(frozen=True)
class Benchmark:
    """A script of this folder, its arguments, and how long it may take in seconds."""

    name: str
    arguments: tuple[str, ...] = ()
    limit: int = 120


BENCHMARKS: Final = (
    Benchmark("cuda_matches_cpu", limit=90),
    Benchmark("gpt2_step", limit=180),
    Benchmark("bars"),
    Benchmark("scans_and_sorts"),
    Benchmark("attention"),
    Benchmark("start_up", ("--sizes", "8,12,15,24")),
    Benchmark("graph_replay", limit=60),
    Benchmark("allocator", limit=60),
    Benchmark("host_time", ("--device", "cuda"), 60),
    Benchmark("accuracy", ("--device", "cuda")),
    Benchmark("profile_gpt2", limit=60),
)
"""In the order of what matters most, in case the time is short."""

LINES_SHOWN: Final = 15


def run(benchmark: Benchmark, folder: Path) -> bool:
    """Run one; whether it succeeded."""
    log = folder / f"{benchmark.name}.log"
    command = [sys.executable, str(Path(__file__).parent / f"{benchmark.name}.py"), *benchmark.arguments, "--out",
               str(folder)]
    start = time.perf_counter()
    with log.open("w", encoding="utf-8") as output:
        try:
            status: int | str = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT,
                                               timeout=benchmark.limit).returncode
        except subprocess.TimeoutExpired:
            status = f"still running after {benchmark.limit} s"
    print(f"{benchmark.name:20}{time.perf_counter() - start:6.0f} s  {'ok' if status == 0 else status}", flush=True)
    if status != 0:
        last = log.read_text(encoding="utf-8").splitlines()[-LINES_SHOWN:]
        print("\n".join(f"    {line}" for line in last), flush=True)
    return status == 0


def main() -> int:
    """Run those that are asked for; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names, comma-separated")
    record.add_out(parser)
    options = parser.parse_args()
    wanted = [b for b in BENCHMARKS if not options.only or b.name in options.only.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        succeeded = [run(benchmark, folder) for benchmark in wanted]
    return 0 if all(succeeded) else 1


if __name__ == "__main__":
    sys.exit(main())
