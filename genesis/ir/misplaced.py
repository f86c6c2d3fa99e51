"""The index that was out of bounds, found after a program on the CPU failed: its op, value and the user's line.

A call of torch's that finds an index outside says neither which op asked nor where it was recorded, and a plan is
shared by equal programs of other lines. So nothing is checked as long as all goes well; when a run failed, the nodes
that take an index are looked at again, operands before users, until one has an index outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from genesis.ir.errors import describe
from genesis.ir.node import Node
from genesis.ir.ops.checked import TAKING_AN_INDEX, Range
from genesis.ir.ops.row_number import row_number
from genesis.ir.ops.scatter_reduce import scatter_reduce

if TYPE_CHECKING:
    from numpy import ndarray


class IndexOutOfRange(IndexError, RuntimeError):
    """An index, class or id that is outside of what it counts. torch raises the one error or the other, by the op."""


def find_misplaced(order: Iterable[Node], value_of: Callable[[Node], ndarray]) -> tuple[Node, IndexOutOfRange] | None:
    """The first of these nodes, operands before users, whose index is outside, and what to say of it.

    `value_of` gives the value of an index as a numpy array.
    """
    for node in order:
        allowed = _allowed(node)
        if allowed is None:
            continue
        index = node.inputs[0 if node.op is row_number else 1]
        values = value_of(index)
        least = -allowed.size if allowed.negative else 0
        outside = (values < least) | (values >= allowed.size)
        if allowed.ignored is not None:
            outside &= values != allowed.ignored
        if outside.any():
            return node, IndexOutOfRange(_message(node, index, int(values[outside].flat[0]), allowed, least))
    return None


def _allowed(node: Node) -> Range | None:
    """The range that the node's index must be in; None if it takes no index."""
    if node.op is row_number:
        return Range(node["size"], node["dim"], negative=True)
    if node.op is scatter_reduce:
        return Range(node.inputs[0].type.shape[node["axis"]], node["axis"])
    rule = TAKING_AN_INDEX.get(node.op)
    return None if rule is None else rule(node.inputs, node.attributes)


def _message(node: Node, index: Node, value: int, allowed: Range, least: int) -> str:
    name = "indexing" if node.op is row_number else node.op.name
    what, where = ("class", "target") if "ignore_index" in node.op.attrs else ("index", "index")
    lines = [f"{name}: {what} {value} is out of bounds for dimension {allowed.dim} with size {allowed.size}",
             f"  {where}: {describe(index)}"]
    if node.op is not row_number:
        lines.append(f"  input: {describe(node.inputs[0])}")
    source = node.source
    if source is not None and source.filename and not source.filename.startswith("<"):
        lines.append(f"  at {source.filename}:{source.line}: {source.text}")
    passes = "" if allowed.ignored is None else f", or {allowed.ignored}, which is ignored"
    lines.append(f"  try: {what} numbers from {least} to {allowed.size - 1}{passes}" if allowed.size else
                 "  try: no index: the dimension is empty")
    return "\n".join(lines)
