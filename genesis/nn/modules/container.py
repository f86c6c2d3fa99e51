"""Modules that hold modules: in a row, in a list, in a dictionary."""

from __future__ import annotations

import operator
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import groupby
from operator import itemgetter
from typing import Any

from genesis.nn.modules.module import Module
from genesis.nn.modules.tree import changed

__all__ = ["ModuleDict", "ModuleList", "Sequential"]


class _Row(Module):
    """Children under the names "0", "1", ...: what Sequential and ModuleList share."""

    _modules: dict[str, Module]

    def _fill(self, modules: Iterable[Module]) -> None:
        """Make these the children. Renumbers, so that names are positions."""
        children = list(modules)
        self._modules.clear()
        for position, module in enumerate(children):
            self.add_module(str(position), module)
        changed()

    def _position(self, index: int) -> int:
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {position} is out of range")
        return position % len(self)

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._modules.values())

    def __getitem__(self, index: Any) -> Any:
        children = list(self._modules.values())
        if not isinstance(index, slice):
            return children[self._position(index)]
        part = type(self)()
        part._fill(children[index])
        return part

    def __setitem__(self, index: int, module: Module) -> None:
        self.add_module(list(self._modules)[self._position(index)], module)

    def __delitem__(self, index: int | slice) -> None:
        children = list(self._modules.values())
        del children[index if isinstance(index, slice) else self._position(index)]
        self._fill(children)

    def append(self, module: Module) -> Any:
        """Add a module at the end."""
        self.add_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules at the end."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Add a module before a position."""
        children = list(self._modules.values())
        children.insert(index, module)
        self._fill(children)
        return self

    def pop(self, index: int) -> Module:
        """Remove a module and return it."""
        module: Module = self[index]
        del self[index]
        return module


class Sequential(_Row):
    """Modules that are called one after another, each on the result of the one before.

    Takes modules, or a dictionary of names and modules.

    >>> import genesis
    >>> from genesis import nn
    >>> net = Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    >>> net(genesis.ones(1, 4)).shape, len(net)
    (genesis.Size([1, 2]), 3)
    """

    def __init__(self, *modules: Any):
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            for position, module in enumerate(modules):
                self.add_module(str(position), module)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Sequential(dict(list(self._modules.items())[index]))
        return super().__getitem__(index)

    def __add__(self, other: Sequential) -> Sequential:
        return Sequential(*self).__iadd__(other)

    def __iadd__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")
        return self.extend(other)

    def __mul__(self, times: int) -> Sequential:
        return Sequential(*self).__imul__(times)

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Sequential:
        if not isinstance(times, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(times)}")
        if times <= 0:
            raise ValueError(f"Non-positive multiplication factor {times} for {type(self)}")
        return self.extend(list(self) * (times - 1))

    def forward(self, input: Any) -> Any:
        """The last module's result."""
        for module in self._modules.values():
            input = module(input)
        return input


class ModuleList(_Row):
    """A list of modules. It has no forward: iterate over it.

    >>> from genesis import nn
    >>> layers = ModuleList(nn.Linear(4, 4) for _ in range(3))
    >>> len(layers), [name for name, _ in layers[1].named_parameters()]
    (3, ['weight', 'bias'])
    """

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        self.extend(modules or ())

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        self.extend(modules)
        return self

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def _children_texts(self) -> list[tuple[str, str]]:
        """Neighbours that read the same are one line, as in torch: `(0-2): 3 x Linear(...)`."""
        found = []
        for text, same in groupby(enumerate(map(repr, self)), key=itemgetter(1)):
            places = [place for place, _ in same]
            several = len(places) > 1
            found.append((f"{places[0]}-{places[-1]}" if several else str(places[0]),
                          f"{len(places)} x {text}" if several else text))
        return found


class ModuleDict(Module):
    """A dictionary of modules by name. It has no forward: look a module up and call it.

    >>> from genesis import nn
    >>> heads = ModuleDict({"value": nn.Linear(4, 1)})
    >>> list(heads), "policy" in heads
    (['value'], False)
    """

    _modules: dict[str, Module]

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None):
        super().__init__()
        self.update(modules or {})

    def __getitem__(self, name: str) -> Module:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, module)

    def __delitem__(self, name: str) -> None:
        del self._modules[name]
        changed()

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> ValuesView[Module]:
        """The modules."""
        return self._modules.values()

    def items(self) -> ItemsView[str, Module]:
        """(name, module) pairs."""
        return self._modules.items()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace modules."""
        for name, module in modules.items() if isinstance(modules, Mapping) else modules:
            self[name] = module

    def pop(self, name: str) -> Module:
        """Remove a module and return it."""
        module = self[name]
        del self[name]
        return module

    def clear(self) -> None:
        """Remove all modules."""
        self._modules.clear()
        changed()
