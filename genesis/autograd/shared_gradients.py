"""Gradients that lie in the gradient that backward was given: no bytes move, and who writes to one writes to both.

torch gives a leaf the gradient that arrives, where nobody else holds that tensor: of `cat`, a slice of the one that
came in. So of parts that lie one behind the other, and of reshapes, the gradients are views of the caller's tensor.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from genesis.autograd.backward_engine import retaining
from genesis.autograd.pieces import below
from genesis.frontend import session
from genesis.frontend.grad_mode import enable_grad, no_grad
from genesis.frontend.layouts import is_dense
from genesis.frontend.recording import read
from genesis.frontend.state import state
from genesis.ir.ops import control, movement

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor
    from genesis.ir.node import Node


def shared_gradients(y: Tensor, gradient: Tensor) -> dict[int, Tensor]:
    """The parts of y's gradient that are whole gradients of leaves, by the leaves' numbers: y is put together from
    these by concatenations along its outermost axis and reshapes.

    >>> import genesis
    >>> a, b = (genesis.ones(n, 3, requires_grad=True) for n in (2, 4))
    >>> given = genesis.zeros(6, 3)
    >>> genesis.cat([a, b]).backward(given)
    >>> given[0] = 7.0
    >>> a.grad
    tensor([[7., 7., 7.],
            [0., 0., 0.]])
    """
    if retaining or not _is_plain(y, gradient):
        return {}
    with enable_grad():
        root = _without_memory(read(y))
    begins = {} if root.op is control.watch else _begins(root)
    leaves = {number: leaf for number in begins if (leaf := state.watched.get(number)) is not None
              and leaf.leaf == number and leaf._grad is None and not leaf._hooks and not _keeps_strides(leaf)}
    if not leaves:
        return {}
    if state.session is not None and (running := session.active()) is not None:
        running.refuse("a gradient lies in the one that backward was given")
    with no_grad():
        flat = gradient.view(-1)
        return {number: flat.narrow(0, begins[number], leaf.numel()).view(leaf.shape)
                for number, leaf in leaves.items()}


def _is_plain(y: Tensor, gradient: Tensor) -> bool:
    """Is it a row-major tensor of y's type, whose memory nothing outside of Genesis sees, and without a history?"""
    return (gradient.spec is y.spec or gradient.spec == y.spec) and not gradient.requires_grad and (
        gradient.is_contiguous() and not gradient.storage.exported)


def _keeps_strides(leaf: Tensor) -> bool:
    """Is the leaf dense in another order than row-major? Then its gradient is, too."""
    part = leaf.part
    return part is not None and part.turned and is_dense(leaf.spec.shape, part.strides)


def _without_memory(node: Node) -> Node:
    """What the node was computed as, whether or not it is in memory by now."""
    while node.op is control.overwritten:
        node = node.inputs[0]
    return node


def _begins(root: Node) -> dict[int, int]:
    """Where the first element of each leaf is among the root's: of leaves that lie in it once and in one piece, and
    that no other gradient reaches."""
    found: dict[int, int] = {}
    others: list[Node] = []
    waiting = [(root, 0)]
    while waiting:
        node, begin = waiting.pop()
        if not node.needs_grad:
            continue
        if node.op is control.watch and node.attrs[0] not in found and node.hooks is None:
            found[node.attrs[0]] = begin
        elif (node.op is control.overwritten or _reshapes(node)) and node.hooks is None:
            waiting.append((node.inputs[0], begin))
        elif node.op is movement.concat and prod(node.shape[:node["axis"]]) == 1 and node.hooks is None:
            for x in node.inputs:
                waiting.append((x, begin))
                begin += x.type.numel
        else:
            others.append(node)
    if not found:
        return {}
    reached, _ = below(others, 0)  # nothing is earlier than piece 0, so all leaves
    if not state.crossings.keys().isdisjoint((*found, *reached)):  # what is behind them nobody knows yet
        return {}
    return {number: begin for number, begin in found.items() if number not in reached}


def _reshapes(node: Node) -> bool:
    """Is it a reshape to another shape? One to its own is a view of all of a tensor, as `x[:]` and `x.narrow` are, of
    which torch makes a gradient of its own."""
    return node.op is movement.reshape and node.shape != node.inputs[0].shape
