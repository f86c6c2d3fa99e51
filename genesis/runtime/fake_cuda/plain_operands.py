"""Operators of an interpreted kernel between plain operands: numpy computes them at once.

`a + b` in a kernel goes through seven functions of Triton's language, which ask for dtypes, shapes, pointers and
overflows, before numpy adds two arrays: 15 to 30 µs of which numpy has one. Nearly always both have one dtype of
numpy's and one shape, or one of them is a number, or a pointer meets an integer: then the answers are known. All else
goes the language's way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from triton import language

Operator = Callable[..., object]
"""A method of a tensor, or a function of the language."""

_INTEGERS: Final = frozenset({"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"})
_FLOATS: Final = frozenset({"fp32", "fp64"})
_NUMBERS: Final = _INTEGERS | _FLOATS | {"fp16"}
_BITS: Final = _INTEGERS | {"int1"}
_TAKES_NUMBERS: Final = frozenset({"int32", "int64", *_FLOATS})
"""Dtypes of tensors beside which a Python number of 31 bits is one of that dtype."""

_ARITHMETIC: Final[dict[str, tuple[np.ufunc, frozenset[str]]]] = {
    "__add__": (np.add, _NUMBERS), "__sub__": (np.subtract, _NUMBERS), "__mul__": (np.multiply, _NUMBERS),
    "__truediv__": (np.divide, _FLOATS), "__radd__": (np.add, _NUMBERS), "__rmul__": (np.multiply, _NUMBERS),
    "__and__": (np.bitwise_and, _BITS), "__or__": (np.bitwise_or, _BITS), "__xor__": (np.bitwise_xor, _BITS)}
"""Operator → what numpy calls it, and the dtypes of which it computes what the language does."""

_COMPARISONS: Final[dict[str, np.ufunc]] = {
    "__lt__": np.less, "__le__": np.less_equal, "__gt__": np.greater, "__ge__": np.greater_equal,
    "__eq__": np.equal, "__ne__": np.not_equal}

_MOST: Final = 1 << 31


def plain(place: object, name: str, original: Operator) -> Operator:
    """The operator of this name of a tensor, or function of the language; `original` if it is none of these.

    Args:
        original: what computes any operands.
    """
    import triton.language as tl
    if place is tl.tensor:
        if name in _ARITHMETIC:
            return _operator(*_ARITHMETIC[name], original, name == "__add__")
        if name in _COMPARISONS:
            return _operator(_COMPARISONS[name], _NUMBERS, original, compares=True)
    return _where(original) if name == "where" and place in (tl, tl.core) else original


def _operator(compute: np.ufunc, dtypes: frozenset[str], original: Operator, moves: bool = False,
              compares: bool = False) -> Operator:
    """An operator of two operands.

    Args:
        dtypes: of which numpy computes the same.
        moves: the first may be a pointer, and the second an integer.
        compares: the result is true or false.
    """
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle
    tensor, block_type, int1 = tl.tensor, tl.block_type, tl.int1
    new = object.__new__

    def call(left: language.tensor, right: object, **named: object) -> object:
        dtype, a = left.dtype, left.handle
        shown = left  # the operand whose shape the result has
        if isinstance(right, tensor):
            if left.shape is not right.shape:  # one object for all equal shapes of a launch: `known_shapes`
                if left.type.__class__ is not block_type:
                    shown = right
                elif right.type.__class__ is block_type:
                    return original(left, right, **named)
            if dtype.name in dtypes:
                if right.dtype.name != dtype.name:
                    return original(left, right, **named)
                found = compute(a.data, right.handle.data)
            elif moves and dtype.is_ptr() and right.dtype.name in _INTEGERS:
                width = max(1, a.get_element_ty().primitive_bitwidth // 8)
                found = a.data + width * right.handle.data.astype(np.uint64)
            else:
                return original(left, right, **named)
        elif (right.__class__ is int or (right.__class__ is float and dtype.name in _FLOATS)) and (
                dtype.name in dtypes and dtype.name in _TAKES_NUMBERS and -_MOST <= right < _MOST):
            found = compute(a.data, right)
        else:
            return original(left, right, **named)
        if not compares and found.dtype is not a.data.dtype:
            return original(left, right, **named)
        handle = new(TensorHandle)
        handle.data, handle.dtype, handle.attr = found, a.dtype, {}
        made = new(tensor)
        made.handle, made.shape, made.numel = handle, shown.shape, shown.numel
        kind = shown.type
        if compares:
            made.dtype, made.type = int1, kind.with_element_ty(int1) if kind.__class__ is block_type else int1
        else:
            made.dtype, made.type = dtype, kind if shown is left else block_type(dtype, kind.shape)
        return made
    return call


def _where(original: Operator) -> Operator:
    """`tl.where` of three tensors of a shape."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle
    tensor, new = tl.tensor, object.__new__

    def call(condition: language.tensor, x: language.tensor, y: language.tensor, **named: object) -> object:
        if not (condition.__class__ is x.__class__ is y.__class__ is tensor and condition.dtype.name == "int1"
                and condition.shape is x.shape is y.shape and x.dtype.name == y.dtype.name in _NUMBERS
                and x.handle.data.dtype is y.handle.data.dtype):
            return original(condition, x, y, **named)
        handle = new(TensorHandle)
        handle.data, handle.dtype, handle.attr = np.where(condition.handle.data, x.handle.data, y.handle.data), (
            y.handle.dtype), {}
        made = new(tensor)
        made.handle, made.shape, made.numel, made.type, made.dtype = handle, x.shape, x.numel, x.type, x.dtype
        return made
    return call
