"""Saved values: those that a flush keeps in memory for a backward that may come.

Reading a loss before its backward computes the forward. What the backward will read of it is kept
in memory then, as eager torch keeps it, until the tensors that need it die. If it died unused the
last time the same program ran (an evaluation loop), only the result is kept the next time, and a
backward that comes after all computes the forward again.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from genesis.engine.capture import Captured, build_nodes, constants, input_nodes
from genesis.engine.state import engine_state
from genesis.frontend.storage import Cell
from genesis.ir.node import Node, make
from genesis.ir.ops import control
from genesis.passes.graph.autodiff import read_by_backward
from genesis.runtime.contexts import uncollected


class Usage:
    """The fate of the values that a program's last run saved.

    Attributes:
        positions: where in the program's order they are; None before that was asked.
        used: a backward read them.
        skip: they died unused, so save none the next time.
    """

    __slots__ = ("_saved", "positions", "skip", "used")

    def __init__(self) -> None:
        self.positions: tuple[int, ...] | None = None
        self.used, self.skip = False, False
        self._saved: list[weakref.ref[Cell]] = []

    @property
    def unused(self) -> bool:
        """Whether the last run saved nothing, or what it saved has died unused."""
        return self.skip or bool(self._saved and not self.used and all(cell() is None for cell in self._saved))

    @property
    def saves(self) -> bool:
        """Will the next run keep values for a backward?"""
        return not self.skip and self.positions != ()

    def look_back(self) -> None:
        """Judge the last run's values, and forget them."""
        self.skip = self.unused
        self._saved, self.used = [], False

    def keep(self, node: Node, memory: object) -> None:
        """The node's value is in memory from now on, for as long as the node lives."""
        cell = Cell(memory)
        cell.usage = self
        node.buffer = cell
        self._saved.append(weakref.ref(cell))


def save_for_backward(captured: Captured) -> tuple[list[Node], Usage | None]:
    """Make the program return what a backward of its outputs would read.

    Returns the nodes of the added outputs, and who is to know about them. Programs that hold their
    own backward, and those without gradients, stay as they are. A piece of a loop has the backwards of
    the turns before: what is pending of the last turn is read by one that comes.
    """
    cuts = engine_state.cuts
    wanted = [node for node in captured.outputs if node.needs_grad and node.op is not control.watch]
    if not wanted or any(node.op is control.grad and (node.needs_grad or not cuts.cutting) for node in captured.order):
        return [], None
    from genesis.engine.moving_places import key_without_places  # here: importing genesis computes nothing
    key = key_without_places(captured)  # what a backward reads does not depend on where slices begin
    usage = engine_state.usages.get(key)
    if usage is None:
        usage = engine_state.usages.add(key, Usage())
        if cuts.cutting and cuts.usage is not None:  # the piece before, of the same program
            usage.skip = cuts.usage.unused
    usage.look_back()
    if cuts.cutting:
        cuts.usage = usage
    if usage.skip:
        return [], usage
    if usage.positions is None:
        with uncollected:  # it makes as many objects as compiling does (`plans.find`), all of which are gone then
            usage.positions = _positions_read(captured, wanted)
    saved = [captured.order[position] for position in usage.positions]
    captured.outputs = [*captured.outputs, *saved]
    captured.key = (*captured.key, "saved", usage.positions)
    return saved, usage


def _positions_read(captured: Captured, wanted: list[Node]) -> tuple[int, ...]:
    """Positions, in the program's order, of the values that a backward of the wanted ones reads.

    No gradient flows through those that the program has computed: each is a value like those in memory.
    """
    gradients = [node for node in captured.order if node.op is control.item and node.inputs[0].op is control.grad]
    inputs = input_nodes([node.type for node in gradients], len(captured.memory_types))
    built = build_nodes(captured, known={
        node: make(control.known, (x, x)) for node, x in zip(gradients, inputs, strict=True)})
    read = read_by_backward([built[node] for node in wanted])
    kept = {*captured.outputs, *constants(captured.order)}
    found: dict[Node, int] = {}
    for position, node in enumerate(captured.order):
        if built.get(node) in read and node not in kept and node.inputs and node.buffer is None:
            found.setdefault(built[node], position)
    return tuple(found.values())


def note_use(known: Iterable[Node]) -> None:
    """A backward differentiates through these computed nodes."""
    for node in known:
        usage = node.buffer.usage
        if usage is not None:
            usage.used, usage.skip = True, False
