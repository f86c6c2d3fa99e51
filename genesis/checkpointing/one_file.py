"""`save_checkpoint` and `load_checkpoint`: a checkpoint in one file, for scripts that save by themselves."""

from __future__ import annotations

import os
from typing import Any, overload

from genesis.ir.errors import failure
from genesis.utils.locations import MapLocation
from genesis.utils.serialization import load, save

Path = str | os.PathLike[str]


@overload
def save_checkpoint(state: Any, path: Path, /) -> None: ...
@overload
def save_checkpoint(model: Any, optimizer: Any, path: Path, /) -> None: ...


def save_checkpoint(*arguments: Any) -> None:
    """Write a checkpoint to a file, all of it or nothing: `(state, path)`, or `(model, optimizer, path)`.

    Args:
        state: what `genesis.save` takes. Objects with a `state_dict()`, at the top or as values of a dictionary there,
            are saved by that.
        model, optimizer: their states, or the objects themselves.
        path: the file; one that is there is replaced.

    Raises:
        TypeError: there are neither two nor three arguments, the last is no path, or something cannot be saved.
        OSError: the file cannot be written.

    >>> import genesis, tempfile
    >>> from genesis import nn, optim
    >>> model, path = nn.Linear(2, 1), tempfile.mkdtemp() + "/checkpoint.pth"
    >>> optimizer = optim.Adam(model.parameters())
    >>> genesis.save_checkpoint({"model": model.state_dict(), "epoch": 3}, path)
    >>> genesis.load_checkpoint(path)["epoch"]
    3
    >>> genesis.save_checkpoint(model, optimizer, path)
    >>> model_state, optimizer_state = genesis.load_checkpoint(path)
    >>> optimizer.load_state_dict(optimizer_state)
    >>> model.load_state_dict(model_state)
    <All keys matched successfully>
    """
    if len(arguments) not in (2, 3):
        raise failure("save_checkpoint", f"it takes two or three arguments, got {len(arguments)}", error=TypeError,
                      hint="save_checkpoint(state, path), or save_checkpoint(model, optimizer, path)")
    *states, path = arguments
    if not isinstance(path, (str, os.PathLike)):
        raise failure("save_checkpoint", f"its last argument is a {type(path).__name__}, no path", error=TypeError,
                      hint="save_checkpoint(state, path), or save_checkpoint(model, optimizer, path)")
    found = tuple(map(_state_of, states))
    save(found if len(found) == 2 else found[0], path)


def load_checkpoint(path: Path, map_location: MapLocation = None) -> Any:
    """What `save_checkpoint` wrote: the state, or the states of the model and of the optimizer.

    Args:
        path: the file; one that `torch.save` wrote is read, too.
        map_location: as `genesis.load` takes it.

    Raises:
        OSError, ValueError: as `genesis.load` does.
    """
    return load(path, map_location)


def _state_of(value: Any) -> Any:
    if hasattr(value, "state_dict"):
        return value.state_dict()
    if type(value) is dict:
        return {key: part.state_dict() if hasattr(part, "state_dict") else part for key, part in value.items()}
    return value
