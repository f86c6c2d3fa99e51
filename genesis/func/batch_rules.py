"""Batch rules: what vmap makes of each op, on operands that have a leading batch dimension.

A rule is (batch, node, its operands) → the node for all examples, or a tuple of nodes for an op with several results.
`batch.batched(x)` is an operand with the batch in front, repeated if all examples share it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from genesis.ir.node import Node, Op
from genesis.ir.ops import (
    contraction,
    control,
    convolution,
    indexing,
    leaves,
    movement,
    ranks,
    recompute,
    searching,
    sorting,
)
from genesis.ir.ops.indexing import take
from genesis.ir.ops.leading import LEADING, LeadingRule, deeper
from genesis.ir.ops.pointwise import cast
from genesis.ir.types import int64

if TYPE_CHECKING:
    from genesis.func.batching import Batch

BatchRule = Callable[["Batch", Node, list[Node]], Any]


def _pointwise(batch: Batch, node: Node, operands: list[Node]) -> Node:
    return node.op(*(x if x.type.weak else batch.batched(x) for x in operands), **node.attributes)


def _by(rule: LeadingRule) -> BatchRule:
    """A rule that needs of the batch only its size."""
    return lambda batch, node, operands: rule(node, [batch.batched(x) for x in operands], batch.size)


_deeper = _by(deeper)


def _same(batch: Batch, node: Node, operands: list[Node]) -> Node:
    """Ops that take any leading dimensions."""
    return node.op(*map(batch.batched, operands), **node.attributes)


# Rows of a table, read and written

def _take(batch: Batch, node: Node, operands: list[Node]) -> Node:
    """Rows of each example's own table, of one table, or with one index."""
    table, index = operands
    axis = node["axis"]
    if not batch.is_batched(index):
        return take(batch.batched(table), index, axis=axis + 1)
    if not batch.is_batched(table):
        return _moved(take(table, batch.batched(index), axis=axis), axis, 0)
    found = take(_rows(batch, table, axis), _places(batch, index, table.type.shape[axis]), axis=0)
    k = index.type.ndim  # (batch, *index, *the table's other axes)
    order = (0, *range(k + 1, k + 1 + axis), *range(1, k + 1), *range(k + 1 + axis, found.type.ndim))
    return movement.permute(found, axes=order)


def _written(batch: Batch, node: Node, operands: list[Node]) -> Node:
    """Rows of each example's own base: with one index, or all bases as one, with indices of their own."""
    base, index, source = operands
    axis, k = node["axis"], index.type.ndim
    if not batch.is_batched(index):
        return node.op(batch.batched(base), index, batch.batched(source), axis=axis + 1)
    rows = batch.batched(source)  # (batch, *before the axis, *index, *behind it)
    order = (0, *range(axis + 1, axis + 1 + k), *range(1, axis + 1), *range(axis + 1 + k, rows.type.ndim))
    found = node.op(_rows(batch, base, axis), _places(batch, index, base.type.shape[axis]),
                    movement.permute(rows, axes=order), axis=0)
    front = (batch.size, base.type.shape[axis], *(n for i, n in enumerate(base.type.shape) if i != axis))
    return _moved(movement.reshape(found, shape=front), 1, axis + 1)


def _rows(batch: Batch, table: Node, axis: int) -> Node:
    """The tables of all examples below each other: (batch · rows, *the other axes)."""
    front = _moved(batch.batched(table), axis + 1, 1)
    return movement.reshape(front, shape=(batch.size * front.type.shape[1], *front.type.shape[2:]))


def _places(batch: Batch, index: Node, count: int) -> Node:
    """The places of an example's rows in `_rows`, given its index into `count` rows."""
    own = cast(batch.batched(index), dtype=int64)
    return own + leaves.iota(shape=own.type.shape, axis=0, dtype=int64, device=own.type.device) * count


def _moved(x: Node, source: int, target: int) -> Node:
    """x with an axis at another place."""
    order = [i for i in range(x.type.ndim) if i != source]
    order.insert(target, source)
    return movement.permute(x, axes=tuple(order))


# Convolutions: the batch is more images, or more groups of channels

def _convolution(batch: Batch, node: Node, operands: list[Node]) -> Node:
    """Convolve: with one weight the batch is more images, with a weight for each example more groups of channels."""
    x, weight, *bias = operands
    if batch.is_batched(weight):
        how = {**node.attributes, "groups": node["groups"] * batch.size}
        y = node.op(_channels(batch, x), _images(batch, weight), **how)
        split = movement.reshape(y, shape=(y.type.shape[0], batch.size, *node.type.shape[1:]))
        y = _moved(split, 1, 0)
    else:
        own = [b for b in bias if not batch.is_batched(b)]
        y = node.op(_images(batch, x), weight, *own, **node.attributes)
        y = movement.reshape(y, shape=(batch.size, *node.type.shape))
        bias = [b for b in bias if batch.is_batched(b)]
    return y + movement.reshape(batch.batched(bias[0]), shape=(
        batch.size, 1, bias[0].type.numel, *(1,) * (y.type.ndim - 3))) if bias else y


def _convolution_weight(batch: Batch, node: Node, operands: list[Node]) -> Node:
    """The examples' channels are groups; their sums over images stay apart."""
    g, x = operands
    how = {**node.attributes, "groups": node["groups"] * batch.size}
    found = node.op(_channels(batch, g), _channels(batch, x), **how)
    return movement.reshape(found, shape=(batch.size, *node.type.shape))


def _images(batch: Batch, x: Node) -> Node:
    """(batch · images, channels, ...)"""
    whole = batch.batched(x)
    return movement.reshape(whole, shape=(whole.type.shape[0] * whole.type.shape[1], *whole.type.shape[2:]))


def _channels(batch: Batch, x: Node) -> Node:
    """(images, batch · channels, ...)"""
    front = _moved(batch.batched(x), 0, 1)
    n, size, channels, *places = front.type.shape
    return movement.reshape(front, shape=(n, size * channels, *places))


# Markers, and ops with several results

def _item(batch: Batch, node: Node, operands: list[Node]) -> Node:
    return control.item(batch.several(operands[0]), index=node["index"])


def _marker(batch: Batch, node: Node, operands: list[Node]) -> Node:
    return batch.batched(operands[0])


def _stopped(batch: Batch, node: Node, operands: list[Node]) -> Node:
    return control.stop_gradient(batch.batched(operands[0]))


def _results(batch: Batch, node: Node, operands: list[Node]) -> tuple[Node, ...]:
    return tuple(operands)


def _leading_rows(batch: Batch, node: Node, operands: list[Node]) -> Node:
    """A search: one row for all values, or one for each line of them."""
    rows, values = operands
    if rows.type.ndim == 1 and not batch.is_batched(rows):
        return node.op(rows, batch.batched(values), **node.attributes)
    if rows.type.ndim > 1:
        return _same(batch, node, operands)
    lines = movement.reshape(batch.batched(values), shape=(batch.size, values.type.numel))
    found = node.op(batch.batched(rows), lines, **node.attributes)
    return movement.reshape(found, shape=(batch.size, *values.type.shape))


BY_KIND: dict[str, BatchRule] = {
    "pointwise": _pointwise, "reduction": _deeper, "scan": _deeper, "linalg": _same,
}

RULES: dict[Op, BatchRule] = {
    **{op: _by(rule) for op, rule in LEADING.items()},
    contraction.matmul: _same, indexing.gather: _deeper, indexing.scatter: _deeper, indexing.scatter_add: _deeper,
    indexing.take: _take, indexing.index_add: _written, indexing.index_copy: _written,
    searching.searchsorted: _leading_rows, sorting.sort: _deeper, sorting.topk: _deeper, sorting.unsort: _deeper,
    ranks.kthvalue: _deeper, ranks.nanargmedian: _deeper, ranks.argmedian: _deeper,
    convolution.convolution: _convolution, convolution.convolution_input: _convolution,
    convolution.convolution_weight: _convolution_weight, control.item: _item, control.watch: _marker,
    control.alias: _marker,
    control.released: _marker, control.stop_gradient: _stopped, control.overwritten: _same, recompute.enter: _marker,
    recompute.leave: _results,
}
"""Rules of single ops, which go before those in `BY_KIND`."""
