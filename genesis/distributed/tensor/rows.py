"""Rows of a tensor as ranks keep them: the chunks of collectives are equal, the last ones padded with zeros."""

from __future__ import annotations

from genesis.ir.node import Node
from genesis.ir.ops import movement


def chunk_rows(size: int, ranks: int) -> int:
    """Rows of a chunk, with its padding, of so many rows.

    >>> chunk_rows(5, 4)
    2
    """
    return -(-size // ranks)


def padded(node: Node, rows: int) -> Node:
    """The value with rows of zeros behind its own, `rows` in all."""
    missing = rows - node.shape[0]
    if not missing:
        return node
    rest = (0,) * (len(node.shape) - 1)
    return movement.pad(node, low=(0, *rest), high=(missing, *rest), value=0)


def rows_of(node: Node, first: int, last: int) -> Node:
    """The rows from `first` on, without `last`."""
    if (first, last) == (0, node.shape[0]):
        return node
    rest = node.shape[1:]
    return movement.slice(node, starts=(first, *(0 for _ in rest)), stops=(last, *rest), steps=(1,) * len(node.shape))
