"""Rows of a large product that nobody reads are not made, and gradients of 0 for them are not multiplied.

A model that predicts the next token has no use for the last logits of each sequence: `logits[:, :-1]`. Without them the
rows that are left are computed like those of any other loss (`chunk_loss.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops import contraction, movement, reduction
from genesis.ir.sym_int import hint


def leave_out_rows(graph: Graph, limit: int) -> Graph:
    """Slices of products of more bytes than the limit → products of slices; the same of their gradients.

        before: %1: f32[2,8,40] = linear(%x, %w)            after: %1: f32[2,7,6] = slice(%x, …)
                %2: f32[2,7,40] = slice(%1, …)                     %2: f32[2,7,40] = linear(%1, %w)
                %4: f32[2,8,40] = pad(%3, high=(0,1,0))            %4: f32[14,6] = matmul(rows of %3, %w)
                %5: f32[16,6] = matmul(rows of %4, %w)             %5: f32[16,6] = rows of pad(%4, …)
    """
    large = [node for node in graph.nodes if node.op in (movement.slice, movement.pad)
             and hint(max(node.type.nbytes, node.inputs[0].type.nbytes, key=hint)) > limit]
    if not large:
        return graph
    readers = Counter(graph.roots)
    for node in graph.nodes:
        readers.update(node.inputs)
    read_once = {node for node, count in readers.items() if count == 1}
    found = {node: _product_of_slice(node, read_once) for node in large if node.op is movement.slice}
    graph = rewrite(graph, found.get) if any(found.values()) else graph
    return rewrite(graph, lambda node: _of_kept_rows(node, limit))


def _product_of_slice(node: Node, read_once: set[Node]) -> Node | None:
    """A slice of a product's rows as the product of a slice, if nobody else reads the product."""
    given = node.inputs[0]
    if not _of_rows(node) or given not in read_once:
        return None
    if given.op is contraction.linear:
        x, *parameters = given.inputs
        return contraction.linear(_slice_like(x, node), *parameters)
    product = given.inputs[0] if given.op is movement.reshape else given
    if product.op is not contraction.matmul or product.type.ndim != 2 or (
            product is not given and (product not in read_once or product.type.shape[1] != given.type.shape[-1])):
        return None
    x, weight = product.inputs
    x = _slice_like(movement.reshape(x, shape=(*given.type.shape[:-1], x.type.shape[1])), node)
    return movement.reshape(contraction.matmul(_matrix(x), weight), shape=node.type.shape)


def _of_rows(node: Node) -> bool:
    """Is all of the last dimension read?"""
    return (node.type.ndim > 1 and (node["starts"][-1], node["stops"][-1], node["steps"][-1]) ==
            (0, node.inputs[0].type.shape[-1], 1))


def _slice_like(x: Node, node: Node) -> Node:
    """The rows that a slice reads, of x, which has another last dimension."""
    return movement.slice(x, starts=(*node["starts"][:-1], 0), stops=(*node["stops"][:-1], x.type.shape[-1]),
                          steps=(*node["steps"][:-1], 1))


def _matrix(x: Node) -> Node:
    """All rows of x."""
    return movement.reshape(x, shape=(prod(x.type.shape[:-1]), x.type.shape[-1]))


def _of_kept_rows(node: Node, limit: int) -> Node | None:
    """A product or sum of a padded matrix, without the rows of zeros."""
    if node.op is reduction.sum:
        padded = _padded(node.inputs[0], limit) if tuple(node["axes"]) == (0,) else None
        return None if padded is None else reduction.sum(_matrix(padded.inputs[0]), **node.attributes)
    if node.op is not contraction.matmul or node.type.ndim != 2:
        return None
    a, b = node.inputs
    padded = _padded(a, limit)
    if padded is not None:
        product = contraction.matmul(_matrix(padded.inputs[0]), b)
        columns = product.type.shape[1]
        rows = movement.reshape(product, shape=(*padded.inputs[0].type.shape[:-1], columns))
        return _matrix(movement.pad(rows, low=padded["low"], high=padded["high"], value=0))
    padded = _padded(_turned(a), limit)
    if padded is not None:
        return contraction.matmul(movement.permute(_matrix(padded.inputs[0]), axes=(1, 0)), _kept(b, padded))
    padded = _padded(b, limit)
    if padded is not None:
        kept = movement.permute(_kept(_turned(a), padded), axes=(1, 0))
        return contraction.matmul(kept, _matrix(padded.inputs[0]))
    return None


def _turned(x: Node) -> Node:
    """The transposed matrix."""
    return x.inputs[0] if x.op is movement.permute else movement.permute(x, axes=(1, 0))


def _padded(x: Node, limit: int) -> Node | None:
    """The large value with rows of zeros that a matrix shows."""
    pad = x.inputs[0] if x.op is movement.reshape else x
    if pad.op is not movement.pad or hint(pad.type.nbytes) <= limit or pad["value"] or pad.type.ndim < 2:
        return None
    same = x.type.ndim == 2 and x.type.shape[-1] == pad.type.shape[-1]
    return pad if same and not pad["low"][-1] and not pad["high"][-1] else None


def _kept(x: Node, padded: Node) -> Node:
    """The rows that are no padding, of a matrix with a row for each of the padded value's."""
    shape: Sequence[int] = padded.type.shape[:-1]
    low, size = padded["low"][:-1], padded.inputs[0].type.shape[:-1]
    rows = movement.reshape(x, shape=(*shape, x.type.shape[1]))
    stops = tuple(start + count for start, count in zip(low, size, strict=True))
    return _matrix(movement.slice(rows, starts=(*low, 0), stops=(*stops, x.type.shape[1]), steps=(1,) * rows.type.ndim))
