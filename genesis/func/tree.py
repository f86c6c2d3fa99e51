"""Nested tuples, lists and dictionaries as lists of what is in them, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from genesis.ir.sequences import sequence_of


def flatten(tree: Any) -> tuple[list[Any], Callable[[list[Any]], Any]]:
    """The values in a nest, in order, and the function that builds the same nest of other values.

    >>> found, build = flatten((1, {"a": [2, 3]}))
    >>> found, build([4, 5, 6])
    ([1, 2, 3], (4, {'a': [5, 6]}))
    """
    parts = _parts(tree)
    if parts is None:
        return [tree], lambda values: values[0]
    flat = [flatten(part) for part in parts]

    def build(values: list[Any]) -> Any:
        rest = iter(values)
        return _like(tree, [make([next(rest) for _ in found]) for found, make in flat])
    return [x for found, _ in flat for x in found], build


def spread(prefix: Any, tree: Any) -> list[Any] | None:
    """Each value of a nest → the value of another nest of the same form or of its outer levels; None if neither fits.

    >>> spread((0, None), (1, {"a": [2, 3]}))
    [0, None, None]
    >>> spread((0, 1, 2), (1, 2)) is None
    True
    """
    parts, says = _parts(tree), _parts(prefix)
    if says is None:
        return [prefix] * len(flatten(tree)[0])
    if parts is None or len(parts) != len(says) or isinstance(tree, dict) != isinstance(prefix, dict):
        return None
    if isinstance(tree, dict):
        if prefix.keys() != tree.keys():
            return None
        says = [prefix[key] for key in tree]
    found = [spread(a, b) for a, b in zip(says, parts, strict=True)]
    return None if any(x is None for x in found) else [y for x in found for y in x or ()]


def _parts(tree: Any) -> list[Any] | None:
    if isinstance(tree, dict):
        return list(tree.values())
    return list(tree) if isinstance(tree, (tuple, list)) else None


def _like(tree: Any, parts: list[Any]) -> Any:
    if isinstance(tree, dict):
        return type(tree)(zip(tree, parts, strict=True))
    return sequence_of(type(tree), parts)
