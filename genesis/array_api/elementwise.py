"""Functions of two arrays, as the standard promotes them.

Arrays without dimensions count, and Python numbers take the other's dtype. In torch, whose rules the operators of an
array keep, an array without dimensions has no say among arrays of its kind.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import genesis
from genesis import Tensor
from genesis.array_api.dtypes import result_type

Two = Callable[..., Tensor]


def promoted(*arrays: Any) -> tuple[Tensor, ...]:
    """Arrays and Python numbers as arrays of their common dtype, on the arrays' device.

    Raises:
        TypeError: all are numbers.

    >>> from genesis import array_api as xp
    >>> [x.dtype for x in promoted(xp.ones(2, dtype=xp.int8), xp.asarray(1, dtype=xp.int64), 3)]
    [genesis.int64, genesis.int64, genesis.int64]
    """
    given = [x for x in arrays if isinstance(x, Tensor)]
    if not given:
        raise TypeError("one of the operands must be an array")
    dtype, device = result_type(*arrays), given[0].device
    return tuple(x.to(dtype) if isinstance(x, Tensor) else genesis.full((), x, dtype=dtype, device=device)
                 for x in arrays)


def _of_two(function: Callable[..., Tensor]) -> Two:
    """The function of two operands that are promoted first."""
    @wraps(function)
    def of_two(x1: Any, x2: Any, /) -> Tensor:
        return function(*promoted(x1, x2))
    del of_two.__wrapped__  # its signature is x1, x2
    return of_two


add, subtract, multiply, divide = map(_of_two, (genesis.add, genesis.sub, genesis.mul, genesis.div))
floor_divide, pow = map(_of_two, (genesis.floor_divide, genesis.pow))
equal, not_equal = map(_of_two, (genesis.eq, genesis.ne))
less, less_equal, greater, greater_equal = map(_of_two, (genesis.lt, genesis.le, genesis.gt, genesis.ge))
maximum, minimum, atan2, hypot = map(_of_two, (genesis.maximum, genesis.minimum, genesis.atan2, genesis.hypot))
copysign, nextafter, logaddexp = map(_of_two, (genesis.copysign, genesis.nextafter, genesis.logaddexp))
logical_and, logical_or, logical_xor = map(_of_two, (genesis.logical_and, genesis.logical_or, genesis.logical_xor))
bitwise_and, bitwise_or, bitwise_xor = map(_of_two, (genesis.bitwise_and, genesis.bitwise_or, genesis.bitwise_xor))
bitwise_left_shift, bitwise_right_shift = map(_of_two, (genesis.bitwise_left_shift, genesis.bitwise_right_shift))
matmul = _of_two(genesis.matmul)


def remainder(x1: Any, x2: Any, /) -> Tensor:
    """x1 - x2 · floor(x1 / x2), as Python's %: a zero has the sign of x2."""
    one, other = promoted(x1, x2)
    found = genesis.remainder(one, other)
    return found if found.dtype.kind != "float" else genesis.where(found == 0, genesis.copysign(found, other), found)


def sign(x: Tensor, /) -> Tensor:
    """-1, 0 or 1, and NaN of NaN."""
    found = genesis.sign(x)
    return found if x.dtype.kind != "float" else genesis.where(genesis.isnan(x), x, found)


def where(condition: Tensor, x1: Any, x2: Any, /) -> Tensor:
    """x1 where the condition holds, else x2."""
    return genesis.where(condition, *promoted(x1, x2))


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: Any = 2) -> Tensor:
    """Sum of products over x1's last and x2's first `axes` axes, or over axes that are named for each."""
    one, other = promoted(x1, x2)
    return genesis.tensordot(one, other, axes)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Sum of products along an axis, in the operands' dtype."""
    one, other = promoted(x1, x2)
    return (one * other).sum(axis, dtype=one.dtype)
