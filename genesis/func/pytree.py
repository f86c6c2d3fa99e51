"""Nests of tuples, lists and dictionaries as lists of their leaves, with torch's names of `utils._pytree`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from genesis.func.tree import flatten
from genesis.ir.sequences import sequence_of
from genesis.ir.suggest import suggesting

__all__ = ["TreeSpec", "tree_all", "tree_any", "tree_flatten", "tree_leaves", "tree_map", "tree_map_", "tree_map_only",
           "tree_unflatten"]


@dataclass(frozen=True)
class TreeSpec:
    """The form of a nest.

    Attributes:
        num_leaves: how many leaves it has.
        build: the nest of these leaves.
    """

    num_leaves: int
    build: Callable[[list[Any]], Any]

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """The nest of these leaves."""
        return tree_unflatten(leaves, self)


def tree_flatten(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> tuple[list[Any], TreeSpec]:
    """The leaves of a nest, in order, and its form; `is_leaf` says of a part that it is not looked into.

    >>> leaves, spec = tree_flatten({"a": [1, 2], "b": 3})
    >>> leaves, tree_unflatten([4, 5, 6], spec)
    ([1, 2, 3], {'a': [4, 5], 'b': 6})
    """
    if is_leaf is not None:
        tree = _closed(tree, is_leaf)
    leaves, build = flatten(tree)
    return [x.held if isinstance(x, _Closed) else x for x in leaves], TreeSpec(len(leaves), build)


def tree_unflatten(leaves: Iterable[Any], treespec: TreeSpec) -> Any:
    """The nest of this form with these leaves.

    Raises:
        ValueError: it has another number of leaves.
    """
    found = list(leaves)
    if len(found) != treespec.num_leaves:
        raise ValueError(f"tree_unflatten: the form has {treespec.num_leaves} leaves, but {len(found)} are given")
    return treespec.build(found)


def tree_leaves(tree: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves of a nest, in order."""
    return tree_flatten(tree, is_leaf)[0]


def tree_map(func: Callable[..., Any], tree: Any, *rests: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The nest with a function of each leaf, and of those at its place in other nests.

    >>> tree_map(lambda x, y: x + y, [1, {"a": 2}], [10, {"a": 20}])
    [11, {'a': 22}]
    """
    leaves, spec = tree_flatten(tree, is_leaf)
    others = [tree_leaves(rest, is_leaf) for rest in rests]
    return tree_unflatten([func(*xs) for xs in zip(leaves, *others, strict=True)], spec)


def tree_map_(func: Callable[..., Any], tree: Any, *rests: Any) -> Any:
    """Call a function for each leaf; returns the nest as it is."""
    tree_map(func, tree, *rests)
    return tree


def tree_map_only(kinds: Any, func: Callable[[Any], Any], tree: Any) -> Any:
    """The nest with a function of each leaf of these classes; the others stay."""
    return tree_map(lambda x: func(x) if isinstance(x, kinds) else x, tree)


def tree_all(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether it holds for all leaves."""
    return all(map(pred, tree_leaves(tree)))


def tree_any(pred: Callable[[Any], bool], tree: Any) -> bool:
    """Whether it holds for one of the leaves."""
    return any(map(pred, tree_leaves(tree)))


@dataclass(frozen=True)
class _Closed:
    """A part that is a leaf as a whole."""

    held: Any


def _closed(tree: Any, is_leaf: Callable[[Any], bool]) -> Any:
    if is_leaf(tree):
        return _Closed(tree)
    if isinstance(tree, dict):
        return type(tree)({key: _closed(x, is_leaf) for key, x in tree.items()})
    if isinstance(tree, (list, tuple)):
        return sequence_of(type(tree), [_closed(x, is_leaf) for x in tree])
    return tree


__getattr__ = suggesting(__name__)
