"""The stages of the golden programs as text, as one JSON object on standard output: name → text.

    python -m tests.golden.stages
"""

from __future__ import annotations

import hashlib
import json

import genesis
from genesis import engine
from genesis.cli.inspect import program_for
from genesis.codegen.cuda.emit import emit
from genesis.engine.compilation import Compiled
from genesis.ir import Graph
from genesis.ir.printer import names_of, node_text, print_graph
from genesis.passes.groups import Schedule
from tests.golden.programs import CUDA, PROGRAMS

GRAPHS = ("capture", "grad", "canonical", "legal")


def texts() -> dict[str, str]:
    """Every kept text by its file's name, and a digest of all generated kernels."""
    found = {}
    digest = hashlib.sha256()
    for name, run in PROGRAMS.items():
        genesis.manual_seed(0)
        run()
        compiled = engine.last_plan()
        assert compiled is not None
        found[f"{name}.txt"] = cpu_text(compiled)
        if name in CUDA:
            schedule = program_for(compiled, "cuda").schedule
            found[f"{name}.cuda.txt"] = cuda_text(schedule)
            for group in schedule.groups:
                digest.update(emit(group).source.encode())
    return {**found, "kernels": digest.hexdigest()}


def cpu_text(compiled: Compiled) -> str:
    """The graph after each pass, and the groups with the places of their results."""
    parts, before = [], ""
    for stage in GRAPHS:
        graph = compiled.stages[stage]
        assert isinstance(graph, Graph)
        text = print_graph(graph, sources=False)
        parts.append(f"== {stage}\n{text if text != before else 'as before'}")
        before = text
    parts.append("== groups\n" + "\n".join(_group_lines(compiled)))
    return "\n\n".join(parts) + "\n"


def _group_lines(compiled: Compiled) -> list[str]:
    memory, names = compiled.stages["memory"], names_of(compiled.schedule.graph)
    lines = [f"arena {memory.arena_bytes}, most alive {memory.max_live_bytes}, copies "
             f"{len(memory.before)} before, {len(memory.copies)} between, {len(memory.after)} after"]
    for group in compiled.schedule.groups:
        places = [memory.places.get(x) for x in group.outputs]
        where = ", ".join("shown" if p is None else f"arena+{p.offset}" if p.where == "arena" else f"{p.where}{p.index}"
                          for p in places)
        lines.append(f"{group.kind} {node_text(group.nodes[0], names)} → {where}")
    return lines


def cuda_text(schedule: Schedule) -> str:
    """How many groups of which kind there are, and for each what it computes and why it is one."""
    kinds = [group.kind for group in schedule.groups]
    lines = [f"{len(kinds)} kernels: " + ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))]
    for group in schedule.groups:
        ops = [node.op.name for node in group.nodes if node.op.kind not in ("leaf", "movement")]
        lines += ["", f"{group.kind}: {len(group.inputs)} read, {len(group.outputs)} written", "  " + " ".join(ops),
                  f"  {group.reason}"]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(json.dumps(texts()))
