"""A number that stands for a value which is not computed yet, and for what Python's arithmetic makes of it.

`loss.item() / len(batch)` in a captured function needs no value as long as nobody looks at the number: it is a formula,
which a replay evaluates after it ran. Whoever looks (compares, prints, converts) has the value read.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

Number = bool | int | float


class LaterNumber:
    """A number that is read, or computed of such ones, when somebody looks at it.

    Attributes:
        source: what it is read from, (tensor, method); None for a computed one.
        formula: (operation, operands) of a computed one.

    >>> loss = LaterNumber(read=lambda: 3.0)
    >>> half = loss / 2
    >>> type(half).__name__, half > 1, half.number()
    ('LaterNumber', True, 1.5)
    """

    __slots__ = ("_read", "_value", "formula", "source")

    def __init__(self, read: Callable[[], Number] | None = None, source: Any = None,
                 formula: tuple[Callable[..., Number], tuple[Any, ...]] | None = None):
        self._read, self.source, self.formula = read, source, formula
        self._value: Number | None = None

    def number(self) -> Number:
        """The number itself, for which the value is read."""
        if self._value is None:
            if self.formula is None:
                assert self._read is not None
                self._value = self._read()
            else:
                operation, operands = self.formula
                self._value = operation(*[x.number() if type(x) is LaterNumber else x for x in operands])
        return self._value

    read_later_number = number

    def __getattr__(self, name: str) -> Any:
        return getattr(self.number(), name)

    def __hash__(self) -> int:
        return hash(self.number())

    def __bool__(self) -> bool:
        return bool(self.number())

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.number().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Number:
        return self.number()

    def __copy__(self) -> Number:
        return self.number()

    def __array_ufunc__(self, function: Any, method: str, *given: Any, **options: Any) -> Any:
        """A number of numpy's beside this one has the dtype that it has beside the number itself."""
        return getattr(function, method)(*[x.number() if type(x) is LaterNumber else x for x in given], **options)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy
        return numpy.asarray(self.number(), dtype)


_PLAIN: Final = (bool, int, float)
ARITHMETIC: Final = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "truediv": operator.truediv,
                     "floordiv": operator.floordiv, "pow": operator.pow}
_LOOKS: Final = ("__index__", "__int__", "__float__", "__str__", "__repr__", "__format__", "__trunc__", "__floor__",
                 "__ceil__", "__complex__", "__mod__", "__rmod__", "__divmod__", "__rdivmod__", "__lt__", "__le__",
                 "__gt__", "__ge__", "__eq__", "__ne__", "__lshift__", "__rlshift__", "__rshift__", "__rrshift__",
                 "__and__", "__rand__", "__or__", "__ror__", "__xor__", "__rxor__", "__invert__")
"""Methods that a number has, which ask for the number itself."""


def _later(operation: Callable[..., Any], *operands: Any) -> LaterNumber:
    return LaterNumber(formula=(operation, operands))


def _arithmetic(operation: Callable[..., Any], turned: bool) -> Callable[..., Any]:
    def method(self: LaterNumber, other: Any) -> Any:
        if type(other) is LaterNumber or other.__class__ in _PLAIN:  # a traced number, too
            return _later(operation, *((other, self) if turned else (self, other)))
        return operation(*((other, self.number()) if turned else (self.number(), other)))
    return method


def _look(name: str) -> Callable[..., Any]:
    def look(self: LaterNumber, *given: Any) -> Any:
        method = getattr(self.number(), name, None)
        return NotImplemented if method is None else method(
            *[x.number() if type(x) is LaterNumber else x for x in given])
    return look


def _rounded(self: LaterNumber, *digits: int) -> Any:
    return _later(round, self, *digits)


for _word, _operation in ARITHMETIC.items():
    setattr(LaterNumber, f"__{_word}__", _arithmetic(_operation, False))
    setattr(LaterNumber, f"__r{_word}__", _arithmetic(_operation, True))
for _word, _alone in {"neg": operator.neg, "pos": operator.pos, "abs": operator.abs}.items():
    setattr(LaterNumber, f"__{_word}__", lambda self, operation=_alone: _later(operation, self))
for _name in _LOOKS:
    setattr(LaterNumber, _name, _look(_name))
LaterNumber.__round__ = _rounded  # type: ignore[attr-defined]
