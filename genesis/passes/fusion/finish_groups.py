"""Clusters → groups: cut long ones, find what each reads and writes, say why they are."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import prod

from genesis.ir.graph import Graph
from genesis.ir.node import Node, make
from genesis.ir.ops import collectives, control, leaves
from genesis.ir.ops.recompute import inputs_read
from genesis.ir.ops.row_writes import row_put
from genesis.ir.sym_int import hint
from genesis.passes.fusion.loop_reads import coordinates, reads_at
from genesis.passes.fusion.materialize import MemoryValues, maker, weight
from genesis.passes.fusion.views import stored_as
from genesis.passes.groups import Group, Slice, Space

LONGEST = 160
"""Maximum weighted ops of a pointwise kernel: compile time grows faster than its length. A search among 2^17 sorted
elements is still one kernel."""

Levels = dict[Node, str]


Piece = tuple[str, Space, Levels]
"""What one kernel computes: a group's kind, its space, and the level of each node."""


def make_groups(graph: Graph, values: MemoryValues, clusters: Iterable[Piece],
                slices: Mapping[Node, Slice] = {}) -> list[Group]:
    """The groups of clusters, in the clusters' order.

    Args:
        slices: values that are written where their concatenation lies.
    """
    place = {node: position for position, node in enumerate(graph.nodes)}
    pieces: list[Piece] = []
    for kind, space, levels in _with_joined(clusters, values, {x.whole for x in slices.values()}):
        ordered = sorted(levels, key=place.__getitem__)
        whole = kind == "loop" and all(level == "pointwise" for level in levels.values())
        for part in cut(ordered, values) if whole and not any(k == "r" for _, k in space) else [ordered]:
            pieces.append((kind, space, {node: levels[node] for node in part}))
    owner = {node: number for number, (_, _, levels) in enumerate(pieces) for node in levels}
    stored = {values.name[node] for node in owner} & set(graph.roots)
    stored |= {values.name[x] for node, number in owner.items() for x in values.reads[node]
               if x in owner and owner[x] != number}
    groups = [_with_slices(_group(piece, values, place, stored), slices) for piece in pieces]
    return groups if not values.waits else [
        replace(group, after=tuple(dict.fromkeys(
            groups[owner[x]].outputs[0] for node in levels for x in values.waits.get(node, ()) if x not in levels)))
        for group, (_, _, levels) in zip(groups, pieces, strict=True)]


def _with_joined(clusters: Iterable[Piece], values: MemoryValues, wholes: set[Node]) -> Iterator[Piece]:
    """The clusters, those that concatenate without what need not be copied."""
    for kind, space, levels in clusters:
        joined = [node for node in levels if values.name[node] in wholes]
        yield from (("joined", space, {node: "pointwise"}) for node in joined)
        if len(joined) < len(levels):
            yield kind, space, {node: level for node, level in levels.items() if node not in joined}


def _with_slices(group: Group, slices: Mapping[Node, Slice]) -> Group:
    found = tuple([slices[x] for x in group.outputs if x in slices])
    written = "is written where its" if len(found) == 1 else "are written where their"
    return replace(group, slices=found, reason=f"{group.reason}; {len(found)} of its results {written} concatenation "
                   "lies") if found else group


def cut(nodes: list[Node], values: MemoryValues) -> list[list[Node]]:
    """Pieces of at most LONGEST weighted ops, cut where the fewest bytes cross.

    A cut lies in the second half of what is allowed, at the last of the narrowest places.
    """
    total = [0]
    for node in nodes:
        total.append(total[-1] + weight(node))
    if total[-1] <= LONGEST:
        return [nodes]
    crossing = _bytes_across(nodes, values)
    found, start = [], 0
    while total[-1] - total[start] > LONGEST:
        last = bisect_right(total, total[start] + LONGEST) - 1
        allowed = [i for i in range(start + 1, min(last + 1, len(nodes))) if total[i] - total[start] >= LONGEST // 2]
        end = min(allowed, key=lambda i: (crossing[i], -i)) if allowed else start + 1
        found.append(nodes[start:end])
        start = end
    return [*found, nodes[start:]]


def _bytes_across(nodes: list[Node], values: MemoryValues) -> list[int]:
    """The bytes, for each i, of values made before nodes[i] and read at or after it."""
    index = {node: i for i, node in enumerate(nodes)}
    last = dict.fromkeys(nodes, -1)
    for i, node in enumerate(nodes):
        for x in values.reads[node]:
            if x in index:
                last[x] = i
    change = [0] * (len(nodes) + 1)
    for node, i in index.items():
        if last[node] > i:
            change[i + 1] += hint(node.type.nbytes)
            change[last[node] + 1] -= hint(node.type.nbytes)
    across, total = [], 0
    for step in change:
        total += step
        across.append(total)
    return across


def _group(piece: tuple[str, Space, Levels], values: MemoryValues, place: dict[Node, int], stored: set[Node]) -> Group:
    kind, space, levels = piece
    nodes = _with_inlined_nodes(levels, values, place)
    inputs = dict.fromkeys(values.name.get(x, x) for node in levels for x in values.reads[node] if x not in levels)
    outputs = tuple(values.name[node] for node in levels if values.name[node] in stored)
    if kind == "collective":
        return _collective(nodes, tuple(inputs), values)
    over_base = _over_base(levels, values) if kind in ("segment", "scatter") else ()
    starts_from = over_base if kind == "segment" else ()
    if kind == "loop":
        in_place = _in_place(space, levels, values, outputs)
    elif kind == "matmul":
        in_place = _over_epilogue_reads(levels, values, outputs)
    else:
        in_place = tuple(pair for pair in over_base if pair[1] not in _others_read(levels, values))
    if any(node.op is row_put for node in levels):
        starts_from, alone = _rows_written(levels, values)
        in_place += alone
    return Group(kind, nodes, tuple(inputs), outputs, _reason(kind, space, levels), space if kind == "loop" else (),
                 in_place=in_place, starts_from=starts_from)


def _collective(nodes: tuple[Node, ...], inputs: tuple[Node, ...], values: MemoryValues) -> Group:
    """The group of a collective: all of its results have memory, read or not; those of an operand's type may be written
    over it."""
    call = maker(next(node for node in nodes if node.op is control.item))
    items = tuple(make(control.item, (call,), (at,), call.source) for at in range(len(call.types)))
    outputs = tuple(values.name.get(item, item) for item in items)
    known = {stored_as(x): x for x in inputs}
    together = len(call.inputs) == len(items) and call.op not in (collectives.all_to_all, collectives.messages)
    pairs = [*zip(outputs, call.inputs, strict=True)] if together else [(outputs[-1], call.inputs[-1])]
    in_place = tuple((output, known[stored_as(x)]) for output, x in pairs if output.type.numel == x.type.numel
                     and sum(stored_as(x) is stored_as(y) for y in call.inputs) == 1)
    return Group("collective", tuple(dict.fromkeys((*nodes, *items))), inputs, outputs,
                 "data goes to other processes", in_place=in_place)


def _over_base(levels: Levels, values: MemoryValues) -> tuple[tuple[Node, Node], ...]:
    """(output, base) of an op that may write over its first operand, or to some places of it."""
    node = next(iter(levels))
    opaque = node.op.opaque
    if opaque is None or not (opaque.partial or opaque.over_base):
        return ()
    base = stored_as(node.inputs[0])
    found = next((x for x in values.reads[node] if stored_as(x) is base), None)
    return () if found is None else ((values.name[node], values.name.get(found, found)),)


def _rows_written(levels: Levels, values: MemoryValues) -> tuple[tuple[tuple[Node, Node], ...], ...]:
    """(output, base) of the rows that a loop writes, and those of them whose base it does not read."""
    pairs = []
    for node in levels:
        if node.op is row_put:
            base = next(x for x in values.reads[node] if stored_as(x) is stored_as(node.inputs[0]))
            shown = {stored_as(y) for x in node.inputs[1:] for y in _memory_below(x, values)}
            pairs.append(((values.name[node], values.name.get(base, base)), stored_as(base) in shown))
    return tuple(pair for pair, _ in pairs), tuple(pair for pair, read in pairs if not read)


def _memory_below(node: Node, values: MemoryValues) -> Iterable[Node]:
    """The values in memory that an operand is, or that inlined nodes make it of."""
    pending = [node]
    while pending:
        x = pending.pop()
        if x in values.reads or x.op is leaves.input:
            yield x
        else:
            pending += inputs_read(x)


def _others_read(levels: Levels, values: MemoryValues) -> set[Node]:
    """Memory that such an op reads besides its first operand's."""
    node = next(iter(levels))
    shown = {stored_as(y) for x in node.inputs[1:] for y in (x, *_memory_below(x, values))}
    return {values.name.get(x, x) for x in values.reads[node] if stored_as(x) in shown}


def _with_inlined_nodes(levels: Levels, values: MemoryValues, place: dict[Node, int]) -> tuple[Node, ...]:
    """The materialized nodes and the inlined nodes between them and memory, operands before users."""
    found = dict.fromkeys(levels)
    pending = list(levels) + [values.name[node] for node in levels]
    while pending:
        node = pending.pop()
        if node not in found:
            found[node] = None
        for x in inputs_read(node):
            if x not in found and x.op is not leaves.input and (x not in values.reads or x in levels):
                pending.append(x)
    return tuple(sorted(found, key=place.__getitem__))


def _in_place(space: Space, levels: Levels, values: MemoryValues,
              outputs: tuple[Node, ...]) -> tuple[tuple[Node, Node], ...]:
    """Pairs (output, input) where the output may be written over the input.

    The input must be read at the position of the loop alone, so that whoever overwrites an element
    has read it, and nobody else wants it.
    """
    at = coordinates(space)
    whole = prod(size for size, _ in space)
    known: dict[Node, object] = dict.fromkeys(levels)
    known.update((x, None) for node in levels for x in values.reads[node])
    spoilt: set[Node] = set()
    for node, level in levels.items():
        if node.op is row_put:
            spoilt.update(x for x in values.reads[node] if stored_as(x) is stored_as(node.inputs[0]))
        if level == "inlined":
            spoilt.update(values.reads[node])
            if any(levels.get(x, "inlined") != "inlined" for x in values.reads[node]):  # computed at a second place
                spoilt.update(y for n in levels for y in values.reads[n])
            continue
        position = at.element if level == "pointwise" or node.op.kind == "reduction" else at.row
        for x, e in reads_at(node, position, known):
            if x not in levels and (e != at.element or x.type.numel != whole):
                spoilt.add(x)
            elif x in levels and level == "pointwise" and e not in (at.element, at.row):
                spoilt.update(y for n in levels for y in values.reads[n])  # x is computed at a second place
    clean = [x for x in dict.fromkeys(x for node in levels for x in values.reads[node])
             if x not in levels and x not in spoilt]
    behind = _inputs_behind(levels, values)
    return tuple((values.name[node], values.name.get(x, x)) for node in levels if values.name[node] in outputs
                 for x in clean if node.op is not row_put and node.type.numel == whole
                 and node.dtype.itemsize == x.dtype.itemsize and x in behind[node])


def _over_epilogue_reads(levels: Levels, values: MemoryValues,
                         outputs: tuple[Node, ...]) -> tuple[tuple[Node, Node], ...]:
    """Pairs (output, input) of a product's epilogue, as of a loop: a program reads and writes its own tile alone. What
    the product itself reads, others read too."""
    product = next(node for node in levels if node.op.kind == "contract")
    epilogue = [node for node in levels if node is not product]
    pairs = _in_place(((product.type.numel, "x"),), {node: levels[node] for node in epilogue}, values, outputs)
    kept = {values.name.get(x, x) for x in (product, *values.reads[product])}
    return tuple(pair for pair in pairs if pair[1] not in kept)


def _inputs_behind(levels: Levels, values: MemoryValues) -> dict[Node, set[Node]]:
    """The values in memory that each node of a group is computed from: read before it is written."""
    found: dict[Node, set[Node]] = {}
    for node in levels:
        found[node] = set()
        for x in values.reads[node]:
            found[node] |= found.get(x, {x})
    return found


def _reason(kind: str, space: Space, levels: Levels) -> str:
    """Why these nodes are together, in words."""
    if kind == "joined":
        return "its parts were written where it lies: nothing is left to do"
    if kind != "loop":
        more = f", with {len(levels) - 1} pointwise ops on its tiles" if kind == "matmul" and len(levels) > 1 else ""
        return f"{kind} has a kernel of its own{more}"
    if len(levels) == 1:
        return "alone: nothing next to it fits its loop"
    reductions = sum(node.op.kind == "reduction" for node in levels)
    inlined = sum(level == "inlined" for level in levels.values())
    if not reductions:
        text = f"{len(levels)} pointwise ops over the same {prod(size for size, _ in space)} elements"
    else:
        rows = prod(size for size, k in space if k == "x")
        text = f"{reductions} reductions and {len(levels) - reductions} pointwise ops over the same {rows} rows"
    if "partial" in levels.values():
        text += "; it reduces splits of them, another kernel puts these together"
    return text + (f"; {inlined} ops are computed where a view reads them" if inlined else "")
