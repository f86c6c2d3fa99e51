"""Tensors made by calling the class, and tensors with another dtype or on another device."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from genesis.frontend.default_dtypes import default_dtype
from genesis.frontend.public_functions import bound
from genesis.frontend.recording import TensorBase
from genesis.frontend.transfer import transfer
from genesis.frontend.writes import assign
from genesis.ir.errors import failure, is_foreign, not_a_tensor
from genesis.ir.node import Node
from genesis.ir.types import (
    Device,
    DType,
    as_dtype,
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
    not_a_dtype,
    uint8,
)
from genesis.ops.common import to_dtype
from genesis.ops.creation import DeviceLike, device_from, empty, tensor
from genesis.ops.formats import MemoryFormat, format_of, preserve_format
from genesis.ops.indexing import value_node

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor


def copied(target: Any, source: Any) -> Node:
    """What `target.copy_(source)` writes: the source's elements, cast, broadcast and moved to the target's device."""
    if isinstance(source, TensorBase) and source.spec.device is not target.spec.device:
        source = transfer(source, target.spec.device)
    return value_node(target, source, target.spec.shape)


def to(self: Any, *args: Any, device: DeviceLike = None, dtype: DType | None = None, copy: bool = False,
       non_blocking: bool = False, memory_format: MemoryFormat | None = None) -> Any:
    """This tensor with another dtype, on another device, or like another tensor; itself when it is so already."""
    for arg in args:
        if isinstance(arg, DType) or arg.__class__ is type:
            dtype = as_dtype(arg)
        elif isinstance(arg, TensorBase):
            dtype, device = arg.spec.dtype, arg.spec.device
        elif isinstance(arg, (str, Device, int)) and not isinstance(arg, bool):
            device = arg
        elif arg is not None and not isinstance(arg, bool):
            raise not_a_tensor(arg) if is_foreign(arg) else not_a_dtype(arg)
    dtype = None if dtype is None else as_dtype(dtype)
    result = self if dtype is None else to_dtype(self, dtype)
    ordered = memory_format is not None and memory_format is not preserve_format
    if ordered and (copy or result is not self or format_of(self) is not memory_format):
        result = result.clone(memory_format=memory_format)
    place = self.device if device is None else device_from(device)
    if place is not self.device:
        return transfer(result, place)
    return result.clone() if copy and result is self else result


to_function, _to = to, bound(to, "genesis", "Tensor.to")  # type: ignore[arg-type]


class ConversionMethods(TensorBase):
    """Making, casting and moving tensors."""

    __slots__ = ()

    def __new__(cls, *data: Any, dtype: DType | None = None, device: DeviceLike = None,
                requires_grad: bool = False) -> Tensor:
        if len(data) == 1 and isinstance(data[0], TensorBase):  # the same memory, and the same history, as torch's
            same: Any = data[0]
            return same.view_as(same).to(dtype=dtype, device=device)
        if len(data) == 1 and type(data[0]).__name__ == "Size":  # `Tensor(x.size())`: a shape, not its numbers
            made = empty(data[0], dtype=dtype, device=device)
        elif data and all(isinstance(size, Integral) and not isinstance(size, bool) for size in data):
            made = empty(*data, dtype=dtype, device=device)
        elif data and isinstance(data[0], Real):
            raise failure("Tensor", f"it takes sizes or one sequence, not {', '.join(map(repr, data))}",
                          hint="tensor(number)", error=TypeError)
        else:
            made = tensor(data[0] if data else [], dtype=dtype or default_dtype("float"), device=device)
        return made.requires_grad_(requires_grad)

    def to(self: Any, *args: Any, **options: Any) -> Any:
        """This tensor with another dtype, on another device, or like another tensor; itself when it is so already."""
        if len(args) == 1 and args[0].__class__ is DType and not options:  # 0.2 µs where nothing changes
            return self if self.spec.dtype is args[0] else to_dtype(self, args[0])
        return _to(self, *args, **options)

    to.__wrapped__ = to_function  # type: ignore[attr-defined]  # whose signature it has

    def cpu(self: Any, memory_format: Any = None) -> Any:
        """This tensor on the CPU."""
        return self.to(cpu, memory_format=memory_format)

    def cuda(self: Any, device: Any = None, non_blocking: bool = False, memory_format: Any = None) -> Any:
        """This tensor on the GPU."""
        return self.to("cuda" if device is None else device, memory_format=memory_format)

    def type_as(self: Any, other: Tensor) -> Any:
        """This tensor in the other tensor's dtype, on its device."""
        if not isinstance(other, TensorBase):
            raise not_a_tensor(other)
        if other.spec.dtype is self.spec.dtype and other.spec.device is self.spec.device:
            return self
        return self.to(device=other.device, dtype=other.dtype)

    def float(self: Any) -> Any:
        """This tensor in float32."""
        return to_dtype(self, float32)

    def double(self: Any) -> Any:
        """This tensor in float64."""
        return to_dtype(self, float64)

    def half(self: Any) -> Any:
        """This tensor in float16."""
        return to_dtype(self, float16)

    def bfloat16(self: Any) -> Any:
        """This tensor in bfloat16."""
        return to_dtype(self, bfloat16)

    def long(self: Any) -> Any:
        """This tensor in int64."""
        return to_dtype(self, int64)

    def int(self: Any) -> Any:
        """This tensor in int32."""
        return to_dtype(self, int32)

    def short(self: Any) -> Any:
        """This tensor in int16."""
        return to_dtype(self, int16)

    def char(self: Any) -> Any:
        """This tensor in int8."""
        return to_dtype(self, int8)

    def byte(self: Any) -> Any:
        """This tensor in uint8."""
        return to_dtype(self, uint8)

    def bool(self: Any) -> Any:
        """This tensor in bool."""
        return to_dtype(self, bool_)

    def copy_(self: Any, source: Any, non_blocking: Any = False) -> Any:
        """Write the source's elements, cast, broadcast and moved here."""
        assign(self, copied(self, source), replaces=True)
        return self

    def pin_memory(self: Any, device: Any = None) -> Any:
        """The tensor itself: transfers take no page-locked memory of the user's."""
        return self

    def is_pinned(self: Any, device: Any = None) -> Any:
        """False."""
        return False

    def record_stream(self: Any, s: Any) -> None:
        """Nothing is left to do: the memory is given to others behind all work that uses it, on whatever stream.

        Raises:
            NotImplementedError: the tensor is on the CPU.
        """
        if self.device is cpu:
            raise failure("record_stream", "memory of the host is not used by streams", [("tensor", self)],
                          error=NotImplementedError)

    def share_memory_(self: Any) -> Any:
        """The tensor itself, whose memory is moved to where processes that are forked, or are sent the tensor, read and
        write it as well. All tensors over that memory move with it; a gradient of this tensor's does not.

        Raises:
            RuntimeError: the tensor is on a GPU.

        >>> import genesis
        >>> genesis.zeros(3).share_memory_().is_shared()
        True
        """
        if self.device is not cpu:
            raise failure("share_memory_", f"memory on {self.device} is not shared between processes",
                          [("tensor", self)], hint="share a model on the CPU, and copy its values with .to(device)")
        from genesis.ops import between_processes
        between_processes.move(self)
        return self

    def is_shared(self: Any) -> Any:
        """Whether other processes may read and write the memory: `share_memory_` was called, here or by the sender."""
        return self.storage.between_processes

    def apply_(self: Any, callable: Callable[[Any], Any]) -> Any:
        """Replace each element by what a Python function makes of it; on the CPU only, and slow.

        >>> import genesis
        >>> genesis.tensor([1.0, 2.0]).apply_(lambda x: x + 0.5)
        tensor([1.5000, 2.5000])
        """
        if self.device is not cpu:
            raise failure("apply_", "apply_ is only implemented on CPU tensors", [("tensor", self)], error=TypeError)
        flat = [callable(x) for x in self.detach().flatten().tolist()]
        self.data.copy_(tensor(flat, dtype=self.dtype).reshape(self.shape))
        return self

    def to_device(self: Any, device: DeviceLike, /, *, stream: Any = None) -> Any:
        """This tensor on another device."""
        return self.to(device=device)
