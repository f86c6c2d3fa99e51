"""A trace: what is known of the symbols while a program is compiled, and what was asked of them (see `sym_int.py`)."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Final

from genesis.ir.polynomials import DIVISIONS, SYMBOLS, Atom, Atoms, Terms, sorted_terms, without_factors
from genesis.ir.size_class import LEAST, SizeClass, class_of, exact_class_of, place_class
from genesis.ir.size_ranges import COMPARISONS, OPPOSITE, Range, decided, product_of, quotient_of, remainder_of, sum_of
from genesis.ir.sym_int import Size, SymInt, hint, terms_of, value_of


class Trace:
    """What is known of the symbols while a program is compiled.

    Args:
        values: symbol → its value in the run at hand, at least `LEAST`.
        exact: every answer, also what code that weighs costs or makes room asks for, follows from sizes and guards, and
            none from classes: what is made is what would be made for the plain numbers.

    Attributes:
        classes: symbol → its class, which the value at hand is in, and every other that a guard is to hold for.
        literals: symbols that kernels name by their value: the plan serves this value alone, though it was made as for
            all.
        atoms: what polynomials are made of: ("symbol", name), ("sixteenth" or "eighth", name) where the class is of
            multiples of 16 or 8, (operator, left, right) of sizes and numbers, or ("is", size, None) for one taken as
            a whole (`one_factor`), with a number for one that has another hint (`weighed`).
        sizes: every size that was met, by the number in its word.
        guards: (comparison with 0, size), each once.
        specializations: "file:line" of the code that asked for a plain number.
        noting: whether answers become guards.
        types, result_types: keys of its sizes in the tables of types (`ir/types.py`) and of results
            (`ir/result_types.py`), which go with it.
    """

    def __init__(self, /, exact: bool = False, **values: int):
        self.exact = exact
        self.classes: dict[str, SizeClass] = {}
        self.literals: frozenset[str] = frozenset()
        self.atoms: list[Atom] = []
        self.atom_values: list[int] = []
        self._atom_range: list[Range] = []
        self._atom_hint: list[int] = []
        self.sizes: list[SymInt] = []
        self.guards: dict[tuple[str, SymInt], None] = {}
        self.specializations: list[str] = []
        self.noting = True
        self.types: list[tuple] = []
        self.result_types: list[tuple] = []
        self._made: list[SymInt | int] = []  # sizes and atoms, each after what it is made of
        self._known: dict[Terms, SymInt] = {}
        self._atom_of: dict[tuple, int] = {}
        self._computed: dict[Hashable, Size] = {}
        self._compared: dict[Hashable, bool] = {}
        self._divisors: dict[SymInt, int] = {}  # of sizes, as guards say
        self._symbols = {name: self._symbol(name, value) for name, value in values.items()}

    def _symbol(self, name: str, value: int) -> SymInt:
        if value < LEAST:
            raise ValueError(f"{name} = {value} cannot be symbolic: sizes below {LEAST} are compiled by themselves")
        found = self.classes[name] = exact_class_of(value) if self.exact else class_of(value)
        unit = found.unit
        kind = next(kind for kind, divisor in SYMBOLS.items() if divisor == unit)
        made = unit * self._atom((kind, name, None), value // unit, (found.least // unit, found.most // unit),
                                 found.typical // unit)
        assert isinstance(made, SymInt)  # a polynomial with a symbol in it is no constant
        return made

    def __enter__(self) -> Trace:
        _active.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
        self._computed.clear()
        self._compared.clear()

    def end(self) -> None:
        """Let nobody ask this trace any more, whatever has ended the block that it was entered for."""
        while self in _active and _active.pop() is not self:
            pass

    @property
    def values(self) -> dict[str, int]:
        """The symbols' values in the run at hand."""
        return {name: size.value for name, size in self._symbols.items()}

    def add_symbol(self, name: str, value: int) -> SymInt:
        """One more symbol, met while the run goes on."""
        made = self._symbols[name] = self._symbol(name, value)
        return made

    def add_place(self, name: str, value: int, most: int, least: int = 1) -> SymInt:
        """A symbol for where a slice begins, from `least` to `most`: these are one class."""
        self.classes[name] = place_class(most, least)
        made = self._atom(("symbol", name, None), value, (least, most), most)
        assert isinstance(made, SymInt)  # as above
        self._symbols[name] = made
        return made

    def symbol(self, name: str) -> SymInt:
        """The size with this name."""
        return self._symbols[name]

    def set_values(self, **values: int) -> None:
        """Change the symbols' values: later answers are about these."""
        self._computed.clear()
        self._compared.clear()
        for made in self._made:
            if isinstance(made, SymInt):
                made.value = self._value(made.terms)
            else:
                kind, a, b = self.atoms[made]
                self.atom_values[made] = values[a] // SYMBOLS[kind] if kind in SYMBOLS else (
                    a.value if kind == "is" else DIVISIONS[kind](value_of(a), value_of(b)))

    def _value(self, terms: Terms) -> int:
        total = 0
        for atoms, k in terms:
            for atom in atoms:
                k = k * self.atom_values[atom]
            total = total + k
        return total

    def make(self, terms: Terms) -> Size:
        """The size with these terms; a number when it is constant."""
        if not terms:
            return 0
        if len(terms) == 1 and terms[0][0] == ():
            return terms[0][1]
        found = self._known.get(terms)
        if found is None:
            hint = sum(k * math.prod([self._atom_hint[atom] for atom in atoms]) for atoms, k in terms)
            found = self._known[terms] = SymInt(self, terms, self._value(terms), len(self.sizes), hint)
            self.sizes.append(found)
            self._made.append(found)
        return found

    def _atom(self, key: Atom, value: int, range: Range, hint: int) -> Size:
        number = self._atom_of.get(key)
        if number is None:
            number = self._atom_of[key] = len(self.atoms)
            self.atoms.append(key)
            self.atom_values.append(value)
            self._atom_range.append(range)
            self._atom_hint.append(hint)
            self._made.append(number)
        return self.make((((number,), 1),))

    def range(self, size: Size) -> Range:
        """The range of a size over all values that the classes admit."""
        if not isinstance(size, SymInt):
            return size, size
        if size.range is None:
            size.range = sum_of([product_of([(k, k), *[self._atom_range[atom] for atom in atoms]])
                                 for atoms, k in size.terms])
        return size.range

    @contextmanager
    def aside(self) -> Iterator[None]:
        """A context whose questions become no guards, nor are their answers remembered: what is tried there is thrown
        away."""
        before = self.noting, self._computed, self._compared, self._divisors
        self.noting, self._computed, self._compared, self._divisors = False, {}, {}, dict(self._divisors)
        try:
            yield
        finally:
            self.noting, self._computed, self._compared, self._divisors = before

    # Arithmetic: memoized, because passes ask the same again and again.

    def compute(self, name: str, a: Size, b: Size) -> Size:
        """a + b, a * b, a // b, a % b or a / b, where at least one is a size."""
        key = (name, a, b, a.__class__, b.__class__)
        found = self._computed.get(key)
        if found is None:
            found = self._computed[key] = _RULES[name](self, a, b)
        return found

    def add(self, a: Size, b: Size) -> Size:
        sums = dict(terms_of(a))
        for atoms, k in terms_of(b):
            sums[atoms] = sums.get(atoms, 0) + k
        return self.make(sorted_terms(sums))

    def multiply(self, a: Size, b: Size) -> Size:
        sums: dict[Atoms, int] = {}
        for x, k in terms_of(a):
            for y, m in terms_of(b):
                atoms = tuple(sorted(x + y))
                sums[atoms] = sums.get(atoms, 0) + k * m
        return self.make(sorted_terms(sums))

    def divide(self, a: Size, b: Size) -> tuple[Size, Size]:
        """(q, r) with a = q·b + r, as much of a as possible in q; both by their terms."""
        if b == 0:
            raise ZeroDivisionError("a size is divided by 0")
        if isinstance(b, SymInt) and len(b.terms) > 1:
            return self._divide_by_sum(a, b)
        ((below, n),) = terms_of(b)
        whole: dict[Atoms, int] = {}
        rest: dict[Atoms, int] = {}
        for atoms, k in terms_of(a):
            left = without_factors(atoms, below)
            if left is None or k % n:
                rest[atoms] = k
            else:
                whole[left] = k // n
        return self.make(sorted_terms(whole)), self.make(sorted_terms(rest))

    def _divide_by_sum(self, a: Size, b: SymInt) -> tuple[Size, Size]:
        """Divides multiples of a sum, and what is a number away from one: the last index of a row is such a one."""
        if isinstance(a, SymInt):
            lead, k = b.terms[-1]
            for atoms, m in a.terms:
                left = without_factors(atoms, lead)
                if left is not None and m % k == 0:
                    factor = self.make(((left, m // k),))
                    rest = a - b * factor
                    if rest.__class__ is int:
                        return factor, rest
        return 0, a

    def floordiv(self, a: Size, b: Size) -> Size:
        q, r = self.divide(a, b)
        if r.__class__ is int and b.__class__ is int:
            return q + r // b
        turns = self._turns(r, b)
        if turns is not None:
            return q + turns
        return q + self._divided("//", r, b)

    def modulo(self, a: Size, b: Size) -> Size:
        _, r = self.divide(a, b)
        if r.__class__ is int and b.__class__ is int:
            return r % b
        turns = self._turns(r, b)
        if turns is not None:
            return r - turns * b
        return self._divided("%", r, b)

    def _divided(self, kind: str, a: Size, b: Size) -> Size:
        range = remainder_of(self.range(b)) if kind == "%" else quotient_of(
            self.range(a), self.range(b), rounded=kind == "//")
        number = value_of if self.exact else hint
        divisor = number(b)
        return self._atom((kind, a, b), DIVISIONS[kind](value_of(a), value_of(b)), range,
                          DIVISIONS[kind](number(a), divisor) if divisor else 0)

    def _turns(self, r: Size, b: Size) -> int | None:
        """r // b of a constant r where that is 0 or -1, else None; which of these it is is noted."""
        if isinstance(r, SymInt):
            return None
        return next((turns for turns in (0, -1) if bool(r >= turns * b) and bool(r < (turns + 1) * b)), None)

    def truediv(self, a: Size, b: Size) -> Size:
        q, r = self.divide(a, b)
        if r.__class__ is int and r == 0:
            return q
        back, rest = self.divide(b, a)
        if back.__class__ is int and rest.__class__ is int and rest == 0:
            return DIVISIONS["/"](1, back)
        return self._divided("/", a, b)

    def one_factor(self, size: SymInt) -> Size:
        """The size as an atom."""
        if len(size.terms) == 1:
            return size
        return self._atom(("is", size, None), size.value, self.range(size), size.hint)

    def weighed(self, size: SymInt, hint: int) -> Size:
        """The size as an atom with this hint."""
        return self._atom(("is", size, hint), size.value, self.range(size), hint)

    # Questions

    def divides(self, number: int, size: Size) -> bool:
        """Is the size a multiple, whatever the symbols are? Those that only some values make multiples are taken for
        others, which is right for all, unless a guard was made of it (`guard_divisor`)."""
        _, rest = self.divide(size, number)
        if rest.__class__ is int:
            return rest % number == 0
        return any(self._is_times(size, known, divisor, number) for known, divisor in self._divisors.items())

    def _is_times(self, size: Size, known: SymInt, divisor: int, number: int) -> bool:
        """Is the size, by their terms, a multiple of another that has a divisor, and so of the number?

            known = n0·n0, which 8 divides     size = 2·n0·n0·n1: 16 divides it
        """
        whole, rest = self.divide(size, known)
        return (rest.__class__ is int and rest == 0
                and divisor * math.gcd(*[k for _, k in terms_of(whole)]) % number == 0)

    def guard_divisor(self, size: SymInt, number: int) -> bool:
        """Does the number divide the size's value? The answer is a guard, and a yes is known from here on."""
        found = bool(size % number < 1)
        if found:
            self._divisors[size] = math.lcm(number, self._divisors.get(size, 1))
        return found

    def compare(self, name: str, a: Size, b: Size) -> bool:
        """The answer for the values at hand, noted unless it is the same for all."""
        key = (name, a, b, a.__class__, b.__class__)
        found = self._compared.get(key)
        if found is None:
            found = self._compared[key] = self._compare(name, a, b)
        return found

    def _compare(self, name: str, a: Size, b: Size) -> bool:
        difference = a - b
        if not isinstance(difference, SymInt):
            return bool(COMPARISONS[name](difference, 0))
        known = decided(name, *self.range(difference))
        if known is not None:
            return known
        answer = bool(COMPARISONS[name](difference.value, 0))
        if self.noting:
            self.guards[name if answer else OPPOSITE[name], difference] = None
        return answer

    def from_value(self, size: SymInt) -> SymInt:
        """How far another size is from this one: 0 for the value at hand alone."""
        found = size - size.value
        assert isinstance(found, SymInt)
        return found

    def specialize(self, size: SymInt) -> int:
        """The size's value, which a guard demands from now on."""
        if self.noting:
            self.guards["==", self.from_value(size)] = None
        frame = sys._getframe(2)
        self.specializations.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return size.value


def tracing() -> Trace | None:
    """The trace that is active."""
    return _active[-1] if _active else None


_active: list[Trace] = []

_RULES: Final[dict[str, Callable[[Trace, Size, Size], Size]]] = {
    "+": Trace.add, "*": Trace.multiply, "//": Trace.floordiv, "%": Trace.modulo, "/": Trace.truediv}
