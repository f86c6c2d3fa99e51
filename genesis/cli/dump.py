"""Run a script and print what the compiler made of it, at any stage.

The script runs as usual, with the arguments after `--`; what it prints goes to stderr. Every program that was
compiled meanwhile is a plan, numbered from 1; the last one is shown unless --plan or --all says otherwise.

    genesis dump train.py --stage groups
    genesis dump train.py --stage triton --target cuda --plan 2 -- --steps 1
    genesis dump train.py --stage triton --target cuda --kernel softmax
"""

from __future__ import annotations

import argparse
import json
import runpy
import sys
import traceback
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

HELP = "run a script and print a stage of its compilation"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    from genesis.cli.stages import STAGES
    parser.add_argument("script", help="the Python file to run")
    parser.set_defaults(rest=[])  # the script's own arguments, after --
    parser.add_argument("--stage", choices=[stage.name for stage in STAGES], default="groups",
                        help="; ".join(f"{stage.name}: {stage.doc}" for stage in STAGES) + " (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print a JSON list, one object a plan")
    parser.add_argument("--target", choices=("cpu", "cuda"),
                        help="compile for this backend instead of the one that ran it; cuda needs no GPU for that")
    parser.add_argument("--kernel", metavar="NAME", help="of the groups and kernels only those with this in their name")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="every plan, in the order in which they were made")
    which.add_argument("--plan", type=int, metavar="N", help="the N-th plan")


def run(arguments: argparse.Namespace) -> int:
    """Run the script, print. 0: printed; 1: the script failed (what it had compiled is shown); 2: nothing to show."""
    from genesis.cli.stages import StageError, stage_named
    if not Path(arguments.script).is_file():
        return _refuse(f"there is no file {arguments.script}")
    plans, status = plans_of(arguments.script, arguments.rest)
    if not plans:
        return status or _refuse("the script computed nothing with Genesis, so there is no plan to show")
    if arguments.plan is not None and not 1 <= arguments.plan <= len(plans):
        return _refuse(f"there are {len(plans)} plans, numbered from 1; --plan {arguments.plan} is none of them")
    numbers = range(1, len(plans) + 1) if arguments.all else [arguments.plan or len(plans)]
    stage = stage_named(arguments.stage)
    shown: list[dict[str, Any]] = []
    for number in numbers:
        try:
            found = program(plans[number - 1], arguments.target)
            if arguments.kernel is not None:
                found = with_kernels(found, arguments.kernel)
            if arguments.json:
                shown.append({"plan": number, "of": len(plans), "target": found.target, "stage": stage.name,
                              "value": stage.data(found)})
            else:
                print(f"# plan {number} of {len(plans)}, for {found.target}: {stage.name}, {stage.doc}")
                print(stage.text(found))
        except StageError as error:
            return _refuse(str(error))
    if arguments.json:
        print(json.dumps(shown, indent=1))
    return status


def plans_of(script: str, arguments: list[str]) -> tuple[list[Any], int]:
    """(all plans that were built while the script ran, 1 if it failed else 0)."""
    from genesis import engine
    plans: list[Any] = []
    argv, path = sys.argv, list(sys.path)
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        with engine.observe(plans.append), redirect_stdout(sys.stderr):
            runpy.run_path(script, run_name="__main__")
        return plans, 0
    except SystemExit as leaving:
        return plans, 0 if leaving.code in (None, 0) else 1
    except Exception:
        traceback.print_exc()
        return plans, 1
    finally:
        sys.argv, sys.path = argv, path


def program(compiled: Any, target: str | None) -> Any:
    """A plan's program as it was compiled, or as it would be for another backend."""
    from genesis.cli.inspect import program_for, program_of
    ran_on = compiled.plan.device.type
    return program_of(compiled) if target in (None, ran_on) else program_for(compiled, target or ran_on)


def with_kernels(found: Any, part: str) -> Any:
    """The program with only the groups whose kernel has this in its name.

    Raises:
        StageError: none has.
    """
    from genesis.cli.inspect import name_of
    from genesis.cli.stages import StageError
    groups = tuple(group for group in found.schedule.groups if part in name_of(group))
    if not groups:
        names = ", ".join(dict.fromkeys(map(name_of, found.schedule.groups)))
        raise StageError(f"no kernel has {part!r} in its name; there are {names}")
    return replace(found, schedule=replace(found.schedule, groups=groups))


def _refuse(problem: str) -> int:
    print(f"genesis dump: {problem}", file=sys.stderr)
    return 2
