"""Operands of other libraries: what an operator does with a numpy array, and who is asked when it cannot.

As in torch, numpy's scalars are numbers, and a function takes no array. `tensor * array` is numpy's product of the two,
handed back as a tensor: numpy asks the tensor for an array (`Tensor.__array__`, which refuses where gradients would be
lost) and gives its result to `Tensor.__array_wrap__`. `array * tensor` is left to the tensor (`__array_priority__`),
which refuses: whose dtype rules hold would not be plain to see. Only `array / tensor` is `tensor.reciprocal() * array`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase
from genesis.ir.errors import NotAnOperand
from genesis.ir.numbers import as_number
from genesis.ir.types import cpu
from genesis.ops.creation import from_host
from genesis.ops.interop import from_numpy

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor


def is_array(value: Any) -> bool:
    """Whether the value is a numpy array."""
    numpy = sys.modules.get("numpy")  # whoever has an array has loaded numpy
    return numpy is not None and isinstance(value, numpy.ndarray)


def comparable(value: Any) -> bool:
    """True for what a tensor can be compared with, element by element."""
    return isinstance(value, TensorBase) or as_number(value) is not None or hasattr(value, "__array__")


def compared(value: Any) -> Any:
    """An array as a tensor, anything else as it is: == and != take arrays, for numpy leaves them to the tensor."""
    return from_host(value, cpu) if is_array(value) else value


def reflected(error: NotAnOperand, other: Any, name: str) -> Any:
    """NotImplemented, as Python wants it, if the other operand has this method; else the error is raised.

    A torch tensor has it, and does not know a tensor of Genesis: there the error says more.
    """
    kind = type(other)
    if hasattr(kind, name) and kind.__module__.partition(".")[0] != "torch":
        return NotImplemented
    raise error


def called_by_torch(function: Any, types: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """What torch's function is of these arguments: Genesis' one of that name.

    NotImplemented, on which torch raises TypeError, where there is no such function.
    """
    name, genesis = getattr(function, "__name__", ""), sys.modules["genesis"]
    place = getattr(function, "__module__", None) or ""
    homes = (genesis, genesis.nn.functional)
    for home in homes[::-1] if place == "torch.nn.functional" else homes:
        if not name.startswith("_") and hasattr(home, name):
            return getattr(home, name)(*args, **options)
    return NotImplemented


def wrapped(array: Any) -> Tensor:
    """The tensor of an array that numpy made of a tensor: over its memory, unless that is nobody else's."""
    return from_host(array, cpu) if array.base is None else from_numpy(array)
