"""Files of `torch.save`, read without torch and without running anything that they say.

The archive (`torch_archive`; before version 1.6 `torch_legacy`) has a pickle, whose names are looked up in the table
below (`restricted_pickle`), and the bytes of the storages. Tensors that share a storage there share one here; a part of
a storage has to lie inside of it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Final

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.recording import wrap_memory
from genesis.frontend.tensor import Size, Tensor
from genesis.ir.types import Device, DType, cpu, dtype_named, tensor_type
from genesis.ops.creation import empty
from genesis.ops.diagonals import as_strided
from genesis.utils.restricted_pickle import Function, Interpreter, Outside, check_result, checked_key
from genesis.utils.safetensors_file import MOST_DIMENSIONS, Damaged
from genesis.utils.sources import Source, read_exactly, read_into
from genesis.utils.torch_archive import Archive, open_archive
from genesis.utils.torch_legacy import is_legacy, open_legacy

if TYPE_CHECKING:
    import numpy as np

ZIP: Final = b"PK\3\4"
STORAGES: Final = {"DoubleStorage": "float64", "FloatStorage": "float32", "HalfStorage": "float16",
                   "BFloat16Storage": "bfloat16", "LongStorage": "int64", "IntStorage": "int32",
                   "ShortStorage": "int16", "CharStorage": "int8", "ByteStorage": "uint8", "BoolStorage": "bool"}
FOREIGN_STORAGES: Final = ("ComplexFloatStorage", "ComplexDoubleStorage", "QInt8Storage", "QUInt8Storage",
                           "QInt32Storage", "QUInt4x2Storage", "QUInt2x4Storage")
DTYPES: Final = (*STORAGES.values(),)
FOREIGN_DTYPES: Final = ("uint16", "uint32", "uint64", "complex32", "complex64", "complex128", "float8_e4m3fn",
                         "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2",
                         "quint8", "qint8", "qint32", "quint4x2", "quint2x4", "bits8", "bits16")

MOST_ELEMENTS: Final = 1 << 62
"""Elements of a tensor, at the most, which may be one element of its storage again and again."""


def is_torch_file(start: bytes) -> bool:
    """Whether a file that begins so is a zip archive, or a pickle of torch's or another's.

    A safetensors file begins with a length below 10⁸, then a brace.
    """
    return (start[:4] == ZIP or (start[:1] == b"\x80" and start[1:2] in b"\2\3\4\5")) and start[8:9] != b"{"


def read_torch_file(source: Source, place: Callable[[Tensor, str], Tensor], mapped: bool) -> Any:
    """The object in a file of torch's.

    Args:
        source: the file.
        place: puts a storage's tensor on its device, given the device's name in the file.
        mapped: storages are the file's mapped pages, as far as they are on the CPU; writing to them changes no file.

    Raises:
        Damaged: it is no file of torch's, or says what is not read.
    """
    start = source.file.tell()
    head = read_exactly(source.file, 32)
    source.file.seek(start)
    if is_legacy(head):
        archive, program = open_legacy(source, _measured, _refusal)
    elif head[:4] == ZIP:
        archive = open_archive(source)
        program = archive.read("data.pkl")
    else:
        raise Damaged("it is a pickle, and a pickle is a program, which is not run; torch.save of dictionaries, lists "
                      "and tensors writes files that are read")
    reader = _Reader(archive, place, mapped)
    try:
        found = Interpreter(program, _allowed(), reader.storage, _refusal).run()
    except Outside as error:
        raise error.reason from None
    check_result(found, _LEAVES)
    return found


@dataclass
class _Memory:
    """A storage of the file. Its tensor is made when the first part of it is known.

    Attributes:
        base: the tensor over all of it, on its device; of the shape of the first part where that is all of it.
    """

    reader: _Reader
    key: str
    dtype: DType
    location: str
    numel: int
    base: Tensor | None = None

    def part(self, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
        """The tensor of these elements."""
        numel = prod(size)
        whole = offset == 0 and numel == self.numel and (not numel or stride == _row_major(size))
        if self.base is None:
            self.base = self.reader.tensor(self, size if whole else (self.numel,))
        if whole and tuple(self.base.shape) == size:
            return self.base.detach()
        return as_strided(self.base.detach(), size, stride, offset)


@dataclass
class _Untyped:
    """A storage of bytes, whose dtype the tensor over it says."""

    reader: _Reader
    key: str
    location: str
    nbytes: int


@dataclass
class _Reader:
    """Makes tensors of the storages of an archive."""

    archive: Archive
    place: Callable[[Tensor, str], Tensor]
    mapped: bool
    memories: dict[str, _Memory] = field(default_factory=dict)
    pages: Any = None

    def storage(self, identifier: Any) -> _Memory | _Untyped:
        """The storage that a pickle's persistent identifier means: ("storage", kind, key, location, elements), and None
        behind these in the legacy format."""
        if type(identifier) is not tuple or len(identifier) not in (5, 6) or type(
                identifier[0]) is not str or identifier[0] != "storage":
            raise Damaged("its pickle refers to something that is no storage: a module with its source, perhaps, which "
                          "is code; save model.state_dict()")
        _, kind, key, location, numel = identifier[:5]
        if len(identifier) == 6 and identifier[5] is not None:
            raise Damaged("its pickle has a part of a storage for a storage, as torch wrote before 0.4")
        if type(key) is not str or type(location) is not str or type(numel) is not int or numel < 0:
            raise Damaged("its pickle has a storage without key, location and size")
        if kind is UNTYPED:
            return _Untyped(self, key, location, numel)
        if not isinstance(kind, _StorageKind):
            raise Damaged("its pickle has a storage of no kind")
        return self.memory(key, kind.dtype(), location, numel)

    def memory(self, key: str, dtype: DType, location: str, numel: int) -> _Memory:
        """The storage of a key, which has one dtype."""
        found = self.memories.get(key)
        if found is None:
            _, size = self.archive.places.get(f"data/{key}", (0, -1))
            if size != numel * dtype.itemsize:
                raise Damaged(f"the storage {key[:80]!r} of {numel} {dtype.name} has {max(size, 0)} bytes")
            found = self.memories[key] = _Memory(self, key, dtype, location, numel)
        if found.dtype is not dtype or found.numel != numel:
            raise Damaged(f"the storage {key[:80]!r} is of {found.dtype.name}[{found.numel}] and of "
                          f"{dtype.name}[{numel}]")
        return found

    def tensor(self, memory: _Memory, shape: tuple[int, ...]) -> Tensor:
        """A storage's elements in this shape, where they belong."""
        from genesis.runtime.cpu.storage import CPUStorage
        array = self._mapped(memory) if self.mapped else self._read(memory)
        if memory.dtype.name == "bool" and array.size and array.view("uint8").max() > 1:
            raise Damaged(f"the storage {memory.key[:80]!r} is of bool and has bytes that are neither 0 nor 1")
        if self.archive.big and memory.dtype.itemsize > 1:
            array = array.byteswap()
        kind = tensor_type(shape, memory.dtype, cpu)
        tensor = wrap_memory(CPUStorage.wrap(array), kind)
        try:
            return self.place(tensor, memory.location)
        except Exception as error:  # the user's function, or a device: no fault of the file
            raise Outside(error) from error

    def _read(self, memory: _Memory) -> np.ndarray:
        import numpy as np

        from genesis.runtime.cpu.storage import allocate
        start, size = self.archive.places[f"data/{memory.key}"]
        data, _ = allocate(size)
        self.archive.source.file.seek(start)
        if read_into(self.archive.source.file, memoryview(data)) != size:  # type: ignore[arg-type]
            raise Damaged(f"it ends within the storage {memory.key[:80]!r}")
        return data.view(memory.dtype.numpy) if size else np.empty(0, memory.dtype.numpy)

    def _mapped(self, memory: _Memory) -> np.ndarray:
        """The storage in the file's pages, copied where it does not lie at a multiple of its elements' size."""
        import numpy as np
        start, size = self.archive.places[f"data/{memory.key}"]
        if not size:
            return np.empty(0, memory.dtype.numpy)
        if self.pages is None:
            assert self.archive.source.path is not None
            self.pages = np.memmap(self.archive.source.path, np.uint8, "c")
        if start + size > len(self.pages):
            raise Damaged(f"it ends within the storage {memory.key[:80]!r}")
        data = np.asarray(self.pages[start:start + size])
        return (data if start % memory.dtype.itemsize == 0 else data.copy()).view(memory.dtype.numpy)


@dataclass
class _Measuring(_Reader):
    """Makes tensors without memory, and notes what storages they ask for.

    Attributes:
        storages: key → (elements, bytes of one) as the file has it.
    """

    storages: dict[str, tuple[int, int]] = field(default_factory=dict)

    def storage(self, identifier: Any) -> _Memory | _Untyped:
        """A storage, as if it was there."""
        if type(identifier) is tuple and len(identifier) == 6 and type(identifier[2]) is str:
            kind, key, numel = identifier[1], identifier[2], identifier[4]
            size = kind.dtype().itemsize if isinstance(kind, _StorageKind) else 1
            if type(numel) is int and 0 <= numel <= self.archive.source.size:
                if self.storages.setdefault(key, (numel, size)) != (numel, size):
                    raise Damaged(f"the storage {key[:80]!r} has two sizes")
                self.archive.places[f"data/{key}"] = 0, numel * size
        return super().storage(identifier)

    def tensor(self, memory: _Memory, shape: tuple[int, ...]) -> Tensor:
        """A tensor of this shape, without memory."""
        return empty(shape, dtype=memory.dtype, device="meta")


def _measured(data: bytes, at: int, archive: Archive) -> tuple[int, dict[str, tuple[int, int]]]:
    """Where the pickle ends that begins at a place, and the storages that it asks for."""
    reader = _Measuring(archive, lambda tensor, _: tensor, False)
    pickle = Interpreter(data, _allowed(), reader.storage, _refusal, at)
    pickle.run()
    return pickle.at, reader.storages


@dataclass(frozen=True)
class _StorageKind:
    """A typed storage's class in torch; `name` is of a dtype that Genesis may not have."""

    name: str

    def dtype(self) -> DType:
        return _dtype(STORAGES.get(self.name, self.name))


@dataclass(frozen=True)
class _ForeignDType:
    """A dtype of torch that Genesis does not have."""

    name: str


@dataclass(frozen=True)
class _Kind:
    """A class of torch's that is named, and never called."""

    name: str


UNTYPED: Final = _Kind("torch.storage.UntypedStorage")


def _dtype(name: str) -> DType:
    if name not in DTYPES:
        raise Damaged(f"a tensor in it is of torch's {name}, which Genesis has no dtype for; it reads "
                      f"{', '.join(DTYPES)}")
    return dtype_named(name)


# What stands for torch's functions

def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False, hooks: Any = (),
                    metadata: Any = None) -> Tensor:
    """`torch._utils._rebuild_tensor_v2`: a part of a storage."""
    if not isinstance(storage, _Memory):
        raise Damaged("a tensor in it has no storage")
    _check_part(storage.numel, offset, size, stride)
    if not (_is_empty(hooks) and _is_empty(metadata)):
        raise Damaged("a tensor in it has hooks, or is conjugated or negated")
    with no_grad():
        found = storage.part(offset, tuple(size), tuple(stride))
    if requires_grad is True and storage.dtype.kind == "float":
        return found.requires_grad_()
    return found


def _rebuild_tensor_v3(storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any, hooks: Any, dtype: Any,
                       metadata: Any = None) -> Tensor:
    """A part of a storage of bytes."""
    if isinstance(dtype, _ForeignDType):
        raise _dtype_refusal(dtype.name)
    if not isinstance(storage, _Untyped) or not isinstance(dtype, DType) or storage.nbytes % dtype.itemsize:
        raise Damaged("a tensor in it has no storage of bytes")
    memory = storage.reader.memory(storage.key, dtype, storage.location, storage.nbytes // dtype.itemsize)
    return _rebuild_tensor(memory, offset, size, stride, requires_grad, hooks, metadata)


def _dtype_refusal(name: str) -> Damaged:
    try:
        _dtype(name)
    except Damaged as error:
        return error
    return Damaged(f"its dtype {name} is not read here")


def _check_part(numel: int, offset: Any, size: Any, stride: Any) -> None:
    for numbers in (size, stride):
        if not isinstance(numbers, tuple) or not all(type(n) is int and 0 <= n < MOST_ELEMENTS for n in numbers):
            raise Damaged("a tensor in it has sizes or strides that are no numbers from 0 on")
    if type(offset) is not int or not 0 <= offset < MOST_ELEMENTS or len(size) != len(stride):
        raise Damaged("a tensor in it has no offset, or other numbers of sizes and of strides")
    if len(size) > MOST_DIMENSIONS or prod(size) >= MOST_ELEMENTS:
        raise Damaged(f"a tensor in it has {len(size)} dimensions or {MOST_ELEMENTS} elements; neither is read")
    last = offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    if 0 not in size and last >= numel:
        raise Damaged(f"a tensor in it of sizes {list(size)}, strides {list(stride)} and offset {offset} reaches "
                      f"element {last} of a storage of {numel}")


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (dict, tuple)) and not len(value))


def _row_major(size: Sequence[int]) -> tuple[int, ...]:
    found, step = [], 1
    for n in reversed(size):
        found.append(step)
        step *= n
    return tuple(reversed(found))


def _rebuild_parameter(data: Any, requires_grad: Any, hooks: Any, state: Any = None) -> Tensor:
    """`torch._utils._rebuild_parameter`, with or without a state: attributes are not kept."""
    from genesis.nn import Parameter
    if not isinstance(data, Tensor) or not _is_empty(hooks):
        raise Damaged("a parameter in it is over no tensor, or has hooks")
    return Parameter(data, requires_grad=requires_grad is True and data.dtype.kind == "float")


def _rebuild_from_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    """`torch._tensor._rebuild_from_type_v2`: a tensor with attributes, which are not kept."""
    tensors = (_rebuild_tensor, _rebuild_tensor_v3, _rebuild_parameter)
    if not isinstance(function, Function) or function.call not in tensors or not isinstance(kind, _Kind):
        raise Damaged("a tensor in it is of a class that is not read")
    return function.call(*args)


def _encode(text: Any, encoding: Any) -> bytes:
    """`_codecs.encode`: how protocol 2 has bytes."""
    if type(text) is not str or type(encoding) is not str or encoding != "latin1":
        raise Damaged("its pickle encodes something else than bytes")
    try:
        return text.encode("latin1")
    except UnicodeEncodeError:
        raise Damaged("its pickle has bytes beyond 255") from None


def _device(kind: Any, index: Any = None) -> Device:
    if type(kind) is not str or kind not in ("cpu", "cuda") or not (
            index is None or (type(index) is int and 0 <= index < 1024)):
        name = kind[:20] if type(kind) is str else type(kind).__name__
        raise Damaged(f"it names the device {name!r}, which Genesis does not have")
    return Device(kind) if index is None else Device(kind, index)


def _ordered(items: Any = ()) -> OrderedDict[Any, Any]:
    pairs = isinstance(items, (list, tuple)) and all(type(x) in (list, tuple) and len(x) == 2 for x in items)
    if not pairs:
        raise TypeError("no pairs")
    return OrderedDict((checked_key(key), value) for key, value in items)


def _items(kind: Callable[[Any], Any]) -> Callable[..., Any]:
    """A set of some kind, of items that may be in one."""
    def make(items: Any = ()) -> Any:
        if not isinstance(items, (list, tuple, set)):
            raise TypeError("no items")
        return kind([checked_key(x) for x in items])
    return make


def _count(items: Any = ()) -> Counter[Any]:
    if not _is_empty(items) and not isinstance(items, dict):
        raise TypeError("no counts")
    return Counter(items)


_FACTORIES: Final = {f"builtins.{kind.__name__}": kind for kind in (list, dict, int, float, str, tuple, bool)}


def _default(factory: Any = None) -> defaultdict[Any, Any]:
    if factory is not None and not (isinstance(factory, _Kind) and factory.name in _FACTORIES):
        raise TypeError("no factory")
    return defaultdict(None if factory is None else _FACTORIES[factory.name])


def _size(items: Any) -> Size:
    if type(items) is not tuple or not all(type(n) is int for n in items):
        raise TypeError("no sizes")
    return Size(items)


def _complex(real: Any, imaginary: Any) -> complex:
    if type(real) is not float or type(imaginary) is not float:
        raise TypeError("no numbers")
    return complex(real, imaginary)


def _bytearray(content: Any = b"", encoding: Any = None) -> bytearray:
    if type(content) is str and type(encoding) is str and encoding == "latin-1":
        return bytearray(_encode(content, "latin1"))
    if type(content) is not bytes or encoding is not None:
        raise TypeError("no bytes")  # of a number it would make so many zeros
    return bytearray(content)


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "torch._utils._rebuild_tensor": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_tensor_v3": _rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": _rebuild_parameter,
    "torch._tensor._rebuild_from_type_v2": _rebuild_from_type,
    "torch.Size": _size,
    "torch.device": _device,
    "collections.OrderedDict": _ordered,
    "collections.Counter": _count,
    "collections.defaultdict": _default,
    "builtins.set": _items(set),
    "builtins.frozenset": _items(frozenset),
    "builtins.complex": _complex,
    "builtins.bytearray": _bytearray,
    "_codecs.encode": _encode,
}


def _allowed() -> dict[str, Any]:
    """The names that a pickle may have, and what stands for each."""
    found: dict[str, Any] = {name: Function(name, call) for name, call in _FUNCTIONS.items()}
    found.update({f"{room}.{name}": _StorageKind(name) for name in (*STORAGES, *FOREIGN_STORAGES)
                  for room in ("torch", "torch.storage", "torch.cuda")})
    found.update({f"torch.{name}": dtype_named(name) for name in DTYPES})
    found.update({f"torch.{name}": _ForeignDType(name) for name in FOREIGN_DTYPES})
    found.update({name: _Kind(name) for name in (
        "torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer",
        *_FACTORIES)})
    found["torch.storage.UntypedStorage"] = found["torch.UntypedStorage"] = UNTYPED
    return found


_LEAVES: Final = (str, bytes, bytearray, int, float, bool, complex, type(None), Tensor, Device, DType)


def _refusal(name: str) -> str:
    if name.startswith("torch._utils._rebuild_"):
        return f"it has a tensor of a kind that Genesis does not have ({name}): sparse, quantized, or of a subclass"
    return (f"it names {name}, which is code, or an object of a class; nothing in a file is executed, and what "
            "torch.save writes of tensors, numbers, texts and containers of them names no such thing: save "
            "model.state_dict(), not the model")
