"""Parameters that are computed: `module.weight` is what modules make of an original, which is trained in its place.

A parametrized module gets a class of its own, with a property for each of its parametrized tensors; the modules and
the originals are children under `parametrizations`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.nn.modules.container import ModuleDict, ModuleList
from genesis.nn.modules.module import Module
from genesis.nn.modules.tree import changed, changing
from genesis.nn.parameter import Parameter
from genesis.runtime.contexts import Switched, Temporary

__all__ = ["ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
           "transfer_parametrizations_and_params", "type_before_parametrizations"]

_cache: dict[tuple[int, str], Tensor] = {}
_caching = 0


def cached() -> Temporary:
    """Inside, each parametrized tensor is computed once."""
    def look() -> Switched:
        put, before = globals().__setitem__, _caching
        dropped = () if before else [(_cache.clear,)]
        return Switched([(put, "_caching", before + 1), changing()], [(put, "_caching", before), changing(), *dropped])
    return Temporary(look)


class ParametrizationList(ModuleList):
    """The modules that a tensor goes through, one after the other, and its original.

    Attributes:
        original: what is trained; `original0`, `original1`, ... where a `right_inverse` gives several.
    """

    def __init__(self, modules: list[Any], original: Any, unsafe: bool = False):
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        before = original.detach()
        new: Any = original
        with no_grad():
            for module in reversed(modules):
                if hasattr(module, "right_inverse"):
                    with suppress(NotImplementedError):  # then the original is the tensor itself
                        new = module.right_inverse(new)
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor and new.dtype != before.dtype:
            raise ValueError("When `right_inverse` outputs one tensor, it may not change the dtype.\n"
                             f"original.dtype: {before.dtype}\nright_inverse(original).dtype: {new.dtype}")
        if self.is_tensor and new is not original:  # the same parameter, which an optimizer may hold
            original.data = new.detach().clone()
        for name, value in zip(self._names(), [original] if self.is_tensor else new, strict=True):
            if not isinstance(original, Parameter):
                self.register_buffer(name, value if value is original else value.detach().clone())
            elif value is original:
                self.register_parameter(name, original)
            else:
                self.register_parameter(name, Parameter(value.detach().clone(), original.requires_grad))
        if not unsafe:
            _require_alike(self(), before, "tensor", "unparametrized", "parametrized")

    def _names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the result is the value, as far as the modules' `right_inverse` can."""
        with no_grad():
            new: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                new = module.right_inverse(new)
            for name, x in zip(self._names(), [new] if self.is_tensor else new, strict=True):
                getattr(self, name).copy_(x)

    def forward(self) -> Tensor:
        """The tensor."""
        listed = iter(self)
        x: Tensor = next(listed)(*[getattr(self, name) for name in self._names()])
        for module in listed:
            x = module(x)
        return x


def _require_alike(found: Any, tensor: Tensor, what: str, before: str, after: str) -> None:
    """Refuse what a parametrization made of a tensor, where its dtype or shape is another."""
    if not isinstance(found, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(found).__name__}.")
    for name in ("dtype", "shape"):
        own, other = getattr(tensor, name), getattr(found, name)
        if own != other:
            raise ValueError(f"Registering a parametrization may not change the {name} of the {what}, unless `unsafe` "
                             f"flag is enabled.\n{before} {name}: {own}\n{after} {name}: {other}")


def _property(name: str) -> property:
    def get(self: Any) -> Tensor:
        compute = self.parametrizations[name]
        if not _caching:
            return compute()
        key = id(self), name
        if key not in _cache:
            _cache[key] = compute()
        return _cache[key]

    def set(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)
        changed()
    return property(get, set)


def _with_own_class(module: Module) -> None:
    """Give the module a class of its own that remembers the one it had."""
    before = type(module)

    def assign(self: Any, name: str, value: Any) -> None:
        if isinstance(vars(type(self)).get(name), property):
            vars(type(self))[name].fset(self, value)
        else:
            before.__setattr__(self, name, value)
    made = type(f"Parametrized{before.__name__}", (before,), {"__setattr__": assign, "__module__": before.__module__})
    object.__setattr__(module, "__class__", made)
    module.parametrizations = ModuleDict()


def register_parametrization(module: Any, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Any:
    """Let `module.<tensor_name>` be what a module makes of it.

    Args:
        module: has the parameter or buffer.
        tensor_name: its name.
        parametrization: its forward takes the original; a `right_inverse` sets the original, and where it returns
            several tensors, forward takes them all.
        unsafe: the shape may change.

    Returns:
        The module.

    >>> import genesis
    >>> from genesis import nn
    >>> class Positive(nn.Module):
    ...     def forward(self, x):
    ...         return x.exp()
    >>> layer = register_parametrization(nn.Linear(2, 2), "weight", Positive())
    >>> (layer.weight > 0).all().item(), [name for name, _ in layer.named_parameters()]
    (True, ['bias', 'parametrizations.weight.original'])
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        listed = module.parametrizations[tensor_name]
        if not unsafe:
            value = getattr(module, tensor_name)
            _require_alike(parametrization(value), value, "tensor", f"module.{tensor_name}",
                           f"parametrization(module.{tensor_name})")
        listed.append(parametrization)
        listed.unsafe |= unsafe
        changed()
        return module
    original = module._parameters.get(tensor_name)
    if original is None:
        original = module._buffers.get(tensor_name)
    if original is None:
        raise ValueError(f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name "
                         f"'{tensor_name}'")
    made = ParametrizationList([parametrization], original, unsafe)
    made.train(module.training)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _with_own_class(module)
    module.parametrizations[tensor_name] = made
    setattr(type(module), tensor_name, _property(tensor_name))
    changed()
    return module


def is_parametrized(module: Any, tensor_name: str | None = None) -> bool:
    """Whether a module, or its tensor of this name, is computed."""
    found = module._modules.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make a tensor a plain one again: what it was computed to be, or, without `leave_parametrized`, the original."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    listed = module.parametrizations[tensor_name]
    if not leave_parametrized and not listed.is_tensor:
        raise ValueError("Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in "
                         "terms of a sequence of tensors.")
    first = listed.original if listed.is_tensor else listed.original0
    value = getattr(module, tensor_name) if leave_parametrized else first
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        delattr(module, "parametrizations")
        object.__setattr__(module, "__class__", type(module).__bases__[0])
    if not isinstance(first, Parameter):
        module.register_buffer(tensor_name, value.detach())
    else:
        if listed.is_tensor:  # an optimizer over the original goes on with the parameter
            with no_grad():
                if first is not value:
                    first.data = value.detach().clone()
            module.register_parameter(tensor_name, first)
        else:
            module.register_parameter(tensor_name, Parameter(value.detach().clone(), first.requires_grad))
    changed()
    return module


def type_before_parametrizations(module: Any) -> type:
    """The class that a module had."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(from_module: Any, to_module: Any, tensor_name: str | None = None) -> Any:
    """Give a module the parametrizations of another one, with their values."""
    if is_parametrized(from_module):
        for name in from_module.parametrizations if tensor_name is None else [tensor_name]:
            source = from_module.parametrizations[name]
            if not is_parametrized(to_module, name):
                if name not in to_module._parameters and name not in to_module._buffers:
                    setattr(to_module, name, Parameter(getattr(from_module, name).detach().clone()))
                for module in source:
                    register_parametrization(to_module, name, module, unsafe=source.unsafe)
            with no_grad():
                for own, theirs in zip(to_module.parametrizations[name].parameters(False), source.parameters(False),
                                       strict=True):
                    own.copy_(theirs)
    return to_module
