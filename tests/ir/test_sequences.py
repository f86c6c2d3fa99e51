"""Sequences built anew keep their class, whatever their objects raise when they are asked for a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import genesis
from genesis.func.pytree import tree_map
from genesis.ir.sequences import is_named, sequence_of
from genesis.utils.checkpoint import checkpoint
from genesis.utils.data import default_collate


class Pair(NamedTuple):
    a: Any
    b: Any


class Strict(tuple):
    """Its objects refuse every name that they do not have, in their own words."""

    def __getattr__(self, name: str) -> Any:
        raise KeyError(name)


def test_a_class_says_whether_it_is_made_of_fields() -> None:
    assert is_named(Pair) and not is_named(tuple) and not is_named(list) and not is_named(Strict)
    assert sequence_of(Pair, [1, 2]) == Pair(1, 2) and type(sequence_of(Strict, [1, 2])) is Strict


@pytest.mark.parametrize("again", [
    lambda x: tree_map(lambda part: part + 1, x),
    lambda x: checkpoint(lambda: x, use_reentrant=False),
], ids=["tree_map", "checkpoint"])
@pytest.mark.parametrize("kind", [Pair._make, Strict, list])
def test_structures_keep_their_class(kind: Callable[[Any], Any], again: Callable[[Any], Any]) -> None:
    given = kind([genesis.tensor([1.0]), genesis.tensor([2.0])])
    assert type(again(given)) is type(given)


def test_samples_of_such_a_class_are_collated() -> None:
    found = default_collate([Pair(1, 2), Pair(3, 4)])
    assert isinstance(found, Pair) and found.a.tolist() == [1, 3]
    assert [x.tolist() for x in default_collate([Strict([1, 2]), Strict([3, 4])])] == [[1, 3], [2, 4]]
