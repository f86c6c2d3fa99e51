"""What the choices about a kernel's values cost: a step cut into parts, a kernel as the network of `remat_cut`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from genesis.ir.node import Node
from genesis.ir.ops.recompute import inputs_read, recompute
from genesis.ir.sym_int import hint
from genesis.passes.fusion.materialize import memory_values, weight
from genesis.passes.fusion.operand_view import operand_view
from genesis.passes.fusion.views import stored_as
from genesis.passes.gpu import Gpu
from genesis.passes.groups import Group, Schedule
from genesis.passes.remat.min_cut import FORBIDDEN, CutValue
from genesis.passes.remat.step_time import LAUNCH_BYTES

FUSED = ("loop", "foreach")
"""Kinds of groups that can make what they read."""

CHOOSING = (*FUSED, "matmul")
"""Kinds of groups some of whose values can be made again: a product has pointwise ops on its tiles."""

MADE_AGAIN = ("pointwise", "movement", "random")
"""Kinds of ops that are computed a second time; sums and products are kept."""

OP_BYTES = 1 / 64
"""Bytes that could be moved in the time of a weighted op on one element: little, as kernels wait for memory anyway."""

NEW = -1
"""Stands for a far kernel that recomputation would add."""


class StepCosts:
    """A schedule cut into parts at its turns.

    Attributes:
        home: value in memory → the group that makes it.
        parts: value in memory → the part of the step that makes it.
        readers: value → the groups that read it; also those that would, to make something of it again.
        outside: values that are in memory whatever is decided: inputs and results of the program.
        waited_for: values that others wait for (`recompute`), and so may need: a second computation of such a value,
            which waits for some of these, would wait for itself.
        relied_on: values that are kept for a stream (`network`).

    Args:
        gpu: that the schedule was made for; None for none.
    """

    def __init__(self, schedule: Schedule, turns: Sequence[int], gpu: Gpu | None = None):
        graph, self.groups = schedule.graph, schedule.groups
        self._part = [sum(turn < at for turn in turns) for at in range(len(self.groups))]
        materialized = set(memory_values(graph, gpu).materialized)
        self.home = {node: at for at, group in enumerate(self.groups) for node in group.nodes if node in materialized}
        self.parts = {node: self._part[at] for node, at in self.home.items()}
        self.readers: dict[Node, set[int]] = {}
        for at, group in enumerate(self.groups):
            for x in group.inputs:
                self.readers.setdefault(self.value(x), set()).add(at)
        self._loops: dict[Node, set[int]] = {}  # value → the groups that compute something pointwise of it
        for at, group in enumerate(self.groups):
            bases = {self.value(operand_view(x, group.inputs).base) for node in group.nodes
                     for place, x in enumerate(node.inputs) if node.op.opaque is not None
                     and node.op.opaque.kernel == "matmul" and place in node.op.opaque.views}
            for x in map(self.value, group.inputs) if group.kind in CHOOSING else ():
                if x not in bases:
                    self._loops.setdefault(x, set()).add(at)
        self.outside = {self.value(x) for x in (*graph.roots, *graph.inputs)}
        self.waited_for = {self.value(node.inputs[1]) for node in graph.nodes if node.op is recompute}
        self.relied_on: set[Node] = set()

    def value(self, name: Node) -> Node:
        """The value in memory that goes by this name: an output may be a reshape of it."""
        return name if name in self.home else stored_as(name)

    def far(self, node: Node) -> set[int]:
        """The groups of later parts that read a value; none for an input of the program."""
        part = self.parts.get(node)
        return set() if part is None else {at for at in self.readers.get(node, ()) if self._part[at] > part}

    def near(self, node: Node) -> set[int]:
        """The other groups of its part that read it."""
        return self.readers.get(node, set()) - self.far(node) - {self.home[node]}

    def read_by_loops(self, node: Node) -> bool:
        """Does another group of its part compute something pointwise of it? A product's epilogue is such one, too."""
        return not self._loops.get(node, set()).isdisjoint(self.near(node))

    def crossing_bytes(self) -> int:
        """Bytes that are kept for later parts."""
        return sum(size(node) for node in self.home if node not in self.outside and self.far(node))

    def known_before(self, at: int) -> Node | None:
        """The last made of what a group reads of its own part, so that nothing is made again before the turn."""
        own = [x for x in map(self.value, self.groups[at].inputs)
               if x in self.home and self._part[self.home[x]] == self._part[at]]
        return max(own, key=self.home.__getitem__, default=None)


def size(node: Node) -> int:
    """Bytes of a value."""
    return hint(node.type.nbytes)


def network(step: StepCosts, group: Group, wanted: Sequence[Node],
            streams: bool = False) -> tuple[tuple[Node, ...], tuple[CutValue, ...]]:
    """(nodes, the network's values for them): what wanted values of a group are made of, and what they cost.

    `streams`: of a stream, to which each kernel adds something for the next one to read, a value may be made again from
    the one before it, which is kept then.
    """
    inputs = dict.fromkeys(map(step.value, group.inputs))
    nodes = _behind(wanted, group, inputs)
    position = {node: i for i, node in enumerate(nodes)}
    reach = _reach(step, wanted, nodes, inputs)
    values = []
    for node in nodes:
        operands = () if node in inputs else tuple(sorted({position[x] for x in inputs_read(node) if x in position}))
        cost = _input_cost(step, node, reach[node]) if node in inputs else (
            _own_cost(step, node, node in wanted, reach[node], streams) if node in step.home else FREE)
        values.append(CutValue(operands, cost.traffic, cost.held, cost.again, node in inputs or node in step.home,
                            node in wanted))
    return nodes, tuple(values)


@dataclass(frozen=True)
class Cost:
    """What a value costs: the fields of `remat_cut.Value`."""

    traffic: int
    held: int
    again: int


FREE = Cost(0, 0, 0)


def _input_cost(step: StepCosts, node: Node, reach: set[int]) -> Cost:
    """Something the group reads: it is stored anyway, and not made again by this group's readers."""
    loads = len(reach - step.readers.get(node, set()))
    kept_anyway = node in step.outside or node not in step.home or bool(step.far(node))
    return Cost(size(node) * loads, 0 if kept_anyway else size(node), FORBIDDEN)


def _own_cost(step: StepCosts, node: Node, wanted: bool, reach: set[int], streams: bool) -> Cost:
    """Something the group makes.

    It is stored for its near readers; where one of these is a loop it is not made again: that could go on from kernel
    to kernel, and every far reader would load what all of them read. Of a stream it is, where no other value is made
    again from it.
    """
    nbytes, near, far = size(node), step.near(node), step.far(node)
    barred = (node.op.kind not in MADE_AGAIN or node in step.outside or node in step.waited_for
              or (step.read_by_loops(node) and (not streams or node in step.relied_on)))
    again = round(weight(node) * hint(node.type.numel) * OP_BYTES) * len(reach)
    loads = len(reach)
    if wanted and any(step.groups[at].kind not in FUSED for at in far):  # made again, it must be in memory again
        again += nbytes + (LAUNCH_BYTES if NEW in reach else 0)
        loads -= not any(step.groups[at].kind in FUSED for at in far)  # these load it either way
    return Cost((0 if near else nbytes) + nbytes * loads, nbytes, FORBIDDEN if barred else again)


def _behind(wanted: Iterable[Node], group: Group, inputs: Iterable[Node]) -> tuple[Node, ...]:
    """What these values of a group are made of: what it reads from memory, then its own nodes; no leaves."""
    own, given = set(group.nodes), set(inputs)
    found: set[Node] = set()
    stack = list(wanted)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += [x for x in inputs_read(node) if x in own or x in given] if node not in given else []
    return (*(x for x in inputs if x in found),
            *(x for x in group.nodes if x in found and x not in given and x.op.kind != "leaf" and not x.type.weak))


def _reach(step: StepCosts, wanted: Iterable[Node], nodes: Sequence[Node],
           inputs: Iterable[Node]) -> dict[Node, set[int]]:
    """Each node → the far groups that would read it, or make something of it again.

    What only products and the like read is made by another of these groups, if there is one, or by a NEW one.
    """
    given = set(inputs)
    fused = {x: {at for at in step.far(x) if step.groups[at].kind in FUSED} for x in wanted}
    other = min(set().union(*fused.values()), default=NEW)
    found: dict[Node, set[int]] = {node: set() for node in nodes}
    for node in reversed(nodes):
        if node in fused:
            found[node] |= fused[node] or {other}
        for x in inputs_read(node) if node not in given else ():
            if x in found:
                found[x] |= found[node]
    return found
