"""Layouts of results: the order in which torch lays a result's dimensions out in memory.

Nodes have no strides. A result whose elements lie in another order than row-major is a storage with the node of that
order, and a tensor that shows it through the inverse permutation (`views.Layout`). Pointwise ops and those in
`RULES` follow torch's rules; all others have row-major results. None of this runs unless an operand was read whose
elements lie in another order (`state.turned`).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from threading import get_ident
from typing import Final

from genesis.frontend.state import state
from genesis.frontend.views import Layout, View
from genesis.ir.node import Node, Op, make
from genesis.ir.ops import (
    avg_pool,
    channel_norm,
    composite,
    control,
    convolution,
    max_pool,
    movement,
    pointwise,
    probability,
    random,
    regression,
    resample,
    sorting,
)
from genesis.ir.types import TensorType, row_major, tensor_type

Strides = tuple[int, ...]
remembered = lru_cache(maxsize=8192)

CHANNELS_LAST: Final = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
"""Number of dimensions → the order of channels-last, from the outermost dimension to the innermost."""

_THREADS: Final = 64
"""Threads that may have notes before notes of threads that have ended are looked for and dropped."""


def note(node: Node, part: View) -> Node:
    """Note in which order the elements lie that the node was read from; returns the node."""
    if len(state.turned) > _THREADS:
        for thread in set(state.turned) - {thread.ident for thread in threading.enumerate()}:
            state.turned.pop(thread, None)
    state.turned.setdefault(get_ident(), {})[id(node)] = weakref.ref(node), part
    return node


def forget() -> None:
    """Forget this thread's notes: what was read so far is no operand of the next result."""
    state.turned.pop(get_ident(), None)


def result_layout(node: Node) -> tuple[Node, Layout | None]:
    """The content of the result's storage and how the result shows it, by the rule of the node's op."""
    if node.op is control.item:  # the op's other results follow, and need the notes
        reads, op = state.turned.get(get_ident()), node.inputs[0].op
    else:
        reads, op = state.turned.pop(get_ident(), None), node.op
    rule = _rule_of(op)
    if rule is None or reads is None or node.type.ndim < 2:
        return node, None
    operands = node.inputs if op is node.op else node.inputs[0].inputs
    strides = tuple([(x.type.shape, _strides_of(x, reads)) for x in operands])
    return laid_out(node, _ruled(rule, node.type.shape, strides))


@remembered
def _ruled(rule: LayoutRule, shape: tuple[int, ...], operands: tuple[tuple[tuple[int, ...], Strides], ...],
           ) -> Strides | None:
    return rule(shape, list(operands))


def _strides_of(node: Node, reads: dict[int, tuple[weakref.ref[Node], View]]) -> Strides:
    """The strides of the tensor that an operand was read from: zero where it was broadcast since."""
    found = reads.get(id(node))
    if found is not None and found[0]() is node:
        return found[1].strides
    if node.op is pointwise.cast:
        return _strides_of(node.inputs[0], reads)
    if node.op is movement.expand:
        inner = node.inputs[0]
        return spread(inner.type.shape, _strides_of(inner, reads), node.type.shape)
    return row_major(node.type.shape)


def laid_out(node: Node, strides: Strides | None) -> tuple[Node, Layout | None]:
    """The node with its elements in the order of these dense strides, and how to show it; None is row-major."""
    if strides is None:
        return node, None
    order = order_of(node.type.shape, strides)
    if order is None:
        if not is_channels_last(node.type.shape, strides):
            return node, None
        order = tuple(range(node.type.ndim))  # one channel, or one position: only the strides differ
        return node, Layout(strides, 0, ((movement.permute, (order,)),))
    return turned(node, order), Layout(strides, 0, ((movement.permute, (movement.inverse(order),)),))


def turned(node: Node, order: tuple[int, ...]) -> Node:
    """permute(node, order), recorded as a computation in that order where the op's result does not depend on it."""
    if node.op.kind == "pointwise":
        return make(node.op, tuple([_operand(x, order) for x in node.inputs]), node.attrs, node.source)
    shape = tuple([node.type.shape[i] for i in order])
    if node.op is movement.expand and not node.inputs[0].type.ndim:
        return make(movement.expand, node.inputs, (shape,), node.source)
    if node.op is composite.fill:
        return make(composite.fill, node.inputs, (tensor_type(shape, node.type.dtype, node.type.device),), node.source)
    return _operand(node, order)


def _operand(node: Node, order: tuple[int, ...]) -> Node:
    """permute(node, order), or the node that was permuted before, where the two permutations cancel."""
    if node.type.weak or not node.type.ndim:
        return node
    if node.needs_grad:  # a gradient may be asked for with respect to a node on the way
        return make(movement.permute, (node,), (order,))
    if node.op is pointwise.cast and node.buffer is None:
        return make(node.op, (_operand(node.inputs[0], order),), node.attrs, node.source)
    if node.op is not movement.permute:
        return make(movement.permute, (node,), (order,), node.source)
    before, = node.attrs
    axes = tuple([before[i] for i in order])
    return node.inputs[0] if axes == tuple(range(len(axes))) else make(movement.permute, node.inputs, (axes,))


def computed_as(shown: Node) -> Node:
    """The op that computed what a result in another order shows (its permuted content)."""
    content, = shown.inputs
    if content.op is control.alias and content.inputs[0].op is movement.permute:
        before, = content.inputs[0].inputs
        return content if before.op.kind in ("movement", "control") else before
    return content


# Questions about strides

@remembered
def order_of(shape: tuple[int, ...], strides: Strides) -> tuple[int, ...] | None:
    """The dimensions from the outermost to the innermost; None where that is their own order.

    >>> order_of((2, 3), (1, 2)), order_of((2, 1), (1, 2))
    ((1, 0), None)
    """
    long = [d for d, size in enumerate(shape) if size != 1]
    outward = sorted(long, key=lambda d: -strides[d])
    if outward == long or 0 in shape:
        return None
    places = iter(outward)
    return tuple([d if shape[d] == 1 else next(places) for d in range(len(shape))])


@remembered
def is_dense(shape: tuple[int, ...], strides: Strides) -> bool:
    """True if the elements fill their memory, each in a place of its own.

    >>> is_dense((2, 3), (1, 2)), is_dense((2, 3), (6, 2)), is_dense((2, 3), (0, 1))
    (True, False, False)
    """
    step = 1
    for stride, size in sorted((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1):
        if stride != step:
            return 0 in shape
        step *= size
    return True


def spread(shape: tuple[int, ...], strides: Strides, larger: tuple[int, ...]) -> Strides:
    """The strides after broadcasting to another shape: 0 along dimensions that are repeated."""
    lead = len(larger) - len(shape)
    return (0,) * lead + tuple([0 if size == 1 and there != 1 else stride
                                for size, stride, there in zip(shape, strides, larger[lead:], strict=True)])


def formatted(shape: tuple[int, ...], order: Sequence[int]) -> Strides:
    """Dense strides with the dimensions in this order, outermost first.

    >>> formatted((2, 3, 4, 5), (0, 2, 3, 1))
    (60, 1, 15, 3)
    """
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= max(shape[dim], 1)
    return tuple(strides)


def is_channels_last(shape: tuple[int, ...], strides: Strides) -> bool:
    """Whether torch suggests channels-last for results of such an operand (c10's `is_channels_last_strides`)."""
    order = CHANNELS_LAST.get(len(shape))
    if order is None or strides[1] == 0:
        return False
    least = 0
    for dim in (1, *reversed(order[:-1])):
        if shape[dim] == 0 or strides[dim] < least or (dim == 0 and least == strides[1]):
            return False
        least = strides[dim] * max(shape[dim], 1)
    return True


# Rules: (the result's shape, (shape, strides) of the operands) → dense strides, or None for row-major

LayoutRule = Callable[[tuple[int, ...], list[tuple[tuple[int, ...], Strides]]], Strides | None]


def pointwise_rule(shape: tuple[int, ...], operands: list[tuple[tuple[int, ...], Strides]]) -> Strides | None:
    """TensorIterator's rule: the operands' strides where they agree, else dimensions sorted by the first to decide."""
    if all(s == shape for s, _ in operands):
        if all(strides == row_major(shape) for _, strides in operands):
            return None
        order = CHANNELS_LAST.get(len(shape))
        if order is not None:
            last = formatted(shape, order)
            if all(_agree(shape, strides, last) for _, strides in operands):
                return last
        first = operands[0][1]
        if all(strides == first for _, strides in operands) and is_dense(shape, first):
            return first
    return sorted_strides(shape, tuple([spread(s, strides, shape) for s, strides in operands]))


def _agree(shape: tuple[int, ...], a: Strides, b: Strides) -> bool:
    return all(size == 1 or x == y for size, x, y in zip(shape, a, b, strict=True))


@remembered
def sorted_strides(shape: tuple[int, ...], operands: tuple[Strides, ...]) -> Strides:
    """Dense strides with dimensions in the order of the operands' strides, as TensorIterator sorts them.

    It is an insertion sort whose comparison may be undecided (0), so which of several orders comes out depends on it.

    >>> sorted_strides((2, 3), ((1, 4),)), sorted_strides((2, 3), ((0, 1), (1, 2)))
    ((1, 2), (1, 2))
    """
    def compare(a: int, b: int) -> int:
        for strides in operands:
            x, y = strides[a], strides[b]
            if x and y and (x != y or shape[a] > shape[b]):
                return -1 if x < y else 1
        return 0
    inward = list(reversed(range(len(shape))))
    for i in range(1, len(shape)):
        at = i
        for before in range(i - 1, -1, -1):
            found = compare(inward[before], inward[at])
            if found > 0:
                inward[before], inward[at] = inward[at], inward[before]
                at = before
            elif found < 0:
                break
    return formatted(shape, inward[::-1])


def like_rule(shape: tuple[int, ...], operands: list[tuple[tuple[int, ...], Strides]]) -> Strides | None:
    """The rule of `empty_like`: the first operand's strides, or dense ones of its order where it is not dense."""
    _, strides = operands[0]
    return strides if is_dense(shape, strides) else sorted_strides(shape, (strides,))


def suggested_rule(shape: tuple[int, ...], operands: list[tuple[tuple[int, ...], Strides]]) -> Strides | None:
    """The rule of ops whose result is channels-last if their first operand is."""
    given, strides = operands[0]
    last = len(given) == len(shape) and is_channels_last(given, strides)
    return formatted(shape, CHANNELS_LAST[len(shape)]) if last else None


def convolution_rule(shape: tuple[int, ...], operands: list[tuple[tuple[int, ...], Strides]]) -> Strides | None:
    """The rule of convolutions, whose result is channels-last if the input or the weight is."""
    return suggested_rule(shape, operands[:1]) or suggested_rule(shape, operands[1:2])


RULES: Final[dict[Op, LayoutRule]] = {
    pointwise.cast: like_rule,
    **dict.fromkeys((random.dropout, regression.huber_loss, regression.smooth_l1_loss,
                     probability.binary_cross_entropy), pointwise_rule),
    **dict.fromkeys((movement.flip, sorting.sort), like_rule),
    **dict.fromkeys((channel_norm.batch_norm, channel_norm.batch_norm_eval, avg_pool.avg_pool,
                     avg_pool.adaptive_avg_pool, max_pool.max_pool, max_pool.adaptive_max_pool, resample.resample,
                     movement.pad), suggested_rule),
    convolution.convolution: convolution_rule,
}
"""The ops whose results follow their operands' layout in another way than pointwise ops'."""


def _rule_of(op: Op) -> LayoutRule | None:
    return RULES.get(op) or (pointwise_rule if op.kind == "pointwise" else None)


def like(kind: TensorType, part: View | None, order: tuple[int, ...] | None = None) -> Strides | None:
    """Strides of a result that is made like a tensor of this type and part, or in the order of a memory format."""
    if order is not None:
        return formatted(kind.shape, order) if order else None
    return None if part is None else like_rule(kind.shape, [(kind.shape, part.strides)])
