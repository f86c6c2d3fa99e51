"""Running a program, and telling its storages of the results.

An exception may come between any two bytecodes, a signal handler or a finalizer may run there and read and write. So a
program first computes what overwrites nothing. Then memory is overwritten and its storages are told at once
(`frontend/at_once.py`); it is `committed` by that. What is left to tell (`finish`) can be interrupted and done again to
its end, by whoever enters the engine next (`interruption.py`).

Memory is overwritten by calls, of which a GPU may refuse one. Behind others that have overwritten memory there is no
way back: storages are told as if all were made, and the backend makes the rest before anything else (`Begun`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Container, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from genesis.engine.failures import give_up
from genesis.engine.plan_lookup import Superseded, plan_for
from genesis.engine.preparation import Flush
from genesis.engine.recorded_since import note_end
from genesis.engine.state import Begun, Record, engine_state
from genesis.frontend.at_once import Change, Expected, at_once, attributes, changes
from genesis.frontend.pending import forget_numbers
from genesis.frontend.state import state
from genesis.frontend.storage import Cell, Storage, all_overwriting
from genesis.ir.interrupting import interrupts, of_computing
from genesis.ir.memos import counted
from genesis.ir.node import Node, make, unique
from genesis.ir.numbers import set_numbers_apart
from genesis.ir.ops import control, leaves
from genesis.runtime.contexts import NotYet

if TYPE_CHECKING:
    from genesis.codegen.base import Memory
    from genesis.engine.compilation import Compiled
    from genesis.ir.types import TensorType


class Divisible(Exception):
    """A program failed, and may be run in parts: nothing has been done."""


def run(flush: Flush, divisible: Callable[[Flush], bool] | None = None) -> Compiled:
    """Run the program and settle the storages; on failure drop its writes and raise.

    Args:
        divisible: whether it may be run in parts if it fails.

    Raises:
        Superseded: another program has run since it was prepared; nothing has been done.
        Divisible: it failed, and may be run in parts. One with collectives is not divided: some of them have run; nor
            one that failed as it overwrote memory, which may have part of what was to be written.
    """
    before, collects, cuts = engine_state.record, gc.isenabled(), engine_state.cuts
    if over := cuts.apart and not cuts.cutting:  # the loop is over
        cuts.apart = False
        set_numbers_apart(cuts.repeats)
    if flush.waited:
        state.pieces += 1
    record = Record(run.__code__, flush.device, flush)
    try:
        engine_state.record = record
        if flush.compiled is None:
            flush.compiled = plan_for(flush.captured, flush.device, moves=True)
            if flush.situation is not None:
                from genesis.engine.situations import remember
                remember(flush, flush.situation, flush.compiled)
        else:
            engine_state.last = flush.compiled
        record.exclusive = flush.compiled.exclusive
        if flush.ran != engine_state.ran:
            raise Superseded
        _execute(flush, record)
        numbers = [storage._queued for storage in flush.told]
        finish(flush)
        note_end(cuts)
        forget_numbers([number for number, storage in zip(numbers, flush.told, strict=True)
                        if storage._queued != number])
        if cuts.cutting:
            cuts.repeats = flush.compiled.numbers_apart is True
        elif flush.compiled.numbers_apart is not None and not (over and cuts.repeats):
            set_numbers_apart(flush.compiled.numbers_apart)
    except Superseded:
        raise
    except BaseException as error:
        if collects:  # a change that failed has left the collector out
            gc.enable()
        over = counts_as_over(record)
        if flush.committed:  # interrupted while the storages were told, or refused among its launches
            finish(flush)
            if over and isinstance(error, Exception):
                raise flush.compiled.explained(error) from error  # type: ignore[union-attr]  # it was started
            raise
        if not isinstance(error, Exception) or isinstance(error, NotYet) or interrupts(error):  # all stays pending
            raise
        if flush.ran != engine_state.ran or flush.waited:  # it was captured while another program ran, or used what
            raise Superseded from None  # that changed; or nobody asked for all of it
        communicates = flush.compiled is not None and flush.compiled.communicates
        if divisible is not None and not communicates and not flush.writing and divisible(flush):
            raise Divisible from None  # the other part may be what failed, or what there was no memory for
        if isinstance(error, RecursionError):  # the stack's end says nothing of the program: all stays pending
            raise
        reason = give_up(flush, error if flush.compiled is None else flush.compiled.explained(error))
        try:
            if reason is not error:
                raise reason from None
            raise
        finally:
            del reason  # its traceback has this frame: the two would keep the program alive until a collection
    finally:
        # Else what interrupted `finish` again, or the lines above, left it to who comes next.
        if flush.finished or not (flush.committed or record.half_done):
            engine_state.record = before
    return flush.compiled


def _execute(flush: Flush, record: Record) -> None:
    """Run the plan. Where it overwrites memory, its storages are told of that at once."""
    captured, ran = flush.captured, flush.ran
    assert flush.compiled is not None
    results, calls = flush.compiled.start(captured.memories, captured.numbers)
    flush.results = results
    usage, piece = flush.saved[1], state.pieces if engine_state.cuts.cutting or flush.waited else 0
    for storage, memory in zip(flush.outputs, results, strict=False):
        cell = flush.told[storage] = Cell(memory)
        cell.usage, cell.piece, cell.run = usage, piece, ran + 1
    told = [*_overwritten(flush, results), (setattr, flush, "committed", True), (setattr, engine_state, "ran", ran + 1)]
    loop = changes(begun(record, flush.compiled, captured.memories, calls, told), told)
    if ran != engine_state.ran:  # a handler or a finalizer may have overwritten what was read
        raise Superseded
    flush.writing = True
    at_once(loop)


def begun(record: Record, compiled: Compiled, memories: Sequence[Memory], calls: Sequence[Callable[[], object]],
          told: list[Change]) -> Iterable[Callable[[], object]]:
    """The calls, to be made once. Of several that may fail the record tells how far they got, until `told` is."""
    if len(calls) < 2 or not hasattr(compiled.executor, "owing"):
        return calls
    told.append((setattr, record, "begun", None))
    record.begun = noted = Begun(compiled, memories, calls, told)
    return noted.left


def counts_as_over(record: Record) -> bool:
    """Make a run count as over, of which a call failed behind others that had overwritten memory; whether it was so.

    What is left of it is owed by its executor, which makes it before anything else runs on the device or is read there.
    """
    as_over = None if record.begun is None else record.begun.as_over
    if as_over is None:
        record.begun = None
        return False
    at_once(changes((), as_over))
    return True


class Replayed(Protocol):
    """A plan that is run over memories that it knows.

    Attributes:
        done: what it was run for has been applied.
    """

    @property
    def done(self) -> bool: ...

    def changes(self, outputs: Sequence[Memory]) -> tuple[Sequence[Change], Sequence[Expected], int]:
        """What storages and others have to be told, given the plan's outputs: changes, the last of which makes it
        `done`; what these expect to find (`at_once.changes`); `state.touched` when storages were looked at for it.

        Raises:
            Superseded: a memory's storage has been written to: that comes first.
        """

    def complete(self) -> None:
        """Run it until it is done."""


def replay(replayed: Replayed, compiled: Compiled, memories: Sequence[Memory],
           numbers: Sequence[bool | int | float]) -> None:
    """Run a plan over memories whose content is there, with the lock held; what is told of it is told at once.

    Raises:
        Superseded: nothing has been done, as something else ran or was recorded meanwhile.
    """
    before, ran, collects = engine_state.record, engine_state.ran, gc.isenabled()
    record: Record | None = None
    try:
        engine_state.record = record = Record(replay.__code__, compiled.plan.device, None, replayed.complete,
                                              compiled.exclusive)
        outputs, calls = compiled.start(memories, numbers)
        while True:
            told, expected, touched = replayed.changes(outputs)
            told = [*told, (setattr, engine_state, "ran", ran + 1)]
            loop = changes(begun(record, compiled, memories, calls, told), told, expected)
            if ran != engine_state.ran:
                raise Superseded
            if state.touched == touched:
                break
        try:
            at_once(loop)
        except of_computing(KeyError):
            if replayed.done:
                raise
            raise Superseded from None
    except BaseException as error:
        if collects:  # a change that failed has left the collector out
            gc.enable()
        if record is not None:
            counts_as_over(record)
        if not isinstance(error, Exception) or interrupts(error):
            raise
        if ran != engine_state.ran and not replayed.done:  # it used what another program has changed
            raise Superseded from None
        if isinstance(error, RecursionError):
            raise
        known = compiled.explained(error)
        if known is not error:
            raise known from error
        raise
    finally:
        if record is None or not record.half_done:
            engine_state.record = before


def _overwritten(flush: Flush, results: Sequence[Memory]) -> Sequence[Change]:
    """The changes that make overwritten memory the new contents': what looks at an old one finds no memory there, or
    the copy that was kept."""
    if not flush.updates:
        return ()
    storages, memories = flush.updates, flush.memories
    kept = results[len(flush.outputs) + len(flush.saved[0]):]
    copies: Sequence[Memory | None] = [None] * len(storages)
    if kept or flush.doubtful:
        known = dict(zip(flush.snapshots, kept, strict=True))
        copies = [known.get(storage) or (memory.clone() if flush.doubtful else None)
                  for storage, memory in zip(storages, memories, strict=True)]
    piece = state.pieces if engine_state.cuts.cutting else 0
    constant, content = _constants(flush), flush.content
    contents = [content[storage] for storage in storages]
    news = all_overwriting(memories, storages, piece, contents)
    flush.told.update(zip(storages, news, strict=True))
    nodes: list[Node] = []  # `list[Node]()` takes 2 µs
    computed_to: list[Cell] = []
    for node, new in zip(contents, news, strict=True):
        if ((before := node.buffer) is None or before.memory is None) and node not in constant:
            nodes.append(node)
            computed_to.append(new)
    return (attributes(flush.cells, "memory", copies), attributes(storages, "cell", news),
            attributes(nodes, "buffer", computed_to))


def _constants(flush: Flush) -> set[Node]:
    """What a plan may make once, and keep."""
    order = flush.captured.order
    assert flush.compiled is not None
    return {order[position] for position in flush.compiled.constants}


def finish(flush: Flush) -> None:
    """Tell the storages of the results; may be interrupted, and done again."""
    if flush.finished:
        return
    outputs, results, content = flush.outputs, flush.results, flush.content
    saved, usage = flush.saved
    if flush.compiled is not None and flush.compiled.backend.notes_sources:
        for node, memory in zip([*(content[storage] for storage in outputs), *saved], results, strict=False):
            memory.source = node.source  # type: ignore[attr-defined]  # such a backend's memory has one
    for node, memory in zip(saved, results[len(outputs):], strict=False):
        usage.keep(node, memory)  # type: ignore[union-attr]
    constant = _constants(flush)
    for storage, cell in flush.told.items():
        if storage.cell is cell:  # its memory was overwritten
            node, watching = content[storage], storage.watching
            if watching is not None and (before := watching.inputs[0].buffer) is not None and before.memory is not None:
                storage.watching = None  # it would keep the copy of the old content
            if node.shown and node.buffer is cell and not node.needs_grad:
                storage.settle(cell, _as_leaf(node), node)
                continue
        elif storage.cell is not None:
            continue
        _settle(storage, cell, content[storage], constant)
    if flush.compiled is not None and flush.compiled.read_on:
        from genesis.engine.histories import end_histories
        order = flush.captured.order
        end_histories([order[position] for position in flush.compiled.read_on])
    flush.finished = True


def _as_leaf(node: Node) -> Node:
    """Make the leaf of its memory of a result that no table has (`control.results_of`), and that is there now.

    A parameter and its state are read in each step: each would take another node for that, and this one is of no more
    use (a tenth of `benchmarks/host_time.py`). After an exception between two of these lines it is done again.
    """
    held, kind = node.inputs, node.type  # so that nothing is freed, and no finalizer runs, in between
    attrs = _leaf_attributes.get(kind)
    if attrs is None:
        if len(_leaf_attributes) > MOST_LEAF_ATTRIBUTES:
            _leaf_attributes.clear()
        attrs = _leaf_attributes[kind] = (kind,)
    node.inputs, node.attrs, node.op = (), attrs, leaves.data
    del held
    return node


_leaf_attributes: dict[TensorType, tuple[TensorType]] = {}
"""A type → the attributes of leaves that have it: one object less for each, which Python's collector would count."""

MOST_LEAF_ATTRIBUTES: Final = 4096
"""Entries of `_leaf_attributes`; when there are more, all are dropped."""

counted("attributes of leaves", lambda: len(_leaf_attributes), 150, MOST_LEAF_ATTRIBUTES + 1)


def _settle(storage: Storage, cell: Cell, content: Node, constant: Container[Node]) -> None:
    node, before = content, content.buffer
    if (before is None or before.memory is None) and node not in constant:  # a plan may make the constant and keep it
        node.buffer = cell
    if not node.needs_grad:
        storage.settle(cell, content=content)
        return
    if node.buffer is not cell or node.op is control.overwritten:
        # Another storage's memory stands for the node, and this content may part from that one; or
        # the way to the value, other than the way to differentiate, has done its work.
        node = node.inputs[0] if node.op is control.overwritten else node
        leaf = unique(leaves.data, (), (node.type,), node.type)
        leaf.buffer = cell
        node = make(control.overwritten, (node, leaf))
        node.buffer = cell
    storage.settle(cell, node, content)
