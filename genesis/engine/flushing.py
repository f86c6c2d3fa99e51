"""The one seam between recording and running: materialize what is read, flush what is written.

A flush takes the storages whose content is wanted and all pending writes to memory, captures the
program, finds or builds its plan, runs it, and settles the storages. It either does all of that
or leaves every memory as it was.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Container, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field
from operator import is_
from typing import TYPE_CHECKING, Any, Final

from genesis.config import config
from genesis.engine.capture import Captured, capture, constants, program
from genesis.engine.saved_values import Usage, note_use, save_for_backward
from genesis.engine.short_read import reading_of
from genesis.frontend import session
from genesis.frontend.engine_protocol import connect
from genesis.frontend.recording import TensorBase
from genesis.frontend.storage import Cell, Storage, live_differentiable, live_pending, lock, pending
from genesis.frontend.threads import Job, handled, others, others_record
from genesis.ir.errors import Overwritten
from genesis.ir.misplaced import IndexOutOfRange, find_misplaced
from genesis.ir.node import Node, make, unique
from genesis.ir.ops import control, leaves
from genesis.ir.types import Device, cpu
from genesis.ir.walk import computed, walk

if TYPE_CHECKING:
    from genesis.codegen.base import Backend
    from genesis.engine.compilation import Compiled

SMALL: Final = 4096
"""Bytes of a value that is cheaper to keep than to think about, such as a loss."""

_plans: dict[tuple, Any] = {}  # (device, which is one GPU, settings, structure) → plan; and what `plans` keeps
_observers: list[Callable[[Compiled], None]] = []
_last: Compiled | None = None


def materialize(*tensors: Any) -> None:
    """Compute the contents of these tensors, and of all in lists of them, into memory (`genesis.eval`).

    >>> import genesis
    >>> x, y = genesis.ones(2) * 3, genesis.ones(2) * 4
    >>> genesis.eval(x, [y])
    """
    flush([tensor.storage for given in tensors
           for tensor in ((given,) if isinstance(given, TensorBase) else given)])


def flush(wanted: Sequence[Storage]) -> None:
    """Compute the wanted storages and every pending write, in one plan a device."""
    if session.current is not None and (running := session.active()) is not None:
        running.refuse("a value is read while the function runs")
    with lock:
        if _executing is not None:
            _flush_beside(wanted)
            return
        for storage in wanted:
            if storage.error is not None and storage.settled:
                raise storage.error.with_traceback(None)
        if len(wanted) == 1 and _alone(wanted[0]) and _read(wanted[0]):
            return
        while not _flushed(wanted):
            pass


def _flush_beside(wanted: Sequence[Storage]) -> None:
    """`flush` in a signal handler or a finalizer that interrupts a program while it runs.

    One that is run by another thread is waited for, one whose results are there is finished. One that only makes new
    memory goes on afterwards: what runs now has plans and scratch memory of its own.
    """
    global _executing, _plans
    interrupted, plans = _executing, _plans
    assert interrupted is not None
    if interrupted.job is not None:
        interrupted.job.wait()
        if interrupted.captured is not None:  # else it has told the storages
            interrupted.results = interrupted.job.result
    if interrupted.job is not None and interrupted.job.error is not None:
        if interrupted.captured is not None:
            _give_up(interrupted, interrupted.job.error)
    elif interrupted.results is not None:
        finish(interrupted)
    elif interrupted.job is None and (interrupted.updates or not backend_of(interrupted.device).interruptible):
        raise RuntimeError("a value is read by what interrupts the computation of others (a signal handler or a "
                           "finalizer), while memory is being overwritten; read it later, or from another thread")
    try:
        _executing = None
        if interrupted.job is not None or interrupted.results is not None:
            flush(wanted)
            return
        _plans = {}
        with backend_of(interrupted.device).aside():
            flush(wanted)
    finally:
        _executing, _plans = interrupted, plans


def _flushed(wanted: Sequence[Storage]) -> bool:
    """Do what `flush` says; False if a signal handler or a finalizer did some of it meanwhile, so that the rest is
    another program."""
    live = [storage for storage in live_pending() if not storage.settled]
    unsettled = [storage for storage in wanted if not storage.settled]
    devices = dict.fromkeys([s.type.device for s in (*unsettled, *live)])
    for device in devices:
        here = live if len(devices) == 1 else [s for s in live if s.type.device is device and not s.settled]
        flush = prepare([s for s in unsettled if s.type.device is device], here, device)
        if flush is not None:
            try:
                run(flush)
            except Superseded:
                return False
    return True


def _alone(storage: Storage) -> bool:
    """Is this the only storage with content to compute?"""
    if len(pending) == 1:
        return storage._reference in pending
    live = live_pending()
    return len(live) == 1 and live[0] is storage


def _read(storage: Storage) -> bool:
    """Compute a value that depends on nothing else that is going on; False, and nothing done, where it does."""
    global _executing, _generation, _last
    node = storage._node
    reading = reading_of(storage)
    if reading is None:
        return False
    key = (config.key(), reading.key)
    found = _plans.get(key)
    if found is None:
        flush = prepare([storage], [storage], cpu)
        assert flush is not None
        try:
            found = run(flush)
        except Superseded:
            return False
        if len(reading.memories) == len(flush.captured.cells) and all(
                map(is_, reading.memories, flush.captured.memories)):  # numbers are met in that order too
            _plans[key] = found
        return True
    try:
        _executing = _A_READ
        memory, = found.executor.run(reading.memories, reading.numbers)
    except BaseException as error:
        found_out = _misplaced(error, [node])  # type: ignore[list-item]
        if found_out is not None:
            error = found_out[1]
        storage.fail(_without_frames(error), node)
        if found_out is not None:
            raise error from None
        raise
    finally:
        _executing = None
    _generation += 1
    _last = found
    cell = Cell(memory)
    if reading.memories or reading.numbers:  # else it is a constant, see `_settle`
        node.buffer = cell  # type: ignore[union-attr]
    storage.settle(cell, content=node)
    if storage._node is None:
        pending.pop(storage._reference, None)  # so that the next read is alone at first sight
    return True


def end_step() -> None:
    """A training step ends: run what is pending, without waiting for the GPU."""
    if session.current is not None and (running := session.active()) is not None:
        running.ended = True
        return
    flush([])


@dataclass
class Flush:
    """One plan's worth of work: the program and the storages that it is for.

    Attributes:
        outputs: storages that get memory with their content.
        updates: storages whose memory is overwritten with their new content.
        snapshots: those of `updates` whose old content is copied first.
        live: all uncomputed storages, which a failure may leave without their content.
        saved: nodes whose values are kept for a backward, and who is to know about them.
        content: what is computed for each storage: it may be written to meanwhile.
        cells: of the updates, with their memories.
        generation: how many programs had run before it was made.
        doubtful: another thread may hold the old content of an update, unseen.
        copies: of the old contents of cells, where it is doubtful.
        job: what runs it, if that is a thread of its own.
        compiled, results: its plan, and what that gave.
        finished: the storages know of the results.
    """

    device: Device
    outputs: list[Storage]
    updates: list[Storage]
    snapshots: list[Storage]
    live: list[Storage]
    captured: Captured
    saved: tuple[list[Node], Usage | None]
    content: dict[Storage, Node]
    cells: dict[Storage, tuple[Cell, Any]]
    generation: int
    doubtful: bool
    job: Job | None = None
    compiled: Any = None
    results: Any = None
    finished: bool = False
    copies: dict[Cell, Any] = field(default_factory=dict)


class Superseded(BaseException):
    """A signal handler or a finalizer has computed something since the program was captured: it is another one now."""


_generation = 0
"""How many programs have run."""

_executing: Flush | None = None
"""What this thread was running when a signal handler or a finalizer asked for something, while it holds the lock."""


_A_READ: Final = Flush(cpu, [], [], [], [], None, ([], None), {}, {}, 0, False)  # type: ignore[arg-type]
"""Stands for a program that only makes new memory."""


def prepare(wanted: list[Storage], live: list[Storage], device: Device) -> Flush | None:
    """What to run, so that the wanted storages and all pending writes are in memory; None for nothing."""
    generation = _generation
    updates = [s for s in live if s.cell is not None]
    outputs = list(dict.fromkeys([*[s for s in wanted if s.cell is None],
                                  *[s for s in live if s.writes and s.cell is None]]))
    if not outputs and not updates:
        return None
    content = {s: s.node for s in (*outputs, *live)}
    chosen, written = set(outputs), [content[s] for s in updates]
    order = walk([*[content[s] for s in outputs], *written])
    kept, snapshots = _still_needed(order, updates, [s for s in live if s.cell is None and s not in chosen], content)
    outputs += kept
    snapshots += [s for s in _needed_by_backwards(updates, live, content) if s not in snapshots]
    cells: list[Any] = [s.cell for s in updates]
    captured = capture([content[s] for s in outputs], list(zip(cells, written, strict=True)),
                       [(s.cell, s.type) for s in snapshots], order)  # type: ignore[misc]
    note_use(captured.known)
    doubtful = bool(updates) and others() > 0 and (others_record() or _moved_on(live, content))
    return Flush(device, outputs, updates, snapshots, live, captured, save_for_backward(captured), content,
                 {s: (cell, cell.memory) for s, cell in zip(updates, cells, strict=True)}, generation, doubtful)


def _moved_on(live: list[Storage], content: dict[Storage, Node]) -> bool:
    """Has another thread recorded something since these contents were looked at?"""
    return any(s._node is not content[s] for s in live) or any(
        not s.settled and s not in content for s in live_pending() if s.type.device is live[0].type.device)


def run(flush: Flush) -> Compiled:
    """Run the program and settle the storages; on failure drop its writes and raise.

    Raises Superseded, and has done nothing, if another program has run since it was prepared.
    """
    global _executing
    before = _executing
    try:
        flush.compiled = plan_for(flush.captured, flush.device)
        _executing = flush
        if flush.generation != _generation:
            raise Superseded
        _execute(flush)
        finish(flush)
    except Superseded:
        raise
    except BaseException as error:
        if flush.results is None:
            if flush.generation != _generation and flush.job is None:  # it was captured while something else ran
                raise Superseded from None
            found = _give_up(flush, error)
            if found is not error:
                raise found from None
        else:  # interrupted while the storages were told
            finish(flush)
        raise
    finally:
        _executing = before
    return flush.compiled


def _execute(flush: Flush) -> None:
    """Run the plan.

    Where it overwrites memory, nobody may look on: no finalizer runs meanwhile, and if there are signal handlers of the
    user's, which this thread cannot keep out, another thread runs it; a handler that asks for a value waits for that.
    """
    captured, compiled = flush.captured, flush.compiled
    memories, numbers = captured.memories, captured.numbers
    backend = compiled.backend
    if not flush.updates and backend.interruptible:
        flush.results = compiled.run(memories, numbers)
        return
    collects = gc.isenabled()
    gc.disable()
    try:
        kept = [(cell, memory.clone()) for storage, (cell, memory) in flush.cells.items()
                if storage not in flush.snapshots] if flush.doubtful else []
        if not backend.asynchronous and handled():
            flush.job = job = Job(lambda: compiled.run(memories, numbers))
            try:
                job.wait()
            finally:
                flush.results = job.result
            if job.error is not None:
                raise job.error
        else:
            flush.results = compiled.run(memories, numbers)
        flush.copies.update(kept)
    finally:
        if collects:
            gc.enable()


def overwrite(function: Callable[[], Any], device: Device) -> Any:
    """Call what overwrites memory and tells the storages so, with the lock held, where nobody looks on (`_execute`)."""
    global _executing, _generation
    before, collects = _executing, gc.isenabled()
    gc.disable()
    try:
        _executing = running = Flush(device, [], [_NOBODY], [], [], None, ([], None), {}, {}, 0, False)  # type: ignore
        if backend_of(device).asynchronous or not handled():
            return function()
        running.job = job = Job(function)
        job.wait()
        if job.error is not None:
            raise job.error
        return job.result
    finally:
        _generation += 1
        _executing = before
        if collects:
            gc.enable()


_NOBODY: Any = None


def _give_up(flush: Flush, error: BaseException) -> BaseException:
    """A program failed: drop its writes. Returns the error that says why."""
    if isinstance(error, Overwritten):  # what needs the value never comes to be; all else stays to be computed
        _fail_without_value(error, flush)
        return error
    misplaced = None if backend_of(flush.device).checks_indices else _misplaced(error, flush.captured.order)
    if misplaced is None:
        _fail(error, flush, flush.outputs)
        return error
    node, error = misplaced  # what does not need that op stays to be computed
    _fail(error, flush, [s for s in flush.outputs if node in walk([flush.content[s]])])
    return error


def finish(flush: Flush) -> None:
    """Tell the storages of the results. Once: who interrupts this finishes it first, and it does nothing then."""
    global _generation
    if flush.finished:
        return
    _generation += 1
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
        cell = before  # this was interrupted here
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


def _still_needed(computed_here: dict[Node, None], updates: list[Storage],
                  rest_of: list[Storage], content: dict[Storage, Node]) -> tuple[list[Storage], list[Storage]]:
    """What else the flush must keep, so that every live tensor stays readable.

    Returns the storages to compute now, and the updated storages whose old content to copy. A
    tensor that the program computes anyway is kept, and so is a gradient. Another one that needs
    content about to be overwritten is computed now, or stays computable from copies of that
    content, whichever takes fewer bytes.
    """
    kept: list[Storage] = []
    rest: list[Storage] = []
    for storage in rest_of:
        (kept if storage.persistent and content[storage] in computed_here else rest).append(storage)
    if all(s.type.nbytes <= SMALL and _is_in(computed_here, content[s]) for s in rest):
        return kept + rest, []
    overwritten = {id(s.cell): s for s in updates}
    lost = _readers(walk([content[s] for s in rest], order=computed_here.copy()), overwritten)
    dependent = [s for s in rest if content[s] in lost and not s.persistent]
    kept += [s for s in rest if (s.persistent if content[s] in lost else _is_in(computed_here, content[s]))]
    small = [s for s in dependent if s.type.nbytes <= SMALL]
    if len(small) == len(dependent):
        return kept + dependent, []
    reached = walk([content[s] for s in dependent])
    needed = list(dict.fromkeys(overwritten[id(node.buffer)] for node in reached if id(node.buffer) in overwritten))
    if sum(s.type.nbytes for s in needed) < sum(s.type.nbytes for s in dependent):
        return kept + small, needed
    return kept + dependent, []


def _is_in(computed_here: Container[Node], node: Node) -> bool:
    """Is the value among these, or one of them whose history was forgotten, as a loss's after its backward?"""
    return node in computed_here or (node.op is control.stop_gradient and node.inputs[0] in computed_here)


def _needed_by_backwards(updates: list[Storage], live: list[Storage], content: dict[Storage, Node]) -> list[Storage]:
    """The updated storages whose old content a backward of a live tensor may have to read again.

    Not those of leaf tensors: writing to what a backward needs is the program's error there.
    """
    stack = [s.node for s in live_differentiable() if s.settled and s.needs_grad]
    stack += [content[s] for s in live if content[s].needs_grad]
    if not stack:
        return []
    overwritten = {id(s.cell): s for s in updates}
    seen: set[Node] = set()
    found: dict[Storage, None] = {}
    while stack:
        node = stack.pop()
        if node in seen or node.op is control.watch:
            continue
        seen.add(node)
        if node.needs_grad or not computed(node):
            stack.extend(node.inputs)
        elif id(node.buffer) in overwritten:
            found[overwritten[id(node.buffer)]] = None
    return list(found)


def _readers(order: Iterable[Node], overwritten: Container[int]) -> set[Node]:
    """Which of these nodes, operands before users, need content of the overwritten cells (given by id)."""
    found: set[Node] = set()
    disjoint = found.isdisjoint
    for node in order:
        cell = node.buffer
        if not disjoint(node.inputs) if cell is None or cell.memory is None else id(cell) in overwritten:
            found.add(node)
    return found


def _fail(error: BaseException, flush: Flush, outputs: list[Storage]) -> None:
    """A plan did not run: its writes are dropped, what depends on them raises this error when read."""
    error = _without_frames(error)
    lost = {flush.content[storage] for storage in (*outputs, *flush.updates)}
    for storage in flush.live:
        node = storage._node
        if node is not None and not storage.settled and not lost.isdisjoint(walk([node])):
            storage.fail(error, node)
    for storage in (*outputs, *flush.updates):
        if not storage.settled:
            storage.fail(error, flush.content[storage])


def _misplaced(error: BaseException, order: Iterable[Node]) -> tuple[Node, IndexOutOfRange] | None:
    """The op of the failed program that was given an index outside, and the error that says so."""
    if not isinstance(error, (IndexError, RuntimeError)):
        return None

    def value_of(index: Node) -> Any:
        import numpy as np
        if computed(index):
            memory = index.buffer.memory  # type: ignore[union-attr]
        else:
            captured = capture([index], [], [])
            memory, = plan_for(captured, index.type.device).run(captured.memories, captured.numbers)
        value = np.empty(index.type.shape, index.type.dtype.numpy)
        memory.copy_to_host(value)
        return value
    try:
        return find_misplaced(walk(order), value_of)
    except Exception:  # what the program failed of keeps it from being looked at again
        return None


def _without_frames(error: BaseException) -> BaseException:
    """The same error, which tensors can keep without keeping alive all that its traceback refers to."""
    try:
        return copy(error).with_traceback(None)
    except Exception:  # an error class of its own that cannot be copied
        return error


def _fail_without_value(error: BaseException, flush: Flush) -> None:
    """What depends on an overwritten value raises this error when read."""
    error = _without_frames(error)
    for storage in dict.fromkeys((*flush.outputs, *flush.updates, *flush.live)):
        content = storage._node
        if content is not None and not storage.settled and any(
                node.op is leaves.data and not computed(node) for node in program([content])[0]):
            storage.fail(error, content)


def plan_for(captured: Captured, device: Device) -> Compiled:
    """The plan of the captured program: the one of its structure, or a new one."""
    global _last
    key = (device, config.key(), captured.key)
    found = _plans.get(key)
    if found is None:
        from genesis.engine import plans  # recording needs none of what makes and keeps plans
        generation = _generation
        found = plans.find(captured, device, _plans)
        if generation != _generation:  # a handler computed what the program was made of: it may be another one
            raise Superseded
        _plans[key] = found
        constant = constants(captured.order)
        found.constants = [position for position, node in enumerate(captured.order) if node in constant]
        for observer in _observers:
            observer(found)
    _last = found
    return found


def last_plan() -> Compiled | None:
    """The plan that ran last: its stages, schedule and steps."""
    return _last


class observe:
    """A context that calls `observer` with every plan built inside.

    >>> import genesis
    >>> plans = []
    >>> with observe(plans.append):
    ...     (genesis.ones(3) * 2).sum().item()
    6.0
    >>> len(plans)
    1
    """

    def __init__(self, observer: Callable[[Compiled], None]):
        self._observer = observer

    def __enter__(self) -> None:
        _observers.append(self._observer)

    def __exit__(self, *error: object) -> None:
        _observers.remove(self._observer)


# Memory of tensors

def backend_of(device: Device) -> Backend:
    """The backend of a device."""
    from genesis.engine import backends  # recording imports this module, and needs none
    return backends.backend_of(device)


def allocate(nbytes: int, device: Device) -> Any:
    """Memory of this size on the device."""
    return backend_of(device).allocate(nbytes, device)


def memory_of(tensor: Any) -> Any:
    """The computed memory of a tensor's storage."""
    storage = tensor.storage
    with lock:
        if not storage.settled or storage.error is not None:
            flush([storage])
        elif session.current is not None and (running := session.active()) is not None:
            running.refuse("a value is read while the function runs")
        storage.join_others()
        return storage.cell.memory


connect(flush=flush, materialize=materialize, end_step=end_step, allocate=allocate, memory_of=memory_of,
        backend_of=backend_of)
