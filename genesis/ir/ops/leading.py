"""Ops with one leading dimension more: from the node of one row the node of all rows.

What rolls up equal rows of a program (`passes/graph/reroll.py`) and what makes a batch of an example
(`func/batch_rules.py`) share these rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from genesis.ir.node import Node, Op
from genesis.ir.ops import movement

LeadingRule = Callable[[Node, Sequence[Node], int], Node]
"""(a node of one row, its operands for all rows, how many) → the node for all rows, which are dimension 0."""


def deeper(node: Node, operands: Sequence[Node], rows: int) -> Node:
    """Ops whose axes count from the front."""
    changed = {name: tuple([axis + 1 for axis in value]) if name == "axes" else value + 1 if name == "axis" else value
               for name, value in node.attributes.items()}
    return node.op(*operands, **changed)


def _reshape(node: Node, operands: Sequence[Node], rows: int) -> Node:
    return movement.reshape(operands[0], shape=(rows, *node.type.shape))


def _permute(node: Node, operands: Sequence[Node], rows: int) -> Node:
    return movement.permute(operands[0], axes=(0, *(axis + 1 for axis in node["axes"])))


def _expand(node: Node, operands: Sequence[Node], rows: int) -> Node:
    given = node.inputs[0].type.shape
    missing = node.type.ndim - len(given)
    x = movement.reshape(operands[0], shape=(rows, *(1,) * missing, *given)) if missing else operands[0]
    return movement.expand(x, shape=(rows, *node.type.shape))


def _region(node: Node, operands: Sequence[Node], rows: int) -> Node:
    first = {"starts": 0, "stops": rows, "steps": 1, "low": 0, "high": 0}
    changed = {name: (first[name], *value) if name in first else value for name, value in node.attributes.items()}
    return node.op(*operands, **changed)


LEADING: Final[dict[Op, LeadingRule]] = {
    movement.reshape: _reshape, movement.permute: _permute, movement.expand: _expand, movement.slice: _region,
    movement.pad: _region, movement.assign: _region, movement.flip: deeper, movement.concat: deeper,
}
"""The rules of ops that move elements."""
