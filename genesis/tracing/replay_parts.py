"""A captured program in parts, so that a replay has a node where the plain call has one that others refer to.

A replay is one `call` node unless something happens to a value on the way that its graph cannot show:

* A leaf tensor is read after the call wrote to it. Gradients of what was made of it are the leaf's: they end at a
  `watch` node, which has to be outside of the graph, where backward finds it.
* A result is computed from another result. Gradients by that one, and hooks on it, are for its own node; and a
  backward that reads it, as that of `max` reads its indices, finds it in memory, when a step has overwritten what it
  was computed from.

There the program is cut: one part computes the value, a later part takes it as an operand.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from types import CodeType
from typing import TYPE_CHECKING, Final

from genesis.engine.capture import Captured, asked_values, build_nodes, computed
from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node, make
from genesis.ir.numbers import PLAIN
from genesis.ir.ops import control, leaves, recompute
from genesis.tracing.snapshot import NotReplayable

if TYPE_CHECKING:
    from genesis.ir.node import Number


@dataclass(frozen=True)
class Operand:
    """A value that parts start from: the content of memory number `memory`, or a value that an earlier part made.

    Attributes:
        memory: which of the program's memories, or None.
        value: which of the values that the parts made, in order, or None.
        leaf: number of the leaf tensor that reads it, or None for the value itself.
    """

    memory: int | None
    value: int | None
    leaf: int | None


@dataclass
class CallPart:
    """A part of the program: one `call`.

    Attributes:
        graph: the graph that it computes.
        operands: positions of the `Operand`s that it takes.
        numbers: positions of the program's numbers that it takes.
        gradient: for each output whether gradients flow through it.
        operands_there: how many of the `Operand`s are known when it runs.
        takes_all: whether it takes exactly these, in their order.
    """

    graph: Graph
    operands: list[int]
    numbers: list[int]
    gradient: list[bool]
    operands_there: int
    takes_all: bool


@dataclass
class Parts:
    """A program, cut into parts.

    Attributes:
        operands: the values that parts start from; those that are memory come first.
        parts: the parts in the order in which they run. Their outputs, one after the other, are the values.
        results: for each result the value, or the operand that it is.
    """

    operands: list[Operand] = field(default_factory=list)
    parts: list[CallPart] = field(default_factory=list)
    results: list[tuple[int | None, int | None]] = field(default_factory=list)


def parts_of(captured: Captured, roots: Sequence[Node], lives: Callable[[int], bool]) -> Parts:
    """Cut the program where it has to be.

    Args:
        captured: the program.
        roots: its results.
        lives: whether the leaf with a number existed before the call.

    Raises:
        NotReplayable: the program has no parts that give what it gives.
    """
    if captured.known:
        raise NotReplayable("it takes a gradient through a value that was computed before")
    return _Cutting(captured, roots, lives).found


MANY_NUMBERS: Final = 32
"""Uses of numbers that are not the first one of theirs, from which on a part takes each number once: a program that
does so is another one. Each such use is a node of each call, an operand of its plan, and 0.5 µs of each run."""


def sharing_numbers(part: CallPart, fixed: Sequence[Number | None], literals: Container[Literal]) -> CallPart:
    """The part with each number once that the user's code has as a literal, where it takes these many times; else the
    same part. A literal is the same at each call: where others are equal, they may differ in a call that is a
    replay of the same program.

        before: %2: f32[4] = mul(%0, 0.5#0)       after: %2: f32[4] = mul(%0, 0.5#0)
                %3: f32[4] = mul(%1, 0.5#1)              %3: f32[4] = mul(%1, 0.5#0)

    Args:
        part: a part of the program.
        fixed: the program's numbers; None for those that a replay asks for anew, and formulas.
        literals: those of the user's code.
    """
    if len(part.numbers) < MANY_NUMBERS:
        return part
    first: dict[Literal | int, int] = {}
    shared = [first.setdefault(known if (known := literal(fixed[place])) in literals else place, place)
              for place in part.numbers]
    if len(shared) - len(first) < MANY_NUMBERS:
        return part
    at = dict(zip(first.values(), count()))

    def rule(node: Node) -> Node | None:
        return None if node.op is not leaves.scalar else make(leaves.scalar, (), (at[shared[node["index"]]], node.type))
    return replace(part, graph=replace(rewrite(part.graph, rule), numbers=len(at)), numbers=list(at))


Literal = tuple[type, str]
"""A number in code: its class, and its text, which tells the signs of zeros."""


def literal(number: object) -> Literal:
    """How a number is known as a literal.

    >>> literal(-0.0)
    (<class 'float'>, '-0.0')
    """
    return type(number), repr(number)


def literals_of(codes: Iterable[CodeType]) -> set[Literal]:
    """The numbers that stand in this code.

    >>> sorted(literals_of([compile("x * 0.5 + 1", "", "eval")]), key=str)
    [(<class 'float'>, '0.5'), (<class 'int'>, '1')]
    """
    return {literal(x) for code in codes for x in code.co_consts if type(x) in PLAIN}


class _Cutting:
    """The work of `parts_of`."""

    def __init__(self, captured: Captured, roots: Sequence[Node], lives: Callable[[int], bool]):
        self.found = Parts()
        self._captured, self._lives = captured, lives
        self._asked = asked_values(captured.order)
        self._memory = {cell: i for i, cell in enumerate(captured.cells)}
        self._operand_at: dict[Node, int] = {}
        self._value_at: dict[Node, int] = {}
        self._check_gradients(roots)
        self._levels = self._levelled(roots)
        self._outside(roots)
        self._build(roots)

    def _is_outside(self, node: Node) -> bool:
        """Whether the node is made outside of the parts: memory, or what a leaf tensor reads."""
        return computed(node) or self._watches(node)

    def _watches(self, node: Node) -> bool:
        return node.op is control.watch and self._lives(node.attrs[0])

    def _check_gradients(self, roots: Sequence[Node]) -> None:
        """Refuse a result that requires grad only because of a leaf that the call made, which is no operand."""
        flows: dict[Node, bool] = {}
        for node in self._captured.order:
            if self._is_outside(node):
                flows[node] = node.needs_grad
            else:
                flows[node] = node.op is not control.watch and node.needs_grad and any(
                    flows.get(x, False) for x in node.inputs)
        if any(node.needs_grad and not flows[node] for node in roots):
            raise NotReplayable("a result requires grad because of a leaf tensor that the function makes")

    def _is_one(self) -> bool:
        """Whether something in it cannot be cut: its own backward, or a part that is computed again in backward."""
        whole = (control.grad, recompute.enter, recompute.leave)
        return any(node.op in whole for node in self._captured.order if not computed(node))

    def _read_by_backward(self) -> set[Node]:
        """The values without gradients that values with gradients are computed from."""
        found: set[Node] = set()
        for node in reversed(self._captured.order):
            if node.needs_grad or node in found:
                found.update(x for x in node.inputs if not x.needs_grad)
        return found

    def _levelled(self, roots: Sequence[Node]) -> dict[Node, int]:
        """Node → the number of the part that computes it."""
        read_on = {x for node in self._captured.order if node.needs_grad for x in node.inputs}
        cuts = {node for node in roots if node.needs_grad and node in read_on}
        if not self._is_one():
            cuts.update(self._read_by_backward().intersection(roots))
        levels: dict[Node, int] = {}
        there: dict[Node, int] = {}  # the first part that can read it
        for node in self._captured.order:
            if computed(node):
                there[node] = 0
            elif self._watches(node):
                value = node.inputs[0]
                there[node] = levels[value] + 1 if value in levels else 0
            else:
                level = levels[node] = max([there[x] for x in node.inputs if x.op is not leaves.number], default=0)
                there[node] = level + 1 if node in cuts else level
        if max(levels.values(), default=0) and any(node.op in (recompute.enter, recompute.leave) for node in levels):
            raise NotReplayable("it computes a part again in backward, and cannot be one node")
        if any(node.op is control.grad and level for node, level in levels.items()):  # it would end at the cut
            raise NotReplayable("it differentiates through one of its results, and cannot be one node")
        return levels

    def _outside(self, roots: Sequence[Node]) -> None:
        """Number the operands that are memory, and leaf tensors over memory."""
        levels = self._levels
        used = {*roots, *(x for node in levels for x in node.inputs)}
        for node in self._captured.order:
            if node in levels or node not in used:
                continue
            source, leaf = (node, None) if computed(node) else (node.inputs[0], node.attrs[0])
            if source not in levels:
                self._operand_at[node] = self._add(Operand(self._memory[source.buffer], None, leaf))

    def _add(self, operand: Operand) -> int:
        self.found.operands.append(operand)
        return len(self.found.operands) - 1

    def _build(self, roots: Sequence[Node]) -> None:
        captured, levels = self._captured, self._levels
        order: list[list[Node]] = [[] for _ in range(max(levels.values(), default=-1) + 1)]
        for node in captured.order:
            if node in levels:
                order[levels[node]].append(node)
        numbers = iter(range(len(captured.numbers)))
        uses = {node: [next(numbers) for x in node.inputs if x.op is leaves.number]
                for node in captured.order if not computed(node)}
        wanted = {*roots, *(node.inputs[0] for node in captured.order if self._watches(node))}
        wanted |= {x for node in levels for x in node.inputs if levels.get(x, levels[node]) < levels[node]}
        watched = [node for node in captured.order if self._watches(node) and node.inputs[0] in levels]
        for level, nodes in enumerate(order):
            taken = sorted(dict.fromkeys(x for node in nodes for x in node.inputs if x.op is not leaves.number
                                         and levels.get(x) != level), key=self._operand)
            inputs = [make(leaves.input, (), (i, x.type)) for i, x in enumerate(taken)]
            built = build_nodes(_only(captured, nodes), inputs, known=dict(zip(taken, inputs, strict=True)),
                                asked=self._asked)
            outputs = [node for node in nodes if node in wanted]
            places = [place for node in nodes for place in uses[node]]
            graph = Graph(tuple(inputs), tuple([built[node] for node in outputs]), (), len(places))
            operands = [self._operand(x) for x in taken]
            there = len(self.found.operands)
            self.found.parts.append(CallPart(graph, operands, places, [node.needs_grad for node in outputs], there,
                                         operands == [*range(there)]))
            for node in outputs:
                self._value_at[node] = len(self._value_at)
            for node in watched:
                if levels[node.inputs[0]] == level:
                    self._operand_at[node] = self._add(Operand(None, self._value_at[node.inputs[0]], node.attrs[0]))
        self.found.results = [(self._value_at[node], None) if node in self._value_at else (None, self._operand(node))
                              for node in roots]

    def _operand(self, node: Node) -> int:
        """The operand's number: of memory, of a leaf, or of another part's value, which gets one here."""
        if node not in self._operand_at:
            self._operand_at[node] = self._add(Operand(None, self._value_at[node], None))
        return self._operand_at[node]


def _only(captured: Captured, nodes: list[Node]) -> Captured:
    """The part of the program that these nodes are."""
    return Captured(nodes, set(), captured.cells, captured.memory_types, [], [], (), (), (), (), ())

