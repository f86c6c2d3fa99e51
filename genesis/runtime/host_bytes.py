"""A host buffer as a flat array of bytes, and its address."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from typing_extensions import Buffer

byte_of: Callable[[Any], ctypes.c_char] = ctypes.c_char.from_buffer  # an array has a buffer, and no type says so


def as_bytes(buffer: np.ndarray | Buffer, nbytes: int, writable: bool = False) -> np.ndarray:
    """A uint8 view of `buffer`, which must be contiguous and hold exactly `nbytes` bytes.

    Args:
        buffer: an ndarray, or anything with the buffer protocol (bytes, bytearray, memoryview, array).
        nbytes: how many bytes the other side of the copy has.
        writable: whether the caller means to write through the view.

    Raises:
        ValueError: the buffer is not contiguous, has another size, or cannot be written.

    >>> as_bytes(b"abc", 3)
    array([97, 98, 99], dtype=uint8)
    """
    if isinstance(buffer, np.ndarray):
        # An ndarray does not go through the buffer protocol: numpy refuses to export ml_dtypes' bfloat16.
        if not buffer.flags.c_contiguous:
            raise ValueError(f"an array of shape {buffer.shape} is not contiguous; copy np.ascontiguousarray of it")
        flat = buffer.reshape(-1).view(np.uint8)
    else:
        view = memoryview(buffer)
        if not view.c_contiguous:
            raise ValueError("cannot copy a non-contiguous buffer; pass bytes(buffer)")
        flat = np.frombuffer(view, np.uint8) if view.nbytes else np.empty(0, np.uint8)
    if flat.nbytes != nbytes:
        raise ValueError(f"cannot copy between {nbytes} bytes of memory and a buffer of {flat.nbytes} bytes")
    if writable and nbytes and not flat.flags.writeable:
        raise ValueError("cannot copy into a read-only buffer")
    return flat


def address_of(array: np.ndarray) -> int:
    """The address of the array's first element; 0 if it has none."""
    if array.nbytes == 0:
        return 0
    if array.flags.writeable:
        return ctypes.addressof(byte_of(array))
    return array.__array_interface__["data"][0]
