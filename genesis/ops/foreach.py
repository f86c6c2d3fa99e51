"""torch's `_foreach_*`: one function on many tensors. Each is recorded by itself; the compiler puts them together.

A row of the tables is a function of one tensor; the list form calls it for each, and the form with `_` behind its name
writes to the first list.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from genesis.frontend.recording import TensorBase
from genesis.ir.errors import failure

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

PREFIX: Final = "_foreach_"

UNARY: Final = frozenset((
    "clone", "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac",
    "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh",
    "sqrt", "tan", "tanh", "trunc"))
"""Functions of one tensor."""

BINARY: Final = {"add": "add", "sub": "sub", "mul": "mul", "div": "div", "pow": "pow", "maximum": "maximum",
                 "minimum": "minimum", "clamp_min": "maximum", "clamp_max": "minimum"}
"""Functions of a tensor and of a number, a tensor for all, or one for each → the function of two."""

WITH_THREE: Final = ("addcmul", "addcdiv")


@cache
def foreach(name: str) -> Callable[..., Any] | None:
    """The function with that name, None if there is none.

    >>> import genesis
    >>> genesis._foreach_mul([genesis.ones(1), genesis.ones(2)], 3)
    (tensor([3.]), tensor([3., 3.]))
    """
    if not name.startswith(PREFIX):
        return None
    plain = name.removeprefix(PREFIX)
    kind = plain.removesuffix("_")
    one = _OTHERS.get(plain) or _function(kind)
    if one is None:
        return None
    return _named(name, one if plain in _OTHERS else _writing(one) if plain.endswith("_") else _making(one))


def _function(kind: str) -> Callable[..., list[Any]] | None:
    if kind in UNARY:
        return lambda tensors: [getattr(x, kind)() for x in tensors]
    if kind in BINARY:
        return lambda tensors, other, **options: _each(BINARY[kind], tensors, other, **options)
    if kind in WITH_THREE:
        return lambda tensors, first, second, value=1: _three(kind, tensors, first, second, value)
    return _lerp if kind == "lerp" else None


def _making(one: Callable[..., list[Any]]) -> Callable[..., tuple[Any, ...]]:
    return lambda self, *args, **options: tuple(one(self, *args, **options))


def _writing(one: Callable[..., list[Any]]) -> Callable[..., None]:
    def write(self: Sequence[Tensor], *args: Any, **options: Any) -> None:
        for x, content in zip(self, one(self, *args, **options), strict=True):
            x.copy_(content)
    return write


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = name
    return function


def _each(method: str, tensors: Sequence[Tensor], other: Any = None, *, scalar: Any = None, scalars: Any = None,
          exponent: Any = None, **options: Any) -> list[Any]:
    other = next((x for x in (other, scalar, scalars, exponent) if x is not None), None)
    if isinstance(tensors, TensorBase) or not isinstance(other, (list, tuple)):
        return [_apply(x, method, other, options) for x in tensors]
    _same_length(method, tensors, other)
    return [_apply(x, method, y, options) for x, y in zip(tensors, other, strict=True)]


def _apply(x: Tensor, method: str, other: Any, options: dict[str, Any]) -> Tensor:
    if method in ("maximum", "minimum") and not isinstance(other, TensorBase):
        return x.clamp(min=other) if method == "maximum" else x.clamp(max=other)
    return getattr(x, method)(other, **options)


def _three(method: str, tensors: Sequence[Tensor], first: Sequence[Tensor], second: Sequence[Tensor],
           value: Any) -> list[Any]:
    """addcmul and addcdiv: the value is one for all, or one for each, of numbers or of a tensor."""
    if isinstance(value, TensorBase) and value.spec.ndim:
        value = list(value)  # type: ignore[call-overload]
    values = value if isinstance(value, (list, tuple)) else [value] * len(tensors)
    for others in (first, second, values):
        _same_length(method, tensors, others)
    return [getattr(x, method)(a, b, value=v) for x, a, b, v in zip(tensors, first, second, values, strict=True)]


def _lerp(tensors: Sequence[Tensor], ends: Sequence[Tensor], weight: Any = None, *, weights: Any = None) -> list[Any]:
    weight = weights if weight is None else weight
    each = weight if isinstance(weight, (list, tuple)) else [weight] * len(tensors)
    _same_length("lerp", tensors, ends)
    return [x.lerp(end, w) for x, end, w in zip(tensors, ends, each, strict=True)]


def _same_length(name: str, tensors: Sequence[Any], others: Sequence[Any]) -> None:
    if len(tensors) != len(others):
        raise failure(PREFIX + name, "Tensor lists must have the same number of tensors, got "
                      f"{len(tensors)} and {len(others)}")


def _zero_(self: Sequence[Tensor]) -> None:
    for x in self:
        x.zero_()


def _copy_(self: Sequence[Tensor], src: Sequence[Tensor], non_blocking: bool = False) -> None:
    _same_length("copy_", self, src)
    for x, content in zip(self, src, strict=True):
        x.copy_(content)


def _norm(self: Sequence[Tensor], ord: float = 2, dtype: Any = None) -> tuple[Any, ...]:
    return tuple(x.norm(ord) if dtype is None else x.to(dtype).norm(ord) for x in self)


def _max(self: Sequence[Tensor]) -> tuple[Any, ...]:
    return tuple(x.max() for x in self)


def _mm(self: Sequence[Tensor], mat2: Sequence[Tensor]) -> tuple[Any, ...]:
    _same_length("mm", self, mat2)
    return tuple(x.mm(y) for x, y in zip(self, mat2, strict=True))


_OTHERS: Final[dict[str, Callable[..., Any]]] = {
    "zero_": _zero_, "copy_": _copy_, "norm": _norm, "max": _max, "mm": _mm}
