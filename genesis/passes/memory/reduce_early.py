"""Reductions over ranks in the schedule as soon as what they reduce can be made.

A graph's order follows its results: the updates of parameters need the last bucket of gradients, that one the whole
backward of the layers' inputs, and the bucket before it only through the order of collectives. So weights' gradients
would come after all of backward, layer by layer from the first, and all reductions when nothing is left that could
hide them. Here what a collective moves is made before what only later ones need.

What a collective finds in memory, or what is made of that by casts alone, as gathers of parameters do, says nothing of
when: these run where what needs them does, and `overlap_collectives` places them.

What only the last collectives need comes late, though it could run long before, as a tied table's product of the loss:
then it hides what is reduced before it. What it reads is kept meanwhile, for which the most that is alive at one time
may grow by `config.prefetch_bytes`. Where that is not enough only what stands behind backward moves.

What no collective needs, the updates of parameters among it, stands in the order in which what it needs arrives. In the
order of results the last bucket's update is first, and a CUDA graph, which starts its branches in the order of their
nodes and some of them one behind another, kept the first bucket's update until the last one's was done (GPT-2 on two
H200s: 0.25 ms of a step with nothing beside it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from genesis.ir.flops import is_product
from genesis.passes.fusion.awaited import awaited
from genesis.passes.groups import Group, Schedule
from genesis.passes.memory.schedule import Lives


def reduce_early(schedule: Schedule, budget: int) -> Schedule:
    """The schedule with all that a collective needs, and itself, before what it does not need.

    before: matmul x1, matmul x0, matmul w0, matmul w1, all_reduce w1, all_reduce w0, adamw w0, adamw w1
    after:  matmul x1, matmul w1, all_reduce w1, matmul x0, matmul w0, all_reduce w0, adamw w1, adamw w0

    Args:
        budget: bytes by which the most that is alive at one time may grow.
    """
    groups = schedule.groups
    if not any(group.collective is not None for group in groups):
        return schedule
    lives = Lives(schedule)
    most = lives.peak() + budget
    for late in (True, False):
        order = list(dict.fromkeys(_in_turn(groups, lives.before, late)))
        if lives.peak(order) <= most:
            return replace(schedule, groups=tuple([groups[at] for at in order]))
    return schedule


def _in_turn(groups: tuple[Group, ...], before: list[set[int]], late: bool) -> Iterator[int]:
    """The groups in the order of the collectives that need them, otherwise as they are; some come several times.

    Args:
        late: what only later collectives need comes after all that earlier ones need. Otherwise it stays before what
            several need and it stood before.
    """
    turns = _turns(groups, before)
    last = _last_turns(turns, before)
    done: set[int] = set()
    for at, turn in turns.items():
        needed = _needed(at, before, done)
        done |= needed
        for number in sorted(needed):
            if not late and number != at and last[number] > turn:
                done.update(range(number))
                yield from range(number)
            yield number
    arrives = [-1 if waits.last is None else waits.last for waits in awaited(groups)]
    yield from sorted(range(len(groups)), key=lambda at: (arrives[at], at))


def _turns(groups: tuple[Group, ...], before: list[set[int]]) -> dict[int, int]:
    """The number of each collective among those that move what a product was made for."""
    computed: set[int] = set()
    for at, group in enumerate(groups):
        if any(map(is_product, group.nodes)) or not before[at].isdisjoint(computed):
            computed.add(at)
    calls = [at for at, group in enumerate(groups) if group.collective is not None and at in computed]
    return {at: turn for turn, at in enumerate(calls)}


def _last_turns(turns: dict[int, int], before: list[set[int]]) -> list[int]:
    """The number of the last collective that needs each group, and not only by way of another one; -1 for none."""
    last = [-1] * len(before)
    for at in reversed(range(len(before))):
        turn = turns.get(at, last[at])
        for other in before[at]:
            last[other] = max(last[other], turn)
    return last


def _needed(last: int, before: list[set[int]], done: set[int]) -> set[int]:
    """The group and all that it needs, without what is done."""
    found, stack = {last}, [last]
    while stack:
        for other in before[stack.pop()] - found - done:
            found.add(other)
            stack.append(other)
    return found

