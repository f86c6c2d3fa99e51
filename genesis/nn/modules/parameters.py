"""Rows and dictionaries of parameters, by number and by name."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.nn.modules.module import Module
from genesis.nn.parameter import Parameter

__all__ = ["ParameterDict", "ParameterList"]


def _as_parameter(value: Any) -> Any:
    """Tensors become parameters; anything else stays."""
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _line(key: Any, value: Any, kind: str) -> str:
    """The line of a value in the text of what holds it, as torch writes it."""
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    place = f" ({value.device})" if value.is_cuda else ""
    name = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return f"  ({key}): {name} containing: [{kind} of size {'x'.join(map(str, value.shape))}{place}]"


class ParameterList(Module):
    """A list of parameters, numbered in the state dict.

    >>> import genesis
    >>> weights = ParameterList([genesis.ones(2), genesis.zeros(3)])
    >>> len(weights), list(weights.state_dict())
    (2, ['0', '1'])
    """

    def __init__(self, values: Iterable[Any] | None = None):
        super().__init__()
        self._size = 0
        self.extend(values or ())

    def append(self, value: Any) -> ParameterList:
        """Add one at the end."""
        number, self._size = self._size, self._size + 1
        self[number] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add several at the end."""
        for value in values:
            self.append(value)
        return self

    def _at(self, index: int) -> str:
        if not -self._size <= index < self._size:
            raise IndexError(f"index {index} is out of range")
        return str(index % self._size)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return ParameterList(self[i] for i in range(*index.indices(self._size)))
        return getattr(self, self._at(index))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._at(index), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(self._size))

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(values)

    def extra_repr(self) -> str:
        """A line for each."""
        return "\n".join(_line(number, value, str(getattr(value, "dtype", ""))) for number, value in enumerate(self))


class ParameterDict(Module):
    """A dictionary of parameters by name.

    >>> import genesis
    >>> weights = ParameterDict({"left": genesis.ones(2)})
    >>> weights["right"] = genesis.zeros(3)
    >>> list(weights), "left" in weights
    (['left', 'right'], True)
    """

    def __init__(self, parameters: Mapping[str, Any] | Iterable[tuple[str, Any]] | None = None):
        super().__init__()
        self._names: dict[str, None] = {}
        self.update(parameters or {})

    def update(self, parameters: Mapping[str, Any] | ParameterDict | Iterable[tuple[str, Any]]) -> None:
        """Add or replace parameters. Those of a plain dictionary come in the order of their names, as in torch: it is
        the order in which an optimizer numbers them."""
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            parameters = parameters.items()
        elif isinstance(parameters, Mapping):
            parameters = sorted(parameters.items(), key=lambda item: item[0])
        for name, value in parameters:
            self[name] = value

    def __or__(self, other: ParameterDict) -> ParameterDict:
        joined = self.copy()
        joined.update(other)
        return joined

    def __ior__(self, other: ParameterDict) -> ParameterDict:
        self.update(other)
        return self

    def __getitem__(self, name: str) -> Any:
        if name not in self._names:
            raise KeyError(name)
        return getattr(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        self._names[name] = None
        setattr(self, name, _as_parameter(value))

    def __delitem__(self, name: str) -> None:
        del self._names[name]
        delattr(self, name)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._names.keys()

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return [self[name] for name in self._names]

    def extra_repr(self) -> str:
        """A line for each."""
        return "\n".join(_line(name, value, value.type() if isinstance(value, Tensor) else "")
                         for name, value in self.items())

    def items(self) -> Iterable[tuple[str, Any]]:
        """(name, parameter) pairs."""
        return [(name, self[name]) for name in self._names]

    def get(self, name: str, default: Any = None) -> Any:
        """The parameter, or the default."""
        return self[name] if name in self._names else default

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The parameter, the default from now on where there is none."""
        if name not in self._names:
            self[name] = default
        return self[name]

    def pop(self, name: str) -> Any:
        """Remove a parameter and return it."""
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove the last one and return its name and itself."""
        name = next(reversed(self._names))
        return name, self.pop(name)

    def copy(self) -> ParameterDict:
        """Another dictionary of the same parameters."""
        return ParameterDict(self.items())

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dictionary with these names and one value."""
        return ParameterDict((name, default) for name in keys)

    def clear(self) -> None:
        """Remove all."""
        for name in list(self._names):
            del self[name]
