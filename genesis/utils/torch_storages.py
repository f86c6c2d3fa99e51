"""Storages of a file of torch's: where each lies in the file, and the tensors that are parts of it.

A storage's tensor is made when the first part of it is known. Parts that share a storage there share one here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import wrap_memory
from genesis.frontend.tensor import Tensor
from genesis.ir.types import DType, cpu, tensor_type
from genesis.ops.creation import empty
from genesis.ops.diagonals import as_strided
from genesis.utils.restricted_pickle import Outside
from genesis.utils.safetensors_file import Damaged
from genesis.utils.sources import read_into
from genesis.utils.torch_archive import Archive
from genesis.utils.torch_kinds import UNTYPED, StorageKind

if TYPE_CHECKING:
    import numpy as np


@dataclass
class Memory:
    """A storage of the file. Its tensor is made when the first part of it is known.

    Attributes:
        base: the tensor over all of it, on its device; of the shape of the first part where that is all of it.
    """

    reader: Reader
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
class Untyped:
    """A storage of bytes, whose dtype the tensor over it says."""

    reader: Reader
    key: str
    location: str
    nbytes: int


@dataclass
class Reader:
    """Makes tensors of the storages of an archive."""

    archive: Archive
    place: Callable[[Tensor, str], Tensor]
    mapped: bool
    memories: dict[str, Memory] = field(default_factory=dict)
    pages: Any = None

    def storage(self, identifier: Any) -> Memory | Untyped:
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
            return Untyped(self, key, location, numel)
        if not isinstance(kind, StorageKind):
            raise Damaged("its pickle has a storage of no kind")
        return self.memory(key, kind.dtype(), location, numel)

    def memory(self, key: str, dtype: DType, location: str, numel: int) -> Memory:
        """The storage of a key, which has one dtype."""
        found = self.memories.get(key)
        if found is None:
            _, size = self.archive.places.get(f"data/{key}", (0, -1))
            if size != numel * dtype.itemsize:
                raise Damaged(f"the storage {key[:80]!r} of {numel} {dtype.name} has {max(size, 0)} bytes")
            found = self.memories[key] = Memory(self, key, dtype, location, numel)
        if found.dtype is not dtype or found.numel != numel:
            raise Damaged(f"the storage {key[:80]!r} is of {found.dtype.name}[{found.numel}] and of "
                          f"{dtype.name}[{numel}]")
        return found

    def tensor(self, memory: Memory, shape: tuple[int, ...]) -> Tensor:
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

    def _read(self, memory: Memory) -> np.ndarray:
        import numpy as np

        from genesis.runtime.cpu.storage import allocate
        start, size = self.archive.places[f"data/{memory.key}"]
        data, _ = allocate(size)
        self.archive.source.file.seek(start)
        if read_into(self.archive.source.file, memoryview(data)) != size:  # type: ignore[arg-type]
            raise Damaged(f"it ends within the storage {memory.key[:80]!r}")
        return data.view(memory.dtype.numpy) if size else np.empty(0, memory.dtype.numpy)

    def _mapped(self, memory: Memory) -> np.ndarray:
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
class Measuring(Reader):
    """Makes tensors without memory, and notes what storages they ask for.

    Attributes:
        storages: key → (elements, bytes of one) as the file has it.
    """

    storages: dict[str, tuple[int, int]] = field(default_factory=dict)

    def storage(self, identifier: Any) -> Memory | Untyped:
        """A storage, as if it was there."""
        if type(identifier) is tuple and len(identifier) == 6 and type(identifier[2]) is str:
            kind, key, numel = identifier[1], identifier[2], identifier[4]
            size = kind.dtype().itemsize if isinstance(kind, StorageKind) else 1
            if type(numel) is int and 0 <= numel <= self.archive.source.size:
                if self.storages.setdefault(key, (numel, size)) != (numel, size):
                    raise Damaged(f"the storage {key[:80]!r} has two sizes")
                self.archive.places[f"data/{key}"] = 0, numel * size
        return super().storage(identifier)

    def tensor(self, memory: Memory, shape: tuple[int, ...]) -> Tensor:
        """A tensor of this shape, without memory."""
        return empty(shape, dtype=memory.dtype, device="meta")


def _row_major(size: Sequence[int]) -> tuple[int, ...]:
    found, step = [], 1
    for n in reversed(size):
        found.append(step)
        step *= n
    return tuple(reversed(found))
