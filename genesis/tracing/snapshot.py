"""Snapshots of the objects that a function can reach, taken before it runs.

A guard compares with the content from before the call, so that what the call itself changed shows
as a guard that fails right after the capture. A snapshot copies, one level each, everything that
can be reached from the roots; which of it matters is known only afterwards (`genesis.tracing.guards`).
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any, Final

from genesis.frontend import session
from genesis.frontend.recording import TensorBase
from genesis.ir.interrupting import from_inside
from genesis.ir.node import Node
from genesis.tracing.code_reads import Reads, imported, place_of, reads
from genesis.tracing.plain_values import SIMPLE
from genesis.tracing.tracer import (
    PURE_MODULES,
    is_library_module,
    is_own_module,
    is_pure_of_numpy,
    is_refused_when_called,
)

MISSING: Any = type("Missing", (), {"__repr__": lambda self: "missing"})()
_CONTAINERS = (list, tuple, dict, set, frozenset)
_SLOTS = (types.GetSetDescriptorType, types.MemberDescriptorType)
CACHED: Final = type(functools.lru_cache(int))
"""What `functools.lru_cache` makes of a function."""
_STAND_FOR = (functools.partial, CACHED)
"""Classes of what stands for a function and consists of others, beside the attributes that it was given."""
MOST_KEPT: Final = 256
"""Results up to which a cache is compared: each costs a call's guards 0.05 µs."""
_WRAPPERS = (staticmethod, classmethod)
_OWN = frozenset({"_hooks", "_hooked", "_after_hooks", "_retains"})
NATIVE = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
           types.ClassMethodDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
           type(vars(namedtuple("Pair", "first"))["first"]))  # how a named tuple reads a field
_FIXED_MODULES = frozenset({"typing", "types", "re", "abc", "dataclasses", "__future__"})
_FIXED = frozenset({("numpy", "ufunc"), ("builtins", "object")})
_MOST_BYTES: Final = 4096
"""Bytes up to which an array of numpy's is compared: each call's guards copy them, in 0.2 to 0.4 µs."""
_LIMIT = 200_000
"""Objects beyond which a snapshot is given up: comparing so many would take longer than the call."""


class NotReplayable(Exception):
    """A call cannot be replayed; the text says why: mostly that something it read cannot be guarded."""


class Opaque(NotReplayable):
    """A call cannot be replayed because of the kind of an object that it reads: the next one will find such a one."""


class Unsettled(NotReplayable):
    """A call cannot be replayed because something will be different the next time: worth another capture."""


class CompiledBase:
    """A compiled function, of which the function matters here, and the attributes that a program gave it.

    Attributes:
        function: what it calls.
        own_names: names of the attributes that are not the program's.
    """

    function: Any
    own_names: frozenset[str]


class Kept(tuple):
    """What a function under `functools.lru_cache` is made of: the function, how often it computed, its results."""


class Numbers(tuple):
    """What a small array or a scalar of numpy's consists of: dtype, shape and bytes."""


class Snapshot:
    """Copies of objects, by id. It keeps the objects, so that no id is used twice.

    Attributes:
        tensors: the tensors among the objects.
        attributes: a tensor's id → the attributes that the user had set on it.
        complete: False when there were too many objects.
    """

    def __init__(self) -> None:
        self._copies: dict[int, tuple[Any, Any, type]] = {}
        self.tensors: list[Any] = []
        self.attributes: dict[int, dict[str, Any]] = {}
        self.complete = True

    def add(self, *roots: Any) -> None:
        """Copy the objects that the roots are made of, as far as they are not copied yet."""
        copies = self._copies
        stack = list(roots)
        while stack:
            value = stack.pop()
            if isinstance(value, SIMPLE) or id(value) in copies:
                continue
            if len(copies) > _LIMIT:
                self.complete = False
                return
            copy = content(value)
            copies[id(value)] = (value, copy, type(value))
            if isinstance(value, TensorBase):
                self.tensors.append(value)
                own = self.attributes[id(value)] = set_by_the_user(value)
                stack.extend(own.values())
            else:
                stack.extend(parts(value, copy))

    def of(self, value: Any) -> Any:
        """The copy of an object (see `content`); the object's content of now for one that the call itself made."""
        found = self._copies.get(id(value))
        if found is None:
            self.add(value)
            found = self._copies.get(id(value), (value, MISSING, type(value)))
        return found[1]

    def values(self) -> list[Any]:
        """The objects that were copied."""
        return [value for value, _, _ in self._copies.values()]

    def kind(self, value: Any) -> type:
        """The class of the object when it was copied."""
        return self._copies[id(value)][2] if id(value) in self._copies else type(value)

    def __contains__(self, value: Any) -> bool:
        return id(value) in self._copies


class Entered:
    """The snapshot of a call that is about to run, taken when each code object is entered.

    Attributes:
        world: the snapshot.
        found: the globals that were looked up: (namespace, name, value).
        uncomputed: tensors that existed and were not in memory yet.
        contents: the nodes that stood for the content of tensors before the call.
        computed: the storages of these tensors, which were in memory.
    """

    def __init__(self, *roots: Any):
        self.world = Snapshot()
        self.world.add(*roots)
        self.found: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        self.uncomputed: list[Any] = []
        self.contents: set[Node] = set()
        self.computed: set[Any] = set()
        self._looked_at = 0

    def enter(self, code: types.CodeType, namespace: dict[str, Any]) -> str | None:
        """Note the globals that the code names. Returns why the call cannot be guarded, if that shows in them."""
        self._globals(reads(code), namespace)
        running = session.active()
        written = () if running is None else running.writes
        new, self._looked_at = self.world.tensors[self._looked_at:], len(self.world.tensors)
        new = [x for x in new if x.storage not in written]
        self.uncomputed += [x for x in with_gradients(new) if not x.storage.settled]
        self.note_contents(new)
        for chain in reads(code).chains:
            value, names = self._end(chain, namespace)
            if chain in reads(code).only_called and is_refused_when_called(value, names):
                continue
            for part in (value.__self__, value.__func__) if isinstance(value, types.MethodType) else (value,):
                if not isinstance(part, (type, types.ModuleType, *NATIVE, *SIMPLE)) and part is not MISSING and (
                        content(part) is MISSING) and (refusal := why_unknown(part)) is not None:
                    return f"{'.'.join(chain)} {refusal}{place_of(chain[-1], (code,))}"
        return None

    def _end(self, chain: Sequence[str], namespace: Mapping[str, Any]) -> tuple[Any, Sequence[str]]:
        """The first value in a chain of attributes that is no module, and the names behind it."""
        value: Any = MISSING
        for at, name in enumerate(chain, 1):
            value = self.found.get((id(namespace), name), (namespace, name, MISSING))[2]
            if not isinstance(value, types.ModuleType):
                return value, chain[at:]
            namespace = vars(value)
        return value, ()

    def look_up(self, codes: Mapping[types.CodeType, dict[str, Any]]) -> None:
        """Look up the globals of code that ran in an earlier call, so that tensors there can be computed first."""
        for code, namespace in codes.items():
            self._globals(reads(code), namespace)

    def note_contents(self, tensors: Iterable[Any]) -> None:
        """Remember the nodes that stand for the content of these tensors, which are in memory."""
        tensors = list(tensors)
        self.contents.update(x.storage._node for x in tensors if x.storage._node is not None)
        self.computed.update(x.storage for x in tensors)

    def _globals(self, what: Reads, namespace: dict[str, Any]) -> None:
        for chain in what.chains:
            space: Mapping[str, Any] = namespace
            for name in chain:
                value = self._look(space, name)
                if not isinstance(value, types.ModuleType):
                    break
                space = vars(value)
            else:
                self._escaped(value, what)
        for name in imported(what, namespace):
            self._escaped(self._look(sys.modules, name), what)

    def _look(self, space: Mapping[str, Any], name: str) -> Any:
        key = (id(space), name)
        if key not in self.found:
            value = space.get(name, MISSING)
            if value is MISSING and "__getattr__" in space:
                value = _there_when_asked_for(space, name)
            self.found[key] = (space, name, value)
            self.world.add(value)
        return self.found[key][2]

    def _escaped(self, module: Any, what: Reads) -> None:
        if isinstance(module, types.ModuleType) and not is_library_module(module.__name__) and (
                not module.__name__.startswith("genesis.")):
            for name in what.names:
                self._look(vars(module), name)


def _there_when_asked_for(space: Mapping[str, Any], name: str) -> Any:
    """What a module of Genesis' own binds or imports when the code asks for it, which is about to: else the guard would
    say that the name was not there. MISSING if it does not stay in the module, or is nothing."""
    module = sys.modules.get(str(space.get("__name__")))
    if module is not None and vars(module) is space and (module.__name__ == "genesis"
                                                         or is_own_module(module.__name__)):
        with suppress(AttributeError, ImportError):
            getattr(module, name)
    return space.get(name, MISSING)


_NAMESPACES: Final = frozenset({("types", "SimpleNamespace"), ("argparse", "Namespace")})
"""Classes of the standard library whose objects are their attributes, and no more."""


def content(value: Any) -> Any:
    """One level of an object: a tuple of what it consists of, or a dictionary of its attributes; MISSING for an
    object whose content nobody knows. What says that it is `compared_by_identity` consists of nothing: no program
    depends on what may change in it."""
    if isinstance(value, TensorBase):
        return tensor_identity(value)
    if isinstance(value, dict):
        return dict(value)
    if isinstance(value, _CONTAINERS) or type(value) is deque:
        return tuple(value)
    if isinstance(value, types.FunctionType):
        return (cells(value), value.__defaults__, value.__kwdefaults__, dict(vars(value)))
    if isinstance(value, types.MethodType):
        return (value.__self__, value.__func__)
    if isinstance(value, CompiledBase):
        return (value.function, {name: x for name, x in vars(value).items() if name not in value.own_names})
    if isinstance(value, functools.cached_property):
        return (value.func,)
    if isinstance(value, functools.partial):
        return (value.func, value.args, value.keywords)
    if isinstance(value, CACHED):
        pairs = tuple(kept(value)) if value.cache_info().currsize <= MOST_KEPT else MISSING
        return pairs if pairs is MISSING else Kept((value.__wrapped__, value.cache_info().misses, pairs))
    if isinstance(value, property):
        return (value.fget, value.fset, value.fdel)
    if isinstance(value, _WRAPPERS):
        return (value.__func__,)
    if isinstance(value, type):
        return MISSING if is_library_module(value.__module__) else dict(vars(value))
    if isinstance(value, types.ModuleType):
        return MISSING
    kind = type(value)
    if kind.__module__ == "numpy" and isinstance(getattr(value, "dtype", None), sys.modules["numpy"].dtype):
        return MISSING if (numbers := numbers_of(value)) is None else numbers
    if getattr(kind, "compared_by_identity", False) or is_pure_of_numpy(value):
        return ()
    if is_library_module(kind.__module__) and (kind.__module__, kind.__name__) not in _NAMESPACES:
        return MISSING
    return MISSING if any(map(_keeps_more, kind.__mro__)) else dict(attributes(value))


_STATELESS: Final = frozenset({"abc", "typing", "enum", "collections.abc", "numbers"})
"""Modules of the standard library whose classes keep nothing that changes in the objects of those that derive."""


def library_bases(kind: type) -> list[type]:
    """The library's classes that a class of the user's derives from and whose methods a captured function may call
    (`PURE_MODULES`): these read what no name in the user's code shows."""
    return [] if is_library_module(kind.__module__) else [each for each in kind.__mro__ if each not in _PLAIN_BASES
            and each.__module__ in PURE_MODULES and each.__module__ not in _STATELESS
            and (each.__module__, each.__name__) not in _NAMESPACES]


_PLAIN_BASES: Final = frozenset({object, int, float, complex, str, bytes, bool, list, tuple, dict, set, frozenset,
                                 OrderedDict, defaultdict, Counter})
"""Classes whose objects are compared by what they hold; none of their methods reads an attribute."""


def _keeps_more(kind: type) -> bool:
    """Whether the class is written in C, and so keeps what no attribute shows: a deque's items, an array's numbers."""
    module = str(kind.__module__)
    if kind in _PLAIN_BASES or module in _STATELESS or (module, kind.__name__) in _NAMESPACES or (
            module.startswith("genesis.")):
        return False
    return isinstance(vars(kind).get("__new__"), types.BuiltinFunctionType) or isinstance(
        vars(kind).get("__init__"), types.WrapperDescriptorType)


def numbers_of(value: Any) -> Numbers | None:
    """The content of a small array of plain numbers, or of a scalar of numpy's; None for anything else."""
    if type(value).__name__ not in ("ndarray", value.dtype.type.__name__):  # a class of arrays may hold more
        return None
    if value.dtype.kind not in "biufUS" or value.nbytes > _MOST_BYTES:
        return None
    return Numbers((value.dtype.str, value.shape, value.tobytes()))


def kept(cached: Any) -> list[tuple[Any, Any]]:
    """(key, result) of what a function under `functools.lru_cache` keeps, as the collector sees it.

    A cache with a limit shows its keys, each before its result, and one without a dictionary of both.
    """
    held = gc.get_referents(cached)
    tables = [x for x in held if type(x) is dict and x is not cached.__dict__]
    if cached.cache_parameters()["maxsize"] is None:
        return [pair for table in tables for pair in table.items()]
    keys = {id(key) for table in tables for key in table}
    return [(key, value) for key, value in pairwise(held) if id(key) in keys]


def why_unknown(value: Any) -> str | None:
    """What keeps an object that is no container from being guarded, None for nothing."""
    kind = type(value)
    if isinstance(value, (types.GeneratorType, map, filter, zip, enumerate)) or hasattr(kind, "__next__"):
        return "is an iterator, which a call uses up"
    if kind.__module__ in _FIXED_MODULES or (kind.__module__, kind.__name__) in _FIXED:
        return None
    return f"is a {kind.__module__}.{kind.__name__}, whose content cannot be compared"


def attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """(name, value) of an instance's attributes: those in its dictionary and in its slots."""
    yield from (own_dictionary(value) or {}).items()
    for kind in type(value).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__"):
                yield name, stored(value, name)


def stored(value: Any, name: str) -> Any:
    """An object's attribute as it is kept, MISSING for none: its class' `__getattr__` and `__getattribute__` are not
    asked, which may raise anything.

    >>> class Options:
    ...     __slots__ = ("given",)
    ...     def __getattr__(self, name):
    ...         return {}[name]
    >>> stored(Options(), "given") is MISSING
    True
    """
    try:
        return object.__getattribute__(value, name)
    except from_inside(AttributeError):
        return MISSING


def own_dictionary(value: Any) -> Any:
    """An object's dictionary of attributes, None for one without, and nothing of its class is asked."""
    inside = stored(value, "__dict__")
    return None if inside is MISSING else inside


def parts(value: Any, copy: Any) -> Sequence[Any]:
    """The objects to copy next: those in a copy, and the classes that give an object its methods."""
    if copy is MISSING or isinstance(copy, Numbers):
        return ()
    if isinstance(value, type):
        inner = [x for x in copy.values() if not isinstance(x, _SLOTS)]
        return [*inner, *value.__mro__[1:], *_class_of(value)]
    if isinstance(value, types.FunctionType):
        return [x for x in (*copy[0], *(copy[1] or ()), copy[2], *copy[3].values()) if x is not MISSING]
    if isinstance(value, dict):
        return [*copy, *copy.values(), *_class_of(value), *own_attributes(value)]
    if isinstance(copy, dict):
        return [*copy.values(), *_class_of(value)]
    return [*copy, *_class_of(value), *own_attributes(value)]


def own_attributes(value: Any) -> tuple[dict[str, Any], ...]:
    """The dictionary of the attributes of a list, a dictionary, a number, ... whose class has such, or of what stands
    for a function; () for a plain one."""
    inside = own_dictionary(value)
    return (inside,) if type(inside) is dict and isinstance(value, (*_CONTAINERS, dict, *SIMPLE, *_STAND_FOR)) else ()


def _class_of(value: Any) -> tuple[type, ...]:
    kind = type(value)
    return () if is_library_module(kind.__module__) else (kind,)


def cells(function: types.FunctionType) -> tuple[Any, ...]:
    """The contents of a function's closure; MISSING for a variable that has no value."""
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:
            found.append(MISSING)
    return tuple(found)


def with_gradients(tensors: Iterable[Any]) -> Iterator[Any]:
    """The tensors, each followed by its gradient if it has one."""
    for x in tensors:
        yield x
        if x._grad is not None:
            yield x._grad


def set_by_the_user(x: Any) -> dict[str, Any]:
    """The attributes of a tensor that the user set."""
    return {name: value for name, value in vars(x).items() if name not in _OWN}


def tensor_identity(x: Any) -> tuple[Any, ...]:
    """A tensor's identity to the program that reads it: its memory, the part it shows, how gradients flow."""
    return (x.storage, x.spec, x.part, x.leaf, x.detached, x.detached is not None and x.detached.history is not None)
