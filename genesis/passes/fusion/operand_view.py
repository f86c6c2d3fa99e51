"""A matrix operand as a view of memory: transposes, heads and slices that a matmul can read through."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import prod

from genesis.ir.node import Node
from genesis.ir.ops import movement, recompute
from genesis.passes.fusion.index_map import Expr, atoms, flatten, unflatten, variable
from genesis.passes.fusion.views import pieces, stored_as
from genesis.passes.structural_memo import memoized


@dataclass(frozen=True)
class OperandView:
    """Where the elements of a (batch…, rows, columns) operand lie in the memory of `base`.

    The address is batch + row + column: `batch` depends on the variable `b` (the flat batch), `row`
    on `i`, `column` on `j`.
    """

    base: Node
    batch: Expr
    row: Expr
    column: Expr


ONE_SOURCE = frozenset({movement.reshape, movement.permute, movement.expand, movement.slice, movement.flip,
                        recompute.recompute})
"""Movement ops whose elements all come from their first operand."""


def operand_view(node: Node, inputs: Collection[Node] = ()) -> OperandView:
    """The longest chain of views that leaves the address a sum of three parts.

    `inputs`: values in memory. The chain ends at the first of them from which the address is such a sum, and may lead
    over another one only where it is not.
    """
    chain = [node]
    while chain[-1].op in ONE_SOURCE:
        chain.append(chain[-1].inputs[0])
    stored = {stored_as(x) for x in inputs}
    stops = frozenset(place for place, x in enumerate(chain) if stored and stored_as(x) in stored)
    if chain[-1].op.kind == "movement":
        return _operand_view(node, {chain[place] for place in stops})
    key = ("operand", *((x.op, x.attrs, x.type) for x in chain[:-1]), chain[-1].type, stops)

    def answer() -> tuple[int, Expr, Expr, Expr]:
        view = _operand_view(node, {chain[place] for place in stops})
        return chain.index(view.base), view.batch, view.row, view.column

    place, *parts = memoized(key, answer)
    return OperandView(chain[place], *parts)


def _operand_view(node: Node, stops: Collection[Node]) -> OperandView:
    *batches, rows, columns = node.shape
    point = (*unflatten(variable("b", prod(batches)), batches), variable("i", rows), variable("j", columns))
    found = separated(node, flatten(point, node.shape))
    assert found is not None
    base, at = node, flatten(point, node.shape)
    while base.op.kind == "movement" and not (base is found.base and base in stops):
        if base.op is movement.reshape:  # an element keeps its place: in which row of the operand it lies is not asked
            base, point = base.inputs[0], ()
        else:
            parts = pieces(base, point or unflatten(at, base.shape))
            if len(parts) != 1 or parts[0].operand is None:
                break
            base, point = parts[0].operand, parts[0].point
            at = flatten(point, base.shape)
        better = separated(base, at)
        if better is not None:
            found = better
    return found


def separated(base: Node, address: Expr) -> OperandView | None:
    """The address in three parts, None when a term mixes two variables."""
    terms: dict[str, list] = {"b": [], "i": [], "j": []}
    for atom, k in address.terms:
        names = {inner.name for inner in atoms((Expr(0, ((atom, 1),)),))}
        if len(names) != 1:
            return None
        terms[names.pop()].append((atom, k))
    return OperandView(base, Expr(address.constant, tuple(terms["b"])), Expr(0, tuple(terms["i"])),
                       Expr(0, tuple(terms["j"])))
