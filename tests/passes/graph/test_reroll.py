"""reroll: rows that are treated alike are treated together, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.ir import Graph
from genesis.ir.parser import parse
from genesis.ir.verify import verify
from genesis.passes.graph.canonicalize import canonicalize
from genesis.passes.graph.reroll import reroll
from tests.passes.texts import assert_same_bits, assert_text, values_of

ROW = """
%s{i}: f32[1,3] = slice(%x, starts=({i},0), stops=({j},3), steps=(1,1))
%r{i}: f32[3] = reshape(%s{i}, shape=(3,))
%e{i}: f32[3] = {op}(%r{i})
%m{i}: f32[] = max(%e{i}, axes=(0,), keepdims=False)
%v{i}: f32[1] = reshape(%m{i}, shape=(1,))
%a{i}: f32[6] = assign({base}, %v{i}, starts=({at},), stops=({next},), steps=(1,))
"""


def loop(rows: list[int], ops: list[str] | None = None, places: list[int] | None = None, also: str = "") -> Graph:
    """out[place] = max(op(x[row])), one after the other."""
    text, base = "graph(%x: f32[8,3], %b: f32[6]) {", "%b"
    for number, row in enumerate(rows):
        at = number if places is None else places[number]
        text += ROW.format(i=row, j=row + 1, op=ops[number] if ops else "exp", base=base, at=at, next=at + 1)
        base = f"%a{row}"
    return parse(f"{text} return {base}{also} }}")


def together(graph: Graph) -> Graph:
    """What the rows of the pass list make of it, which has the same bits."""
    found = graph
    while (rolled := reroll(found)) is not found:
        found = canonicalize(rolled)
    verify(found)
    for one, other in zip(values_of(graph), values_of(found), strict=True):
        assert_same_bits(one, other)
    return found


def test_a_loop_over_all_rows():
    assert_text(together(loop([0, 1, 2, 3, 4, 5])), """
        graph(%x: f32[8,3], %b: f32[6]) {
          %s: f32[6,3] = slice(%x, starts=(0,0), stops=(6,3), steps=(1,1))
          %e: f32[6,3] = exp(%s)
          %m: f32[6] = max(%e, axes=(1,), keepdims=False)
          return %m
        }""")


def test_a_loop_over_some_rows():
    assert_text(together(loop([1, 3, 5, 7], places=[2, 3, 4, 5])), """
        graph(%x: f32[8,3], %b: f32[6]) {
          %s: f32[4,3] = slice(%x, starts=(1,0), stops=(8,3), steps=(2,1))
          %e: f32[4,3] = exp(%s)
          %m: f32[4] = max(%e, axes=(1,), keepdims=False)
          %a: f32[6] = assign(%b, %m, starts=(2,), stops=(6,), steps=(1,))
          return %a
        }""")


@pytest.mark.parametrize("graph", [
    loop([0, 1, 2]),  # few
    loop([0, 1, 2, 3], ops=["exp", "exp", "sin", "exp"]),  # not alike
    loop([3, 2, 1, 0]),  # backwards through x
    loop([0, 1, 2, 3], places=[3, 2, 1, 0]),  # and through the result
    loop([0, 1, 2, 4]),  # not evenly
    loop([0, 1, 2, 3], places=[0, 1, 3, 4]),
    loop([0, 1, 2, 3], also=", %a0, %a1, %a2"),  # what is between is wanted too
], ids=str)
def test_what_is_left_alone(graph):
    assert reroll(graph) is graph


def test_what_is_read_in_between_ends_a_run():
    found = together(loop([0, 1, 2, 3, 4, 5], also=", %a0"))
    assert sum(node.op.name == "assign" for node in found.nodes) == 2


def programs():
    """(name, program of two matrices and a vector): loops as users write them."""
    def rows(a, b, c):
        out = genesis.zeros(6)
        for i in range(6):
            out[i] = a[i, ::2].sum()
        return out

    def two_matrices_and_a_vector(a, b, c):
        out = genesis.zeros(6, 4)
        for i in range(6):
            out[i] = (a[i] * b[i] + c).relu()
        return out

    def columns(a, b, c):
        out = genesis.ones(4, 6)
        for i in range(4):
            out[i] = a[:, i].flip(0) - b[:, i].max()
        return out

    def columns_of_the_result(a, b, c):
        out = genesis.ones(4, 6)
        for i in range(1, 6):
            out[:, i] = a[i] * a[i]
        return out

    def every_element(a, b, c):
        out = genesis.zeros(6, 4)
        for i in range(6):
            for j in range(4):
                out[i, j] = a[i, j].exp() + b[i, j]
        return out

    def two_results(a, b, c):
        left, right = genesis.zeros(6), genesis.zeros(6)
        for i in range(6):
            left[i] = a[i].sum()
            right[i] = a[i].max()
        return left + right

    def half_precision(a, b, c):
        out = genesis.zeros(6, 2, dtype=genesis.bfloat16)
        for i in range(6):
            out[i] = a[i].view(2, 2).sum(1)
        return out

    def one_from_the_other(a, b, c):
        out = genesis.zeros(7)
        for i in range(6):
            out[i + 1] = out[i] + a[i].sum()
        return out

    return [rows, two_matrices_and_a_vector, columns, columns_of_the_result, every_element, two_results, half_precision,
            one_from_the_other]


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.__name__)
def test_programs(program, monkeypatch):
    arrays = [np.random.default_rng(i).standard_normal(shape).astype(np.float32)
              for i, shape in enumerate(((6, 4), (6, 4), (4,)))]
    plans = []
    with engine.observe(plans.append):
        found = program(*map(genesis.tensor, arrays)).double().numpy()
    assigns = sum(node.op.name == "assign" for node in plans[0].stages["canonical"].nodes)
    assert assigns <= (6 if program.__name__ == "one_from_the_other" else 2)
    with monkeypatch.context() as patch:
        patch.setattr(genesis.passes.graph.reroll, "FEWEST", 1000)
        engine.reset()
        wanted = program(*map(genesis.tensor, arrays)).double().numpy()
    engine.reset()
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_a_loop_of_a_thousand_rows_is_two_kernels():
    from genesis.engine.backends import backend_named
    from genesis.passes.pipeline import run_passes
    plans = []
    x, out = genesis.arange(50_000).view(1000, 50).clone(), genesis.zeros(1000, dtype=genesis.int64)
    genesis.eval(x)
    for i in range(1000):
        out[i] = x[i, ::10].sum()
    with engine.observe(plans.append):
        assert out.tolist() == [250 * i + 100 for i in range(1000)]
    _, schedule, *_ = run_passes(plans[0].graph, backend_named("h200"))
    assert len(schedule.groups) <= 2


def test_rows_that_are_equal():
    x, out = genesis.tensor([1.0, 2.0]), genesis.zeros(5, 2)
    for i in range(5):
        out[i] = x * x
    plans = []
    with engine.observe(plans.append):
        assert out.tolist() == [[1, 4]] * 5
    assert sum(node.op.name == "assign" for node in plans[0].stages["canonical"].nodes) <= 1
