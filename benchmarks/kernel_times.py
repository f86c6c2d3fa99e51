"""What a trace of a GPU's kernels says of a step: how long each kind takes, what collectives have beside them, and
where nothing runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

COLLECTIVE: Final = "nccl"
"""How the names of NCCL's kernels begin."""

MOST: Final = 14
"""Kinds of kernels that are told, those that take longest."""


class Kernel(NamedTuple):
    """A kernel's name, and when it began and ended, in microseconds."""

    name: str
    begin: float
    end: float


def kernels_of(trace: dict[str, Any]) -> list[Kernel]:
    """The kernels of a Chrome trace, as torch's profiler writes it, in the order in which they began."""
    found = [Kernel(event["name"], event["ts"], event["ts"] + event["dur"]) for event in trace["traceEvents"]
             if event.get("cat") == "kernel"]
    return sorted(found, key=lambda kernel: kernel.begin)


def told(kernels: Sequence[Kernel], steps: int) -> dict[str, Any]:
    """Milliseconds of a step, means of these equal ones; and of the last one's collectives when they began behind its
    first kernel, how long they took, and how long of that nothing else ran.

    >>> found = told([Kernel("product", 0, 1000), Kernel("nccl_sum", 500, 2500), Kernel("update", 3000, 4000)], 1)
    >>> found["from first to last"], found["no kernel"], found["collectives"], found["nothing but collectives"]
    (4.0, 0.5, 2.0, 1.5)
    >>> found["by kind"], found["last step"]
    ({'nccl_sum': 2.0, 'product': 1.0, 'update': 1.0}, [(0.5, 2.0, 1.5)])
    """
    calls = [kernel for kernel in kernels if kernel.name.startswith(COLLECTIVE)]
    others = _union(kernel for kernel in kernels if not kernel.name.startswith(COLLECTIVE))
    everything = _union(kernels)
    by_kind: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        by_kind[kernel.name] += (kernel.end - kernel.begin) / 1e3 / steps
    span = everything[-1][1] - everything[0][0]
    last = kernels[len(kernels) - len(kernels) // steps].begin
    return {"from first to last": round(span / 1e3 / steps, 3),
            "no kernel": round((span - _length(everything)) / 1e3 / steps, 3),
            "collectives": round(sum(call.end - call.begin for call in calls) / 1e3 / steps, 3),
            "nothing but collectives": round(sum(_alone(call, others) for call in calls) / 1e3 / steps, 3),
            "kernels": round(sum(kernel.end - kernel.begin for kernel in kernels if kernel not in calls) / 1e3 / steps,
                             3),
            "last step": [(round((call.begin - last) / 1e3, 2), round((call.end - call.begin) / 1e3, 2),
                           round(_alone(call, others) / 1e3, 2)) for call in calls if call.begin >= last],
            "by kind": {name: round(ms, 3) for name, ms in sorted(by_kind.items(), key=lambda x: -x[1])[:MOST]}}


def _union(kernels: Iterable[Kernel]) -> list[tuple[float, float]]:
    """When any of them runs: times from, to, which do not touch."""
    found: list[tuple[float, float]] = []
    for kernel in sorted(kernels, key=lambda kernel: kernel.begin):
        if found and kernel.begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], kernel.end)
        else:
            found.append((kernel.begin, kernel.end))
    return found


def _length(times: Iterable[tuple[float, float]]) -> float:
    return sum(end - begin for begin, end in times)


def _alone(call: Kernel, others: Iterable[tuple[float, float]]) -> float:
    """How long of a kernel's time none of the others ran."""
    return call.end - call.begin - sum(max(0.0, min(end, call.end) - max(begin, call.begin)) for begin, end in others)
