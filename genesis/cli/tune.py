"""Run a script with `genesis.config.tune = "max"`, and print the user's table of measured choices.

The script runs as usual, with the arguments after `--`; what it prints goes to stderr. Each product, attention and
reduction of rows that it compiles is timed on its GPU in a few ways, and the fastest is written down beside the
compiled kernels. Rows that were there already are marked. A script that says `genesis.config.tune = "max"` itself takes
what the table says, and so does any other; without, the shipped table and the model decide.

    genesis tune train.py -- --steps 1
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from genesis.codegen.cuda.gpu_model import GpuModel

HELP = "run a script and time in which way its kernels are fastest"

HEADINGS = ("kind", "problem", "chosen", "µs", "µs without", "")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("script", help="the Python file to run")
    parser.set_defaults(rest=[])  # the script's own arguments, after --


def run(arguments: argparse.Namespace) -> int:
    """Run the script, print the table. 0: printed; 1: the script failed; 2: nothing could be timed."""
    from genesis.cli.dump import Nothing, plans_of, refuse
    from genesis.config import config, settings
    from genesis.runtime.collectives import ranks
    try:
        gpu = _gpu(arguments.script)
        if ranks() > 1:
            raise Nothing(f"this is one of {ranks()} ranks, which all have to choose alike: nothing is timed there; "
                          "try: one process")
    except Nothing as problem:
        return refuse("tune", problem)
    from genesis.engine.tuning import table_of
    before = {row.key for row in table_of(gpu).rows}
    with settings(config.key()):
        config.tune = "max"
        _, status = plans_of(arguments.script, arguments.rest)
    rows = list(table_of(gpu).rows)
    print(f"# {gpu.name}: {len(rows)} rows, {sum(row.key not in before for row in rows)} of them new")
    cells = [HEADINGS, *((row.key.kind, row.key.words, row.candidate, _time(row.microseconds), _time(row.instead),
                          "known" if row.key in before else "") for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for cell in cells:
        print("  ".join(text.rjust(width) if at in (3, 4) else text.ljust(width)
                        for at, (text, width) in enumerate(zip(cell, widths, strict=True))).rstrip())
    if len(rows) == len(before) and not status:
        print("nothing was timed: the script compiled nothing that the table does not know", file=sys.stderr)
    return status


def _gpu(script: str) -> GpuModel:
    """The GPU that kernels are timed on.

    Raises:
        Nothing: there is none, or no script.
    """
    from genesis.cli.dump import Nothing
    from genesis.codegen.cuda.gpu_model import GpuModel
    from genesis.engine.backends import backend_named
    if not Path(script).is_file():
        raise Nothing(f"there is no file {script}")
    backend = backend_named("cuda")
    if not backend.device_count() or not isinstance(backend.gpu, GpuModel):
        raise Nothing("there is no GPU here, and times of another decide nothing; try: a machine with one")
    return backend.gpu


def _time(microseconds: float | None) -> str:
    return "-" if microseconds is None else f"{microseconds:.1f}"
