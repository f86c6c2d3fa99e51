"""The plan of a captured step: prepared, looked at for whether it may run again over the same memories, and run."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from genesis import engine
from genesis.autograd.graph_release import is_freed
from genesis.engine.plan_lookup import Superseded
from genesis.frontend.pending import live_pending
from genesis.frontend.session import Session, take_back
from genesis.frontend.storage import Storage
from genesis.ir.interrupting import keeps_pending
from genesis.ir.types import Device
from genesis.tracing.replay_sources import sources_of
from genesis.tracing.results import Result
from genesis.tracing.snapshot import NotReplayable, Unsettled

if TYPE_CHECKING:
    from genesis.engine.compilation import Compiled

_LEAKED: Final = "a tensor that it makes stays alive elsewhere"
_DISTURBED: Final = "a signal handler or a finalizer computes while the step is captured"


class CapturedStep(NamedTuple):
    """A step that ran, and can run again.

    Attributes:
        flush, compiled: its program, and the plan that ran.
        sources: where each of the plan's memories is from: an argument's number, or a storage.
        graded: the tensors that it gave a new gradient.
    """

    flush: engine.Flush
    compiled: Compiled
    sources: list[Any]
    graded: list[Any]


def captured_step(effects: Session, shape: Result, tensors: Sequence[Any], allowed: set[Storage]) -> CapturedStep:
    """Run the step that a call ended, whatever comes of it.

    Args:
        effects: what the call did.
        shape: the structure of its result.
        tensors: its arguments that are tensors.
        allowed: the storages that were found when the call began.

    Raises:
        NotReplayable: nothing can stand for a second call.
        Unsettled: this call's state is none that calls come again to.
    """
    graded = _graded(effects)
    if not set(shape.fresh).isdisjoint([x._grad.storage for x in graded]):
        raise NotReplayable("it returns or keeps a gradient that it leaves in its tensor, too")
    if any(s.node.needs_grad for s in effects.writes if s.cell is not None):
        raise NotReplayable("it writes a value that gradients flow through, and ends a step")
    shape.free(lambda node: is_freed(node, effects.freed))
    live = live_pending()
    devices = {s.type.device for s in live}
    wanted = list(shape.fresh)
    if len(devices) != 1 or any(s.type.device not in devices for s in wanted):
        raise NotReplayable("its step is on several devices")
    device = devices.pop()
    flush = _prepared(wanted, live, device)
    computed = set(flush.outputs)
    missing = [x._grad.storage for x in graded if x._grad.storage not in computed]
    if missing:  # gradients of what no optimizer updates would be computed when somebody reads them
        flush = _prepared([*wanted, *missing], live, device)
    expected = {id(s) for s in wanted} | {id(x._grad.storage) for x in graded}
    leaked = [s for s in flush.outputs if id(s) not in expected]
    if any(s.needs_grad for s in leaked):  # a backward may read what only the function held
        raise Unsettled(_LEAKED)
    sources: list[Any] | NotReplayable
    try:
        sources = sources_of(flush.captured, tensors, allowed, effects.of_values)
    except NotReplayable as refusal:
        sources = refusal
    try:
        compiled = engine.run(flush, (lambda _: True) if leaked else None)
    except engine.Superseded:
        raise Unsettled(_DISTURBED) from None
    except engine.Divisible:  # it may be what is alive elsewhere that failed: nothing has been done
        raise Unsettled(_LEAKED) from None
    except BaseException as error:
        if not keeps_pending(error):
            effects.put_back()
            take_back(again for _, again in effects.numbers)
        raise
    if isinstance(sources, NotReplayable):
        raise sources
    if leaked or flush.snapshots:
        raise Unsettled(_LEAKED)
    return CapturedStep(flush, compiled, sources, graded)


def _graded(effects: Session) -> list[Any]:
    """The tensors that got a new gradient, which is pending.

    Raises:
        NotReplayable: one got a gradient of before.
    """
    gradients = [x for x, _ in effects.grads.values()]
    graded = [x for x in gradients if x._grad is not None and x._grad.storage.cell is None]
    new = {id(x) for x in graded}
    if any(x._grad is not grad for x, grad in effects.grads.values() if x._grad is not None and id(x) not in new):
        raise NotReplayable("it gives a tensor a gradient that was computed before")
    return graded


def _prepared(wanted: list[Storage], live: list[Storage], device: Device) -> engine.Flush:
    """The flush of the captured step.

    Raises:
        Unsettled: something else was computed meanwhile.
    """
    with suppress(Superseded):
        flush = engine.prepare(wanted, live, device)
        if flush is not None:
            return flush
    raise Unsettled(_DISTURBED)
