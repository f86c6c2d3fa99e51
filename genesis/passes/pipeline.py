"""The passes, in the order in which they run. This list is the table of contents of the compiler."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, NamedTuple, Protocol

from genesis.config import config
from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.passes.fusion.shadow_weights import shadow_weights
from genesis.passes.fusion.side_by_side import side_by_side
from genesis.passes.fusion.sums_together import sums_together
from genesis.passes.gpu import Gpu
from genesis.passes.graph.add_into import add_into
from genesis.passes.graph.align_operands import align_operands
from genesis.passes.graph.autodiff import autodiff
from genesis.passes.graph.bucket_gradients import bucket_gradients
from genesis.passes.graph.canonicalize import canonicalize
from genesis.passes.graph.chunk_loss import chunk_loss
from genesis.passes.graph.group_messages import group_messages
from genesis.passes.graph.heads_beside import heads_beside
from genesis.passes.graph.inline import inline
from genesis.passes.graph.lay_out_images import lay_out_images
from genesis.passes.graph.legalize import legalize
from genesis.passes.graph.make_contiguous import make_contiguous
from genesis.passes.graph.matrix_vector import matrix_vector
from genesis.passes.graph.patch_products import patch_products
from genesis.passes.graph.patterns import apply_patterns
from genesis.passes.graph.place_collectives import place_collectives
from genesis.passes.graph.reduce_in_order import reduce_in_order
from genesis.passes.graph.reroll import reroll
from genesis.passes.graph.save_recurrent import save_recurrent
from genesis.passes.graph.save_statistics import save_statistics
from genesis.passes.graph.scale_products import scale_products
from genesis.passes.graph.slice_early import slice_early
from genesis.passes.graph.snapshots import copy_returned_inputs
from genesis.passes.graph.split_argmax import split_argmax
from genesis.passes.graph.split_attention import split_attention
from genesis.passes.graph.split_k import split_k
from genesis.passes.graph.split_reductions import split_reductions
from genesis.passes.graph.split_scans import split_scans
from genesis.passes.graph.sum_products import sum_products
from genesis.passes.graph.take_in_rows import take_in_rows
from genesis.passes.graph.thin_products import thin_products
from genesis.passes.graph.turn_operands import turn_operands
from genesis.passes.graph.turn_products import turn_products
from genesis.passes.graph.writes_apart import writes_apart
from genesis.passes.groups import Group, Late, MissedFusion, Schedule
from genesis.passes.memory.overlap_collectives import overlap_collectives
from genesis.passes.memory.plan_memory import MemoryPlan, plan_memory
from genesis.passes.memory.reduce_early import reduce_early
from genesis.passes.memory.schedule import lower_peak, words_first
from genesis.passes.memory.writes_last import writes_last
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

    def overwrites_late(self, group: Group) -> Late:
        """Whether the group may be one of the last calls, which overwrite memory."""

    def lower(self, schedule: Schedule, memory: MemoryPlan) -> tuple[tuple, tuple]:
        """Steps and registers."""


@dataclass(frozen=True)
class Work:
    """A program on its way through the passes.

    Attributes:
        graph: the program; after grouping, what was grouped.
        notes: what passes refused, for `genesis why`.
        schedule: its groups, in order; None before grouping.
        memory: where its values are; None before memory planning.
        code: steps and registers; None before lowering.
        simple: nodes that `canonicalize` leaves as they are.
    """

    graph: Graph
    notes: tuple[MissedFusion, ...] = ()
    schedule: Schedule | None = None
    memory: MemoryPlan | None = None
    code: tuple[tuple, tuple] | None = None
    simple: set[Node] = field(default_factory=set)

    @property
    def size(self) -> int:
        """Nodes; once there are groups, groups; once there are steps, steps."""
        if self.code is not None:
            return len(self.code[0])
        return len(self.graph.nodes) if self.schedule is None else len(self.schedule.groups)

    @property
    def unit(self) -> str:
        """What `size` counts."""
        return "steps" if self.code is not None else "nodes" if self.schedule is None else "groups"


@dataclass(frozen=True)
class Pass:
    """A row of the list.

    Attributes:
        name: the pass.
        stage: what `genesis dump` calls the program after it.
        doc: what the program is then.
        run: the pass as a function.
        optional: runs only for backends that have its name among their `passes`.
        wanted: the settings that turn it on.
        again_from: when it changed the graph, the rows from the one of this name on run again: what it made shows it
            more to do once that is simplified.
    """

    name: str
    stage: str
    doc: str
    run: Callable[[Work, Target], Work]
    optional: bool = False
    wanted: Callable[[], bool] = lambda: True
    again_from: str = ""

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


def _canonicalize(work: Work, target: Target) -> Work:
    return replace(work, graph=canonicalize(work.graph, work.simple))


def _chunk_loss(work: Work, target: Target) -> Work:
    graph, refusals = chunk_loss(work.graph, config.loss_chunk_bytes, on_gpu=target.gpu is not None)
    return replace(work, graph=graph, notes=(*work.notes, *refusals))


def _patterns(work: Work, target: Target) -> Work:
    graph, refusals = apply_patterns(work.graph, target.patterns, target.gpu)
    return replace(work, graph=graph, notes=(*work.notes, *refusals))


def _add_into(work: Work, target: Target) -> Work:
    return replace(work, graph=add_into(work.graph, on_gpu=target.gpu is not None))


def _save_recurrent(work: Work, target: Target) -> Work:
    return replace(work, graph=save_recurrent(work.graph, target.supports))


def _save_statistics(work: Work, target: Target) -> Work:
    return replace(work, graph=save_statistics(work.graph, target.supports))


def _legalize(work: Work, target: Target) -> Work:
    return replace(work, graph=legalize(work.graph, target.supports))


def _reduce_in_order(work: Work, target: Target) -> Work:
    return replace(work, graph=reduce_in_order(work.graph, target.gpu))


def _for_gpu(split: Callable[[Graph, Gpu], Graph]) -> Callable[[Work, Target], Work]:
    def run(work: Work, target: Target) -> Work:
        assert target.gpu is not None
        return replace(work, graph=split(work.graph, target.gpu))
    return run


def _group(work: Work, target: Target) -> Work:
    return replace(work, schedule=target.group(work.graph))


def _order(schedule: Schedule, target: Target) -> Schedule:
    return words_first(lower_peak(schedule))


def _remat(schedule: Schedule, target: Target) -> Schedule:
    return remat(schedule, target.group, target.gpu, sparing=config.spare_memory)


def _side_by_side(schedule: Schedule, target: Target) -> Schedule:
    assert target.gpu is not None
    return sums_together(side_by_side(schedule, target.gpu))


def _reduce_early(schedule: Schedule, target: Target) -> Schedule:
    return reduce_early(schedule, config.prefetch_bytes)


def _overlap_collectives(schedule: Schedule, target: Target) -> Schedule:
    assert target.gpu is not None
    return overlap_collectives(schedule, target.gpu, config.prefetch_bytes)


def _writes_last(schedule: Schedule, target: Target) -> Schedule:
    return writes_last(schedule, target.overwrites_late)


def _writes_apart(work: Work, target: Target) -> Work:
    return replace(work, graph=writes_apart(work.graph, target.overwrites_late))


def _plan_memory(work: Work, target: Target) -> Work:
    assert work.schedule is not None
    schedule = replace(work.schedule, missed=(*work.notes, *work.schedule.missed))
    return replace(work, schedule=schedule, memory=plan_memory(schedule, target.may_overwrite,
                                                               target.overwrites_late, lend=target.gpu is not None))


def _lower(work: Work, target: Target) -> Work:
    assert work.schedule is not None and work.memory is not None
    return replace(work, code=target.lower(work.schedule, work.memory))


PASSES: tuple[Pass, ...] = (
    Pass("inline", "capture", "what the script recorded", on_graph(inline)),
    Pass("slice_early", "sliced_early", "with slices before what is computed row by row", on_graph(slice_early),
         optional=True),
    Pass("autodiff", "grad", "with its derivatives", on_graph(autodiff)),
    Pass("bucket_gradients", "bucketed", "with gradients put into the buckets that are reduced over all ranks",
         on_graph(bucket_gradients)),
    Pass("group_messages", "exchanged", "with messages that need not wait for each other as one",
         on_graph(group_messages)),
    Pass("place_collectives", "placed", "with a collective where the layout of a tensor over the ranks changes",
         on_graph(place_collectives)),
    Pass("canonicalize", "simplified", "simplified, before rows are rolled", _canonicalize),
    Pass("reroll", "canonical", "simplified", on_graph(reroll), again_from="canonicalize"),
    Pass("chunk_loss", "chunked", "with losses of many classes by chunks of rows", _chunk_loss, optional=True,
         wanted=lambda: config.loss_chunk_bytes > 0),
    Pass("patch_products", "patches_multiplied", "with convolutions of patches side by side as products",
         on_graph(patch_products), optional=True),
    Pass("patterns", "matched", "with the forms that the backend has kernels for", _patterns),
    Pass("add_into", "added_into", "with rows added to the table that theirs is added to", _add_into,
         optional=True),
    Pass("save_recurrent", "saved", "with recurrent layers that keep what their backward needs", _save_recurrent,
         optional=True),
    Pass("save_statistics", "statistics_saved", "with norms and attention that keep what their backward needs",
         _save_statistics, optional=True),
    Pass("legalize", "decomposed", "what the backend has no lowering for, written out", _legalize),
    Pass("canonicalize_again", "legal", "in ops that the backend can run", _canonicalize),
    Pass("heads_beside", "heads_beside", "with what products read by tokens laid out by tokens, not by heads",
         on_graph(heads_beside), optional=True, again_from="canonicalize_again"),
    Pass("lay_out_images", "images_laid_out", "with images that are convolved in the order that convolutions work in",
         on_graph(lay_out_images), optional=True),
    Pass("make_contiguous", "contiguous", "with copies of what lies turned in memory", on_graph(make_contiguous),
         optional=True),
    Pass("writes_apart", "apart", "with small writes for themselves, apart from what reads the new content",
         _writes_apart, optional=True),
    Pass("matrix_vector", "vectors_multiplied", "with products of one vector as reductions", on_graph(matrix_vector),
         optional=True),
    Pass("scale_products", "products_scaled", "with numbers that multiply matrices behind products that are smaller",
         on_graph(scale_products), optional=True),
    Pass("thin_products", "thin_products_joined", "with products of one matrix by thin ones as one product",
         on_graph(thin_products), optional=True),
    Pass("turn_products", "products_turned", "with products in the order of the results that they are",
         on_graph(turn_products), optional=True),
    Pass("turn_operands", "operands_turned", "with operands of float32 products as their kernels read them",
         on_graph(turn_operands), optional=True),
    Pass("align_operands", "operands_aligned", "with rows of large products' operands in whole vectors",
         _for_gpu(align_operands), optional=True),
    Pass("sum_products", "products_summed", "with sums of products as one product of several pairs",
         _for_gpu(sum_products), optional=True),
    Pass("split_k", "products_split", "with products of few tiles split", _for_gpu(split_k), optional=True),
    Pass("split_attention", "attention_split", "with the keys of single queries shared out", _for_gpu(split_attention),
         optional=True),
    Pass("split_scans", "scans_split", "with long scans split", _for_gpu(split_scans), optional=True),
    Pass("reduce_in_order", "reduced_in_order", "with what lies turned in memory reduced in its order",
         _reduce_in_order, optional=True),
    Pass("split_reductions", "reductions_split", "with large reductions split", _for_gpu(split_reductions),
         optional=True),
    Pass("split_argmax", "argmax_split", "with the argmax of few long rows split", _for_gpu(split_argmax),
         optional=True),
    Pass("take_in_rows", "taken_in_rows", "with elements of long rows taken from rows in shared memory",
         on_graph(take_in_rows), optional=True),
    Pass("snapshots", "snapshots", "with copies of inputs that are returned", on_graph(copy_returned_inputs),
         optional=True),
    Pass("shadow_weights", "prepared", "as it is grouped: with shadow weights",
         on_graph(shadow_weights), optional=True, wanted=lambda: config.fuse and config.keep_shadow_weights),
    Pass("group", "grouped", "what becomes one kernel, as found", _group),
    Pass("schedule", "ordered", "what becomes one kernel, in the order of the least memory", on_schedule(_order)),
    Pass("remat", "recomputed", "with what is computed again instead of being kept", on_schedule(_remat),
         optional=True, wanted=lambda: config.fuse and config.recompute),
    Pass("side_by_side", "beside", "with small kernels that many layers have side by side in one launch",
         on_schedule(_side_by_side), optional=True, wanted=lambda: config.fuse),
    Pass("reduce_early", "reduced_early", "with what ranks reduce made before what later reductions need",
         on_schedule(_reduce_early), optional=True),
    Pass("overlap_collectives", "overlapped", "with gathers ahead of what reads them",
         on_schedule(_overlap_collectives), optional=True),
    Pass("writes_last", "settled", "with what overwrites memory at the end", on_schedule(_writes_last), optional=True),
    Pass("plan_memory", "memory", "where each value is in memory", _plan_memory),
    Pass("lower", "code", "what runs: calls, or the kernels' source", _lower),
)

LAST_WITHOUT_CODE = "plan_memory"
"""The last pass that needs no compiler of kernels."""


class PassReport(NamedTuple):
    """What a pass did.

    Attributes:
        name, stage: its row's.
        seconds: how long it took.
        before, after: nodes, or groups, or steps, that went in and came out (`Work.size`).
        unit: what was counted after it.
    """

    name: str
    stage: str
    seconds: float
    before: int
    after: int
    unit: str


class Passed(NamedTuple):
    """A program after the passes.

    Attributes:
        stages: what came out of each, by the name of its stage: a graph, and also "groups", "memory" and "code".
        schedule, memory: its groups and the places of its values.
        reports: a row for each pass that ran, as often as it ran.
        works: all that is known of the program after each pass, by the name of its stage.
    """

    stages: dict[str, Any]
    schedule: Schedule
    memory: MemoryPlan
    reports: tuple[PassReport, ...]
    works: dict[str, Work]


def run_passes(graph: Graph, target: Target, last: str = LAST_WITHOUT_CODE,
               kept: Container[str] | None = None) -> Passed:
    """The passes up to and with the one called `last`.

    Args:
        kept: the stages that are to be known afterwards, besides groups, memory and code; None for all of them. Each
            is a graph, of which a long program has tens of megabytes.
    """
    verify = _verifier()
    _ = target.supports  # here, so that importing the backend's lowerings (torch) counts as no pass's time
    works: dict[str, Work] = {}
    reports = []
    work, position = Work(graph), {row.name: at for at, row in enumerate(PASSES)}
    at = 0
    while at <= position[last]:
        row, changed = PASSES[at], False
        if row.runs_for(target):
            start, before = perf_counter(), work
            work = row.run(work, target)
            reports.append(PassReport(row.name, row.stage, perf_counter() - start, before.size, work.size, work.unit))
            changed = work.graph is not before.graph
            if changed:
                verify(work.graph, row.name)
        if kept is None or row.stage in kept:
            works[row.stage] = work
        at = position[row.again_from] if row.again_from and changed else at + 1
    assert work.schedule is not None and work.memory is not None
    stages: dict[str, Any] = {"input": graph, **{stage: each.graph for stage, each in works.items()}}
    stages.update(groups=work.schedule, memory=work.memory)
    if work.code is not None:
        stages["code"] = work.code
    return Passed(stages, work.schedule, work.memory, tuple(reports), works)


def _verifier() -> Callable[[Graph, str], None]:
    """`ir.verify.verify` under GENESIS_VERIFY=1, which names the pass that broke a rule, else nothing."""
    from genesis.ir.verify import VerifyError, verify, verifying
    if not verifying():
        return lambda graph, name: None

    def check(graph: Graph, name: str) -> None:
        try:
            verify(graph)
        except VerifyError as error:
            raise VerifyError(f"after the pass {name}: {error}") from error
    return check
