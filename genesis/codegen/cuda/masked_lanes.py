"""What lanes of a block hold where nothing is loaded: what the kernel would put there otherwise.

A reduction wants its neutral element where a block reaches past a row, a padded value wants its padding. If that is
selected behind the load, the load's mask is needed again. A thread has seven predicates, so that with sixteen loads the
compiler asks for one element, waits, and uses it before it asks for the next: an iteration of logsumexp over columns of
843 waited 8.7 times for memory, and waits 0.9 times where the load itself gives -inf (machine code for sm_90; H200:
21 µs for 10 by its bytes).

    x = tl.load(p, mask=r_mask, other=0)             →    x = tl.load(p, mask=r_mask, other=-float("inf"))
    top = g_max(top, tl.where(r_mask, x, -inf))           top = g_max(top, x)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from genesis.codegen.cuda.kernel_ir import Apply, Constant, Kernel, Load, Part, Reduce, Select, Value, operands_of

NEUTRAL: Final[Mapping[str, float]] = {"sum": 0.0, "max": -math.inf, "min": math.inf, "any": 0.0,
                                       "argmax": -math.inf, "argmin": math.inf, "exponentials": -math.inf}
"""Reduction → the number of a lane that changes nothing of it."""

EXACT: Final = 256
"""Largest integer up to which all floats of 16 bits hold each: numbers that a load may give without rounding."""

_ARITHMETIC: Final[Mapping[str, Callable[..., float]]] = {
    "cast": lambda a: a, "neg": lambda a: -a, "abs": abs, "add": lambda a, b: a + b, "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b, "maximum": max, "minimum": min, "relu": lambda a: max(a, 0.0)}
"""Ops of floats whose value follows from numbers of masked lanes."""


@dataclass
class MaskedLanes:
    """What masked lanes hold.

    Attributes:
        others: load → what it gives where its mask does not hold; 0 where it is not here.
        settled: selects whose value the load has by itself.
        numbers: value → what it is behind the end of a row, where that is known.
        zeros: values that are 0 there, whatever they are multiplied by.
    """

    others: dict[str, float] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    numbers: dict[str, float] = field(default_factory=dict)
    zeros: set[str] = field(default_factory=set)

    def other(self, load: Load) -> str:
        """What a load gives where its mask does not hold, as text."""
        number = self.others.get(load.out.name, 0) or 0
        return f'{"-" if number < 0 else ""}float("inf")' if math.isinf(number) else repr(number)

    def is_neutral(self, s: Reduce) -> bool:
        """Whether a reduction's operand changes nothing of it behind the end of a row."""
        number = self.numbers.get(s.operand.name)
        return number is not None and s.operand.dtype.kind == "float" and NEUTRAL.get(s.op) == number


def masked_lanes(kernel: Kernel, takes: Callable[[Load], bool], ragged_r: bool, waiting: bool) -> MaskedLanes:
    """What loads of a kernel give, and what follows.

    Args:
        takes: whether the text of a load can name what it gives.
        ragged_r: whether blocks reach past the end of a row.
        waiting: whether loads wait in registers: of those that are copied ahead into shared memory Triton selects what
            is not 0 itself.
    """
    made = {s.out.name: s for s in kernel.statements if hasattr(s, "out")}
    loads = {name: s for name, s in made.items() if isinstance(s, Load) and takes(s)}
    found = MaskedLanes()
    readers = Counter(value.name for s in kernel.statements for value in operands_of(s, kernel.indices))
    for s in kernel.statements:
        if waiting and isinstance(s, Select) and readers[s.inside.name] == 1 and s.inside.name in loads:
            number = _padding(s, made.get(s.outside.name), loads[s.inside.name])
            if number is not None:
                found.others[s.inside.name] = number
                found.settled.add(s.out.name)
    if not ragged_r:
        return found
    if waiting:
        for name, number in _wanted(kernel, made, loads).items():
            found.others.setdefault(name, number)
    for s in kernel.statements:
        number = _behind(s, made, found, loads)
        if number is not None and not math.isnan(number):
            found.numbers[s.out.name] = number  # type: ignore[union-attr]  # `_behind` answers for what has one
        if number == 0 or _is_product_of_zeros(s, found.zeros):
            found.zeros.add(s.out.name)  # type: ignore[union-attr]  # likewise
    return found


def _padding(s: Select, outside: object, load: Load) -> float | None:
    """The number that a load may give instead of the select behind it."""
    if not isinstance(outside, Constant) or s.inside.dtype is not s.out.dtype or not set(s.bounds) <= set(load.bounds):
        return None
    number, kind = outside.number, s.out.dtype.kind
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        return None
    if kind == "float":
        exact = math.isinf(number) or (float(number).is_integer() and abs(number) <= EXACT)
        return float(number) if exact and str(number) != "-0.0" else None
    return number if kind == "int" and isinstance(number, int) and abs(number) <= EXACT else None


def _wanted(kernel: Kernel, made: Mapping[str, object], loads: Mapping[str, Load]) -> dict[str, float]:
    """What most reductions of a load's elements want behind the end of a row; 0, which costs nothing, of equals."""
    votes: dict[str, Counter[float]] = {}
    for s in kernel.statements:
        if isinstance(s, (Reduce, Part)) and s.op in NEUTRAL and s.operand.dtype.kind == "float":
            root = _root(s.operand, made)
            if root in loads and "r" in loads[root].out.vars and loads[root].out.dtype.kind == "float":
                votes.setdefault(root, Counter())[NEUTRAL[s.op]] += 1
    return {name: max(sorted(counted, key=abs), key=counted.__getitem__) for name, counted in votes.items()}


def _root(value: Value, made: Mapping[str, object]) -> str:
    """The value that another is a cast of."""
    s = made.get(value.name)
    while isinstance(s, Apply) and s.node.op.name == "cast" and s.operands[0].dtype.kind == "float":
        value = s.operands[0]
        s = made.get(value.name)
    return value.name


def _behind(s: object, made: Mapping[str, object], found: MaskedLanes, loads: Mapping[str, Load]) -> float | None:
    """What a statement's value is behind the end of a row."""
    match s:
        case Load(out, _, _, _):
            return found.others.get(out.name, 0.0) if out.name in loads and "r" in out.vars else None
        case Constant(_, number):
            return float(number) if isinstance(number, (int, float)) and not isinstance(number, bool) else None
        case Select(out, _, inside, outside):
            a, b = found.numbers.get(inside.name), found.numbers.get(outside.name)
            return a if out.name in found.settled or a == b else None
        case Apply(out, node, operands, compute) if out.dtype.kind == compute.kind == "float":
            name, numbers = node.op.name, [found.numbers.get(x.name) for x in operands]
            if name == "exp" and numbers == [-math.inf]:
                return 0.0
            if name == "sub" and numbers[0] == -math.inf and _is_largest(operands[1], _root(operands[0], made), made):
                return -math.inf
            if name in _ARITHMETIC and all(x is not None for x in numbers):
                value = _ARITHMETIC[name](*numbers)
                return value if math.isinf(value) or abs(value) <= EXACT else None
    return None


def _is_product_of_zeros(s: object, zeros: set[str]) -> bool:
    """Whether a statement's value is 0 behind the end of a row as one of its factors is."""
    if not isinstance(s, Apply) or s.out.dtype.kind != "float":
        return False
    named = [x.name in zeros for x in s.operands]
    return any(named) if s.node.op.name == "mul" else s.node.op.name in ("neg", "abs", "cast") and all(named)


def _is_largest(value: Value, root: str, made: Mapping[str, object]) -> bool:
    """Whether a value is the largest of a load's elements, or 0 for that where it is infinite: -inf less this is -inf,
    or the row's elements that are there give NaN as well."""
    s = made.get(_root(value, made))
    if isinstance(s, Apply) and s.node.op.name == "where":
        s = next((made.get(_root(x, made)) for x in s.operands[1:] if not isinstance(made.get(x.name), Constant)), None)
    return isinstance(s, Reduce) and s.op == "max" and _root(s.operand, made) == root


def largest_beside_places(reductions: Iterable[Reduce]) -> dict[str, Reduce]:
    """Places of the largest (smallest) elements → the reduction to these elements themselves, which are known as soon
    as their places are."""
    known = {(s.op, s.operand.name): s for s in reductions}
    return {s.out.name: known[s.op[3:], s.operand.name] for s in known.values()
            if s.op in ("argmax", "argmin") and (s.op[3:], s.operand.name) in known}
