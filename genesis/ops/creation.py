"""Making tensors: from data, constant, and random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.ir.errors import failure
from genesis.ir.node import make, number
from genesis.ir.ops import composite, leaves, pointwise
from genesis.ir.ops import random as drawing
from genesis.ir.types import Device, DType, cpu, dtype_of_numpy, float64, int64, tensor_type
from genesis.ops.common import default_dtype, shape_of
from genesis.random import Generator, draw_numbers
from genesis.recording import TensorBase, assign, emit, over, wrap, wrap_memory
from genesis.storage import Cell, Storage

if TYPE_CHECKING:
    from genesis.tensor import Tensor

DeviceLike = Device | str | int | None
_default_device = cpu


def device_from(device: DeviceLike) -> Device:
    """A device from what a user writes: None, "cpu", "cuda", "cuda:1", 1 or a device."""
    if device is None:
        return _default_device
    if device is cpu or device == "cpu":
        return cpu
    try:
        return _gpu_from(device)
    except RuntimeError as error:
        raise failure("device", f"{device} cannot be used: {error}") from None


def _gpu_from(device: Device | str | int) -> Device:
    """The GPU meant, if there is a driver for one."""
    from genesis.runtime.cuda_driver import driver
    driver()
    if isinstance(device, Device):
        return device
    if isinstance(device, int):
        return Device("cuda", device)
    if device == "cuda":
        from genesis.runtime.cuda_stream import current_device
        return Device("cuda", current_device())
    return Device(device)


def set_default_device(device: DeviceLike) -> None:
    """Where tensors are made when nothing else is said."""
    global _default_device
    _default_device = device_from(device)


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
    place = device_from(device)
    if isinstance(data, TensorBase):
        source = data.detach().clone()  # type: ignore[attr-defined]
        moved = source.to(device=place if device is not None else None, dtype=dtype)
        return finish(moved, requires_grad)
    array = _array(data, dtype)
    kind = dtype_of_numpy(array.dtype)
    if dtype is None and not isinstance(data, (np.ndarray, np.generic)):
        dtype = default_dtype(kind.kind)
    if dtype is not None and dtype is not kind:
        array = array.astype(dtype.numpy)
        kind = dtype
    return finish(from_host(array, place), requires_grad)


def _array(data: Any, dtype: DType | None) -> Any:
    import numpy as np
    if isinstance(data, (list, tuple)) and _holds_tensors(data):
        data = _plain(data)
    if hasattr(data, "detach") and hasattr(data, "numpy") and not isinstance(data, TensorBase):  # a torch tensor
        data = data.detach().cpu().numpy()
    try:
        array = np.array(data)
        if array.dtype == object:
            raise ValueError("the elements are not all numbers, or the rows differ in length")
        dtype_of_numpy(array.dtype)
        return array
    except (ValueError, TypeError) as error:
        raise failure("tensor", f"cannot make a tensor of {type(data).__name__}: {error}", error=type(error)) from None


def _holds_tensors(data: Any) -> bool:
    return any(isinstance(x, TensorBase) or (isinstance(x, (list, tuple)) and _holds_tensors(x)) for x in data)


def _plain(data: Any) -> Any:
    if isinstance(data, TensorBase):
        return data.tolist()  # type: ignore[attr-defined]
    return [_plain(x) for x in data] if isinstance(data, (list, tuple)) else data


def from_host(array: Any, place: Device) -> Tensor:
    """A tensor on `place` with a copy of a numpy array."""
    import numpy as np
    array = np.ascontiguousarray(array).reshape(array.shape)
    kind = tensor_type(tuple(array.shape), dtype_of_numpy(array.dtype), place)
    from genesis.engine import allocate
    memory = allocate(kind.nbytes, place)
    if kind.nbytes:
        memory.copy_from_host(array)
    return wrap_memory(memory, kind)


def from_numpy(array: Any) -> Tensor:
    """A CPU tensor that shares the array's memory: writes to either are seen by the other."""
    from genesis.runtime.cpu_storage import CPUStorage
    kind = tensor_type(tuple(array.shape), dtype_of_numpy(array.dtype), cpu)
    if not array.flags.c_contiguous:
        raise failure("from_numpy", "only C-contiguous arrays can be shared", hint="use genesis.tensor, which copies")
    storage = Storage(kind, None, Cell(CPUStorage.wrap(array)))
    owner = array
    while hasattr(owner.base, "__array_interface__"):  # a view shares its owner's memory, and may die first
        owner = owner.base
    storage.share(owner)
    return over(storage, kind, None)


def as_tensor(data: Any, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """The tensor itself, or one sharing a numpy array's memory, where dtype and device allow; else a copy."""
    import numpy as np
    if isinstance(data, TensorBase):
        return data.to(device=device_from(device) if device is not None else None, dtype=dtype)  # type: ignore[attr-defined]
    if isinstance(data, np.ndarray) and device_from(device) is cpu and data.flags.c_contiguous and (
            dtype is None or dtype.numpy == data.dtype):
        return from_numpy(data)
    return tensor(data, dtype=dtype, device=device)


asarray = as_tensor


def _constant(shape: tuple[int, ...], value: Any, dtype: DType | None, device: DeviceLike,
              requires_grad: bool) -> Tensor:
    node = leaves.full(shape, value, dtype or default_dtype("float"), device_from(device))
    return finish(wrap(node), requires_grad)


def zeros(*size: Any, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Zeros of this shape.

    >>> import genesis
    >>> genesis.zeros(2)
    tensor([0., 0.])
    """
    return _constant(shape_of(size), 0, dtype, device, requires_grad)


def ones(*size: Any, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """Ones of this shape."""
    return _constant(shape_of(size), 1, dtype, device, requires_grad)


def empty(*size: Any, dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False) -> Tensor:
    """A tensor of this shape whose content is not specified (zeros: no memory is touched until it is used)."""
    return _constant(shape_of(size), 0, dtype, device, requires_grad)


def full(size: Sequence[int], fill_value: Any, *, dtype: DType | None = None, device: DeviceLike = None,
         requires_grad: bool = False) -> Tensor:
    """The value in every element; its kind gives the dtype."""
    shape = shape_of((size,))
    if isinstance(fill_value, TensorBase):
        fill_value = fill_value.item()  # type: ignore[attr-defined]
    kind = "bool" if isinstance(fill_value, bool) else "int" if isinstance(fill_value, int) else "float"
    target = tensor_type(shape, dtype or default_dtype(kind), device_from(device))
    return finish(wrap(emit(composite.fill, (number(fill_value),), (target,))), requires_grad)


def zeros_like(input: Tensor, *, dtype: DType | None = None, device: DeviceLike = None,
               requires_grad: bool = False) -> Tensor:
    """Zeros with the input's shape, dtype and device."""
    return zeros(input.type.shape, dtype=dtype or input.type.dtype, device=device or input.type.device,
                 requires_grad=requires_grad)


def ones_like(input: Tensor, *, dtype: DType | None = None, device: DeviceLike = None,
              requires_grad: bool = False) -> Tensor:
    """Ones with the input's shape, dtype and device."""
    return ones(input.type.shape, dtype=dtype or input.type.dtype, device=device or input.type.device,
                requires_grad=requires_grad)


empty_like = zeros_like


def full_like(input: Tensor, fill_value: Any, *, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """The value in every element, with the input's shape, dtype and device."""
    return full(input.type.shape, fill_value, dtype=dtype or input.type.dtype, device=device or input.type.device)


def eye(n: int, m: int | None = None, *, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """Ones on the diagonal of an n × m matrix, zeros elsewhere."""
    rows, columns = arange(n, device=device), arange(n if m is None else m, device=device)
    return (rows.unsqueeze(1) == columns.unsqueeze(0)).to(dtype or default_dtype("float"))


def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: DType | None = None, device: DeviceLike = None,
           requires_grad: bool = False) -> Tensor:
    """start, start + step, … below end.

    >>> import genesis
    >>> genesis.arange(1, 7, 2)
    tensor([1, 3, 5])
    """
    import math
    if end is None:
        start, end = 0, start
    if step == 0 or (end - start) * step < 0:
        raise failure("arange", f"upper bound and lower bound inconsistent with step sign: {start}, {end}, {step}")
    whole = all(isinstance(x, int) for x in (start, end, step))
    kind = dtype or default_dtype("int" if whole else "float")
    count = max(math.ceil((end - start) / step), 0)
    place = device_from(device)
    if kind.kind == "int" and whole:
        index = make(leaves.iota, (), ((count,), 0, kind, place))
        node = index if (start, step) == (0, 1) else index * step + start
    else:
        index = make(leaves.iota, (), ((count,), 0, int64, place))
        exact = make(pointwise.cast, (index,), (float64,)) * float(step) + float(start)
        node = make(pointwise.cast, (exact,), (kind,))
    return finish(wrap(node), requires_grad)


def linspace(start: float, end: float, steps: int, *, dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """`steps` evenly spaced values from start to end, both included."""
    index = arange(steps, dtype=float64, device=device)
    step = (end - start) / max(steps - 1, 1)
    return (index * step + start).to(dtype or default_dtype("float"))


def _drawn(op: Any, size: tuple[Any, ...], dtype: DType | None, device: DeviceLike, generator: Generator | None,
           requires_grad: bool) -> Tensor:
    attrs = (shape_of(size), dtype or default_dtype("float"), device_from(device))
    return finish(wrap(emit(op, tuple(draw_numbers(generator)), attrs)), requires_grad)


def rand(*size: Any, generator: Generator | None = None, dtype: DType | None = None, device: DeviceLike = None,
         requires_grad: bool = False) -> Tensor:
    """Uniform in [0, 1)."""
    return _drawn(drawing.uniform, size, dtype, device, generator, requires_grad)


def randn(*size: Any, generator: Generator | None = None, dtype: DType | None = None, device: DeviceLike = None,
          requires_grad: bool = False) -> Tensor:
    """Standard normal."""
    return _drawn(drawing.normal, size, dtype, device, generator, requires_grad)


def randint(low: int, high: Any = None, size: Any = None, *, generator: Generator | None = None,
            dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """Integers in [low, high), or in [0, low) when called as randint(high, size)."""
    if size is None:
        low, high, size = 0, low, high
    if low >= high:
        raise failure("randint", f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    attrs = (shape_of((size,)), dtype or default_dtype("int"), device_from(device))
    return wrap(emit(drawing.integers, (*draw_numbers(generator), number(int(low)), number(int(high))), attrs))


def rand_like(input: Tensor, *, dtype: DType | None = None) -> Tensor:
    """Uniform in [0, 1), with the input's shape, dtype and device."""
    return rand(input.type.shape, dtype=dtype or input.type.dtype, device=input.type.device)


def randn_like(input: Tensor, *, dtype: DType | None = None) -> Tensor:
    """Standard normal, with the input's shape, dtype and device."""
    return randn(input.type.shape, dtype=dtype or input.type.dtype, device=input.type.device)


def normal(mean: float = 0.0, std: float = 1.0, size: Any = (), *, generator: Generator | None = None,
           dtype: DType | None = None, device: DeviceLike = None) -> Tensor:
    """Normal with this mean and standard deviation."""
    return randn(size, generator=generator, dtype=dtype, device=device) * float(std) + float(mean)


class CreationMethods(TensorBase):
    """Methods of a tensor that make or fill tensors like it."""

    __slots__ = ()

    def new_zeros(self: Any, *size: Any, dtype: DType | None = None) -> Tensor:
        """Zeros of this shape, with this tensor's dtype and device."""
        return zeros(*size, dtype=dtype or self.type.dtype, device=self.type.device)

    def new_ones(self: Any, *size: Any, dtype: DType | None = None) -> Tensor:
        """Ones of this shape, with this tensor's dtype and device."""
        return ones(*size, dtype=dtype or self.type.dtype, device=self.type.device)

    def new_full(self: Any, size: Any, fill_value: Any, dtype: DType | None = None) -> Tensor:
        """The value in this shape, with this tensor's dtype and device."""
        return full(size, fill_value, dtype=dtype or self.type.dtype, device=self.type.device)

    def _fill_with(self: Any, result: Tensor, uniform: bool = False) -> Tensor:
        from genesis.recording import read
        assign(self, read(result), replaces=True, uniform=uniform)
        return self

    def zero_(self: Any) -> Tensor:
        """Write zeros."""
        return self._fill_with(zeros_like(self), uniform=True)

    def fill_(self: Any, value: Any) -> Tensor:
        """Write the value to every element."""
        if isinstance(value, TensorBase):
            return self.copy_(value.expand(self.type.shape))  # type: ignore[attr-defined]
        return self._fill_with(full_like(self, value), uniform=True)

    def normal_(self: Any, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Write normal random numbers."""
        return self._fill_with(normal(mean, std, self.type.shape, generator=generator, dtype=self.type.dtype,
                                      device=self.type.device))

    def uniform_(self: Any, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Write uniform random numbers in [a, b)."""
        drawn = rand(self.type.shape, generator=generator, dtype=self.type.dtype, device=self.type.device)
        return self._fill_with(drawn * float(b - a) + float(a))


