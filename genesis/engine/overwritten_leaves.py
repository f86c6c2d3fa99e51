"""Leaf tensors that a step writes to, whose old content the backward of a live tensor computes what it reads from.

Eager torch has saved such values: `z = w.exp().sum()`, a step that writes to w, then `z.backward()` reads exp's result.
Here they are computed again, from a copy of w. Where a backward reads w itself (`w * w`), torch raises; so no copy is
made, and what needs it is `Overwritten`. A copy that takes more memory than what torch has saved is not made either.
A few bytes are copied without looking further: part of such a graph may be asked for, which has no such read.
Nothing is copied for logits whose loss went backward: torch has let go of their graph.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Set
from typing import Final, NamedTuple

from genesis.frontend.pending import live_differentiable
from genesis.frontend.state import state
from genesis.frontend.storage import Storage
from genesis.ir.backward_reads import RESULT, places_read
from genesis.ir.memos import counted
from genesis.ir.node import Node
from genesis.ir.ops import control, leaves, recompute
from genesis.ir.walk import computed, walk

SMALL: Final = 4096
"""Bytes up to which a value, such as a loss, is kept without weighing what that costs."""


class _Reads(NamedTuple):
    """What a backward of one value reads.

    Attributes:
        operands: places of operands that it reads as they are; `RESULT` for the value.
        inside: places of operands from which values that it reads are computed, within an op that is made of others.
        nbytes: of these values.
    """

    operands: tuple[int, ...] = ()
    inside: tuple[int, ...] = ()
    nbytes: int = 0


_NOTHING: Final = _Reads()


class _Unknown(Exception):
    """What the derivative of an op reads is not known."""


_known: dict[tuple, _Reads | None] = {}
MOST_KNOWN: Final = 1024
"""Composite ops and compiled functions that are remembered; when there are more, all are dropped."""

counted("what backwards of composite ops read", lambda: len(_known), 500, MOST_KNOWN + 1)


def leaves_to_copy(contents: Iterable[Node], overwritten: Mapping[int, Storage], kept: Container[Node],
                   released: Set[Node], oldest: int = 0) -> list[Storage]:
    """The written storages of leaf tensors whose old content to copy for backwards of these contents.

    Args:
        contents: of live tensors that gradients flow through, which were not released.
        overwritten: id of a cell that ends → its storage.
        kept: nodes that are in memory when these have ended.
        released: see `released_nodes`.
        oldest: see `oldest_in` of `old_graphs.py`. Nothing that older nodes read is behind what is overwritten.
    """
    contents = list(contents)
    if not contents:
        return []
    steps: dict[Node, _Step | None] = {}
    behind = _behind(_all_read(contents, steps, oldest), overwritten, kept)
    if not any(behind.values()):
        return []
    found: set[Storage] = set()
    few = sum(s.type.nbytes for s in overwritten.values()) <= SMALL
    for content in contents:
        try:
            values, readers = _values_read(content, () if few else overwritten, steps, oldest)
        except _Unknown:
            continue
        needed: set[Storage] = set()
        nbytes = 0
        for value, size in values.items():
            if behind[value]:
                nbytes += size
                needed |= behind[value]
        if needed and sum(s.type.nbytes for s in needed) <= max(nbytes, SMALL) and released.isdisjoint(readers):
            found |= needed
    return [s for s in overwritten.values() if s in found]  # in an order that a plan's key can have


def _all_read(contents: Iterable[Node], steps: dict[Node, _Step | None], oldest: int) -> set[Node]:
    """The values that a backward of any of the contents reads, at the least: most of them share most of their graphs,
    and mostly none of these values is to be computed from what is overwritten."""
    found: set[Node] = set()
    seen: set[Node] = set()
    stack = list(contents)
    while stack:
        node = stack.pop()
        if node.number < oldest or node in seen or not node.needs_grad or node.op is control.watch:
            continue
        seen.add(node)
        try:
            operands, reads = steps[node] = _step(node)
        except _Unknown:
            steps[node] = None
            stack.extend(_made_of_others(node)[0].inputs)
            continue
        for place in reads.operands:
            found.add(node if place == RESULT else operands[place])
        for place in reads.inside:
            found.add(operands[place])
        stack.extend(operands)
    return found


def released_nodes(oldest: int = 0) -> set[Node]:
    """The nodes of graphs that backwards have let go of, but for those older than the node with this number."""
    seen: set[Node] = set()
    stack = state.live_released()
    while stack:
        node = stack.pop()
        if node.number >= oldest and node not in seen and node.needs_grad:
            seen.add(node)
            stack.extend(control.gradient_inputs(node))
    return seen


def note_released_parts(pending: Iterable[Node]) -> None:
    """Note the values inside of released graphs that are held by themselves, as logits are: the node of a loss, which
    alone is noted, dies with the flush that computes it, and the step after a `loss.item()` would not know.

    Args:
        pending: the contents of storages that wait to be computed. Those in memory are looked for among the values
            recorded since the last such look, where the graphs of a step's losses are.
    """
    count, state.released_since = state.released_since, 0
    roots = [node for reference in list(state.released)[-count:] if (node := reference()) is not None]
    if not roots:
        return
    since, state.released_before = state.released_before, max([node.number for node in roots])
    there = [s.node for s in live_differentiable(since) if s.settled and s.needs_grad]
    held = {node for node in pending if node.needs_grad} | {node for node in there if node.number >= since}
    held.difference_update(roots)
    if not held:
        return
    oldest = min([node.number for node in held])
    seen: set[Node] = set()
    while roots:
        node = roots.pop()
        if node.number < oldest or node in seen or not node.needs_grad:
            continue
        seen.add(node)
        if node in held:  # what is below it was let go of with it
            state.released.append(weakref.ref(node))
        else:
            roots.extend(control.gradient_inputs(node))


def _values_read(content: Node, overwritten: Container[int],
                 steps: Mapping[Node, _Step | None], oldest: int) -> tuple[dict[Node, int], list[Node]]:
    """The values that a backward of the content reads, with their bytes, and the nodes whose derivatives read any; none
    where one is a leaf's that is overwritten."""
    seen: set[Node] = set()
    stack = [content]
    found: dict[Node, int] = {}
    readers: list[Node] = []
    while stack:
        node = stack.pop()
        if node.number < oldest or node in seen or not node.needs_grad or node.op is control.watch:
            continue
        seen.add(node)
        step = steps[node]
        if step is None:
            raise _Unknown
        operands, reads = step
        if reads is not _NOTHING:
            readers.append(node)
        for place in reads.operands:
            value = node if place == RESULT else operands[place]
            if _shown(value).op is control.watch:
                if _is_lost(_shown(value), overwritten):
                    return {}, []
                continue
            found[value] = sum(kind.nbytes for kind in value.types)
        for i, place in enumerate(reads.inside):
            found.setdefault(operands[place], 0 if i else reads.nbytes)
        stack.extend(operands)
    return found, readers


_Step = tuple[tuple[Node, ...], _Reads]
"""What gradients of a node may go on to, and what its derivative reads."""


def _step(node: Node) -> _Step:
    """What gradients of a node may go on to, and what its derivative reads."""
    node, index = _made_of_others(node)
    if node.op is control.item:
        return node.inputs, _NOTHING
    if node.op.vjp is not None:
        places = places_read(node)
        return node.inputs, _Reads(places) if places else _NOTHING
    if node.op.decompose is None:
        raise _Unknown
    return node.inputs, _inside(node, index)


def _made_of_others(node: Node) -> tuple[Node, int | None]:
    """(the op that is made of others, which of its results) for one of several results of such an op; (node, None) for
    what is none."""
    if node.op is not control.item:
        return node, None
    below = node.inputs[0]
    return (node, None) if below.op.vjp is not None or below.op.decompose is None else (below, node.attrs[0])


def _inside(node: Node, index: int | None) -> _Reads:
    """What a backward of an op that is made of others reads, or of one result of a compiled function."""
    key = (node.op, node.attrs, index, tuple([(x.type, x.needs_grad) for x in node.inputs]))
    if key not in _known:
        if len(_known) >= MOST_KNOWN:
            _known.clear()
        try:
            _known[key] = _summary(node, index)
        except _Unknown:
            _known[key] = None
    found = _known[key]
    if found is None:
        raise _Unknown
    return found


def _summary(node: Node, index: int | None) -> _Reads:
    made = node.op.decompose(*node.inputs, **node.attributes)  # type: ignore[misc]
    result = made if index is None else made[index]
    place = {x: i for i, x in reversed([*enumerate(node.inputs)])}
    direct: set[int] = set()
    inside: set[int] = set()
    nbytes = 0
    seen: set[Node] = set()
    stack = [result]
    while stack:
        x = stack.pop()
        if x in seen or x in place or not x.needs_grad:
            continue
        seen.add(x)
        operands, reads = _step(x)
        for at in reads.operands:
            value = x if at == RESULT else operands[at]
            shown = _shown(value, place)
            if shown in place:
                direct.add(place[shown])
            else:
                nbytes += sum(kind.nbytes for kind in value.types)
                inside.update(_reached(value, place))
        for at in reads.inside:
            inside.update(_reached(operands[at], place))
        nbytes += reads.nbytes
        stack.extend(operands)
    found = _Reads(tuple(sorted(direct)), tuple(sorted(inside)), nbytes)
    return found if found != _NOTHING else _NOTHING


def _reached(value: Node, place: Mapping[Node, int]) -> set[int]:
    """The places of the operands from which a value is computed."""
    return {place[x] for x in _below(value, place.__contains__) if x in place}


def _below(value: Node, ends: Callable[[Node], bool]) -> set[Node]:
    """The nodes that a value is computed from, as far as those where the search ends."""
    seen: set[Node] = set()
    stack = [value]
    while stack:
        x = stack.pop()
        if x not in seen:
            seen.add(x)
            if not ends(x):
                stack.extend(x.inputs)
    return seen


def _shown(x: Node, ends: Collection[Node] = ()) -> Node:
    """What a view or a marker shows."""
    while x not in ends and x.op is not control.watch and (
            x.op in (control.alias, control.stop_gradient, recompute.enter)
            or (x.op.kind == "movement" and len(x.inputs) == 1)):
        x = x.inputs[0]
    return x


def _is_lost(leaf: Node, overwritten: Container[int]) -> bool:
    """Is what a leaf tensor reads in memory that is overwritten, or was?"""
    return any(id(x.buffer) in overwritten or (x.op is leaves.data and not computed(x))
               for x in _below(leaf, computed))


def _behind(values: Iterable[Node], overwritten: Mapping[int, Storage],
            kept: Container[Node]) -> dict[Node, frozenset[Storage]]:
    """Value → the overwritten storages that it is computed from, as far as what is between is not in memory."""
    found: dict[Node, frozenset[Storage]] = {}
    nothing: frozenset[Storage] = frozenset()
    for node in walk(values):
        storage = None if node in kept else overwritten.get(id(node.buffer))
        if storage is not None:
            found[node] = frozenset((storage,))
        elif node in kept or computed(node):
            found[node] = nothing
        else:
            parts = {each for x in node.inputs if (each := found[x])}
            found[node] = nothing.union(*parts) if len(parts) != 1 else parts.pop()
    return found


__all__ = ["SMALL", "leaves_to_copy", "note_released_parts", "released_nodes"]
