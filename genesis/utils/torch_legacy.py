"""The legacy format of `torch.save`: before version 1.6, and with `_use_new_zipfile_serialization=False` since.

    a number ─ 1001 ─ the machine ─ the object ─ keys of its storages ─ for each: its elements (8 bytes), their bytes

The first five are pickles, one after another. Where the storages lie is known behind all of them, so the object's
pickle is gone through twice: once with tensors that have no memory, which tells where it ends and what storages it
asks for, and again, by `torch_file`, when these were found to be in the file.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from genesis.utils.restricted_pickle import Interpreter
from genesis.utils.safetensors_file import Damaged
from genesis.utils.sources import Source, read_exactly
from genesis.utils.torch_archive import LONGEST_PICKLE, Archive

MAGIC: Final = 0x1950A86A20F9469CFC6C
"""The number that the file begins with."""

IN_A_PICKLE: Final = b"\x8a\n" + MAGIC.to_bytes(10, "little")
"""How a pickle of any protocol has it."""

VERSION: Final = 1001
"""The version of the format that follows the number."""


def is_legacy(start: bytes) -> bool:
    """Whether a file begins so: with the number's pickle, perhaps in a frame.

    >>> import pickle
    >>> [is_legacy(pickle.dumps(number, protocol)) for number in (MAGIC, MAGIC + 1) for protocol in (2, 4)]
    [True, True, False, False]
    """
    return start.find(IN_A_PICKLE, 0, 2 * len(IN_A_PICKLE)) >= 0


def open_legacy(source: Source, measure: Callable[[bytes, int, Archive], tuple[int, dict[str, tuple[int, int]]]],
                refusal: Callable[[str], str]) -> tuple[Archive, bytes]:
    """Where a file's storages are, and the pickle of its object.

    Args:
        source: the file, at its start.
        measure: goes through the pickle at a place of some bytes, and fills an archive with the storages that it asks
            for as if they were there: (where it ends, key → (elements, bytes of one)).
        refusal: says why a name is not on the list.

    Raises:
        Damaged: the file is cut, or not as torch writes it.
    """
    start = source.file.tell()
    data = read_exactly(source.file, min(source.size, LONGEST_PICKLE))
    number, at = _value(data, 0, refusal)
    version, at = _value(data, at, refusal)
    if number != MAGIC or type(version) is not int or version != VERSION:
        raise Damaged("it is in torch's legacy format, of another version than the one that is read")
    _, at = _value(data, at, refusal)
    end, storages = measure(data, at, Archive(source, {}, False))
    program = data[at:end]
    keys, at = _value(data, end, refusal)
    if type(keys) is not list or not all(type(key) is str for key in keys) or sorted(keys) != sorted(storages):
        raise Damaged("the storages behind its pickle are not those that it asks for")
    del data
    return Archive(source, _places(source, start + at, start, keys, storages), False), program


def _value(data: bytes, at: int, refusal: Callable[[str], str]) -> tuple[Any, int]:
    """The numbers, texts and containers of the pickle at a place, and where it ends."""
    def outside(identifier: Any) -> Any:
        raise Damaged("a part of it refers to a storage, which has none")
    reader = Interpreter(data, {}, outside, refusal, at)
    return reader.run(), reader.at


def _places(source: Source, at: int, start: int, keys: list[Any],
            storages: dict[str, tuple[int, int]]) -> dict[str, tuple[int, int]]:
    """"data/key" → (first byte, bytes) of the storages, which lie in the order of the keys."""
    found: dict[str, tuple[int, int]] = {}
    for key in keys:
        numel, itemsize = storages[key]
        source.file.seek(at)
        head = read_exactly(source.file, 8)
        if len(head) != 8 or at + 8 + numel * itemsize > start + source.size:
            raise Damaged(f"it ends within the storage {key[:80]!r}")
        if (there := struct.unpack("<q", head)[0]) != numel:
            raise Damaged(f"the storage {key[:80]!r} has {there} elements, where {numel} are asked for")
        found[f"data/{key}"] = at + 8, numel * itemsize
        at += 8 + numel * itemsize
    return found
