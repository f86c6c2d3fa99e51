"""Which collective a group waits for: what its own operands bring, and what anything else that it reads does.

An optimizer's update of a parameter needs that parameter's gradient, which one bucket brings. Where nothing else keeps
it, it can run while later buckets are still under way. A norm of all gradients needs all buckets, and so does whatever
is clipped by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from genesis.ir.node import Node
from genesis.passes.groups import Group


class Awaited(NamedTuple):
    """Attributes:
        own: the number of the last collective whose results the group reads element by element, directly or by way of
            other pointwise groups; None: it reads none so.
        last: the last collective that has to be done before it.
    """

    own: int | None
    last: int | None

    @property
    def together(self) -> int | None:
        """Groups of which this is equal may be one kernel: it runs no later than each would alone."""
        return None if self.own is None else self.last


def awaited(groups: Sequence[Group]) -> list[Awaited]:
    """What each of these groups waits for; numbers are places in the list, which is in dependency order."""
    writer = {node: number for number, group in enumerate(groups) for node in group.outputs}
    found: list[Awaited] = []
    for group in groups:
        if group.kind == "collective":
            found.append(Awaited(None, len(found)))
            continue
        own: int | None = None
        last: int | None = None
        for x in (*group.inputs, *group.after):
            number = writer.get(x)
            if number is None:
                continue
            last = _later(last, found[number].last)
            if x in group.inputs and x.type.numel > 1 and group.kind in ("loop", "foreach", "view"):
                is_collective = groups[number].kind == "collective"
                own = _later(own, number if is_collective else found[number].own)
        found.append(Awaited(own, last))
    return found


def brought_by(group: Group, groups: Sequence[Group], waits: Sequence[Awaited], number: int) -> Node | None:
    """What a group reads that needs this collective, beside what the collective gives it itself."""
    writer = {node: at for at, each in enumerate(groups) for node in each.outputs}
    return next((x for x in group.inputs if x in writer and groups[writer[x]].kind != "collective"
                 and waits[writer[x]].last == number), None)


def _later(one: int | None, other: int | None) -> int | None:
    return other if one is None else one if other is None else max(one, other)
