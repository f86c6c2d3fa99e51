"""The engine's functions that the rest of Genesis calls: compute what is read, write what is pending, hand out memory.

A flush takes the storages whose content is wanted and all pending writes to memory, captures the
program, finds or builds its plan, runs it, and settles the storages. It either does all of that
or leaves every memory as it was.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from genesis.engine.in_parts import Wrote, is_divisible, run_in_parts
from genesis.engine.interruption import beside, left_behind
from genesis.engine.plan_lookup import Superseded, backend_of
from genesis.engine.preparation import prepare
from genesis.engine.running import Divisible, run
from genesis.engine.short_read import first_read, read_alone, read_size, short_read
from genesis.engine.state import engine_state
from genesis.frontend import session
from genesis.frontend.engine_protocol import connect
from genesis.frontend.pending import live_pending
from genesis.frontend.recording import TensorBase, over
from genesis.frontend.state import lock, state
from genesis.frontend.storage import Storage
from genesis.ir.ops import leaves
from genesis.ir.types import Device
from genesis.ir.walk import computed, walk
from genesis.runtime.contexts import NotYet

if TYPE_CHECKING:
    from collections.abc import Iterable

    from genesis.codegen.base import Memory


LOOKS: Final = 2
"""Looks of Python's collector at the youngest generation since its last one at the second, from which on a flush may
have that looked at, too (`young_objects.py`). Fewer come of a few hundred ops, of which little is taken for old."""


def materialize(*tensors: TensorBase | Iterable[TensorBase]) -> None:
    """Compute the contents of these tensors, and of all in lists of them, into memory (`genesis.eval`).

    >>> import genesis
    >>> x, y = genesis.ones(2) * 3, genesis.ones(2) * 4
    >>> genesis.eval(x, [y])
    """
    flush([tensor.storage for given in tensors
           for tensor in ((given,) if isinstance(given, TensorBase) else given)])


def flush(wanted: Sequence[Storage], step: Wrote | None = None) -> None:
    """Compute the wanted storages and every pending write, in one plan a device.

    Args:
        step: whether the step that ends wrote to a storage, where nothing is wanted (`in_parts.py`).
    """
    if state.session is not None and (running := session.active()) is not None:
        if wanted and session.read_of_what_stays(wanted) and all(map(read_alone, wanted)):
            return
        if wanted or running.refusal is None:  # the step of a call that cannot be replayed ends without reading
            running.refuse("a value is read while the function runs")
        held = held_at_step(running)
        if held:
            materialize(held)  # with all else that is pending
    with lock:
        was_short = _flush_locked(wanted, step)
    if not was_short:
        _look_at_young()


def _flush_locked(wanted: Sequence[Storage], step: Wrote | None = None) -> bool:
    """`flush`, where the lock is held; whether it was a short read, which leaves little for Python's collector."""
    record = engine_state.record
    if record is not None and not left_behind(record):
        with beside(record):
            flush(wanted, step)
        return True
    settled = 0
    for storage in wanted:
        if storage.settled:
            if storage.error is not None:
                raise storage.error.with_traceback(None)
            settled += 1
    if 0 < settled == len(wanted):
        return True  # what is pending elsewhere is not asked for, and tells its errors to who asks for it
    if len(wanted) == 1 and engine_state.ran < engine_state.cuts.waits_until and (
            short_read(wanted[0]) or first_read(wanted[0])):
        return True
    while not _flushed(wanted, step):
        pass
    return False


def _look_at_young() -> None:
    """Have Python's collector look at young objects, where it would soon do so in the middle of a program."""
    from genesis.runtime.collector import put_off_collection  # here: importing computes nothing
    put_off_collection()
    looks = gc.get_count()[1]
    before, engine_state.looks = engine_state.looks, looks
    engine_state.looks_between = looks - before if looks > before else looks
    if looks >= LOOKS:
        if engine_state.cuts.cutting:  # an op that is being recorded holds all that the piece was made of
            engine_state.cuts.collects = True
        # What is alive now is taken for old, too, as a model's gradients: no more often than the collector does so, but
        # before it would in the middle of as much again as was recorded since the flush before.
        elif looks + engine_state.looks_between >= gc.get_threshold()[1]:
            from genesis.engine.young_objects import collect_young
            collect_young()


def let_go() -> None:
    """Gradients were let go of, as a step begins or when it has ended: what was recorded for the step before is gone
    then, where a value that it returned, such as a model's scores, kept it alive behind its flush."""
    looks = gc.get_count()[1]
    if looks >= LOOKS and looks + engine_state.looks_between >= gc.get_threshold()[1]:
        from genesis.engine.young_objects import collect_young
        collect_young()


def _flushed(wanted: Sequence[Storage], step: Wrote | None) -> bool:
    """Do what `flush` says; False if a signal handler or a finalizer did some of it meanwhile, so that the rest is
    another program."""
    engine_state.sizes, units, rewritten, whole = 0, len(state.together), len(state.rewritten), True
    live = [s for s in live_pending() if (node := s._node) is not None and (
        node.buffer is not s.cell or s.cell is None)]  # not `settled`: a property of hundreds
    unsettled = [storage for storage in wanted if not storage.settled]
    devices = dict.fromkeys([s.type.device for s in (*unsettled, *live)])
    for device in devices:
        here = live if len(devices) == 1 else [s for s in live if s.type.device is device and not s.settled]
        asked = [s for s in unsettled if s.type.device is device]
        flush, more = None, list[Storage]()
        if engine_state.ran >= engine_state.cuts.waits_until:
            from genesis.engine.waiting import waited
            known = set(asked)
            more = waited([s for s in here if s not in known])
        try:
            flush = prepare([*asked, *more], here, device)
            if flush is not None:
                flush.waited = bool(more)
                run(flush, partial(is_divisible, asked, step))
        except Superseded:
            return False
        except NotYet:
            if asked or not wanted:  # else it was asked for values elsewhere
                raise
            whole = False
        except Divisible:
            whole = False
            if flush is not None and not run_in_parts(flush, asked, step):
                return False
    if whole:
        del state.together[:units]
        if len(state.rewritten) == rewritten:
            state.rewritten.clear()
    return True


def end_step(wrote: Wrote | None = None) -> None:
    """A training step ends: run what is pending, without waiting for the GPU.

    Args:
        wrote: whether the step wrote to a storage: that is one change, and what was pending before stays if it cannot
            be made. Without it no step ends: the newest writes are asked for.
    """
    if state.session is not None and (running := session.active()) is not None and running.refusal is None:
        if not running.ended:
            running.comes_to_step()
        running.ended = True
        running.at_end += [(weakref.ref(s), s.node) for s in live_pending() if s.cell is None and not s.settled]
        return
    flush([], wrote)


def held_at_step(running: session.Session) -> list[TensorBase]:
    """What only the captured function held when its step ended; asked for once.

    The step runs later than `step()` stands there, and a backward may read such a value when the step has overwritten
    what it is computed from. It is computed with the step while somebody holds the returned tensors.
    """
    held = [node for storage, node in running.at_end if storage() is None]
    running.at_end = []
    return [over(Storage(node.type, node), node.type, None) for node in held  # the nodes themselves, as they were held
            if not computed(node) and all(computed(x) for x in walk([node]) if x.op is leaves.data)]


def allocate(nbytes: int, device: Device) -> Memory:
    """Memory of this size on the device."""
    return backend_of(device).allocate(nbytes, device)


def memory_of(tensor: TensorBase) -> Memory:
    """The computed memory of a tensor's storage."""
    with lock:
        return locked_memory_of(tensor)


def locked_memory_of(tensor: TensorBase) -> Memory:
    """`memory_of`, where the lock is held: a lock that is taken once more takes 0.3 µs of a small read."""
    storage = tensor.storage
    if not storage.settled or storage.error is not None:
        if state.session is not None:
            flush([storage])
        elif not _flush_locked((storage,)):
            _look_at_young()
    elif state.session is not None and (running := session.active()) is not None and (
            not session.read_of_what_stays([storage])):
        running.refuse("a value is read while the function runs")
    storage.join_others()
    assert storage.cell is not None
    return storage.cell.memory


connect(flush=flush, read_size=read_size, materialize=materialize, end_step=end_step, allocate=allocate,
        memory_of=memory_of, locked_memory_of=locked_memory_of, backend_of=backend_of, let_go=let_go)
