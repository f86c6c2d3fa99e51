"""Reductions and scans over any axes and sizes."""

from __future__ import annotations

import numpy as np
import pytest

import genesis

from .compare import check, check_gradients, integers, numbers

AXES = [0, 1, 2, (0, 1), (0, 2), (1, 2), (0, 1, 2), -1]
SHAPES = [(2, 3, 5), (1, 7, 1), (4, 1, 3), (13, 2, 11)]
KINDS = {
    "sum": lambda x, d, k: x.sum(d, keepdim=k),
    "mean": lambda x, d, k: x.mean(d, keepdim=k),
    "amax": lambda x, d, k: x.amax(d, keepdim=k),
    "amin": lambda x, d, k: x.amin(d, keepdim=k),
    "any": lambda x, d, k: (x > 0.5).any(d, keepdim=k) if isinstance(d, int) else (x > 0.5).sum(d),
    "all": lambda x, d, k: (x > -0.5).all(d, keepdim=k) if isinstance(d, int) else (x > 0).sum(d),
    "var": lambda x, d, k: x.var(d, correction=0, keepdim=k),
    "norm": lambda x, d, k: (x * x).sum(d, keepdim=k).sqrt(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_over_any_axes(cuda, kind):
    def program(*xs):
        return [KINDS[kind](x, axes, keep) for x in xs for axes in AXES for keep in (False, True)]
    check(program, *(numbers(*shape) for shape in SHAPES))


@pytest.mark.parametrize("shape", [(2, 3, 5), (13, 2, 11)])
def test_prod_argmax_argmin(cuda, fuse, shape):
    def program(x):
        found = []
        for axis in (0, 1, 2, -2):
            found += [x.prod(axis), x.argmax(axis), x.argmin(axis, keepdim=True), *x.max(axis)]
            found += x.min(axis, keepdim=True)
        return [*found, x.argmax(), x.argmin(), x.max(), x.min(), x.sum(), x.prod()]
    check(program, numbers(*shape))


@pytest.mark.parametrize("size", [1, 2, 31, 127, 257, 1021])
def test_prime_sizes(cuda, size):
    check(lambda x: [x.sum(1), x.amax(0), x.argmax(1), x.mean(), x.t().sum(1)], numbers(3, size))


def test_zero_dimensional_and_empty(cuda):
    def program(x, empty):
        return [x.sum(), x.mean(), x.amax(), x.argmax(), x.cumsum(0), empty.sum(), empty.sum(0), empty.sum(1),
                empty.prod(0), empty.amax(1), (empty > 0).all(), (empty > 0).any(0), empty.argmax(1), empty.cumsum(0)]
    check(program, numbers(), numbers(0, 3))


def test_argmax_takes_the_first_of_equals(cuda, fuse):
    values = np.array([[1, 3, 3, 0], [2, 2, 2, 2], [-1, -1, -5, -1]], np.float32)
    check(lambda x: [x.argmax(0), x.argmax(1), x.argmin(0), x.argmin(1), x.argmax(), *x.max(1), *x.min(0)], values)
    check(lambda x: [x.argmax(0), x.argmin(1)], integers(0, 2, 37, 5))


def test_a_nan_wins(cuda, fuse):
    values = numbers(4, 6)
    values[1, 2] = values[1, 4] = values[3, 0] = float("nan")
    values[0, 1] = float("inf")

    def program(x):
        return [x.amax(0), x.amax(1), x.amin(0), x.amin(1), x.argmax(0), x.argmax(1), x.argmin(1), x.argmax(), x.sum(1),
                x.max(), x.min()]
    check(program, values)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int32", "int64", "float16", "bfloat16", "float64"])
def test_dtypes(cuda, dtype):
    dtype = getattr(genesis, dtype)

    def program(x):
        y = x.to(dtype)
        found = [y.sum(0), y.sum(1), y.sum(), y.sum(0, dtype=genesis.float32)]
        found += [y.any(0), y.all(1)]
        if dtype is not genesis.bool:
            found += [y.amax(0), y.amin(1), y.prod(1), y.argmax(0), y.cumsum(1)]
        return found
    check(program, integers(0, 4, 5, 7))


def test_long_rows_walk_in_blocks(cuda):
    """More elements than a block holds; the oracle sums in float32 too, so the bound is a few eps of the total."""
    check(lambda x: [x.sum(1), x.amax(1), x.argmax(1), x.softmax(1), (x - x.mean(1, keepdim=True)).square().sum(1)],
          numbers(2, 20011), tolerance=2e-5)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scans(cuda, axis):
    shapes = [(3, 4, 5), (1, 7, 2), (2, 130, 3), (2, 0, 3)]

    def program(*xs):
        return [y for x in xs for y in (x.cumsum(axis), (x * 0.9).cumprod(axis), x.permute(2, 0, 1).cumsum(axis))]
    check(program, *(numbers(*shape) for shape in shapes), tolerance=1e-5)


def test_gradients(cuda):
    def program(x):
        return [x.sum(0), x.mean((0, 2)), x.amax(1), x.prod(2), x.var(-1), x.cumsum(1), x.cumprod(0), x.logsumexp(1),
                x.norm(dim=1), x.max()]
    check_gradients(program, numbers(2, 3, 4), tolerance=1e-5)


def test_reductions_of_one_input_and_what_follows(cuda, fuse):
    def program(x):
        mean, top = x.mean(1, keepdim=True), x.amax(1, keepdim=True)
        return (x - mean) / (top - mean + 1), (x - top).exp().sum(1).log(), x.sum(0) + x.sum(1).sum()
    check(program, numbers(6, 9))
