"""The plan of a captured program: the one that this process has, or a new one.

Recording imports this; what makes and keeps plans (`plans.py`) is imported when the first is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from genesis.config import config
from genesis.engine.capture import Captured, communicates, constants
from genesis.engine.state import engine_state
from genesis.ir.ops import control
from genesis.ir.types import Device
from genesis.runtime.contexts import Switched, Temporary

if TYPE_CHECKING:
    from genesis.codegen.base import Backend
    from genesis.engine.compilation import Compiled


class Superseded(BaseException):
    """A signal handler or a finalizer has computed something since the program was captured: it is another one now."""


def plan_for(captured: Captured, device: Device, moves: bool = False) -> Compiled:
    """The plan of the captured program: the one of its structure, or a new one.

    Args:
        moves: places that were seen to move may become numbers of the program, which has more of them then.

    Raises:
        Superseded: a plan was made, and meanwhile something else was computed.
        CompilationFailed, Overwritten, ...: what compiling raises.
    """
    key = (device, config.key(), captured.key)
    found = engine_state.plans.programs.get(key)
    if found is None and moves and not backend_of(device).keeps_plans and _moved(captured):
        key = (*key[:2], captured.key)
        found = engine_state.plans.programs.get(key)
    if found is None:
        found = _new_plan(captured, device, key)
    engine_state.last = found
    return found


def _moved(captured: Captured) -> bool:
    from genesis.engine.moving_places import move
    return move(captured, engine_state.plans.places, engine_state.cuts.cutting)


def _new_plan(captured: Captured, device: Device, key: tuple) -> Compiled:
    from genesis.engine import plans
    from genesis.engine.histories import read_on
    from genesis.engine.repeated_numbers import LONG, repeats_numbers
    ran = engine_state.ran
    found = plans.find(captured, device, engine_state.plans.shape_erased)
    if ran != engine_state.ran:  # a handler computed what the program was made of: it may be another one
        raise Superseded
    engine_state.plans.programs.add(key, found)
    engine_state.plans.compiled += found.origin == "compiled"
    constant = constants(captured.order)
    ops = {node.op for node in captured.order}  # far fewer than nodes
    found.communicates = any(op.kind == "collective" or op is control.call for op in ops) and any(
        map(communicates, captured.order))
    if len(captured.order) >= LONG:
        found.numbers_apart = bool(captured.numbers) and repeats_numbers(captured.order)
    given = constant.intersection((*captured.outputs, *captured.written))  # the others no storage shows
    found.constants = [position for position, node in enumerate(captured.order) if node in given]
    found.read_on = read_on(captured, constant)
    for observer in engine_state.observers:
        observer(found)
    return found


def last_plan() -> Compiled | None:
    """The plan that ran last: its stages, schedule and steps."""
    return engine_state.last


class observe(Temporary):
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
        told = engine_state.observers
        super().__init__(lambda: Switched([(told.append, observer)], [(told.remove, observer)]))


def backend_of(device: Device) -> Backend:
    """The backend of a device."""
    from genesis.engine.backends import backend_of as found  # of a module, which takes a sixth of `from` a package
    return found(device)
