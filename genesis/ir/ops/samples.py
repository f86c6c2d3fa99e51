"""What the registry-driven tests feed an op: typed generators, written next to the op.

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
from dataclasses import dataclass, field, replace
from typing import Any, Final

from genesis.ir.types import DType, bool_, int64

Shape = tuple[int, ...]
Kinds = tuple[str, ...]
ANY: Final[Kinds] = ("bool", "int", "float")
NUMERIC: Final[Kinds] = ("int", "float")
INTEGRAL: Final[Kinds] = ("bool", "int")
FLOAT: Final[Kinds] = ("float",)


class _Numpy:
    """numpy's functions; numpy is imported when the first of them is called."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def function(*args: Any, **how: Any) -> Any:
            return getattr(importlib.import_module("numpy"), name)(*args, **how)
        return function


np: Any = _Numpy()


@dataclass(frozen=True)
class Values:
    """Random values in [low, high] of a fixed dtype, or of the dtype under test when that is None."""

    low: float
    high: float
    dtype: DType | None = None
    distinct: bool = False

    def of(self, *shape: int) -> Operand:
        """An operand of this shape."""
        return Operand(self, shape)

    def draw(self, random: Any, shape: Shape, dtype: DType) -> Any:
        """An array of the fixed dtype, or else of `dtype`."""
        dtype = self.dtype or dtype
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


@dataclass(frozen=True)
class Operand:
    """Values in a shape."""

    values: Values
    shape: Shape


@dataclass(frozen=True)
class Array:
    """An operand with exactly these values, in the dtype under test."""

    values: tuple[float, ...]


@dataclass(frozen=True)
class Literal:
    """A weakly typed number; converted to the category of the dtype under test unless it is `fixed`."""

    value: float
    fixed: bool = False


@dataclass(frozen=True)
class Case:
    """One set of operands and attributes; `gradient` says whether the gradient test uses it."""

    operands: tuple[Operand | Array | Literal, ...]
    attributes: dict[str, Any] = field(default_factory=dict)
    gradient: bool = True


@dataclass(frozen=True)
class Samples:
    """All cases of an op.

    Attributes:
        cases: what to run.
        kinds: kinds of dtypes that the op takes.
        scale: errors are relative to the exact result, or to this where that is smaller: the size
            of what cancels in the op's formula.
    """

    cases: tuple[Case, ...]
    kinds: Kinds = FLOAT
    scale: float = 0.0

    def plus(self, *more: Case) -> Samples:
        """With more cases."""
        return replace(self, cases=self.cases + more)

    def under(self, *attributes: dict[str, Any]) -> Samples:
        """Every case once with each of these sets of attributes."""
        return replace(self, cases=tuple(replace(c, attributes=a) for a in attributes for c in self.cases))


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


@dataclass(frozen=True)
class Permutations(Values):
    """Indices of which each line along `axis` is a permutation."""

    axis: int = 0

    def draw(self, random: Any, shape: Shape, dtype: DType) -> Any:
        """int64 indices."""
        return np.argsort(random.uniform(size=shape), self.axis)


@dataclass(frozen=True)
class Ascending(Values):
    """Integers that do not decrease along the last axis, or along each `run` of it."""

    run: int = 0

    def draw(self, random: Any, shape: Shape, dtype: DType) -> Any:
        """An array in order."""
        found = Values(self.low, self.high, self.dtype).draw(random, shape, dtype)
        step = self.run or shape[-1] or 1
        parts = [np.sort(found[..., start:start + step], -1) for start in range(0, shape[-1], step)]
        return np.concatenate(parts, -1) if parts else found


@dataclass(frozen=True)
class Chosen(Values):
    """A mask of which `high` elements are true."""

    def draw(self, random: Any, shape: Shape, dtype: DType) -> Any:
        """bool of this shape."""
        return (random.permutation(np.prod(shape, dtype=int)) < self.high).reshape(shape)


def permutations(axis: int) -> Values:
    """Indices of which each line along the axis is a permutation."""
    return Permutations(0, 0, int64, True, axis)


def ascending(low: float, high: float, dtype: DType | None = None, run: int = 0) -> Values:
    """Values that do not decrease along the last axis (along each `run` of it)."""
    return Ascending(low, high, dtype, True, run)


def booleans() -> Values:
    """Truth values, such as a mask."""
    return Values(0, 1, bool_)


def number(value: float) -> Literal:
    """A Python number that stays as it is."""
    return Literal(value, fixed=True)


def case(*operands: Operand | Array | Literal, **attributes: Any) -> Case:
    """Operands in order, attributes by name."""
    return Case(operands, attributes)


def forward_only(case: Case) -> Case:
    """The case without its gradient, where that is not defined (equal indices of a write)."""
    return replace(case, gradient=False)


def cases(*found: Case, kinds: Kinds = FLOAT, scale: float = 0.0) -> Samples:
    """The cases, for dtypes of these kinds."""
    return Samples(found, kinds, scale)


_SHAPES: Final[tuple[Shape, ...]] = ((), (0,), (1,), (5,), (3, 4), (2, 0, 3), (2, 3, 9))
_SPECIAL: Final = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.0)


def each(*values: Values, kinds: Kinds = FLOAT, special: bool = True, scale: float = 0.0,
         numbers: bool = True) -> Samples:
    """Cases of a pointwise op: several shapes, with `numbers` one on either side, with `special` NaN and ±Inf.

    >>> [len(c.operands) for c in each(reals(), reals()).cases][:2]
    [2, 2]
    """
    found = [Case(tuple(Operand(v, shape) for v in values)) for shape in _SHAPES]
    if numbers and len(values) == 2 and values[0].dtype is values[1].dtype is None:
        left, right = values
        found.append(Case((Operand(left, (4,)), Literal(right.middle))))
        found.append(Case((Literal(left.middle), Operand(right, (4,)))))
    if special and "float" in kinds:
        found += _special_cases(len(values))
    return Samples(tuple(found), kinds, scale)


def _special_cases(arity: int) -> list[Case]:
    if arity == 1:
        return [Case((Array(_SPECIAL),))]
    left = tuple(a for a in _SPECIAL for _ in _SPECIAL)
    return [Case((Array(left), Array(_SPECIAL * len(_SPECIAL))))] if arity == 2 else []


def vectorized(function: Callable[[float], float]) -> Callable[[Any], Any]:
    """A function of one number as a function of an array."""
    return lambda x: np.vectorize(function, otypes=[float])(x)


def precise(name: str, *first: float) -> Callable[[Any], Any]:
    """mpmath's function of this name, of an array; `first` are its arguments before the element.

    mpmath comes with torch, and only tests call references.
    """
    def function(x: float) -> float:
        mpmath: Any = importlib.import_module("mpmath")
        return math.nan if x != x else float(getattr(mpmath, name)(*first, x))
    return vectorized(function)
