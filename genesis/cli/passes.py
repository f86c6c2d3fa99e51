"""Run a script and print what each pass of the compiler did to its program.

A row is a pass, in the order of `genesis/passes/pipeline.py`: its name, what `genesis dump --stage` calls the program
after it, which backends want it, its milliseconds, and how many nodes (once grouped: groups; once lowered: steps) went
in and came out. A pass that another row sends back to stands as often as it ran.

    genesis passes train.py
    genesis passes train.py --target h100 --all -- --steps 1
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from genesis.cli.dump import Nothing, add_target, add_which_plans, chosen_plans, program, refuse
from genesis.cli.pass_rows import pass_rows, size_text

HELP = "run a script and say what each pass did, and how long it took"

HEADINGS = ("pass", "stage", "backends", "ms", "before", "after")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("script", help="the Python file to run")
    parser.set_defaults(rest=[])  # the script's own arguments, after --
    parser.add_argument("--json", action="store_true", help="print a JSON list, one object a plan")
    add_target(parser)
    add_which_plans(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the script, print. 0: printed; 1: the script failed (what it had compiled is shown); 2: nothing to show."""
    try:
        plans, numbers, status = chosen_plans(arguments)
    except Nothing as error:
        return refuse("passes", error)
    shown = []
    for number in numbers:
        found = program(plans[number - 1], arguments.target)
        if not found.ran:  # its passes ran just now, and imported what they need: the second time is the passes' own
            found = program(plans[number - 1], arguments.target)
        target, rows = arguments.target or found.target, pass_rows(found)
        if arguments.json:
            shown.append({"plan": number, "of": len(plans), "target": target, "passes": rows})
        else:
            spent = sum(row["ms"] or 0 for row in rows)
            print(f"# plan {number} of {len(plans)}, for {target}: {spent:.1f} ms in passes\n{table(rows)}")
    if arguments.json:
        print(json.dumps(shown, indent=1))
    return status


def table(rows: list[dict[str, Any]]) -> str:
    """The rows under their headings. A pass that did not run has dashes."""
    cells = [HEADINGS] + [(row["name"], row["stage"],
                           row["backends"] if row["backends"] == "all" else ", ".join(row["backends"]),
                           "-" if row["ms"] is None else f"{row['ms']:.2f}", size_text(row, "before"),
                           size_text(row, "after")) for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(cell.rjust(width) if at > 2 else cell.ljust(width)
                               for at, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
                     for line in cells)
