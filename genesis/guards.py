"""What a captured call depended on besides its arguments, and whether that still holds.

A tracer notes which of the user's code objects ran, on which modules and objects. From their
names follow the globals, closure variables and attributes they can have read; each becomes a
guard if its value can be compared, and a refusal if not. Guards are checked right after the
capture as well: one that fails then was changed by the call itself, which no replay would do.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from genesis.ir.source import Source
from genesis.ir.types import Device, DType
from genesis.recording import TensorBase

_PACKAGE = str(Path(__file__).resolve().parent)
_LIBRARY = (str(Path(types.__file__).resolve().parent),)
_SIMPLE = (bool, int, float, str, bytes, type(None), complex, type(Ellipsis), range)
_FIXED = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType, types.MethodDescriptorType, DType, Device,
          types.WrapperDescriptorType)
_MISSING = object()

PURE_BUILTINS = frozenset({
    "len", "isinstance", "issubclass", "getattr", "hasattr", "max", "min", "sum", "abs", "sorted", "all", "any", "divmod",
    "pow", "round", "repr", "chr", "ord", "hash", "id", "iter", "next", "callable", "format", "bin", "hex", "vars",
    "__build_class__", "prod", "cast",
})
_PURE_OWNERS = (str, bytes, tuple, int, float, frozenset, range, dict, list, set, types.ModuleType, types.MappingProxyType)
_PURE_MODULES = frozenset({"math", "operator", "itertools", "_operator", "builtins", "functools", "_functools"})
_IMPURE_BUILTINS = frozenset({"print", "input", "open", "exec", "eval", "compile", "setattr", "delattr", "__import__",
                              "globals", "locals", "breakpoint"})


class Tracer:
    """Follows one call: which of the user's functions ran, and whether one called something impure."""

    def __init__(self, ignored: Callable[..., Any]):
        self.codes: dict[types.CodeType, types.FrameType] = {}
        self.objects: dict[int, Any] = {}
        self.globals: dict[types.CodeType, dict[str, Any]] = {}
        self.refusal: str | None = None
        self._ignored = ignored

    def __enter__(self) -> Tracer:
        self._before = sys.getprofile()
        sys.setprofile(self._event)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(self._before)

    def _event(self, frame: types.FrameType, event: str, arg: Any) -> None:
        if event == "call":
            code = frame.f_code
            if not _is_user_code(code):
                return
            local = frame.f_locals
            for name in code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]:
                self._see(local.get(name))
            if code not in self.globals:
                self.globals[code] = frame.f_globals
            for name in code.co_freevars:
                self._see(local.get(name))
        elif event == "c_call" and _is_user_code(frame.f_code) and not _is_pure(arg):
            self._refuse(f"it calls {getattr(arg, '__qualname__', arg)}", frame)

    def _see(self, value: Any) -> None:
        if value is not None and not isinstance(value, (*_SIMPLE, *_FIXED, TensorBase)):
            self.objects.setdefault(id(value), value)

    def _refuse(self, reason: str, frame: types.FrameType) -> None:
        if self.refusal is None:
            self.refusal = f"{reason} at {Source(frame.f_code, frame.f_lasti)}"


def _is_user_code(code: types.CodeType) -> bool:
    name = code.co_filename
    if name.startswith(_PACKAGE):
        return name.startswith(f"{_PACKAGE}/models/")
    if code.co_qualname.startswith("__create_fn__"):  # what the dataclass decorator generates
        return False
    return not name.startswith("<frozen") and not name.startswith(_LIBRARY)


def _is_pure(function: Any) -> bool:
    """A C function that only looks at its arguments, or changes a container (which guards on that container see)."""
    name = getattr(function, "__name__", "")
    owner = getattr(function, "__self__", None)
    if owner is None or isinstance(owner, types.ModuleType):
        module = getattr(function, "__module__", None) or getattr(owner, "__name__", "")
        if name in _IMPURE_BUILTINS:
            return False
        return name in PURE_BUILTINS or module in _PURE_MODULES or (module or "").startswith("genesis")
    if isinstance(owner, type):
        return True
    return isinstance(owner, _PURE_OWNERS)


class Refusal(Exception):
    """Something that the call read cannot be guarded."""


Guard = Callable[[], bool]


class Guards:
    """Conditions under which a captured call would do the same again.

    Attributes:
        checks: functions that return False when something changed.
        tensors: tensors that the call can have read other than as arguments, by id.
    """

    def __init__(self, function: Callable[..., Any], tracer: Tracer):
        self.checks: list[Guard] = []
        self.tensors: dict[int, Any] = {}
        self._names: set[str] = set()
        self._seen: set[int] = set()
        self._functions: set[types.CodeType] = set()
        for code in tracer.globals:
            self._names.update(code.co_names)
            for constant in code.co_consts:
                if isinstance(constant, types.CodeType):
                    self._names.update(constant.co_names)
        known = [getattr(function, "__func__", function)]
        for target in known:
            if isinstance(target, types.FunctionType):
                self._function(target)
        for value in tracer.objects.values():
            self._object(value, "an argument or closure")
        inner = {c for code in tracer.globals for c in code.co_consts if isinstance(c, types.CodeType)}
        for code, names in tracer.globals.items():
            self._globals(code, names)
            if code.co_freevars and code not in self._functions and code not in inner and not _class_cell_only(code):
                raise Refusal(f"the closure of {code.co_qualname} cannot be looked into")

    def hold(self) -> bool:
        """True if nothing that was guarded changed."""
        return all(check() for check in self.checks)

    def _function(self, function: types.FunctionType) -> None:
        code = function.__code__
        if code in self._functions:
            return
        self._functions.add(code)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:
                continue
            self._value(lambda cell=cell: cell.cell_contents, value, f"the closure variable {name}")
        for value in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._value(lambda value=value: value, value, "a default argument")

    def _globals(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        for name in dict.fromkeys(_global_names(code)):
            value = namespace.get(name, _MISSING)
            if value is _MISSING:
                if not hasattr(builtins, name):
                    continue
                self.checks.append(lambda space=namespace, name=name: name not in space)
                continue
            self._value(lambda space=namespace, name=name: space.get(name, _MISSING), value, f"the global {name}")
            if isinstance(value, types.ModuleType) and not value.__name__.startswith(("genesis", "numpy", "torch", "math")):
                for attribute in self._names:
                    inner = getattr(value, attribute, _MISSING)
                    if inner is not _MISSING:
                        self._value(lambda m=value, a=attribute: getattr(m, a, _MISSING), inner,
                                    f"{name}.{attribute}")

    def _value(self, get: Callable[[], Any], value: Any, what: str) -> None:
        """Guard one value that can be looked up again."""
        if isinstance(value, _SIMPLE):
            kind = type(value)
            self.checks.append(lambda: type(now := get()) is kind and (now == value or now is value))
        elif isinstance(value, tuple):
            self.checks.append(lambda: get() is value)
            for item in value:
                self._value(lambda item=item: item, item, what)
        elif isinstance(value, TensorBase):
            self.tensors[id(value)] = value
            leaf, detached, kind = value.leaf, value.detached, value.type
            self.checks.append(lambda: (now := get()) is value and now.leaf == leaf and now.detached == detached
                               and now.type is kind)
        elif isinstance(value, (list, dict, set)):
            self._container(get, value, what)
        else:
            self.checks.append(lambda: get() is value)
            if isinstance(value, types.FunctionType) and _is_user_code(value.__code__):
                self._function(value)
            elif not isinstance(value, _FIXED):
                self._object(value, what)

    def _container(self, get: Callable[[], Any], value: Any, what: str) -> None:
        if id(value) in self._seen:
            return
        self._seen.add(id(value))
        items = list(value.items()) if isinstance(value, dict) else list(value)
        copy = type(value)(value)
        self.checks.append(lambda: (now := get()) is value and len(now) == len(copy) and _same_items(now, copy))
        for item in items:
            for part in item if isinstance(value, dict) else (item,):
                self._value(lambda part=part: part, part, f"an element of {what}")

    def _object(self, value: Any, what: str) -> None:
        """Guard what the code's names can read of an object."""
        if id(value) in self._seen or isinstance(value, (*_SIMPLE, *_FIXED, TensorBase)):
            return
        if isinstance(value, (list, dict, set, tuple)):
            self._value(lambda: value, value, what)
            return
        self._seen.add(id(value))
        if isinstance(value, types.MethodType):
            self._object(value.__self__, what)
            return
        kind = type(value)
        attributes = getattr(value, "__dict__", None)
        if kind.__module__.startswith("genesis."):
            self._framework_object(value)
            return
        if attributes is None and not hasattr(kind, "__slots__"):
            if isinstance(value, (types.GeneratorType, map, filter, zip, enumerate)) or hasattr(value, "__next__"):
                raise Refusal(f"{what} is an iterator, which a call uses up")
            if kind.__module__ == "builtins":
                return
            raise Refusal(f"{what} is a {kind.__module__}.{kind.__name__}, whose content cannot be compared")
        parts = getattr(value, "_modules", None)
        if parts is not None:
            self._framework_object(value)
        for name in self._names:
            inner = (attributes or {}).get(name, _MISSING)
            if inner is _MISSING and hasattr(kind, "__slots__"):
                inner = getattr(value, name, _MISSING) if name in kind.__slots__ else _MISSING
            if inner is not _MISSING:
                self._value(lambda o=value, n=name: getattr(o, n, _MISSING), inner, f"the attribute {name}")

    def _framework_object(self, value: Any) -> None:
        """Modules are guarded by their epoch; their tensors are known, other attributes looked at by name."""
        walk = getattr(value, "modules", None)
        modules = list(walk()) if callable(walk) else []
        for module in modules:
            if id(module) in self._seen and module is not value:
                continue
            self._seen.add(id(module))
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None:
                    self.tensors[id(tensor)] = tensor
            for name, inner in list(vars(module).items()):
                if name in self._names and not name.startswith("_") and isinstance(inner, (list, dict, set)):
                    self._container(lambda m=module, n=name: getattr(m, n, _MISSING), inner, f"the attribute {name}")
                elif name in self._names and isinstance(inner, types.FunctionType) and _is_user_code(inner.__code__):
                    self._function(inner)
                elif name in self._names and not isinstance(inner, (*_SIMPLE, *_FIXED, TensorBase)) and not hasattr(
                        inner, "_modules") and not name.startswith("_"):
                    self._object(inner, f"the attribute {name}")


def _same_items(now: Any, copy: Any) -> bool:
    if isinstance(now, dict):
        return all(k in copy and (v is copy[k] or _plainly_equal(v, copy[k])) for k, v in now.items())
    if isinstance(now, set):
        return now == copy
    return all(a is b or _plainly_equal(a, b) for a, b in zip(now, copy, strict=True))


def _plainly_equal(a: Any, b: Any) -> bool:
    return type(a) is type(b) and isinstance(a, _SIMPLE) and a == b


def _global_names(code: types.CodeType) -> Iterable[str]:
    """Names that the code (and code nested in it) looks up as globals."""
    import dis
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _global_names(constant)


def _class_cell_only(code: types.CodeType) -> bool:
    """True for a method whose only free variable is the cell behind super()."""
    return set(code.co_freevars) <= {"__class__"}
