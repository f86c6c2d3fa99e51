"""Saving and loading: nested dictionaries and lists of tensors in one safetensors file; reading files of torch's.

The tensors are the file's entries, named by their paths, so that any tool reads them. The
structure around them is JSON in the file's metadata. Nothing in a file is ever executed.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, BinaryIO, Final, cast

from genesis.frontend.host_values import from_host
from genesis.frontend.recording import wrap_memory
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure, kind_of
from genesis.ir.suggest import suggesting
from genesis.ir.types import cpu, tensor_type
from genesis.utils.atomic_file import replace_file
from genesis.utils.locations import MapLocation, placing
from genesis.utils.safetensors_file import Damaged, is_nested_deep, mapped, parse, read, write
from genesis.utils.saved_values import FORMS, form_of
from genesis.utils.sources import Sink, Source, opened
from genesis.utils.torch_file import is_torch_file, read_torch_file

__path__: list[str] = []
"""No folder: an import of a module below comes to the finder that says what to use instead (`ir/absent.py`)."""

STRUCTURE: Final = "genesis.structure"
"""The metadata's key. A value is a plain JSON one, or an object with one of the keys below."""
VERSIONS: Final = "genesis.versions"
"""The metadata's key of `_metadata`: [path, what the dictionary there has], where a dictionary has such an attribute,
as a module's state dict does. Readers that do not know of it read all else."""

TENSOR, DICT, LIST, TUPLE, BYTES, ARRAY = "tensor", "dict", "list", "tuple", "bytes", "array"

ARRAY_KINDS: Final = "biufc"
"""numpy's kinds of dtypes whose arrays are bytes and nothing else: no objects, no records, no texts."""

MOST_NESTED: Final = 150
"""Dictionaries, lists and tuples inside of each other. Each takes three levels of JSON, of which Python's reader and
others' accept about a thousand."""

_PLAIN = (bool, int, float, str, type(None))


def save(obj: Any, f: str | os.PathLike[str] | BinaryIO) -> None:
    """Write an object to a file, all of it or nothing: a crash leaves the old file as it was.

    A tensor that is found at several places is written once. Computes what is still pending.

    Args:
        obj: tensors, arrays of numpy's, numbers, strings, bytes, booleans and None in dictionaries, lists and tuples:
            what `state_dict()` gives, with the versions of a module's parts (`_metadata`), and what
            `numpy.random.get_state()` and `random.getstate()` give. Also arguments (`argparse.Namespace`), dtypes,
            devices, paths and sets.
        f: where to write; an existing file is replaced and keeps its permissions. Or a file that is open for bytes,
            which gets them where it stands.

    Raises:
        TypeError: something in the object cannot be saved; names where it is. Or `f` is no path and no such file.
        ValueError: it is nested too deep, or has text that UTF-8 has no form for.
        OSError: the file cannot be written; names it.

    >>> import genesis, tempfile
    >>> path = tempfile.mkdtemp() + "/checkpoint.safetensors"
    >>> save({"step": 3, "weights": [genesis.ones(2)]}, path)
    >>> load(path)
    {'step': 3, 'weights': [tensor([1., 1.])]}
    """
    if isinstance(f, (str, bytes, os.PathLike)):
        replace_file(f, prepared(obj))
        return
    sink = Sink(f)
    prepared(obj)(cast(BinaryIO, sink))


def elements(tensor: Tensor) -> Any:
    """A tensor's elements as a numpy array in row-major order."""
    return tensor.detach().cpu().contiguous().numpy()


def prepared(obj: Any, elements_of: Callable[[Tensor], Any] = elements) -> Callable[[BinaryIO], None]:
    """What writes an object to a file; see `save`. The tensors' values are those of now, read by `elements_of`."""
    entries: dict[str, Tensor] = {}
    described = _describe(obj, "", entries, {}, 0)
    versions = [[path, _describe(found, VERSIONS, entries, {}, 0)] for path, found in _versions(obj, [])]
    try:
        texts = {STRUCTURE: json.dumps(described), **({VERSIONS: json.dumps(versions)} if versions else {})}
    except ValueError as error:  # a number of thousands of digits
        raise failure("save", str(error), error=ValueError) from None
    arrays = {name: (tensor.dtype, elements_of(tensor)) for name, tensor in entries.items()}
    return lambda file: write(file, arrays, texts)


def load(f: str | os.PathLike[str] | BinaryIO, map_location: MapLocation = None, *, weights_only: bool | None = None,
         mmap: bool | None = None) -> Any:
    """Read what `save` wrote, or `torch.save`. A safetensors file of another tool gives its tensors by name.

    Args:
        f: the file's path, or a file that is open for bytes and can seek: from where it stands to its end.
        map_location: the device of the tensors, the CPU by default; a dictionary of the devices that a file of torch's
            names; or a function of a storage's tensor and that name.
        weights_only: taken for torch's sake: nothing in a file is ever executed. False warns that it changes nothing.
        mmap: tensors on the CPU are the file's pages, which are read when they are used. What is written to them is
            not written to the file, which must stay as it is while they live. Needs a path.

    Raises:
        FileNotFoundError, IsADirectoryError, PermissionError and other OSError: it cannot be read.
        TypeError: `f` is neither a path nor a file that is open for bytes.
        ValueError: it is damaged, or no file of safetensors or torch's; it has a tensor of a dtype that Genesis does
            not have (U16, U32, U64, the F8 and F4 formats, complex), a structure that `save` does not write, or, a
            file of torch's, anything but tensors, numbers, texts, bytes and containers of them. Nothing that a file
            says makes this allocate more than the file is large, beside Python's objects for its structure.
        MemoryError: the file is larger than memory.
        RecursionError: the caller's stack has no room for it.

    >>> import genesis, io
    >>> file = io.BytesIO()
    >>> save({"w": genesis.ones(2, dtype=genesis.bfloat16)}, file)
    >>> load(io.BytesIO(file.getvalue()), map_location="cpu")["w"]
    tensor([1., 1.], dtype=genesis.bfloat16)
    """
    if weights_only is False:
        warnings.warn("genesis.load(weights_only=False) reads what weights_only=True reads: nothing in a file is "
                      "executed", stacklevel=2)
    place = placing(map_location)
    with opened(f) as source:
        if mmap and source.path is None:
            raise failure("load", f"mmap=True needs a file's path, not {source.name}", error=ValueError,
                          hint="load(path, mmap=True)")
        try:
            head = source.file.read(9)
            source.file.seek(-len(head), os.SEEK_CUR)
            if is_torch_file(head):
                return read_torch_file(source, place, bool(mmap))
            tensors, texts = _entries(source, place, bool(mmap))
        except (Damaged, UnicodeDecodeError) as error:
            kind = "file of torch's that is read" if is_torch_file(head) else "safetensors file"
            raise failure("load", f"{source.name} is damaged or no {kind} ({error})", error=ValueError,
                          hint="genesis.save writes the files that genesis.load reads") from None
        except MemoryError:
            raise failure("load", f"there is no memory for what is in {source.name}", error=MemoryError) from None
        if STRUCTURE not in texts:
            return tensors
        try:
            return _rebuild(parse(texts[STRUCTURE]), tensors, _rebuilt_versions(texts.get(VERSIONS, "[]"), tensors))
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            if isinstance(error, RecursionError) and not is_nested_deep(texts[STRUCTURE]):
                raise
            raise failure("load", f"the structure in {source.name} is damaged ({type(error).__name__}: {error})",
                          hint="genesis.save writes the files that genesis.load reads", error=ValueError) from None


def _entries(source: Source, place: Callable[[Tensor, str], Tensor],
             map: bool) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a safetensors file by name, and its metadata."""
    if not map:
        arrays, metadata = read(source.file, source.size)
        tensors = {name: place(from_host(array, cpu), "cpu") for name, array, _ in arrays}
        return tensors, metadata
    from genesis.runtime.cpu.storage import CPUStorage
    assert source.path is not None
    pages, metadata = mapped(source.path)
    return {name: place(wrap_memory(CPUStorage.wrap(array), tensor_type(array.shape, dtype, cpu)), "cpu")
            for name, (array, dtype) in pages.items()}, metadata


def _describe(obj: Any, path: str, entries: dict[str, Tensor], names: dict[tuple[Any, ...], str], depth: int) -> Any:
    """The JSON value for an object. Adds its tensors to `entries`.

    `names` holds the entry of each (storage, part of it): aliases share one.
    """
    if depth > MOST_NESTED:
        raise failure("save", f"more than {MOST_NESTED} dictionaries, lists and tuples inside of each other",
                      error=ValueError, hint="an object that contains itself cannot be saved")
    if isinstance(obj, Tensor):
        part = (id(obj.storage), obj.dtype, obj.spec.shape, obj.stride(), obj.storage_offset())
        if part not in names:
            names[part] = _unused(_checked(path) or TENSOR, entries)
            entries[names[part]] = obj
        return {TENSOR: names[part]}
    if type(obj) in _PLAIN:
        return obj
    if type(obj) is bytes:
        return {BYTES: base64.b64encode(obj).decode()}
    if isinstance(obj, Mapping):
        return {DICT: [[_key(key, path), _describe(value, _join(path, key), entries, names, depth + 1)]
                       for key, value in obj.items()]}
    if isinstance(obj, (list, tuple)):
        items = [_describe(value, _join(path, index), entries, names, depth + 1) for index, value in enumerate(obj)]
        return {LIST if isinstance(obj, list) else TUPLE: items}
    if (array := _array_bytes(obj)) is not None:
        name = _unused(_checked(path) or ARRAY, entries)
        entries[name] = from_host(array, cpu)
        return {ARRAY: [name, obj.dtype.str, list(obj.shape)]}
    if hasattr(obj, "item") and getattr(obj, "ndim", None) == 0 and type(number := obj.item()) in _PLAIN:
        return number  # a scalar of numpy's
    if (form := form_of(obj)) is not None:
        return {form: _describe(FORMS[form].plain(obj), path, entries, names, depth + 1)}
    raise failure("save", f"a {kind_of(obj)} at {path or 'the top'!r} cannot be saved", error=TypeError,
                  hint="tensors, arrays, numbers, strings, bytes, None, in dicts, lists, tuples, sets; a state_dict()")


def _array_bytes(obj: Any) -> Any:
    """The bytes of an array of numpy's, as one more, since a file has no form for all dtypes; None of what is none."""
    import numpy as np
    if not isinstance(obj, np.ndarray) or obj.dtype.kind not in ARRAY_KINDS:
        return None
    return np.frombuffer(bytearray(obj.tobytes()), np.uint8)


def _rebuilt_array(content: list[Any], tensors: Mapping[str, Tensor]) -> Any:
    """The array, whose bytes are an entry of the file."""
    import numpy as np
    name, text, shape = content
    if type(text) is not str or type(shape) is not list or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError("an array without a dtype and a shape")
    dtype = np.dtype(text)
    if dtype.kind not in ARRAY_KINDS:
        raise ValueError(f"an array of dtype {text[:20]!r}")
    found = tensors[name].detach().cpu().numpy()
    if found.dtype != np.uint8:
        raise ValueError("an array's bytes are no bytes")
    return np.frombuffer(found.tobytes(), dtype).reshape(shape).copy()


def _versions(obj: Any, path: list[Any]) -> Iterator[tuple[list[Any], Any]]:
    """The path and the `_metadata` of each dictionary that has one."""
    if isinstance(obj, Mapping):
        found = getattr(obj, "_metadata", None)
        if found:
            yield path, found
        for key, value in obj.items():
            yield from _versions(value, [*path, key])
    elif isinstance(obj, (list, tuple)):
        for index, value in enumerate(obj):
            yield from _versions(value, [*path, index])


Versions = dict[tuple[Any, ...], Any]
"""Path of a dictionary → its `_metadata`."""


def _rebuilt_versions(text: str, tensors: Mapping[str, Tensor]) -> Versions:
    found: Versions = {}
    for pair in parse(text):
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) is not list or not all(
                type(key) in _PLAIN for key in pair[0]):
            raise ValueError("a version without a path")
        found[tuple(pair[0])] = _rebuild(pair[1], tensors, {})
    return found


def _rebuild(value: Any, tensors: Mapping[str, Tensor], versions: Versions, path: tuple[Any, ...] = ()) -> Any:
    """The inverse of `_describe`. Whatever that does not write raises."""
    if type(value) in _PLAIN:
        return value
    if type(value) is not dict or len(value) != 1:
        raise ValueError(f"a {type(value).__name__} that describes nothing")
    (kind, content), = value.items()
    if kind == TENSOR:
        return tensors[content]
    if kind == BYTES:
        return _bytes(content)
    if kind in FORMS:
        return FORMS[kind].rebuilt(_rebuild(content, tensors, versions, path))
    if type(content) is not list:
        raise ValueError(f"a {kind[:20]} of {type(content).__name__}")
    if kind == ARRAY:
        return _rebuilt_array(content, tensors)
    if kind == DICT:
        return _rebuild_dictionary(content, tensors, versions, path)
    items = [_rebuild(item, tensors, versions, (*path, index) if versions else ())
             for index, item in enumerate(content)]
    if kind == LIST:
        return items
    if kind == TUPLE:
        return tuple(items)
    raise ValueError(f"unknown kind {kind[:20]!r}")


def _bytes(content: Any) -> bytes:
    """The bytes that base64 has a text for."""
    if type(content) is not str:
        raise ValueError("bytes that are no text")
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise ValueError(f"bytes that are not base64 ({error})") from None


def _rebuild_dictionary(pairs: list[Any], tensors: Mapping[str, Tensor], versions: Versions,
                        path: tuple[Any, ...]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    if path in versions:
        found = OrderedDict()
        found._metadata = versions[path]  # type: ignore[attr-defined]
    for pair in pairs:
        if type(pair) is not list or len(pair) != 2 or type(pair[0]) not in _PLAIN:
            raise ValueError("a dictionary's item is no key and value")
        found[pair[0]] = _rebuild(pair[1], tensors, versions, (*path, pair[0]) if versions else ())
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

__getattr__ = suggesting(__name__)
