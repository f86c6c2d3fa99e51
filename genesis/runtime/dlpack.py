"""DLPack: memory with a shape and a dtype, handed from one library to another without a copy.

The structures are those of dlpack.h (https://dmlc.github.io/dlpack/latest/c_api.html), versions 0.8 ("dltensor"
capsules) and 1.x ("dltensor_versioned"). A capsule is used once: who takes the memory renames it and owes a call of
the deleter.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from genesis.ir.types import (
    Device,
    DType,
    bfloat16,
    bool_,
    cpu,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    row_major,
    uint8,
)

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
"""Values of dlpack.h's DLDeviceType."""

VERSION: Final = (1, 0)
"""The DLPack version that versioned capsules have here, as (major, minor)."""

READ_ONLY: Final = 1
"""Flag of a versioned capsule whose memory must not be written to."""

COPIED: Final = 2
"""Flag of a versioned capsule whose memory was copied for it."""

_DTYPES: Final[dict[DType, tuple[int, int]]] = {
    int8: (0, 8), int16: (0, 16), int32: (0, 32), int64: (0, 64), uint8: (1, 8), float16: (2, 16), float32: (2, 32),
    float64: (2, 64), bfloat16: (4, 16), bool_: (6, 8),
}
"""Each dtype's DLDataTypeCode and number of bits."""
_DTYPE_OF: Final = {code: dtype for dtype, code in _DTYPES.items()}

LEGACY, VERSIONED = b"dltensor", b"dltensor_versioned"
"""Names of capsules of versions 0.8 and 1.x."""


class _Device(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("index", ctypes.c_int32)]


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", _Device), ("ndim", ctypes.c_int32), ("dtype", _DataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", _Deleter), ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


@dataclass(frozen=True)
class Described:
    """Memory as DLPack describes it.

    Attributes:
        address: where the first element is.
        strides: steps between elements, in elements.
        read_only: whether its owner forbids writing.
        owner: an object that keeps the memory alive.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    device: Device
    read_only: bool = False
    owner: object = field(default=None, repr=False)


def device_code(device: Device) -> tuple[int, int]:
    """The pair that `__dlpack_device__` returns for a device.

    Raises:
        BufferError: DLPack has no name for such a device.

    >>> device_code(Device("cuda", 1))
    (2, 1)
    """
    if device is cpu:
        return CPU, 0
    if device.type == "cuda":
        return CUDA, device.index
    raise BufferError(f"__dlpack__: DLPack has no type for device {device}; copy the tensor with .cpu()")


# Handing memory out

_handed_out: Final[dict[int, tuple[object, ...]]] = {}
"""Memory that other libraries hold, by the address of its structure: kept alive until they call its deleter."""


def capsule_of(memory: Described, versioned: bool, copied: bool = False) -> object:
    """A capsule of the memory. `memory.owner` is dropped when whoever takes it no longer needs it."""
    shape = (ctypes.c_int64 * len(memory.shape))(*memory.shape)
    strides = (ctypes.c_int64 * len(memory.strides))(*memory.strides)
    code, bits = _DTYPES[memory.dtype]
    tensor = _Tensor(memory.address, _Device(*device_code(memory.device)), len(memory.shape), _DataType(code, bits, 1),
                     shape, strides, 0)
    managed: _Managed | _ManagedVersioned
    if versioned:
        flags = (READ_ONLY if memory.read_only else 0) | (COPIED if copied else 0)
        managed = _ManagedVersioned(*VERSION, None, _forget, flags, tensor)
    else:
        managed = _Managed(tensor, None, _forget)
    address = ctypes.addressof(managed)
    _handed_out[address] = managed, shape, strides, memory.owner
    return _new_capsule(address, VERSIONED if versioned else LEGACY, _drop_unused)


def _called_from_c(prototype: type[ctypes._CFunctionType]) -> Callable[[Callable], ctypes._CFunctionType]:
    """Make a C function of a Python one that lives as long as the process: others may call it late."""
    def decorate(function: Callable) -> ctypes._CFunctionType:
        made = prototype(function)
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(made))
        return made
    return decorate


@_called_from_c(_Deleter)
def _forget(address: int) -> None:
    if not sys.is_finalizing():
        _handed_out.pop(address, None)


@_called_from_c(ctypes.CFUNCTYPE(None, ctypes.c_void_p))
def _drop_unused(capsule: int) -> None:
    """The destructor of a capsule: memory that nobody took from it is released here."""
    for name in (LEGACY, VERSIONED):
        if _is_valid(capsule, name):
            _forget(_pointer(capsule, name))


# Taking memory in

class _Owner:
    """Owns memory that was taken from a capsule, and calls its deleter when nothing here uses it any more."""

    def __init__(self, managed: _Managed | _ManagedVersioned, address: int):
        self._managed, self._address = managed, address

    def __del__(self) -> None:
        if self._managed.deleter:
            self._managed.deleter(self._address)


def take_in(capsule: object) -> Described:
    """Take the memory of a capsule, which nobody else can take from it afterwards.

    Raises:
        RuntimeError: it is no DLPack capsule, or one that was used already.
        TypeError: no Genesis dtype holds its elements.
        BufferError: it is on a device that Genesis does not know, or of a DLPack version to come.
    """
    versioned = _is_valid(id(capsule), VERSIONED)
    name = VERSIONED if versioned else LEGACY
    if not _is_valid(id(capsule), name):
        raise RuntimeError("from_dlpack: the capsule holds no DLPack tensor; a capsule can be used only once")
    address = _pointer(id(capsule), name)
    managed = (_ManagedVersioned if versioned else _Managed).from_address(address)
    if versioned and managed.major != VERSION[0]:
        raise BufferError(f"from_dlpack: DLPack {managed.major}.{managed.minor} is not supported, {VERSION[0]}.x is")
    tensor = managed.tensor
    dtype, device = _dtype(tensor.dtype), _device(tensor.device)
    shape = tuple(tensor.shape[:tensor.ndim])
    strides = tuple(tensor.strides[:tensor.ndim]) if tensor.strides else row_major(shape)
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), _USED[name])
    return Described((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, device,
                     versioned and bool(managed.flags & READ_ONLY), _Owner(managed, address))


def _dtype(given: _DataType) -> DType:
    found = _DTYPE_OF.get((given.code, given.bits)) if given.lanes == 1 else None
    if found is None:
        raise TypeError(f"from_dlpack: no Genesis dtype holds elements of DLPack's type code {given.code} with "
                        f"{given.bits} bits in {given.lanes} lanes")
    return found


def _device(given: _Device) -> Device:
    if given.type in (CPU, CUDA_HOST):
        return cpu
    if given.type in (CUDA, CUDA_MANAGED):
        return Device("cuda", given.index)
    raise BufferError(f"from_dlpack: memory of DLPack's device type {given.type} is on no device of Genesis")


# Python's C functions. A capsule goes by its address where it may be dying: no reference may be made to it then.

ctypes.pythonapi.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_new_capsule: Final = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_is_valid: Final = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_pointer: Final = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
_USED: Final = {LEGACY: b"used_dltensor", VERSIONED: b"used_dltensor_versioned"}
"""Names of used capsules. A capsule does not copy its name, so these live as long as the process."""
