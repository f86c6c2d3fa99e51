"""Plans filled in from a form: for sizes of its classes for which its guards hold, with memory planned for them.

This is what is kept of a template on disk, and all that filling in needs: no program, no passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import le

from genesis.ir.size_class import SizeClass
from genesis.runtime.plan import Plan
from genesis.runtime.plan_form import PlanForm, PlannedMemory
from genesis.runtime.stored_form import Field


@dataclass(frozen=True)
class ArenaRequests:
    """What memory is planned by: the same for all sizes but for numbers of bytes.

    Attributes:
        requests: (value, whether it is gone), in order.
        bytes: of each value, as a field of the form.
        lent: (output, bytes, until) of the memories that values may be in besides.
        values: the value that each moving place of the form is of.
    """

    requests: Sequence[tuple[int, bool]]
    bytes: Sequence[Field]
    lent: Sequence[tuple[int, int, int]]
    values: Sequence[int]

    def planned(self, values: Sequence[int]) -> PlannedMemory:
        """Memory planned for the sizes that these values of the form were computed from."""
        from genesis.passes.memory.arena import Lent, arranged
        nbytes = [values[size[1]] if size.__class__ is list else size for size in self.bytes]
        arena = arranged([(value, None if gone else nbytes[value]) for value, gone in self.requests],
                         [Lent(*lent) for lent in self.lent])
        starts = [("arena", 0, offset) if output is None else ("output", output, offset)
                  for output, offset in zip(arena.lent_to, arena.offsets, strict=True)]
        return PlannedMemory([starts[value] for value in self.values], arena.size, arena.peak)


def admitted(form: PlanForm, classes: Mapping[str, SizeClass],
             numbers: Sequence[int]) -> tuple[dict[str, int], list[int]] | None:
    """The sizes of a program with these numbers, and what the form's formulas give for them; None where it does not
    hold: a size is of another class, or a guard fails."""
    sizes = form.sizes(numbers)
    if any(size not in classes[name] for name, size in sizes.items()):
        return None
    values = form.admitted(numbers, sizes)
    return None if values is None else (sizes, values)


class Filling:
    """Makes plans from a form.

    Args:
        classes: of the form's symbols.
        made_for: their values in the program that it was compiled for; the form's places are those of these sizes.
        ran: this process has the memory of these sizes, as it compiled the form for them; one from disk was made for
            another process's.

    Attributes:
        own: the memory planned for these sizes.
    """

    def __init__(self, form: PlanForm, classes: Mapping[str, SizeClass], made_for: dict[str, int],
                 arena: ArenaRequests, ran: bool = True):
        self.form, self.classes, self.made_for, self.arena = form, classes, made_for, arena
        plan = form.objects[-1]
        starts = [(where, index, offset) for _, where, index, offset, _ in map(form.objects.__getitem__, form.moving)]
        self.own = PlannedMemory(starts, plan[7], plan[8])
        self._room = form.elements(form.evaluate(made_for))
        # Elements of each type, and the memory planned for them: what is no larger fits in as well.
        self._planned = [(self._room, self.own)] if ran else []

    def plan(self, numbers: Sequence[int], tight: bool = False) -> Plan | None:
        """The plan of a program of the same shape-erased key with these numbers; None if the guards do not hold.

        Args:
            tight: plan memory for these sizes, also where they fit into the places of larger ones, which takes longer.
        """
        found = admitted(self.form, self.classes, numbers)
        if found is None:
            return None
        form, (sizes, values) = self.form, found
        if sizes == self.made_for:
            plan = form.fill(values)
            others = [known for known in self._planned if known[0] is not self._room]
            self._planned = [(self._room, replace(self.own, larger=plan)), *others]
            return plan
        elements = form.elements(values)
        fitting = [] if tight else [memory for room, memory in self._planned if all(map(le, elements, room))]
        if fitting:
            return form.fill(values, fitting[0])
        memory = self.arena.planned(values)
        plan = form.fill(values, memory)
        self._planned.append((elements, replace(memory, larger=plan)))
        return plan
