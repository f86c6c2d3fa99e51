"""Guards: what a captured call depended on besides its arguments, and whether that still holds.

From the code objects that ran follow the globals, closures and attributes that they can have read
(`genesis.tracing.code_reads`); whatever those lead to is guarded as it was before the call
(`genesis.tracing.snapshot`), or refused if it cannot be compared. Guards are checked right after the capture as well:
one that fails then was changed by the call itself, which no replay would do.

Checking is comparing by identity, in few calls: see `Checks`.
"""

from __future__ import annotations

import abc
import builtins
import enum
import functools
import sys
import types
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from genesis.frontend.generator import Generator
from genesis.frontend.recording import TensorBase
from genesis.ir.source import Source
from genesis.ir.types import Device, DType
from genesis.nn.modules.hooks import everywhere as module_hooks
from genesis.nn.modules.tree import Tree
from genesis.optim.hooks import everywhere as step_hooks
from genesis.optim.lr_scheduler import LRScheduler
from genesis.optim.optimizer import Optimizer
from genesis.tracing.checks import Checks
from genesis.tracing.code_reads import Reads, imported, inner, matched_names, place_of, reads
from genesis.tracing.differences import APPENDED
from genesis.tracing.plain_values import SIMPLE
from genesis.tracing.snapshot import (
    MISSING,
    NATIVE,
    CompiledBase,
    Entered,
    Kept,
    NotReplayable,
    Numbers,
    Opaque,
    attributes,
    library_bases,
    own_attributes,
    own_dictionary,
    why_unknown,
)
from genesis.tracing.tracer import (
    PURE_MODULES,
    Tracer,
    is_library_module,
    is_own_module,
    is_pure,
    is_refused_when_called,
    is_user_code,
)

_CALLED = ("forward", "__call__", "step", "zero_grad")
"""Names of methods of Genesis' classes that programs replace."""
_COPYING = frozenset({"copy", "deepcopy", "asdict", "astuple", "replace", "repr", "str", "format", "vars", "dir"})
"""Names of functions that look at all attributes of an object."""
_PLAIN = frozenset({bool, int, float, str, bytes, complex, type(None), list, dict, set, tuple, frozenset, range, slice})
"""Classes whose objects have no attributes of their own."""
_REGISTRIES = ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks", "_backward_hooks",
               "_backward_pre_hooks")
_NAMING = frozenset({"__name__", "__qualname__", "__doc__", "__module__"})
_OF_FUNCTIONS = _NAMING | {"__code__", "__defaults__", "__kwdefaults__", "__closure__", "__annotations__"}
"""Attributes that each function has, which say how it is called, and what it is made of."""
_OF_OPTIMIZERS = frozenset({"param_groups", "state", "_ahead", "_writes", "_noted"})
"""Attributes of optimizers that are guarded as what they are, or that only Genesis reads."""
_RATES = frozenset({"get_lr", "get_last_lr", "state_dict", "load_state_dict", "rate", "param_groups"})
"""Names by which a program looks at a schedule, or at the rates that it writes into the optimizer's groups."""
_DATA = ("__doc__", "__module__", "__dict__", "__weakref__", "__annotations__", "__qualname__", "__slots__", "__hash__",
         "_abc_impl")


class Guards:
    """Conditions under which a captured call would do the same again.

    Raises NotReplayable if that cannot be said.

    Attributes:
        tensors: tensors that the call can have read other than as arguments.
        ran: the user's code objects that ran, with their global names.
        holders: an attribute dictionary's id → the object whose attributes they are.
        ways: an object's id → the descriptions of the places where it was found, of lists and dictionaries.
        keys: an object's id → its keys in dictionaries, of lists; None in it where it is an element of something else.
        states: ids of parameters' states that the call looks into: a number that it changes there counts its calls.
        follows_names: attributes are looked up by the names in the code alone.

    Args:
        slots: places (owner's id, key) that the call writes to and that are checked elsewhere (`slots.py`).
        given: those among them whose value is given to each call like an argument, and so not guarded.
        looked_into: ids of optimizers whose states the call has asked for.
        counting: ids of those whose states a replay counts in its own way.
    """

    def __init__(self, roots: Iterable[Any], entered: Entered, tracer: Tracer,
                 slots: frozenset[tuple[int, Any]] = frozenset(), given: frozenset[tuple[int, Any]] = frozenset(),
                 looked_into: Collection[int] = (), counting: Collection[int] = ()):
        self.checks = Checks(slots)
        self.tensors: list[Any] = []
        self.ways: dict[int, set[str]] = {}
        self.keys: dict[int, set[str | None]] = {}
        self.holders: dict[int, Any] = {}
        self.states: set[int] = set()
        self._given = given
        self._world = entered.world
        self._looked_into, self._counting = looked_into, counting
        self.ran = tracer.globals
        self._functions: set[types.CodeType] = set()
        self._seen: set[int] = set()
        self._stack: list[tuple[Any, str]] = [(root, "the function") for root in roots]
        each = [reads(code) for code in tracer.globals]
        matched = [matched_names(reads(code), space) for code, space in tracer.globals.items()]
        by_position = frozenset().union(*filter(None, matched))
        self._names = frozenset().union(by_position, *(x.names for x in each))
        self._uncertain = frozenset().union(*(x.uncertain for x in each))
        self._computed = any(x.computed for x in each) or None in matched
        otherwise = by_position.union(*(x.otherwise for x in each))
        self._owners: dict[str, set[str]] = {}
        for name, method in frozenset().union(*(x.owners for x in each)):
            if name not in otherwise and not self._computed:
                self._owners.setdefault(name, set()).add(method)
        self.follows_names = not (self._computed or tracer.looked) and _COPYING.isdisjoint(self._names)
        self._globals(entered)
        for code, namespace in tracer.globals.items():
            self._lookups(code, namespace, reads(code))
        while self._stack:
            value, what = self._stack.pop()
            try:
                self._visit(value, what)
            except NotReplayable as refusal:
                raise type(refusal)(f"{refusal}{place_of(_last_word(what), self.ran)}") from None
        self._all_found()
        if not entered.world.complete:
            raise NotReplayable("it can reach too many objects to compare them")
        self.checks.finish()

    def hold(self) -> bool:
        """True if nothing that was guarded changed."""
        return self.checks.hold()

    def knows(self, value: Any) -> bool:
        """True for an object that existed before the call and was looked into."""
        return id(value) in self._seen

    # Globals

    def _globals(self, entered: Entered) -> None:
        spaces: dict[int, tuple[Mapping[str, Any], dict[str, Any], set[str]]] = {}
        for space, name, value in entered.found.values():
            _, present, absent = spaces.setdefault(id(space), (space, {}, set()))
            if value is MISSING:
                absent.add(name)
                if name in vars(builtins):
                    self.checks.entries(vars(builtins), {name: getattr(builtins, name)})
            else:
                present[name] = value
        for space, present, absent in spaces.values():
            self.checks.entries(space, present)
            self.checks.absent(space, absent)

    def _lookups(self, code: types.CodeType, namespace: dict[str, Any], what: Reads) -> None:
        for chain in what.chains:
            space, value = namespace, MISSING
            for at, name in enumerate(chain):
                value = space.get(name, MISSING)
                if not isinstance(value, types.ModuleType):
                    if value is sys.modules and chain in what.only_asked:
                        self.checks.length(value, len(self._world.of(value)))  # one more is there, or one less
                    elif (id(space), name) not in self._given and not (
                            chain in what.only_called and is_refused_when_called(value, chain[at + 1:])):
                        self._stack.append((value, ".".join(chain[:at + 1])))
                    break
                space = vars(value)
            else:
                self._used_module(value, ".".join(chain))
        for name in imported(what, namespace):
            if name in sys.modules:
                self._used_module(sys.modules[name], name)

    def _used_module(self, module: Any, what: str) -> None:
        name = getattr(module, "__name__", "?")
        if name in PURE_MODULES or name == "genesis" or name.startswith("genesis."):
            return
        if is_library_module(name) or not isinstance(module, types.ModuleType):
            raise NotReplayable(f"the module {what} is used as a value")
        for attribute in self._names:
            inside = vars(module).get(attribute, MISSING)
            if inside is not MISSING and not isinstance(inside, types.ModuleType):
                self._stack.append((inside, f"{what}.{attribute}"))

    # Objects

    def _visit(self, value: Any, what: str) -> None:
        if value is MISSING:
            return
        if isinstance(value, SIMPLE):
            self._attributes_beside(value, what)
            if isinstance(value, enum.Enum) and not isinstance(value._value_, SIMPLE):
                self._stack.append((value._value_, f"the value of {what}"))
            return
        if isinstance(value, (list, dict, deque)):
            self.ways.setdefault(id(value), set()).add(what)
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        if isinstance(value, TensorBase):
            self.tensors.append(value)
            self.checks.tensor(value, self._world.of(value), _last_word(what))
            self._set_on(value)
        elif isinstance(value, type):
            self._class(value, what)
        elif isinstance(value, types.FunctionType):
            self._function(value, what)
        elif isinstance(value, types.ModuleType):
            self._used_module(value, what)
        elif isinstance(value, Tree):
            self._tree(value, what)
        elif isinstance(value, Optimizer):
            self._optimizer(value, what)
        elif isinstance(value, LRScheduler):
            self._scheduler(value, what)
        elif isinstance(value, CompiledBase):
            function, own = self._world.of(value)
            self._stack.append((function, what))
            self._attributes(value, own, what, skip=value.own_names)
        elif isinstance(value, NATIVE):
            if isinstance(value, types.BuiltinFunctionType) and not is_pure(value):
                self._impure(value, what)
        elif not isinstance(value, Generator):
            self._instance(value, what)

    def _impure(self, value: Any, what: str) -> None:
        """Refuse a C function that only C code may call: one that user code calls shows in the trace."""
        if getattr(value, "__name__", "") not in vars(builtins):
            raise NotReplayable(f"{what} may give another value each time")

    def _instance(self, value: Any, what: str) -> None:
        copy = self._world.of(value)
        if isinstance(value, (list, dict, set, tuple, frozenset)) or type(value) is deque:
            self.checks.container(value, copy, _last_word(what))
            keys, pairs = (copy, copy.items()) if isinstance(copy, dict) else ((), list(enumerate(copy)))
            for key, x in pairs:
                if isinstance(x, (list, deque)):
                    self.keys.setdefault(id(x), set()).add(key if type(key) is str else None)
            items = [x for at, x in pairs if (id(value), at) not in self._given]
            if (id(value), APPENDED) not in self._given:
                self._stack.extend((x, f"an element of {what}") for x in (*keys, *items))
            self._attributes_beside(value, what)
        elif copy is MISSING:
            refusal = why_unknown(value)
            if refusal is not None:
                raise Opaque(f"{what} {refusal}")
        elif isinstance(copy, Numbers):
            self.checks.numbers(value, copy)
        elif isinstance(copy, tuple):  # a method, partial or property consists of these
            if isinstance(copy, Kept):
                self.checks.kept(value, *copy[1:])
                copy = (copy[0], *(result for _, result in copy[2]))
            self._stack.extend((x, what) for x in copy)
            if isinstance(value, functools.partial):
                self.checks.attributes(value, {"func": copy[0], "args": copy[1], "keywords": copy[2]})
            if own_attributes(value):
                self._attributes_beside(value, what)
        else:
            self._attributes(value, copy, what)
        if not is_library_module(type(value).__module__):
            self.checks.kind(value, self._world.kind(value))
            self._stack.append((type(value), what))

    def _attributes_beside(self, value: Any, what: str) -> None:
        """Guard the attributes of a number or a container of a class that derives from a plain one's, and those of what
        stands for a function."""
        inside = own_attributes(value)
        known = any(id(each) in self._seen for each in inside)
        if known or type(value) in _PLAIN or isinstance(value, (DType, Device)):
            return
        self._seen.update(map(id, inside))
        if any(not inside or name not in inside[0] for name, _ in attributes(value)):
            raise NotReplayable(f"{what} is a {type(value).__name__}, which has attributes in slots")
        for each in inside:
            self._attributes(value, self._world.of(each), what)

    def _set_on(self, tensor: Any) -> None:
        """Guard attributes that the user has set on a tensor, as far as names in the code can read them."""
        own = self._world.attributes[id(tensor)]
        named = {k: v for k, v in own.items() if self._computed or k in self._names}
        self.checks.entries(vars(tensor), named)
        self._stack.extend((x, f"the attribute {name}") for name, x in named.items())
        if not {"getattr", "hasattr"}.isdisjoint(self._names):
            kind = type(tensor)
            self.checks.absent(vars(tensor), {k for k in self._uncertain - own.keys() if not hasattr(kind, k)})

    def _attributes(self, value: Any, copy: dict[str, Any], what: str, skip: Iterable[str] = ()) -> None:
        kind = type(value)
        everything = self._computed or bool(library_bases(kind)) or (
            is_own_module(kind.__module__) and not isinstance(value, Tree))
        named = {k: v for k, v in copy.items() if (everything or k in self._names) and k not in skip}
        inside = own_dictionary(value)
        self.holders[id(inside)] = value
        slots = {k: v for k, v in named.items() if inside is None or (k not in inside and hasattr(type(value), k))}
        for name in slots:
            del named[name]
        self.checks.attributes(value, slots)
        if inside is not None:
            self.checks.dictionary(value, inside, slowly=isinstance(value, Tree))
            self.checks.entries(inside, named)
            self.checks.absent(inside, (self._names | {"forward"}) - copy.keys() - set(skip), isinstance(value, Tree))
        for owner, found in ((inside, named), (value, slots)):
            self._follow(owner, found)

    def _follow(self, owner: Any, found: Mapping[Any, Any]) -> None:
        """Go on with the values of these attributes, but for those that are given, and those of which the code does
        nothing but call what the tracer refuses: `self.log.info(…)` in a branch that the call has not taken."""
        self._stack.extend((x, f"the attribute {name}") for name, x in found.items()
                           if (id(owner), name) not in self._given and not (name in self._owners and all(
                               is_refused_when_called(x, (method,)) for method in self._owners[name])))

    def _function(self, function: types.FunctionType, what: str) -> None:
        code = function.__code__
        contents, defaults, keywords, own = self._world.of(function)
        looked_at = self._names & _OF_FUNCTIONS
        if looked_at and is_user_code(code):
            self.checks.attributes(function, {name: getattr(function, name) for name in looked_at})
        if is_user_code(code) and code not in self.ran and looked_at <= _NAMING:
            self._attributes(function, own, what)  # it may be looked at all the same
            return
        self._functions.add(code)
        for cell, value, name in zip(function.__closure__ or (), contents, code.co_freevars, strict=True):
            self.checks.cell(cell, value, name)
            if (id(cell), None) not in self._given:
                self._stack.append((value, f"the closure variable {name}"))
        if is_user_code(code):
            self.checks.attributes(function, {"__code__": code, "__defaults__": defaults, "__kwdefaults__": keywords})
            self._attributes(function, own, what)
        self._stack.extend((x, "a default argument") for x in (*(defaults or ()), keywords))

    def _class(self, kind: type, what: str) -> None:
        module = kind.__module__
        if isinstance(kind, abc.ABCMeta):  # it may say of any class that it derives from it
            self.checks.registrations()
        if is_library_module(module):
            if module == "numpy" or module in PURE_MODULES or module == "builtins" or issubclass(kind, BaseException):
                return
            raise NotReplayable(f"{what} is the class {module}.{kind.__name__}, whose content cannot be compared")
        if is_own_module(module) and not issubclass(kind, (Tree, Optimizer, LRScheduler)):
            return
        looked_at = self._names & _NAMING
        self.checks.attributes(kind, {"__mro__": kind.__mro__, **{name: getattr(kind, name) for name in looked_at}})
        below: set[str] = set()
        for each in reversed(kind.__mro__):
            if is_library_module(each.__module__):
                continue
            copy = self._world.of(each)
            ours = is_own_module(each.__module__)
            named = {k: v for k, v in copy.items() if k in _CALLED or (not ours and k not in _DATA and (
                k in self._names or self._computed or isinstance(v, types.FunctionType)))}
            self.checks.class_entries(each, named)
            self.checks.absent(vars(each), (below | self._uncertain) - copy.keys() - set(_DATA))
            if not ours:
                self.checks.length(vars(each), len(copy))
            below |= named.keys()
            self._stack.extend((x, f"the class attribute {name}") for name, x in named.items()
                               if (not ours or isinstance(x, types.FunctionType)) and self._may_matter(name, x))
        if type(kind) is not type:
            self._stack.append((type(kind), what))

    def _may_matter(self, name: str, value: Any) -> bool:
        """Whether the code may look at what a class has under this name: at all but a function that did not run."""
        return (self._computed or name in self._names or not isinstance(value, types.FunctionType)
                or not is_user_code(value.__code__) or value.__code__ in self.ran)

    # Objects of the framework

    def _tree(self, module: Any, what: str) -> None:
        copy = self._world.of(module)
        self.holders[id(vars(module))] = module
        self.checks.kind(module, self._world.kind(module), slowly=True)
        self._stack.append((type(module), what))
        if type(module).__module__.startswith("genesis.nn."):
            self.checks.dictionary(module, vars(module), slowly=True)
            self.checks.slowly(vars(module), {k: v for k, v in copy.items() if k != "_transient"})
            self.checks.absent(vars(module), {"forward"} - copy.keys(), slowly=True)
        else:
            self._attributes(module, copy, what, skip=(*_REGISTRIES, "_transient", "training", "_compiled_call"))
            self.checks.slowly(vars(module), {k: copy[k] for k in (*_REGISTRIES, "training") if k in copy})
        if "forward" in copy:  # Genesis calls it, so that no name in the code leads there
            self.checks.slowly(vars(module), {"forward": copy["forward"]})
            self._follow(vars(module), {"forward": copy["forward"]})
        self._hooks_of_all()
        for name in _REGISTRIES:
            registry = copy.get(name)
            if registry is not None:
                held = self._world.of(registry)
                self.checks.slowly_all(registry, held, name)
                self._follow(registry, held)

    def _hooks_of_all(self) -> None:
        """Guard the hooks of all modules, once."""
        if id(module_hooks) not in self._seen:
            self._seen.add(id(module_hooks))
            held = self._world.of(module_hooks)
            self.checks.slowly_all(module_hooks, held, "hooks of all modules")
            self._stack.extend((hook, "a hook of all modules") for _, hook in held.values())

    def _scheduler(self, scheduler: Any, what: str) -> None:
        """Guard a schedule, which every replay steps itself, as far as the code looks at it otherwise."""
        copy = self._world.of(scheduler)
        if self._computed or not _RATES.isdisjoint(self._names):
            self._instance(scheduler, what)
            self._stack.append((scheduler.optimizer.param_groups, what))
            return
        self._stack.append((type(scheduler), what))
        self.checks.absent(vars(scheduler), {"step"} - copy.keys())
        named = {k: v for k, v in copy.items() if k in self._names or k == "optimizer"}
        self.checks.entries(vars(scheduler), named)
        self._follow(vars(scheduler), named)

    def _optimizer(self, optimizer: Any, what: str) -> None:
        """Guard an optimizer: options that are numbers of the plan may change; parameters and flags may not. A state
        that the user's code looks into is a dictionary like others, but not what a replay counts in its own way."""
        own = self._world.of(optimizer)
        self._stack.append((type(optimizer), what))
        if "param_groups" in self._names:
            self._stack.append((own.get("param_groups"), what))
        looks = id(optimizer) in self._looked_into or (self._computed and "state" in self._names)
        if looks and id(optimizer) in self._counting:
            raise NotReplayable(f"it looks into the state of {what}")
        if looks and own.get("state") is not None:
            self._stack.append((own["state"], f"{what}.state"))
            self.states.update(map(id, self._world.of(own["state"]).values()))
        named = {k: v for k, v in own.items() if k not in _OF_OPTIMIZERS and (self._computed or k in self._names)}
        self.holders[id(vars(optimizer))] = optimizer
        self.checks.entries(vars(optimizer), named)
        self.checks.absent(vars(optimizer), {*_CALLED, "_hooks", *self._names} - own.keys() - _OF_OPTIMIZERS)
        self._follow(vars(optimizer), named)
        self._stack.extend((hooks, f"hooks of {what}")
                           for hooks in (*own.get("_hooks", {}).values(), *step_hooks.values()))
        self.checks.optimizer(optimizer, own, self._world, states=not looks)

    def _all_found(self) -> None:
        """Refuse unless every function of the user's that ran was found on the way, or made by one that ran."""
        made = inner(self.ran)
        for code in self.ran:
            if code not in self._functions and code not in made:
                raise NotReplayable(
                    f"{code.co_qualname} is reached in a way that cannot be followed at {Source(code, 0)}")


def _last_word(what: str) -> str:
    """The name in the description of a place."""
    return what.replace(".", " ").split()[-1]

