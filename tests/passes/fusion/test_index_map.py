"""Index expressions are what they claim: random ones, evaluated at every point."""

from __future__ import annotations

import random

import pytest

from genesis.passes.fusion.index_map import Expr, add, flatten, floordiv, mod_, offset, scale, unflatten, variable


def evaluate(e: Expr, values: dict[str, int]) -> int:
    """The number an expression is at a point; quotients must not see a negative operand."""
    total = e.constant
    for atom, k in e.terms:
        if atom.inner is None:
            total += k * values[atom.name]
            continue
        inner = evaluate(atom.inner, values)
        assert inner >= 0, "C's quotient would differ"
        total += k * (inner // atom.number if atom.kind == "div" else inner % atom.number)
    return total


@pytest.mark.parametrize("seed", range(20))
def test_simplification_keeps_the_value_and_the_range(seed: int) -> None:
    rnd = random.Random(seed)
    for _ in range(60):
        sizes = {"x": rnd.choice([1, 2, 3, 5, 8, 12]), "r": rnd.choice([1, 2, 4, 6, 7])}
        points = [{"x": x, "r": r} for x in range(sizes["x"]) for r in range(sizes["r"])]
        made = [(variable(name, size), [point[name] for point in points]) for name, size in sizes.items()]
        for _ in range(10):
            (a, va), (b, vb), n = rnd.choice(made), rnd.choice(made), rnd.choice([1, 2, 3, 4, 6, 8, 12])
            made.append(rnd.choice([
                (add(a, b), [i + j for i, j in zip(va, vb, strict=True)]),
                (scale(a, n - 4), [i * (n - 4) for i in va]),
                (floordiv(a, n), [i // n for i in va]),
                (mod_(a, n), [i % n for i in va]),
                (offset(a, n - 5), [i + n - 5 for i in va]),
            ]))
        for e, expected in made:
            assert [evaluate(e, point) for point in points] == expected
            assert e.range[0] <= min(expected) and max(expected) <= e.range[1]


@pytest.mark.parametrize("shapes", [[(24,), (4, 6), (24,)], [(2, 3, 4, 5), (6, 20), (2, 60), (120,)],
                                    [(7, 1, 3), (21,)], [(0, 3), (3, 0)]])
def test_reshapes_cancel(shapes: list[tuple[int, ...]]) -> None:
    size = 1
    for n in shapes[0]:
        size *= n
    f = position = variable("f", size)
    for shape in shapes:
        position = flatten(unflatten(position, shape), shape)
    assert position == f


def test_a_matrix_that_is_split_in_two_is_seen_through() -> None:
    i, j = variable("i", 8), variable("j", 18)
    assert str(flatten(unflatten(flatten((i, j), (8, 18)), (2, 4, 3, 6)), (2, 4, 3, 6))) == "i*18 + j"


@pytest.mark.parametrize("inner", [(2640,), (48, 55), (4, 12, 5, 11), (7, 9)])
def test_a_row_that_lies_around_the_reduced_axis_is_found_in_any_shape(inner: tuple[int, ...]) -> None:
    """x is (outer, inner…) and r between them: the point without r is x again, however many inner axes there are."""
    size = 1
    for n in inner:
        size *= n
    x, r = variable("x", 54 * size), variable("r", 18)
    element = add(scale(floordiv(x, size), 18 * size), scale(r, size), mod_(x, size))
    outer, row, *point = unflatten(element, (54, 18, *inner))
    assert row == r and flatten((outer, *point), (54, *inner)) == x
