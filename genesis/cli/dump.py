"""Run a script and print what the compiler made of it, at any stage.

The script runs as usual, with the arguments after `--`; what it prints goes to stderr. Every program that was
compiled meanwhile is a plan, numbered from 1; the last one is shown unless --plan or --all says otherwise.

    genesis dump train.py --stage groups
    genesis dump train.py --stage autodiff            # a pass, for what comes out of it
    genesis dump train.py --stage triton --target cuda --plan 2 -- --steps 1
    genesis dump train.py --stage triton --target cuda --kernel softmax
    genesis dump train.py --stage triton --target l4
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from genesis.cli.script import run_script
from genesis.ir.suggest import did_you_mean

HELP = "run a script and print a stage of its compilation"


def targets() -> tuple[str, ...]:
    """What programs can be compiled for: registered device types, and GPUs by name."""
    from genesis.codegen.cuda.gpu_model import MODELS
    from genesis.engine import backends  # noqa: F401  # registers what Genesis has
    from genesis.ir.types import device_types
    return (*device_types(), *MODELS)


def about_targets() -> str:
    """What `--target` may be, for its help."""
    return (f"{', '.join(targets())}, or a backend that the script registers; cuda is the GPU at hand, or an H200 "
            "where there is none, and no GPU has to be there")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    from genesis.cli.stages import STAGES
    parser.add_argument("script", help="the Python file to run")
    parser.set_defaults(rest=[])  # the script's own arguments, after --
    parser.add_argument("--stage", type=stage_called, metavar="STAGE", default="groups",
                        help="; ".join(f"{stage.name}: {stage.doc}" for stage in STAGES)
                        + "; or a pass, for the stage that comes out of it (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print a JSON list, one object a plan")
    add_target(parser)
    parser.add_argument("--kernel", metavar="NAME", help="of the groups and kernels only those with this in their name")
    add_which_plans(parser)


def stage_called(name: str) -> str:
    """The stage that somebody means by its name, or by that of the pass that it comes out of.

    Raises:
        ArgumentTypeError: there is no such stage or pass.
    """
    from genesis.cli.stages import STAGES
    from genesis.passes.pipeline import PASSES
    meant = {**{row.name: row.stage for row in PASSES}, **{stage.name: stage.name for stage in STAGES}}
    if name not in meant:
        raise argparse.ArgumentTypeError(f"no stage or pass is named {name!r}{did_you_mean(name, meant) or ';'} "
                                         "genesis dump --help lists them")
    return meant[name]


def add_target(parser: argparse.ArgumentParser) -> None:
    """The flag that says what to compile for."""
    parser.add_argument("--target", help=f"compile for this instead of what ran it: {about_targets()}")


def add_which_plans(parser: argparse.ArgumentParser) -> None:
    """The flags that say which plans to show."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="every plan, in the order in which they were made")
    which.add_argument("--plan", type=int, metavar="N", help="the N-th plan")


def run(arguments: argparse.Namespace) -> int:
    """Run the script, print. 0: printed; 1: the script failed (what it had compiled is shown); 2: nothing to show."""
    from genesis.cli.stages import StageError, stage_named
    stage = stage_named(arguments.stage)
    try:
        plans, numbers, status = chosen_plans(arguments)
        shown = [_shown(plans[number - 1], number, len(plans), stage, arguments) for number in numbers]
    except (Nothing, StageError) as error:
        return refuse("dump", error)
    print(json.dumps([data for _, data in shown], indent=1) if arguments.json
          else "\n".join(text for text, _ in shown))
    return status


def _shown(compiled: Any, number: int, count: int, stage: Any, arguments: argparse.Namespace) -> tuple[str, Any]:
    """A plan's stage as text, or as data; beside a plan of calls, the one that CUDA would get."""
    from genesis.cli.beside import beside, beside_data, beside_text
    from genesis.cli.pass_rows import row_text, stage_row
    found = program(compiled, arguments.target)
    also = beside(found) if stage.name == "groups" and arguments.target is None else None
    if arguments.kernel is not None:
        found = with_kernels(found, arguments.kernel)
    target, made_by = arguments.target or found.target, stage_row(found, stage.name)
    if arguments.json:
        data = {"plan": number, "of": count, "target": target, "stage": stage.name, "pass": made_by,
                "value": stage.data(found)}
        return "", data if also is None else {**data, "beside": beside_data(also)}
    about = [f"plan {number} of {count}, for {target}: {stage.name}, {stage.doc}"]
    if made_by is not None:
        about.append(row_text(made_by, target))
    text = "\n".join([*(f"# {line}" for line in about), stage.text(found)])
    return text if also is None else f"{text}\n\n{beside_text(also)}", None


class Nothing(Exception):
    """There is nothing to show; the message says why. `status` is the command's."""

    def __init__(self, problem: str, status: int = 2):
        super().__init__(problem)
        self.status = status


def chosen_plans(arguments: argparse.Namespace) -> tuple[list[Any], Sequence[int], int]:
    """(all plans that the script made, the numbers of those to show, 1 if the script failed else 0).

    Raises:
        Nothing: no such script, plan or target.
    """
    if not Path(arguments.script).is_file():
        raise Nothing(f"there is no file {arguments.script}")
    plans, status = plans_of(arguments.script, arguments.rest)
    if not plans:
        raise Nothing("" if status else "the script computed nothing with Genesis, so there is no plan to show",
                      status or 2)
    if arguments.target not in (None, *targets()):
        raise Nothing(f"--target {arguments.target} is no backend"
                      f"{did_you_mean(arguments.target, targets()) or ';'} there are {', '.join(targets())}")
    if arguments.plan is not None and not 1 <= arguments.plan <= len(plans):
        raise Nothing(f"there are {len(plans)} plans, numbered from 1; --plan {arguments.plan} is none of them")
    return plans, range(1, len(plans) + 1) if arguments.all else [arguments.plan or len(plans)], status


def refuse(command: str, problem: Exception) -> int:
    """Say on stderr why a command shows nothing; returns its exit status."""
    if str(problem):
        print(f"genesis {command}: {problem}", file=sys.stderr)
    return problem.status if isinstance(problem, Nothing) else 2


def plans_of(script: str, arguments: list[str]) -> tuple[list[Any], int]:
    """(all plans that were built while the script ran, 1 if it failed else 0)."""
    from genesis import engine
    plans: list[Any] = []
    with engine.observe(plans.append):
        status = run_script(script, arguments)
    return plans, status


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
