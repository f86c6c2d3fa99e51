"""How a reduction is split, and what of it is left to reduce when its splits are."""

from __future__ import annotations

from dataclasses import dataclass

from genesis.ir.node import Node
from genesis.ir.ops.movement import reshape


@dataclass(frozen=True)
class Apart:
    """Neighbouring rows that are columns of their own in a split (`odd_columns.py`).

    Attributes:
        axis: of the rows, which is reduced.
        rows: how many; they divide the axis.
    """

    axis: int
    rows: int


@dataclass(frozen=True)
class Cut:
    """How a reduction is split.

    Attributes:
        splits, multiple, axes: `reduce_splits`' own, of values as `seen` shows them. The other axes of the reduction
            are reduced with the splits.
        apart: the rows that are not reduced before.
    """

    splits: int
    multiple: int
    axes: tuple[int, ...]
    apart: Apart | None = None

    def seen(self, x: Node) -> Node:
        """The values that are reduced, with an axis more where rows stay apart."""
        if self.apart is None:
            return x
        axis, rows = self.apart.axis, self.apart.rows
        return reshape(x, shape=(*x.shape[:axis], x.shape[axis] // rows, rows, *x.shape[axis + 1:]))

    def axes_left(self, node: Node) -> tuple[int, ...]:
        """The axes of the parts that are still to be reduced."""
        ndim, reduced = node.inputs[0].type.ndim, set(node["axes"])
        if self.apart is not None:
            at = self.apart.axis
            ndim, reduced = ndim + 1, {axis + (axis > at) for axis in reduced} | {at + 1}
        kept = [axis for axis in range(ndim) if axis not in self.axes]
        return (0, *(1 + place for place, axis in enumerate(kept) if axis in reduced))
