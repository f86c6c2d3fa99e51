"""Types of values in a program: dtype, device, shape.

`DType`, `Device` and `TensorType` objects are interned, so two equal ones are one object and
comparing or hashing them costs a pointer comparison. That is what makes recording cheap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import torch

    from genesis.ir.size_trace import Trace

__all__ = ["bfloat16", "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"]


class DType:
    """The type of an element.

    Attributes: `name` is the user's ("float32"), `short` is the IR text's ("f32"), `kind` is
    "bool", "int" or "float", `itemsize` is in bytes.
    """

    __slots__ = ("_numpy", "eps", "itemsize", "kind", "max", "min", "name", "order", "short")

    def __init__(self, name: str, short: str, kind: str, itemsize: int, order: int,
                 eps: float | None, low: float, high: float):
        self.name, self.short, self.kind, self.itemsize, self.order = name, short, kind, itemsize, order
        self.eps, self.min, self.max = eps, low, high
        self._numpy: np.dtype | None = None

    @property
    def numpy(self) -> np.dtype:
        """The numpy dtype of the same bits (bfloat16 is ml_dtypes')."""
        if self._numpy is None:
            import numpy as np
            if self.name == "bfloat16":
                import ml_dtypes
                self._numpy = np.dtype(ml_dtypes.bfloat16)
            else:
                self._numpy = np.dtype(self.name)
        return self._numpy

    @property
    def numpy_dtype(self) -> np.dtype:
        """`numpy` by its longer name."""
        return self.numpy

    @property
    def torch_dtype(self) -> torch.dtype:
        """torch's dtype of the same name."""
        import torch
        return getattr(torch, self.name)

    @property
    def is_floating_point(self) -> bool:
        """True for float16, bfloat16, float32 and float64."""
        return self.kind == "float"

    @property
    def is_complex(self) -> bool:
        """False: there are no complex numbers."""
        return False

    @property
    def is_signed(self) -> bool:
        """True for all but uint8 and bool."""
        return self.name not in ("uint8", "bool")

    def __repr__(self) -> str:
        return f"genesis.{self.name}"

    def __reduce__(self) -> tuple:
        return dtype_named, (self.name,)


def _int(name: str, short: str, size: int, order: int, signed: bool = True) -> DType:
    bits = size * 8
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    return DType(name, short, "int", size, order, None, low, high)


bool_: Final = DType("bool", "bool", "bool", 1, 0, None, 0, 1)
uint8: Final = _int("uint8", "u8", 1, 1, signed=False)
int8: Final = _int("int8", "i8", 1, 2)
int16: Final = _int("int16", "i16", 2, 3)
int32: Final = _int("int32", "i32", 4, 4)
int64: Final = _int("int64", "i64", 8, 5)
float16: Final = DType("float16", "f16", "float", 2, 6, 2.0**-10, -65504.0, 65504.0)
bfloat16: Final = DType("bfloat16", "bf16", "float", 2, 7, 2.0**-7, -3.3895313892515355e38, 3.3895313892515355e38)
float32: Final = DType("float32", "f32", "float", 4, 8, 2.0**-23, -3.4028234663852886e38, 3.4028234663852886e38)
float64: Final = DType("float64", "f64", "float", 8, 9, 2.0**-52, -1.7976931348623157e308, 1.7976931348623157e308)

DTYPES: Final = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64)
_BY_NAME: Final = {d.name: d for d in DTYPES}
_BY_SHORT: Final = {d.short: d for d in DTYPES}


def dtype_named(name: str) -> DType:
    """The dtype with this name, long ("float32") or short ("f32")."""
    found = _BY_NAME.get(name) or _BY_SHORT.get(name)
    if found is None:
        raise TypeError(f"unknown dtype {name!r}; the dtypes are {', '.join(_BY_NAME)}")
    return found


def dtype_of_numpy(dtype: np.dtype) -> DType:
    """The dtype with the bits of this numpy dtype."""
    found = _OF_NUMPY.get(dtype)
    if found is None:
        found = _BY_NAME.get(dtype.name)
        if found is None:
            raise TypeError(f"no Genesis dtype holds numpy's {dtype.name}; the dtypes are {', '.join(_BY_NAME)}")
        _OF_NUMPY[dtype] = found
    return found


_OF_NUMPY: Final[dict[np.dtype, DType]] = {}
"""numpy's dtypes that were met: numpy puts a dtype's name together whenever it is asked for, in 1.3 µs."""


CATEGORIES: Final = {"bool": 0, "int": 1, "float": 2}
"""`DType.kind` → its place in the order of promotion: of two dtypes the one of the higher category decides."""


def as_dtype(value: object) -> DType:
    """The dtype; what Python's `float`, `int` and `bool` are arrays of, as in torch.

    Raises:
        TypeError: it is neither.

    >>> as_dtype(float), as_dtype(float16)
    (genesis.float64, genesis.float16)
    """
    if isinstance(value, DType):
        return value
    found = PYTHON_TYPES.get(value) if isinstance(value, type) else None
    if found is None:
        raise not_a_dtype(value)
    return found


PYTHON_TYPES: Final[dict[type, DType]] = {float: float64, int: int64, bool: bool_}
"""Python's types → the dtypes that they stand for where one is asked for."""


def not_a_dtype(value: object) -> TypeError:
    """The error for another library's dtype, a name or a class of Python's where one of our dtypes should be.

    >>> print(not_a_dtype("float32"))
    expected a genesis dtype, not 'float32'
      try: genesis.float32
    """
    name = getattr(value, "__name__", None) or str(value).rpartition(".")[2]
    name = {"float": "float64", "int": "int64", "bool_": "bool"}.get(name, name)
    known = [dtype.name for dtype in DTYPES]
    hint = f"genesis.{name}" if name in known else "one of " + ", ".join(known)
    return TypeError(f"expected a genesis dtype, not {value!r}\n  try: {hint}")


def promote_types(a: DType, b: DType) -> DType:
    """The smallest dtype that both convert to, by torch's lattice.

    >>> promote_types(float16, bfloat16), promote_types(uint8, int8), promote_types(int64, float16)
    (genesis.float32, genesis.int16, genesis.float16)
    """
    if a is b:
        return a
    try:
        if b.order < a.order:
            a, b = b, a
    except AttributeError:
        return promote_types(as_dtype(a), as_dtype(b))
    if a is float16 and b is bfloat16:
        return float32
    if a is uint8 and b is int8:
        return int16
    return b


class DeviceKind(NamedTuple):
    """A type of device, as a backend registers it.

    Attributes:
        name: "cpu", "cuda".
        numbered: there may be several: "cuda:1".
    """

    name: str
    numbered: bool


_kinds: dict[str, DeviceKind] = {"cpu": DeviceKind("cpu", False), "cuda": DeviceKind("cuda", True),
                                 "meta": DeviceKind("meta", False)}


def add_device_kind(kind: DeviceKind) -> None:
    """Make `Device(kind.name)` a device."""
    _kinds[kind.name] = kind


def device_types() -> tuple[str, ...]:
    """The types that a device can have.

    >>> device_types()[:2]
    ('cpu', 'cuda')
    """
    return tuple(_kinds)


def is_device(word: str) -> bool:
    """Whether the word names a device: "cpu", "cuda:1"."""
    return word.partition(":")[0] in _kinds


def _devices_text() -> str:
    """What a device may be called, for people: 'cpu', 'cuda' or 'cuda:N'."""
    words = [repr(word) for kind in _kinds.values() for word in (kind.name, f"{kind.name}:N")[:1 + kind.numbered]]
    return f"{', '.join(words[:-1])} or {words[-1]}"


_current: dict[str, Callable[[], int]] = {}
"""Type → what tells the number of its current device, of whoever has such (`runtime/cuda/stream.py`)."""


def number_by(type: str, current: Callable[[], int]) -> None:
    """Let a device of this type that is named without a number be the one that this tells."""
    _current[type] = current


_context_of: list[Callable[[Device], object]] = []
"""What gives the context that makes a device the default: of who makes tensors (`ops/creation.py`)."""


def switch_default_by(context_of: Callable[[Device], object]) -> None:
    """Let `with device:` enter and leave the context that this gives for the device."""
    _context_of[:] = [context_of]


class _OfItsContext:
    """`__enter__` or `__exit__` of a device: that of its context, which may be a function of C
    (`runtime/contexts.py`)."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, device: Device | None, owner: type | None = None) -> Callable[..., object]:
        if device is None:  # looked up in the class, as `contextlib.ExitStack` does
            return lambda device, *error: getattr(_context_of[0](device), self._name)(*error)
        return getattr(_context_of[0](device), self._name)


class Device:
    """A place for memory: `type` is a backend's name ("cpu", "cuda"), `index` its device's number.

    As in torch the index of the CPU, of which there is one, is None. It is typed as an int for those who ask: code for
    GPUs, which have numbers. "cuda" is the GPU that is the current one when it is named.
    """

    __slots__ = ("index", "type")
    _all: dict[tuple[str, int], Device] = {}

    type: str
    index: int

    def __new__(cls, type: str | Device, index: int | None = None) -> Device:
        if isinstance(type, Device):
            return type
        name, _, number = type.partition(":")
        if name not in _kinds or (number and not number.isdigit()):
            from genesis.ir.suggest import did_you_mean
            near = did_you_mean(name, _kinds) if name not in _kinds else ""
            raise RuntimeError(f"invalid device {type!r}{near or ';'} use {_devices_text()}")
        if not number and index is None and name in _current:
            index = _current[name]()
        position = (int(number) if number else index or 0) if _kinds[name].numbered else 0
        self = cls._all.get((name, position))
        if self is None:
            self = object.__new__(cls)
            self.type, self.index = name, position if _kinds[name].numbered else None  # type: ignore[assignment]
            cls._all[name, position] = self
        return self

    @property
    def name(self) -> str:
        """The type: "cpu" or "cuda"."""
        return self.type

    @property
    def device_id(self) -> int | None:
        """The index."""
        return self.index

    def __str__(self) -> str:
        return f"{self.type}:{self.index}" if _kinds[self.type].numbered else self.type

    def __repr__(self) -> str:
        index = f", index={self.index}" if _kinds[self.type].numbered else ""
        return f"device(type='{self.type}'{index})"

    def __reduce__(self) -> tuple:
        return Device, (self.type, self.index)

    if TYPE_CHECKING:
        def __enter__(self) -> Device:
            """Inside, tensors are made on this device where nothing else is said."""

        def __exit__(self, *error: object) -> None:
            """The default is the one of before."""
    else:
        __enter__, __exit__ = _OfItsContext("__enter__"), _OfItsContext("__exit__")


cpu: Final = Device("cpu")


class TensorType:
    """Shape, dtype and device of a value. Interned: make one with `tensor_type`.

    `weak` marks a number (a Python scalar or a literal of a formula): 0-d, its dtype says only
    its category, and an op computes with it in the dtype of its other operands, as torch does.
    """

    __slots__ = ("device", "dtype", "ndim", "numel", "shape", "weak")

    shape: tuple[int, ...]
    dtype: DType
    device: Device
    weak: bool
    ndim: int
    numel: int

    @property
    def nbytes(self) -> int:
        """Bytes of the value when it is in memory."""
        return self.numel * self.dtype.itemsize

    def __str__(self) -> str:
        place = "" if self.device.type == "cpu" else f"@{self.device}"
        return f"{self.dtype.short}{'~' if self.weak else ''}[{','.join(map(str, self.shape))}]{place}"

    __repr__ = __str__

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        """The same dtype and device, another shape."""
        return tensor_type(shape, self.dtype, self.device)

    def with_dtype(self, dtype: DType) -> TensorType:
        """The same shape and device, another dtype."""
        return tensor_type(self.shape, dtype, self.device)

    def __reduce__(self) -> tuple:
        return tensor_type, (self.shape, self.dtype, self.device, self.weak)


_types: dict[tuple, TensorType] = {}


def tensor_type(shape: tuple[int, ...], dtype: DType, device: Device = cpu, weak: bool = False) -> TensorType:
    """The one `TensorType` with these parts."""
    key = (shape, dtype, device, weak)
    found = _types.get(key)
    if found is None:
        if dtype.__class__ is not DType:
            return tensor_type(shape, as_dtype(dtype), device, weak)
        for size in shape:
            if size.__class__ is not int and getattr(size, "value", size).__class__ is float:
                raise TypeError(f"sizes are ints, not {size}")  # 7.0 is an equal key: later tensors would have it
            if size.__class__ is int and size < 0:
                raise RuntimeError(f"Trying to create tensor with negative dimension {size}: {list(shape)}")
        found = object.__new__(TensorType)
        found.shape, found.dtype, found.device, found.weak = shape, dtype, device, weak
        found.ndim = len(shape)
        numel = 1
        for size in shape:
            numel *= size
        found.numel = numel
        for trace in traces_of(shape):
            trace.types.append(key)
        return _types.setdefault(key, found)  # another thread may have made it meanwhile
    return found


def has_sym_int(type: TensorType | tuple[TensorType, ...]) -> bool:
    """Whether some size of a type, or of one of several types, is symbolic (see `ir/sym_int.py`)."""
    if isinstance(type, tuple):
        return any(map(has_sym_int, type))
    return any(size.__class__ is not int for size in type.shape)


def traces_of(shape: Iterable[object]) -> set[Trace]:
    """The traces that some of these sizes belong to."""
    return {trace for size in shape if size.__class__ is not int
            and (trace := getattr(size, "trace", None)) is not None}


def forget_types_of(trace: Trace) -> None:
    """Drop the types with sizes of this trace, which is over, from the table; other threads' traces go on."""
    keys, trace.types = trace.types, []
    for key in keys:
        _types.pop(key, None)


def parse_type(text: str) -> TensorType:
    """The inverse of `str(TensorType)`.

    >>> parse_type("bf16[2,3]@cuda:0")
    bf16[2,3]@cuda:0
    """
    head, _, place = text.partition("@")
    name, _, sizes = head.rstrip("]").partition("[")
    weak = name.endswith("~")
    shape = tuple(int(size) for size in sizes.split(",")) if sizes else ()
    return tensor_type(shape, dtype_named(name.rstrip("~")), Device(place or "cpu"), weak)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of a contiguous tensor, in elements.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size if size else 1
    return tuple(reversed(strides))
