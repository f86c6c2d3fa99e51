"""Saving and loading: nested dictionaries and lists of tensors in one safetensors file.

The tensors are the file's entries, named by their paths, so that any tool reads them. The
structure around them is JSON in the file's metadata. Nothing in a file is ever executed.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from genesis.ir.errors import failure
from genesis.ir.types import cpu
from genesis.ops.creation import DeviceLike, from_host
from genesis.tensor import Tensor

STRUCTURE: Final = "genesis.structure"
"""The metadata's key. A value is a plain JSON one, or an object with one of the keys below."""
TENSOR, DICT, LIST, TUPLE = "tensor", "dict", "list", "tuple"

_PLAIN = (bool, int, float, str, type(None))


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write an object to a file, all of it or nothing: a crash leaves the old file as it was.

    A tensor that is found at several places is written once. Computes what is still pending.

    Args:
        obj: tensors, numbers, strings, booleans and None in dictionaries, lists and tuples: what
            `state_dict()` gives.
        path: where to write; an existing file is replaced.

    Raises:
        TypeError: something in the object cannot be saved; names where it is.

    >>> import genesis, tempfile
    >>> path = tempfile.mkdtemp() + "/checkpoint.safetensors"
    >>> save({"step": 3, "weights": [genesis.ones(2)]}, path)
    >>> load(path)
    {'step': 3, 'weights': [tensor([1., 1.])]}
    """
    from safetensors.numpy import save_file
    entries: dict[str, Tensor] = {}
    structure = _describe(obj, "", entries, {})
    arrays = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in entries.items()}
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    os.close(handle)
    try:
        save_file(arrays, temporary, metadata={STRUCTURE: json.dumps(structure)})
        _sync(temporary)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load(path: str | os.PathLike[str], map_location: DeviceLike = None) -> Any:
    """Read what `save` wrote. A safetensors file of another tool gives its tensors by name.

    Args:
        path: the file.
        map_location: the device of the tensors, the CPU by default.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, or no safetensors file.
    """
    from safetensors import SafetensorError, safe_open
    if not Path(path).is_file():
        raise FileNotFoundError(f"no file {os.fspath(path)!r} to load")
    try:
        with safe_open(os.fspath(path), framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise failure("load", f"{os.fspath(path)!r} is damaged or no safetensors file ({error})", error=ValueError,
                      hint="genesis.save writes the files that genesis.load reads") from None
    tensors = {}
    for name, array in arrays.items():
        tensor = from_host(array, cpu)
        tensors[name] = tensor if map_location is None else tensor.to(map_location)
    if STRUCTURE not in metadata:
        return tensors
    try:
        return _rebuild(json.loads(metadata[STRUCTURE]), tensors)
    except (KeyError, ValueError, TypeError) as error:
        raise failure("load", f"the structure in {os.fspath(path)!r} is damaged ({error})", error=ValueError) from None


def _describe(obj: Any, path: str, entries: dict[str, Tensor], names: dict[tuple[Any, ...], str]) -> Any:
    """The JSON value for an object. Adds its tensors to `entries`.

    `names` holds the entry of each (storage, part of it): aliases share one.
    """
    if isinstance(obj, Tensor):
        part = (id(obj.storage), obj.dtype, obj.type.shape, obj.stride(), obj.storage_offset())
        if part not in names:
            names[part] = _unused(path or TENSOR, entries)
            entries[names[part]] = obj
        return {TENSOR: names[part]}
    if type(obj) in _PLAIN:
        return obj
    if isinstance(obj, Mapping):
        return {DICT: [[_key(key, path), _describe(value, _join(path, key), entries, names)]
                       for key, value in obj.items()]}
    if isinstance(obj, (list, tuple)):
        items = [_describe(value, _join(path, index), entries, names) for index, value in enumerate(obj)]
        return {LIST if isinstance(obj, list) else TUPLE: items}
    if hasattr(obj, "item") and getattr(obj, "ndim", None) == 0:  # a numpy scalar
        return obj.item()
    raise failure("save", f"a {type(obj).__name__} at {path or 'the top'!r} cannot be saved", error=TypeError,
                  hint="tensors, numbers, strings, None in dictionaries, lists and tuples; state_dict() of an object")


def _rebuild(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `_describe`."""
    if not isinstance(value, dict):
        return value
    (kind, content), = value.items()
    if kind == TENSOR:
        return tensors[content]
    if kind == DICT:
        return {key: _rebuild(item, tensors) for key, item in content}
    items = [_rebuild(item, tensors) for item in content]
    if kind == LIST:
        return items
    if kind == TUPLE:
        return tuple(items)
    raise ValueError(f"unknown kind {kind!r}")


def _key(key: Any, path: str) -> Any:
    if type(key) not in _PLAIN:
        raise failure("save", f"the key {key!r} at {path or 'the top'!r} cannot be saved", error=TypeError,
                      hint="strings or numbers as keys")
    return key


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _unused(name: str, entries: Mapping[str, Tensor]) -> str:
    """The name, or with a number when it is taken: {"a.b": x, "a": {"b": y}} has two of "a.b"."""
    candidate, number = name, 1
    while candidate in entries or candidate == "__metadata__":  # the format's own word
        number += 1
        candidate = f"{name}#{number}"
    return candidate


def _sync(path: str) -> None:
    """Bring the file to the disk, so that the rename cannot come before its content."""
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
