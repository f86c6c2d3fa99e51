"""Making tensors from data, and constant ones. Ranges and index grids are in `ranges`, random ones in `random`."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.frontend import session
from genesis.frontend.default_dtypes import default_dtype
from genesis.frontend.host_values import from_host
from genesis.frontend.recording import TensorBase, emit, read, require_tensors, wrap, wrap_laid_out
from genesis.frontend.writes import assign
from genesis.ir.errors import failure
from genesis.ir.node import make
from genesis.ir.numbers import PLAIN, number
from genesis.ir.ops import composite, leaves, movement
from genesis.ir.types import (
    DTYPES,
    Device,
    DType,
    as_dtype,
    cpu,
    dtype_of_numpy,
    promote_types,
    switch_default_by,
    tensor_type,
)
from genesis.ops.common import number_kind, shape_of
from genesis.ops.formats import MemoryFormat, strides_like
from genesis.ops.interop import from_numpy
from genesis.ops.out import into, made_like
from genesis.runtime.contexts import Switched, Temporary

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["as_tensor", "asarray", "empty", "empty_like", "fill", "full", "full_like", "get_default_device", "ones",
           "ones_like", "scalar_tensor", "set_default_device", "tensor", "zeros", "zeros_like"]

DeviceLike = Device | str | int | None
_default_device = cpu
_followed: Device | None = None
"""The default device, where it was named without a number: it is the GPU that is current when a tensor is made."""


def device_from(device: DeviceLike) -> Device:
    """A device from what a user writes: None, "cpu", "cuda", "cuda:1", 1 or a device."""
    if device is None:
        return _default_device
    if device is cpu or device == "cpu":
        return cpu
    if isinstance(device, str) or not isinstance(device, (Device, int)):
        try:
            named = Device(str(device))  # a wrong name is one whether or not there is a GPU
        except RuntimeError as error:
            raise failure("device", str(error), hint=f"for the dtype of that name: genesis.{device}" if any(
                str(device) == dtype.name for dtype in DTYPES) else "") from None
        if named.type != "cuda":
            return named
    if isinstance(device, Device) and device.type != "cuda":
        return device
    try:
        return _gpu_from(device)
    except RuntimeError as error:
        raise failure("device", f"{device} cannot be used: {error}") from None


def _gpu_from(device: Device | str | int) -> Device:
    """The GPU meant, if there is a driver for one."""
    from genesis.runtime.cuda.cuda_python_driver import driver
    driver()
    if isinstance(device, Device):
        return device
    if isinstance(device, int):
        return Device("cuda", device)
    if device == "cuda":
        from genesis.runtime.cuda.stream import current_device
        return Device("cuda", current_device())
    return Device(device)


def get_default_device() -> Device:
    """Where tensors are made when nothing else is said."""
    return _default_device


def set_default_device(device: DeviceLike) -> None:
    """Where tensors are made when nothing else is said; "cuda" is the GPU that is the current one by then."""
    global _default_device, _followed
    _default_device = device_from(device)
    _followed = _default_device if device == "cuda" and isinstance(device, str) else None


def follow_current_gpu(index: int) -> None:
    """The current GPU is another one; inside of a device's context that device stays the default."""
    global _default_device, _followed
    if _followed is not None and _default_device is _followed:
        _default_device = _followed = Device("cuda", index)


@functools.cache
def _as_default(device: Device) -> Temporary:
    """The context of a device: inside, it is where tensors are made."""
    put = globals().__setitem__
    return Temporary(lambda: Switched([(put, "_default_device", device_from(device))],
                                      [(put, "_default_device", _default_device)], device))


switch_default_by(_as_default)


def finish(result: Tensor, requires_grad: bool) -> Tensor:
    """The new tensor, as a leaf that wants gradients if asked."""
    return result.requires_grad_() if requires_grad else result


def tensor(data: Any, *, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """A tensor with a copy of the data: numbers, nested sequences, arrays or tensors.

    Without a dtype Python floats give the default dtype, ints int64, bools bool; arrays keep theirs.

    >>> import genesis
    >>> genesis.tensor([[1, 2], [3, 4]]).dtype
    genesis.int64
    """
    import numpy as np
    dtype = None if dtype is None else as_dtype(dtype)
    place = device_from(device)
    if isinstance(data, TensorBase):
        source = data.detach().clone()  # type: ignore[attr-defined]
        moved = source.to(device=place if device is not None else None, dtype=dtype)
        return finish(moved, requires_grad)
    if isinstance(data, (list, tuple)) and data and isinstance(data[0], TensorBase) and _stackable(data, dtype):
        elements = tuple([make(movement.reshape, (read(x.detach()),), ((1,),)) for x in data])
        side_by_side = wrap(emit(movement.concat, elements, (0,)))
        return finish(side_by_side.to(place), requires_grad)
    array = _array(data, dtype)
    kind = dtype_of_numpy(array.dtype)
    if dtype is None and not isinstance(data, (np.ndarray, np.generic)):
        dtype = dtype_of_nested(data, kind.kind) if isinstance(data, (list, tuple)) else default_dtype(kind.kind)
    if dtype is not None and dtype is not kind:
        array = _converted(array, dtype, checked=not isinstance(data, (np.ndarray, np.generic)))
    made = from_host(array, place)
    session.made_of_values(made.storage.cell, made.storage.type, array)
    return finish(made, requires_grad)


def _stackable(data: Sequence[Any], dtype: DType | None) -> bool:
    """Whether these are tensors of one element that can be put side by side as they are: what a loop has computed is
    then recorded, and not read one by one. Numbers that change their dtype are looked at."""
    first = data[0]
    kind = first.spec.dtype
    return (dtype is None or dtype is kind) and all(
        isinstance(x, TensorBase) and x.spec.numel == 1 and x.spec.dtype is kind and x.spec.device is first.spec.device
        for x in data)


def _converted(array: Any, dtype: DType, checked: bool) -> Any:
    """The array in another dtype, in which, if `checked`, its numbers have a place."""
    import numpy as np
    if dtype.kind != "float":
        if checked and dtype.kind == "int" and array.size:
            for number in (array.min().item(), array.max().item()):
                require_in_range("tensor", number, dtype)
        return array.astype(dtype.numpy)
    with np.errstate(over="ignore"):  # a float that is too large is infinite
        return array.astype(dtype.numpy)


def require_in_range(op: str, value: Any, dtype: DType, operands: Sequence[tuple[str, object]] = ()) -> None:
    """RuntimeError for a number that a dtype of integers or floats cannot hold. Infinity and NaN are floats, too.

    uint8 takes negative integers, which count from the end, as in torch.
    """
    assert dtype.min is not None and dtype.max is not None
    least, most = ((int(dtype.min), int(dtype.max)) if dtype.kind == "int" else (float(dtype.min), float(dtype.max)))
    if least == 0 and isinstance(value, int):
        least = -most
    if dtype.kind == "float" and not math.isfinite(value):
        return
    if not least <= value <= most:  # nor is NaN
        raise failure(op, f"value cannot be converted to type {dtype!r} without overflow: {value}", operands,
                      hint=f"numbers from {least} to {most}")


def _array(data: Any, dtype: DType | None) -> Any:
    import numpy as np
    if isinstance(data, (list, tuple)) and _holds_tensors(data):
        data = _plain(data)
    if hasattr(data, "detach") and hasattr(data, "numpy") and not isinstance(data, TensorBase):  # a torch tensor
        data = data.detach().cpu().numpy()
    try:
        array = np.array(data)
        if array.dtype == object:
            raise RuntimeError("the elements are not all numbers")
        dtype_of_numpy(array.dtype)
        return array
    except (ValueError, TypeError, RuntimeError) as error:
        raise failure("tensor", f"cannot make a tensor of {type(data).__name__}: {error}", error=type(error)) from None


def dtype_of_nested(data: Any, kind: str) -> DType:
    """The dtype of nested sequences: tensors and numpy's scalars and arrays have theirs, numbers the default one of
    their kind.

    `kind` is that of all of them together.
    """
    import numpy as np
    found: set[Any] = set()
    todo = [data]
    while todo:
        row = todo.pop()
        kinds = set(map(type, row))
        found |= kinds & PLAIN
        if not kinds <= PLAIN:  # rarely: what is in a row of numbers is told in C
            todo += [x for x in row if isinstance(x, (list, tuple))]
            found |= {x.dtype for x in row if isinstance(x, (np.ndarray, np.generic, TensorBase))}  # type: ignore[union-attr]
    if found <= PLAIN:
        return default_dtype(kind)
    return functools.reduce(promote_types, (
        x if isinstance(x, DType) else dtype_of_numpy(x) if isinstance(x, np.dtype) else
        default_dtype(number_kind(x())) for x in found))


def _holds_tensors(data: Any) -> bool:
    """Is there a tensor in nested sequences? Of a row of numbers that is told in C."""
    return not PLAIN.issuperset(map(type, data)) and any(
        isinstance(x, TensorBase) or (isinstance(x, (list, tuple)) and _holds_tensors(x)) for x in data)


def _plain(data: Any) -> Any:
    if isinstance(data, TensorBase):  # one of one element is a number, of whatever dimensions
        return data.item() if data.spec.numel == 1 else data.tolist()  # type: ignore[attr-defined]
    return [_plain(x) for x in data] if isinstance(data, (list, tuple)) else data


def as_tensor(data: Any, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """The tensor itself, or one sharing a numpy array's memory, where dtype and device allow; else a copy."""
    import numpy as np
    if isinstance(data, TensorBase):
        return data.to(device=device_from(device) if device is not None else None, dtype=dtype)  # type: ignore[attr-defined]
    if isinstance(data, np.ndarray) and device_from(device) is cpu and data.flags.c_contiguous and (
            dtype is None or dtype.numpy == data.dtype):
        return from_numpy(data)
    return tensor(data, dtype=dtype, device=device)


def asarray(obj: Any, *, dtype: DType | None = None, device: DeviceLike = None, copy: bool | None = None,
            requires_grad: bool = False) -> Tensor:
    """A tensor of anything. It shares memory where it can, unless `copy` is True; ValueError if `copy` is False and it
    cannot.

    >>> import genesis
    >>> genesis.asarray([1, 2], dtype=genesis.float32)
    tensor([1., 2.])
    """
    import numpy as np
    made = tensor(obj, dtype=dtype, device=device) if copy else as_tensor(obj, dtype=dtype, device=device)
    shared = made is obj or (isinstance(obj, np.ndarray) and made.storage.exported)
    if copy is False and not shared:
        raise failure("asarray", f"copy=False, but {type(obj).__name__} cannot be shared", error=ValueError)
    if requires_grad and made is obj:
        made = made.detach()
    return finish(made, requires_grad)


def _constant(shape: tuple[int, ...], value: Any, dtype: DType | None, device: DeviceLike,
              requires_grad: bool) -> Tensor:
    node = leaves.full(shape, value, dtype or default_dtype("float"), device_from(device))
    return finish(wrap(node), requires_grad)


def zeros(*sizes: Any, size: Any = None, dtype: DType | None = None, device: DeviceLike = None,
          requires_grad: bool = False,
          out: Tensor | None = None) -> Tensor:
    """Zeros of this shape.

    >>> import genesis
    >>> genesis.zeros(2)
    tensor([0., 0.])
    """
    dtype, device = made_like(out, dtype, device)
    return into(out, _constant(shape_of(sizes if size is None else (size,)), 0, dtype, device, requires_grad))


def ones(*sizes: Any, size: Any = None, dtype: DType | None = None, device: DeviceLike = None,
         requires_grad: bool = False,
         out: Tensor | None = None) -> Tensor:
    """Ones of this shape."""
    dtype, device = made_like(out, dtype, device)
    return into(out, _constant(shape_of(sizes if size is None else (size,)), 1, dtype, device, requires_grad))


def empty(*sizes: Any, size: Any = None, dtype: DType | None = None, device: DeviceLike = None,
          requires_grad: bool = False, memory_format: MemoryFormat | None = None,
          out: Tensor | None = None) -> Tensor:
    """A tensor of this shape whose content is not specified (zeros: no memory is touched until it is used)."""
    dtype, device = made_like(out, dtype, device)
    found = _constant(shape_of(sizes if size is None else (size,)), 0, dtype, device, requires_grad)
    return into(out, found if memory_format is None else found.contiguous(memory_format=memory_format))


def full(size: Sequence[int], fill_value: Any, *, dtype: DType | None = None, device: DeviceLike = None,
         requires_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """The value in every element; its kind gives the dtype."""
    dtype, device = made_like(out, dtype, device)
    shape = shape_of((size,))
    if isinstance(fill_value, TensorBase):
        fill_value = fill_value.item()  # type: ignore[attr-defined]
    target = tensor_type(shape, dtype or default_dtype(number_kind(fill_value)), device_from(device))
    return into(out, finish(wrap(emit(composite.fill, (number(fill_value),), (target,))), requires_grad))


def zeros_like(input: Tensor, *, dtype: DType | None = None, device: DeviceLike = None,
               requires_grad: bool = False, memory_format: MemoryFormat | None = None) -> Tensor:
    """Zeros with the input's shape, dtype, device and layout."""
    made = zeros(input.spec.shape, dtype=dtype or input.spec.dtype, device=device or input.spec.device)
    return finish(as_laid_out("zeros_like", made, input, memory_format), requires_grad)


def ones_like(input: Tensor, *, dtype: DType | None = None, device: DeviceLike = None,
              requires_grad: bool = False, memory_format: MemoryFormat | None = None) -> Tensor:
    """Ones with the input's shape, dtype, device and layout."""
    made = ones(input.spec.shape, dtype=dtype or input.spec.dtype, device=device or input.spec.device)
    return finish(as_laid_out("ones_like", made, input, memory_format), requires_grad)


def empty_like(input: Tensor, *, dtype: DType | None = None, device: DeviceLike = None,
               requires_grad: bool = False, memory_format: MemoryFormat | None = None) -> Tensor:
    """A tensor like the input whose content is not specified."""
    return zeros_like(input, dtype=dtype, device=device, requires_grad=requires_grad, memory_format=memory_format)


def full_like(input: Tensor, fill_value: Any, *, dtype: DType | None = None, device: DeviceLike = None,
              requires_grad: bool = False, memory_format: MemoryFormat | None = None) -> Tensor:
    """The value in every element, with the input's shape, dtype, device and layout."""
    made = full(input.spec.shape, fill_value, dtype=dtype or input.spec.dtype, device=device or input.spec.device)
    return finish(as_laid_out("full_like", made, input, memory_format), requires_grad)


def as_laid_out(op: str, made: Tensor, input: Tensor, memory_format: MemoryFormat | None) -> Tensor:
    """A fresh result of the input's shape, with its elements in the input's order, or in the format's."""
    part = input.part
    if memory_format is None and (part is None or not part.turned):
        return made
    return wrap_laid_out(read(made), strides_like(op, input, memory_format))


def scalar_tensor(s: float, *, dtype: DType | None = None, device: DeviceLike = None,
                  requires_grad: bool = False) -> Tensor:
    """A 0-d tensor with the number, in the default floating-point dtype.

    >>> import genesis
    >>> genesis.scalar_tensor(3)
    tensor(3.)
    """
    return full((), s, dtype=dtype or default_dtype("float"), device=device, requires_grad=requires_grad)


def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor like the input with the value (a number or a 0-d tensor) in every element.

    >>> import genesis
    >>> genesis.fill(genesis.zeros(2), 7)
    tensor([7., 7.])
    """
    require_tensors(input)
    return input.clone().fill_(value)


def overwrite(tensor: Any, value: Tensor, uniform: bool = False) -> Any:
    """Write a value that is not computed from the tensor's content; `uniform`: all its elements are equal."""
    assign(tensor, read(value), replaces=True, uniform=uniform)
    return tensor


class CreationMethods(TensorBase):
    """Methods of a tensor that make or fill tensors like it."""

    __slots__ = ()

    def new_zeros(self: Any, *sizes: Any, size: Any = None, dtype: DType | None = None, device: DeviceLike = None,
                  requires_grad: bool = False) -> Tensor:
        """Zeros of this shape, with this tensor's dtype and device."""
        return zeros(*sizes, size=size, dtype=dtype or self.spec.dtype, device=device or self.spec.device,
                     requires_grad=requires_grad)

    def new_ones(self: Any, *sizes: Any, size: Any = None, dtype: DType | None = None, device: DeviceLike = None,
                 requires_grad: bool = False) -> Tensor:
        """Ones of this shape, with this tensor's dtype and device."""
        return ones(*sizes, size=size, dtype=dtype or self.spec.dtype, device=device or self.spec.device,
                     requires_grad=requires_grad)

    def new_empty(self: Any, *sizes: Any, size: Any = None, dtype: DType | None = None, device: DeviceLike = None,
                  requires_grad: bool = False) -> Tensor:
        """A tensor of this shape whose content is not specified, with this tensor's dtype and device."""
        return empty(*sizes, size=size, dtype=dtype or self.spec.dtype, device=device or self.spec.device,
                     requires_grad=requires_grad)

    def new_full(self: Any, size: Any, fill_value: Any, *, dtype: DType | None = None, device: DeviceLike = None,
                 requires_grad: bool = False) -> Tensor:
        """The value in this shape, with this tensor's dtype and device."""
        return full(size, fill_value, dtype=dtype or self.spec.dtype, device=device or self.spec.device,
                    requires_grad=requires_grad)

    def new_tensor(self: Any, data: Any, *, dtype: DType | None = None, device: DeviceLike = None,
                   requires_grad: bool = False) -> Tensor:
        """A copy of the data as a tensor with this tensor's dtype and device."""
        return tensor(data, dtype=dtype or self.spec.dtype, device=device or self.spec.device,
                      requires_grad=requires_grad)

    def new(self: Any, *args: Any, device: DeviceLike = None) -> Tensor:
        """torch's constructor of old, with this tensor's dtype and device: of sizes, of data, or of a tensor's memory.

        >>> import genesis
        >>> x = genesis.ones(1, dtype=genesis.float64)
        >>> x.new(2, 3).shape, x.new([1, 2])
        (genesis.Size([2, 3]), tensor([1., 2.], dtype=genesis.float64))
        """
        if len(args) == 1 and isinstance(args[0], TensorBase):
            return args[0].view_as(args[0])  # type: ignore[attr-defined]
        if len(args) == 1 and isinstance(args[0], Sequence) and not hasattr(args[0], "numel"):
            return self.new_tensor(args[0], device=device)
        return empty(*(args or (0,)), dtype=self.spec.dtype, device=device or self.spec.device)

    def zero_(self: Any) -> Tensor:
        """Write zeros."""
        return overwrite(self, zeros_like(self), uniform=True)

    def fill_(self: Any, value: Any) -> Tensor:
        """Write the value to every element."""
        if isinstance(value, TensorBase):
            return self.copy_(value.expand(self.spec.shape))  # type: ignore[attr-defined]
        return overwrite(self, full_like(self, value), uniform=True)
