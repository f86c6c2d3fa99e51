"""Compute again what is cheaper than a store and a load, over the whole step.

Where the most bytes are alive, a training step turns from forward to backward. What crosses that point was kept by
one kernel for others far behind it: x̂ of a layer norm, the derivative of a gelu, what a product reads a second time.
For each kernel a minimum cut (`remat_cut`) says which of its values are worth it, and which are made again by their
reader, from values that are in memory anyway.

    before: %1 = add(%0, %b)   stored for the backward        after: (not stored)
            %2 = gelu(%1)      read by a product                     %2 = gelu(%1)
            …                                                        …
            %9 = mul(%8, gelu'(%1))                                  %9 = mul(%8, gelu'(%0 + %b))

Everything is taken that moves fewer bytes. Where memory is to be spared (`config.spare_memory`), what that saves is
then spent on making more again, where the most is freed for it. The new schedule is used only if, counted over its own
kernels, it moves no more bytes, its peak is no higher, and one of the two is less.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.sym_int import hint
from genesis.passes.groups import Schedule
from genesis.passes.memory.schedule import Lives, lower_peak
from genesis.passes.remat.min_cut import Choice, cheapest, everything_kept
from genesis.passes.remat.network import CHOOSING, StepCosts, network
from genesis.passes.remat.rewrite import recomputed

LEAST_BYTES = 16 << 20
"""Minimum kept bytes of a step that is looked at: fewer stay in the GPU's L2."""

LITTLE, MUCH = 0.05, 4.0
"""What a byte of memory is worth in bytes moved: nearly nothing, and where memory is what counts."""

NO_MORE = 1.002
"""Ratio of moved bytes, after to before, up to which recomputation counts as moving no more: biases and the like, which
several kernels read, are no objection."""


def remat(schedule: Schedule, group: Callable[[Graph], Schedule], least: int = LEAST_BYTES,
          sparing: bool = False) -> Schedule:
    """The schedule in which far readers make again what is not worth keeping; itself, if there is nothing of it.

    Args:
        schedule: the groups in order.
        group: makes a schedule of a graph.
        least: kept bytes from which on to try.
        sparing: whether memory counts for more than time.
    """
    step = StepCosts(schedule, turns(Lives(schedule).alive()))
    if step.crossing_bytes() < least:
        return schedule
    after = decide(step, sparing)
    if not after:
        return schedule
    again = lower_peak(group(recomputed(schedule.graph, step.parts, after)))
    before, now = ((Lives(s).peak(), moved_bytes(s)) for s in (schedule, again))
    return again if now != before and now[0] <= before[0] and now[1] <= NO_MORE * before[1] else schedule


def moved_bytes(schedule: Schedule) -> int:
    """Bytes that the groups read and write, each value once a group."""
    return sum(hint(x.type.nbytes) for group in schedule.groups if not group.runs_nothing
               for x in (*group.inputs, *group.outputs))


def turns(alive: Sequence[int]) -> list[int]:
    """The groups at which the most is alive: of the whole program, and of each stretch that comes up to half of that
    after nearly all was given back.

    >>> turns([1, 5, 8, 6, 3, 7, 1, 6, 2])
    [2, 7]
    """
    found: list[int] = []
    most, inside = max(alive, default=0), False
    for at, size in enumerate(alive):
        if 4 * size < most:
            inside = False
        elif not inside and size and 2 * size >= most:
            found.append(at)
            inside = True
        elif inside and size > alive[found[-1]]:
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


def decide(step: StepCosts, sparing: bool) -> dict[Node, Node]:
    """Values to make again → what must be known before.

    From the last kernel to the first: what a later one's choice reads of an earlier one is wanted of that one.
    """
    kernels: list[KernelOptions] = []
    for at in reversed(range(len(step.groups))):
        group = step.groups[at]
        for member in (group.members or (group,)) if group.kind in CHOOSING else ():
            wanted = [x for x in map(step.value, member.outputs) if x not in step.outside and step.far(x)]
            if wanted:
                kernels += _choices(step, wanted, *network(step, member, wanted))
    found: dict[Node, Node] = {}
    for kernel, choice in zip(kernels, spend(kernels, sparing), strict=True):
        after = step.known_before(kernel.first)
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


def spend(kernels: Sequence[KernelOptions], sparing: bool) -> list[Choice]:
    """A choice for each kernel: the one that moves the fewest bytes; then, if memory is to be spared, for what that
    saves those that hold fewer, in the order of bytes moved for a byte freed."""
    chosen = [min(k.now, k.lean, key=lambda choice: (choice.traffic, choice.held)) for k in kernels]
    if not sparing:
        return chosen
    left = sum(k.now.traffic - choice.traffic for k, choice in zip(kernels, chosen, strict=True))
    offers = []
    for i, k in enumerate(kernels):
        freed, cost = chosen[i].held - k.leanest.held, k.leanest.traffic - chosen[i].traffic
        if freed > 0:
            offers.append((cost / freed, i, cost))
    for _, i, cost in sorted(offers):
        if cost <= left:
            chosen[i], left = kernels[i].leanest, left - cost
    return chosen
