"""Sizes that are not fixed: formulas, guards, pins."""

from __future__ import annotations

import math
import operator

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from genesis.ir.size_class import class_of
from genesis.ir.size_divisors import gcd, is_multiple
from genesis.ir.size_trace import Trace, tracing
from genesis.ir.sym_int import formula, hint, is_int_or_sym, most, value_at, value_of
from genesis.passes.fusion.index_map import add, scale, unflatten, variable

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""An example may take as long as a machine with other work makes it."""

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod}
COMPARISONS = {"<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne, ">": operator.gt,
               ">=": operator.ge}

leaf = st.one_of(st.integers(1, 40), st.sampled_from(["B", "T"]))
expressions = st.recursive(leaf, lambda e: st.tuples(st.sampled_from(list(OPERATORS)), e, e), max_leaves=8)
sizes = st.integers(2, 50)


def evaluate(expression, values):
    if isinstance(expression, tuple):
        name, a, b = expression
        a, b = evaluate(a, values), evaluate(b, values)
        return OPERATORS[name](a, b)
    return values[expression] if isinstance(expression, str) else expression


def holds(trace: Trace, values: dict[str, int]) -> bool:
    """Are other values of the symbols of their classes, and do the trace's guards hold for them?"""
    return all(value in trace.classes[name] for name, value in values.items()) and all(
        COMPARISONS[name](value_at(size, values), 0) for name, size in trace.guards)


@PATIENT
@given(expressions, sizes, sizes, sizes, sizes)
def test_a_size_computes_as_the_int_does_and_its_formula_as_long_as_the_guards_hold(expression, b, t, b2, t2) -> None:
    with Trace(B=b, T=t) as trace:
        try:
            expected = evaluate(expression, {"B": b, "T": t})
        except ZeroDivisionError:
            return
        found = evaluate(expression, {"B": trace.symbol("B"), "T": trace.symbol("T")})
        assert value_at(found, {"B": b, "T": t}) == expected == value_of(found)
        if holds(trace, {"B": b2, "T": t2}):
            assert value_at(found, {"B": b2, "T": t2}) == evaluate(expression, {"B": b2, "T": t2})


@PATIENT
@example(("//", 3, ("+", 1, "B")), 2, 2, 3, 2)
@given(expressions, sizes, sizes, sizes, sizes)
def test_what_is_said_of_a_size_without_a_guard_is_the_same_for_all_of_its_class(expression, b, t, b2, t2) -> None:
    """Which of the sizes was met first does not show."""
    def said(**values: int):
        with Trace(**values) as trace:
            found = evaluate(expression, {"B": trace.symbol("B"), "T": trace.symbol("T")})
            return trace, found, (hint(found), trace.range(found), is_multiple(found, 16))

    try:
        trace, found, one = said(B=b, T=t)
        second, other_found, other = said(B=b2, T=t2)
    except ZeroDivisionError:
        return
    if holds(trace, {"B": b2, "T": t2}):
        assert one == other and holds(second, {"B": b, "T": t})
        least, largest = trace.range(found)
        for values in ({"B": b, "T": t}, {"B": b2, "T": t2}):
            assert (least is None or least <= value_at(found, values)) and (
                largest is None or value_at(found, values) <= largest)
        assert not is_multiple(found, 16) or value_of(other_found) % 16 == 0


@PATIENT
@given(expressions, expressions, st.sampled_from(list(COMPARISONS)), sizes, sizes, sizes, sizes)
def test_an_answer_holds_wherever_the_guards_do(one, other, name, b, t, b2, t2) -> None:
    compare = COMPARISONS[name]
    with Trace(B=b, T=t) as trace:
        symbols = {"B": trace.symbol("B"), "T": trace.symbol("T")}
        try:
            expected = compare(evaluate(one, {"B": b, "T": t}), evaluate(other, {"B": b, "T": t}))
        except ZeroDivisionError:
            return
        answer = compare(evaluate(one, symbols), evaluate(other, symbols))
        assert answer == expected
        if holds(trace, {"B": b2, "T": t2}):
            second = {"B": b2, "T": t2}
            assert compare(evaluate(one, second), evaluate(other, second)) == answer


def test_what_holds_for_every_size_is_no_guard() -> None:
    with Trace(B=8) as trace:
        rows = trace.symbol("B") * 1024
        assert rows % 16 == 0 and rows > 0 and rows != 1 and rows // 64 * 64 == rows and rows - 1 < rows
        assert (rows - 1) // 1024 == trace.symbol("B") - 1
        assert not trace.guards


def test_a_quotient_rounded_up_may_be_any_number() -> None:
    """-(-B // 128) is made of a negative quotient, of which nothing is known."""
    with Trace(B=601) as trace:
        blocks = -(-trace.symbol("B") // 128)
        assert blocks.value == 5 and blocks > 4 and not blocks > 5
        assert not holds(trace, {"B": 641}) and holds(trace, {"B": 639})
        assert len(trace.guards) == 1, "more than four they are for every size of the class"


def test_equal_formulas_are_one_object() -> None:
    with Trace(B=8) as trace:
        size = trace.symbol("B")
        assert (size + 1) * 4 is 4 + size * 4
        assert {(size * 2, 3): "found"}[2 * size, 3] == "found"


@pytest.mark.parametrize("ask", [range, int, float, operator.index, lambda n: [0] * n, lambda n: math.gcd(n, 4)])
def test_asking_for_the_number_pins_it(ask) -> None:
    with Trace(B=8) as trace:
        ask(trace.symbol("B"))
        assert holds(trace, {"B": 8}) and not holds(trace, {"B": 9})
        assert "test_sym_int.py" in trace.specializations[0]


def test_a_common_divisor_needs_no_guard() -> None:
    with Trace(B=8) as trace:
        size = trace.symbol("B")
        assert gcd(size * 96, 64) == 32 and gcd(size * 6, size * 4) is size * 2 and gcd(12, 18) == 6
        assert gcd(size * size * 3, size + 0) is size
        assert gcd(size * size * 12, size * size * 8) is size * size * 4
        assert not trace.guards


def test_a_size_in_text_is_a_word_and_for_people_a_formula() -> None:
    with Trace(B=8) as trace:
        size = trace.symbol("B") * 4
        assert f"x * {size}" == f"x * size_{size.number}_" and formula(size) == "B*4" and "32" in repr(size)


def test_only_active_inside() -> None:
    assert tracing() is None
    with Trace(B=2) as trace:
        assert tracing() is trace and is_int_or_sym(trace.symbol("B")) and is_int_or_sym(2) and not is_int_or_sym(2.0)
    assert tracing() is None


def test_zero_and_one_cannot_be_symbolic() -> None:
    with pytest.raises(ValueError, match="cannot be symbolic"):
        Trace(B=1)


def test_ranges_answer_without_a_guard() -> None:
    with Trace(B=601, T=1024) as trace:
        b, t = trace.symbol("B"), trace.symbol("T")
        assert b > 512 and b < 1024 and b != 1024 and t <= 1024 and b * t > 250_000 and b // 128 >= 4 and b % 128 < 128
        assert t % 16 == 0 and is_multiple(t * 3, 48) and not is_multiple(b * 8, 16)
        assert not trace.guards
        assert b > 599 and trace.guards, "599 is amid its class"
        assert hint(b) == 1024 and most(b) == 1023 and hint(t * 2) == most(t * 2) == 2048


@pytest.mark.parametrize("size, others", [
    (0, ()), (1, ()), (2, (3, 9, 15)), (16, ()), (17, (18, 31)), (32, ()), (48, (64,)), (56, (33, 63)),
    (1000, (520, 1016)), (1001, (513, 1023)), (1024, (528, 768))])
def test_classes_end_at_powers_of_two_and_tell_multiples_of_16_and_of_8(size, others) -> None:
    found = class_of(size)
    assert [n for n in range(1100) if n in found] == [n for n in range(1100) if class_of(n) == found]
    assert all(class_of(n) == found for n in others) and size in found


def test_places_in_rows_whose_size_is_a_sum_come_apart() -> None:
    """A slice of rows leaves B - 8 columns: whoever asks which row and column an element is gets an answer."""
    with Trace(A=128, B=32777) as trace:
        rows, columns = trace.symbol("A"), trace.symbol("B") - 8
        x, r = variable("x", columns), variable("r", rows)
        assert unflatten(add(scale(r, columns), x), (rows, columns)) == (r, x)
        assert gcd(columns * rows, columns) == columns and gcd(columns * 3, columns * 2) in (1, columns)
        assert not trace.guards


def test_what_a_guard_divides_has_multiples_that_more_divides() -> None:
    with Trace(N=74, H=56) as trace:
        images, high = trace.symbol("N"), trace.symbol("H")
        area = high * high
        assert not is_multiple(area, 8) and trace.guard_divisor(area, 8) and is_multiple(area, 8)
        assert is_multiple(2 * area, 16) and is_multiple(6 * area * images, 16) and not is_multiple(2 * area, 32)
        assert not is_multiple(3 * area, 16) and not is_multiple(2 * area + 1, 16)
