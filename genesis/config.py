"""How programs are compiled: one typed object, `genesis.config`.

A plan remembers the settings that it was made under; after a change the next run makes, or finds, another.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


@dataclass(slots=True)
class Config:
    """The settings.

    Attributes:
        fuse: let a CUDA kernel compute several ops. Without, each op has a kernel of its own and rounds its
            result to its dtype, as eager PyTorch runs them; only views, widening casts, numbers and random
            bits are still computed where they are read.

    Raises:
        AttributeError: there is no such setting.
        TypeError: the value has another type than the setting.

    >>> import genesis
    >>> genesis.config.fuse
    True
    >>> genesis.config.fuse = "no"
    Traceback (most recent call last):
    TypeError: config.fuse is a bool, not 'no'
    """

    fuse: bool = True

    def __setattr__(self, name: str, value: Any) -> None:
        found = next((field for field in fields(self) if field.name == name), None)
        if found is None:
            raise AttributeError(f"there is no setting {name!r}; the settings are "
                                 f"{', '.join(field.name for field in fields(self))}")
        if type(value) is not type(found.default):
            raise TypeError(f"config.{name} is a {type(found.default).__name__}, not {value!r}")
        object.__setattr__(self, name, value)

    def key(self) -> tuple[Any, ...]:
        """What plans made now depend on: equal settings give equal keys."""
        return (self.fuse,)


config = Config()
"""The process's settings."""
