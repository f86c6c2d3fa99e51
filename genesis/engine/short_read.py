"""The usual read: one value of a few ops, over memories that stay as they are, that no gradient flows through.

Capturing a program for the engine asks what else depends on it: other live tensors, pending writes, a backward. A read
without any of that is written down in one walk, and its key finds the plan that the engine made for an equal one.
`benchmarks/cpu_step.py` and the small reads of `benchmarks/host_time.py` are what it is for.
"""

from __future__ import annotations

from operator import is_
from typing import Any, Final, NamedTuple

from genesis.config import config
from genesis.engine.capture import NUMBERED
from genesis.engine.failures import misplaced_in, without_frames
from genesis.engine.plan_lookup import Superseded
from genesis.engine.preparation import prepare
from genesis.engine.running import run
from genesis.engine.state import Record, engine_state
from genesis.frontend.state import state
from genesis.frontend.storage import Cell, Storage, live_pending
from genesis.ir.node import Node, forget_equal
from genesis.ir.ops import control, leaves
from genesis.ir.types import cpu

DEEPEST: Final = 12
"""Ops in a row up to which a read is short: a longer chain takes longer to compute than to capture."""

_HISTORY: Final = frozenset({*NUMBERED, control.grad, control.known, control.lost, control.overwritten, leaves.data})
"""Ops that record how a value came to be, or whose memory is gone: such a read is left to the engine."""


def short_read(storage: Storage) -> bool:
    """Compute a value that depends on nothing else that is going on, by the plan that computed an equal one before.
    False, and nothing done, where it does, or there is none.
    """
    if not _alone(storage):
        return False
    node, number, ran = storage._node, storage._queued, engine_state.ran
    reading = reading_of(storage)
    if reading is None:
        return False
    key = (config.key(), reading.key)
    found = engine_state.plans.reads.get(key)
    if found is None:
        return False
    try:
        engine_state.record = _MAKES_MEMORY
        memory, = found.executor.run(reading.memories, reading.numbers)
    except Exception as error:
        if engine_state.ran == ran:
            _fail(storage, node, error)  # type: ignore[arg-type]
        raise
    finally:
        engine_state.record = None
    if engine_state.ran != ran:  # a handler or a finalizer may have overwritten what was read
        return False
    engine_state.ran += 1
    engine_state.last = found
    cell = Cell(memory)
    if reading.memories or reading.numbers:  # a constant's memory may be the plan's own
        node.buffer = cell  # type: ignore[union-attr]
    storage.settle(cell, content=node)
    if storage._node is None:
        state.pending.pop(number, None)  # so that the next read finds nothing else pending
    return True


_MAKES_MEMORY: Final = Record(short_read.__code__, cpu)
"""A short read while it runs."""


def _alone(storage: Storage) -> bool:
    """Whether this is the only storage with content to compute."""
    if len(state.pending) == 1:
        return storage._queued in state.pending
    live = live_pending()
    return len(live) == 1 and live[0] is storage


def first_read(storage: Storage) -> bool:
    """Compute such a value as any program, whose plan serves equal reads from then on."""
    reading = reading_of(storage) if _alone(storage) else None
    if reading is None:
        return False
    flush = prepare([storage], [storage], cpu)
    assert flush is not None
    try:
        found = run(flush)
    except Superseded:
        return False
    if len(reading.memories) == len(flush.captured.cells) and all(
            map(is_, reading.memories, flush.captured.memories)):  # numbers are met in that order too
        engine_state.plans.reads.add((config.key(), reading.key), found)
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
    """

    key: tuple[Any, ...]
    memories: list[Any]
    numbers: list[bool | int | float]


def reading_of(storage: Storage) -> Reading | None:
    """The reading that computes the content of a storage; None if that takes the engine.

    >>> import genesis
    >>> x = genesis.zeros(2)
    >>> genesis.eval(x)
    >>> reading_of((x + 1.5).storage).numbers
    [1.5]
    """
    node = storage._node
    if (node is None or node.needs_grad or node.buffer is not None or storage.cell is not None
            or storage.error is not None or storage.type.device is not cpu):
        return None
    key: list[Any] = []
    memories: list[Any] = []
    numbers: list[bool | int | float] = []
    return Reading(tuple(key), memories, numbers) if _describe(node, key, {}, memories, numbers, 0) else None


def _describe(node: Node, key: list[Any], places: dict[Node, int], memories: list[Any], numbers: list[Any],
              depth: int) -> bool:
    """Append a node that is to be computed to the key, behind its operands. False if the engine has to look further."""
    if depth == DEEPEST or node.op in _HISTORY:
        return False
    number, inputs = leaves.number, node.inputs
    for x in inputs:
        if x.op is number or x in places:
            continue
        cell = x.buffer
        if cell is None or cell.memory is None:
            if not _describe(x, key, places, memories, numbers, depth + 1):
                return False
            continue
        places[x] = len(places)
        memory = cell.memory
        if memory not in memories:
            memories.append(memory)
        key.append(x.type)
        key.append(memories.index(memory))
    key.append(node.op)
    key.append(node.attrs)
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
