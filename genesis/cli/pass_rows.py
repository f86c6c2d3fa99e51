"""What each pass did to a program, as plain rows: `genesis passes` prints all of them, `genesis dump` a stage's."""

from __future__ import annotations

from typing import Any

from genesis.cli.inspect import Program
from genesis.passes.pipeline import PASSES, Pass, PassReport


def pass_rows(found: Program) -> list[dict[str, Any]]:
    """A row for each time that a pass ran, and one for each that did not, in the order of the list."""
    backends, reports = wanted_by(), list(found.reports)
    rows, unit = [], "nodes"
    position = {row.name: at for at, row in enumerate(PASSES)}
    reached = 0  # the first row of the list that is not told yet
    for report in reports:
        for row in PASSES[reached:position[report.name]]:
            rows.append(_row(row, backends, None, unit))
        reached = max(reached, position[report.name] + 1)
        rows.append(_row(PASSES[position[report.name]], backends, report, unit))
        unit = report.unit
    return rows + [_row(row, backends, None, unit) for row in PASSES[reached:]]


def wanted_by() -> dict[str, list[str]]:
    """Pass → the registered backends that it runs for; none named: all."""
    from genesis.engine.backends import backend_named
    from genesis.ir.types import device_types
    passes = {name: backend_named(name).passes for name in device_types()}
    return {row.name: [name for name, wanted in passes.items() if row.name in wanted] if row.optional else []
            for row in PASSES}


def _row(row: Pass, backends: dict[str, list[str]], report: PassReport | None, unit: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": row.name, "stage": row.stage, "backends": backends[row.name] or "all"}
    if report is None:
        return found | dict.fromkeys(("ms", "before", "after", "units"))
    return found | {"ms": report.seconds * 1e3, "before": report.before, "after": report.after,
                    "units": [unit, report.unit]}


def stage_row(found: Program, stage: str) -> dict[str, Any] | None:
    """The row of the pass that a stage comes out of, of its last run; None for a stage that is no pass's."""
    return next((row for row in reversed(pass_rows(found)) if row["stage"] == stage), None)


def row_text(row: dict[str, Any], target: str) -> str:
    """A line about a pass."""
    if row["ms"] is None:
        return f"the pass {row['name']} did not run for {target}"
    return f"the pass {row['name']}: {size_text(row, 'before')} → {size_text(row, 'after')}, {row['ms']:.2f} ms"


def size_text(row: dict[str, Any], which: str) -> str:
    """How large the program was "before" or "after" a pass; a dash for a pass that did not run."""
    return "-" if row["units"] is None else f"{row[which]} {row['units'][which == 'after']}"
