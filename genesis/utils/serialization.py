"""Saving and loading: nested dictionaries and lists of tensors in one safetensors file.

The tensors are the file's entries, named by their paths, so that any tool reads them. The
structure around them is JSON in the file's metadata. Nothing in a file is ever executed.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO, Final

from genesis.frontend.host_values import from_host
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import cpu
from genesis.ops.creation import DeviceLike
from genesis.utils.atomic_file import replace_file
from genesis.utils.safetensors_file import Damaged, parse, read, write

STRUCTURE: Final = "genesis.structure"
"""The metadata's key. A value is a plain JSON one, or an object with one of the keys below."""
TENSOR, DICT, LIST, TUPLE = "tensor", "dict", "list", "tuple"

MOST_NESTED: Final = 150
"""Dictionaries, lists and tuples inside of each other. Each takes three levels of JSON, of which Python's reader and
others' accept about a thousand."""

_PLAIN = (bool, int, float, str, type(None))


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Write an object to a file, all of it or nothing: a crash leaves the old file as it was.

    A tensor that is found at several places is written once. Computes what is still pending.

    Args:
        obj: tensors, numbers, strings, booleans and None in dictionaries, lists and tuples: what
            `state_dict()` gives.
        path: where to write; an existing file is replaced and keeps its permissions.

    Raises:
        TypeError: something in the object cannot be saved; names where it is.
        ValueError: it is nested too deep, or has text that UTF-8 has no form for.
        OSError: the file cannot be written; names it.

    >>> import genesis, tempfile
    >>> path = tempfile.mkdtemp() + "/checkpoint.safetensors"
    >>> save({"step": 3, "weights": [genesis.ones(2)]}, path)
    >>> load(path)
    {'step': 3, 'weights': [tensor([1., 1.])]}
    """
    replace_file(path, prepared(obj))


def prepared(obj: Any) -> Callable[[BinaryIO], None]:
    """What writes an object to a file; see `save`. The tensors' values are those of now."""
    entries: dict[str, Tensor] = {}
    described = _describe(obj, "", entries, {}, 0)
    try:
        structure = json.dumps(described)
    except ValueError as error:  # a number of thousands of digits
        raise failure("save", str(error), error=ValueError) from None
    arrays = {name: (tensor.dtype, tensor.detach().cpu().contiguous().numpy()) for name, tensor in entries.items()}
    return lambda file: write(file, arrays, {STRUCTURE: structure})


def load(path: str | os.PathLike[str], map_location: DeviceLike = None) -> Any:
    """Read what `save` wrote. A safetensors file of another tool gives its tensors by name.

    Args:
        path: the file.
        map_location: the device of the tensors, the CPU by default.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError and other OSError: it cannot be read.
        ValueError: it is damaged or no safetensors file, has a tensor of a dtype that Genesis does not have (U16, U32,
            U64, the F8 and F4 formats, complex numbers), or a structure that `save` does not write. Nothing that a file
            says makes this allocate more than the file is large.
        MemoryError: the file is larger than memory.

    >>> import genesis, tempfile
    >>> path = tempfile.mkdtemp() + "/weights.safetensors"
    >>> save({"w": genesis.ones(2, dtype=genesis.bfloat16)}, path)
    >>> load(path, map_location="cpu")["w"]
    tensor([1., 1.], dtype=genesis.bfloat16)
    """
    tensors = {}
    try:
        with _opened(path) as file:
            arrays, metadata = read(file, os.fstat(file.fileno()).st_size)
            for name, array, _ in arrays:
                tensor = from_host(array, cpu)
                tensors[name] = tensor if map_location is None else tensor.to(map_location)
    except (Damaged, UnicodeDecodeError) as error:
        raise failure("load", f"{os.fspath(path)!r} is damaged or no safetensors file ({error})", error=ValueError,
                      hint="genesis.save writes the files that genesis.load reads") from None
    except MemoryError:
        raise failure("load", f"there is no memory for what is in {os.fspath(path)!r}", error=MemoryError) from None
    if STRUCTURE not in metadata:
        return tensors
    try:
        return _rebuild(parse(metadata[STRUCTURE]), tensors)
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise failure("load", f"the structure in {os.fspath(path)!r} is damaged ({type(error).__name__}: {error})",
                      hint="genesis.save writes the files that genesis.load reads", error=ValueError) from None


def _opened(path: str | os.PathLike[str]) -> BinaryIO:
    """A regular file, open for reading. A pipe or a device would be read for ever."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no file to load", os.fspath(path)) from None
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return open(handle, "rb", buffering=0)
    os.close(handle)
    if stat.S_ISDIR(kind):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    raise failure("load", f"{os.fspath(path)!r} is no regular file", error=ValueError)


def _describe(obj: Any, path: str, entries: dict[str, Tensor], names: dict[tuple[Any, ...], str], depth: int) -> Any:
    """The JSON value for an object. Adds its tensors to `entries`.

    `names` holds the entry of each (storage, part of it): aliases share one.
    """
    if depth > MOST_NESTED:
        raise failure("save", f"more than {MOST_NESTED} dictionaries, lists and tuples inside of each other",
                      error=ValueError, hint="an object that contains itself cannot be saved")
    if isinstance(obj, Tensor):
        part = (id(obj.storage), obj.dtype, obj.type.shape, obj.stride(), obj.storage_offset())
        if part not in names:
            names[part] = _unused(_checked(path) or TENSOR, entries)
            entries[names[part]] = obj
        return {TENSOR: names[part]}
    if type(obj) in _PLAIN:
        return obj
    if isinstance(obj, Mapping):
        return {DICT: [[_key(key, path), _describe(value, _join(path, key), entries, names, depth + 1)]
                       for key, value in obj.items()]}
    if isinstance(obj, (list, tuple)):
        items = [_describe(value, _join(path, index), entries, names, depth + 1) for index, value in enumerate(obj)]
        return {LIST if isinstance(obj, list) else TUPLE: items}
    if hasattr(obj, "item") and getattr(obj, "ndim", None) == 0:  # a numpy scalar
        return obj.item()
    raise failure("save", f"a {type(obj).__name__} at {path or 'the top'!r} cannot be saved", error=TypeError,
                  hint="tensors, numbers, strings, None in dictionaries, lists and tuples; state_dict() of an object")


def _rebuild(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `_describe`. Whatever that does not write raises."""
    if type(value) in _PLAIN:
        return value
    if type(value) is not dict or len(value) != 1:
        raise ValueError(f"a {type(value).__name__} that describes nothing")
    (kind, content), = value.items()
    if kind == TENSOR:
        return tensors[content]
    if type(content) is not list:
        raise ValueError(f"a {kind[:20]} of {type(content).__name__}")
    if kind == DICT:
        return _rebuild_dictionary(content, tensors)
    items = [_rebuild(item, tensors) for item in content]
    if kind == LIST:
        return items
    if kind == TUPLE:
        return tuple(items)
    raise ValueError(f"unknown kind {kind[:20]!r}")


def _rebuild_dictionary(pairs: list[Any], tensors: Mapping[str, Tensor]) -> dict[Any, Any]:
    found = {}
    for pair in pairs:
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) not in _PLAIN:
            raise ValueError("a dictionary's item is no key and value")
        found[pair[0]] = _rebuild(pair[1], tensors)
    if len(found) != len(pairs):
        raise ValueError("a dictionary has a key twice")
    return found


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


def _checked(path: str) -> str:
    """A tensor's path, which is its name in the file."""
    try:
        path.encode()
    except UnicodeEncodeError:
        raise failure("save", f"the name {path!r} of a tensor has no form in UTF-8", error=ValueError,
                      hint="another key") from None
    return path
