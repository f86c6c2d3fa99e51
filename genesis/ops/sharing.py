"""Our memory for other libraries: numpy's and DLPack's protocols, CUDA's array interface, addresses.

What is handed out is marked as shared (`Storage._outside`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend.engine_protocol import engine
from genesis.frontend.host_values import export_numpy
from genesis.frontend.recording import TensorBase, over
from genesis.frontend.storage import Storage
from genesis.ir.errors import failure
from genesis.ir.types import Device, DType, cpu
from genesis.ops.foreign import wrapped
from genesis.ops.interop import our_stream
from genesis.ops.shape import strides_of
from genesis.runtime import shadow_weights

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor


class UntypedStorage:
    """The memory below a tensor, as bytes; tensors over the same memory have equal ones."""

    def __init__(self, tensor: Any):
        self._tensor = tensor
        self.device = tensor.device

    def data_ptr(self) -> int:
        """Address of its first byte. Computes the tensor."""
        return _pinned_memory(self._tensor).ptr

    def nbytes(self) -> int:
        """The number of bytes of the memory."""
        return self._tensor.storage.type.nbytes

    size = __len__ = nbytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, UntypedStorage) and self._tensor.storage is other._tensor.storage

    def __hash__(self) -> int:
        return hash(self._tensor.storage)

    def __repr__(self) -> str:
        return f"UntypedStorage({self.nbytes()} bytes on {self.device})"


class TypedStorage(UntypedStorage):
    """The memory below a tensor as elements of its dtype, which is torch's older `x.storage()`.

    >>> import genesis
    >>> x = genesis.arange(4.0)[1:]
    >>> x.storage().tolist(), x.storage().nbytes(), len(x.storage())
    ([0.0, 1.0, 2.0, 3.0], 16, 4)
    """

    def __init__(self, storage: Storage):
        super().__init__(over(storage, storage.type, None))
        self.dtype = storage.type.dtype

    def size(self) -> int:
        """The number of elements."""
        return int(self._tensor.storage.type.numel)

    __len__ = size

    def element_size(self) -> int:
        """Bytes of an element."""
        return int(self.dtype.itemsize)

    def untyped(self) -> UntypedStorage:
        """The memory as bytes."""
        return UntypedStorage(self._tensor)

    def tolist(self) -> list[Any]:
        """All elements. Computes them."""
        return list(self._tensor.detach().reshape(-1).tolist())

    def __getitem__(self, place: Any) -> Any:
        return self.tolist()[place]

    def is_shared(self) -> bool:
        """Whether other processes read and write the memory."""
        return bool(self._tensor.storage.between_processes)

    def share_memory_(self) -> TypedStorage:
        """Move the memory to where other processes see it; see `Tensor.share_memory_`."""
        self._tensor.share_memory_()
        return self

    def __repr__(self) -> str:
        return f"TypedStorage({self.size()} elements of {self.dtype!r} on {self.device})"


def _typed(storage: Storage) -> TypedStorage:
    return TypedStorage(storage)


Storage.__call__ = _typed  # type: ignore[method-assign]  # `x.storage` is the engine's: called, it shows the memory


def _pinned_memory(tensor: Any) -> Any:
    """The tensor's computed memory, which stays where it is from now on.

    Raises:
        RuntimeError: the device's memory has no address.
    """
    memory = engine.memory_of(tensor)
    if not hasattr(memory, "ptr"):
        raise failure("data_ptr", f"memory on {tensor.device} has no address", [("tensor", tensor)],
                      hint="copy the tensor with .cpu()")
    if tensor.is_cuda:
        memory.pinned = True
        shadow_weights.overwritten((memory,))  # others may write to the memory from now on
    return memory


class DevicePointer(int):
    """An address on a GPU: an int with the dtype of what is there, which is what Triton asks of a pointer."""

    dtype: DType

    def __new__(cls, address: int, dtype: DType) -> DevicePointer:
        """The address of elements of that dtype."""
        self = super().__new__(cls, address)
        self.dtype = dtype
        return self

    def data_ptr(self) -> int:
        """Itself, as Triton asks a tensor."""
        return int(self)


class _Handed:
    """Keeps a tensor's memory for somebody else; as long as it lives the memory is shared."""

    def __init__(self, memory: Any, stream: Any):
        self._memory, self._stream = memory, stream

    def __del__(self) -> None:
        if self._stream is not None:
            self._stream.join(self._memory.lane_stream)  # its last user may not be done yet


class SharingMethods(TensorBase):
    """The methods of a tensor that show its memory to others."""

    __slots__ = ()

    def data_ptr(self: Any) -> int:
        """Address of the first element, 0 if there is none. Computes the tensor; the address stays.

        On a GPU the work may not be done yet: it is ordered by the current stream. The address knows its dtype there,
        so that a Triton kernel can take it.
        """
        address = _pinned_memory(self).ptr + self.storage_offset() * self.itemsize if self.spec.numel else 0
        return DevicePointer(address, self.dtype) if self.is_cuda else address

    def untyped_storage(self: Any) -> UntypedStorage:
        """The memory below the tensor."""
        return UntypedStorage(self)

    def numpy(self: Any, *, force: bool = False) -> Any:
        """The elements as a numpy array that shares the memory. Computes the tensor.

        Args:
            force: copy from where the tensor is if need be, and detach it.

        Raises:
            RuntimeError: the tensor requires grad.
            TypeError: it is not on the CPU.
        """
        if force:
            return self.detach().cpu().numpy()
        if self.requires_grad:
            raise failure("numpy", "can't call numpy() on a tensor that requires grad", [("tensor", self)],
                          hint="use tensor.detach().numpy()")
        if not self.is_cpu:
            raise failure("numpy", f"can't convert a {self.device} tensor to numpy", [("tensor", self)],
                          hint="use tensor.cpu() to copy it to host memory first", error=TypeError)
        return export_numpy(self)

    __array_priority__ = 1000
    """numpy leaves an operator with one of its scalars or arrays and a tensor to the tensor."""

    def __array__(self: Any, dtype: Any = None, copy: bool | None = None) -> Any:
        """`numpy.asarray(tensor)`. Without a copy where dtype and device allow.

        Raises:
            RuntimeError: the tensor requires grad: what numpy makes of it would have no gradient.
        """
        array = (self if self.requires_grad else self.cpu()).numpy()
        if dtype is not None and array.dtype != dtype:
            if copy is False:
                raise ValueError(f"a {array.dtype} tensor cannot be an array of {dtype} without a copy")
            return array.astype(dtype)
        return array.copy() if copy and self.is_cpu else array

    def __array_wrap__(self: Any, array: Any, context: Any = None, return_scalar: bool = False) -> Tensor:
        """The tensor of an array that a numpy function made of this tensor: `numpy.sin(x)` is one.

        >>> import genesis, numpy
        >>> numpy.sin(genesis.zeros(2))
        tensor([0., 0.])
        """
        return wrapped(array)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """torch's functions of tensors of Genesis alone are Genesis' functions of that name: `torch.isnan(x)`.

        >>> import genesis, torch
        >>> torch.isnan(genesis.zeros(2))
        tensor([False, False])
        """
        from genesis.ops.foreign import called_by_torch
        return called_by_torch(func, types, args, kwargs or {})

    def __dlpack_device__(self: Any) -> tuple[int, int]:
        """DLPack's type and number of the device: (1, 0) is the CPU, (2, n) is GPU number n."""
        from genesis.runtime.dlpack import device_code
        return device_code(self.device)

    def __dlpack__(self: Any, *, stream: int | None = None, max_version: tuple[int, int] | None = None,
                   dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> Any:
        """A DLPack capsule that shares the memory. Computes the tensor.

        Args:
            stream: on a GPU, the stream on which the other library will use the memory: its work waits for ours. None
                is CUDA's legacy default stream, -1 leaves all waiting to the caller.
            max_version: the newest DLPack version that the caller knows; before 1.0 the old form is given.
            dl_device: where the caller wants the memory; the host is possible for all.
            copy: True for a capsule of a copy, False for an error where one is needed.

        Raises:
            BufferError: the tensor requires grad, cannot be had there (without a copy), or DLPack has no such device.
        """
        from genesis.runtime import dlpack
        if self.requires_grad:
            raise failure("__dlpack__", "can't export tensors that require gradient", [("tensor", self)],
                          hint="use tensor.detach()", error=BufferError)
        tensor = self
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            if dl_device[0] != dlpack.CPU or copy is False:
                raise failure("__dlpack__", f"the tensor cannot be shared on DLPack's device {tuple(dl_device)}",
                              [("tensor", self)], hint="move it with .to(device)", error=BufferError)
            tensor = self.cpu()
        elif copy:
            tensor = self.clone()
        dlpack.device_code(tensor.device)
        memory = _pinned_memory(tensor)
        user = None if tensor.device is cpu else _stream_of_user(tensor.device, stream)
        if user is not None:
            user.release()
        owner = _Handed(memory, user)
        described = dlpack.Described(
            memory.ptr + tensor.storage_offset() * tensor.itemsize if tensor.spec.numel else 0, tensor.spec.shape,
            strides_of(tensor), tensor.dtype, tensor.device, owner=owner)
        capsule = dlpack.capsule_of(described, bool(max_version and max_version[0] >= 1), tensor is not self)
        tensor.storage.share(owner, user)
        return capsule

    @property
    def __cuda_array_interface__(self: Any) -> dict[str, Any]:
        """The GPU memory as Numba's and CuPy's protocol (version 3) describes it. Computes the tensor.

        Whoever takes the memory must keep the tensor.

        Raises:
            AttributeError: the tensor is not on a GPU.
            RuntimeError: it requires grad.
        """
        if not self.is_cuda:
            raise AttributeError("Can't get __cuda_array_interface__ on a tensor that is not on a GPU; use .cuda()")
        if self.requires_grad:
            raise failure("__cuda_array_interface__", "can't export tensors that require gradient",
                          [("tensor", self)], hint="use tensor.detach()")
        memory, size = _pinned_memory(self), self.itemsize
        self.storage.share(memory)
        kind = "<V2" if self.dtype.name == "bfloat16" else self.dtype.numpy.str
        strides = None if self.is_contiguous() else tuple(step * size for step in strides_of(self))
        return {"version": 3, "shape": tuple(self.spec.shape), "typestr": kind, "strides": strides,
                "data": (self.data_ptr(), False), "stream": our_stream(self.device)}


def _stream_of_user(device: Device, stream: int | None) -> Any:
    from genesis.runtime.cuda.foreign import LEGACY_STREAM, ForeignStream
    if stream == -1:
        return None
    if stream == 0:
        raise ValueError("__dlpack__: stream 0 is ambiguous; use None, 1 (legacy default) or 2 (per-thread default)")
    return ForeignStream(device, LEGACY_STREAM if stream is None else stream)
