"""Running a program, and telling its storages of the results.

What only makes new memory may be interrupted at any time. Where memory is overwritten nobody may look on between the
first write and the moment when the storages know: no finalizer runs meanwhile, and if there are signal handlers of the
user's, which this thread cannot keep out, another thread runs it; a handler that asks for a value waits for that
(`interruption.py`).
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from genesis.engine.failures import give_up
from genesis.engine.plan_lookup import Superseded, plan_for
from genesis.engine.preparation import Flush
from genesis.engine.state import Execution, engine_state
from genesis.frontend.storage import Cell, Storage
from genesis.frontend.threads import Job, handled
from genesis.ir.node import Node, make, unique
from genesis.ir.ops import control, leaves

if TYPE_CHECKING:
    from genesis.engine.compilation import Compiled


def run(flush: Flush) -> Compiled:
    """Run the program and settle the storages; on failure drop its writes and raise.

    Raises Superseded, and has done nothing, if another program has run since it was prepared.
    """
    before = engine_state.executing
    execution = Execution(flush.device, bool(flush.updates), flush)
    try:
        flush.compiled = plan_for(flush.captured, flush.device)
        execution.overwrites = bool(flush.updates) or not flush.compiled.backend.interruptible
        engine_state.executing = execution
        if flush.ran != engine_state.ran:
            raise Superseded
        _execute(flush, execution)
        finish(flush)
    except Superseded:
        raise
    except BaseException as error:
        if flush.results is not None:  # interrupted while the storages were told
            finish(flush)
            raise
        if flush.ran != engine_state.ran and execution.job is None:  # it was captured while another program ran
            raise Superseded from None
        reason = give_up(flush, error)
        try:
            if reason is not error:
                raise reason from None
            raise
        finally:
            del reason  # its traceback has this frame: the two would keep the program alive until a collection
    finally:
        engine_state.executing = before
    return flush.compiled


def _execute(flush: Flush, execution: Execution) -> None:
    """Run the plan; the results, where there are any, are the flush's."""
    captured, compiled = flush.captured, flush.compiled
    memories, numbers = captured.memories, captured.numbers
    if not execution.overwrites:
        results = compiled.run(memories, numbers)
        if flush.ran != engine_state.ran:  # a finalizer may have overwritten what it read
            raise Superseded
        flush.results = results
        return
    collects = gc.isenabled()
    gc.disable()
    try:
        kept = [(cell, memory.clone()) for storage, (cell, memory) in flush.cells.items()
                if storage not in flush.snapshots] if flush.doubtful else None
        if compiled.backend.asynchronous or not handled():
            flush.results = compiled.run(memories, numbers)
        else:
            _run_apart(flush, execution)
        if kept is not None:
            flush.copies.update(kept)
    finally:
        if collects:
            gc.enable()


def _run_apart(flush: Flush, execution: Execution) -> None:
    captured = flush.captured
    try:
        _in_a_thread(lambda: flush.compiled.run(captured.memories, captured.numbers), execution)
    finally:  # a signal handler's own error comes after all has run
        if execution.job is not None:
            flush.results = execution.job.result


def overwrite(function: Callable[[], Any], compiled: Compiled) -> Any:
    """Call what runs a plan that overwrites memory, and tells the storages so, with the lock held, where nobody looks
    on."""
    before, collects = engine_state.executing, gc.isenabled()
    gc.disable()
    try:
        engine_state.executing = execution = Execution(compiled.plan.device, overwrites=True)
        if compiled.backend.asynchronous or not handled():
            return function()
        return _in_a_thread(function, execution)
    finally:
        engine_state.ran += 1
        engine_state.executing = before
        if collects:
            gc.enable()


def _in_a_thread(function: Callable[[], Any], execution: Execution) -> Any:
    """The function's result; it runs where no signal handler interrupts it. (What a device does by itself, in
    the order of a thread's stream, belongs in that thread: it is not given here.)"""
    execution.job = job = Job(function)
    job.wait()
    return job.outcome()


def finish(flush: Flush) -> None:
    """Tell the storages of the results. Once: who interrupts this finishes it first, and it does nothing then."""
    if flush.finished:
        return
    engine_state.ran += 1
    outputs, results, content = flush.outputs, flush.results, flush.content
    saved, usage = flush.saved
    if flush.compiled.backend.notes_sources:
        for node, memory in zip([*(content[storage] for storage in outputs), *saved], results, strict=False):
            memory.source = node.source
    for node, memory in zip(saved, results[len(outputs):], strict=False):
        usage.keep(node, memory)  # type: ignore[union-attr]
    copies = dict(zip(flush.snapshots, results[len(outputs) + len(saved):], strict=True))
    order = flush.captured.order
    constant = {order[position] for position in flush.compiled.constants}
    for storage, (old, memory) in flush.cells.items():
        if storage.cell is old:
            old.memory = copies.get(storage, flush.copies.get(old))
            _settle(storage, Cell(memory), content[storage], constant)
    for storage, memory in zip(outputs, results, strict=False):
        if storage.cell is None:
            cell = Cell(memory)
            cell.usage = usage
            _settle(storage, cell, content[storage], constant)
    flush.finished = True


def _settle(storage: Storage, cell: Cell, content: Node, constant: Container[Node]) -> None:
    node, before = content, content.buffer
    if (before is None or before.memory is None) and node not in constant:  # a plan may make the constant and keep it
        node.buffer = cell
    elif before is not None and before.memory is cell.memory:
        cell = before  # an earlier attempt was interrupted here
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
