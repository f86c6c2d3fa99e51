"""Live nodes become a program: which nodes a flush needs, its structural key, and its graph.

The key is made at every flush and decides whether a plan exists, so it is the hot path of a step
that was seen before; the graph is made only when there is none. Addresses and number values are
not in the key: memories and numbers are the program's inputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import TYPE_CHECKING, Final

from genesis.engine.moving_places import Moving, moved
from genesis.frontend.storage import Cell
from genesis.ir.graph import Graph
from genesis.ir.node import NUMBER_TYPES, OPS, Node, Op, located, make
from genesis.ir.ops import control, leaves, recompute
from genesis.ir.ops.checked import CHECKED, line_of, with_check
from genesis.ir.types import TensorType
from genesis.ir.walk import computed, walk

if TYPE_CHECKING:
    from collections.abc import Hashable

    from genesis.codegen.base import Memory

NUMBERED: Final = {control.watch: "leaf", control.alias: "alias", recompute.enter: "region",
                   recompute.leave: "region"}
"""Ops with a number that is another one each time the program is recorded → what it is the number of. In a captured
program they count from 0, in the order in which they are met."""

MANY: Final = 8
"""Operands of a node from which on their positions are found by a loop of C: an optimizer's node has hundreds."""

_SPECIAL: Final = frozenset({*NUMBERED, *CHECKED})


@dataclass(eq=False, repr=False)
class Captured:
    """A captured program: what a flush computes.

    Attributes:
        order: the nodes it needs but for numbers, operands before users; computed ones stand for their memory.
        known: computed nodes of `order` whose structure is needed too, to differentiate through.
        cells: the contents that it reads or overwrites, each once.
        memory_types: the type of the whole value in each memory.
        numbers: values of the user's numbers, one for each use.
        number_nodes: the `number` node of each.
        key: the structure, equal for equal programs; it begins with the types of the memories.
        overwritten: the contents that end, as their memories are overwritten.
        written: the values that overwrite these.
        moving: slices whose places are the last of the numbers (`moving_places.py`).
        twins: nodes that are in memory where one of `order` is → that one (`Written`).
    """

    order: list[Node]
    known: set[Node]
    cells: list[Cell]
    memory_types: list[TensorType]
    numbers: list[bool | int | float]
    number_nodes: list[Node]
    key: tuple
    outputs: Sequence[Node]
    overwritten: Sequence[Cell]
    written: Sequence[Node]
    snapshots: Sequence[tuple[Cell, TensorType]]
    moving: Moving = field(default_factory=dict)
    twins: dict[Node, Node] = field(default_factory=dict)

    @property
    def memories(self) -> list[Memory]:
        """The memories of the cells, as the plan takes them."""
        return [cell.memory for cell in self.cells]

    @property
    def places(self) -> Sequence[Node]:
        """The last of its numbers: those of the places that move."""
        return self.number_nodes[len(self.numbers) - sum(map(len, self.moving.values())):]

    @property
    def op_at(self) -> dict[Node, int]:
        """Node → the position of its op in the key; its attributes come next, and a leaf's type after these."""
        nodes = [node for node in self.order if node in self.known or not computed(node)]
        return dict(zip(nodes, [at for at, item in enumerate(self.key) if item.__class__ is Op], strict=True))


def constants(order: Iterable[Node]) -> set[Node]:
    """Those of these nodes, operands before users, whose values are the same in every program: no memory, number or
    computed value is behind them."""
    found: set[Node] = set()
    varying = (leaves.data, leaves.number)
    for node in order:
        if found.issuperset(node.inputs) and node.op not in varying and not computed(node):
            found.add(node)
    return found


def communicates(node: Node) -> bool:
    """Whether a node is a collective, or a call of a graph that has one."""
    return node.op.kind == "collective" or (node.op is control.call and any(map(communicates, node["graph"].nodes)))


def differentiated(order: Collection[Node]) -> set[Node]:
    """Computed nodes that a recorded `grad` differentiates through. The way to each leads over one in `order`."""
    if not any(map(computed, [x for x in order if x.buffer is not None and x.needs_grad and x.inputs])):
        return set()
    requests = [node for node in order if node.op is control.grad]
    seen = _below(requests)
    if any(node.op is control.grad for node in seen):  # a derivative is differentiated, which is written out, too
        seen = _below(requests, ends=False)
    return {node for node in seen if node.inputs and computed(node)}


def _below(requests: Iterable[Node], ends: bool = True) -> set[Node]:
    """The nodes that these `grad` nodes go through, each as far as its ends, or to the leaves."""
    seen: set[Node] = set()
    for request in requests:
        last = frozenset(control.ends_of(request)) if ends else ()
        starts = list(request.inputs[:request.attrs[0]])
        while starts:
            node = starts.pop()
            if node not in seen and node.needs_grad and node not in last:
                seen.add(node)
                starts.extend(node.inputs)
    return seen


def program(roots: Sequence[Node], order: dict[Node, None] | None = None) -> tuple[dict[Node, None], set[Node]]:
    """The nodes that the roots need, in order, and the computed ones among them to differentiate through.

    `order`: an earlier walk from some of the roots, which goes on.
    """
    return with_histories(walk(roots, order=order))


def with_histories(order: dict[Node, None]) -> tuple[dict[Node, None], set[Node]]:
    """`program`, given the walk from the roots: the same one where nothing in memory is differentiated through, else
    with what is below that before it."""
    through = differentiated(order)
    if not through:
        return order, through
    below = walk([x for node in order if node in through for x in node.inputs], through)
    below.update(order)
    return below, through.intersection(below)


class Written:
    """A program while it is written down, node by node.

    Attributes:
        position: its nodes but for numbers, in order → their positions.
        places: the contents that it reads or overwrites → their numbers; `types` are those of their memories.
        number_nodes: the `number` node of each use of a number.
        key: the structure so far.
        seen: how many nodes of the walk it has, numbers counted.
        unwritten: those of its nodes that are in memory and have a history that gradients could go through, and that is
            not written down.
        past: those of its nodes that are in memory and have another one, which nobody needs (`histories.py`).
        twins: nodes that are in memory where another is → that one, whose position they share. Of what an op has
            recorded when a loop is cut in its middle, the piece after the first cut reads the node that was computed,
            where later ones read the leaf of the memory: they are one program.

    Args:
        piece: it is a piece of a loop: look for twins.
    """

    __slots__ = ("_counted", "_leaf_at", "key", "number_nodes", "past", "piece", "places",
                 "position", "seen", "twins", "types", "unwritten")

    def __init__(self, piece: bool = False) -> None:
        self.position: dict[Node, int] = {}
        self.places: dict[Cell, int] = {}
        self.types: list[TensorType] = []
        self.number_nodes: list[Node] = []
        self.key: list[Hashable] = []
        self.seen = 0
        self.unwritten: list[Node] = []
        self.past: list[Node] = []
        self._counted: dict[tuple[str, int], int] = {}
        self.piece = piece
        self._leaf_at: dict[int, Node] = {}
        self.twins: dict[Node, Node] = {}

    def behind(self) -> Written:
        """A text that goes on where this one ends, with a key of its own; this one stays as it is."""
        more = Written(self.piece)
        more.position, more.places, more.types = dict(self.position), dict(self.places), list(self.types)
        more.seen, more._counted = self.seen, dict(self._counted)
        more._leaf_at, more.twins = dict(self._leaf_at), dict(self.twins)
        return more

    @property
    def order(self) -> list[Node]:
        """The nodes but for numbers and twins."""
        return [node for node in self.position if node not in self.twins] if self.twins else list(self.position)

    def _is_twin(self, node: Node, place: int) -> bool:
        """Whether the content with this number, which no gradient flows through, was met as another node's."""
        first = self._leaf_at.setdefault(place, node)
        if first is node:
            return False
        self.twins[node] = first
        return True

    def place_of(self, cell: Cell, type: TensorType) -> int:
        """The number of a content."""
        place = self.places.get(cell)
        if place is None:
            place = self.places[cell] = len(self.types)
            self.types.append(type)
        return place

    def write(self, visited: Collection[Node], known: Container[Node] = ()) -> None:
        """Write down the nodes of a walk, operands before users, from the first that is not there yet."""
        position, counted, number_op, append = self.position, self._counted, leaves.number, self.key.append
        places, types = self.places, self.types
        piece, at_place = self.piece, len(position) - len(self.twins)
        every_line = _lines_matter()
        numbered, special = NUMBERED, frozenset(OPS.values()) if every_line else _SPECIAL
        item = control.item if not every_line else None
        for node in islice(visited, self.seen, None) if self.seen else visited:
            op = node.op
            if op is number_op:  # whether two numbers are equal is not structure
                continue
            if op is item and node.buffer is None:  # as the lines below: a step has hundreds (`host_time.py`)
                position[node] = at_place
                at_place += 1
                append(op)
                append(node.attrs)
                append(position[node.inputs[0]])
                continue
            cell, inputs = node.buffer, node.inputs
            if cell is None or cell.memory is None:
                position[node] = at_place
            else:
                if inputs:
                    if not node.needs_grad:
                        self.past.append(node)
                    elif node not in known:
                        self.unwritten.append(node)
                place = places.get(cell)
                if place is None:  # as `place_of` does: a step reads hundreds (`host_time.py`)
                    place = places[cell] = len(types)
                    types.append(node.type)
                if piece and not node.needs_grad and self._is_twin(node, place):
                    position[node] = position[self.twins[node]]
                    continue
                position[node] = at_place
                append(place)
                if node not in known:
                    at_place += 1
                    continue
            at_place += 1
            append(op)
            if op not in special:
                append(node.attrs)
            elif op in numbered:
                append(counted.setdefault((numbered[op], node.attrs[0]), len(counted)))
            else:
                append(node.attrs)
                if every_line or _kernel_checks(node):
                    append(line_of(node.source))
            if not inputs:
                append(node.type)
            elif len(inputs) > MANY:
                found: list[Hashable] = list(map(position.get, inputs))
                if None in found:
                    for i, x in enumerate(inputs):
                        if found[i] is None:
                            found[i] = x.type
                            self.number_nodes.append(x)
                self.key += found
            else:
                for x in inputs:
                    at = position.get(x)
                    if at is not None:
                        append(at)
                    else:
                        append(x.type)
                        self.number_nodes.append(x)
        self.seen = len(visited)

    def write_way(self, node: Node) -> None:
        """Write down how a node came to be that was written as one in memory; its operands are written."""
        number = NUMBERED.get(node.op)
        attrs = node.attrs if number is None else self._counted.setdefault((number, node.attrs[0]), len(self._counted))
        self.key.append((self.position[node], node.op, attrs,
                         tuple([x.type if (at := self.position.get(x)) is None else at for x in node.inputs])))


def capture(outputs: Sequence[Node], overwritten: Sequence[Cell] = (), contents: Sequence[Node] = (),
            snapshots: Sequence[tuple[Cell, TensorType]] = (),
            before: tuple[Written, dict[Node, None], set[Node]] | None = None) -> Captured:
    """The program that computes the outputs, overwrites memories with their new contents, and returns copies of the
    snapshots' memories as they were before.

    `before`: `program` of some of these nodes, and what was written down of it, to go on with.
    A leaf whose memory was overwritten becomes a `lost` node: compiling raises if anything needs it.
    """
    roots = [*outputs, *contents]
    written, visited, known = before or (Written(), {}, set())
    if before is None:
        visited, known = program(roots)
    elif not all(map(visited.__contains__, roots)):
        visited = walk(roots, known, visited)
        more = differentiated(visited)
        if not more <= known:  # it goes through other nodes in memory
            written = Written(written.piece)
            visited, known = with_histories(walk(roots))
    written.write(visited, known)
    position, place_of, key, number_nodes = written.position, written.place_of, written.key, written.number_nodes
    append = key.append
    append(tuple([position[node] for node in outputs]))
    for cell, node in zip(overwritten, contents, strict=True):
        append(place_of(cell, node.type))
        append(position[node])
    append("|")
    for cell, type in snapshots:
        append(place_of(cell, type))
    return Captured(written.order, known, list(written.places), written.types, [x.attrs[0] for x in number_nodes],
                    number_nodes, (*written.types, "|", *key), outputs, overwritten, contents, snapshots,
                    twins=written.twins)


def _kernel_checks(node: Node) -> bool:
    """Whether the kernel that gets the node's index looks at it, and tells the line of one that is outside."""
    from genesis.engine.backends import backend_of  # recording imports this module, and needs no backend
    return backend_of(node.type.device).checks_indices


def _lines_matter() -> bool:
    """Whether the line of a launch that fails is to be told: then equal programs of different lines differ."""
    return os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"


def build_graph(captured: Captured) -> Graph:
    """The captured program over `input` and `scalar` nodes."""
    inputs = input_nodes(captured.memory_types)
    return graph_of(captured, inputs, build_nodes(captured, inputs))


def graph_of(captured: Captured, inputs: Sequence[Node], built: Mapping[Node, Node]) -> Graph:
    """The captured program, given what `build_nodes` made of its nodes over these inputs."""
    index_of = {cell: i for i, cell in enumerate(captured.cells)}
    outputs = tuple(built[node] for node in captured.outputs)
    kept = tuple(inputs[index_of[cell]] for cell, _ in captured.snapshots)
    updates = tuple((inputs[index_of[cell]], built[node])
                    for cell, node in zip(captured.overwritten, captured.written, strict=True))
    return Graph(tuple(inputs), outputs + kept, updates, len(captured.numbers))


def input_nodes(types: Sequence[TensorType], first: int = 0) -> list[Node]:
    """An `input` node for each memory, numbered from the first on."""
    return [make(leaves.input, (), (i, type)) for i, type in enumerate(types, first)]


Attributes = Callable[[Node, tuple[Node, ...]], tuple]
"""(captured node, operands of the node that is made of it) → its attributes."""


def build_nodes(captured: Captured, inputs: Sequence[Node] | None = None,
                attributes: Attributes = lambda node, operands: node.attrs,
                known: Mapping[Node, Node] | None = None, asked: Collection[Node] | None = None) -> dict[Node, Node]:
    """Captured node → the node over `input` and `scalar` nodes that stands for it in the graph.

    Args:
        captured: the program.
        inputs: the nodes that stand for its memories.
        attributes: gives a new node's attributes.
        known: nodes that are built already.
        asked: values that gradients are asked for, where these are not all in the program (see `asked_values`).
    """
    inputs = input_nodes(captured.memory_types) if inputs is None else inputs
    index_of = {cell: i for i, cell in enumerate(captured.cells)}
    built: dict[Node, Node] = dict(known or ())
    counted: dict[tuple[str, int | Node], int] = {}
    every_line = _lines_matter()
    asked = asked_values(captured.order) if asked is None else asked
    twins: dict[Node, list[Node]] = {}
    for twin, first in captured.twins.items():
        twins.setdefault(first, []).append(twin)
    numbers = 0
    moving = captured.moving
    if moving:
        last = count(len(captured.numbers) - sum(map(len, moving.values())))
        starts = {node: [make(leaves.scalar, (), (next(last), NUMBER_TYPES[int])) for _ in axes]
                  for node, axes in moving.items()}
    for position, node in enumerate(captured.order):
        if node in built:
            continue
        has_value = computed(node)
        if node.op is leaves.data and not has_value:
            built[node] = make(control.lost, (), (*attributes(node, ()), position))
            continue
        if has_value and node not in captured.known:
            leaf = inputs[index_of[node.buffer]]
            built[node] = leaf if node not in asked else _asked(leaf, node, counted)
            if node in twins:
                built.update(dict.fromkeys(twins[node], leaf))
            continue
        operands = []
        for x in node.inputs:
            if x.op is leaves.number:
                operands.append(make(leaves.scalar, (), (numbers, x.type)))
                numbers += 1
            else:
                operands.append(built[x])
        given = tuple(operands)
        attrs = attributes(node, given) if node.op not in NUMBERED else (
            counted.setdefault((NUMBERED[node.op], node.attrs[0]), len(counted)),)
        if node in moving:
            made = moved(node, given, moving[node], starts[node])
        elif node.op in CHECKED and _kernel_checks(node):
            made = with_check(node.op, given, attrs, node.source)
        else:
            made = make(node.op, given, attrs, node.source)
        if every_line:  # the node may be an equal one of another program
            made.source = node.source
        if has_value:
            with located(node.source):
                made = make(control.known, (made, inputs[index_of[node.buffer]]))
        built[node] = made if node not in asked else _asked(made, node, counted)
    return built


def _asked(built: Node, node: Node, counted: dict[tuple[str, int | Node], int]) -> Node:
    """The value of a node that a gradient is asked for, apart from equal ones."""
    return make(control.alias, (built,), (counted.setdefault(("asked", node), len(counted)),), node.source)


def asked_values(order: Iterable[Node]) -> set[Node]:
    """Values that gradients are asked for. While recording each is a node of its own; in the graph, where equal nodes
    are one, an `alias` keeps them apart."""
    return {x for node in order if node.op is control.grad for x in control.asked_of(node)
            if x.op is not control.watch and (x.op is not control.alias or computed(x))}
