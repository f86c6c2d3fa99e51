"""A line search for Wolfe's strong conditions, by brackets and cubic interpolation (Nocedal and Wright, chapter 3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from genesis.frontend.tensor import Tensor

Function = Callable[[float], tuple[float, Tensor]]
"""The length of a step → the loss there, and the gradient."""


class _Point(NamedTuple):
    t: float
    loss: float
    gradient: Tensor
    slope: float


def strong_wolfe(function: Function, t: float, direction: Tensor, loss: float, gradient: Tensor, slope: Any,
                 c1: float = 1e-4, c2: float = 0.9, tolerance: float = 1e-9,
                 most: int = 25) -> tuple[float, Tensor, float, int]:
    """A length at which the loss has fallen enough, and its slope has.

    Args:
        function: the loss along the direction.
        t: the first length to try.
        direction: a vector.
        loss, gradient, slope: at length 0.
        c1, c2: the conditions' factors.
        tolerance: a bracket that is smaller, in the direction's largest element, ends the search.
        most: evaluations.

    Returns:
        The loss and the gradient there, the length, the number of evaluations.
    """
    reach, start = float(direction.abs().max()), float(slope)

    def at(t: float) -> _Point:
        found, there = function(t)
        return _Point(t, found, there, float(there.dot(direction)))

    def is_high(x: _Point, low: float) -> bool:
        return x.loss > loss + c1 * x.t * start or x.loss >= low

    def is_flat(x: _Point) -> bool:
        return abs(x.slope) <= -c2 * start
    before, new, tried = _Point(0.0, loss, gradient, start), at(t), 1
    bracket, done = [before, new], False
    for attempt in range(most):
        if new.loss > loss + c1 * new.t * start or (attempt > 1 and new.loss >= before.loss):
            bracket = [before, new]
            break
        if is_flat(new):
            bracket, done = [new], True
            break
        if new.slope >= 0:
            bracket = [before, new]
            break
        farther = _lowest(before, new, new.t + 0.01 * (new.t - before.t), new.t * 10)
        before, new, tried = new, at(farther), tried + 1
    else:
        bracket = [_Point(0.0, loss, gradient, start), new]
    stuck, count = False, tried - 1 if not done else most
    low, high = (0, 1) if bracket[0].loss <= bracket[-1].loss else (1, 0)
    while not done and count < most:
        a, b = bracket
        if abs(b.t - a.t) * reach < tolerance:
            break
        t = _lowest(a, b, min(a.t, b.t), max(a.t, b.t))
        edge = 0.1 * abs(b.t - a.t)
        if min(max(a.t, b.t) - t, t - min(a.t, b.t)) < edge:
            if stuck or t >= max(a.t, b.t) or t <= min(a.t, b.t):
                t = max(a.t, b.t) - edge if abs(t - max(a.t, b.t)) < abs(t - min(a.t, b.t)) else min(a.t, b.t) + edge
                stuck = False
            else:
                stuck = True
        else:
            stuck = False
        new, tried, count = at(t), tried + 1, count + 1
        if is_high(new, bracket[low].loss):
            bracket[high] = new
            low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
            continue
        if is_flat(new):
            done = True
        elif new.slope * (bracket[high].t - bracket[low].t) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = new
    best = bracket[low if len(bracket) > 1 else 0]
    return best.loss, best.gradient, best.t, tried


def _lowest(a: _Point, b: _Point, least: float, most: float) -> float:
    """Where the cubic through two points and their slopes is lowest, within bounds; their middle where it is not."""
    if a.t > b.t:
        a, b = b, a
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.t - b.t)
    square = d1 * d1 - a.slope * b.slope
    if square < 0:
        return (least + most) / 2
    d2 = square**0.5
    t = b.t - (b.t - a.t) * ((b.slope + d2 - d1) / (b.slope - a.slope + 2 * d2))
    return min(max(t, least), most)
