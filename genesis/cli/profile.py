"""Run a script and print where its time and memory went.

Kernels (calls on the CPU, launches on a GPU, inside of graphs too): time, bytes, operations, share, and the fraction of
what the machine could do at most, with the side of the roofline; the host's time by the script's line; the compiler's
by pass; memory at the peak, by the line that holds it. With --trace a file that https://ui.perfetto.dev shows.

    genesis profile train.py
    genesis profile train.py --trace trace.json --rows 20 -- --steps 10
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from genesis.cli.script import run_script
from genesis.ir.suggest import did_you_mean
from genesis.runtime.collectives import rank_of_job

HELP = "run a script and say where its time and memory went"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("script", help="the Python file to run")
    parser.set_defaults(rest=[])  # the script's own arguments, after --
    parser.add_argument("--trace", metavar="FILE", help="write a trace for Perfetto; packed where it ends with .gz; of "
                        "several ranks each but the first adds its number to the name")
    parser.add_argument("--rows", type=int, default=30, help="rows of kernels (default: 30)")
    parser.add_argument("--sort", default="device_time_total", metavar="COLUMN",
                        help="the column that rows are sorted by (default: device_time_total)")


def run(arguments: argparse.Namespace) -> int:
    """Run the script, print. 0: printed; 1: the script failed (what it did is shown); 2: there is no such script,
    column or folder."""
    from genesis.profiler import profile
    from genesis.profiler.averages import SORTS
    if arguments.sort not in SORTS:
        print(f"genesis profile: --sort {arguments.sort} is no column{did_you_mean(arguments.sort, SORTS) or ';'} "
              f"there are {', '.join(SORTS)}", file=sys.stderr)
        return 2
    if not Path(arguments.script).is_file():
        print(f"genesis profile: there is no file {arguments.script}", file=sys.stderr)
        return 2
    trace = Path(arguments.trace).absolute() if arguments.trace else None  # the script may go to another folder
    if trace is not None and not trace.parent.is_dir():
        print(f"genesis profile: there is no folder {trace.parent} for the trace", file=sys.stderr)
        return 2
    found = profile(profile_memory=True, with_stack=True)
    with found:
        status = run_script(arguments.script, arguments.rest)
    found.print_stats(arguments.sort, arguments.rows)
    if trace is not None:
        rank = rank_of_job()
        found.export_chrome_trace(trace.with_stem(f"{trace.stem}.rank{rank}") if rank else trace)
    return status
