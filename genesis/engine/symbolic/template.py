"""What both kinds of templates share: a program over symbolic sizes, and the form of the plan that was made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from genesis.engine.symbolic.filling import admitted
from genesis.engine.symbolic.symbolic_program import concrete
from genesis.ir.graph import Graph
from genesis.ir.size_trace import Trace
from genesis.runtime.plan_form import PlanForm


class Template:
    """A program compiled with symbolic sizes.

    Attributes:
        graph: the program over sizes of the trace.
        trace: what the passes asked of its sizes is in its guards.
        where: for each symbol the axes of inputs that it is the size of, for people.
        form: the plan's formulas, guards and types, as data.
        made_for: the symbols' values in the program that it was compiled for.
    """

    form: PlanForm
    made_for: dict[str, int]

    def __init__(self, graph: Graph, trace: Trace, where: dict[str, list[str]]):
        self.graph, self.trace, self.where = graph, trace, where

    def program_of(self, numbers: Sequence[int]) -> Callable[[], Graph]:
        """What makes the program as it was captured with these numbers."""
        sizes = self.form.sizes(numbers)

        def program() -> Graph:
            self.trace.set_values(**sizes)
            return concrete(self.graph)
        return program

    def admitted(self, numbers: Sequence[int]) -> tuple[dict[str, int], list[int]] | None:
        """The sizes of a program with these numbers, and what the formulas give for them; None where the plan does not
        hold: a size is of another class, or a guard fails."""
        return admitted(self.form, self.trace.classes, numbers)
