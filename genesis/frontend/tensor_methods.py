"""The methods of tensors that other rooms bring, and methods that are bound when somebody asks for them.

The rooms that know ops, gradients and matrices give `Tensor` its methods; the frontend knows none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

from genesis.frontend.public_functions import bound, is_public_method


class TensorMethods:
    """The methods of a class: its own, which are public functions too, and those that it is given.

    Args:
        kind: the class, as its file defines it.
    """

    def __init__(self, kind: type):
        self._kind, self._own = kind, frozenset(vars(kind))
        for name in self._own:
            value = vars(kind)[name]
            if is_public_method(name, value):
                self._give(name, value)

    def install(self, methods: type) -> type:
        """A class decorator: give tensors the methods of the class and of its bases, but for those of their own."""
        for part in reversed(methods.__mro__):
            if part not in self._kind.__mro__:
                for name, value in vars(part).items():
                    if name not in self._own:
                        self._give(name, value)
        return methods

    def install_later(self, module: str, methods: str, names: Iterable[str]) -> None:
        """Give tensors these methods of a class in a module that is not imported yet."""
        def finder(name: str) -> Callable[[], Any]:
            return lambda: vars(getattr(import_module(module), methods))[name]
        for name in names:
            type.__setattr__(self._kind, name, Later(self._kind, name, finder(name)))

    def _give(self, name: str, value: Any) -> None:
        method = Later(self._kind, name, lambda: value) if is_public_method(name, value) else value
        type.__setattr__(self._kind, name, method)  # past `WatchedClass`: nothing is replaced


class Later:
    """A method that is bound (`public_functions.py`) when somebody first asks for it, and stands here from then on.

    Attributes:
        kind: the class that it is a method of.
        name: the name of the method.
        find: returns the function, and may import its module: `Tensor.det` comes from linalg.
    """

    __slots__ = ("find", "kind", "name")

    def __init__(self, kind: type, name: str, find: Callable[[], Any]):
        self.kind, self.name, self.find = kind, name, find

    def __get__(self, tensor: Any, kind: type) -> Any:
        found = self.find()
        if is_public_method(self.name, found):
            found = bound(found, "genesis", f"Tensor.{self.name}")
        if vars(self.kind).get(self.name) is self:  # a program may have put its own there meanwhile
            type.__setattr__(self.kind, self.name, found)
        return found if tensor is None else found.__get__(tensor, kind)
