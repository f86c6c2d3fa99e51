"""The passes, in the order in which they run. This list is the table of contents of the compiler."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from genesis.config import config
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.passes.gpu import Gpu
from genesis.passes.graph.autodiff import autodiff
from genesis.passes.graph.canonicalize import canonicalize
from genesis.passes.graph.inline import inline
from genesis.passes.graph.legalize import legalize
from genesis.passes.graph.patterns import apply_patterns
from genesis.passes.graph.reroll import batch_rows
from genesis.passes.groups import Schedule
from genesis.passes.memory.plan_memory import MayOverwrite, MemoryPlan, plan_memory
from genesis.passes.memory.schedule import lower_peak
from genesis.passes.remat.remat import remat


@dataclass(frozen=True)
class Backend:
    """What the passes ask a backend.

    Attributes:
        name: "cpu" or "cuda".
        supports: whether it has a lowering for a node.
        prepare: a last graph pass of its own, before grouping.
        group: its grouping: what becomes one kernel, in which order.
        may_overwrite: whether a kernel may write a result over an operand.
        patterns: names of the rules of `passes/graph/patterns.py` that it has kernels for.
        gpu: what it compiles for, None where that is no GPU.
        recomputes: whether its kernels make again what is cheaper than a store and a load (`passes/remat/remat.py`).
    """

    name: str
    supports: Callable[[Node], bool]
    prepare: Callable[[Graph], Graph]
    group: Callable[[Graph], Schedule]
    may_overwrite: MayOverwrite
    patterns: tuple[str, ...] = ()
    gpu: Gpu | None = None
    recomputes: bool = False


Pass = Callable[[Graph, Backend], Graph]

PASSES: tuple[tuple[str, str, Pass], ...] = (
    # (name, the stage that `genesis dump` shows after it, the pass)
    ("inline", "capture", lambda graph, backend: inline(graph)),
    ("autodiff", "grad", lambda graph, backend: autodiff(graph)),
    ("canonicalize", "canonical", lambda graph, backend: batch_rows(canonicalize(graph), canonicalize)),
    ("patterns", "matched", lambda graph, backend: apply_patterns(graph, backend.patterns, backend.gpu)[0]),
    ("legalize", "legal", lambda graph, backend: canonicalize(legalize(graph, backend.supports))),
    ("prepare", "prepared", lambda graph, backend: backend.prepare(graph)),
)


def run_passes(graph: Graph, backend: Backend) -> tuple[dict[str, Any], Schedule, MemoryPlan]:
    """All passes up to lowering. Returns every stage by name, the schedule and the memory plan."""
    verify = _verifier()
    stages: dict[str, Any] = {"input": graph}
    for _, stage, transform in PASSES:
        graph = transform(graph, backend)
        verify(graph)
        stages[stage] = graph
    _, refusals = apply_patterns(stages["canonical"], backend.patterns, backend.gpu)
    schedule = lower_peak(backend.group(graph))
    if backend.recomputes and config.fuse and config.recompute:
        schedule = remat(schedule, backend.group, sparing=config.spare_memory)
    stages["recomputed"] = verify(schedule.graph)
    schedule = replace(schedule, refusals=(*refusals, *schedule.refusals))
    memory = plan_memory(schedule, backend.may_overwrite)
    stages["groups"] = schedule
    stages["memory"] = memory
    return stages, schedule, memory


def _verifier() -> Callable[[Graph], Graph]:
    """`ir.verify.verify` under GENESIS_VERIFY=1, else nothing."""
    import os
    if os.environ.get("GENESIS_VERIFY", "0") in ("", "0"):
        return lambda graph: graph
    from genesis.ir.verify import verify
    return verify
