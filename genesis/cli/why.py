"""Run a script and say why its ops are in the kernels they are in, and why two of them are not in one.

Each kernel's reason comes first, with the tile or form that it was made in and who says so (the model, the shipped
table, or one that was tuned here: `genesis tune`), then the fusions that were tried and refused, by reason, with the
lines of the script on both sides. Between them, of a program of many ranks: where each collective was placed, the
kernels beside it, which hide it, and those that wait for it. By default for CUDA, which needs no GPU: the CPU fuses
nothing.

    genesis why train.py
    genesis why train.py --op softmax -- --steps 1

With the word `recompile` it says of each plan that the script made whether it was compiled, and if another plan of the
same program was there, which of that one's sizes or guards kept it from serving: sizes that are compiled alike are
listed as ranges. Scripts run where they say; on the CPU no plan has kernels, and a plan is
filled in for all sizes but a program's first two. At the end it tells what was compiled in the background
(`genesis.config.background_compile`).

    genesis why recompile train.py
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from typing import Any

from genesis.cli.dump import Nothing, about_targets, chosen_plans, program, refuse
from genesis.cli.inspect import Program, made_as, name_of
from genesis.cli.why_collectives import collective_lines
from genesis.ir.node import Node
from genesis.ir.suggest import did_you_mean

Asked = Callable[[Node], bool]
"""Whether a node is one that the user asks for."""

MOST_INPUTS = 4
"""Inputs of a plan that `recompile` lists."""

HELP = "run a script and say why its ops were fused, or not"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("words", nargs="+", metavar="[recompile] script", help="the Python file to run")
    parser.set_defaults(rest=[])  # the script's own arguments, after --
    parser.add_argument("--target", default="cuda",
                        help=f"what to compile for: {about_targets()} (default: %(default)s)")
    parser.add_argument("--op", help="only kernels and refusals that this op takes part in")
    parser.add_argument("--plan", type=int, metavar="N", help="the N-th plan that the script made (default: the last)")
    parser.set_defaults(all=False)


def run(arguments: argparse.Namespace) -> int:
    """Run the script, print. 0: printed; 1: the script failed; 2: nothing to show."""
    *asked_for, arguments.script = arguments.words
    if asked_for not in ([], ["recompile"]):
        return refuse("why", Nothing(f"there is one script, and before it nothing but 'recompile', not "
                                     f"{' '.join(asked_for)!r}"))
    try:
        if asked_for:
            return _recompile(arguments)
        plans, (number,), status = chosen_plans(arguments)
    except Nothing as error:
        return refuse("why", error)
    found = program(plans[number - 1], arguments.target)
    print(f"# plan {number} of {len(plans)}, for {arguments.target}")
    if found.fixed_sizes is not None:
        print(f"# its sizes stay numbers, so that another size is compiled anew: {found.fixed_sizes}")
    asked, note = _asked(found, arguments.op)
    collectives = collective_lines(found.schedule, _line) if arguments.op is None else []
    print("\n".join([*note, *_together(found, asked), "", *collectives, *_apart(found, asked)]))
    return status


def _recompile(arguments: argparse.Namespace) -> int:
    """Print where each plan comes from, and for those that were compiled again why."""
    arguments.all = arguments.plan is None
    plans, numbers, status = chosen_plans(arguments)
    for number in numbers:
        plan = plans[number - 1]
        sizes = ", ".join(f"{x.dtype}{list(x.shape)}" for x in plan.plan.inputs[:MOST_INPUTS])
        more = ", …" if len(plan.plan.inputs) > MOST_INPUTS else ""
        print(f"# plan {number} of {len(plans)}: {plan.origin} in {plan.seconds * 1e3:.1f} ms, of {sizes}{more}")
        if plan.background:
            print("    its template was compiled in the background, before a size of its class occurred")
        if plan.fixed_sizes is not None:
            print(f"    its sizes stay numbers: {plan.fixed_sizes}")
        elif not plan.backend.keeps_plans:
            print(f"    {_without_kernels(plan)}")
        for line in plan.recompilation.lines() if plan.recompilation is not None else ():
            print(f"    {line}")
    from genesis.engine.background import report
    for line in report().lines():
        print(f"# in the background: {line}")
    return status


def _without_kernels(plan: Any) -> str:
    """What is to be said of a plan of a backend that compiles no kernels."""
    name = plan.backend.name
    if not plan.backend.any_size:
        return f"{name} has a plan for each size, and no kernels to compile"
    if plan.origin == "other size":
        return "filled in from the plan that its program's second size has made"
    return f"{name} has no kernels to compile; a program's second size makes the plan that others are filled in from"


def _asked(found: Program, op: str | None) -> tuple[Asked, list[str]]:
    """Which nodes `op` stands for, and what to say of it.

    An op that the backend decomposes is in no kernel. What its user wants to see are the kernels of its lines.
    """
    if op is None:
        return (lambda node: True), []
    if any(node.op.name == op for group in found.schedule.groups for node in group.nodes):
        return (lambda node: node.op.name == op), []
    lines = {node.source for work in found.works.values() for node in work.graph.nodes if node.op.name == op} - {None}
    if not lines:
        known = {node.op.name for work in found.works.values() for node in work.graph.nodes}
        return (lambda node: False), [f"the program has no op named {op}{did_you_mean(op, known)}"]
    return (lambda node: node.source in lines), [f"{op} is computed as other ops; these kernels come from its lines"]


def _together(found: Program, asked: Asked) -> list[str]:
    """A line for each kernel: what it is, why, and from which lines."""
    lines = []
    for group in found.schedule.groups:
        if any(map(asked, group.nodes)):
            lines.append(f"{name_of(group)}: {group.reason}")
            kernel = found.backend.kernel_source(group)
            if kernel is not None and kernel.note:
                lines.append(f"    {kernel.name}: {kernel.note}")
            if kernel is not None:
                lines += [f"    made as {text}" for text in made_as(found, group, kernel)]
            lines += [f"    {place}" for place in dict.fromkeys(_line(node) for node in group.nodes if node.source)]
    return lines


def _apart(found: Program, asked: Asked) -> list[str]:
    """The refused fusions: how often each reason, and between which ops and lines."""
    refusals: Counter[tuple[str, str]] = Counter()
    for refusal in found.schedule.missed:
        if asked(refusal.producer) or asked(refusal.consumer):
            refusals[refusal.why, f"{_named(refusal.producer)} → {_named(refusal.consumer)}"] += 1
    if not refusals:
        return ["no fusion was refused"]
    lines, last = [], ""
    for (why, pair), count in sorted(refusals.items()):
        if why != last:
            lines.append(f"not fused, because {why}:")
            last = why
        lines.append(f"    {pair}" + (f"  ({count} times)" if count > 1 else ""))
    return lines


def _named(node: Node) -> str:
    return f"{node.op.name}{f' ({_line(node)})' if node.source else ''}"


def _line(node: Any) -> str:
    text = getattr(node.source, "text", "")
    return f"{node.source}: {text}" if text else str(node.source)
