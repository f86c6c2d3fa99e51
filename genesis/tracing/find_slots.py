"""Which places a captured call writes to, and which kind of slot each is (`slots.py` lists the kinds)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from types import CellType, SimpleNamespace
from typing import Any

from genesis.frontend.later_number import LaterNumber
from genesis.frontend.patches import Held
from genesis.frontend.recording import TensorBase
from genesis.nn.modules.module import Module
from genesis.nn.modules.tree import Tree
from genesis.optim.optimizer import Optimizer
from genesis.tracing.code_reads import place_of
from genesis.tracing.differences import ANY, APPENDED, Difference
from genesis.tracing.guards import Guards
from genesis.tracing.plain_values import SIMPLE
from genesis.tracing.results import Known
from genesis.tracing.slot_access import is_plain_class, now_in
from genesis.tracing.slots import Slots, describe_all, is_number
from genesis.tracing.snapshot import MISSING, Entered, NotReplayable, Unsettled, content
from genesis.tracing.tracer import is_library_module, is_own_module
from genesis.tracing.updates import (
    only_appended,
    only_appended_in,
    only_counted,
    only_counted_in,
    only_stored,
    only_stored_in,
)

Place = tuple[int, Any]

_NUMBERS = 8
"""Numbers that others change, beyond which a capture is for these values alone. One number is the count that each
parameter has in its state: places of one name that hold the same and held the same."""

_BASES = (object, SimpleNamespace, Tree, Module, Optimizer)
"""Classes that read no attributes of the user's: `object` and Genesis' own that modules derive from."""

_WAYS = ("the attribute ", "the closure variable ")
"""How guards describe a way to an object that ends in a name."""

_ELEMENT = "an element of "
"""How they describe the way to what is in a container, before the way to that."""


def find_slots(guards: Guards, held: bool, entered: Entered, tensors: Sequence[Any],
               again: Callable[[frozenset[Place], frozenset[Place]], Guards],
               numbers: Sequence[Difference] = (),
               gradients: Sequence[tuple[Any, Any]] = ()) -> tuple[Guards, Slots | None]:
    """The guards and slots, if any, of a call that changed something that is guarded, or read what others change.

    Args:
        guards: guards of everything.
        held: whether they held right after the call; asked again, they do not say what a cache was given.
        entered: the state before the call.
        tensors: the arguments that are tensors.
        again: makes guards without those of some places, and for which of them the values are given.
        numbers: places that are not changed, of numbers that others change, and lists that others append to.
        gradients: (tensor, its gradient before the call), of tensors whose gradients are others from call to call.

    Raises:
        Unsettled: it changed what has no slot.
    """
    changes = list(guards.checks.differences())
    kinds = [_kind(x, guards, entered, tensors) for x in changes]
    known = {(id(x.owner), x.key) for x in changes}
    moving = {(id(x.owner), x.key) for x in numbers}
    kinds = ["given" if kind == "fixed" and is_number(x.before) and (
        ((id(x.owner), x.key) in moving and (is_number(x.now) or type(x.now) is LaterNumber))
        or (id(x.owner) in guards.states and type(x.now) is type(x.before))) else kind
        for x, kind in zip(changes, kinds, strict=True)]
    others = [replace(x, before=x.now) for x in numbers if (id(x.owner), x.key) not in known and (
        x.key is not APPENDED or (guards.follows_names and _is_only_appended_to(x.owner, guards)))]
    changes = [*changes, *others]
    kinds += ["appended" if x.key is APPENDED else "number" for x in others]
    if not changes and not gradients and held:
        return guards, None
    places = frozenset((id(x.owner), x.key) for x in changes)
    while True:
        given = frozenset((id(x.owner), x.key) for x, kind in zip(changes, kinds, strict=True)
                          if kind in ("given", "stored", "appended"))
        found = again(places, given)
        fixed = {x.storage for x in found.tensors}
        shared = [at for at, (x, kind) in enumerate(zip(changes, kinds, strict=True))
                  if kind == "given" and any(found.knows(y) or getattr(y, "storage", None) in fixed
                                             for y in _inside(x.before))]
        if not shared:
            break
        for at in shared:  # something else leads to it, too
            kinds[at] = "fixed"
    if not (changes or gradients) or not found.hold():
        raise _unsettled(next(found.checks.differences(), next(iter(changes), None)), guards)
    for x, kind in zip(changes, kinds, strict=True):
        if kind == "none":
            raise _unsettled(x, guards)
    reasons = [_reason(x, guards) for x, kind in zip(changes, kinds, strict=True)
               if kind == "fixed" and is_number(x.before) and type(x.now) is type(x.before)]
    return found, Slots(changes, kinds, tensors, reasons, gradients)


def changed_numbers(kept: Guards, slots: Slots | None) -> list[Difference]:
    """The places where an earlier capture had another int or float than there is now, the lists that have got longer
    since, and those that it knows of; none if it differs in anything else, too."""
    places = {} if slots is None else {(id(x.owner), x.key): x for x in slots.places_of_numbers}
    longer = [] if slots is None else slots.appended
    for x in kept.checks.differences():
        if x.key is APPENDED:
            longer = [*longer, x]
            continue
        if not is_number(x.before) or type(x.now) is not type(x.before) or (
                isinstance(x.owner, type) and not is_plain_class(x.owner)):
            return []
        places[id(x.owner), x.key] = x
    if len({(x.key, repr(x.before), repr(now_in(x.owner, x.key))) for x in places.values()}) > _NUMBERS:
        return []
    found = [replace(x, now=now_in(x.owner, x.key)) for x in places.values()]
    return [*[x for x in found if is_number(x.now)], *[replace(x, before=(), now=()) for x in longer]]


def results_of(after: Sequence[Any], tensors: Sequence[Any], guards: Guards) -> list[Any]:
    """What slots hold after a call with these tensors, as results: an object that is there anyway stands for itself."""
    arguments = {id(x) for x in tensors}
    return [Known(x) if not isinstance(x, SIMPLE) and id(x) not in arguments and (x is MISSING or guards.knows(x))
            else x for x in after]


def _kind(x: Difference, guards: Guards, entered: Entered, tensors: Sequence[Any]) -> str:
    """Which kind of slot the place is; "none" where it can be none."""
    if not isinstance(x.owner, (dict, list, deque, CellType)) and not hasattr(type(x.owner), str(x.key)) and (
            not is_plain_class(x.owner)):
        return "none"
    if x.key is ANY or (isinstance(x.owner, dict) and x.owner.get("__name__") == "sys"):
        return "none"
    names = _names_of(guards.ways.get(id(x.owner), set()))
    if x.key is APPENDED:
        return "appended" if guards.follows_names and _is_only_appended_to(x.owner, guards) else "none"
    if guards.follows_names and _is_of_the_user(_holder(x, guards)):
        kept = id(x.owner) in guards.ways  # an element of a list or dictionary, or an attribute, or a variable
        if type(x.before) is type(x.now) is int and (
                _all(only_counted_in, names, guards, x.key) if kept else only_counted(x.name, guards.ran)):
            return "counted"
        if _all(only_stored_in, names, guards, x.key) if kept else only_stored(x.name, guards.ran):
            return "stored"
    return "given" if _can_be_given(x.before, entered, tensors) else "fixed"


def _is_only_appended_to(items: list[Any], guards: Guards) -> bool:
    """Whether the code does nothing else with a list, wherever it finds it: under a name, or a constant key of one."""
    ways = guards.ways.get(id(items), set())
    inside = {way.removeprefix(_ELEMENT) for way in ways if way.startswith(_ELEMENT)}
    alone = {way for way in ways if not way.startswith(_ELEMENT)}
    keys = guards.keys.get(id(items), set())
    in_their_keys = partial(only_appended_in, keys=keys if None not in keys else ())
    return bool(ways) and all(not found or _all(does, _names_of(found), guards)
                              for does, found in ((only_appended, alone), (in_their_keys, inside)))


def _all(does: Callable[..., bool], names: Sequence[str], guards: Guards, *key: Any) -> bool:
    """Whether this holds for all names of a container."""
    return bool(names) and all(does(name, *key, guards.ran) for name in names)


def _holder(x: Difference, guards: Guards) -> Any:
    """The object whose attribute the place is; None for a variable, or an element of a list or dictionary."""
    return guards.holders.get(id(x.owner)) if isinstance(x.owner, (dict, list, deque, CellType)) else x.owner


def _is_of_the_user(holder: Any) -> bool:
    """Whether nobody but the user's code reads the attributes of the object, if they are some object's."""
    return holder is None or all(
        kind in _BASES or not (is_library_module(kind.__module__) or is_own_module(kind.__module__))
        for kind in (holder if isinstance(holder, type) else type(holder)).__mro__)


def _names_of(ways: Iterable[str]) -> list[str]:
    """The names that lead to an object; none if it is reached without one."""
    names = []
    for way in ways:
        name = next((way.removeprefix(start) for start in _WAYS if way.startswith(start)), way)
        if " " in name:
            return []
        names.append(name.rpartition(".")[2])
    return names


def _can_be_given(before: Any, entered: Entered, tensors: Sequence[Any]) -> bool:
    """Whether a value can be described like an argument, and is as it was before the call."""
    if isinstance(before, SIMPLE) or before is MISSING:
        return False
    for x in _inside(before):
        if isinstance(x, (list, dict)) and x in entered.world:
            copy, now = entered.world.of(x), content(x)
            pairs = (copy.items(), now.items()) if isinstance(x, dict) else (enumerate(copy), enumerate(now))
            if len(copy) != len(now) or any(a[0] != b[0] or a[1] is not b[1] for a, b in zip(*pairs, strict=True)):
                return False
    try:
        key, _ = describe_all([before], tensors)
    except NotReplayable:
        return False
    return not any(isinstance(part, Held) for part in key)


def _inside(value: Any) -> Iterable[Any]:
    """The tensors and containers that a value is made of."""
    stack = [value]
    while stack:
        x = stack.pop()
        if isinstance(x, TensorBase):
            yield x
        elif isinstance(x, (list, tuple)):
            yield x
            stack.extend(x)
        elif isinstance(x, dict):
            yield x
            stack.extend(x.values())


def _unsettled(x: Difference | None, guards: Guards) -> Unsettled:
    return Unsettled("it changes something that it reads (an attribute, a container, a variable)" if x is None else
                     _reason(x, guards))


def _reason(x: Difference, guards: Guards) -> str:
    return f"it changes {x.name!r}, which it reads{place_of(x.name, guards.ran)}"
