"""Failures of a program: its writes are dropped, and values that depend on them raise when they are read.

Where there was no memory for it, all other values stay as they were, and can be read again. What raised for another
reason would do so each time: the values that were asked for keep their error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from itertools import pairwise
from typing import TYPE_CHECKING

from genesis.engine.capture import capture, program
from genesis.engine.plan_lookup import backend_of, plan_for
from genesis.engine.preparation import Flush
from genesis.frontend.state import state
from genesis.frontend.storage import Storage
from genesis.ir.errors import IndexOutOfRange, Overwritten
from genesis.ir.failed_op import at_node, failure_of
from genesis.ir.interrupting import of_computing
from genesis.ir.misplaced import find_misplaced
from genesis.ir.node import OPS, Node, forget_equal
from genesis.ir.ops import control, leaves
from genesis.ir.walk import computed, walk

if TYPE_CHECKING:
    from numpy import ndarray

    from genesis.codegen.base import Memory
    from genesis.frontend.storage import Cell


def give_up(flush: Flush, error: BaseException) -> BaseException:
    """A program failed: drop its writes. Returns the error that says why.

    Its nodes may outlive it (whoever caught the error holds them by its traceback), and carry its lines: the same ops
    on another line, which may fail as well, are told as what they are.
    """
    if isinstance(error, MemoryError):  # it may be there the next time: what depends on no write stays pending
        _fail(error, flush, ())
        return error
    forget_equal(flush.captured.order)
    if isinstance(error, Overwritten):  # values that need the lost one are given up; all others stay pending
        _fail_without_value(error, flush)
        return error
    found = None
    if not backend_of(flush.device).checks_indices:
        found = misplaced_in(error, flush.captured.order) or located(error, flush.captured.order)
    if found is None:
        _fail(error, flush, [s for s in flush.outputs if not _stands(flush, s)])
        return error
    node, error = found  # values that do not need that op stay pending
    _fail(error, flush, [s for s in flush.outputs if node in walk([flush.content[s]])])
    return error


def independent_part(flush: Flush, asked: Iterable[Storage]) -> set[Storage]:
    """The pending storages that what is asked for has to do with; all of them, if the program computes no others.

    Contents that are written at once, or computed of one another, or of a value that is not there yet, or of memory
    that is overwritten, have to do with each other. Where nothing is asked for, it is the newest of them.
    """
    storages = list(dict.fromkeys((*flush.outputs, *flush.live)))
    wanted = {s for s in asked if s in flush.content} or {max(storages, key=lambda s: s._queued)}
    first_with: dict[Cell | Node | None, Storage] = {storage.cell: storage for storage in flush.updates}
    near: dict[Storage, set[Storage]] = {storage: set() for storage in storages}
    for storage in storages:
        for node in walk([flush.content[storage]]):
            if computed(node):
                other = first_with.get(node.buffer)
            else:
                other = first_with.setdefault(node, storage) if node.inputs else None
            if other is not None and other is not storage:
                near[storage].add(other)
                near[other].add(storage)
    for unit in units_among(storages):
        for one, other in pairwise(unit):
            near[one].add(other)
            near[other].add(one)
    part, stack = set(wanted), list(wanted)
    while stack:
        new = near[stack.pop()] - part
        part |= new
        stack += new
    return set(storages) if part.issuperset(flush.outputs) and part.issuperset(flush.updates) else part


def units_among(storages: Iterable[Storage]) -> list[list[Storage]]:
    """Those of these storages that were written at once, where there are several; and what was written and has read a
    content, with the storage of that, which has been written again and has the new content or the one in its memory."""
    noted = {storage._queued: storage for storage in storages}
    found = [[noted[number] for number in unit if number in noted] for unit in state.together]
    again = {node: other for node, number in state.rewritten.items() if (other := noted.get(number)) is not None}
    for storage in noted.values() if again else ():
        if storage._node is not None and (storage.cell is not None or storage.writes):
            read = {again[node.number] for node in walk([storage._node]) if node.number in again}
            found += [[storage, other] for other in read if other is not storage]
    return [unit for unit in found if len(unit) > 1]


def _fail(error: BaseException, flush: Flush, outputs: Iterable[Storage]) -> None:
    """A plan did not run: its writes are dropped, what depends on them raises this error when read."""
    drop(error, [*outputs, *flush.updates], flush.content, flush.live)


def drop(error: BaseException, storages: Sequence[Storage], content: Mapping[Storage, Node],
         live: Iterable[Storage]) -> None:
    """Drop these pending contents: what of the live storages depends on them raises this error when it is read."""
    error = without_frames(error)
    lost = {content[storage] for storage in storages}
    for storage in live:
        node = storage._node
        if node is not None and not storage.settled and not lost.isdisjoint(walk([node])):
            storage.fail(error, node)
    for storage in storages:
        if not storage.settled:
            storage.fail(error, content[storage])


def _stands(flush: Flush, storage: Storage) -> bool:
    """Whether a value that another one of the failed program is made of can be computed alone: then the error is the
    other's. The last ones keep it, though they may be computed the next time."""
    if storage in flush.updates or backend_of(flush.device).checks_indices:
        return False
    node = flush.content[storage]
    others = [flush.content[s] for s in (*flush.outputs, *flush.updates) if flush.content[s] is not node]
    if node not in walk(others) or any(x.op.kind == "collective" for x in walk([node])):
        return False
    try:
        _computed_again(node)
    except of_computing(Exception):  # whatever it is: it is told when the value is read
        return False
    return True


def misplaced_in(error: BaseException, order: Iterable[Node]) -> tuple[Node, IndexOutOfRange] | None:
    """The op of the failed program that was given an index outside, and the error that says so."""
    if not isinstance(error, (IndexError, RuntimeError)):
        return None

    def value_of(index: Node) -> ndarray:
        import numpy as np
        memory = index.buffer.memory if computed(index) else _computed_again(index)
        value = np.empty(index.type.shape, index.type.dtype.numpy)
        memory.copy_to_host(value)
        return value
    try:
        return find_misplaced(walk(order), value_of)
    except of_computing(Exception):  # the program's failure can keep its indices from being computed again
        return None


def located(error: BaseException, order: Iterable[Node]) -> tuple[Node, Exception] | None:
    """The op of the failed program that raised this error, and the error with that op's operands and line.

    Of several of the name it is the first, operands before users, that raises when it is computed again.
    """
    if not isinstance(error, Exception):
        return None
    found = failure_of(error)
    if found is None:
        return _inside_a_call(error, order)
    failed = OPS[found.op]
    named = [node for node in walk(order) if node.op is failed and not computed(node)]
    if not named:
        return _inside_a_call(error, order)
    node = _first_that_fails(named, error)
    return node, at_node(error, node)


def _first_that_fails(nodes: Sequence[Node], error: Exception) -> Node:
    """Which of these nodes raises such an error."""
    return nodes[0] if len(nodes) == 1 else next((node for node in nodes if _fails(node, type(error))), nodes[0])


def _inside_a_call(error: Exception, order: Iterable[Node]) -> tuple[Node, Exception] | None:
    """The call of a compiled function of which a result raises such an error when it is computed again. The error has
    its line."""
    results = [node for node in walk(order) if node.op is control.item and node.inputs[0].op is control.call
               and not computed(node)]
    node = next((node for node in results if _fails(node, type(error))), None)
    return None if node is None else (node.inputs[0], error)


def _fails(node: Node, error: type[Exception]) -> bool:
    """Whether computing this node again raises such an error."""
    try:
        _computed_again(node)
    except of_computing(Exception) as found:  # another one as of a value whose memory has been overwritten
        return isinstance(found, error)
    return False


def _computed_again(node: Node) -> Memory:
    captured = capture([node])
    memory, = plan_for(captured, node.type.device).run(captured.memories, captured.numbers)
    return memory


def without_frames(error: BaseException) -> BaseException:
    """The same error, which tensors can keep without keeping alive all that its traceback refers to."""
    try:
        return copy(error).with_traceback(None)
    except Exception:  # an error class of its own that cannot be copied
        return error


def _fail_without_value(error: BaseException, flush: Flush) -> None:
    """Make values that depend on an overwritten one raise this error when they are read."""
    error = without_frames(error)
    for storage in dict.fromkeys((*flush.outputs, *flush.updates, *flush.live)):
        content = storage._node
        if content is not None and not storage.settled and any(
                node.op is leaves.data and not computed(node) for node in program([content])[0]):
            storage.fail(error, content)
