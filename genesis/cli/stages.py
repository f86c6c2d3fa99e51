"""The stages that `genesis dump` can show: a row each, as text for people and as data for programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from genesis.cli.inspect import Program, kernels_of, lines_of, made_as, name_of
from genesis.cli.peak import peak_data, peak_text
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.place import Place
from genesis.ir.printer import is_literal, names_of, node_text, print_graph, type_text, value_text
from genesis.passes.groups import Schedule
from genesis.passes.pipeline import PASSES


class StageError(Exception):
    """The program has no such stage; the message says what to do."""


@dataclass(frozen=True)
class Stage:
    """One row: how a stage of a program is printed, and how it becomes JSON."""

    name: str
    doc: str
    text: Callable[[Program], str]
    data: Callable[[Program], Any]


# Graphs

def graph_stage(name: str, doc: str) -> Stage:
    """A stage that is a graph: the program after one of the passes."""
    return Stage(name, doc, lambda program: print_graph(program.works[name].graph),
                 lambda program: graph_data(program.works[name].graph))


def graph_data(graph: Graph) -> dict[str, Any]:
    """The graph as plain data; values are named as in its text, a literal stands as its text."""
    names = names_of(graph)

    def reference(node: Node) -> str:
        return value_text(node["value"]) if is_literal(node) else names[node]

    return {
        "inputs": [{"name": names[x], "type": str(x.type)} for x in graph.inputs],
        "numbers": graph.numbers,
        "nodes": [{"name": names[node], "op": node.op.name, "inputs": [reference(x) for x in node.inputs],
                   "attributes": {name: value_text(value) for name, value in node.attributes.items()},
                   "type": type_text(node.type), "source": _source(node)}
                  for node in graph.nodes if node in names and node.op.name != "input"],
        "updates": [[names[state], reference(value)] for state, value in graph.updates],
        "outputs": [reference(x) for x in graph.outputs],
    }


def _source(node: Node) -> str | None:
    return None if node.source is None else str(node.source)


# Groups

def groups_stage(name: str, doc: str) -> Stage:
    """A stage that is groups: the program after one of the passes over schedules."""
    return Stage(name, doc, lambda program: schedule_text(_scheduled(program, name)),
                 lambda program: schedule_data(_scheduled(program, name)))


def _scheduled(program: Program, stage: str) -> Schedule:
    schedule = program.works[stage].schedule
    assert schedule is not None
    return schedule


def groups_text(program: Program) -> str:
    """The groups of the plan."""
    return schedule_text(program.schedule)


def groups_data(program: Program) -> list[dict[str, Any]]:
    """The groups of the plan as plain data."""
    return schedule_data(program.schedule)


def schedule_text(schedule: Schedule) -> str:
    """Each group: what it reads, its nodes, what it writes, and why it is one."""
    names = names_of(schedule.graph)
    parts = []
    for position, group in enumerate(schedule.groups):
        lines = [f"group {position}: {group.kind} {name_of(group)}", f"  why    {group.reason}"]
        if group.inputs:
            lines.append("  reads  " + ", ".join(f"{names[x]}: {type_text(x.type)}" for x in group.inputs))
        for node in group.nodes:
            if node in names and node.op.name != "input":
                source = "" if node.source is None else f"  # {node.source}"
                lines.append(f"    {node_text(node, names)}{source}")
        lines.append("  writes " + ", ".join(names[x] for x in group.outputs))
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def schedule_data(schedule: Schedule) -> list[dict[str, Any]]:
    """The groups as plain data; values have the names of the graph that was grouped."""
    names = names_of(schedule.graph)
    return [{"kind": group.kind, "name": name_of(group), "reason": group.reason, "lines": list(lines_of(group)),
             "inputs": [names[x] for x in group.inputs], "outputs": [names[x] for x in group.outputs],
             "nodes": [node_text(node, names) for node in group.nodes if node in names and node.op.name != "input"]}
            for group in schedule.groups]


# Kernels and their memory

def kernels_text(program: Program) -> str:
    """One line a kernel, in the order in which they run, and what it was made as where there was a choice."""
    rows = kernels_data(program)
    width = max((len(row["name"]) for row in rows), default=0)
    shape = [f"{row['name']:<{width}}  {_launch(row)}{', '.join(row['lines'])}".rstrip() for row in rows]
    made = ["".join(f"\n      made as {text}" for text in row.get("choices", ())) for row in rows]
    lines = [line + more for line, more in zip(shape, made, strict=True)]
    return "\n".join(f"{position:4d}  {line}" for position, line in enumerate(lines))


def kernels_data(program: Program) -> list[dict[str, Any]]:
    """The kernels as plain data; on CUDA with grid and warps."""
    rows = []
    for group, kernel in kernels_of(program):
        row: dict[str, Any] = {"name": name_of(group), "kind": group.kind, "lines": list(lines_of(group))}
        if kernel is not None:
            row |= {"name": kernel.name, "grid": list(kernel.grid), "num_warps": kernel.num_warps,
                    "choices": list(made_as(program, group, kernel))}
        rows.append(row)
    return rows


def _launch(row: dict[str, Any]) -> str:
    return f"grid {'x'.join(map(str, row['grid']))}, {row['num_warps']} warps  " if "grid" in row else ""


def plan_text(program: Program) -> str:
    """Where every value is while the program runs."""
    data = plan_data(program)
    return "\n".join([memory_line(data), *(
        f"{position:4d}  {step['name']}({', '.join(step['reads'])}) → {', '.join(step['writes'])}"
        for position, step in enumerate(data["steps"]))])


def memory_line(data: dict[str, Any]) -> str:
    """How much memory a plan takes, in a sentence (`data`: of `plan_data`)."""
    return (f"arena {data['arena_bytes']:,} bytes, {data['peak_over_max_live']:.3f} × the {data['max_live_bytes']:,} "
            f"that are alive at one time; with {data['input_bytes']:,} of inputs and {data['output_bytes']:,} of "
            f"outputs the program takes {data['peak_bytes']:,}")


def plan_data(program: Program) -> dict[str, Any]:
    """The memory plan as plain data."""
    names, places = names_of(program.schedule.graph), program.memory.places

    def where(node: Node) -> str:
        place = places.get(node)
        return f"{names.get(node, '%?')} {'a view' if place is None else _place(place)}"

    graph, arena, live = program.schedule.graph, program.memory.arena_bytes, program.memory.max_live_bytes
    given, returned = (sum(x.type.nbytes for x in nodes) for nodes in (graph.inputs, graph.outputs))
    return {"arena_bytes": arena, "max_live_bytes": live, "peak_over_max_live": arena / live if live else 1.0,
            "input_bytes": given, "output_bytes": returned, "peak_bytes": arena + given + returned,
            "steps": [{"name": name_of(group), "reads": [where(x) for x in group.inputs],
                       "writes": [where(x) for x in group.outputs]} for group in program.schedule.groups]}


def _place(place: Place) -> str:
    offset = f"+{place.offset}" if place.offset else ""  # of a value in an output that is written later
    return f"arena+{place.offset}" if place.where == "arena" else f"{place.where}[{place.index}]{offset}"


def triton_text(program: Program) -> str:
    """The source of every distinct kernel."""
    return "\n\n".join(f"# {row['name']}: {row['count']} launch{'es' if row['count'] > 1 else ''}\n{row['source']}"
                       for row in triton_data(program))


def triton_data(program: Program) -> list[dict[str, Any]]:
    """The distinct kernels, with how many groups run each."""
    if program.backend.gpu is None:
        where = "the CPU, as torch calls" if program.target == "cpu" else f"{program.target}, as calls"
        raise StageError(f"this plan ran on {where}; --target cuda shows the Triton that it would be")
    rows: dict[str, dict[str, Any]] = {}
    for _, kernel in kernels_of(program):
        if kernel is not None:
            row = rows.setdefault(kernel.source, {"name": kernel.name, "source": kernel.source, "count": 0})
            row["count"] += 1
    return list(rows.values())


# Code

def code_text(program: Program) -> str:
    """What runs: the kernels' source, or the calls in order, over places in memory."""
    if program.backend.gpu is not None:
        return triton_text(program)
    return "\n".join(f"{position:4d}  {row['name']}({', '.join(row['reads'])}) → {', '.join(row['writes'])}"
                     for position, row in enumerate(code_data(program)))


def code_data(program: Program) -> list[dict[str, Any]]:
    """The same as plain data."""
    if program.backend.gpu is not None:
        return triton_data(program)
    calls, registers = program.backend.lower(program.schedule, program.memory)

    def shown(index: int) -> str:
        start = registers[index]
        return f"#{index}" if start is None else _place(start) if isinstance(start, Place) else repr(start)
    return [{"name": call.label.partition("  #")[0] or "copy", "kind": call.kind, "reads": [*map(shown, call.args)],
             "writes": [*map(shown, call.outs)]} for call in calls]


# The table

_MADE = {"group": groups_stage, "schedule": groups_stage,
         "plan_memory": lambda name, doc: Stage(name, doc, plan_text, plan_data),
         "lower": lambda name, doc: Stage(name, doc, code_text, code_data)}
"""Passes after which the program is more than a graph → how that is shown."""

STAGES = (
    *(_MADE.get(row.name, graph_stage)(row.stage, row.doc) for row in PASSES),
    Stage("groups", "what becomes one kernel, and why", groups_text, groups_data),
    Stage("kernels", "the kernels in order", kernels_text, kernels_data),
    Stage("plan", "where each value is in memory", plan_text, plan_data),
    Stage("peak", "what is alive where the most memory is taken, by line", peak_text, peak_data),
    Stage("triton", "source of the generated kernels", triton_text, triton_data),
)
"""A stage for each row of the pass list, then what the finished program is made of."""


def stage_named(name: str) -> Stage:
    """The row with this name."""
    return next(stage for stage in STAGES if stage.name == name)
