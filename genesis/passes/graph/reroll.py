"""Reroll: rows that an unrolled loop treats alike, one after the other, are treated together.

A loop like `for i in range(n): out[i] = f(x[i])` records n slices, n times f and n assignments. As one program over all
rows it is a kernel or two, where it was hundreds that nobody could compile.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from genesis.ir.graph import Graph, substitute
from genesis.ir.node import OPS, Node, Op, located, make
from genesis.ir.ops import movement
from genesis.ir.ops.leading import LEADING, LeadingRule, deeper

if TYPE_CHECKING:
    from typing import TypeVar

    T = TypeVar("T")

FEWEST: Final = 4
"""Minimum rows that are rolled up; fewer are cheap as they are."""

RULES: Final[dict[Op, LeadingRule]] = {
    **{op: LEADING[op] for op in (movement.reshape, movement.permute, movement.flip, movement.slice, movement.pad,
                                  movement.expand)},
    **dict.fromkeys((op for op in OPS.values() if op.associative), deeper),
}
"""Ops that can be done for all rows at once; pointwise ones can too."""


def reroll(graph: Graph) -> Graph:
    """Assignments of neighbouring rows, each computed alike from its own row of one value → one of all rows.

        before: %1: f32[1,8] = slice(%0, starts=(0,0), ...)    after: %1: f32[4,8] = slice(%0, starts=(0,0), ...)
                %2: f32[1] = sum(%1, axes=(1,))                       %2: f32[4] = sum(%1, axes=(1,))
                %3: f32[4] = assign(%9, %2, starts=(0,), ...)         %3: f32[4] = assign(%9, %2, starts=(0,), ...)
                %4: f32[1,8] = slice(%0, starts=(1,0), ...)
                ...

    Rows of rows show when the inner ones are together and simplified, so it runs again after that.
    """
    runs = _runs(graph)
    if not runs:
        return graph
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        with located(node.source):
            if node in runs:
                replaced[node] = _together(runs[node], replaced)
            else:
                replaced[node] = make(node.op, tuple([replaced[x] for x in node.inputs]), node.attrs, node.source)
    return substitute(graph, replaced)


LARGEST = 128
"""Maximum nodes of a row's value that are compared with another row's: a larger one may be a chain through all rows."""


@dataclass(frozen=True)
class _Likeness:
    """How two values are the same function of two rows of some values.

    Attributes:
        rows: the slices that are the first value's rows → (dimension, distance to the other value's row).
        varying: nodes of the first value that depend on its rows, these included.
    """

    rows: dict[Node, tuple[int, int]]
    varying: frozenset[Node]


@dataclass(frozen=True)
class _Run:
    """Assignments of neighbouring rows: the first one, how many, which dimension, and how the first two are alike."""

    first: Node
    count: int
    axis: int
    likeness: _Likeness


def _runs(graph: Graph) -> dict[Node, _Run]:
    """Runs that are long enough, by their last assignment."""
    assigns = [node for node in graph.nodes if node.op is movement.assign]
    if len(assigns) < FEWEST:
        return {}
    readers = Counter(x for node in graph.nodes for x in node.inputs)
    readers.update(graph.roots)
    ending: dict[Node, _Run] = {}
    for node in assigns:
        base = node.inputs[0]
        if base.op is movement.assign and readers[base] == 1:
            run = _longer(ending.get(base), base, node)
            if run is not None:
                ending[node] = run
                if run.count > 2:
                    del ending[base]
    return {node: run for node, run in ending.items() if run.count >= FEWEST}


def _longer(run: _Run | None, last: Node, node: Node) -> _Run | None:
    """The run that ends in `last` (None: `last` alone) with one more assignment, None if that is not of its kind."""
    step = _one_apart(last, node)
    if step is None or step[1] != 1:
        return None
    if run is None or step[0] != run.axis:
        likeness = _likeness(last.inputs[1], node.inputs[1])
        return None if likeness is None else _Run(last, 2, step[0], likeness)
    likeness, unit = _likeness(run.first.inputs[1], node.inputs[1]), run.likeness.rows
    if likeness is None or likeness.rows != {row: (axis, run.count * apart) for row, (axis, apart) in unit.items()}:
        return None
    return _Run(run.first, run.count + 1, run.axis, run.likeness)


def _one_apart(one: Node, other: Node) -> tuple[int, int] | None:
    """(dimension, distance) of two regions of size 1 along it that are equal in all others."""
    differing = [axis for axis, (a, b) in enumerate(zip(one["starts"], other["starts"], strict=True)) if a != b]
    if len(differing) != 1 or one["steps"] != other["steps"]:
        return None
    axis, = differing
    a, b, a_stop, b_stop = one["starts"][axis], other["starts"][axis], one["stops"][axis], other["stops"][axis]
    if not all(type(x) is int for x in (a, b, a_stop, b_stop)) or a_stop - a != 1 or b_stop - b != 1:
        return None
    same = all(x == y for at, (x, y) in enumerate(zip(one["stops"], other["stops"], strict=True)) if at != axis)
    return (axis, b - a) if same else None


def _likeness(one: Node, other: Node) -> _Likeness | None:
    """How the values are the same function of two rows, None if they are not."""
    rows: dict[Node, tuple[int, int]] = {}
    partner: dict[Node, Node] = {}
    stack = [(one, other)]
    while stack:
        a, b = stack.pop()
        if a is b or partner.get(a) is b:
            continue
        if a in partner or a.op is not b.op or len(a.inputs) != len(b.inputs) or len(partner) == LARGEST:
            return None
        partner[a] = b
        if a.attrs != b.attrs:
            step = _one_apart(a, b) if a.op is movement.slice and a.inputs == b.inputs else None
            if step is None or step[1] < 1:
                return None
            rows[a] = step
        elif (a.op.kind != "pointwise" and a.op not in RULES) or type(a.type) is tuple:
            return None
        else:
            stack.extend(zip(a.inputs, b.inputs, strict=True))
    return _Likeness(rows, frozenset(partner))


def _together(run: _Run, replaced: dict[Node, Node]) -> Node:
    """One assignment for the whole run."""
    first, count = run.first, run.count
    value = _batched(first.inputs[1], run, replaced)
    part = first.inputs[1].shape
    value = movement.reshape(value, shape=(count, *part[:run.axis], *part[run.axis + 1:]))
    value = movement.permute(value, axes=(*range(1, run.axis + 1), 0, *range(run.axis + 1, len(part))))
    return movement.assign(replaced[first.inputs[0]], value, starts=first["starts"], steps=first["steps"],
                           stops=_with(first["stops"], run.axis, first["starts"][run.axis] + count))


def _batched(wanted: Node, run: _Run, replaced: dict[Node, Node]) -> Node:
    """The first row's value for all rows, which are dimension 0."""
    if wanted not in run.likeness.varying:
        return _repeated(replaced[wanted], run.count)
    made: dict[Node, Node] = {}
    stack = [wanted]
    while stack:
        node = stack[-1]
        missing = [] if node in run.likeness.rows else [
            x for x in node.inputs if x in run.likeness.varying and x not in made]
        if missing:
            stack += missing
            continue
        stack.pop()
        if node not in made:
            made[node] = _for_all_rows(node, run, made, replaced)
    return made[wanted]


def _for_all_rows(node: Node, run: _Run, made: dict[Node, Node], replaced: dict[Node, Node]) -> Node:
    if node in run.likeness.rows:
        return _rows(node, *run.likeness.rows[node], run.count, replaced)
    if node.op.kind != "pointwise":
        return RULES[node.op](node, (made[node.inputs[0]],), run.count)
    inputs = []
    for x in node.inputs:
        if x in made:
            inputs.append(made[x])
        else:  # the same for every row
            inputs.append(replaced[x] if x.type.weak else _repeated(replaced[x], run.count))
    return make(node.op, tuple(inputs), node.attrs)


def _repeated(x: Node, count: int) -> Node:
    return movement.expand(movement.reshape(x, shape=(1, *x.shape)), shape=(count, *x.shape))


def _rows(row: Node, axis: int, apart: int, count: int, replaced: dict[Node, Node]) -> Node:
    """All rows of which this slice is the first, as dimension 0 before the slice's own."""
    start = row["starts"][axis]
    found = movement.slice(replaced[row.inputs[0]], starts=row["starts"], steps=_with(row["steps"], axis, apart),
                           stops=_with(row["stops"], axis, start + (count - 1) * apart + 1))
    found = movement.permute(found, axes=(axis, *(at for at in range(len(row.shape)) if at != axis)))
    return movement.reshape(found, shape=(count, *row.shape))


def _with(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1:])
