"""Taking over an optimizer's state dict: everything is checked first, then everything is copied.

A state dict that does not fit raises and changes nothing, whichever of its parts is wrong.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from math import isfinite
from numbers import Real
from typing import TYPE_CHECKING, Any

from genesis import engine
from genesis.frontend import session
from genesis.frontend.at_once import Change, at_once, changes
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.recording import read
from genesis.frontend.storage import Storage
from genesis.frontend.tensor import Tensor
from genesis.frontend.writes import assign_all
from genesis.ir.errors import failure
from genesis.ir.node import Node
from genesis.optim.groups import Group

if TYPE_CHECKING:
    from genesis.optim.optimizer import Optimizer

State = dict[Any, Any]

STEP = "step"
"""The count of steps, which torch keeps in a tensor and Genesis, like other numbers of a state, in Python."""


@dataclass
class _Entry:
    """The value that a parameter's state will hold under a name.

    Attributes:
        value: the new value; a tensor of the type that the state wants.
        target: the tensor of the present state that it is copied into; None where there is none of its type.
        content: the value as recorded before anything was copied.
    """

    value: Any
    target: Tensor | None = None
    content: Node | None = None


def load(optimizer: Optimizer, saved: Mapping[str, Any]) -> None:
    """See `Optimizer.load_state_dict`."""
    groups = _groups(optimizer, saved)
    with no_grad():
        states = _states(optimizer, saved, groups)
        entries = [entry for state in states.values() for entry in state.values()]
        engine.materialize([entry.value for entry in entries if isinstance(entry.value, Tensor)])  # errors come here
        for entry in entries:
            if entry.target is not None:
                entry.content = read(entry.value)
        targets = [entry.target.storage for entry in entries if entry.target is not None]
        _take_over(optimizer, groups, states, targets)


def _take_over(optimizer: Optimizer, groups: Sequence[Group], states: Mapping[Any, Mapping[Any, _Entry]],
               targets: Sequence[Storage]) -> None:
    """Give the optimizer these groups, states and contents of tensors; all is as it was where that raises."""
    before, cells = _as_it_is(optimizer), [storage.cell for storage in targets]
    try:
        _commit(optimizer, groups, states)
        engine.flush(targets)
    except Exception as error:
        if [storage.cell for storage in targets] == cells:  # no tensor has its new content
            for storage in targets:
                if not storage.settled:  # what failed came before the plan, and has not dropped it
                    storage.fail(error)
            session.states_shown()
            at_once(changes((), before))
        raise


def _as_it_is(optimizer: Optimizer) -> list[Change]:
    """The changes that make groups and states what they are now."""
    found: list[Change] = []
    for options in (*optimizer.param_groups, *optimizer._states.values(), optimizer._states):
        found += [(options.clear,), (options.update, dict(options))]
    return found


def _commit(optimizer: Optimizer, groups: Sequence[Group], states: Mapping[Any, Mapping[Any, _Entry]]) -> None:
    """Overwrite what the optimizer has, all at once. A compiled step holds its groups, states and tensors: they are
    the same where they can; it is captured anew for those that are new and for options that are part of a program."""
    session.states_shown()
    there = optimizer._states
    held = [dict(group) for group in optimizer.param_groups], [dict(state) for state in there.values()]
    found: list[Change] = []
    for group, new in zip(optimizer.param_groups, groups, strict=True):
        found += [(group.clear,), (group.update, new)]
    found += [(there.pop, key) for key in there if key not in states]
    copied = []
    for key, entries in states.items():
        state = there.get(key, {})
        if key not in there:
            found.append((there.__setitem__, key, state))
        found += [(state.pop, name) for name in state if name not in entries]
        for name, entry in entries.items():
            if entry.target is not None and entry.content is not None:
                copied.append((entry.target, entry.content))
            else:
                found.append((state.__setitem__, name, entry.value))
    assign_all([target for target, _ in copied], [content for _, content in copied], found)
    del held


# Groups

def _groups(optimizer: Optimizer, saved: Mapping[str, Any]) -> list[Group]:
    """The groups to be: the saved options, with the optimizer's own parameters."""
    if not isinstance(saved, Mapping):
        raise _refused(optimizer, f"expected a dictionary, got {type(saved).__name__}", error=TypeError)
    for name in ("param_groups", "state"):
        if name not in saved:
            raise KeyError(name)
    groups = saved["param_groups"]
    if not isinstance(groups, Sequence) or not all(isinstance(g, Mapping) and "params" in g for g in groups):
        raise _refused(optimizer, "param_groups is no list of dictionaries with 'params'")
    if len(groups) != len(optimizer.param_groups):
        raise ValueError("loaded state dict has a different number of parameter groups")
    if any(len(a["params"]) != len(b["params"]) for a, b in zip(groups, optimizer.param_groups, strict=True)):
        raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's "
                         "group")
    numbers = list(chain.from_iterable(group["params"] for group in groups))
    listed = list(map(id, optimizer._parameters()))
    if not all(isinstance(number, Hashable) for number in numbers) or (
            len(set(numbers)) - len(numbers) != len(set(listed)) - len(listed)):
        raise _refused(optimizer, "param_groups lists a parameter more than once")
    return [_group(optimizer, own, group) for own, group in zip(optimizer.param_groups, groups, strict=True)]


def _group(optimizer: Optimizer, own: Group, saved: Mapping[str, Any]) -> Group:
    options = {name: deepcopy(value) for name, value in saved.items() if name != "params"}
    for name, default in optimizer.defaults.items():
        if name in options:
            if not _alike(options[name], default):
                raise _refused(optimizer, f"option {name!r} is {options[name]!r}; expected one like {default!r}")
        elif default is None or isinstance(default, bool):  # as torch: older files lack the option
            options[name] = default
        else:
            raise _refused(optimizer, f"a parameter group has no option {name!r}")
    optimizer.check_group(options)
    if "param_names" in own:
        options.setdefault("param_names", own["param_names"])
    return {"params": own["params"], **options}


def _alike(value: Any, default: Any) -> bool:
    """Can an option that is `default` by default be this value?"""
    if isinstance(default, (tuple, list)):
        return isinstance(value, (tuple, list)) and len(value) == len(default) and all(map(_alike, value, default))
    if isinstance(default, (bool, type(None))):
        return isinstance(value, (bool, type(None)))
    if isinstance(default, (Real, Tensor)):
        return isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)
    return True


# States

def _states(optimizer: Optimizer, saved: Mapping[str, Any], groups: Sequence[Group]) -> dict[Any, dict[Any, _Entry]]:
    """The new state of each parameter. State that belongs to no parameter is kept as it is, as in torch."""
    if not isinstance(saved["state"], Mapping):
        raise _refused(optimizer, "its 'state' is no dictionary")
    number_of = chain.from_iterable(group["params"] for group in saved["param_groups"])
    left = dict(saved["state"])
    found: dict[Any, dict[Any, _Entry]] = {}
    for parameter, group in ((p, own_group) for own_group in groups for p in own_group["params"]):
        number = next(number_of)
        if parameter in found:  # listed again
            continue
        given = left.pop(number, None) or {}
        if not isinstance(given, Mapping):
            raise _refused(optimizer, f"the state of parameter {number!r} is no dictionary")
        values = _values(optimizer, number, parameter, group, given)
        if values:
            found[parameter] = _entries(values, optimizer._states.get(parameter, {}))
    for key, value in left.items():
        if isinstance(value, Mapping):
            found[key] = {name: _Entry(deepcopy(x)) for name, x in value.items()}
    return found


def _values(optimizer: Optimizer, number: Any, parameter: Tensor, group: Group, given: Mapping[Any, Any]) -> State:
    """The values that a parameter's state will have, each of the type that it is to have.

    A parameter that the state dict says nothing about has made no step, as in torch.
    """
    wanted = optimizer.initial_state(parameter, group)
    if not given:
        return wanted
    given = optimizer.complete(given, wanted)
    values: State = {}
    for name, own in wanted.items():
        if name not in given:
            raise _refused(optimizer, f"the state of parameter {number!r} has no {name!r}", [("parameter", parameter)])
        if isinstance(own, Tensor):
            values[name] = _fitting(optimizer, parameter, number, name, own, given[name])
        elif isinstance(own, float):
            values[name] = _number(optimizer, number, name, given[name])
        else:
            values[name] = _count(optimizer, number, name, given[name])
    for name in given:
        if name not in wanted:
            values[name] = _foreign(given[name], name, parameter)
    return values


def _fitting(optimizer: Optimizer, parameter: Tensor, number: Any, name: str, own: Tensor, value: Any) -> Tensor:
    """A saved tensor as one of `own`'s type. Nothing is broadcast."""
    if not isinstance(value, Tensor):
        raise _refused(optimizer, f"{name!r} of parameter {number!r} is {_kind(value)}, not a tensor of Genesis",
                       [("expected", own)], error=TypeError)
    value = optimizer.own_part(parameter, value)
    if value.shape != own.shape:
        raise _refused(optimizer, f"{name!r} of parameter {number!r} has shape {tuple(value.shape)}, "
                       f"expected {tuple(own.shape)}", [("saved", value), ("expected", own)])
    return value.detach().to(device=own.device, dtype=own.dtype)


def _count(optimizer: Optimizer, number: Any, name: str, value: Any) -> int:
    """A number of steps."""
    found = _number(optimizer, number, name, value, what="count of steps")
    if found < 0 or found != int(found):
        raise _refused(optimizer, f"{name!r} of parameter {number!r} is {value!r}, no count of steps")
    return int(found)


def _number(optimizer: Optimizer, number: Any, name: str, value: Any, what: str = "number") -> float:
    """A number that torch keeps in a tensor."""
    found = value
    if hasattr(value, "item"):
        if getattr(value, "ndim", 0) != 0 and tuple(value.shape) != (1,):
            raise _refused(optimizer, f"{name!r} of parameter {number!r} has shape {tuple(value.shape)}, expected ()")
        found = value.item()
    if not isinstance(found, (int, float)) or not isfinite(found):
        raise _refused(optimizer, f"{name!r} of parameter {number!r} is {value!r}, no {what}")
    return found


def _foreign(value: Any, name: Any, parameter: Tensor) -> Any:
    """Something the optimizer does not know, as torch takes it over: tensors of floats get the parameter's dtype."""
    if isinstance(value, Tensor):
        dtype = parameter.dtype if parameter.is_floating_point() and name != STEP else value.dtype
        return value.detach().to(device=value.device if name == STEP else parameter.device, dtype=dtype)
    if isinstance(value, Mapping):
        return {key: _foreign(x, key, parameter) for key, x in value.items()}
    if type(value) in (list, tuple, set):
        return type(value)(_foreign(x, None, parameter) for x in value)
    return deepcopy(value)


def _entries(values: State, present: Mapping[Any, Any]) -> dict[Any, _Entry]:
    """The present tensor that each value goes into; a copy of its own where there is none for it."""
    found = {}
    for name, value in values.items():
        old = present.get(name)
        fits = isinstance(value, Tensor) and isinstance(old, Tensor) and old.spec is value.spec
        found[name] = _Entry(value.clone() if isinstance(value, Tensor) and not fits else value, old if fits else None)
    return found


def _kind(value: Any) -> str:
    kind = type(value)
    return f"a {kind.__module__}.{kind.__qualname__}" if kind.__module__ != "builtins" else f"{value!r}"


def _refused(optimizer: Optimizer, problem: str, operands: Sequence[tuple[str, Any]] = (),
             error: type[Exception] = ValueError) -> Exception:
    return failure(f"{type(optimizer).__name__}.load_state_dict", problem, operands, error=error,
                   hint="the state_dict() of an optimizer of this kind over the same parameters")
