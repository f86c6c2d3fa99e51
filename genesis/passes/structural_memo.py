"""The structural memo: what pieces of equal structure have in common is worked out once.

A model repeats its layers, and a step repeats them again in the backward. The costly answers about a piece of a
program (at which elements a chain of views reads, how a product's operand lies in memory, the text of a kernel)
depend on its structure alone: ops, attributes, types, and how they hang together. So each answer is kept under the
structure, with places in it instead of nodes, and read off for the next layer's nodes.

    reshape(permute(%7))  of layer 1   ─┐
    reshape(permute(%39)) of layer 2   ─┴─▶  one structure, one answer: operand 0 at (i//64)·768 + …

An answer about symbolic sizes holds within one `Trace` (`ir/sym_int.py`), which notes each question about a size once.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from genesis.ir.memos import counted
from genesis.ir.node import Node
from genesis.ir.ops.recompute import inputs_read
from genesis.ir.size_trace import Trace, tracing

A = TypeVar("A")

MOST_KEPT = 20_000
"""Answers kept for programs without symbolic sizes; when there are more, all are dropped."""

ANSWER_BYTES = 2000
"""Bytes of an answer: the structure of a kernel's ops, an index map, a kernel's text."""

_of_traces: WeakKeyDictionary[Trace, dict[Hashable, Any]] = WeakKeyDictionary()
_closed: dict[Hashable, Any] = {}

counted("pieces of programs", lambda: len(_closed), ANSWER_BYTES, MOST_KEPT + 1)


def memoized(key: Hashable, answer: Callable[[], A]) -> A:
    """The answer that is kept under a key, worked out if there is none."""
    trace = tracing()
    if trace is not None:
        kept = _of_traces.setdefault(trace, {})
    else:
        kept = _closed
        if len(kept) > MOST_KEPT:
            kept.clear()
    if key not in kept:
        kept[key] = answer()
    return kept[key]


@contextmanager
def aside() -> Iterator[None]:
    """A context for what is tried and thrown away: it leaves neither answers nor guards (`Trace.aside`)."""
    trace = tracing()
    if trace is None:
        yield
        return
    kept = _of_traces.pop(trace, {})
    try:
        with trace.aside():
            yield
    finally:
        _of_traces[trace] = kept


Structure = tuple[tuple, ...]
"""A row for each node: op, attributes, type, and the rows of its operands; the type alone for what is given."""


def structure_below(node: Node, ends: Container[Node]) -> tuple[Structure, list[Node]]:
    """(structure, ends): how a node is made of the ends under it, which are listed in the order they are met.

    Two nodes of equal structure are the same function of their ends: the first of one is the first of the other.
    """
    place: dict[Node, int] = {}
    rows: list[tuple] = []
    found: list[Node] = []
    stack = list(reversed(inputs_read(node)))
    order = [node]
    while stack:
        x = stack.pop()
        if x in place:
            continue
        if x in ends:
            place[x] = ~len(found)
            found.append(x)
            rows.append((x.type,))
            continue
        place[x] = len(order)
        order.append(x)
        stack += reversed(inputs_read(x))
    rows += [(x.op, x.attrs, x.type, tuple([place[y] for y in inputs_read(x)])) for x in order]
    return tuple(rows), found


def group_structure(nodes: Iterable[Node], inputs: Mapping[Node, int]) -> tuple[Structure, dict[Node, int]] | None:
    """(structure, place of each node) of a group's nodes over numbered inputs; None if one reads anything else."""
    place: dict[Node, int] = {x: ~i for x, i in inputs.items()}
    rows: list[tuple] = [(x.type,) for x in inputs]
    for node in nodes:
        if node in place:
            continue
        operands = []
        for x in inputs_read(node):
            at = place.get(x)
            if at is None:
                return None
            operands.append(at)
        place[node] = len(place)
        rows.append((node.op, node.attrs, node.type, tuple(operands)))
    return tuple(rows), place
