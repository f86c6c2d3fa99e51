"""`FloatTensor`, `LongTensor` and their family: tensors of one dtype on the CPU, by the names that they had first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend.default_dtypes import set_default_dtype
from genesis.frontend.recording import TensorBase
from genesis.ir.errors import failure
from genesis.ir.types import DType, bfloat16, bool_, float16, float32, float64, int8, int16, int32, int64, uint8
from genesis.ops.creation import as_tensor, empty

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["BFloat16Tensor", "BoolTensor", "ByteTensor", "CharTensor", "DoubleTensor", "FloatTensor", "HalfTensor",
           "IntTensor", "LongTensor", "ShortTensor", "set_default_tensor_type"]


class TypedTensor(type):
    """The class of these classes: calling one makes a `Tensor`, and its instances are the tensors of its dtype.

    >>> import genesis
    >>> genesis.LongTensor([1, 2]), isinstance(genesis.ones(2), genesis.FloatTensor)
    (tensor([1, 2]), True)
    """

    dtype: DType
    device: str

    def __call__(cls, *data: Any, device: Any = None) -> Tensor:
        """A tensor of this shape, whose content is not specified, or of this data."""
        place = cls.device if device is None else device
        if not data:
            return empty(0, dtype=cls.dtype, device=place)
        if all(isinstance(size, int) for size in data):
            return empty(*data, dtype=cls.dtype, device=place)
        if len(data) > 1:
            raise failure(cls.__name__, f"it takes sizes or one sequence, not {len(data)} arguments", error=TypeError)
        given = data[0] if not hasattr(data[0], "__next__") else list(data[0])
        if type(given).__name__ == "Size":
            return empty(*given, dtype=cls.dtype, device=place)
        return as_tensor(list(given) if isinstance(given, range) else given, dtype=cls.dtype, device=place)

    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, TensorBase) and x.dtype is cls.dtype and x.device.type == cls.device  # type: ignore


def _typed(name: str, dtype: DType, device: str = "cpu") -> Any:
    where = "genesis" if device == "cpu" else f"genesis.{device}"
    made = TypedTensor(name, (), {"__module__": where, "__doc__": f"Tensors of {dtype!r} on {device}."})
    made.dtype, made.device = dtype, device
    return made


DTYPES = {"FloatTensor": float32, "DoubleTensor": float64, "HalfTensor": float16, "BFloat16Tensor": bfloat16,
          "LongTensor": int64, "IntTensor": int32, "ShortTensor": int16, "CharTensor": int8, "ByteTensor": uint8,
          "BoolTensor": bool_}
"""Name → dtype."""

FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor, LongTensor, IntTensor, ShortTensor, CharTensor, ByteTensor, \
    BoolTensor = (_typed(name, dtype) for name, dtype in DTYPES.items())
ON_GPUS = {name: _typed(name, dtype, "cuda") for name, dtype in DTYPES.items()}
"""`genesis.cuda.FloatTensor` and its family."""


def typed_name(dtype: DType, device: str) -> str:
    """The name of the class of a dtype and device, as `Tensor.type()` says it.

    >>> typed_name(float32, "cpu")
    'genesis.FloatTensor'
    """
    name = next(name for name, found in DTYPES.items() if found is dtype)
    return f"genesis.{name}" if device == "cpu" else f"genesis.{device}.{name}"


def typed_class(given: Any) -> tuple[DType, str | None]:
    """The dtype, and for a class or its name the device, that `Tensor.type(given)` asks for."""
    if isinstance(given, DType):
        return given, None
    if isinstance(given, str):
        *where, name = given.split(".")
        if name in DTYPES and where in (["genesis"], ["torch"], ["genesis", "cuda"], ["torch", "cuda"]):
            return DTYPES[name], "cuda" if where[-1] == "cuda" else "cpu"
    elif isinstance(given, TypedTensor):
        return given.dtype, given.device
    raise failure("type", f"invalid type: {given!r}", hint="a dtype, as genesis.float32", error=ValueError)


class TypeMethods(TensorBase):
    """The name that a tensor's dtype and device have together."""

    def type(self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
        """The name of the tensor's class by dtype and device; with a dtype the tensor cast to it.

        Args:
            dtype: a dtype, which leaves the device as it is; `genesis.LongTensor` or the name of such a class: their
                tensors are on their device.
            non_blocking: accepted; copies are ordered on the stream either way.

        Raises:
            ValueError: it is neither.

        >>> import genesis
        >>> genesis.ones(2).type(), genesis.tensor([1.5, 2]).type(genesis.int64)
        ('genesis.FloatTensor', tensor([1, 2]))
        """
        if dtype is None:
            return typed_name(self.dtype, self.device.type)
        wanted, device = typed_class(dtype)
        return self.to(wanted) if device is None else self.to(device=device, dtype=wanted)


def set_default_tensor_type(t: Any) -> None:
    """`set_default_dtype` by a class: `set_default_tensor_type(genesis.DoubleTensor)`."""
    set_default_dtype(typed_class(t)[0])
