"""The report of a profile as text: kernels, the host's time by line, compilation by pass, and what held the peak."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from genesis.profiler.averages import aligned, amount, duration

if TYPE_CHECKING:
    from genesis.profiler.averages import Averages
    from genesis.profiler.recorder import Recorder

LINES_SHOWN = 12
"""Rows of lines, passes and holders of memory; the rest is small."""


def report(recorder: Recorder, averages: Averages, sort_by: str, row_limit: int) -> str:
    """All that was recorded."""
    parts = [averages.table(sort_by, row_limit)]
    if recorder.lines:
        parts.append(_host(recorder))
    if any(span.kind == "compile" for span in recorder.spans):
        parts.append(_compilation(recorder))
    for device, memory in recorder.memory.items():
        rows = [["Line", "Bytes"], *([line, amount(held, "B")] for line, held in memory.at_peak.most_common(LINES_SHOWN)
                                     if held > 0)]
        parts.append(f"Memory on {device}: {amount(memory.peak, 'B')} at the peak, held by\n{aligned(rows)}")
    return "\n\n".join(parts)


def _host(recorder: Recorder) -> str:
    total = sum(recorder.lines.values())
    rows = [["Line", "Time", "Share"], *([line, duration(spent / 1e3), f"{spent / total:.1%}"]
                                         for line, spent in recorder.lines.most_common(LINES_SHOWN))]
    return f"The host's time by the line that it was at: {duration(total / 1e3)}\n{aligned(rows)}"


def _compilation(recorder: Recorder) -> str:
    passes: Counter[str] = Counter()
    for span in recorder.spans:
        if span.kind == "pass":
            passes[span.name] += span.duration
    found = [span for span in recorder.spans if span.kind == "compile"]
    spent = sum(span.duration for span in found)
    rows = [["Name", "Time"], *([name, duration(each / 1e3)] for name, each in passes.most_common(LINES_SHOWN))]
    return f"Compilation of {len(found)} plans: {duration(spent / 1e3)}, of it in passes\n{aligned(rows)}"
