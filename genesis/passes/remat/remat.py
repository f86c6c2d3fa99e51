"""Compute again what is cheaper than a store and a load, over the whole step.

Where the most bytes are alive, a training step turns from forward to backward. What crosses that point was kept by
one kernel for others far behind it: x̂ of a layer norm, the derivative of a gelu, what a product reads a second time.
For each kernel a minimum cut (`remat_cut`) says which of its values are worth it, and which are made again by their
reader, from values that are in memory anyway.

    before: %1 = add(%0, %b)   stored for the backward        after: (not stored)
            %2 = gelu(%1)      read by a product                     %2 = gelu(%1)
            …                                                        …
            %9 = mul(%8, gelu'(%1))                                  %9 = mul(%8, gelu'(%0 + %b))

Where that comes to nothing, kernels are looked at that read nothing but what one before them kept for them, as the
sums of a group norm's weights' gradients do.

Everything is taken that moves fewer bytes. Then memory is bought with time: what a product of backward reads a second
time, the result of a gelu for one, is written again by the kernel that has its operands at hand, which costs a store
and saves keeping it. A byte that is not kept is worth as many moved ones as `WORTH` says; the cheapest come first, up
to `MOST_TIME` of the step, and where memory is to be spared (`config.spare_memory`) up to what was saved, at any price.

A schedule is used only if, counted over its own kernels, it keeps these bounds: what buys memory costs no more than
that, and the peak is lower by what it is worth; what saves bytes moves no more, and its peak is no higher, or by less
than these bytes are worth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import movement
from genesis.passes.gpu import Gpu
from genesis.passes.groups import Group, MissedFusion, Schedule
from genesis.passes.memory.schedule import Lives, lower_peak
from genesis.passes.remat.min_cut import Choice, cheapest, everything_kept
from genesis.passes.remat.network import CHOOSING, StepCosts, network
from genesis.passes.remat.rewrite import WaitsForItselfError, recomputed
from genesis.passes.remat.step_time import moved_bytes, step_bytes

LEAST_BYTES = 16 << 20
"""Minimum kept bytes of a step that is looked at: fewer stay in the GPU's L2."""

LEAST_LONE = 1 << 20
"""The same where a kernel reads nothing else: it often ends up in one with another sum of what it reads then."""

MOST_TIME = 0.015
"""Part of a step's time that is spent on a lower peak at most: what ViT-B's norms want to make their operands again."""

WORTH = 0.1
"""What part of the peak is worth what part of the time: a tenth of the peak one per cent of the time."""

LITTLE, MUCH = 0.05, 4.0
"""What a byte of memory is worth in bytes moved: nearly nothing, and where memory is what counts."""

SAME_PEAK = 1 + 1 / 8
"""Ratio up to which a later peak is no higher: the parts of a sum are alive beside what they are sums of, which the
kernel before has perhaps kept for this sum alone (a group norm's weights' gradients: 75 µs for 50 by bytes)."""

WAITS = "made again, the value would wait for one that is computed of it"
"""What `genesis why` says of a second computation in a circle: of the value, and of what it would wait for."""

AS_THEY_LIE = (movement.reshape, movement.expand)
"""Movements in what a stream is the sum of that cost nothing. ViT's first sum, of patches behind a class's token, took
its norm 37 µs of index arithmetic (H200)."""

NO_MORE = 1.002
"""Ratio of moved bytes, after to before, up to which recomputation counts as moving no more: biases and the like, which
several kernels read, are no objection."""


def remat(schedule: Schedule, group: Callable[[Graph], Schedule], gpu: Gpu | None = None, least: int = LEAST_BYTES,
          sparing: bool = False) -> Schedule:
    """The schedule in which far readers make again what is not worth keeping; itself, if there is nothing of it.

    Args:
        schedule: the groups in order.
        group: makes a schedule of a graph.
        gpu: whose time is spent on memory; None for none.
        least: kept bytes from which on to try.
        sparing: whether memory counts for more than time.
    """
    alive, refused = Lives(schedule).alive(), dict[Node, MissedFusion]()
    found = _remat_at(turns(alive), schedule, group, gpu, least, sparing, refused)
    for peaks in dict.fromkeys((tuple(turns(alive)), tuple(turns(alive, SAME_PEAK)))):
        if found is schedule:
            found = _remat_at(peaks, schedule, group, gpu, min(least, LEAST_LONE), False, refused, lone=True)
    return replace(found, missed=(*found.missed, *refused.values())) if refused else found


def _remat_at(peaks: Sequence[int], schedule: Schedule, group: Callable[[Graph], Schedule], gpu: Gpu | None, least: int,
              sparing: bool, refused: dict[Node, MissedFusion], lone: bool = False) -> Schedule:
    """The schedule cut at these groups.

    Args:
        refused: gets what is not made again as it would wait for itself.
        lone: whether kernels that read nothing but what may be made again make it, too.
    """
    step = StepCosts(schedule, peaks, gpu)
    if step.crossing_bytes() < least:
        return schedule
    kernels = options(step, streams=not lone)
    given = Counted.of(schedule)
    budgets = _budgets(given, 0 if gpu is None else step_bytes(schedule, gpu), kernels, sparing)
    cheaper = spend(kernels, budgets[-1])
    for budget in budgets:
        choices = spend(kernels, budget)
        if choices == cheaper:
            budget = budgets[-1]
        graph = _made_again(schedule.graph, step.parts, decided(step, kernels, choices, lone), refused)
        if graph is None:
            return schedule
        found = lower_peak(group(graph))
        if given.allows(Counted.of(found), budget):
            return found
        if budget is budgets[-1]:
            break
    return schedule


def _made_again(graph: Graph, parts: Mapping[Node, int], after: dict[Node, Node],
                refused: dict[Node, MissedFusion]) -> Graph | None:
    """The graph in which values are made again, but for those that would wait for themselves: these are kept, and
    noted. None where nothing is left."""
    while after:
        try:
            return recomputed(graph, parts, after)
        except WaitsForItselfError as circle:
            value = circle.value
            refused[value] = MissedFusion(value, after.pop(value), WAITS)
    return None


@dataclass(frozen=True)
class Budget:
    """What may be spent on a lower peak.

    Attributes:
        most: bytes to move.
        price: bytes to move for each that the peak is lower.
        saved: bytes that fewer are moved by what costs nothing, as it is reckoned.
    """

    most: int
    price: float
    saved: int = 0


def _budgets(given: Counted, time: int, kernels: Sequence[KernelOptions], sparing: bool) -> list[Budget]:
    """What to try, in order, the last one to spend nothing. `time`: bytes that could be moved while the step runs."""
    saved = sum(k.now.traffic - k.cheaper.traffic for k in kernels)
    most, price = round(MOST_TIME * time), WORTH * time / max(given.peak, 1) if time else inf
    bought = [Budget(max(most, saved), inf, saved)] if sparing else [Budget(most, price, saved)] if most else []
    return [*bought, Budget(0, price)]


@dataclass(frozen=True)
class Counted:
    """What a schedule moves, and its peak, in bytes."""

    moved: int
    peak: int

    @classmethod
    def of(cls, schedule: Schedule) -> Counted:
        """Counted over its kernels."""
        return cls(moved_bytes(schedule), Lives(schedule).peak())

    def allows(self, now: Counted, budget: Budget) -> bool:
        """Whether a schedule that was made of this one with the budget is better."""
        extra, lower = now.moved - (self.moved - budget.saved), self.peak - now.peak
        if now == self or lower < 0:  # a higher peak is paid for by bytes that are not moved
            return extra < 0 and not budget.most and extra <= budget.price * lower
        if not budget.most:
            return now.moved <= NO_MORE * self.moved
        return extra <= budget.most and (extra <= 0 or extra <= budget.price * lower)


def turns(alive: Sequence[int], higher: float = 1.0) -> list[int]:
    """The groups at which the most is alive: of the whole program, and of each stretch that comes up to half of that
    after nearly all was given back.

    Args:
        higher: how many times as much has to be alive to count as more.

    >>> turns([1, 5, 8, 6, 3, 7, 1, 6, 2])
    [2, 7]
    >>> turns([1, 800, 801, 6], higher=1.01)
    [1]
    """
    found: list[int] = []
    most, inside = max(alive, default=0), False
    for at, size in enumerate(alive):
        if 4 * size < most:
            inside = False
        elif not inside and size and 2 * size >= most:
            found.append(at)
            inside = True
        elif inside and size > alive[found[-1]] * higher:
            found[-1] = at
    return found


@dataclass(frozen=True)
class KernelOptions:
    """One kernel's choices.

    Attributes:
        nodes: what the positions of the choices stand for.
        now: everything is kept.
        lean, leanest: the least traffic, and the least memory.
        first: the first far group that reads what may be made again.
    """

    nodes: tuple[Node, ...]
    now: Choice
    lean: Choice
    leanest: Choice
    first: int

    @property
    def cheaper(self) -> Choice:
        """The choice that moves the fewest bytes."""
        return min(self.now, self.lean, key=lambda choice: (choice.traffic, choice.held))


def options(step: StepCosts, streams: bool = True) -> list[KernelOptions]:
    """Each kernel's choices, from the last to the first: what a later one's choice reads of an earlier one is wanted of
    that one. Then, in the same order, with `streams` those of streams: it is known by now what of them is kept."""
    found: list[tuple[KernelOptions, Group, list[Node]]] = []
    for at in reversed(range(len(step.groups))):
        group = step.groups[at]
        for member in (group.members or (group,)) if group.kind in CHOOSING else ():
            wanted = [x for x in map(step.value, member.outputs) if x not in step.outside and step.far(x)]
            if wanted:
                found += [(one, member, wanted) for one in _choices(step, wanted, *network(step, member, wanted))]
    return [_of_stream(step, *each) if streams else each[0] for each in found]


def _of_stream(step: StepCosts, kernel: KernelOptions, group: Group, wanted: Sequence[Node]) -> KernelOptions:
    """The choices of a kernel that adds to a stream: for the least memory the sum is made again, from the value before
    it and what is added to that; the same choices where it adds to none, or where the value before it is needed more.

    A residual stream of float32 to which products in bfloat16 are added then keeps half of the bytes of every second
    value.
    """
    nodes, values = network(step, group, wanted, streams=True)
    leanest = cheapest(values, MUCH)
    again = [nodes[i] for i in leanest.again]
    if not any(node in step.home and step.read_by_loops(node) for node in again) or any(
            node.op.kind == "movement" and node.op not in AS_THEY_LIE for node in again):
        return kernel
    own = set(group.nodes)
    step.relied_on |= {nodes[i] for i in leanest.kept if nodes[i] not in own}
    return replace(kernel, leanest=leanest)


def decided(step: StepCosts, kernels: Sequence[KernelOptions], choices: Sequence[Choice],
            lone: bool = False) -> dict[Node, Node]:
    """Values to make again → what must be known before. Where their reader reads nothing else of its part, `lone` says
    whether they are made again all the same: then what is kept of their kernel is known when that ends."""
    found: dict[Node, Node] = {}
    for kernel, choice in zip(kernels, choices, strict=True):
        after = step.known_before(kernel.first)
        if after is None and lone:
            after = next((kernel.nodes[i] for i in choice.kept if kernel.nodes[i] in step.home), None)
        if after is not None:
            found.update((kernel.nodes[i], after) for i in choice.again if kernel.nodes[i] in step.home)
    return found


def _choices(step: StepCosts, wanted: Sequence[Node], nodes: tuple[Node, ...], values: tuple) -> list[KernelOptions]:
    """The choices of one kernel, none if all is kept anyway; notes whose values the far readers would want then."""
    now, lean, leanest = everything_kept(values), cheapest(values, LITTLE), cheapest(values, MUCH)
    again = {nodes[i] for i in (*lean.again, *leanest.again)}
    first = min((at for x in wanted if x in again for at in step.far(x)), default=None)
    if first is None:
        return []
    for i in {*lean.kept, *leanest.kept}:
        if nodes[i] not in wanted and nodes[i] in step.home:
            step.readers.setdefault(nodes[i], set()).add(first)
    return [KernelOptions(nodes, now, lean, leanest, first)]


def spend(kernels: Sequence[KernelOptions], budget: Budget) -> list[Choice]:
    """A choice for each kernel: the one that moves the fewest bytes; then those that hold fewer, in the order of bytes
    moved for a byte freed."""
    chosen = [k.cheaper for k in kernels]
    offers = []
    for i, k in enumerate(kernels):
        freed, cost = chosen[i].held - k.leanest.held, k.leanest.traffic - chosen[i].traffic
        if freed > 0 and cost <= budget.price * freed:
            offers.append((cost / freed, i, cost))
    left = budget.most
    for _, i, cost in sorted(offers):
        if cost <= left:
            chosen[i], left = kernels[i].leanest, left - cost
    return chosen
