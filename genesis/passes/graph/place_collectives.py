"""Changes of layout: a collective wherever a tensor has to lie otherwise over the processes than it does.

    from            to          becomes
    partial         replicate   all_reduce
    partial         shard       reduce_scatter, along the first dimension
    shard           replicate   all_gather, along the first dimension
    shard           shard       all_gather, of which a part is kept

Parts that are not equal are padded to the largest: collectives move equal parts.
"""

from __future__ import annotations

from genesis.ir.graph import Graph, rewrite_nodes, substitute
from genesis.ir.node import Node, located
from genesis.ir.ops import collectives, control, movement


def place_collectives(graph: Graph) -> Graph:
    """A collective, and what brings its dimension to the front, for each change of layout.

        before: %5 = redistribute(%4, %order, before="partial sum", after="shard 1")
        after:  %5 = permute(%4, (1, 0))   %6 = reduce_scatter(%5, %order)   %7 = permute(item(%6, 0), (1, 0))
    """
    if not any(node.op is collectives.redistribute for node in graph.nodes):
        return graph
    results: dict[Node, tuple[Node, Node]] = {}

    def rule(node: Node) -> Node | None:
        if node.op is collectives.redistribute:
            with located(node.source):
                results[node] = _relaid(node)
        elif node.op is control.item and node.inputs[0] in results:
            return results[node.inputs[0]][node["index"]]
        return None

    return substitute(graph, rewrite_nodes(graph.nodes, rule))


def _relaid(node: Node) -> tuple[Node, Node]:
    """(the tensor as it lies afterwards, the communicator's next order)."""
    (x, order), world, place = node.inputs, node["world"], node["place"]
    name, before, after = node["communicator"], node["before"], node["after"]
    own, wanted = collectives.sharded_dim(before), collectives.sharded_dim(after)
    if own is not None:
        front = _padded(_to_front(x, own), -(-node["size"] // world))
        call = collectives.all_gather(front, order, communicator=name, world=world)
        whole = _from_front(_rows(control.item(call, index=0), 0, node["size"]), own)
        return whole if wanted is None else _own(whole, wanted, world, place), control.item(call, index=1)
    reduce = before.removeprefix("partial ")
    if wanted is None:
        call = collectives.all_reduce(x, order, communicator=name, reduce=reduce)
        return control.item(call, index=0), control.item(call, index=1)
    size = x.type.shape[wanted]
    front = _padded(_to_front(x, wanted), -(-size // world) * world)
    call = collectives.reduce_scatter(front, order, communicator=name, world=world, reduce=reduce)
    first, end = collectives.part_of(size, world, place)
    return _from_front(_rows(control.item(call, index=0), 0, end - first), wanted), control.item(call, index=1)


def _to_front(x: Node, dim: int) -> Node:
    """The tensor with this dimension as the first."""
    if dim == 0:
        return x
    return movement.permute(x, axes=(dim, *(at for at in range(x.type.ndim) if at != dim)))


def _from_front(x: Node, dim: int) -> Node:
    """The tensor with its first dimension at this place."""
    if dim == 0:
        return x
    return movement.permute(x, axes=(*range(1, dim + 1), 0, *range(dim + 1, x.type.ndim)))


def _padded(x: Node, rows: int) -> Node:
    """The tensor with zeros behind, so that it has so many rows."""
    missing = rows - x.type.shape[0]
    if not missing:
        return x
    none = (0,) * (x.type.ndim - 1)
    return movement.pad(x, low=(0, *none), high=(missing, *none))


def _rows(x: Node, first: int, end: int) -> Node:
    """These rows of a tensor."""
    rest = x.type.shape[1:]
    if (first, end) == (0, x.type.shape[0]):
        return x
    return movement.slice(x, starts=(first, *(0 for _ in rest)), stops=(end, *rest), steps=(1,) * x.type.ndim)


def _own(x: Node, dim: int, world: int, place: int) -> Node:
    """This process' part of a whole tensor."""
    return _from_front(_rows(_to_front(x, dim), *collectives.part_of(x.type.shape[dim], world, place)), dim)
