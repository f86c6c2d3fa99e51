"""The safetensors format: a length, a JSON header that says where each tensor is, the tensors' bytes.

    u64 n (little-endian) | n bytes: {"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, …} | bytes

The format is specified at https://huggingface.co/docs/safetensors. A reader trusts nothing: what the header says is
checked against the size of the file before anything of that size is allocated.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from genesis.ir.types import DType, dtype_named
from genesis.utils.sources import read_exactly, read_into

if TYPE_CHECKING:
    import numpy as np

METADATA: Final = "__metadata__"
"""The header's entry that is no tensor: texts by name."""

LONGEST_HEADER: Final = 100_000_000
"""Bytes of the longest header that readers of the format accept."""

MOST_DIMENSIONS: Final = 32
"""The most dimensions of a tensor; numpy before 2.0 has no more."""

DTYPES: Final = {"BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64",
                 "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"}
NAMES: Final = {name: word for word, name in DTYPES.items()}

ALIGNMENT: Final = 8
"""Bytes that the data's start is a multiple of, so that a mapped file's tensors are aligned."""


class Damaged(ValueError):
    """The file is not what the format says."""


@dataclass(frozen=True)
class Stored:
    """A tensor in a file: bytes start to end of the data."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    start: int
    end: int


def write(file: BinaryIO, arrays: Mapping[str, tuple[DType, np.ndarray]], metadata: Mapping[str, str]) -> None:
    """Write arrays in row-major order by name. Those of wide elements come first, so that all are aligned.

    Raises:
        ValueError: a name is no text that UTF-8 has a form for, or the header is too long.
    """
    order = sorted(arrays, key=lambda name: (-arrays[name][0].itemsize, name))
    header: dict[str, Any] = {METADATA: dict(metadata)}
    end = 0
    for name in order:
        dtype, array = arrays[name]
        start, end = end, end + array.nbytes
        header[name] = {"dtype": NAMES[dtype.name], "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    if len(text) > LONGEST_HEADER:
        raise ValueError(f"the names and the structure take {len(text)} bytes; readers accept {LONGEST_HEADER}")
    file.write(len(text).to_bytes(8, "little") + text)
    for name in order:
        file.write(_bytes_of(arrays[name][1]))


def read(file: BinaryIO, size: int) -> tuple[Iterator[tuple[str, np.ndarray, DType]], dict[str, str]]:
    """The tensors, read one by one as they are asked for, and the metadata.

    Args:
        file: at the first byte.
        size: in bytes, from there on.

    Raises:
        Damaged: it breaks the format, or has a tensor that Genesis has no dtype for. From the iterator, it is shorter
            than it was.
    """
    first = file.tell()
    header, start = _header(file, size)
    metadata = _metadata(header)
    stored = [_stored(name, entry) for name, entry in header.items()]
    _check_layout(stored, size - start)
    return _tensors(file, first + start, stored), metadata


def mapped(path: str | os.PathLike[str]) -> tuple[dict[str, tuple[np.ndarray, DType]], dict[str, str]]:
    """The tensors of a file by name, over its mapped bytes, and its metadata: what is not used is not read.

    What is written to an array stays in this process. One that does not lie at a multiple of its elements' size is a
    copy.

    Raises:
        OSError: the file cannot be opened.
        Damaged: it is not what the format says; nothing was mapped.
    """
    import numpy as np
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        header, start = _header(file, size)
        metadata = _metadata(header)
        stored = [_stored(name, entry) for name, entry in header.items()]
        _check_layout(stored, size - start)
        data = np.memmap(file, np.uint8, "c") if size > start else np.empty(size, np.uint8)
    found = {}
    for tensor in stored:
        array = np.asarray(data[start + tensor.start:start + tensor.end])
        if (start + tensor.start) % tensor.dtype.itemsize:
            array = array.copy()
        _check_values(tensor, array)
        found[tensor.name] = array.view(tensor.dtype.numpy).reshape(tensor.shape), tensor.dtype
    return found, metadata


def _metadata(header: dict[str, Any]) -> dict[str, str]:
    """The header's texts by name, which are taken out."""
    metadata = header.pop(METADATA, {})
    if not isinstance(metadata, dict) or not all(type(value) is str for value in metadata.values()):
        raise Damaged(f"{METADATA} is not texts by name")
    return metadata


def _check_values(tensor: Stored, array: np.ndarray) -> None:
    if tensor.dtype.name == "bool" and array.size and array.max() > 1:
        raise Damaged(f"{tensor.name!r} is of BOOL and has bytes that are neither 0 nor 1")


def _tensors(file: BinaryIO, start: int, stored: Sequence[Stored]) -> Iterator[tuple[str, np.ndarray, DType]]:
    import numpy as np
    for tensor in stored:
        array = np.empty(tensor.end - tensor.start, np.uint8)
        file.seek(start + tensor.start)
        if read_into(file, memoryview(array)) != array.size:  # type: ignore[arg-type]
            raise Damaged(f"it ends within {tensor.name!r}")
        _check_values(tensor, array)
        yield tensor.name, array.view(tensor.dtype.numpy).reshape(tensor.shape), tensor.dtype


def _header(file: BinaryIO, size: int) -> tuple[dict[str, Any], int]:
    """The header, and where the data begin."""
    length = int.from_bytes(read_exactly(file, 8), "little")
    if size < 8 or length > size - 8:
        raise Damaged(f"its header has {length} bytes, the file {size}" if size >= 8 else f"it has {size} bytes")
    if length > LONGEST_HEADER:
        raise Damaged(f"its header has {length} bytes; at most {LONGEST_HEADER} are read")
    text = read_exactly(file, length)
    if len(text) != length or not text.startswith(b"{"):
        raise Damaged("its header is no JSON object")
    found = parse(text.decode())
    if not isinstance(found, dict):
        raise Damaged("its header is no JSON object")
    return found, 8 + length


def parse(text: str) -> Any:
    """The value of a JSON text in which no object has a name twice.

    Raises:
        Damaged: it is none.
        RecursionError: the caller's stack has no room for it, though it is not nested deep.
    """
    try:
        return json.loads(text, object_pairs_hook=_once)
    except RecursionError:
        if not is_nested_deep(text):
            raise
        raise Damaged("its JSON is nested too deep") from None
    except Damaged:
        raise
    except ValueError as error:
        raise Damaged(f"its JSON is malformed: {error}") from None


DEEP: Final = 100
"""Levels of a JSON text from which on it is to blame where the stack ends: a tenth of Python's default limit."""


def is_nested_deep(text: str) -> bool:
    """Whether a JSON text has values `DEEP` levels inside of others.

    >>> is_nested_deep('{"a": "[[[["}'), is_nested_deep("[" * 200 + "]" * 200)
    (False, True)
    """
    levels = accumulate(_LEVELS.get(found[0], 0) for found in _BRACKETS.finditer(text))
    return any(level >= DEEP for level in levels)  # which goes no further


_BRACKETS: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[][{}]')
"""What begins or ends a level, and whole strings, in which nothing does."""

_LEVELS: Final = {"[": 1, "{": 1, "]": -1, "}": -1}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Damaged(f"{twice[:80]!r} occurs twice")
    return found


def _stored(name: str, entry: Any) -> Stored:
    """The header's entry of a tensor."""
    parts: list[Any] = [None] * 3
    if isinstance(entry, dict):
        parts = [entry.get(part) for part in ("dtype", "shape", "data_offsets")]
    word, shape, offsets = parts
    if type(word) is not str or not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
        raise Damaged(f"{name[:80]!r} has no dtype, shape and data_offsets")
    if word not in DTYPES:
        raise Damaged(f"{name[:80]!r} is of {word[:20]}, which Genesis has no dtype for; it reads {', '.join(DTYPES)}")
    if len(shape) > MOST_DIMENSIONS:
        raise Damaged(f"{name[:80]!r} has {len(shape)} dimensions; at most {MOST_DIMENSIONS} are read")
    dtype, (start, end) = dtype_named(DTYPES[word]), offsets
    if end - start != prod(shape) * dtype.itemsize:
        raise Damaged(f"{name[:80]!r} of {word}{shape} has {end - start} bytes")
    if prod(size for size in shape if size) * dtype.itemsize >= 1 << 63:  # strides count the sizes beside a 0, too
        raise Damaged(f"{name[:80]!r} has sizes {shape} that no array can have")
    return Stored(name, dtype, tuple(shape), start, end)


def _are_sizes(x: Any) -> bool:
    return type(x) is list and all(type(size) is int and 0 <= size < 1 << 63 for size in x)


def _check_layout(stored: Sequence[Stored], size: int) -> None:
    """Tensors follow each other without holes and overlaps, to the end of the file."""
    end = 0
    for tensor in sorted(stored, key=lambda tensor: (tensor.start, tensor.end)):
        if tensor.start != end:
            raise Damaged(f"{tensor.name[:80]!r} begins at byte {tensor.start}, the tensor before it ends at {end}")
        end = tensor.end
    if end != size:
        raise Damaged(f"its tensors have {end} bytes, its data {size}")


def _bytes_of(array: np.ndarray) -> memoryview:
    import numpy as np
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))  # type: ignore[arg-type]
