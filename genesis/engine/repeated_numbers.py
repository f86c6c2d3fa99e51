"""Loops that are read now and then, over a few numbers: `x * (i % 3)`, and what they make is read every hundred turns.

Equal numbers are one node, and what is computed of them, too. So the hundred turns have three products; which of them
comes first depends on where the hundred begin, and each beginning would be another program. In a program as this one
equal numbers are recorded as two from then on, as between two cuts of a loop (`limits.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from genesis.ir.ops import leaves
from genesis.ir.walk import computed

if TYPE_CHECKING:
    from collections.abc import Hashable

    from genesis.ir.node import Node

LONG: Final = 64
"""Nodes of a program from which on it is looked at."""

MANY: Final = 16
"""Uses of what is computed of a few numbers, from which on they are a loop's."""

TIMES: Final = 4
"""Uses of each, on average."""


def repeats_numbers(order: Collection[Node]) -> bool:
    """Whether a program, operands before users, uses equal formulas of a few numbers again and again. Formulas of one
    number are no loop's: each layer of a model may compute the same table of angles. Nor is a program with gradients.
    """
    if not _several_numbers(order):
        return False
    formula_of, value_of = _Numbered(), _Numbered()
    different: dict[int, set[int]] = {}
    uses: Counter[int] = Counter()
    for node in order:
        if computed(node) or not node.inputs:
            continue
        if node.needs_grad:
            return False
        operands = [x for x in node.inputs if x.op is not leaves.number]
        numbers = tuple([x.attrs[0] for x in node.inputs if x.op is leaves.number])
        mine = [formula_of[x] for x in operands]
        formula = formula_of.note(node, (node.op, node.attrs, tuple(mine)))
        value = value_of.note(node, (formula, numbers, tuple([value_of[x] for x in operands])))
        different.setdefault(formula, set()).add(value)
        uses.update(mine)
    return any(1 < len(found) <= uses[formula] // TIMES and uses[formula] >= MANY
               for formula, found in different.items())


def _several_numbers(order: Collection[Node]) -> bool:
    """Whether some of a program's nodes that differ in their operands at most take different numbers. If none do, equal
    formulas have equal values, and no formula has to be described: most long programs take few numbers, and each new
    size of a program is asked about."""
    taken: dict[Hashable, tuple[bool | int | float, ...]] = {}
    for node in order:
        numbers = [x.attrs[0] for x in node.inputs if x.op is leaves.number]
        if numbers and taken.setdefault((node.op, node.attrs, node.types[0].shape), tuple(numbers)) != tuple(numbers):
            return True
    return False


class _Numbered(dict["Node", int]):
    """Node → a number that nodes of an equal description share. A leaf has one of its own."""

    def __init__(self) -> None:
        super().__init__()
        self._described: dict[Hashable, int] = {}

    def __missing__(self, leaf: Node) -> int:
        return self.note(leaf, leaf)

    def note(self, node: Node, description: Hashable) -> int:
        """The number of a node of this description."""
        found = self[node] = self._described.setdefault(description, len(self._described))
        return found
