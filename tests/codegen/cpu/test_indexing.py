"""Writes through an index by torch: of equal indices the last wins, whatever torch's threads do at once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

import genesis


@pytest.fixture(autouse=True)
def many_threads() -> Iterator[None]:
    """More threads than cores, so that they are interrupted anywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(8)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize(("shape", "axis", "count"), [
    ((5000,), 0, 100_000), ((5000, 3), 0, 40_000), ((3, 5000), 1, 40_000), ((2000, 32), 0, 20_000),
    ((4, 500, 40), 1, 5000), ((5000, 2), 0, 100)])
def test_the_last_of_equal_indices_wins(shape: tuple[int, ...], axis: int, count: int) -> None:
    """Copies that torch divides among its threads, of narrow rows and of wide ones, and one that it does not."""
    random = np.random.default_rng(0)
    index = np.minimum(random.zipf(1.3, count) - 1, shape[axis] - 1)
    source = random.standard_normal((*shape[:axis], count, *shape[axis + 1:]), np.float32)
    want = np.zeros(shape, np.float32)
    np.moveaxis(want, axis, 0)[index] = np.moveaxis(source, axis, 0)  # numpy walks in order
    for _ in range(8):
        found = genesis.zeros(shape).index_copy(axis, genesis.tensor(index), genesis.tensor(source))
        np.testing.assert_array_equal(found.numpy(), want)


def test_the_last_of_equal_rows_in_order_wins() -> None:
    """Rows as a mask numbers them, some twice."""
    random = np.random.default_rng(0)
    index, source = np.sort(random.integers(0, 2000, 20_000)), random.standard_normal((20_000, 32), np.float32)
    want = np.zeros((2000, 32), np.float32)
    want[index] = source
    for _ in range(8):
        found = genesis.zeros(2000, 32).index_copy(0, genesis.tensor(index), genesis.tensor(source))
        np.testing.assert_array_equal(found.numpy(), want)


@pytest.mark.parametrize("order", ["by chance", "ascending"])
def test_indices_that_differ_are_all_written(order: str) -> None:
    index, source = np.random.default_rng(0).permutation(3000), np.arange(3000 * 20, dtype=np.float32).reshape(3000, 20)
    if order == "ascending":
        index = np.sort(index)
    found = genesis.zeros(3000, 20).index_copy(0, genesis.tensor(index), genesis.tensor(source))
    np.testing.assert_array_equal(found.numpy()[index], source)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("how", ["scatter_add", "in place", "gather", "scatter_reduce"])
def test_an_expanded_index_of_part_of_a_base_adds_where_it_says(how: str, dtype: str) -> None:
    """Rows of 93 of 127 elements by one number each, as `index[:, None].expand(-1, 93)`: torch 2.13 itself adds some of
    them elsewhere."""
    random = np.random.default_rng(0)
    index, source = random.integers(0, 33, (5, 1)), random.integers(1, 9, (5, 93)).astype(np.float32)
    want = np.zeros((33, 127), np.float32)
    np.add.at(want, (index, np.arange(93)[None]), source)
    kind = getattr(genesis, dtype)
    places, added = genesis.tensor(index).expand(5, 93), genesis.tensor(source, dtype=kind)
    base = genesis.zeros(33, 127, dtype=kind)
    if how == "gather":
        x = base.requires_grad_()
        x.gather(0, places).backward(added)
        assert x.grad is not None
        found = x.grad
    elif how == "in place":
        base.add_(0).tolist()
        found = base.scatter_add_(0, places, added)
    elif how == "scatter_add":
        found = base.scatter_add(0, places, added)
    else:
        found = base.scatter_reduce(0, places, added, "sum")
    np.testing.assert_array_equal(np.array(found.tolist()), want)
