"""The names that a pickle of torch's may have, and what stands for each: nothing of it is imported or executed."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from math import prod
from typing import Any, Final

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Size, Tensor
from genesis.ir.types import Device, DType, dtype_named
from genesis.utils.restricted_pickle import Function, checked_key
from genesis.utils.safetensors_file import MOST_DIMENSIONS, Damaged
from genesis.utils.torch_kinds import (
    DTYPES,
    FOREIGN_DTYPES,
    FOREIGN_STORAGES,
    STORAGES,
    UNTYPED,
    ForeignDType,
    Kind,
    StorageKind,
    no_such_dtype,
)
from genesis.utils.torch_storages import Memory, Untyped

MOST_ELEMENTS: Final = 1 << 62
"""Elements of a tensor, at the most, which may be one element of its storage again and again."""


def allowed_names() -> dict[str, Any]:
    """The names that a pickle may have, and what stands for each."""
    found: dict[str, Any] = {name: Function(name, call) for name, call in _FUNCTIONS.items()}
    found.update({f"{room}.{name}": StorageKind(name) for name in (*STORAGES, *FOREIGN_STORAGES)
                  for room in ("torch", "torch.storage", "torch.cuda")})
    found.update({f"torch.{name}": dtype_named(name) for name in DTYPES})
    found.update({f"torch.{name}": ForeignDType(name) for name in FOREIGN_DTYPES})
    found.update({name: Kind(name) for name in (
        "torch.Tensor", "torch._tensor.Tensor", "torch.nn.parameter.Parameter", "torch.nn.parameter.Buffer",
        *_FACTORIES)})
    found["torch.storage.UntypedStorage"] = found["torch.UntypedStorage"] = UNTYPED
    return found


def refusal(name: str) -> str:
    """Why a name is not among these, and what to save instead."""
    if name.startswith("torch._utils._rebuild_"):
        return f"it has a tensor of a kind that Genesis does not have ({name}): sparse, quantized, or of a subclass"
    return (f"it names {name}, which is code, or an object of a class; nothing in a file is executed, and what "
            "torch.save writes of tensors, numbers, texts and containers of them names no such thing: save "
            "model.state_dict(), not the model")


def _rebuild_tensor(storage: Any, offset: Any, size: Any, stride: Any, requires_grad: Any = False, hooks: Any = (),
                    metadata: Any = None) -> Tensor:
    """`torch._utils._rebuild_tensor_v2`: a part of a storage."""
    if not isinstance(storage, Memory):
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
    if isinstance(dtype, ForeignDType):
        raise no_such_dtype(dtype.name)
    if not isinstance(storage, Untyped) or not isinstance(dtype, DType) or storage.nbytes % dtype.itemsize:
        raise Damaged("a tensor in it has no storage of bytes")
    memory = storage.reader.memory(storage.key, dtype, storage.location, storage.nbytes // dtype.itemsize)
    return _rebuild_tensor(memory, offset, size, stride, requires_grad, hooks, metadata)


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


def _rebuild_parameter(data: Any, requires_grad: Any, hooks: Any, state: Any = None) -> Tensor:
    """`torch._utils._rebuild_parameter`, with or without a state: attributes are not kept."""
    from genesis.nn import Parameter
    if not isinstance(data, Tensor) or not _is_empty(hooks):
        raise Damaged("a parameter in it is over no tensor, or has hooks")
    return Parameter(data, requires_grad=requires_grad is True and data.dtype.kind == "float")


def _rebuild_from_type(function: Any, kind: Any, args: Any, state: Any) -> Any:
    """`torch._tensor._rebuild_from_type_v2`: a tensor with attributes, which are not kept."""
    tensors = (_rebuild_tensor, _rebuild_tensor_v3, _rebuild_parameter)
    if not isinstance(function, Function) or function.call not in tensors or not isinstance(kind, Kind):
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
    if factory is not None and not (isinstance(factory, Kind) and factory.name in _FACTORIES):
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
