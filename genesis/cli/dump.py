"""Run a script and print what the compiler made of it, at any stage.

The script runs as usual, with the arguments after `--`; what it prints goes to stderr. Every program that was
compiled meanwhile is a plan, numbered from 1; the last one is shown unless --plan or --all says otherwise.

    genesis dump train.py --stage groups
    genesis dump train.py --stage triton --target cuda --plan 2 -- --steps 1
    genesis dump train.py --stage triton --target cuda --kernel softmax
    genesis dump train.py --stage triton --target l4
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

from genesis.codegen.cuda.gpu_model import MODELS

HELP = "run a script and print a stage of its compilation"

TARGETS = ("cpu", "cuda", *MODELS)
"""What programs can be compiled for."""

ABOUT_TARGETS = "cuda is the GPU at hand, or an H200 where there is none; no GPU has to be there"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    from genesis.cli.stages import STAGES
    parser.add_argument("script", help="the Python file to run")
    parser.set_defaults(rest=[])  # the script's own arguments, after --
    parser.add_argument("--stage", choices=[stage.name for stage in STAGES], default="groups",
                        help="; ".join(f"{stage.name}: {stage.doc}" for stage in STAGES) + " (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print a JSON list, one object a plan")
    parser.add_argument("--target", choices=TARGETS, help=f"compile for this instead of what ran it; {ABOUT_TARGETS}")
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
    target = arguments.target
    shown: list[dict[str, Any]] = []
    for number in numbers:
        try:
            found = program(plans[number - 1], target)
            if arguments.kernel is not None:
                found = with_kernels(found, arguments.kernel)
            if arguments.json:
                shown.append({"plan": number, "of": len(plans), "target": target or found.target, "stage": stage.name,
                              "value": stage.data(found)})
            else:
                print(f"# plan {number} of {len(plans)}, for {target or found.target}: {stage.name}, {stage.doc}")
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
    """A plan's program as it was compiled, or as it would be for another backend or GPU."""
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
