"""The launches of Genesis' last plan, each timed alone between two events and summed by kernel and operands.

    timed_launches()         # after a step: {"streamed_matmul bf16[…] …": {"ms": …, "count": …}, …}, the longest first
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import genesis
from genesis.engine import last_plan
from genesis.runtime.cuda.stream import current_stream


def timed_launches(rounds: int = 2) -> dict[str, dict[str, float]]:
    """Milliseconds and counts of the plan's launches in the last of some rounds."""
    plan = last_plan()
    assert plan is not None
    stream = current_stream(0).handle
    spent: dict[str, list[float]] = defaultdict(list)
    begin, end = genesis.cuda.Event(enable_timing=True), genesis.cuda.Event(enable_timing=True)
    for _ in range(rounds):
        spent.clear()
        for (label, start_step), step in zip(plan.executor.launches(), plan.plan.steps, strict=False):
            begin.record()
            start_step(stream)
            end.record()
            end.synchronize()
            spent[f"{label} {_shape(step)}"].append(begin.elapsed_time(end))
    rows = sorted(spent.items(), key=lambda row: -sum(row[1]))
    return {label: {"ms": sum(times), "count": len(times)} for label, times in rows}


def _shape(step: Any) -> str:
    """Types of what a launch reads and writes, largest first; matrices that the copy engine moves with their shapes."""
    places = [getattr(a, "place", a) for a in getattr(step, "args", (getattr(step, "source", None),))]
    types = {x.type for x in places if hasattr(x, "where")}
    return " ".join(str(t).replace("@cuda:0", "") for t in sorted(types, key=lambda t: -t.nbytes)[:3])
