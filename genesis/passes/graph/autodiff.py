"""Reverse-mode differentiation: `grad` nodes become the nodes that compute the gradients.

    before: %2: f32[] = sum(%1)                          after: %5: f32[4] = expand(1.0)
            %4: (f32[4],) = grad(%2, 1.0, %0)                   %6: f32[4] = mul(%5, %0) ...
            %5: f32[4] = item(%4, index=0)

Operands of a `grad` are expanded before it, so a gradient of a gradient is just another walk.
Source: Griewank and Walther, Evaluating Derivatives (2008), ch. 3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from genesis.ir.graph import Graph, made_since, rewrite_nodes, substitute, topological
from genesis.ir.node import Node, located, make
from genesis.ir.ops import control, movement, pointwise, recompute
from genesis.ir.ops.leaves import full, zeros_like

MARKERS = (control.watch, control.stop_gradient, control.alias, control.released, recompute.enter)
"""Ops that are the value they mark."""


def autodiff(graph: Graph, since: int = 0) -> Graph:
    """The graph without `grad` nodes.

    Args:
        since: number of a node. Older ones stay as they are and are not gone through; no gradient may go through one.
    """
    nodes = made_since(graph.roots, since) if since else graph.nodes
    expanded: dict[Node, list[Node]] = {}
    wrapped: dict[Node, Node] = {}
    last = next((node for node in reversed(nodes) if node.op is control.grad), None)
    if last is None:
        return graph

    def rule(node: Node) -> Node | None:
        if node.op is control.known:
            wrapped[node.inputs[0]] = node
        if node.op is not control.item or node.inputs[0].op is not control.grad:
            return None
        request = node.inputs[0]
        if request not in expanded:
            outputs, ends = request["outputs"], control.ends_of(request)
            ys, seeds = request.inputs[:outputs], request.inputs[outputs:2 * outputs]
            made = gradients(ys, seeds, control.asked_of(request), wrapped, ends)
            renewed = control.renewed_in(request)
            expanded[request] = _read_anew(made, topological(ys, ends), (*seeds, *ends), renewed) if renewed else made
        found = expanded[request][node["index"]]
        return found if request["create_graph"] or node.inputs[0] is last else control.stop_gradient(found)

    kept = dict.fromkeys([*graph.roots, *(x for node in nodes for x in node.inputs)]) if since else ()
    return substitute(graph, rewrite_nodes(nodes, rule, [x for x in kept if x.number < since]))


def gradients(outputs: Sequence[Node], seeds: Sequence[Node], wrt: Sequence[Node],
              wrapped: dict[Node, Node] | None = None, ends: Collection[Node] = ()) -> list[Node]:
    """Nodes for Σ seed · d(output)/d(x), for each x; zeros where x has no influence.

    `wrapped` maps a node to the `known` node that stands for its value in memory. The walk ends at
    `ends`: how one of them depends on another does not count.
    """
    order, ends = _on_the_way(outputs, wrt, ends), frozenset(ends)
    active = _influenced(order, wrt)
    received: dict[Node, list[Node | None]] = {}
    for y, seed in zip(outputs, seeds, strict=True):
        _add(received, y, 0, _fitted(seed, y) or seed)
    for node in reversed(order):
        if node not in received or node in ends or active.isdisjoint(node.inputs):
            continue
        if node.op is recompute.leave:
            for x, g in _pull_region(node, received[node], active, wrapped):
                _add(received, x, 0, g)
            continue
        with located(node.source):
            for operand, contribution in zip(node.inputs, _pull(node, received[node], active, wrapped), strict=True):
                if contribution is None or operand not in active:
                    continue
                if node.op is control.item:
                    _add(received, operand, node["index"], contribution)
                else:
                    _add(received, operand, 0, contribution)
    found = [received[x][0] if x in received else None for x in wrt]
    return [zeros_like(x) if g is None else g for x, g in zip(wrt, found, strict=True)]


def _on_the_way(outputs: Sequence[Node], wrt: Sequence[Node], ends: Collection[Node]) -> tuple[Node, ...]:
    """The nodes between the outputs and the ends, operands before users. Where all that is asked for has `needs_grad`,
    so has all that depends on it, and the others are left out: a program of many requests has much below each."""
    if not all(x.needs_grad for x in wrt):
        return topological(outputs, ends)
    order = dict.fromkeys(ends)
    for output in outputs:
        stack = [output]
        while stack:
            node = stack[-1]
            if node in order or not node.needs_grad:
                stack.pop()
                continue
            waiting = [x for x in reversed(node.inputs) if x.needs_grad and x not in order]
            if waiting:
                stack.extend(waiting)
            else:
                order[node] = None
                stack.pop()
    return tuple(order)


def _read_anew(found: Sequence[Node], forward: Iterable[Node], outer: Sequence[Node],
               renewed: Sequence[tuple[Node, Node]]) -> list[Node]:
    """The gradients, which read the renewed values, or views and casts of these, instead of the forward's.

    `outer`: values that these gradients only begin or end at: what is behind is none of theirs.

        before: %1 = view(%0), %2 = f(%1), %3 = g(%1)        after: %1 = view(%0), %2 = f(%1)
                                                                    %4 = view(%renewed), %3 = g(%4)
    """
    instead, kept = {**{x: x for x in outer}, **dict(renewed)}, frozenset(forward)
    for root in found:
        stack = [root]
        while stack:
            node = stack[-1]
            if node in instead:
                stack.pop()
                continue
            operands = node.inputs if node not in kept or is_shown_through(node) else ()
            waiting = [x for x in operands if x not in instead]
            if waiting:
                stack.extend(waiting)
                continue
            given = tuple([instead[x] for x in operands])
            instead[node] = node if given == operands or not operands else make(node.op, given, node.attrs, node.source)
            stack.pop()
    return [instead[node] for node in found]


def is_shown_through(node: Node) -> bool:
    """Whether it is made again of its operand wherever it is read: a view, a marker, a cast."""
    return len(node.inputs) == 1 and (node.op.kind == "movement" or node.op in MARKERS or node.op is pointwise.cast)


def _influenced(order: Iterable[Node], wrt: Sequence[Node]) -> set[Node]:
    """The nodes that some x influences through differentiable ops."""
    active = set(wrt)
    for node in order:
        if (node.op.differentiable and not active.isdisjoint(node.inputs)
                and (type(node.type) is tuple or node.type.dtype.kind == "float")):
            active.add(node)
    return active


def _add(received: dict[Node, list[Node | None]], node: Node, index: int, g: Node) -> None:
    slots = received.get(node)
    if slots is None:
        slots = received[node] = [None] * len(node.types)
    before = slots[index]
    slots[index] = g if before is None else _side_by_side(before, g) or make(pointwise.add, (before, g))


def _side_by_side(a: Node, b: Node) -> Node | None:
    """The sum of two contributions to neighbouring slices of one value: one after the other, without the zeros.

    A slice's contribution is padded with zeros that mean "none"; packed projections are read by slices.
    """
    if a.op is not movement.pad or b.op is not movement.pad or a["value"] or b["value"]:
        return None
    padded = [[i for i, (low, high) in enumerate(zip(x["low"], x["high"], strict=True)) if low or high] for x in (a, b)]
    if padded[0] != padded[1] or len(padded[0]) != 1:
        return None
    axis, = padded[0]
    first, second = sorted((a, b), key=lambda x: x["low"][axis])
    if first["low"][axis] + first.inputs[0].type.shape[axis] != second["low"][axis]:
        return None
    parts: list[Node] = []
    for x in (first.inputs[0], second.inputs[0]):
        parts += x.inputs if x.op is movement.concat and x["axis"] == axis else (x,)
    joined = movement.concat(*parts, axis=axis)
    return movement.pad(joined, low=first["low"], high=second["high"], value=0) if (
        first["low"][axis] or second["high"][axis]) else joined


def _pull(node: Node, received: list[Node | None], active: set[Node],
          wrapped: dict[Node, Node] | None) -> Sequence[Node | None]:
    """The gradient contributions to a node's operands."""
    op = node.op
    if op is control.item:
        return received
    value = node if wrapped is None else wrapped.get(node, node)
    several = type(node.type) is tuple
    if op.vjp is not None:
        attributes = node.attributes if op.attrs else {}
        pulled = op.vjp(tuple(received) if several else received[0], *node.inputs, value, **attributes)
        contributions = pulled if isinstance(pulled, tuple) else (pulled,)
        return [g if g is None or g.type is x.type else _fitted(g, x)
                for g, x in zip(_filled(contributions, len(node.inputs)), node.inputs, strict=True)]
    assert op.decompose is not None, f"{op.name} has neither vjp nor decomposition"
    attributes = node.attributes if op is not control.call else {"graph": autodiff(node["graph"])}
    parts = op.decompose(*node.inputs, **attributes)
    outputs = list(parts) if isinstance(parts, tuple) else [parts]
    asked = [(y, g) for y, g in zip(outputs, received, strict=True) if g is not None]
    chosen = [x for x in dict.fromkeys(node.inputs) if x in active]
    found = gradients([y for y, _ in asked], [g for _, g in asked], chosen, ends=node.inputs)
    by_operand = dict(zip(chosen, found, strict=True))
    taken: list[Node | None] = [by_operand.pop(x, None) for x in node.inputs]
    return taken


def _pull_region(end: Node, received: list[Node | None], active: set[Node],
                 wrapped: dict[Node, Node] | None) -> list[tuple[Node, Node]]:
    """(value that the region reads, its gradient): by a second computation of the region.

        before: %1 = enter(%0)   %2 = f(%1)   %3 = leave(%2)      after: %4 = recompute(%0, g)   %5 = f(%4)
                                                                  gradient of %5 with respect to %4, for %0

    It starts from what the region reads, once a gradient of what it returns is known (Chen et al., Training Deep
    Nets with Sublinear Memory Cost, 2016).
    """
    arrived = next(g for g in received if g is not None)
    entries, nodes = recompute.inside(end)
    again = {x: recompute.recompute(value if wrapped is None else wrapped.get(value, value), arrived)
             for x, value in entries.items()}
    rebuilt: dict[Node, Node] = {}
    for node in nodes:
        rebuilt[node] = again[node] if node in again else make(node.op, tuple([rebuilt[x] for x in node.inputs]),
                                                              node.attrs, node.source) if node.inputs else node
    wrt = [x for x, value in entries.items() if value in active]
    results = [rebuilt[x] for x in end.inputs]
    asked = [(y, g) for y, g in zip(results, received, strict=True) if g is not None]
    inner = None if wrapped is None else {rebuilt[x]: known for x, known in wrapped.items() if x in rebuilt}
    found = gradients([y for y, _ in asked], [g for _, g in asked], [again[x] for x in wrt], inner,
                      ends=tuple(again.values()))
    return [(entries[x], g) for x, g in zip(wrt, found, strict=True)]


def _filled(contributions: tuple[Node | None, ...], count: int) -> tuple[Node | None, ...]:
    return contributions + (None,) * (count - len(contributions))


def _fitted(g: Node | None, x: Node) -> Node | None:
    """A contribution that broadcasting in a formula left smaller than its operand."""
    if g is None or g.type is x.type or type(x.type) is tuple or x.type.weak:
        return g
    if g.type.weak:
        g = pointwise.cast(g, dtype=x.type.dtype)
    if g.type.dtype is not x.type.dtype:
        g = pointwise.cast(g, dtype=x.type.dtype)
    return g if g.type.shape == x.type.shape else movement.expand(g, shape=x.type.shape)


def read_by_backward(outputs: Sequence[Node]) -> set[Node]:
    """The values of the outputs' program that differentiating it by all its `watch` nodes reads.

    Views count as what they show, and what costs next to nothing to compute again is left out.
    """
    forward = set(topological(outputs))
    leaves = [node for node in forward if node.op is control.watch]
    seeds = [full(y.type.shape, 1, y.type.dtype, y.type.device) for y in outputs]
    backward = [node for node in topological(gradients(outputs, seeds, leaves)) if node not in forward]
    read = {_shown(x) for node in backward for x in node.inputs if x in forward}
    return {x for x in read if x.op.kind != "leaf" and x.op is not control.released and type(x.type) is not tuple
            and not x.type.weak and not _cheap(x)}


def _shown(x: Node) -> Node:
    """What a view or a marker shows."""
    while True:
        if x.op is control.released:
            return x
        if x.op in MARKERS or (x.op.kind == "movement" and len(recompute.inputs_read(x)) == 1):
            x = x.inputs[0]
        elif x.op is control.item and x.inputs[0].op is recompute.leave:
            x = x.inputs[0].inputs[x["index"]]
        else:
            return x


def _cheap(x: Node) -> bool:
    """Pointwise ops on inputs and numbers alone, such as a parameter in another dtype."""
    shown = [_shown(y) for y in x.inputs]
    if x.op is pointwise.cast and shown[0].op is control.released:  # cast again, of what backward reads instead
        return True
    return x.op.kind == "pointwise" and all(y.op.kind == "leaf" for y in shown)
