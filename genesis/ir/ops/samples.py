"""Samples that the registry-driven tests feed an op: typed generators, written next to the op.

    tanh = _op("tanh", ..., samples=each(reals(-4, 4)), reference=lambda x: np.tanh(x))
    take = Op("take", ..., samples=cases(case(reals().of(5, 3), integers(0, 5).of(2, 2), axis=0)), ...)

A `Case` says what each operand is; the tests add dtypes and memory layouts (permuted, expanded).
A reference gets float64, int64 or bool arrays and is written with numpy, which `np` imports when
it is first used: recording a program needs none of this.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from genesis.ir.types import DType, bool_, int64

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy import ndarray
    from numpy.random import Generator

    from genesis.ir.node import Attr

Shape = tuple[int, ...]
Kinds = tuple[str, ...]
ANY: Final[Kinds] = ("bool", "int", "float")
NUMERIC: Final[Kinds] = ("int", "float")
INTEGRAL: Final[Kinds] = ("bool", "int")
FLOAT: Final[Kinds] = ("float",)


class _Numpy:
    """numpy's functions; numpy is imported when the first of them is called."""

    def __getattr__(self, name: str) -> Callable[..., object]:
        def function(*args: object, **how: object) -> object:
            return getattr(importlib.import_module("numpy"), name)(*args, **how)
        return function


if TYPE_CHECKING:
    import numpy as np
else:
    np = _Numpy()


class Values(NamedTuple):
    """Random values in [low, high] of a fixed dtype, or of the dtype under test when that is None.

    `way`: (these values, numpy's generator, shape, dtype) → an array, where they are not drawn one by one.
    """

    low: float
    high: float
    dtype: DType | None = None
    distinct: bool = False
    way: Callable[[Values, Generator, Shape, DType], ndarray] | None = None

    def of(self, *shape: int) -> Operand:
        """An operand of this shape."""
        return Operand(self, shape)

    def draw(self, random: Generator, shape: Shape, dtype: DType) -> ndarray:
        """An array of the fixed dtype, or else of `dtype`."""
        dtype = self.dtype or dtype
        if self.way is not None:
            return self.way(self, random, shape, dtype)
        if dtype.kind == "bool":
            return random.integers(0, 2, shape).astype(bool)
        if dtype.kind == "int":
            low, high = max(int(np.ceil(self.low)), int(dtype.min or 0)), int(np.floor(self.high))
            if self.distinct:
                chosen = random.permutation(np.arange(low, high + 1))[:np.prod(shape, dtype=int)]
                return chosen.reshape(shape).astype(dtype.numpy)
            return random.integers(low, high + 1, shape).astype(dtype.numpy)
        if self.distinct:
            return random.permutation(np.prod(shape, dtype=int)).reshape(shape).astype(dtype.numpy)
        return random.uniform(self.low, self.high, shape).astype(dtype.numpy)

    @property
    def middle(self) -> float:
        """A number inside the range that every floating dtype holds exactly."""
        return round(self.low + 0.625 * (self.high - self.low)) or 1.0


class Operand(NamedTuple):
    """Values in a shape."""

    values: Values
    shape: Shape


class Array(NamedTuple):
    """An operand with exactly these values, in the dtype under test."""

    values: tuple[float, ...]


class Literal(NamedTuple):
    """A weakly typed number; converted to the category of the dtype under test unless it is `fixed`."""

    value: float
    fixed: bool = False


class Case(NamedTuple):
    """One set of operands and attributes; `gradient` says whether the gradient test uses it."""

    operands: tuple[Operand | Array | Literal, ...]
    attributes: Mapping[str, Attr]
    gradient: bool = True


class Samples:
    """All cases of an op.

    Args:
        make: gives the cases; called when they are first asked for, so that importing the registry builds none.
        kinds: kinds of dtypes that the op takes.
        scale: errors are relative to the exact result, or to this where that is smaller: the size
            of what cancels in the op's formula.
    """

    def __init__(self, make: Callable[[], tuple[Case, ...]], kinds: Kinds = FLOAT, scale: float = 0.0):
        self._make, self.kinds, self.scale = make, kinds, scale

    @cached_property
    def cases(self) -> tuple[Case, ...]:
        """What to run."""
        return self._make()

    def plus(self, *more: Case) -> Samples:
        """Samples with more cases."""
        return Samples(lambda: self.cases + more, self.kinds, self.scale)

    def under(self, *attributes: Mapping[str, Attr]) -> Samples:
        """Every case once with each of these sets of attributes."""
        return Samples(lambda: tuple(c._replace(attributes=a) for a in attributes for c in self.cases),
                       self.kinds, self.scale)


def reals(low: float = -2, high: float = 2) -> Values:
    """Values of the dtype under test; in an integer dtype integers, in bool truth values."""
    return Values(low, high)


def positives(high: float = 4) -> Values:
    """Values well above 0."""
    return Values(0.25, high)


def integers(low: int, high: int, dtype: DType = int64) -> Values:
    """Integers in [low, high), such as indices, whatever the dtype under test."""
    return Values(low, high - 1, dtype)


def distinct(low: int, high: int) -> Values:
    """Integers in [low, high), no two equal."""
    return Values(low, high - 1, int64, distinct=True)


def shuffled(count: int) -> Values:
    """The integers below `count` in random order, in the dtype under test: no two equal."""
    return Values(0, count - 1, None, distinct=True)


def permutations(axis: int) -> Values:
    """Indices of which each line along the axis is a permutation."""
    return Values(0, 0, int64, True,
                  lambda _, random, shape, dtype: np.argsort(random.uniform(size=shape), axis))


def ascending(low: float, high: float, dtype: DType | None = None, run: int = 0) -> Values:
    """Values that do not decrease along the last axis (along each `run` of it)."""
    def draw(values: Values, random: Generator, shape: Shape, dtype: DType) -> ndarray:
        found = values._replace(distinct=False, way=None).draw(random, shape, dtype)
        step = run or shape[-1] or 1
        parts = [np.sort(found[..., start:start + step], -1) for start in range(0, shape[-1], step)]
        return np.concatenate(parts, -1) if parts else found
    return Values(low, high, dtype, True, draw)


def chosen(count: int) -> Values:
    """A mask of which this many elements are true."""
    return Values(0, 1, bool_, True, lambda _, random, shape, dtype: (
        random.permutation(np.prod(shape, dtype=int)) < count).reshape(shape))


def booleans() -> Values:
    """Truth values, such as a mask."""
    return Values(0, 1, bool_)


def number(value: float) -> Literal:
    """A Python number that stays as it is."""
    return Literal(value, fixed=True)


def case(*operands: Operand | Array | Literal, **attributes: Attr) -> Case:
    """Operands in order, attributes by name."""
    return Case(operands, attributes)


def forward_only(case: Case) -> Case:
    """The case without its gradient, where that is not defined (equal indices of a write)."""
    return case._replace(gradient=False)


def cases(*found: Case, kinds: Kinds = FLOAT, scale: float = 0.0) -> Samples:
    """The cases, for dtypes of these kinds."""
    return Samples(lambda: found, kinds, scale)


_SHAPES: Final[tuple[Shape, ...]] = ((), (0,), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 9))
_SPECIAL: Final = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0)


def each(*values: Values, kinds: Kinds = FLOAT, special: bool = True, scale: float = 0.0,
         numbers: bool = True) -> Samples:
    """Cases of a pointwise op: several shapes, with `numbers` one on either side, with `special` NaN and ±Inf.

    >>> [len(c.operands) for c in each(reals(), reals()).cases][:2]
    [2, 2]
    """
    return Samples(lambda: _pointwise(values, kinds, special, numbers), kinds, scale)


def _pointwise(values: tuple[Values, ...], kinds: Kinds, special: bool, numbers: bool) -> tuple[Case, ...]:
    found = [Case(tuple(Operand(v, shape) for v in values), {}) for shape in _SHAPES]
    if numbers and len(values) == 2 and values[0].dtype is values[1].dtype is None:
        left, right = values
        found.append(Case((Operand(left, (4,)), Literal(right.middle)), {}))
        found.append(Case((Literal(left.middle), Operand(right, (4,))), {}))
    if special and "float" in kinds:
        found += _special_cases(len(values))
    return tuple(found)


def _special_cases(arity: int) -> list[Case]:
    if arity == 1:
        return [Case((Array(_SPECIAL),), {})]
    left = tuple(a for a in _SPECIAL for _ in _SPECIAL)
    return [Case((Array(left), Array(_SPECIAL * len(_SPECIAL))), {})] if arity == 2 else []


def vectorized(function: Callable[[float], float]) -> Callable[[ndarray], ndarray]:
    """A function of one number as a function of an array."""
    return lambda x: np.vectorize(function, otypes=[float])(x)


def precise(name: str, *first: float) -> Callable[[ndarray], ndarray]:
    """mpmath's function of this name, of an array; `first` are its arguments before the element.

    mpmath comes with torch, and only tests call references.
    """
    def function(x: float) -> float:
        mpmath = importlib.import_module("mpmath")
        return math.nan if x != x else float(getattr(mpmath, name)(*first, x))
    return vectorized(function)
