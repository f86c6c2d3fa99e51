"""Why a program was compiled though others of its structure were there: for people (`genesis why recompile`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from genesis.engine.symbolic.plan_template import PlanTemplate
from genesis.ir.size_ranges import COMPARISONS
from genesis.ir.size_trace import Trace
from genesis.ir.sym_int import SymInt, formula, symbols_of, value_at

MOST_TRIED: Final = 4096
"""Sizes that a guard is tried for on each side of one, to say for which it holds."""

MOST_TOLD: Final = 4
"""Templates that are told about, the latest."""


@dataclass(frozen=True)
class Recompilation:
    """A compilation that other sizes made necessary.

    Attributes:
        templates: what there was for programs of its structure.
        numbers: the program's own sizes.
        stored: how many there were from disk, of its classes, of which no guard held.
    """

    templates: Sequence[PlanTemplate]
    numbers: Sequence[int]
    stored: int = 0

    def lines(self) -> list[str]:
        """What each template was made for, and what kept it from serving the program."""
        found: list[str] = []
        for template in reversed(self.templates[-MOST_TOLD:]):
            made = ", ".join(f"{name} = {value} ({', '.join(template.where[name])})"
                             for name, value in template.made_for.items())
            found.append(f"not the plan for {made}:")
            found += [f"    {reason}" for reason in self._reasons(template)]
        if self.stored:
            found.append(f"nor one of {self.stored} from disk, whose guards failed (GENESIS_PLAN_CACHE=0 tells which)")
        return found

    def _reasons(self, template: PlanTemplate) -> Iterable[str]:
        trace, sizes = template.trace, template.form.sizes(self.numbers)
        for name, value in sizes.items():
            if value not in trace.classes[name]:
                yield f"{name} is {value}, of another class than {trace.classes[name]}"
        if any(value not in trace.classes[name] for name, value in sizes.items()):
            return
        named = [name for name in sorted(trace.literals) if sizes[name] != template.made_for[name]]
        for name in named:
            yield f"{name} is {sizes[name]}, and had always been {template.made_for[name]}: its kernels name that"
        failed = [(kind, size) for kind, size in trace.guards if not COMPARISONS[kind](value_at(size, sizes), 0)]
        for kind, size in failed:
            yield f"guard {guard_text(kind, size)}, which holds for {guard_range(trace, kind, size, template.made_for)}"
        if not failed and not named and not template.form.fits(self.numbers, template.form.evaluate(sizes)):
            yield "a number of the program follows from its sizes in another way than there"


def guard_text(kind: str, size: SymInt) -> str:
    """A guard as people write it: what depends on sizes on the left, the number on the right.

    >>> with Trace(T=601) as trace:
    ...     guard_text(">=", trace.symbol("T") * 2 - 1200)
    'T*2 >= 1200'
    """
    constant = next((k for atoms, k in size.terms if not atoms), 0)
    return f"{formula(size - constant)} {kind} {-constant}"


def guard_range(trace: Trace, kind: str, size: SymInt, values: dict[str, int]) -> str:
    """The values of each symbol for which a guard holds, the others as they were, around the one that it was made for.

    >>> with Trace(B=3, T=601) as trace:
    ...     guard_range(trace, "<=", trace.symbol("T") - 700, trace.values)
    'T from 513 to 700'
    """
    parts = []
    for name in sorted(symbols_of(size)):
        admitted = trace.classes[name]
        ends = []
        for step in (-1, 1):
            at = last = values[name]
            for _ in range(MOST_TRIED):
                at += step
                if not admitted.least <= at <= admitted.most:
                    break
                if at in admitted:
                    if not COMPARISONS[kind](value_at(size, {**values, name: at}), 0):
                        break
                    last = at
            ends.append(last)
        parts.append(f"{name} from {ends[0]} to {ends[1]}")
    return ", ".join(parts)
