"""A plan template: a program compiled once for all sizes of a class.

The passes run over symbolic sizes (`ir/sym_int.py`), kernels take them as arguments, and the plan is kept as a form
(`runtime/plan_form.py`). Another size then costs filling in the form and planning memory, as long as it is of the same
class and the guards hold: where they fail, other kernels or another grouping would be better, and the program is
compiled again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from genesis.engine.backends import backend_of
from genesis.engine.compilation import plan_of
from genesis.engine.symbolic.filling import ArenaRequests, Filling
from genesis.engine.symbolic.plan_writer import write_form
from genesis.engine.symbolic.template import Template
from genesis.ir.graph import Graph
from genesis.ir.result_types import forget_sizes_of
from genesis.ir.size_trace import Trace
from genesis.ir.types import Device
from genesis.runtime.plan import Place

if TYPE_CHECKING:
    from genesis.passes.memory.plan_memory import MemoryPlan


class PlanTemplate(Template):
    """A program compiled with symbolic sizes: it gives the plan for all sizes that its guards admit.

    Args:
        graph: the program over sizes of the trace.
        numbers: what its shape-erased key leaves out (`shape_erased_key.py`), symbolic sizes among them.
        trace: not active; what the passes ask of sizes becomes its guards.
        where: for each symbol the axes of inputs that it is the size of, for people.
        device: a GPU.
        key: as `SymbolicProgram.key`: what the program's text is written by (`program_text.py`).
    """

    def __init__(self, graph: Graph, numbers: Sequence[int], trace: Trace, where: dict[str, list[str]],
                 device: Device, key: Sequence[object] = ()):
        from genesis.passes.pipeline import run_passes
        super().__init__(graph, trace, where)
        self.key = key
        try:
            with trace:
                passed = run_passes(graph, backend_of(device), last="lower")
                memory = passed.memory
                moving = _moving(memory)
                plan = plan_of(graph, device, passed)
                guards = [*trace.guards, *(("==", trace.from_value(trace.symbol(name)))
                                           for name in sorted(trace.literals))]
                self.form, moved, nbytes = write_form(
                    plan, numbers, trace, guards, moving,
                    [nbytes for _, nbytes in memory.requests if nbytes is not None])
        finally:
            forget_sizes_of(trace)
        self.made_for = trace.values
        self.filling = Filling(self.form, trace.classes, self.made_for, ArenaRequests(
            [(value, nbytes is None) for value, nbytes in memory.requests], nbytes,
            [(lent.output, lent.nbytes, lent.until) for lent in memory.lent],
            [memory.value_at[id(moving[i])] for i in moved]))
        self.plan = self.filling.plan


def _moving(memory: MemoryPlan) -> list[Place]:
    """The places that depend on sizes: those of the arena's values, in an order that does not."""
    ends = (*memory.before, *memory.after)
    places = (*memory.places.values(), *(place for pair in ends for place in pair), *(x for _, _, x in memory.copies))
    return list({id(place): place for place in places if id(place) in memory.value_at}.values())
