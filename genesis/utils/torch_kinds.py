"""What torch's files call storages and dtypes, and what stands for it while one is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from genesis.ir.types import DType, dtype_named
from genesis.utils.safetensors_file import Damaged

STORAGES: Final = {"DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
                   "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32",
                   "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool"}
"""Classes of storages that are read → the dtype of their elements."""

FOREIGN_STORAGES: Final = ("ComplexFloatStorage", "ComplexDoubleStorage", "QInt8Storage", "QUInt8Storage",
                           "QInt32Storage", "QUInt4x2Storage", "QUInt2x4Storage")
DTYPES: Final = (*STORAGES.values(),)
FOREIGN_DTYPES: Final = ("uint16", "uint32", "uint64", "complex32", "complex64", "complex128", "float8_e4m3fn",
                         "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2",
                         "quint8", "qint8", "qint32", "quint4x2", "quint2x4", "bits8", "bits16")


@dataclass(frozen=True)
class StorageKind:
    """A typed storage's class in torch; `name` is of a dtype that Genesis may not have."""

    name: str

    def dtype(self) -> DType:
        """Its elements' dtype; raises `Damaged` where Genesis has none."""
        return dtype_of(STORAGES.get(self.name, self.name))


@dataclass(frozen=True)
class ForeignDType:
    """A dtype of torch that Genesis does not have."""

    name: str


@dataclass(frozen=True)
class Kind:
    """A class of torch's that is named, and never called."""

    name: str


UNTYPED: Final = Kind("torch.storage.UntypedStorage")
"""A storage of bytes: the dtype is said by the tensor over it."""


def dtype_of(name: str) -> DType:
    """The dtype of this name; raises `Damaged` where there is none."""
    if name not in DTYPES:
        raise no_such_dtype(name)
    return dtype_named(name)


def no_such_dtype(name: str) -> Damaged:
    """What is raised of a tensor of torch's dtype of this name."""
    return Damaged(f"a tensor in it is of torch's {name}, which Genesis has no dtype for; it reads {', '.join(DTYPES)}")
