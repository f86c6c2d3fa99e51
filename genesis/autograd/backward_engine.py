"""The backward engine: gradients inside the recorded program, phase by phase, and Python between the phases.

A phase is one recorded `grad` node: from where gradients have arrived to the leaf tensors, and to the next *stops*.
A stop is a boundary (`genesis.frontend.boundaries`), or a value with hooks. When all that can arrive at a stop has
arrived, it is asked what to go on with, and the next phase begins behind it. A program without stops takes one phase.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import chain, islice
from operator import add
from typing import Any, Final

from genesis.autograd.pieces import LATEST, MOST_SUMS, Arrived, below, by_leaf, by_runs, empty_sum, piece_of, watched_by
from genesis.config import config
from genesis.frontend import session
from genesis.frontend.boundaries import Boundary, Renewal, Renewing
from genesis.frontend.grad_mode import enable_grad, tracking
from genesis.frontend.recording import FREED, emit, read, wrap, wrap_as
from genesis.frontend.state import state
from genesis.frontend.storage import Storage
from genesis.ir.errors import failure
from genesis.ir.graph import Graph
from genesis.ir.node import Node, make
from genesis.ir.ops import control
from genesis.ir.ops.control import gradient_inputs

Pairs = list[tuple[Node, Node]]
"""(value, the gradient that arrives there)."""

Stop = Boundary | Node
"""A place where a phase ends: a boundary, or a value with hooks."""

retaining: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Computed tensors that keep their gradient (`retain_grad`), by the order of the calls."""

MANY: Final = 16
"""Part of `config.pending_nodes` that gradients of leaf tensors are at the most to wait for their step with the last
piece of a backward: a step by hand records a few ops for each."""

at_end: list[Callable[[], None]] = []
"""Functions that hooks asked to have called when the backward that runs the hooks has ended."""


@dataclass(eq=False, repr=False)
class FoundGradients:
    """The gradients found so far: by the number of a leaf tensor, and by the node of another value.

    Attributes:
        storages: those whose memory the gradients are in that were computed piece by piece: one tensor may have each.
    """

    leaves: dict[int, Node] = field(default_factory=dict)
    nodes: dict[Node, Node] = field(default_factory=dict)
    storages: dict[Node, Storage] = field(default_factory=dict)


def content(tensor: Any) -> Node:
    """The node that a tensor's gradient belongs to: the one that values made of the tensor have read."""
    with enable_grad():
        detached = tensor.detached
        node = tensor.storage.node if detached is None or detached.history is None else detached.history
        if detached is not None and tensor.part is not None:
            return read(tensor)
        if tensor.leaf is not None or (detached is None and node.op is not control.overwritten):
            return read(tensor)
        while node.op is control.overwritten:  # written to without gradients, it keeps its history
            node = node.inputs[0]
        return node if tensor.part is None else tensor.part.read(node)


def gradients(roots: Pairs, create_graph: bool, wanted: Callable[[int], bool] | None = None,
              others: Sequence[Node] = ()) -> FoundGradients:
    """The gradients of leaf tensors and of other values, through all stops on the way to them.

    Args:
        wanted: whether the leaf with a number is asked for; None asks for every leaf, and passes every stop.
        others: values that are asked for and are not leaves.
    """
    outer = len(at_end)
    try:
        running = _Backward(roots, create_graph, wanted, others)
        while running.arrived:
            running.go_on(running.next_stop())
        _note_leaves(running.found.leaves)
        with tracking(create_graph):
            for number, node in running.found.leaves.items():
                leaf = state.watched.get(number)
                if leaf is not None and leaf._hooks:
                    refuse_python()
                    running.found.leaves[number] = read(leaf._hooks.run(wrap_as(leaf, node)))
    finally:
        waiting = at_end[outer:]
        del at_end[outer:]
    for finish in waiting:
        finish()
    return running.found


def _note_leaves(numbers: Iterable[int]) -> None:
    """Tell a capture which leaf tensors gradients arrived at: a hook on one of them is a function of Python there."""
    if state.session is not None and (running := session.active()) is not None:
        running.differentiated += [leaf for number in numbers if (leaf := state.watched.get(number)) is not None]


def refuse_python() -> None:
    """Refuse to compile a program whose backward calls Python."""
    if state.session is not None and (running := session.active()) is not None:
        running.refuse("backward calls a function of Python")


class _Backward:
    """One run of the backward engine.

    Attributes:
        found: the gradients that were asked for.
        arrived: the gradients that wait at stops: one for each output of a boundary, one for a node.
        renewed: what was made anew of the forward's values, and may still be read.
    """

    def __init__(self, roots: Pairs, create_graph: bool, wanted: Callable[[int], bool] | None, others: Sequence[Node]):
        self.found = FoundGradients()
        self.arrived: dict[Stop, list[Node | None]] = {}
        self.renewed: dict[Renewal, Pairs] = {}
        self._roots, self._create_graph = [y for y, _ in roots], create_graph
        self._all, self._wanted = wanted is None, wanted or state.watched.__contains__
        self._others = dict.fromkeys(others)
        self._keepers = {content(x): x for x in retaining.values() if x.requires_grad} if retaining else {}
        self._start(roots)

    @cached_property
    def _ranks(self) -> dict[Stop, float]:
        """Every stop that gradients of the roots reach, with a rank that grows from operands to users."""
        ranks: dict[Stop, float] = {stop: rank for rank, stop in enumerate(_upstream(self._roots))}
        if any(isinstance(stop, Boundary) and stop.early for stop in ranks):
            ranks.update(_early_ranks(ranks))
        return ranks

    @cached_property
    def _useful(self) -> set[Stop]:
        """The stops behind which there is something that is asked for."""
        found: set[Stop] = set(self._others)
        for stop in self._ranks:
            if (isinstance(stop, Node) and stop.op is control.watch and self._wanted(stop.attrs[0])) or (
                    not found.isdisjoint(made_of(stop))):
                found.add(stop)
        return found

    def next_stop(self) -> Stop:
        """The stop that no other gradient can still reach: the one that was made last."""
        if len(self.arrived) == 1:
            return next(iter(self.arrived))
        return max(self.arrived, key=self._ranks.__getitem__)

    def go_on(self, stop: Stop) -> None:
        """Ask the stop what becomes of the gradients that arrived, and go on from there."""
        if isinstance(stop, Node) and isinstance(stop.hooks, Renewing):
            for renewal in stop.hooks.renewals:
                self._renew(renewal)
        if not (stop.records if isinstance(stop, Boundary) else self._only_renews(stop)):
            refuse_python()
        given: list[Any] = [None if g is None else wrap(g) for g in self.arrived.pop(stop)]
        if isinstance(stop, Boundary):
            with tracking(self._create_graph):
                pairs = stop.pull(given)
            if stop.renewal is not None:
                self.renewed.pop(stop.renewal, None)
            with enable_grad():
                self._start([(read(origin), read(g)) for origin, g in pairs])
            return
        with tracking(self._create_graph):
            gradient = given[0] if stop.hooks is None else stop.hooks.run(given[0])
            keeper = self._keepers.get(stop)
            if keeper is not None:
                keeper._grad = gradient if keeper._grad is None else keeper._grad + gradient
        with enable_grad():
            node = read(gradient)
            if stop in self._others:  # as in torch: after its hooks, unless gradients go on from here
                goes_on = not self._useful.isdisjoint(made_of(stop))
                self.found.nodes[stop] = read(given[0]) if goes_on else node
        if stop.op is control.watch and (crossing := state.crossing(stop.attrs[0])) is not None:
            boundary, output = crossing
            self._arrive(boundary, output, boundary.outputs, node)
        else:
            self._phase([(stop, node)], gradient_inputs(stop))

    def _only_renews(self, stop: Node) -> bool:
        """Whether a value has no function of the user's: backward stops there to make something anew."""
        return isinstance(stop.hooks, Renewing) and not stop.hooks and stop not in self._keepers

    def _renew(self, renewal: Renewal) -> None:
        """Make values of the forward anew, if that was not done. Gradients that are differentiated again read the
        forward's own."""
        if renewal not in self.renewed and not self._create_graph:
            self.renewed[renewal] = renewal.renew()

    def _start(self, roots: Pairs) -> None:
        """A phase that begins at these values, those that are stops themselves apart."""
        plain = []
        for y, g in roots:
            if self._hooked(y):
                self._arrive(y, 0, 1, g)
            else:
                plain.append((y, g))
        if plain:
            self._phase(plain, [y for y, _ in plain])

    def _hooked(self, node: Node) -> bool:
        return node.hooks is not None or node in self._keepers

    def _phase(self, roots: Pairs, starts: Sequence[Node]) -> None:
        """Record the gradients inside one program, from `starts` on: of leaves, of other nodes and at its stops."""
        watches, stops, reached = self._below(starts)
        if FREED in watches:
            raise failure("backward", "Trying to backward through the graph a second time",
                          hint="specify retain_graph=True when calling backward the first time")
        crossings = state.crossings
        if (stops or not crossings.keys().isdisjoint(watches)) and not self._all:
            stops = [node for node in stops if node in self._useful]
            watches = {number: several for number, several in watches.items()
                       if number not in crossings or several[0] in self._useful}
        if (stops or not crossings.keys().isdisjoint(watches)) and any(node.op is control.grad for node in reached):
            on_the_way = [*stops, *(node for number in watches if number in crossings for node in watches[number])]
            really = _derivatives_reach(starts, on_the_way)
            stops = [node for node in stops if node in really]
            watches = {number: several for number, several in watches.items()
                       if number not in crossings or not really.isdisjoint(several)}
        if not stops and crossings.keys().isdisjoint(watches) and (number_of := self._pieces(reached)) is not None:
            self._piecewise(roots, number_of)
            return
        asked = {number: several for number, several in watches.items() if number in crossings or self._wanted(number)}
        inside = [node for node in self._others if node in reached and node not in stops]
        if not asked and not inside and not stops:
            return
        for number in asked:
            if (crossing := state.crossing(number)) is not None and (renewal := crossing[0].renewal) is not None:
                self._renew(renewal)
        if state.renewals:
            for renewal in _read_of_others(reached):
                self._renew(renewal)
        recorded = iter(_record_grad(roots, [*asked.values(), *([n] for n in inside), *([n] for n in stops)],
                                     self._create_graph, len(stops), list(chain.from_iterable(self.renewed.values()))))
        for number in asked:
            if (crossing := state.crossing(number)) is not None:
                boundary, output = crossing
                self._arrive(boundary, output, boundary.outputs, next(recorded))
            else:
                _add(self.found.leaves, number, next(recorded))
        for node in inside:
            _add(self.found.nodes, node, next(recorded))
        for node in stops:
            self._arrive(node, 0, 1, next(recorded))

    def _pieces(self, reached: set[Node]) -> Callable[[Node], int] | None:
        """What numbers the pieces of a long forward that was cut, or computed by many programs, None where backward is
        one program: gradients that somebody differentiates, or asks for on the way, are no program of one piece. A
        gradient on the way depends on values of all pieces, and not only by those that were computed last."""
        if self._create_graph or self._others or state.session is not None or state.regions:
            return None
        if not len(reached) > config.pending_nodes // 4 > 0 or any(node.op is control.grad for node in reached):
            return None
        return piece_of if state.pieces and any(map(piece_of, reached)) else by_runs(reached)

    def _piecewise(self, roots: Pairs, number_of: Callable[[Node], int]) -> None:
        """Record and compute the gradients of one piece of the forward after the other. Those of the last stay pending,
        unless there are many: a step of thousands of parameters that a loop writes is cut if it waits for none."""
        waiting, changed = Arrived(roots, number_of), dict.fromkeys(self.found.leaves)
        while True:
            piece, pairs = waiting.latest()
            watches, ends = below([y for y, _ in pairs], piece, number_of)
            wanted = {number: several for number, several in watches.items() if self._wanted(number)}
            if wanted or ends:
                recorded = iter(_record_grad(pairs, [*wanted.values(), *([n] for n in ends)], False, len(ends)))
                goes_on = ends and piece != LATEST and len(wanted) <= MOST_SUMS
                for number, several in wanted.items():
                    if goes_on and number not in self.found.leaves and several[0].type.numel:
                        self.found.leaves[number] = empty_sum(several[0])
                    _add(self.found.leaves, number, next(recorded))
                    changed[number] = None
                for end in ends:
                    waiting.add(end, next(recorded))
            if not waiting and len(self.found.leaves) <= config.pending_nodes // MANY:
                return
            self.found.storages.update(waiting.compute(self.found.leaves, changed))
            changed.clear()
            if not waiting:
                return

    def _arrive(self, stop: Stop, output: int, outputs: int, gradient: Node) -> None:
        slots = self.arrived.setdefault(stop, [None] * outputs)
        before = slots[output]
        slots[output] = gradient if before is None else before + gradient

    def _below(self, starts: Sequence[Node]) -> tuple[dict[int, list[Node]], list[Node], set[Node]]:
        """The nodes that gradients reach: `watch` nodes by leaf number in order, values with hooks, all on the way."""
        found: dict[tuple[int, object], Node] = {}
        hooked: list[Node] = []
        seen: set[Node] = set()
        stack = list(starts)
        watch, keepers = control.watch, self._keepers
        while stack:
            node = stack.pop()
            if node in seen or not node.needs_grad:
                continue
            seen.add(node)
            if node.hooks is not None or node in keepers:
                hooked.append(node)
            elif node.op is watch:
                found[watched_by(node)] = node
            else:
                stack += gradient_inputs(node)
        return by_leaf(found), hooked, seen


def _derivatives_reach(starts: Sequence[Node], asked: Sequence[Node]) -> set[Node]:
    """Those of the asked nodes that gradients of derivatives reach: operands of a derivative, not what it is taken of.

    The derivative of a sum does not depend on what was summed: its gradient calls no hook there.
    """
    from genesis.passes.graph.autodiff import autodiff
    expanded = autodiff(Graph((), (*starts, *asked))).roots
    seen: set[Node] = set()
    stack = list(expanded[:len(starts)])
    while stack:
        node = stack.pop()
        if node not in seen and node.needs_grad:
            seen.add(node)
            stack.extend(gradient_inputs(node))
    return {node for node, found in zip(asked, expanded[len(starts):], strict=True) if found in seen}


def _read_of_others(reached: Iterable[Node]) -> list[Renewal]:
    """What makes the values anew that the derivatives of these nodes read, and that no gradient goes to: a module's
    frozen parameters, wherever they are read."""
    from genesis.ir.backward_reads import places_read
    from genesis.passes.graph.autodiff import is_shown_through
    found: dict[Renewal, None] = {}
    for node in reached:
        for place, x in enumerate(node.inputs):
            if x.needs_grad:
                continue
            while x not in state.renewals and is_shown_through(x):
                x = x.inputs[0]
            renewal = state.renewals.get(x)
            if renewal is not None and (node.op.vjp is None or place in places_read(node)):
                found[renewal] = None
    return list(found)


def reaches_outside(node: Node, own: Collection[int]) -> bool:
    """Whether gradients of a node go to more than the leaf tensors with these numbers and those that are gone."""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        x = stack.pop()
        if x in seen or not x.needs_grad:
            continue
        seen.add(x)
        if not x.inputs:
            return True
        if x.op is not control.watch:
            stack.extend(gradient_inputs(x))
        elif x.attrs[0] not in own and (x.attrs[0] in state.watched or x.attrs[0] in state.crossings):
            return True
    return False


def _add(totals: dict[Any, Node], key: Any, more: Node) -> None:
    before = totals.get(key)
    totals[key] = more if before is None else before + more


def _upstream(roots: Iterable[Node]) -> dict[Stop, None]:
    """All nodes and boundaries that the roots' gradients pass, in the order in which they were made."""
    order: dict[Stop, None] = {}
    for root in roots:
        stack: list[Stop] = [root]
        while stack:
            waiting = [x for x in made_of(stack[-1]) if x not in order]
            if waiting and stack[-1] not in order:
                stack.extend(waiting)
            else:
                order[stack.pop()] = None
    return order


def _early_ranks(ranks: dict[Stop, float]) -> dict[Stop, float]:
    """Ranks of the boundaries that are asked early: right before the first op that reads them beside something else."""
    before: dict[Stop, float] = {}
    for stop in reversed(ranks):
        operands = made_of(stop)
        own = ranks[stop] if len(operands) > 1 else before.get(stop, ranks[stop])
        for x in operands:
            before[x] = min(before.get(x, own), own)
    return {stop: before[stop] - 0.5 for stop in ranks if isinstance(stop, Boundary) and stop.early and stop in before}


def made_of(stop: Stop) -> list[Stop]:
    """The stops that a gradient goes on to from this one."""
    if isinstance(stop, Boundary):
        with enable_grad():
            return [read(x) for x in stop.origins if x is not None]
    if stop.op is control.watch:
        return [] if (crossing := state.crossing(stop.attrs[0])) is None else [crossing[0]]
    return [x for x in gradient_inputs(stop) if x.needs_grad]


def _record_grad(roots: Pairs, wrt: Sequence[Sequence[Node]], create_graph: bool, ends: int,
                 renewed: Sequence[tuple[Node, Node]] = ()) -> list[Node]:
    """Record a gradient for each list of nodes, the sum of those with respect to each; it stops at the last `ends`,
    and reads the second of the renewed pairs instead of the first."""
    nodes = list(chain.from_iterable(wrt))
    found = emit(control.grad, (*(y for y, _ in roots), *(g for _, g in roots), *nodes,
                                *chain.from_iterable(renewed)), (len(roots), create_graph, ends, len(renewed)))
    found.needs_grad = create_graph
    items = ([make(control.item, (found,), (i,), found.source) for i in range(len(nodes))] if create_graph
             else control.results_of(found))
    if len(items) == len(wrt):  # as of most models, whose parameters are read in one way each
        return items
    left = iter(items)
    return [reduce(add, islice(left, len(several))) for several in wrt]
