"""Tensors without dimensions, and without elements; sizes beyond a dtype."""

from __future__ import annotations

import pytest

import genesis


def test_a_number_read_backwards_is_the_number() -> None:
    x = genesis.tensor(2.5)
    assert x.flip(0).item() == x.flip(-1).item() == x.flip((0,)).item() == 2.5
    assert genesis.tensor([1, 2]).flip(0).tolist() == [2, 1]


def test_a_dimension_is_flipped_once() -> None:
    with pytest.raises(RuntimeError, match="multiple times"):
        genesis.ones(3).flip((0, -1))


@pytest.mark.parametrize("function", [genesis.softmax, genesis.log_softmax])
def test_a_softmax_of_nothing_is_nothing(function) -> None:  # type: ignore[no-untyped-def]
    x = genesis.ones(2, 0, requires_grad=True)
    for axis in (0, 1):
        assert function(x, axis).shape == (2, 0)
    function(x, 1).sum().backward()
    assert x.grad.shape == (2, 0)


def test_too_few_to_choose_from_are_no_choices() -> None:
    x = genesis.ones(2, requires_grad=True)
    choices = genesis.combinations(x, 3)
    assert choices.shape == (0, 3) and genesis.combinations(x, 0).shape == (0,)
    choices.sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("function", [genesis.unique, genesis.unique_consecutive])
def test_no_slices_are_distinct_slices_without_elements_are_not(function) -> None:  # type: ignore[no-untyped-def]
    found = function(genesis.ones(5, 0, 2), return_inverse=True, return_counts=True, dim=1)
    assert [tuple(x.shape) for x in found] == [(5, 0, 2), (0,), (0,)]
    for shape, dim in (((3, 0), 0), ((0, 0), 1)):
        with pytest.raises(RuntimeError, match="0 sized dimensions"):
            function(genesis.ones(*shape), dim=dim)


def test_coordinates_are_int64_as_sizes_are_beyond_small_integers() -> None:
    row, column = genesis.unravel_index(genesis.tensor([100], dtype=genesis.int8), (4, 1000))
    assert row.dtype is column.dtype is genesis.int64 and (row.item(), column.item()) == (0, 100)
    with pytest.raises(TypeError, match="integer dtype"):
        genesis.unravel_index(genesis.ones(2), (2, 3))


@pytest.mark.parametrize("name", ["mT", "mH", "adjoint"])
def test_a_matrix_transposed_of_one_element_and_of_a_vector(name: str) -> None:
    def of(x):  # type: ignore[no-untyped-def]
        found = getattr(x, name)
        return found() if callable(found) else found
    x = genesis.tensor(3.0)
    of(x).mul_(2)
    assert x.item() == 6 and of(x).shape == () and of(genesis.ones(4, 2, 3)).shape == (4, 3, 2)
    with pytest.raises(RuntimeError, match="only supported on matrices or batches of matrices"):
        of(genesis.ones(3))
