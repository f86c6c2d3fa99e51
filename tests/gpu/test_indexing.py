"""Reads and writes through indices, equal ones included."""

from __future__ import annotations

import numpy as np
import pytest

import genesis
from tests.sweeping import by_default

from .compare import check, check_gradients, integers, launches, numbers

INDEX = np.array([[0, 2], [2, 2], [1, 0]])


def test_reads(cuda, fuse):
    def program(x, i, rows):
        return [x[rows], x[:, rows], x[rows, rows], x[None, rows], x[1:, rows], x[..., rows], x[-rows],
                x[rows[:, None], i[0]], x[[0, 2]], x.gather(0, i), x.gather(1, i), x.index_select(1, rows), x[i],
                x[0, rows], x[rows, 1]]
    check(program, numbers(3, 3, seed=2), INDEX, np.array([2, 0, 2, 1]))


def test_reads_with_a_mask(cuda):
    check(lambda x: [x[x > 0], x[x[:, 0] > 0], x.masked_select(x < 0), x.masked_fill(x > 0, -1.0), x.nonzero(),
                     genesis.where(x > 0, x, 0.0)], numbers(4, 3))


def test_writes(cuda, fuse):
    def program(x, i, rows, source):
        a, b, c, d, e = (x.clone() for _ in range(5))
        a[rows] = 1.5
        b[:, rows] = source[:3, :2]
        c[rows, rows] = source[0, :2]
        d[d > 0] = 0.25
        e[rows] += 1
        return [a, b, c, d, e, x.scatter(0, i, source[:3, :2]), x.scatter(1, i, 7.0)]
    check(program, numbers(3, 3), np.array([[0, 2], [2, 1], [1, 0]]), np.array([2, 0]), numbers(4, 4, seed=1),
          tolerance=0)


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int64"])
def test_equal_indices_add_up(cuda, axis, dtype):
    dtype = getattr(genesis, dtype)

    def program(x, i, rows, source):
        y, s = x.to(dtype), source.to(dtype)
        return [y.scatter_add(axis, i, s[:3, :2]), y.index_add(axis, rows, s[:4, :3] if axis == 0 else s[:3, :4])]
    check(program, integers(-3, 4, 3, 3), INDEX, np.array([1, 1, 2, 1]), integers(-3, 4, 4, 4))


def test_of_equal_indices_the_last_wins(cuda):
    def program(x, i, source):
        a = x.clone()
        a[i[:, 0]] = source
        return a, x.scatter(0, i, source[:, :2])
    check(program, numbers(3, 3), np.array([[1, 1], [1, 0], [1, 1]]), numbers(3, 3, seed=1), tolerance=0)


def test_many_equal_indices_add_up_alike_every_time(cuda):
    """No atomics: the order of the additions is fixed."""
    x, i = genesis.tensor(numbers(90), device="cuda"), genesis.tensor(integers(0, 3, 90), device="cuda")
    found = {tuple(genesis.zeros(3, device="cuda").index_add(0, i, x * scale).tolist()) for scale in (1.0, 1.0, 1.0)}
    assert len(found) == 1


def test_gradients(cuda):
    def program(x, i, rows):
        return [x[i], x.gather(0, i), x.gather(1, i), x[rows, rows], x[:, rows], x.index_select(0, rows)]
    check_gradients(program, numbers(3, 3), INDEX, np.array([2, 0, 2, 2]))


def test_gradients_of_writes(cuda):
    def program(x, source):
        rows, i = genesis.tensor([2, 0], device=x.device), genesis.tensor(INDEX, device=x.device)
        a = x * 1
        a[rows] = source[:2]
        return [a, x.scatter_add(0, i, source[:, :2]), x.index_add(1, rows, source[:, :2])]
    check_gradients(program, numbers(3, 3), numbers(3, 3, seed=1))


def test_embedding(cuda):
    embedding = genesis.nn.functional.embedding
    check_gradients(lambda w, i: [embedding(i, w), embedding(i[0], w).sum(0)], numbers(5, 3), INDEX)


@by_default("gpu-*", "host-False")
@pytest.mark.parametrize("skewed", [False, True])
def test_embedding_of_many_tokens(cuda, skewed):
    """Of which some row may have most: whole shares of its positions are added up by other programs."""
    index = np.random.default_rng(0).integers(0, 40, 17_000)
    if skewed:
        index[np.arange(17_000) % 8 != 0] = 39
    check_gradients(lambda w, i: [genesis.nn.functional.embedding(i, w)], numbers(40, 3), index)


@pytest.mark.parametrize("cuda", [pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("width", [1, 2, 5, 12, 33, 63, 104, 130])
def test_rows_of_any_width_are_added_at_many_places(cuda, width, dtype):
    """Rows that are not loaded in vectors lie otherwise in a GPU's registers: only there can this fail."""
    random = np.random.default_rng(width)
    index = random.integers(0, 900, 20_000)
    index[: 5000] = 17
    rows = random.integers(-8, 9, (20_000, width))  # their sums are exact in any order
    want = np.zeros((900, width), np.int64)
    np.add.at(want, index, rows)
    table = genesis.zeros(900, width, dtype=getattr(genesis, dtype), device="cuda")
    source = genesis.tensor(rows, device="cuda").to(table.dtype)
    found = table.index_add(0, genesis.tensor(index, device="cuda"), source)
    assert found.cpu().equal(genesis.tensor(want).to(table.dtype))


@pytest.mark.parametrize("cuda", [pytest.param("gpu", marks=pytest.mark.gpu)], indirect=True)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int64"])
@pytest.mark.parametrize(("lines", "sums", "count"), [(9, 300, 500), (40, 8192, 8192), (5, 42_240, 30_000), (3, 1, 700),
                                                      (2000, 990, 990)])
@pytest.mark.parametrize("every", [1, 3, 16])
def test_sums_of_long_lines(cuda, lines, sums, count, dtype, every):
    """Several warps add, and meet at barriers: only on a GPU can one of them be early. Bits are the same each time. All
    positions of a line, a third or a sixteenth are one sum's."""
    random = np.random.default_rng(count)
    index = random.integers(0, sums, (lines, count))
    index[:, ::every] = random.integers(0, sums, lines)[:, None]
    rows = random.integers(-8, 9, (lines, count))  # their sums are exact in any order
    want = np.zeros((lines, sums), np.int64)
    np.add.at(want, (np.arange(lines)[:, None], index), rows)
    table = genesis.zeros(lines, sums, dtype=getattr(genesis, dtype), device="cuda")
    source, at = genesis.tensor(rows, device="cuda"), genesis.tensor(index, device="cuda")
    found = table.scatter_add(1, at, source.to(table.dtype))
    assert found.cpu().equal(genesis.tensor(want).to(table.dtype))
    if dtype == "float32":
        fine = genesis.tensor(random.standard_normal((lines, count)).astype("float32"), device="cuda")
        again = {table.scatter_add(1, at, fine + zero).cpu().numpy().tobytes() for zero in (0.0, -0.0, 0.0)}
        assert len(again) == 1


def test_an_embedding_of_few_tokens_is_one_kernel(cuda):
    check(lambda w, i: genesis.nn.functional.embedding(i, w) * 2 + 1, numbers(5, 3), INDEX)
    assert launches() == 1  # its elements check the index, which takes less than a launch


def test_other_index_dtypes_and_devices(cuda):
    def program(x, i):
        return [x[i.int()], x[i.to(genesis.uint8).long()], x.gather(0, i.long()[:, :2]), x[genesis.tensor([0, 1])]]
    check(program, numbers(3, 3), INDEX)


def test_operands_that_are_in_no_memory(cuda):
    """Constants and ranges as the table, the index and the source."""
    def program(x):
        index, ones = genesis.zeros(2, dtype=genesis.int64, device=x.device), genesis.ones(2, 3, device=x.device)
        steps = genesis.arange(3, device=x.device)
        return [x[index], x[steps], ones[index], steps[steps], x.index_add(0, index, ones),
                ones.index_add(0, index, ones), x.scatter_add(0, index[:, None].expand(2, 3), ones),
                ones.scatter(1, steps[None], x[:1]),
                x.gather(0, index[:, None]), ones.cumsum(0), steps.cumsum(0), genesis.rand(3, device=x.device)[steps]]
    check(program, numbers(3, 3))


def test_empty_indices(cuda):
    def program(x, none):
        a = x.clone()
        a[none] = 3.0
        return [x[none], x[:, none], a, x.index_add(0, none, x[none]), x.gather(0, none[:, None])]
    check(program, numbers(3, 3), np.zeros(0, np.int64))
