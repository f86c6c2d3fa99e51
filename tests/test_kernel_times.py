"""benchmarks/kernel_times.py: what a trace says of collectives and of what runs beside them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import kernel_times


def event(name: str, begin: float, end: float, kind: str = "kernel") -> dict[str, Any]:
    return {"ph": "X", "cat": kind, "name": name, "ts": begin, "dur": end - begin}


def test_a_step_s_times_are_means_and_collectives_are_told_of_the_last_one() -> None:
    """Microseconds; the reduction overlaps the product by half a millisecond, in both steps."""
    step = [("product", 0, 1000), ("nccl_sum", 500, 2500), ("update", 3000, 4000)]
    events = [event(name, at + begin, at + end) for at in (4500, 0) for name, begin, end in step]
    trace = {"traceEvents": [*events, event("copy", 0, 9000, "gpu_memcpy"), {"ph": "M", "name": "process_name"}]}
    found = kernel_times.told(kernel_times.kernels_of(trace), 2)
    assert (found["from first to last"], found["no kernel"]) == (4.25, 0.75)
    assert (found["collectives"], found["nothing but collectives"], found["kernels"]) == (2, 1.5, 2)
    assert found["last step"] == [(0.5, 2, 1.5)]
    assert found["by kind"] == {"nccl_sum": 2, "product": 1, "update": 1}
