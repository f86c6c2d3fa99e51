"""Traced numbers: what a program's own code sees of a size, or of a number among its arguments, that may change.

`genesis.compile` runs a function once more, on stand-ins, to learn what it does for other sizes and numbers
(`tracing/stand_ins.py`). There `x.shape[0]` and a loop's index are traced numbers. One computes like the Python number
that it is in the call at hand, and remembers the *formula*: the same Python operations, done again with the numbers of
another call. Where the code goes on by what a number is (a comparison, an index, a key of a dictionary, text) that
becomes a *guard*: what was learned holds for calls whose numbers give the same answer.

    rows = x.shape[0]       # 7, a formula of the symbol n0
    rows * 2 + 1            # 15, the formula n0 * 2 + 1
    rows > 5                # True; guard: n0 > 5 is True
    range(rows)             # guard: n0 is 7

Each formula is a guard as well: a call whose numbers it raises for, or gives a number of another class for (2 ** -1),
is not what was learned.

To `isinstance` it is an int or a float, as its `__class__` says so. What asks for the number in C gets it from
`__index__`, `__float__` or `__hash__`, each of which notes a guard: nothing takes it by accident. Only `type(x)` tells.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from genesis.frontend.recording import TensorBase
from genesis.ir.node import NUMBER_TYPES, Node, unique
from genesis.ir.numbers import LATER
from genesis.ir.ops import leaves
from genesis.ir.size_class import LEAST
from genesis.ir.size_ranges import COMPARISONS
from genesis.ir.sym_int import RUNNING, SymInt, as_size, terms_of, value_at, value_of
from genesis.runtime.contexts import Context, leaving

if TYPE_CHECKING:
    from genesis.ir.size_trace import Trace

Values = Mapping[str, Any]
"""Symbol → its number in a call."""

SAME_CLASS: Final = object()
"""What a formula that the code did not look at has in common in all calls: the class of its number."""

Evaluated = dict[int, Any]
"""`id` of a traced number → the number that it is in a call."""


class NumberTrace(Context):
    """What is known of the traced numbers of one run, and what was asked of them.

    Args:
        sizes: the trace of the sizes among them.
        positions: whether a number that is taken for a position or a size becomes a symbol of the sizes' trace; if not,
            its value is asked for.

    Attributes:
        positions: symbol → the number that was taken for a position or a size, in the order in which they were met. A
            symbol's value is the number's and `LEAST`, so that 0 and 1 are positions like others.
        guards: each a formula, and its value in the run at hand, or `SAME_CLASS`, in the order in which the code came
            to them: what it asks first may keep it from computing what does not end (`2 ** n if n < 9 else 0`).
    """

    def __init__(self, sizes: Trace, positions: bool = False):
        self.sizes = sizes
        self.positions: dict[str, TracedNumber] = {}
        self._takes_positions = positions
        self.guards: list[tuple[TracedNumber, Any]] = []
        self._known: dict[tuple[Any, ...], TracedNumber] = {}

    def _entering(self) -> Callable[[], object]:
        return partial(RUNNING.append, self)  # its sizes' trace is not entered: other threads may run passes

    def _leaving(self) -> Callable[..., object]:
        return leaving((RUNNING.pop,))

    @property
    def running(self) -> bool:
        """Whether the run goes on. A number that somebody kept from one that is over is its value."""
        return self in RUNNING

    def symbol(self, name: str, value: float) -> TracedNumber:
        """The number with this name, of which any int, or any float, is a value."""
        return self._made((name,), value, None)

    def of_size(self, size: Any) -> Any:
        """A size as the program's code sees it."""
        return self._made((size,), size.value, size) if isinstance(size, SymInt) else size

    def size_of(self, x: Any) -> Any:
        """What a traced number is as a size; None for anything else."""
        if type(x) is not TracedNumber:
            return None
        if x.size is None and self._takes_positions and x.trace is self and self.running:
            x.size = self._as_position(x)
        return x.size

    def _as_position(self, x: TracedNumber) -> Any:
        """A number as a size: what is computed of others from theirs, so that `x[at:at + 1]` has one row for each `at`;
        any other gets a symbol. None for what is no position."""
        if x.value.__class__ is not int or x.value < 0 or not _is_quick(x):
            return None
        operation, *operands = x.formula
        if operands:
            sizes = [self.size_of(y) if type(y) is TracedNumber else y for y in operands]
            if all(isinstance(size, SymInt) or size.__class__ is int for size in sizes):
                return OPERATIONS[operation](*sizes)
        name = f"p{len(self.positions)}"
        self.positions[name] = x
        return self.sizes.add_symbol(name, x.value + LEAST) - LEAST

    def with_positions(self, values: Values) -> dict[str, Any] | None:
        """The symbols of a call, those of positions too; None where one is no int there."""
        found = dict(values)
        for name, x in self.positions.items():
            try:
                number = _evaluated(x, found, {})
            except (ArithmeticError, ValueError):
                return None
            if number.__class__ is not int:
                return None
            found[name] = number + LEAST  # of a negative one in no class of symbols
        return found

    @staticmethod
    def node_of(x: Any) -> Node | None:
        """The node of a number that may be another in other calls: one, however often it is an operand."""
        if type(x) is not TracedNumber or not (x.size is None or _is_computed_as_written(x.size)):
            return None
        if x.node is None:
            kind = NUMBER_TYPES[x.value.__class__]
            x.node = unique(leaves.number, (), (x, kind), kind)
        return x.node

    def compute(self, name: str, *operands: Any) -> Any:
        """The Python operation on these numbers."""
        try:
            value = OPERATIONS[name](*map(value_in_run, operands))
        except (ArithmeticError, ValueError):  # the code may catch it, and go on otherwise than for other numbers
            for x in operands:
                plain_number(x)
            raise
        if value.__class__ not in _KINDS or not self.running:
            for x in operands:
                plain_number(x)
            return value
        size = None
        if name in _OF_SIZES and all(map(_is_size, operands)):
            size = OPERATIONS[name](*map(as_size, operands))
        return self._made((name, *operands), value, size)

    def compare(self, name: str, a: Any, b: Any) -> bool:
        """The answer for the numbers at hand; a guard, unless it is the same for all sizes."""
        if not self.running:
            return bool(COMPARISONS[name](value_in_run(a), value_in_run(b)))
        if _is_size(a) and _is_size(b):
            return bool(COMPARISONS[name](as_size(a), as_size(b)))
        answer = bool(COMPARISONS[name](value_in_run(a), value_in_run(b)))
        self.guards.append((self._made((name, a, b), answer, None), answer))
        return answer

    def specialize(self, x: TracedNumber) -> Any:
        """The number itself, which a guard demands from now on."""
        if self.running and isinstance(x.size, SymInt):
            return self.sizes.specialize(x.size)
        if self.running:
            self.guards.append((x, x.value))
        return x.value

    def evaluate(self, values: Values) -> Evaluated | None:
        """What all formulas are in a call with these symbols; None where an answer is not that of the run at hand."""
        known: Evaluated = {}
        try:
            for x, value in self.guards:
                number = _evaluated(x, values, known)
                if not (number.__class__ is x.value.__class__ if value is SAME_CLASS else alike(number, value)):
                    return None
        except (ArithmeticError, ValueError):
            return None
        return known

    def _made(self, formula: tuple[Any, ...], value: Any, size: Any) -> TracedNumber:
        key = tuple([x if x.__class__ is str else id(x) if type(x) in (TracedNumber, SymInt) else (x.__class__, repr(x))
                     for x in formula])
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = TracedNumber(self, formula, value, size)
            if size is None and formula[0] in OPERATIONS:
                self.guards.append((found, SAME_CLASS))
        return found


class unguarded(Context):
    """A context inside which traced numbers are their values, and nothing that is asked of them becomes a guard."""

    def _entering(self) -> Callable[[], object]:
        self._paused = RUNNING[-1:]
        return partial(RUNNING.__delitem__, slice(len(RUNNING) - len(self._paused), None))

    def _leaving(self) -> Callable[..., object]:
        return leaving((RUNNING.extend, self._paused))


class traced_math(Context):
    """A context inside which functions of the module `math` that get a traced number give a formula. Of plain numbers
    they give what they always do, to whoever calls them."""

    def _entering(self) -> Callable[[], object]:
        return partial(vars(math).update, {
            name: _of_math(name, count) for count, names in _OF_MATH.items() for name in names})

    def _leaving(self) -> Callable[..., object]:
        return leaving((vars(math).update, _FUNCTIONS))


def _of_math(name: str, count: int) -> Callable[..., Any]:
    def function(*given: Any) -> Any:
        traced = [x for x in given if type(x) is TracedNumber]
        if traced and len(given) == count and all(type(x) in _OPERANDS for x in given):
            return traced[0].trace.compute(f"math.{name}", *given)
        return _FUNCTIONS[name](*given)
    return function


class TracedNumber:
    """A Python number of a run on stand-ins. Equal formulas of a run are one object.

    Attributes:
        formula: (symbol,), (size,) or (operation, operands).
        value: the number in the run at hand.
        size: the formula as a size of the trace, None where it is none.
        node: the `number` node that stands for it, once there is one.
    """

    __slots__ = ("formula", "node", "size", "trace", "value")

    def __init__(self, trace: NumberTrace, formula: tuple[Any, ...], value: Any, size: Any):
        self.trace, self.formula, self.value, self.size = trace, formula, value, size
        self.node: Node | None = None

    @property  # type: ignore[misc]  # `isinstance` asks it
    def __class__(self) -> type:
        return self.value.__class__

    def __getattr__(self, name: str) -> Any:
        return getattr(self.trace.specialize(self), name)

    def __hash__(self) -> int:
        return hash(self.trace.specialize(self))

    def __bool__(self) -> bool:
        return self.trace.compare("!=", self, 0)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.trace.specialize(self).__reduce_ex__(protocol)


def plain_number(x: Any) -> Any:
    """The number of a call that a plan is made for, of a traced number by a guard; anything else as it is."""
    return x.trace.specialize(x) if type(x) is TracedNumber else x


def value_in_run(x: Any) -> Any:
    """The number of the run at hand, without a guard."""
    return x.value if type(x) is TracedNumber else x


def evaluated(x: Any, values: Values, known: Evaluated | None = None) -> Any:
    """The number that a traced number or a size is in a call with these symbols; anything else as it is."""
    return _evaluated(x, values, {} if known is None else known)


def _evaluated(x: Any, values: Values, known: Evaluated) -> Any:
    kind = type(x)
    if kind is SymInt:
        return value_at(x, values)  # type: ignore[arg-type]
    if kind is not TracedNumber:
        return x
    key = id(x)
    if key not in known:
        head, *operands = x.formula
        known[key] = (_evaluated(head, values, known) if head.__class__ is SymInt else
                      values[head] if not operands else
                      _DONE[head](*[_evaluated(y, values, known) for y in operands]))
    return known[key]


def alike(a: Any, b: Any) -> bool:
    """Whether both are the same number of one class; 0.0 and -0.0 are two, nan is itself."""
    return a.__class__ is b.__class__ and (a == b if a.__class__ is not float else repr(a) == repr(b))


def _is_quick(x: Any) -> bool:
    """Whether a formula takes no longer for larger numbers: it is evaluated before the guards are."""
    return type(x) is not TracedNumber or x.size is not None or len(x.formula) == 1 or (
        x.formula[0] in _OF_SIZES and all(map(_is_quick, x.formula[1:])))


def _is_size(x: Any) -> bool:
    return x.size is not None if type(x) is TracedNumber else x.__class__ is int


def _is_computed_as_written(size: Any) -> bool:
    """Whether a size has every bit that Python's operations gave: a fraction is the one quotient of whole numbers that
    it was made of, times a number. A sum of fractions is in another order."""
    if size.value.__class__ is int:
        return True
    terms = terms_of(size)
    atoms = [size.trace.atoms[atom] for atoms, _ in terms for atom in atoms]
    return len(terms) == len(atoms) == 1 and all(
        value_of(x).__class__ is int for kind, *operands in atoms for x in operands if kind == "/")


_KINDS: Final = (bool, int, float)
_NO_NUMBERS: Final = (TensorBase, str, bytes, tuple, list, dict, set, frozenset, type(None))
"""What looks at no other number itself. Anything else may ask in C whether it has an int (`Decimal`, an `IntEnum`)."""
_OF_SIZES: Final = frozenset({"+", "-", "*", "//", "%", "neg", "pos"})
OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "/": operator.truediv, "**": operator.pow, "neg": operator.neg, "pos": operator.pos, "abs": abs}
"""Operations that formulas are made of, as Python does them."""
_OPERANDS: Final = (TracedNumber, bool, int, float)
_OF_MATH: Final = {
    1: ("acos", "asin", "atan", "cos", "cosh", "exp", "expm1", "fabs", "log", "log10", "log1p", "log2", "sin", "sinh",
        "sqrt", "tan", "tanh"),
    2: ("atan2", "copysign", "fmod", "pow")}
"""Functions of the module `math` with a float for a result, by the number of their operands. Schedules of rates are
made of them."""
_FUNCTIONS: Final[dict[str, Callable[..., float]]] = {
    name: getattr(math, name) for names in _OF_MATH.values() for name in names}
OPERATIONS.update({f"math.{name}": function for name, function in _FUNCTIONS.items()})
_DONE: Final = {**OPERATIONS, **COMPARISONS}
_LOOKS: Final = ("__index__", "__int__", "__float__", "__str__", "__repr__", "__format__", "__round__", "__trunc__",
                 "__floor__", "__ceil__", "__complex__", "__divmod__", "__rdivmod__", "__lshift__", "__rlshift__",
                 "__rshift__", "__rrshift__", "__and__", "__rand__", "__or__", "__ror__", "__xor__", "__rxor__",
                 "__invert__")
"""Methods that a number has, which ask for the number itself."""


def _operation(name: str, turned: bool) -> Callable[..., Any]:
    def operation(self: TracedNumber, other: Any) -> Any:
        if other.__class__ in _KINDS:
            return self.trace.compute(name, *((other, self) if turned else (self, other)))
        if isinstance(other, _NO_NUMBERS) or hasattr(type(other), LATER):
            return NotImplemented
        number = self.trace.specialize(self)
        return OPERATIONS[name](*((other, number) if turned else (number, other)))
    return operation


def _comparison(name: str) -> Callable[..., Any]:
    def comparison(self: TracedNumber, other: Any) -> Any:
        if other.__class__ in _KINDS:
            return self.trace.compare(name, self, other)
        return NotImplemented if isinstance(other, _NO_NUMBERS) else COMPARISONS[name](
            self.trace.specialize(self), other)
    return comparison


def _look(name: str) -> Callable[..., Any]:
    def look(self: TracedNumber, *given: Any) -> Any:
        number = self.trace.specialize(self)
        method = getattr(number, name, None)
        return NotImplemented if method is None else method(*map(plain_number, given))
    return look


def _give_methods(pairs: Sequence[tuple[str, Callable[..., Any]]]) -> None:
    for name, method in pairs:
        setattr(TracedNumber, name, method)


_BINARY: Final = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "truediv": "/", "pow": "**"}
_COMPARED: Final = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_give_methods([(f"__{turned * 'r'}{word}__", _operation(name, turned))
               for word, name in _BINARY.items() for turned in (False, True)])
_give_methods([(f"__{word}__", _comparison(name)) for word, name in _COMPARED.items()])
_give_methods([(f"__{name}__", lambda self, name=name: self.trace.compute(name, self))
               for name in ("neg", "pos", "abs")])
_give_methods([(name, _look(name)) for name in _LOOKS])
