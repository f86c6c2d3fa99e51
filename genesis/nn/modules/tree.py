"""The tree of modules: what a module registers under which name, and how to walk it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import count
from operator import setitem
from typing import Any, TypeVar

from genesis.frontend.at_once import Change
from genesis.frontend.state import state
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import conversion_of, kind_of
from genesis.ir.suggest import MissingName
from genesis.nn.parameter import Buffer, Parameter

Self = TypeVar("Self", bound="Tree")
_epoch = 0


def epoch() -> int:
    """A number that grows whenever an attribute, mode or hook of any module changes.

    What a compiled function captured of its modules holds while this stays the same.
    """
    return _epoch


_epochs = count(1)


def changed() -> None:
    """A module changed: a new epoch."""
    global _epoch
    _epoch = next(_epochs)


def changing() -> Change:
    """The change, of those that are made at once, by which modules are changed."""
    return setitem, globals(), "_epoch", next(_epochs)


class Registry(dict):
    """A dictionary whose changes make a new epoch."""

    __slots__ = ()


def _noticed(name: str) -> Any:
    plain = getattr(dict, name)

    def change(self: Registry, *args: Any, **kwargs: Any) -> Any:
        changed()
        return plain(self, *args, **kwargs)
    change.__name__, change.__doc__ = name, plain.__doc__  # not `wraps`: doctest looks for the code of what is wrapped
    return change


for _name in ("__setitem__", "__delitem__", "__ior__", "pop", "popitem", "clear", "update", "setdefault"):
    setattr(Registry, _name, _noticed(_name))


registering: dict[str, dict[int, Callable[..., Any]]] = {"parameter": {}, "buffer": {}, "module": {}}
"""Hooks of all modules that see what is registered, by its kind."""


def _asked(kind: str, module: Tree, name: str, value: Any) -> Any:
    """The value, or what the hooks make of it."""
    for hook in list(registering[kind].values()):
        new = hook(module, name, value)
        value = value if new is None else new
    return value


class Tree:
    """A node with parameters, buffers and children, each under its name as an attribute.

    The registry is set up before `__init__`, so a subclass that does not call
    `super().__init__()` works, too.
    """

    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _transient: set[str]  # buffers that a state dict leaves out
    _modules: dict[str, Any]

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """An instance with an empty registry."""
        self = object.__new__(cls)
        self.__dict__.update(_parameters=Registry(), _buffers=Registry(), _transient=set(), _modules=Registry())
        state.modules[id(self)] = self
        return self

    # Attributes

    def __setattr__(self, name: str, value: Any) -> None:
        changed()
        if isinstance(value, Parameter):
            self._make_room(self._parameters, name)
            self.register_parameter(name, value)
        elif name in self._parameters:
            self._replace(self._parameters, name, value, "parameter", Parameter)
        elif isinstance(value, Tree):
            self._make_room(self._modules, name)
            self.add_module(name, value)
        elif name in self._modules:
            self._replace(self._modules, name, value, "child module", Tree)
        elif isinstance(value, Buffer):
            self._make_room(self._buffers, name)
            self.register_buffer(name, value, value.persistent)
        elif name in self._buffers:
            self._replace(self._buffers, name, value, "buffer", Tensor)
        else:
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        if "_modules" in own:  # an object that `__new__` or a copy is still making has none
            if name in own["_modules"]:
                return own["_modules"][name]
            if name in own["_parameters"]:
                return own["_parameters"][name]
            if name in own["_buffers"]:
                return own["_buffers"][name]
        problem = f"'{type(self).__name__}' object has no attribute '{name}'"
        if isinstance(getattr(type(self), name, None), property):  # Python has dropped that error before it asked here
            raise MissingName(f"{problem}: its property raised an AttributeError, which "
                              f"`type(module).{name}.fget(module)` shows", name, tuple)
        raise MissingName(problem, name, lambda: names_of(self))

    def get_extra_state(self) -> Any:
        """What the state dict holds beside tensors, for subclasses to define together with `set_extra_state`."""
        raise RuntimeError("Reached a code path in Module.get_extra_state() that should never be called: define it in "
                           f"{type(self).__name__}")

    def set_extra_state(self, state: Any) -> None:
        """Take over what `get_extra_state` gave."""
        raise RuntimeError("Reached a code path in Module.set_extra_state() that should never be called: define it in "
                           f"{type(self).__name__}")

    def __delattr__(self, name: str) -> None:
        changed()
        for registry in (self._parameters, self._buffers, self._modules):
            if name in registry:
                del registry[name]
                self._transient.discard(name)
                return
        object.__delattr__(self, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._parameters, *self._buffers, *self._modules})

    def _replace(self, registry: dict[str, Any], name: str, value: Any, what: str, kind: type) -> None:
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"cannot assign '{kind_of(value)}' as {what} '{name}' "
                            f"({'Module' if kind is Tree else kind.__name__} of genesis or None expected)"
                            f"{conversion_of(value)}")
        registry[name] = value

    def _others(self, registry: dict[str, Any]) -> list[dict[str, Any]]:
        """What can hold a name beside a registry."""
        every: tuple[dict[str, Any], ...] = (self.__dict__, self._parameters, self._buffers, self._modules)
        return [other for other in every if other is not registry]

    def _make_room(self, registry: dict[str, Any], name: str) -> None:
        """Take a name from what holds it: an assignment moves it to a registry."""
        for other in self._others(registry):
            other.pop(name, None)

    def _register(self, registry: dict[str, Any], name: str, value: Any) -> None:
        """Put a value under a name that nothing but the registry holds."""
        if not isinstance(name, str) or "." in name or not name:
            raise (KeyError if isinstance(name, str) else TypeError)(
                f"{name!r} cannot name a part of a module: a name is a non-empty string without dots")
        if any(name in other for other in self._others(registry)) or hasattr(type(self), name):
            raise KeyError(f"attribute '{name}' already exists")
        registry[name] = value
        changed()

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Register a parameter; None keeps the name for one that does not exist."""
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{kind_of(param)}' object to parameter '{name}' "
                            f"(genesis.nn.Parameter or None required){conversion_of(param)}")
        self._register(self._parameters, name, _asked("parameter", self, name, param))

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Register a tensor that moves with the module but is not trained.

        Args:
            name: the attribute.
            tensor: its value; None keeps the name.
            persistent: False leaves it out of the state dict.
        """
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{kind_of(tensor)}' object to buffer '{name}' "
                            f"(genesis.Tensor or None required){conversion_of(tensor)}")
        self._register(self._buffers, name, _asked("buffer", self, name, tensor))
        if persistent:
            self._transient.discard(name)
        else:
            self._transient.add(name)

    def add_module(self, name: str, module: Any) -> None:
        """Register a child."""
        if module is not None and not isinstance(module, Tree):
            raise TypeError(f"{kind_of(module)} is not a Module subclass of genesis.nn")
        self._register(self._modules, name, _asked("module", self, name, module))

    register_module = add_module

    # Walking

    def named_children(self) -> Iterator[tuple[str, Any]]:
        """(name, module) of the direct children, each module once."""
        seen: set[int] = set()
        for name, child in self._modules.items():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                yield name, child

    def children(self) -> Iterator[Any]:
        """The direct children, each once."""
        return (child for _, child in self.named_children())

    def named_modules(self, memo: set[int] | None = None, prefix: str = "",
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """(path, module) of this module and all below, parents first; a shared one once."""
        memo = set() if memo is None else memo
        if id(self) in memo:
            return
        if remove_duplicate:
            memo.add(id(self))
        yield prefix, self
        for name, child in self._modules.items():
            if child is not None:
                yield from child.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Any]:
        """The module and all modules below, each once, or wherever it stands."""
        return (module for _, module in self.named_modules(remove_duplicate=remove_duplicate))

    def _named_members(self, get_members_fn: Callable[[Any], Iterable[tuple[str, Any]]], prefix: str = "",
                       recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Any]]:
        """(path, member) of what a function says of each module; programs name what is their own modules' by it."""
        seen: set[int] = set()
        owners = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, owner in owners:
            for name, value in get_members_fn(owner):
                if value is not None and id(value) not in seen:
                    if remove_duplicate:
                        seen.add(id(value))
                    yield f"{path}.{name}" if path else name, value

    def named_parameters(self, prefix: str = "", recurse: bool = True,
                         remove_duplicate: bool = True) -> Iterator[tuple[str, Parameter]]:
        """(path, parameter) of this module and, with `recurse`, all below; a shared one once."""
        return self._named_members(lambda owner: owner._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, each once, in the order of registration."""
        return (parameter for _, parameter in self.named_parameters(recurse=recurse))

    def named_buffers(self, prefix: str = "", recurse: bool = True,
                      remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """(path, buffer) of this module and, with `recurse`, all below; a shared one once."""
        return self._named_members(lambda owner: owner._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, each once."""
        return (buffer for _, buffer in self.named_buffers(recurse=recurse))

    def get_submodule(self, target: str) -> Any:
        """The module at a path such as "blocks.0.norm"; "" is this one.

        Raises:
            AttributeError: there is none.
        """
        found: Any = self
        for name in target.split(".") if target else ():
            child = found._modules.get(name)
            if child is None:
                raise AttributeError(f"{type(found).__name__} has no module `{name}`")
            found = child
        return found

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path such as "blocks.0.norm.weight", or AttributeError."""
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        parameter: Parameter | None = owner._parameters.get(name)
        if parameter is None:
            raise AttributeError(f"{type(owner).__name__} has no parameter `{name}`")
        return parameter

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path such as "blocks.0.norm.running_mean", or AttributeError."""
        path, _, name = target.rpartition(".")
        owner = self.get_submodule(path)
        if name not in owner._buffers:
            raise AttributeError(f"`{name}` is not a buffer" if hasattr(owner, name) else
                                 f"{type(owner).__name__} has no attribute `{name}`")
        found: Tensor = owner._buffers[name]
        return found

    def set_submodule(self, target: str, module: Any, strict: bool = False) -> None:
        """Put a module at a path; with `strict` there must be one already."""
        path, _, name = target.rpartition(".")
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        owner = self.get_submodule(path)
        if strict and name not in owner._modules:
            raise AttributeError(f"{type(owner).__name__} has no attribute `{name}`")
        setattr(owner, name, module)


def weight_and_bias(module: Any, kind: type) -> tuple[Any, Any]:
    """What `module.weight` and `module.bias` are, of an object of this very class of Genesis', which has no such
    attributes. They are in the registry, where Python looks once it has made and dropped an AttributeError: 0.7 µs
    each for 0.2 both, next to 5 for recording what reads them (`benchmarks/recording.py`).

    A subclass may have a property of that name, what was taken out of the registry is elsewhere, and what was put into
    `vars(module)` hides what is there: those are asked.

    >>> from genesis import nn
    >>> weight_and_bias(nn.LayerNorm(2), nn.LayerNorm)[0]
    Parameter containing:
    tensor([1., 1.], requires_grad=True)
    """
    found: Any = type(module)
    if found is kind:
        space = module.__dict__
        own = space["_parameters"]
        if "weight" in own and "bias" in own and "weight" not in space and "bias" not in space:
            return own["weight"], own["bias"]
    return module.weight, module.bias


def names_of(module: Tree) -> set[str]:
    """All attributes that a module has: its class's, its own, and what it registered."""
    own = module.__dict__
    registered = (name for kind in ("_modules", "_parameters", "_buffers") for name in own.get(kind, ()))
    return {*dir(type(module)), *own, *registered}
