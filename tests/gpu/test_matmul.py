"""Matrix products of any shape, layout and dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import genesis
from genesis import engine
from genesis.codegen.cuda.choice_table import Key, Row, Rows
from genesis.codegen.cuda.choices import deciding
from genesis.codegen.cuda.templates.streamed_matmul import FMA_FORMS

from .compare import check, check_gradients, integers, numbers, on_gpu_only

SHAPES = [
    ((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((2, 3), (3, 4)), ((1, 1), (1, 1)), ((17, 33), (33, 9)),
    ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (2, 4, 3)), ((2, 3, 4), (4,)),
    ((1, 3, 4), (2, 4, 5)), ((2, 0), (0, 3)), ((0, 2), (2, 3)), ((2, 3), (3, 0)), ((0, 2, 3), (3, 2)),
    ((2, 0, 3), (2, 3, 1)),
]


def test_shapes(cuda, fuse):
    arrays = [x for a, b in SHAPES for x in (numbers(*a), numbers(*b, seed=1))]
    check(lambda *xs: [x @ y for x, y in zip(xs[::2], xs[1::2], strict=True)], *arrays, tolerance=1e-5)


def test_gradients(cuda):
    arrays = [x for a, b in SHAPES for x in (numbers(*a), numbers(*b, seed=1))]
    check_gradients(lambda *xs: [x @ y for x, y in zip(xs[::2], xs[1::2], strict=True)], *arrays, tolerance=1e-5)


def test_views_as_operands(cuda):
    def program(x, y):
        return [x.t() @ y, x.t() @ y.t().contiguous().t(), y.t() @ x, x.t()[:, 1:4] @ y[1:4, 1:],
                x[:, ::2].t() @ y[:, 1:3], x.flip(0).t() @ y, x[:, :1].expand(5, 4).t() @ y, x.reshape(4, 5) @ y,
                x.reshape(5, 2, 2).permute(1, 2, 0) @ y, genesis.cat([x, x], 1).t() @ y]
    check(program, numbers(5, 4), numbers(5, 6), tolerance=1e-5)


def test_views_that_are_results_themselves(cuda, fuse):
    """A value in memory lies between the operand and what its views lead to."""
    def program(x):
        turned = x.rot90()
        flipped = x.flip(0)
        halves = x.reshape(2, 8).flip(1)
        own = turned @ turned
        return (own, turned @ flipped, flipped.t() @ turned, halves @ halves.t(), halves.reshape(4, 4) @ x, turned,
                flipped, halves)

    def overwritten(x):
        product = genesis.tensordot(x.rot90(), x.rot90(), 1)
        product.copy_(product)
        return product
    check(program, numbers(4, 4), tolerance=1e-5)
    check(overwritten, numbers(3, 3), tolerance=1e-5)


def test_turned_attention_operands(cuda, fuse):
    def program(x):
        q, k = x.flip(2), x.flip(3)
        return genesis.nn.functional.scaled_dot_product_attention(q, k, q), q, k
    check(program, numbers(1, 2, 16, 16), tolerance=1e-5)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32", "int64", "uint8"])
def test_dtypes(cuda, dtype):
    dtype = getattr(genesis, dtype)
    check(lambda x, y: [x.to(dtype) @ y.to(dtype), x.to(dtype) @ y.to(dtype)[:, 0], x.to(dtype).t() @ x.to(dtype)],
          integers(0, 5, 4, 19), integers(0, 5, 19, 3))


def test_pointwise_around(cuda, fuse):
    def program(x, y, b):
        hidden = (x * 2 + 1) @ y.tanh() + b
        return hidden.relu(), hidden.sum(0), (hidden @ hidden.t()).softmax(-1)
    check(program, numbers(4, 5), numbers(5, 6), numbers(6), tolerance=1e-5)


def test_pointwise_after_batches(cuda, fuse):
    """A batch's rows end inside a tile, all batches' rows do not: what lies beyond is the next batch's."""
    def program(x, y, b):
        return (x @ y) * 2 + b
    for batches, rows in ((8, 2), (4, 8), (16, 3)):
        check(program, numbers(3, batches, rows, 4), numbers(3, batches, 4, 5), numbers(rows, 1), tolerance=1e-5)


def test_fronts(cuda):
    def program(a, b, v, w, batch):
        return [a.mm(b), batch.bmm(batch.transpose(1, 2)), a.mv(v), v.dot(v), genesis.outer(v, w),
                genesis.addmm(w, a, b, beta=0.5, alpha=2.0), genesis.nn.functional.linear(a, b.t(), w)]
    check(program, numbers(2, 3), numbers(3, 4), numbers(3), numbers(4), numbers(2, 3, 5), tolerance=1e-5)


def test_one_operand_twice(cuda):
    check_gradients(lambda x: [x @ x, x @ x.t(), x.t() @ x], numbers(6, 6), tolerance=1e-5)


def test_long_inner_dimension(cuda):
    check(lambda x, y: x @ y, numbers(3, 700), numbers(700, 2), tolerance=1e-5)


def test_several_tiles(cuda):
    """More rows and columns than a tile holds, none a multiple of it."""
    check(lambda x, y: x @ y, numbers(131, 20), numbers(20, 137), tolerance=1e-5)


@on_gpu_only
@pytest.mark.parametrize("form", FMA_FORMS, ids=lambda x: x.name)
def test_streamed_multiply_adds(cuda, form):
    """Operands in every order, sizes that no block divides. Each form has a program, and so a plan, of its own."""
    def program(x, w, xt, wt):
        found, first = [x @ w, x @ wt.t(), xt.t() @ w, xt.t() @ wt.t()], FMA_FORMS.index(form)
        return found[first:] + found[:first]

    rows, columns, depth = 2056, 1304, 200
    with deciding(Rows([Row(Key("product", ""), form.name)])):
        check(program, numbers(rows, depth), numbers(depth, columns, seed=1), numbers(depth, rows, seed=2),
              numbers(columns, depth, seed=3), tolerance=1e-5)
    assert {step.label for step in engine.last_plan().plan.steps} == {"streamed_matmul"}


@on_gpu_only
@pytest.mark.parametrize(("rows", "depth", "columns"), [(1274, 1265, 1619), (2051, 1303, 1301), (515, 2111, 515)])
def test_multiply_adds_of_rows_at_odd_places(cuda, rows, depth, columns):
    """Operands of float32 products that are copied to rows of whole vectors: a layer and its gradients."""
    def program(x, w, g):
        return [x @ w.t(), g @ w, g.t() @ x]
    check(program, numbers(rows, depth), numbers(columns, depth, seed=1), numbers(rows, columns, seed=2),
          tolerance=1e-5)
    assert {step.label for step in engine.last_plan().plan.steps} >= {"streamed_matmul"}


def test_operands_that_are_in_no_memory(cuda):
    """Constants, ranges and draws are made where they are read, but a product reads memory."""
    def program(x):
        ones, steps = genesis.ones(4, 3, device=x.device), genesis.arange(3.0, device=x.device)
        return [ones @ steps, x @ ones, ones.t() @ ones, genesis.rand(2, 4, device=x.device) @ ones, (ones * 2) @ x[:3],
                genesis.eye(4, device=x.device) @ x.t()]
    check(program, numbers(5, 4), tolerance=1e-5)


def test_infinite_values_stay_in_their_rows(cuda):
    """What pads a tile must not turn infinity into NaN."""
    x, y = numbers(3, 5), numbers(5, 4)
    x[1, 2] = np.inf
    check(lambda x, y: x @ y, x, y, tolerance=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shapes", [((0, 3), (3, 4)), ((5, 0), (0, 4)), ((5, 3), (3, 0)), ((0, 5, 3), (0, 3, 4)),
                                    ((0, 0), (0, 0))], ids=str)
def test_a_size_of_zero(shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str, cuda: Any) -> None:
    """A tile is chosen for products without elements, too, and for their gradients; sums of nothing are 0."""
    check_gradients(lambda a, b: a @ b, *(numbers(*shape).astype(dtype) for shape in shapes))
