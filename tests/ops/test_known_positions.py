"""Indices that are known to be positions are not looked through, and all coordinates of an element are its position."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import genesis
from genesis.engine.plan_lookup import observe
from genesis.frontend.recording import read
from genesis.ir.node import Op, literal
from genesis.ir.ops import pointwise
from genesis.ir.ops.checked import is_inside
from genesis.ir.ops.leaves import iota
from genesis.ir.ops.searching import positions_below
from genesis.ir.types import cpu, int64

Program = Callable[[Any, Any], Any]

SHAPES = [(7,), (512, 2), (3, 4), (5, 1), (1, 6), (3, 5, 4), (2, 3, 2, 5)]


def ops_of(run: Callable[[], Any]) -> Counter[str]:
    """How often the programs that run have each op."""
    plans: list[Any] = []
    with observe(plans.append):
        genesis.eval(run())
    return Counter(node.op.name for plan in plans for node in plan.graph.nodes)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_coordinates_are_known_to_be_inside(shape: tuple[int, ...]) -> None:
    """And by no more than they are: the last element is true."""
    mask = genesis.ones(*shape, dtype=genesis.bool)
    for size, found in zip(shape, mask.nonzero(as_tuple=True), strict=True):
        below = positions_below(read(found))
        assert below == size == int(found.max().item()) + 1


@pytest.mark.parametrize(("op", "by", "below"), [
    (pointwise.remainder, 3, 3), (pointwise.remainder, -3, None), (pointwise.remainder, 0, None),
    (pointwise.floor_divide, 2, 6), (pointwise.floor_divide, -2, None), (pointwise.floor_divide, 0, None),
    (pointwise.bitwise_and, 3, 4), (pointwise.bitwise_and, 0, 1), (pointwise.bitwise_and, -2, None),
    (pointwise.right_shift, 1, 6), (pointwise.right_shift, 0, 12), (pointwise.right_shift, -1, None),
    (pointwise.right_shift, 32, None)])
def test_only_numbers_that_leave_positions_below_are_believed(op: Op, by: int, below: int | None) -> None:
    """`positions % -3` is from -2 to 0, and `positions >> -1` is what a device makes of it."""
    positions = iota(shape=(12,), axis=0, dtype=int64, device=cpu)
    found = op(positions, literal(by))
    assert positions_below(found) == below and is_inside(found, 12) == (below is not None)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_an_index_by_all_coordinates_is_one_by_positions(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    values, chosen = rng.standard_normal((*shape, 3)).astype("float32"), rng.random(shape) < 0.5
    x, mask = genesis.tensor(values), genesis.tensor(chosen)
    genesis.eval(x, mask)
    found: Any = None

    def run() -> Any:
        nonlocal found
        found = x[genesis.where(mask)]
        return found
    counted = ops_of(run)
    assert counted["take"] == counted["nonzero"] == 1
    assert not {"row_number", "mul", "add", "right_shift", "floor_divide", "bitwise_and", "remainder"} & set(counted)
    assert np.array_equal(found.numpy(), values[chosen])


@pytest.mark.parametrize("program", [
    lambda x, at: x[at[1], at[0]], lambda x, at: x[at[0], at[0]], lambda x, at: x[at[1]],
    lambda x, at: x[:, at[0]], lambda x, at: x[at[0] + 1, at[1]], lambda x, at: x[at[0] - 3, at[1]]],
    ids=["turned", "twice the first", "the second", "behind", "moved", "negative"])
@pytest.mark.parametrize("size", [(6, 6), (6, 5), (5, 6)], ids=str)
def test_other_indices_by_coordinates_are_numpys(program: Program, size: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    values, chosen = rng.standard_normal(size), rng.random((4, 5)) < 0.5
    chosen[3, 4] = chosen[0, 0] = True
    x, mask = genesis.tensor(values), genesis.tensor(chosen)
    assert np.array_equal(program(x, genesis.where(mask)).numpy(), program(values, np.nonzero(chosen)))


@pytest.mark.parametrize(("program", "index", "dim", "size"), [
    (lambda rows, columns: genesis.zeros(3, 5)[rows], 3, 0, 3),
    (lambda rows, columns: genesis.zeros(3, 5)[rows, columns], 3, 0, 3),
    (lambda rows, columns: genesis.zeros(4, 4)[rows, columns], 4, 1, 4)], ids=["rows", "both", "columns"])
def test_positions_beyond_a_shorter_tensor_are_an_error(program: Program, index: int, dim: int, size: int) -> None:
    """That of the user's index, not of a lowering's."""
    found = program(*genesis.where(genesis.ones(4, 5, dtype=genesis.bool)))
    message = f"indexing: index {index} is out of bounds for dimension {dim} with size {size}"
    with pytest.raises(IndexError, match=message):
        found.numpy()


def test_rows_are_written_to_and_have_gradients_as_through_a_mask() -> None:
    """What a mixture of experts does."""
    rng = np.random.default_rng(2)
    x = genesis.tensor(rng.standard_normal((6, 3)).astype("float32"), requires_grad=True)
    weights = genesis.tensor(rng.random((6, 2)).astype("float32"), requires_grad=True)
    mask = genesis.tensor(np.array([[1, 0], [0, 0], [0, 1], [0, 0], [1, 0], [0, 1]], bool))
    out: Any = genesis.zeros(6, 3)
    rows, place = genesis.where(mask)
    out[rows] += weights[rows, place, None] * x[rows]
    (out * out).sum().backward()
    factor = (weights.detach() * mask).sum(1, keepdim=True).numpy()
    assert np.array_equal(out.detach().numpy(), factor * x.detach().numpy())
    np.testing.assert_allclose(x.grad.numpy(), 2 * factor**2 * x.detach().numpy(), rtol=1e-6)
    grown = (2 * factor * (x.detach().numpy()**2).sum(1, keepdims=True)) * mask.numpy()
    np.testing.assert_allclose(weights.grad.numpy(), grown, rtol=1e-6)
