"""`genesis dump peak`: what is alive where a program takes the most memory, by the user's lines."""

from __future__ import annotations

from typing import Any

from genesis.cli.inspect import Program, lines_of, name_of
from genesis.ir.printer import type_text
from genesis.passes.memory.most_alive import most_alive


def peak_data(program: Program) -> dict[str, Any]:
    """The peak as plain data: the kernel at which it is, and what is alive by line, op and type."""
    if not program.schedule.groups:
        return {"group": None, "kernel": "", "lines": [], "alive_bytes": 0, "lent_bytes": 0, "alive": []}
    at, alive = most_alive(program.schedule, program.memory)
    group = program.schedule.groups[at]
    rows: dict[tuple[str, str, str, bool], dict[str, Any]] = {}
    for x in alive:
        line = "" if x.value.source is None else str(x.value.source)
        key = line, x.value.op.name, type_text(x.value.type), x.place.where == "output"
        row = rows.setdefault(key, {"bytes": 0, "values": 0, "op": key[1], "type": key[2], "line": line,
                                    "lent": key[3]})
        row["bytes"] += x.nbytes
        row["values"] += 1
    lent = sum(row["bytes"] for row in rows.values() if row["lent"])
    return {"group": at, "kernel": name_of(group), "lines": list(lines_of(group)),
            "alive_bytes": sum(row["bytes"] for row in rows.values()) - lent, "lent_bytes": lent,
            "alive": sorted(rows.values(), key=lambda row: -row["bytes"])}


def peak_text(program: Program) -> str:
    """The same for people: a line for what is alike."""
    data = peak_data(program)
    if data["group"] is None:
        return "no kernel runs"
    lines = ", ".join(data["lines"])
    return "\n".join([
        f"the most is alive at {data['group']} {data['kernel']}{' (' if lines else ''}{lines}{')' if lines else ''}: "
        f"{data['alive_bytes']:,} bytes of the arena; {data['lent_bytes']:,} more in outputs that are written later",
        *(f"{row['bytes']:16,}  {row['values']:4d} × {row['type']} {row['op']}{' (lent)' if row['lent'] else ''}"
          f"  {row['line']}".rstrip() for row in data["alive"])])
