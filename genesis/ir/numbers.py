"""Python numbers in a program: which there are, the node of one, and pointwise ops on them when a plan runs.

`as_number` says what a number is: Python's, what derives from them (`enum.IntEnum`), and numpy's scalars. `number` is
the node of one that a user's op is given. The other functions are what a formula such as `lr * decay` is when a plan
runs: an op's rule is in its entry (`Op.number`); here is what holds for all of them, and the rules that are more than a
line. Floats follow IEEE 754 (1 / 0 is inf, no exceptions), integers wrap to 64 bits as int64 does.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from genesis.ir.node import NUMBER_TYPES, OPS, Node, Number, leaf, unique
from genesis.ir.sym_int import RUNNING, as_seen
from genesis.ir.types import DType, TensorType, float64, int64, tensor_type

if TYPE_CHECKING:
    from genesis.ir.node import Attr, Op

PLAIN: Final = frozenset({bool, int, float})
"""The classes that a number of the program has."""
LATER: Final = "read_later_number"
"""The method of a number that is read, or computed, when somebody looks at it (`frontend/later_number.py`)."""


def as_number(x: object) -> Number | None:
    """The plain Python number that x is, None if it is no number.

    Of a class that derives from `int` or `float`, the value; of a numpy scalar, its item. An array without dimensions
    is an array, and a tensor without dimensions a tensor.

    >>> import enum, numpy
    >>> as_number(enum.IntEnum("Color", "RED GREEN").GREEN), as_number(numpy.float32(0.5)), as_number("2")
    (2, 0.5, None)
    """
    if x.__class__ in PLAIN:
        return x  # type: ignore[return-value]
    numpy = sys.modules.get("numpy")  # whoever has a numpy scalar has loaded numpy
    if numpy is not None and isinstance(x, numpy.generic):
        if isinstance(x, numpy.floating):
            return float(x)  # a longdouble's item is a longdouble
        return x.item() if isinstance(x, (numpy.integer, numpy.bool_)) else None
    if isinstance(x, float):
        return float(x)
    if isinstance(x, int):
        return int(x)
    later = getattr(type(x), LATER, None)
    return None if later is None else later(x)


_apart = False


def set_numbers_apart(apart: bool) -> None:
    """Whether equal numbers that are recorded from now on are two nodes. Then what is computed of each is computed
    twice, and the turns of a loop are equal programs, whatever their numbers are."""
    global _apart
    _apart = apart


LEAST_NUMBER: Final = -2**63
"""The least integer that an op takes as a number: the least of int64."""
MOST_NUMBER: Final = 2**64 - 1
"""The largest: that of uint64."""


def number(value: bool | int | float) -> Node:
    """A number of the user's: an input of the plan, so that another value compiles nothing.

    Raises OverflowError for an integer that no dtype holds: computing would fail, and with it what is computed beside.
    """
    kind = NUMBER_TYPES.get(type(value))
    if kind is None:
        traced = RUNNING[-1].node_of(as_seen(value)) if RUNNING else None  # type: ignore[arg-type]
        return number(_plain(value)) if traced is None else traced
    if value.__class__ is int and not LEAST_NUMBER <= value <= MOST_NUMBER:
        from genesis.ir.errors import failure
        raise failure("number", f"{value} is not in the range of any integer dtype", error=OverflowError,
                      hint="a float holds it")
    if value == 0 or _apart:  # signed zeros are equal keys, and must stay two values
        return unique(OPS["number"], (), (value, kind), kind)
    return leaf(OPS["number"], (value, kind), kind)


def _plain(value: object) -> bool | int | float:
    """The Python number of a numpy scalar, or of an object whose class derives from a number's."""
    from genesis.ir.errors import not_an_operand
    found = as_number(value)
    if found is None:
        raise not_an_operand(value)
    return found


def fold_numbers(op: Op, *numbers: Number, **attributes: Attr) -> Number:
    """The value of a pointwise op on numbers, by its entry's `number`.

    >>> from genesis.ir import OPS
    >>> fold_numbers(OPS["mul"], 0.5, 4), fold_numbers(OPS["div"], 1.0, 0.0), fold_numbers(OPS["remainder"], -7, 3)
    (2.0, inf, 2)
    """
    rule = op.number
    if rule is None:
        raise TypeError(f"{op.name} is computed on tensors only, not on the numbers {numbers}")
    try:
        value = rule(*numbers, **attributes)
    except (ZeroDivisionError, OverflowError, ValueError):
        value = _exceptional(op, numbers, attributes)
    return wrapped(value) if type(value) is int else value


def wrapped(value: int, low: int = -2**63, count: int = 2**64) -> int:
    """The integer in [low, low + count) with the same low bits."""
    return (value - low) % count + low


def _exceptional(op: Op, numbers: tuple[Number, ...], attributes: dict[str, Attr]) -> Number:
    """The IEEE result where Python raises instead: that of the op's reference. Integers have none."""
    kind = float64 if any(type(x) is float for x in numbers) else int64
    result = op.infer(*[tensor_type((), kind, weak=True) for _ in numbers], **attributes)
    if isinstance(result, TensorType) and result.dtype.kind != "float":
        raise ZeroDivisionError(f"{op.name} of the integers {' and '.join(map(str, numbers))}")
    import numpy as np
    with np.errstate(all="ignore"):
        return float(op.reference(*map(np.float64, numbers), **attributes))  # type: ignore[misc]


# Rules: each on Python numbers of any of the three classes. Truth values add and multiply as tensors of them do.

def cast(x: Number, dtype: DType) -> Number:
    """The number that an element of this dtype has."""
    if dtype.kind == "float":
        return float(x) if dtype.itemsize == 8 else float(dtype.numpy.type(x))  # rounded to the dtype
    if dtype.kind == "bool":
        return bool(x)
    return wrapped(int(x) if math.isfinite(x) else -2**63, int(dtype.min or 0), 2**(8 * dtype.itemsize))


def add(a: Number, b: Number) -> Number:
    """a + b, logical or of two truth values."""
    return a or b if type(a) is type(b) is bool else a + b


def mul(a: Number, b: Number) -> Number:
    """a · b, logical and of two truth values."""
    return a and b if type(a) is type(b) is bool else a * b


def fmod(a: Number, b: Number) -> Number:
    """The rest of a division towards zero: exact for integers."""
    return math.fmod(a, b) if float in (type(a), type(b)) else int(abs(a) % abs(b)) * (-1 if a < 0 else 1)


def power(a: Number, b: Number) -> Number:
    """a to the power b: NaN where the result is complex."""
    value = a**b
    if isinstance(value, complex):
        return math.nan
    if isinstance(value, float) and float not in (type(a), type(b)):
        raise ValueError("integers to negative integer powers are not allowed")
    return value


def invert(x: Number) -> Number:
    """All bits turned around."""
    return not x if type(x) is bool else ~x  # type: ignore[operator]


def sign(x: Number) -> Number:
    """-1, 0 or 1 in the number's class."""
    return type(x)((x > 0) - (x < 0))


def relu(x: Number) -> Number:
    """The larger of x and 0; NaN stays NaN."""
    return x if x > 0 or x != x else type(x)(0)


def rounding(call: Callable[[Number], float]) -> Callable[[Number], Number]:
    """The rule of a rounding: integers stay, and zeros keep their sign."""
    return lambda x: math.copysign(float(call(x)), x) if type(x) is float else x


def either(pick: Callable[..., Number]) -> Callable[..., Number]:
    """The rule of `max` or `min`: NaN if either is."""
    return lambda a, b: math.nan if a != a or b != b else pick(a, b)


def clamp(x: Number, low: Number, high: Number) -> Number:
    """min(max(x, low), high); NaN stays NaN."""
    return either(min)(either(max)(x, low), high)


def logaddexp(a: float, b: float) -> float:
    """log(exp(a) + exp(b)) without overflow."""
    return a if a == b and math.isinf(a) else either(max)(a, b) + math.log1p(math.exp(-abs(a - b)))


def logaddexp2(a: float, b: float) -> float:
    """log2(2^a + 2^b) without overflow."""
    return a if a == b and math.isinf(a) else either(max)(a, b) + math.log1p(2.0**-abs(a - b)) / math.log(2)


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)) without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def entr(x: float) -> float:
    """-x · log(x): 0 at 0, -∞ below."""
    return -x * math.log(x) if x > 0 else 0.0 if x == 0 else -math.inf if x < 0 else x


def gelu(x: float, approximate: str) -> float:
    """x · Φ(x), by erfc or by the formula with tanh."""
    if approximate == "tanh":
        return x * 0.5 * (math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)) + 1)
    return x * 0.5 * math.erfc(-x * math.sqrt(0.5))
