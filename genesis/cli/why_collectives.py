"""What `genesis why` says of collectives: where each was placed, what runs beside it, what waits for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from genesis.cli.inspect import name_of
from genesis.ir.node import Node
from genesis.ir.sym_int import hint
from genesis.passes.fusion.awaited import Awaited, awaited, brought_by
from genesis.passes.groups import Group, Schedule

MOST_NAMED: Final = 4
"""Kinds of kernels that are named of those that run beside a collective."""


def collective_lines(schedule: Schedule, line: Callable[[Node], str]) -> list[str]:
    """A paragraph for each collective, in order, and one for updates that need more than their own gradients.

    Args:
        schedule: groups in the order in which they stand.
        line: a node's line in the script.
    """
    groups = [group for group in schedule.groups if not group.runs_nothing]
    calls = {at: call for at, group in enumerate(groups) if (call := group.collective) is not None}
    if not calls:
        return []
    needs, name = _needs(groups), {at: f"collective {i}" for i, at in enumerate(calls, 1)}
    lines = []
    for at, call in calls.items():
        lines += _placed(at, call, groups, needs, name, line)
        lines += [f"    {why}" for placed, why in schedule.placed if placed is call]
    return [*lines, *_held_up(groups, schedule, name, line), ""]


def _needs(groups: Sequence[Group]) -> list[int]:
    """The groups, for each one, that have to be done before it, as bits."""
    maker = {node: at for at, group in enumerate(groups) for node in group.outputs}
    found: list[int] = []
    for at, group in enumerate(groups):
        bits = 0
        for x in (*group.inputs, *group.after):
            other = maker.get(x)
            if other is not None and other < at:
                bits |= found[other] | 1 << other
        found.append(bits)
    return found


def _placed(at: int, call: Node, groups: Sequence[Group], needs: Sequence[int], name: dict[int, str],
            line: Callable[[Node], str]) -> list[str]:
    group, tensors = groups[at], call.inputs[:-1]
    many = "1 tensor" if len(tensors) == 1 else f"{len(tensors)} tensors"
    lines = [f"{name[at]}: {call.op.name} of {many}, {_size(sum(hint(x.type.nbytes) for x in tensors))}"]
    if call.source:
        lines.append(f"    {line(call)}")
    maker = {node: other for other, each in enumerate(groups) for node in each.outputs}
    last = max((maker[x] for x in tensors if x in maker), default=None)
    lines.append("    moves what is in memory when the program begins" if last is None else
                 f"    placed behind {name.get(last) or name_of(groups[last])}, which makes the last of what it moves"
                 + (f" ({line(groups[last].outputs[0])})" if groups[last].outputs[0].source else ""))
    beside = [other for other in range(len(groups)) if other not in name and not needs[at] >> other & 1
              and not needs[other] >> at & 1]
    lines.append("    nothing hides it: each kernel is one that it waits for, or that waits for it" if not beside else
                 f"    hidden by {_kernels(groups[other] for other in beside)}")
    results = set(group.outputs)
    readers = [other for other, each in enumerate(groups) if other not in name and not results.isdisjoint(each.inputs)]
    lines.append(f"    waited for by {_kernels(groups[other] for other in readers)}" if readers else
                 "    no kernel reads what it gives")
    return lines


def _kernels(groups: Iterable[Group]) -> str:
    listed = list(groups)
    names = Counter(map(name_of, listed)).most_common()
    shown = ", ".join(name + (f" ({count} times)" if count > 1 else "") for name, count in names[:MOST_NAMED])
    moved = sum(hint(x.type.nbytes) for group in listed for x in (*group.inputs, *group.outputs))
    return (f"{len(listed)} kernel{'s that move' if len(listed) > 1 else ' that moves'} {_size(moved)}: {shown}"
            + (", …" if len(names) > MOST_NAMED else ""))


def _held_up(groups: Sequence[Group], schedule: Schedule, name: dict[int, str],
             line: Callable[[Node], str]) -> list[str]:
    """Updates that could run when their gradients have arrived, and need something that waits for a later bucket."""
    waits = awaited(groups)
    written = {value for _, value in schedule.graph.updates}
    found: dict[str, None] = {}
    for group, wait in zip(groups, waits, strict=True):
        if wait.own is None or wait.last is None or written.isdisjoint(group.outputs):
            continue
        reason = _reason(group, groups, waits, wait, name, line)
        if reason:
            found[reason] = None
    return list(found)


def _reason(group: Group, groups: Sequence[Group], waits: Sequence[Awaited], wait: Awaited, name: dict[int, str],
            line: Callable[[Node], str]) -> str:
    assert wait.own is not None and wait.last is not None
    brought = {at for at, each in enumerate(groups) if at in name and not set(each.outputs).isdisjoint(group.inputs)}
    through = brought_by(group, groups, waits, wait.last)
    if through is None or brought <= {wait.last}:
        return ""
    return (f"{name_of(group)} waits for {name[wait.last]}, the last of {len(name)}, though its gradients come with "
            f"{len(brought)} of them: it reads {through.op.name}"
            + (f" ({line(through)})" if through.source else "") + ", which needs all of them")


def _size(nbytes: int) -> str:
    return f"{nbytes / 2**20:.1f} MiB" if nbytes >= 2**20 else f"{nbytes / 2**10:.1f} KiB" if nbytes >= 2**10 else (
        f"{nbytes} bytes")
