"""The passes, in the order in which they run. This list is the table of contents of the compiler."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from genesis.config import config
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.passes.fusion.shadow_weights import keep_copies
from genesis.passes.gpu import Gpu
from genesis.passes.graph.autodiff import autodiff
from genesis.passes.graph.canonicalize import canonicalize
from genesis.passes.graph.inline import inline
from genesis.passes.graph.legalize import legalize
from genesis.passes.graph.make_contiguous import make_contiguous
from genesis.passes.graph.patterns import apply_patterns
from genesis.passes.graph.reroll import reroll
from genesis.passes.graph.snapshots import copy_while_updating
from genesis.passes.graph.split_k import split_k
from genesis.passes.graph.split_reductions import split_reductions
from genesis.passes.graph.split_scans import split_scans
from genesis.passes.groups import Group, Refusal, Schedule
from genesis.passes.memory.plan_memory import MemoryPlan, plan_memory
from genesis.passes.memory.schedule import lower_peak
from genesis.passes.remat.remat import remat


class Target(Protocol):
    """What the passes ask a backend (`codegen/base.py` has all that a backend is)."""

    @property
    def name(self) -> str:
        """The device type."""

    @property
    def passes(self) -> frozenset[str]:
        """Names of the optional rows that run for it."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """Names of the rules of `passes/graph/patterns.py` that it has kernels for."""

    @property
    def gpu(self) -> Gpu | None:
        """The GPU that it compiles for."""

    def supports(self, node: Node) -> bool:
        """Whether it has a lowering for a node."""

    def group(self, graph: Graph) -> Schedule:
        """What becomes one kernel."""

    def may_overwrite(self, group: Group, output: Node, operand: Node) -> bool:
        """Whether a kernel may write a result over an operand."""

    def lower(self, schedule: Schedule, memory: MemoryPlan) -> tuple[tuple, tuple]:
        """Steps and registers."""


@dataclass(frozen=True)
class Work:
    """A program on its way through the passes.

    Attributes:
        graph: the program; after grouping, what was grouped.
        notes: what patterns refused, for `genesis why`.
        schedule: its groups, in order; None before grouping.
        memory: where its values are; None before memory planning.
        code: steps and registers; None before lowering.
    """

    graph: Graph
    notes: tuple[Refusal, ...] = ()
    schedule: Schedule | None = None
    memory: MemoryPlan | None = None
    code: tuple[tuple, tuple] | None = None

    @property
    def size(self) -> int:
        """Nodes; once there are groups, groups; once there are steps, steps."""
        if self.code is not None:
            return len(self.code[0])
        return len(self.graph.nodes) if self.schedule is None else len(self.schedule.groups)


@dataclass(frozen=True)
class Pass:
    """A row of the list.

    Attributes:
        name: the pass.
        stage: what `genesis dump` calls the program after it.
        run: the pass as a function.
        optional: runs only for backends that have its name among their `passes`.
        wanted: the settings that turn it on.
    """

    name: str
    stage: str
    run: Callable[[Work, Target], Work]
    optional: bool = False
    wanted: Callable[[], bool] = lambda: True

    def runs_for(self, target: Target) -> bool:
        """Does it run for this backend, as the settings are?"""
        return (not self.optional or self.name in target.passes) and self.wanted()


def on_graph(transform: Callable[[Graph], Graph]) -> Callable[[Work, Target], Work]:
    """A pass from graph to graph."""
    return lambda work, target: replace(work, graph=transform(work.graph))


def on_schedule(transform: Callable[[Schedule, Target], Schedule]) -> Callable[[Work, Target], Work]:
    """A pass from schedule to schedule; one that computes values again changes the graph too."""
    def run(work: Work, target: Target) -> Work:
        assert work.schedule is not None
        schedule = transform(work.schedule, target)
        return replace(work, graph=schedule.graph, schedule=schedule)
    return run


def _patterns(work: Work, target: Target) -> Work:
    graph, refusals = apply_patterns(work.graph, target.patterns, target.gpu)
    return replace(work, graph=graph, notes=refusals)


def _legalize(work: Work, target: Target) -> Work:
    return replace(work, graph=legalize(work.graph, target.supports))


def _for_gpu(split: Callable[[Graph, Gpu], Graph]) -> Callable[[Work, Target], Work]:
    def run(work: Work, target: Target) -> Work:
        assert target.gpu is not None
        return replace(work, graph=split(work.graph, target.gpu))
    return run


def _group(work: Work, target: Target) -> Work:
    return replace(work, schedule=target.group(work.graph))


def _remat(schedule: Schedule, target: Target) -> Schedule:
    return remat(schedule, target.group, sparing=config.spare_memory)


def _plan_memory(work: Work, target: Target) -> Work:
    assert work.schedule is not None
    schedule = replace(work.schedule, refusals=(*work.notes, *work.schedule.refusals))
    return replace(work, schedule=schedule, memory=plan_memory(schedule, target.may_overwrite))


def _lower(work: Work, target: Target) -> Work:
    assert work.schedule is not None and work.memory is not None
    return replace(work, code=target.lower(work.schedule, work.memory))


PASSES: tuple[Pass, ...] = (
    Pass("inline", "capture", on_graph(inline)),
    Pass("autodiff", "grad", on_graph(autodiff)),
    Pass("canonicalize", "simplified", on_graph(canonicalize)),
    Pass("reroll", "canonical", on_graph(lambda graph: reroll(graph, canonicalize))),
    Pass("patterns", "matched", _patterns),
    Pass("legalize", "decomposed", _legalize),
    Pass("canonicalize_again", "legal", on_graph(canonicalize)),
    Pass("make_contiguous", "contiguous", on_graph(make_contiguous), optional=True),
    Pass("split_k", "products_split", _for_gpu(split_k), optional=True),
    Pass("split_scans", "scans_split", _for_gpu(split_scans), optional=True),
    Pass("split_reductions", "reductions_split", _for_gpu(split_reductions), optional=True),
    Pass("snapshots", "snapshots", on_graph(copy_while_updating), optional=True),
    Pass("shadow_weights", "prepared", on_graph(keep_copies), optional=True,
         wanted=lambda: config.fuse and config.keep_copies),
    Pass("group", "grouped", _group),
    Pass("schedule", "ordered", on_schedule(lambda schedule, target: lower_peak(schedule))),
    Pass("remat", "recomputed", on_schedule(_remat), optional=True,
         wanted=lambda: config.fuse and config.recompute),
    Pass("plan_memory", "memory", _plan_memory),
    Pass("lower", "code", _lower),
)

LAST_WITHOUT_CODE = "plan_memory"
"""The last pass that needs no compiler of kernels."""


class PassReport(NamedTuple):
    """What a pass did.

    Attributes:
        name, stage: its row's.
        seconds: how long it took.
        before, after: nodes, or groups, or steps, that went in and came out (`Work.size`).
    """

    name: str
    stage: str
    seconds: float
    before: int
    after: int


class Passed(NamedTuple):
    """A program after the passes.

    Attributes:
        stages: what came out of each, by the name of its stage: a graph, and also "groups", "memory" and "code".
        schedule, memory: its groups and the places of its values.
        reports: a row for each pass that ran.
    """

    stages: dict[str, Any]
    schedule: Schedule
    memory: MemoryPlan
    reports: tuple[PassReport, ...]


def run_passes(graph: Graph, target: Target, last: str = LAST_WITHOUT_CODE) -> Passed:
    """The passes up to and with the one called `last`."""
    verify = _verifier()
    stages: dict[str, Any] = {"input": graph}
    reports = []
    work = Work(graph)
    for row in PASSES:
        if row.runs_for(target):
            start, before, graph = perf_counter(), work.size, work.graph
            work = row.run(work, target)
            reports.append(PassReport(row.name, row.stage, perf_counter() - start, before, work.size))
            if work.graph is not graph:
                verify(work.graph, row.name)
        stages[row.stage] = work.graph
        if row.name == last:
            break
    assert work.schedule is not None and work.memory is not None
    stages.update(groups=work.schedule, memory=work.memory)
    if work.code is not None:
        stages["code"] = work.code
    return Passed(stages, work.schedule, work.memory, tuple(reports))


def _verifier() -> Callable[[Graph, str], None]:
    """`ir.verify.verify` under GENESIS_VERIFY=1, which names the pass that broke a rule, else nothing."""
    if os.environ.get("GENESIS_VERIFY", "0") in ("", "0"):
        return lambda graph, name: None
    from genesis.ir.verify import VerifyError, verify

    def check(graph: Graph, name: str) -> None:
        try:
            verify(graph)
        except VerifyError as error:
            raise VerifyError(f"after the pass {name}: {error}") from error
    return check
