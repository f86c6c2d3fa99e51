"""Memory of other libraries as tensors: numpy's arrays, and what DLPack hands over. Nothing is copied.

The storage is marked as shared (`Storage.share`): others may write to it between any two of the user's lines. Reading
it takes a copy, or computes at once; writing it is done before the call returns. On a GPU our work and that of the
other library's stream wait for each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from genesis.frontend.recording import TensorBase, over
from genesis.frontend.storage import Cell, Storage
from genesis.frontend.views import STRIDED, View, ViewStep
from genesis.ir.errors import failure
from genesis.ir.ops import movement
from genesis.ir.types import Device, cpu, dtype_of_numpy, row_major, tensor_type

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor
    from genesis.runtime.dlpack import Described

__all__ = ["from_dlpack", "from_numpy"]

ALIGNED: Final = 16
"""Bytes that the address of a GPU's memory is a multiple of, for kernels: a thread reads so many at once. What another
library hands out may begin anywhere; the memory that it has from the driver does not."""


def over_memory(memory: Any, shape: Sequence[int], strides: Sequence[int], dtype: Any, device: Device,
                owner: Any, stream: Any = None, before: int = 0) -> Tensor | None:
    """A tensor over memory that others see too; None if a stride is negative.

    Args:
        memory: its bytes, from the first element to the last.
        before: elements of others that the memory has before the first.
        strides: in elements.
        owner: as long as this lives, others may read and write the memory.
        stream: the others' `ForeignStream`.
    """
    shape, strides = tuple(shape), tuple(strides)
    plain = row_major(shape)
    in_order = 0 in shape or all(size == 1 or a == b for size, a, b in zip(shape, strides, plain, strict=True))
    if in_order and not before:
        kind, part = tensor_type(shape, dtype, device), None
    else:
        if min(strides) < 0:
            return None
        count = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        steps = strided_steps(shape, strides, count)
        if steps is None:
            steps = (STRIDED, (shape, strides, before)),
        elif before:
            steps = (movement.slice, ((before,), (before + count,), (1,))), *steps
        kind, part = tensor_type((before + count,), dtype, device), View(strides, before, steps)
    storage = Storage(kind, None, Cell(memory))
    storage.share(owner, stream)
    return over(storage, tensor_type(shape, dtype, device), part)


def strided_steps(shape: tuple[int, ...], strides: tuple[int, ...], count: int) -> tuple[ViewStep, ...] | None:
    """Movement ops from `count` elements in a row to a view with these strides; None if one is no multiple of those
    inside it.

    >>> [(op.name, *attrs) for op, attrs in strided_steps((2, 3), (1, 2), 6)]
    [('reshape', (3, 2)), ('permute', (1, 0))]
    """
    inner = sorted((axis for axis, size in enumerate(shape) if size > 1 and strides[axis] != 0),
                   key=lambda axis: (-strides[axis], axis))
    periods = [strides[a] for a in inner]
    if any(outer % own or outer < own * shape[axis] for outer, own, axis in zip(
            periods, periods[1:], inner[1:], strict=False)):
        return None
    sizes = [shape[axis] for axis in inner]
    # The axes of the whole: the outermost as long as it is taken, each other as long as the stride around it.
    whole = [size if at == 0 else periods[at - 1] // periods[at] for at, size in enumerate(sizes)]
    last = periods[-1] if periods else 1
    total = last
    for size in whole:
        total *= size
    steps: list[ViewStep] = []
    if total > count:
        steps.append((movement.pad, ((0,), (total - count,), 0)))
    steps.append((movement.reshape, ((*whole, last) if last > 1 else tuple(whole),)))
    if whole != sizes or last > 1:
        taken = (*sizes, 1) if last > 1 else tuple(sizes)
        steps.append((movement.slice, ((0,) * len(taken), taken, (1,) * len(taken))))
        if last > 1:
            steps.append((movement.reshape, (tuple(sizes),)))
    order = tuple(inner.index(axis) for axis in sorted(inner))
    if order != tuple(range(len(order))):
        steps.append((movement.permute, (order,)))
    ones = tuple(size if axis in inner else 1 for axis, size in enumerate(shape))
    if ones != tuple(shape[axis] for axis in sorted(inner)):
        steps.append((movement.reshape, (ones,)))
    if ones != shape:
        steps.append((movement.expand, (shape,)))
    return tuple(steps)


def from_numpy(array: Any) -> Tensor:
    """A CPU tensor that shares the array's memory: writes to either are seen by the other.

    Raises:
        TypeError: no Genesis dtype holds its elements.
        ValueError: a stride is negative, or no multiple of the size of an element; `genesis.tensor` copies.
    """
    import numpy as np
    if not isinstance(array, np.ndarray):
        raise failure("from_numpy", f"expected np.ndarray (got {type(array).__name__})", error=TypeError)
    dtype = dtype_of_numpy(array.dtype)
    found = None
    if not any(stride % array.itemsize for stride in array.strides):
        owner: Any = array
        while hasattr(owner.base, "__array_interface__"):  # a view shares its owner's memory, and may die first
            owner = owner.base
        strides = [stride // array.itemsize for stride in array.strides]
        if min(strides, default=0) >= 0 or array.size < 2:
            found = over_memory(_bytes_from(array), array.shape, strides, dtype, cpu, owner)
    if found is None:
        raise failure("from_numpy", f"no tensor has the array's strides {array.strides}", error=ValueError,
                      hint="use genesis.tensor, which copies")
    return found


def _bytes_from(array: Any) -> Any:
    """The memory from the array's first element to its last."""
    import numpy as np

    from genesis.runtime.cpu.storage import CPUStorage
    if array.size and not array.flags.c_contiguous:
        count = 1 + sum((size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)
                        ) // array.itemsize
        array = np.lib.stride_tricks.as_strided(array, (count,), (array.itemsize,), writeable=array.flags.writeable)
    return CPUStorage.wrap(array)


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over memory that another library's object hands out through `__dlpack__`, or a capsule holds.

    The memory is shared: writes to either are seen by the other. Only what forbids writing, what has negative strides,
    and what is asked for on another device is copied.

    Args:
        device: where the tensor should be.
        copy: True to copy in any case, False to raise BufferError rather than copy.

    >>> import genesis, numpy
    >>> array = numpy.zeros(3, numpy.float32)
    >>> x = from_dlpack(array)
    >>> x.add_(2)
    tensor([2., 2., 2.])
    >>> array
    array([2., 2., 2.], dtype=float32)
    """
    from genesis.ops.creation import device_from
    if isinstance(ext_tensor, TensorBase):
        found: Any = ext_tensor.detach()  # type: ignore[attr-defined]
    else:
        found = _received(ext_tensor, copy)
    place = found.device if device is None else device_from(device)
    if place is not found.device:
        if copy is False:
            raise BufferError(f"from_dlpack: {found.device} memory cannot be shared with {place}, and copy=False")
        return found.to(place)
    return found.clone() if copy else found


def _received(ext_tensor: Any, copy: bool | None) -> Tensor:
    """The memory that another library hands out."""
    from genesis.runtime import dlpack
    capsule = ext_tensor
    if hasattr(ext_tensor, "__dlpack__"):
        stream = None
        if ext_tensor.__dlpack_device__()[0] == dlpack.CUDA:
            stream = our_stream(Device("cuda", ext_tensor.__dlpack_device__()[1]))
        try:
            capsule = ext_tensor.__dlpack__(stream=stream, max_version=dlpack.VERSION)
        except TypeError:  # a library from before there were versions
            capsule = ext_tensor.__dlpack__(stream=stream)
    given = dlpack.take_in(capsule)
    found = None if given.read_only or min(given.strides, default=0) < 0 else _over_described(given)
    if found is not None:
        return found
    if copy is False:
        why = "it is read-only" if given.read_only else f"its strides {given.strides} are negative"
        raise BufferError(f"from_dlpack: the memory cannot be shared ({why}), and copy=False")
    if given.device is not cpu:
        raise failure("from_dlpack", f"the GPU memory is read-only or has negative strides {given.strides}",
                      error=BufferError, hint="hand over a copy")
    from genesis.frontend.host_values import from_host
    return from_host(_array_over(given)[0].copy(), cpu)


def _over_described(given: Described) -> Tensor | None:
    if given.device is cpu:
        array, owner = _array_over(given)
        return over_memory(_bytes_from(array), given.shape, given.strides, given.dtype, cpu, owner)
    from genesis.runtime.cuda.foreign import LEGACY_STREAM, ForeignStorage, ForeignStream
    count = 0 if 0 in given.shape else 1 + sum((n - 1) * s for n, s in zip(given.shape, given.strides, strict=True))
    size = given.dtype.itemsize
    before = given.address % ALIGNED // size if count else 0  # kernels are told that memory begins with a vector
    memory = ForeignStorage(given.address - before * size, (before + count) * size, given.device, given.owner)
    # A library does not say on which stream it goes on using its memory: the default one is likely.
    return over_memory(memory, given.shape, given.strides, given.dtype, given.device, memory,
                       ForeignStream(given.device, LEGACY_STREAM), before)


class _HostMemory:
    """Lets numpy look at memory that something else owns."""

    def __init__(self, given: Described):
        size = given.dtype.itemsize
        self.owner = given.owner
        self.__array_interface__ = {"version": 3, "data": (given.address, given.read_only), "typestr": f"|V{size}",
                                    "shape": given.shape, "strides": tuple(s * size for s in given.strides)}


def _array_over(given: Described) -> tuple[Any, Any]:
    """A numpy array over host memory, and what it keeps alive."""
    import numpy as np
    memory = _HostMemory(given)
    if 0 in given.shape:
        return np.empty(given.shape, given.dtype.numpy), memory
    return np.asarray(memory).view(given.dtype.numpy), memory


def our_stream(device: Device) -> int:
    """The current stream of the GPU, as other libraries know it."""
    from genesis.runtime.cuda.cuda_python_driver import driver
    from genesis.runtime.cuda.stream import current_stream
    return driver().stream_number(current_stream(device.index).handle)
