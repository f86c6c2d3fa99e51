"""Releasing a graph: after a backward without `retain_graph` a tensor keeps its value and forgets how it was made."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any, Final

from genesis.autograd.backward_engine import Stop, made_of
from genesis.frontend import session
from genesis.frontend.boundaries import Boundary
from genesis.frontend.recording import FREED
from genesis.frontend.state import state
from genesis.frontend.views import Layout
from genesis.ir.backward_reads import places_read
from genesis.ir.graph import apply
from genesis.ir.memos import counted
from genesis.ir.node import Node, Op, make
from genesis.ir.ops import control

computed_by: Final[weakref.WeakKeyDictionary[Any, Op]] = weakref.WeakKeyDictionary()
"""A storage whose graph was released → the op that computed it, which its tensor is printed with."""


def release_graph(tensor: Any) -> None:
    """Keep the tensor's value and forget how it was made; `FREED` as its leaf number says why a second backward fails.

    As in torch a graph that holds no values stays: a second backward through it is no error.
    """
    storage, detached = tensor.storage, tensor.detached
    node = storage._node if detached is None else detached.history
    if not (tensor.part is None or isinstance(tensor.part, Layout)) or node is None or not node.needs_grad:
        return
    if node.op is control.watch:
        return
    if not holds_values(node):
        return
    state.released.append(weakref.ref(node))
    state.released_since += 1
    if state.session is not None and (running := session.active()) is not None:
        running.freed.append(node)
    tensor.leaf = FREED
    computed_by[storage] = _made_by(node)
    if detached is not None:
        detached.history = None
        return
    if storage.cell is not None and node.buffer is storage.cell:  # the value is in memory: forget how it was made
        storage.settle(storage.cell, content=node)
        return
    value = make(control.stop_gradient, (node,))
    if node.buffer is not None:
        value.buffer = node.buffer
    if storage._node is node:  # no other thread wrote to it meanwhile
        storage._node = value


def _made_by(node: Node) -> Op:
    """The op that computed a value: not the choice among its results, nor that of what it was written over."""
    while node.op is control.item or node.op is control.overwritten:
        node = node.inputs[0]
    return node.op


def holds_values(root: Node) -> bool:
    """Whether the backward of any op below reads a value of the forward; most programs show one within a few nodes."""
    seen: set[Stop] = set()
    stack: list[Stop] = [root]
    while stack:
        stop = stack.pop()
        if stop in seen:
            continue
        seen.add(stop)
        if stop.holds_values if isinstance(stop, Boundary) else _reads_values(stop):
            return True
        stack.extend(made_of(stop))
    return False


def is_freed(node: Node, roots: Iterable[Node]) -> bool:
    """Whether backwards of these roots released values that a backward of this node reads, or it was made of a tensor
    whose graph was released: a backward of it fails."""
    gone = _reached(roots)
    return any(x.op is control.watch and x.attrs[0] == FREED if isinstance(x, Node) and x not in gone else
               x in gone and (x.holds_values if isinstance(x, Boundary) else _reads_values(x))
               for x in _reached([node]))


def _reached(roots: Iterable[Node]) -> set[Stop]:
    seen: set[Stop] = set()
    stack: list[Stop] = list(roots)
    while stack:
        stop = stack.pop()
        if stop not in seen:
            seen.add(stop)
            stack.extend(made_of(stop))
    return seen


_results_known: dict[tuple, bool] = {}
MOST_KNOWN: Final = 4096
"""Answers of `_result_reads_values`; when there are more, all are dropped."""

counted("what backwards of compiled functions read", lambda: len(_results_known), 500, MOST_KNOWN + 1)


def _reads_values(node: Node) -> bool:
    """Whether the node's vjp reads an operand or the result; numbers of the user's count, as in torch."""
    op = node.op
    if op is control.item and node.inputs[0].op is control.call:
        return _result_reads_values(node.inputs[0], node.attrs[0])
    if op is control.item or op is control.watch:
        return False
    return op.vjp is None or bool(places_read(node))


def _result_reads_values(call: Node, index: int) -> bool:
    """Whether the gradient of one result of a compiled function reads a value of the forward."""
    graph = call.attrs[0]
    key = (graph, index, tuple([x.needs_grad for x in call.inputs]))
    found = _results_known.get(key)
    if found is None:
        if len(_results_known) > MOST_KNOWN:
            _results_known.clear()
        seen = set(call.inputs)
        stack = [apply(graph, call.inputs)[index]]
        found = False
        while stack and not found:
            node = stack.pop()
            if node not in seen and node.needs_grad:
                seen.add(node)
                found = _reads_values(node)
                stack.extend(node.inputs)
        _results_known[key] = found
    return found
