"""The usual read: one value of a few ops over memories that stay as they are.

Capturing a program for the engine asks what else depends on it: pending writes, what a backward needs, other live
tensors. A read where none of that matters is written down in one walk, and its key finds the plan that the engine made
for an equal one. Other live tensors that it computes on the way get their content, too.
A small read of a number that sizes depend on leaves what is written elsewhere pending (`read_size`).
`benchmarks/cpu_step.py` and `benchmarks/small_reads.py` are what it is for.
"""

from __future__ import annotations

from operator import is_
from typing import TYPE_CHECKING, Final, NamedTuple

from genesis.config import config
from genesis.engine.capture import NUMBERED, constants
from genesis.engine.failures import misplaced_in, without_frames
from genesis.engine.plan_lookup import Superseded
from genesis.engine.preparation import prepare
from genesis.engine.running import run
from genesis.engine.state import Record, engine_state
from genesis.frontend.pending import live_pending
from genesis.frontend.state import lock, state
from genesis.frontend.storage import Cell, Storage
from genesis.ir.interrupting import of_computing
from genesis.ir.node import Node, forget_equal
from genesis.ir.ops import control, leaves
from genesis.ir.types import cpu

if TYPE_CHECKING:
    from collections.abc import Hashable

    from genesis.codegen.base import Memory
    from genesis.engine.compilation import Compiled
    from genesis.engine.saved_values import Usage

DEEPEST: Final = 12
"""Ops in a row up to which a read is short: a longer chain takes longer to compute than to capture."""

WIDEST: Final = 32
"""Memories that a short read reads, at most: they are told apart one by one."""

MOST_BESIDE: Final = 4
"""Ops up to which a read of a size leaves writes pending: they may be computed again with these."""

MOST_SIZES: Final = 64
"""Maximum reads of sizes in a row that leave writes pending: each looks through these."""

_HISTORY: Final = frozenset({*NUMBERED, control.grad, control.known, control.lost, control.overwritten, leaves.data}
                            - {control.watch})
"""Ops that record how a value came to be, or whose memory is gone: such a read is left to the engine."""


Way = tuple["Compiled", tuple[int, ...], list[bool | int | float]]
"""See `Read`."""


class Read:
    """What equal reads are computed by.

    Attributes:
        usage: of the values that a backward would want; None without gradients.
        ways: whether these died unused the last time → the plan that the first such read got, the places, among the
            reading's nodes, of the values that it keeps for a backward, and its last numbers: the places of slices.
    """

    __slots__ = ("usage", "ways")

    def __init__(self, usage: Usage | None):
        self.usage = usage
        self.ways: dict[bool, Way] = {}

    def way(self) -> Way | None:
        """How the next read is computed; None if that is the engine's to find out."""
        usage = self.usage
        if usage is None:
            return self.ways.get(False)
        if usage.saves and engine_state.cuts.cutting:  # a piece of a loop tells the next one
            return None
        usage.look_back()
        return self.ways.get(usage.skip)


def read_size(storage: Storage) -> None:
    """Compute a number that sizes depend on, if that takes few ops, and leave writes elsewhere pending.

    A layer of experts asks for the rows of each, between which it writes what the one before gave. If each of these
    reads wrote that, and looked for what its backward reads again, a layer would take a time that grows with the square
    of their number. Programs go on alike behind a size, and not behind a value that is asked for: the writes that wait
    for that are flushed with it.
    """
    with lock:
        if engine_state.record is None and not storage.settled and engine_state.sizes < MOST_SIZES:
            engine_state.sizes += 1
            short_read(storage, beside=True) or first_read(storage, beside=True)


def read_alone(storage: Storage) -> bool:
    """Compute a value, and leave all else pending. False, and nothing done, where others have computed meanwhile."""
    with lock:
        return storage.settled or _alone(storage)


def _alone(storage: Storage) -> bool:
    try:
        flush = prepare([storage], [], storage.type.device)
        if flush is not None:
            run(flush)
    except Superseded:
        return False
    return flush is not None


def short_read(storage: Storage, beside: bool = False) -> bool:
    """Compute a value that depends on nothing else that is going on, by the plan that computed an equal one before.
    False, and nothing done, where it does, or there is none. `beside`: writes elsewhere may stay pending.
    """
    ran, reading = engine_state.ran, reading_of(storage, beside)
    if reading is None:
        return False
    found = engine_state.plans.reads.get((config.key(), reading.key))
    way = found.way() if found is not None else None
    if found is None or way is None:
        return False
    compiled, saved, slices = way
    try:
        engine_state.record = _MAKES_MEMORY
        results = compiled.run(reading.memories, reading.numbers + slices if slices else reading.numbers)
    except of_computing(Exception) as error:
        if engine_state.ran != ran:  # it read what a handler or a finalizer has changed
            return False
        if isinstance(error, (MemoryError, RecursionError)):  # there may be room the next time
            raise
        _fail(storage, reading.contents[0], error)
        raise
    finally:
        engine_state.record = None
    if engine_state.ran != ran:  # a handler or a finalizer may have overwritten what was read
        return False
    engine_state.ran += 1
    engine_state.last = compiled
    # A constant's memory may be the plan's own, and its node is that of the graphs that have it: no leaf.
    constant = () if len(reading.outputs) == 1 and reading.memories else constants(reading.places)
    if saved:
        nodes = list(reading.places)
        for place, memory in zip(saved, results[len(reading.outputs):], strict=True):
            found.usage.keep(nodes[place], memory)  # type: ignore[union-attr]  # what it saves, it has
    for output, node, memory in zip(reading.outputs, reading.contents, results, strict=not saved):
        _settle(output, node, Cell(memory), node not in constant, found.usage)
    if reading.past:
        from genesis.engine.histories import end_histories
        end_histories(reading.past)
    return True


_MAKES_MEMORY: Final = Record(short_read.__code__, cpu)
"""A short read while it runs."""


def _settle(storage: Storage, node: Node, cell: Cell, varies: bool, usage: Usage | None) -> None:
    """A storage's content, unless something else was written to it since, is in the cell's memory."""
    number = storage._queued
    cell.usage, cell.run = usage, engine_state.ran
    if varies:
        node.buffer = cell
    storage.settle(cell, node if node.needs_grad else None, node)
    if storage._queued == 0:
        state.pending.pop(number, None)  # so that the next read finds nothing else pending


def first_read(storage: Storage, beside: bool = False) -> bool:
    """Compute such a value as any program, whose plan serves equal reads from then on."""
    reading = reading_of(storage, beside)
    if reading is None:
        return False
    try:
        live = live_pending()
        flush = prepare([storage], [s for s in live if not _is_written(s)] if beside else live, cpu)
        if flush is None:  # a handler or a finalizer computed it
            return False
        nodes, usage = flush.saved
        skip = usage is not None and usage.skip
        alike = flush.outputs == reading.outputs and not flush.updates
        found = run(flush)
    except Superseded:
        return False
    saved = [reading.places.get(node) for node in nodes]
    if alike and None not in saved and (
            len(reading.memories) == len(flush.captured.cells)) and all(
            map(is_, reading.memories, flush.captured.memories)):  # numbers are met in that order too
        key, reads = (config.key(), reading.key), engine_state.plans.reads
        known = reads.get(key)
        if known is None or known.usage is not usage:
            known = reads.add(key, Read(usage))
        places = [x.attrs[0] for x in flush.captured.places]
        known.ways[skip] = found, tuple(saved), places  # type: ignore[arg-type]  # none is None
    return True


def _fail(storage: Storage, node: Node, error: BaseException) -> None:
    """The value cannot be computed. Raises the error that says more, where there is one."""
    forget_equal([node])
    found = misplaced_in(error, [node])
    reason = error if found is None else found[1]
    storage.fail(without_frames(reason), node)
    try:
        if reason is not error:
            raise reason from None
    finally:
        del reason, found  # the frames of the error have this one: they would keep the program until a collection


class Reading(NamedTuple):
    """The program that computes a value, written down in one walk.

    Attributes:
        key: its structure, equal for equal programs: ops, attributes, types and positions.
        memories: those that it reads, in the order of `capture`.
        numbers: values of the user's numbers, one for each use, in that order.
        outputs: the storages that get their content: the one that is read, and others that look at its values.
        contents: the nodes of these.
        places: the nodes that are read or computed, in order → their positions.
        past: those that are read and have a history that nobody needs.
    """

    key: tuple[Hashable, ...]
    memories: list[Memory]
    numbers: list[bool | int | float]
    outputs: list[Storage]
    contents: list[Node]
    places: dict[Node, int]
    past: list[Node]


def reading_of(storage: Storage, beside: bool = False) -> Reading | None:
    """The reading that computes the content of a storage; None if that takes the engine.

    Args:
        beside: writes elsewhere may stay pending, if it is a small one.

    >>> import genesis
    >>> x = genesis.zeros(2)
    >>> genesis.eval(x)
    >>> reading_of((x + 1.5).storage).numbers
    [1.5]
    """
    node = storage._node
    if (node is None or node.buffer is not None or storage.cell is not None or storage.writes
            or storage.error is not None or storage.type.device is not cpu):
        return None
    walk = _Walk([], {}, [], [], {}, [])
    if not _describe(node, walk, 0):
        return None
    outputs, contents = [storage], [node]
    if len(state.pending) > 1 and not _is_alone(storage) and not _join_others(walk.places, outputs, contents, beside):
        return None
    if len(outputs) > 1:
        walk.key.extend([walk.places[content] for content in contents])
    return Reading(tuple(walk.key), walk.memories, walk.numbers, outputs, contents, walk.places, walk.past)


def _is_alone(storage: Storage) -> bool:
    """Whether nobody holds another pending value; forgets those that died, which a read has made on its way."""
    over = []
    for number, reference in tuple(state.pending.items()):  # in C as a whole
        other = reference()
        if other is None:
            over.append(number)
        elif other is not storage:
            return False
    for number in over:
        state.pending.pop(number, None)
    return True


def _join_others(places: dict[Node, int], outputs: list[Storage], contents: list[Node], beside: bool) -> bool:
    """Add the other live tensors that the read computes anyway. False if one wants to be written, or is computed in a
    way that the engine knows better."""
    writes_wait = beside and not contents[0].needs_grad and sum(x.buffer is None for x in places) <= MOST_BESIDE
    for other in live_pending():
        content = other._node
        if other is outputs[0] or content is None:
            continue
        if _is_written(other):
            if writes_wait and content not in places:
                continue
            return False
        if content.op is control.stop_gradient:
            content = content.inputs[0]
        if content in places:
            if content is not other._node or content in contents or content.buffer is not None or other.persistent:
                return False
            outputs.append(other)
            contents.append(content)
    return True


def _is_written(storage: Storage) -> bool:
    """Whether what is pending of a storage was written in place."""
    return storage.cell is not None or storage.writes > 0


class _Walk(NamedTuple):
    """What one walk writes down; `places` are the positions of what is read or computed, `leaves` of leaf tensors, and
    `past` what is read from memory and has a history that nobody needs (`histories.py`)."""

    key: list[Hashable]
    places: dict[Node, int]
    memories: list[Memory]
    numbers: list[bool | int | float]
    leaves: dict[int, int]
    past: list[Node]


def _describe(node: Node, walk: _Walk, depth: int) -> bool:
    """Append a node that is to be computed to the key, behind its operands. False if the engine has to look further."""
    op = node.op
    if depth == DEEPEST or op in _HISTORY:
        return False
    key, places, memories, numbers = walk.key, walk.places, walk.memories, walk.numbers
    number, inputs = leaves.number, node.inputs
    for x in inputs:
        if x.op is number or x in places:
            continue
        cell = x.buffer
        if cell is None or cell.memory is None:
            if not _describe(x, walk, depth + 1):
                return False
            continue
        if x.inputs and not x.needs_grad:
            walk.past.append(x)
        places[x] = len(places)
        memory = cell.memory
        if memory not in memories:
            if len(memories) == WIDEST:
                return False
            memories.append(memory)
        key.append(x.type)
        key.append(memories.index(memory))
    key.append(op)
    key.append(node.attrs if op is not control.watch else walk.leaves.setdefault(node.attrs[0], len(walk.leaves)))
    for x in inputs:
        if x.op is number:  # no position: whether two numbers are equal, and so one node, is not structure
            key.append(x.type)
            numbers.append(x.attrs[0])
        else:
            key.append(places[x])
    if not inputs:
        key.append(node.type)
    places[node] = len(places)
    return True
