"""Sums around another reduction's result, by splits that each need only themselves.

A variance waits for the mean, the sum of a softmax for the maximum: split one after the other, they read what they
reduce twice. Here a split is reduced around a number of its own, in one reading, and what it gives is carried over to
the number of all of them, c:

    Σ (x - c)²    = Σ over splits of  squares + n · (mean - c)²         (Chan, Golub and LeVeque 1979)
    Σ exp(x - c)  = Σ over splits of  exponentials · exp(maximum - c)   (Milakov and Gimelshein 2018)
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Final

from genesis.ir.node import Node
from genesis.ir.ops import reduction
from genesis.ir.ops.movement import expand, reshape
from genesis.ir.ops.pointwise import add, cast, div, exp, maximum, mul, sub
from genesis.ir.ops.splits import reduce_splits, split_counts, split_length
from genesis.passes.graph.cuts import Cut

NEAR: Final = 6
"""Maximum ops between a reduction and the number that it gives the next one: a division, a cast, a reshape."""


def split_spread(node: Node, cut_of: Callable[[Node], Cut | None]) -> Node | None:
    """A sum of squares or exponentials around what was reduced of the same values → those of splits, put together.

        before: %1: f32[] = sum(%0, axes=(0,))       after: %1: f32[1056] = reduce_splits(%0, how=sum)
                %2 = %1 / n                                 %2: f32[1056] = reduce_splits(%0, how=squares)
                %3 = sum((%0 - %2)², axes=(0,))             %3 = sum(%2 + counts · (%1 / counts - mean)²)

    Args:
        cut_of: how a reduction is split; None for one that stays whole.
    """
    if node.op is not reduction.sum or node.dtype.kind != "float":
        return None
    how, off = _spread(node.inputs[0])
    if off is None or off.op is not sub:
        return None
    x, around = off.inputs
    number = _constant_along(around, node["axes"], x)
    beside = {"squares": reduction.sum, "exponentials": reduction.max}[how]
    if number is None or not _reduces(number, beside, x, node["axes"]):
        return None
    cut = cut_of(node)
    if cut is None:
        return None
    seen = cut.seen(x)
    parts = {each: reduce_splits(seen, how=each, axes=cut.axes, splits=cut.splits, multiple=cut.multiple)
             for each in (beside.name, how)}
    spread, own, left = parts[how], parts[beside.name], cut.axes_left(node)
    shape = (1, *(1 if axis in left else size for axis, size in enumerate(spread.shape[1:], 1)))
    number = expand(reshape(cast(number, dtype=spread.dtype), shape=shape), shape=spread.shape)
    if how == "squares":
        count = prod(seen.shape[axis] for axis in cut.axes)
        counts = split_counts(count, cut.splits, split_length(count, cut.splits, cut.multiple), spread.dtype,
                              x.type.device)
        counts = expand(reshape(counts, shape=(cut.splits, *(1 for _ in spread.shape[1:]))), shape=spread.shape)
        apart = sub(div(own, maximum(counts, 1.0)), number)
        all_around = add(spread, mul(counts, mul(apart, apart)))
    else:
        all_around = mul(spread, exp(sub(cast(own, dtype=spread.dtype), number)))
    total = cast(reduction.sum(all_around, axes=left), dtype=node.dtype)
    return total if total.shape == node.shape else reshape(total, shape=node.shape)


def _spread(summed: Node) -> tuple[str, Node | None]:
    """What is summed: of squares or exponentials, and the difference that is squared or the exponent."""
    if summed.op is mul and summed.inputs[0] is summed.inputs[1]:
        return "squares", summed.inputs[0]
    return ("exponentials", summed.inputs[0]) if summed.op is exp else ("", None)


def _constant_along(value: Node, axes: tuple[int, ...], x: Node) -> Node | None:
    """The number that a value repeats along these axes, one for each result of a reduction over them."""
    if value.op is not expand:
        return None
    one = value.inputs[0]
    kept = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
    if one.type.ndim != len(kept):
        one, kept = one, kept[len(kept) - one.type.ndim:]  # expanded to new dimensions in front
        if any(axis not in axes for axis in range(x.type.ndim - one.type.ndim)):
            return None
    return one if list(one.shape) == kept else None


def _reduces(number: Node, op: object, x: Node, axes: tuple[int, ...]) -> bool:
    """Is a number made of such a reduction of x, in a few steps?"""
    pending, seen = [number], 0
    while pending and seen < NEAR:
        node = pending.pop(0)
        seen += 1
        if node.op is op and node.inputs[0] is x and node["axes"] == axes:
            return True
        if node.op.kind in ("pointwise", "movement"):
            pending += node.inputs
    return False
