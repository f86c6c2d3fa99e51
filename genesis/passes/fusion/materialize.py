"""Which values a kernel may compute again wherever it needs them, and which must be in memory.

An *inlined* node costs less to compute than to load: numbers, constants, views, casts, random bits. It belongs to every
group that reads it. Every other node is *materialized*: exactly one group computes it. A cheap node is materialized
too where it must be in memory: as an output of the program, or as an operand of a kernel that cannot follow the view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import control, leaves, movement, pointwise
from genesis.ir.ops.block_rows import words_by_block
from genesis.ir.ops.exact_sums import exact_sums
from genesis.ir.ops.indexing import gather, take
from genesis.ir.ops.line_sums import lines_summed
from genesis.ir.ops.recompute import inputs_read, recompute
from genesis.ir.ops.row_number import in_range
from genesis.ir.ops.row_takes import taken_in_rows
from genesis.ir.ops.row_writes import row_put, rows_summed
from genesis.ir.sym_int import hint
from genesis.passes.fusion.operand_view import operand_view
from genesis.passes.fusion.turned_rows import turned_rows
from genesis.passes.fusion.views import stored_as
from genesis.passes.gpu import Gpu

INLINED_WEIGHT = 40
"""Weighted ops up to which a value made of leaves alone is inlined: random bits and a few ops on them."""

LONGEST_CHAIN = 32
"""The most movement nodes in a row that are inlined: composing their index maps costs more than linearly in the
chain's length, and a loop that writes a thousand rows one after another is such a chain."""

def maker(node: Node) -> Node:
    """The node whose kernel computes a value: for one result of several, the op that gives them all."""
    return node.inputs[0] if node.op is control.item else node


def weight(node: Node) -> int:
    """What a node costs in a kernel."""
    if node.op.kind in ("movement", "leaf") or node.type.weak:
        return 0
    return node.op.weight


@dataclass(frozen=True)
class MemoryValues:
    """The materialized nodes of a graph.

    Attributes:
        materialized: in topological order.
        reads: for each of them those and the inputs that it reads, through inlined nodes.
        name: for each of them the node that its memory is known by: itself, or an output of the
            program that is a reshape of it.
        waits: for one that reads through a `recompute`: those that are computed before it.

    An op with several results is not among them: its `item` nodes are, side by side.
    """

    materialized: tuple[Node, ...]
    reads: dict[Node, tuple[Node, ...]]
    name: dict[Node, Node]
    waits: dict[Node, tuple[Node, ...]]


def memory_values(graph: Graph, gpu: Gpu | None = None) -> MemoryValues:
    """Tell the materialized nodes of a graph from its inlined nodes.

    Args:
        gpu: for which values that its few programs would read across are copied first; None for none.
    """
    inlined = _inlined_nodes(graph)
    name = _asked_for(graph, inlined, gpu)
    materialized = _materialized(graph, inlined)
    below: dict[Node, tuple[Node, ...]] = {}
    reads: dict[Node, tuple[Node, ...]] = {}
    for node in graph.nodes:
        found = {} if node.op.kind == "leaf" else dict.fromkeys(p for x in inputs_read(node) for p in below[x])
        if node in inlined or type(node.type) is tuple:
            below[node] = tuple(found)
        else:
            reads[node], below[node] = tuple(found), (node,)
    return MemoryValues(materialized, {x: reads[x] for x in materialized}, {x: name.get(x, x) for x in materialized},
                        _waits(graph, reads, below))


def _waits(graph: Graph, reads: dict[Node, tuple[Node, ...]],
           below: dict[Node, tuple[Node, ...]]) -> dict[Node, tuple[Node, ...]]:
    """The nodes that each materialized node behind a `recompute` waits for."""
    if not any(node.op is recompute for node in graph.nodes):
        return {}
    behind: dict[Node, dict[Node, None]] = {}
    found: dict[Node, tuple[Node, ...]] = {}
    for node in graph.nodes:
        waiting = dict.fromkeys(p for x in inputs_read(node) for p in behind.get(x, ()))
        if node.op is recompute:
            waiting |= dict.fromkeys(x for x in below[node.inputs[1]] if x.op is not leaves.input)
        if not waiting:
            continue
        if node in reads:
            found[node] = tuple(x for x in waiting if x not in reads[node])
        else:
            behind[node] = waiting
    return found


def _materialized(graph: Graph, inlined: set[Node]) -> tuple[Node, ...]:
    """Nodes that are not inlined; the results of one op follow each other, where the op stands."""
    items: dict[Node, list[Node]] = {}
    for node in graph.nodes:
        if node.op is control.item:
            items.setdefault(node.inputs[0], []).append(node)
    found: list[Node] = []
    for node in graph.nodes:
        if type(node.type) is tuple:
            found += items.get(node, ())
        elif node not in inlined and node.op not in (leaves.input, control.item):
            found.append(node)
    return tuple(found)


def _inlined_nodes(graph: Graph) -> set[Node]:
    """Nodes that may be computed wherever they are read."""
    inlined: set[Node] = set()
    checked = _checked_by_readers(graph) | _before_scans(graph)
    leafy: dict[Node, int] = {}  # nodes made of leaves alone, with what it costs to make them
    length: dict[Node, int] = {}  # movement in a row up to this inlined node
    for node in graph.nodes:
        if node.op is leaves.input:
            continue
        read = inputs_read(node)
        row = 1 + max((length.get(x, 0) for x in read), default=0) if node.op.kind == "movement" else 0
        if row > LONGEST_CHAIN:
            continue
        if node.op.kind == "leaf" or (all(x in leafy for x in read) and node.op.kind in (
                "pointwise", "movement", "random")):
            leafy[node] = weight(node) + sum(leafy[x] for x in set(read))
            if node.type.weak or leafy[node] <= INLINED_WEIGHT:
                inlined.add(node)
            else:
                del leafy[node]
        elif node.op.kind == "movement" or node in checked or _is_cheap(node, inlined):
            inlined.add(node)
        if node in inlined:
            length[node] = row or max((length.get(x, 0) for x in read), default=0)
    return inlined


def _is_cheap(node: Node, inlined: set[Node]) -> bool:
    return (node.op is pointwise.cast and _cheap_cast(node)) or (node.op is take and _takes_neighbours(node, inlined))


def _takes_neighbours(node: Node, inlined: set[Node]) -> bool:
    """Whether what is taken are windows of an input, one beside the other: as many elements as it has, at places that
    coordinates say. They are read where they lie, as by a view (H200: max_pool2d of 2 by 2 of 9.9 M bfloat16 copied
    them first, and took 41 µs with its gradient, torch.compile 27)."""
    x, index = node.inputs
    while x.op is take and x in inlined:
        x = x.inputs[0]
    return (x.op is leaves.input and index in inlined and index.op.kind == "pointwise"
            and hint(node.type.numel) <= hint(x.type.numel))


CHECKED_TWICE: Final = 1 << 23
"""Elements that may be read at an index that each of them checks: 8 more instructions each take 1.1 µs of an H200 for
so many (reckoned), and a kernel that checks the index before takes 2.3."""

_CHECKING: Final = {lines_summed: 1, exact_sums: 1, rows_summed: 1, taken_in_rows: 0, words_by_block: 0}
"""Ops that check an index as they read it, and which operand it is."""


def _checked_by_readers(graph: Graph) -> set[Node]:
    """Checks of an index that its readers make: sums at places that are data, and the loops that read rows there.

    To read and write the index once more for the check alone takes a third of the time of the sums. Loops make it also
    where there are no sums, if they are short: the check's launch would take as long.
    """
    found = [node for node in graph.nodes if node.op is in_range]
    if not found:
        return set()
    refused = set(graph.roots)
    summed: set[Node] = set()
    times = dict.fromkeys(found, 0)  # that an index, or what is shown of it, is read
    for node in reversed(graph.nodes):
        for position, x in enumerate(node.inputs):
            if position == _CHECKING.get(node.op):
                summed.add(x)
            elif position == 1 and node.op in (take, gather):
                times[x] = times.get(x, 0) + node.type.numel
            elif node.op.kind == "movement" and (node.type.numel == x.type.numel or node in summed):
                times[x] = times.get(x, 0) + times.get(node, 0)
                for those in (summed, refused):
                    if node in those:
                        those.add(x)
            else:
                refused.add(x)
    return {node for node in found if node not in refused and (node in summed or hint(times[node]) <= CHECKED_TWICE)}


def _before_scans(graph: Graph) -> set[Node]:
    """Pointwise ops on what is in memory anyway that only a scan needs: as it reads an element, it computes them.

    Not before extremes, which are compared as they are rounded.
    """
    if not any(node.op.kind == "scan" for node in graph.nodes):
        return set()
    readers: dict[Node, set[tuple[Node, int]]] = {}
    in_memory: set[Node] = set()
    for node in graph.nodes:
        for position, x in enumerate(node.inputs):
            readers.setdefault(x, set()).add((node, position))
        if node.op.kind in ("leaf", "movement", "pointwise"):
            if in_memory.issuperset(node.inputs):
                in_memory.add(node)
        elif maker(node).op.opaque is not None:
            in_memory.add(node)
    roots = set(graph.roots)
    cost: dict[Node, int] = {}  # of a value and of what the scan computes of it
    for node in reversed(graph.nodes):
        if node.op.kind not in ("pointwise", "movement") or node in roots or node not in in_memory:
            continue
        before = _cost_of_readers(node, readers.get(node, set()), cost)
        own = weight(node) if node.op.kind == "pointwise" else 0  # a view says where the scan reads
        if before is not None and before + own <= INLINED_WEIGHT:
            cost[node] = before + own
    return {node for node in cost if node.op.kind == "pointwise"}


def _cost_of_readers(node: Node, readers: set[tuple[Node, int]], cost: dict[Node, int]) -> int | None:
    """What a scan computes behind a value that it reads, itself or through values of this cost; None if none does, or
    if another kernel needs the value in memory. A scan in chunks reads it twice, as do the chunks' totals: that is no
    more than to read what it is made of, if that is one operand."""
    read = [x for x in node.inputs if not x.type.weak and x.op is not leaves.const]
    found: int | None = None
    for reader, position in readers:
        if _scans(reader, position) or reader in cost:
            found = max(found or 0, cost.get(reader, 0))
        elif len(read) > 1 or (reader.op.kind not in ("movement", "reduction") and reader.op is not pointwise.cast):
            return None
    return found if len(readers) == 1 or len(read) == 1 else None


def _scans(reader: Node, position: int) -> bool:
    """Is this operand scanned, to one result?"""
    opaque = reader.op.opaque
    return (reader.op.kind == "scan" and type(reader.type) is not tuple and opaque is not None
            and position < opaque.elementwise)


def _cheap_cast(node: Node) -> bool:
    """A cast of what is in memory anyway, or to a wider dtype: storing its operand is no worse."""
    source = node.inputs[0]
    if node.dtype.itemsize > source.dtype.itemsize:
        return True
    while source.op.kind == "movement" and len(inputs_read(source)) == 1:
        source = source.inputs[0]
    return source.op is leaves.input or maker(source).op.opaque is not None


def _asked_for(graph: Graph, inlined: set[Node], gpu: Gpu | None) -> dict[Node, Node]:
    """Take out of `inlined` what must be in memory; returns the other names of memory."""
    name: dict[Node, Node] = {}
    for node in graph.nodes:
        for operand in memory_operands(node):
            inlined.discard(stored_as(operand))
    for root in dict.fromkeys(graph.roots):
        base = stored_as(root)
        if root.op is leaves.input:
            continue
        if root is base:
            inlined.discard(root)
        elif base not in inlined and base.op is not leaves.input and base not in name and base not in graph.roots:
            name[base] = root
        else:
            inlined.discard(root)
    inlined -= turned_rows(graph, gpu)
    _end_views_at_memory(graph, inlined)
    return name


def _end_views_at_memory(graph: Graph, inlined: set[Node]) -> None:
    """A kernel that follows views reads the nearest value in memory under its operand. Where that is not what the views
    lead to (a result of the program lies between) and no view of it will do, the operand itself must be in memory."""
    viewed = [node.inputs[i] for node in graph.nodes if node.op.opaque is not None for i in node.op.opaque.views
              if i < len(node.inputs)]
    changed = True
    while changed:
        changed = False
        for operand in viewed:
            nearest = operand
            while nearest in inlined and nearest.op.kind == "movement" and len(inputs_read(nearest)) == 1:
                nearest = inputs_read(nearest)[0]
            if operand in inlined and stored_as(operand_view(operand, (nearest,)).base) is not stored_as(nearest):
                inlined.discard(operand)
                changed = True


def _is_turned(x: Node) -> bool:
    """Is it a view of what lies in another order? A warp that reads a line of it reads a sector for each element:
    scatter_add of columns of bfloat16[9, 1024, 1000] took 69 µs, four times the time of its bytes (H200)."""
    while x.op.kind == "movement" and len(inputs_read(x)) == 1:
        if x.op is movement.permute:
            return True
        x = inputs_read(x)[0]
    return False


def memory_operands(node: Node) -> tuple[Node, ...]:
    """The operands that a node's kernel needs in memory (or as a view of memory)."""
    opaque = node.op.opaque
    if node.op is row_put:
        return node.inputs[:1]
    if opaque is None:
        return ()
    if opaque.views:
        return tuple(operand_view(x).base if i in opaque.views else x for i, x in enumerate(node.inputs))
    own = opaque.constant_base and node.inputs[0].op is leaves.const
    turned = [x for x in node.inputs[1:] if _is_turned(x)] if node.op is lines_summed and node.type.ndim == 2 else []
    if opaque.over_base:  # the base is first, and in memory
        return (*node.inputs[own:1], *turned, *node.inputs[1 + opaque.elementwise:])
    return node.inputs[opaque.elementwise + own:]
