"""index_add, index_copy, scatter_add and scatter by ops that have one result whatever a backend runs at once."""

from __future__ import annotations

from math import prod

from genesis.ir.node import Node
from genesis.ir.ops.line_sums import summed_in_parts
from genesis.ir.ops.movement import inverse, permute, reshape
from genesis.ir.ops.pointwise import cast
from genesis.ir.ops.row_writes import row_put, rows_added, rows_summed
from genesis.ir.ops.segments import in_lines, integer_for, reshaped, sorted_index, write_in_order, write_segments
from genesis.ir.ops.sum_forms import any_order


def rows_written(base: Node, index: Node, source: Node, axis: int, add: bool) -> Node:
    """index_add, or index_copy, by sorting the index."""
    shape, count = base.type.shape, index.type.numel
    if not count or not base.type.numel:
        return base
    outer, rows, inner = prod(shape[:axis]), shape[axis], prod(shape[axis + 1:])
    if add:
        found = rows_summed(reshaped(base, (outer, rows, inner)), reshape(index, shape=(count,)),
                            reshaped(source, (outer, count, inner)))
        return reshape(found, shape=shape)
    if count.__class__ is int and count == 1 and base.op.name != "const":
        found = row_put(reshape(base, shape=(outer, rows, inner)), reshape(source, shape=(outer, 1, inner)),
                        reshape(index, shape=(1,)))
        return reshape(found, shape=shape)
    found = write_in_order(reshaped(base, (outer, rows, inner)), reshape(index, shape=(count,)),
                           reshaped(source, (outer, count, inner)), add=False)
    return reshape(found, shape=shape)


def elements_written(base: Node, index: Node, source: Node, axis: int, add: bool) -> Node:
    """scatter_add, or scatter, by sorting each line of the index.

    The lines one after another are sorted too, as positions in the flat base: so this is `rows_written` of rows of one
    element.
    """
    rank, shape, given, count = base.type.ndim, base.type.shape, index.type.shape, index.type.numel
    if not count or not base.type.numel:
        return base
    beside = (*shape[:axis], *shape[axis + 1:]) == (*given[:axis], *given[axis + 1:])
    if add and beside and not any_order(base.type.dtype):
        outer, inner = prod(shape[:axis]), ((prod(shape[axis + 1:]),) if axis != rank - 1 else ())
        found = summed_in_parts(*(reshaped(x, (outer, x.type.shape[axis], *inner)) for x in (base, index, source)))
        return reshape(found, shape=shape)
    if axis != rank - 1:
        to_end = (*(i for i in range(rank) if i != axis), axis)
        moved = [permute(x, axes=to_end) if x.op.name != "const"
                 else reshaped(x, tuple(x.type.shape[i] for i in to_end)) for x in (base, index, source)]
        found = elements_written(moved[0], moved[1], moved[2], rank - 1, add)
        return permute(found, axes=inverse(to_end))
    whole, flat_source = reshaped(base, (1, base.type.numel, 1)), reshaped(source, (1, count, 1))
    if add and any_order(base.type.dtype):
        ids = reshape(in_lines(cast(index, dtype=integer_for(base.type.numel)), shape), shape=(count,))
        return reshape(rows_added(whole, flat_source, ids), shape=shape)
    ids, order = sorted_index(cast(index, dtype=integer_for(shape[-1])), rank - 1)
    ids = in_lines(cast(ids, dtype=integer_for(base.type.numel)), shape)
    order = in_lines(cast(order, dtype=integer_for(count)), given)
    found = write_segments(whole, flat_source, reshape(ids, shape=(count,)), reshape(order, shape=(count,)), add)
    return reshape(found, shape=shape)
