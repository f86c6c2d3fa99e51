"""A line search for Wolfe's strong conditions, by brackets and cubic interpolation (Nocedal and Wright, chapter 3)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from genesis.frontend.engine_protocol import engine
from genesis.frontend.tensor import Tensor

Function = Callable[[float], tuple[float, Tensor, float]]
"""The length of a step → the loss there, the gradient, and its product with the direction: the slope."""


def computed(*values: Any) -> list[float]:
    """Tensors of one element, and numbers, as numbers: what is pending of them is computed in one program."""
    engine.materialize([x for x in values if isinstance(x, Tensor)])
    return [float(x) for x in values]


class _Point(NamedTuple):
    t: float
    loss: float
    gradient: Tensor
    slope: float


@dataclass
class _Line:
    """The loss along a direction, and Wolfe's conditions on it.

    Attributes:
        function: see `Function`.
        reach: the direction's largest element.
        start: the point at length 0.
        c1, c2: the conditions' factors.
        tried: evaluations so far.
    """

    function: Function
    reach: float
    start: _Point
    c1: float
    c2: float
    tried: int = 0

    def at(self, t: float) -> _Point:
        """The point at a length."""
        self.tried += 1
        return _Point(t, *self.function(t))

    def is_high(self, x: _Point) -> bool:
        """Whether the loss has not fallen enough."""
        return x.loss > self.start.loss + self.c1 * x.t * self.start.slope

    def is_flat(self, x: _Point) -> bool:
        """Whether the slope has fallen enough."""
        return abs(x.slope) <= -self.c2 * self.start.slope


def strong_wolfe(function: Function, t: float, reach: float, loss: float, gradient: Tensor, slope: float,
                 c1: float = 1e-4, c2: float = 0.9, tolerance: float = 1e-9,
                 most: int = 25) -> tuple[float, Tensor, float, int]:
    """A length at which the loss has fallen enough, and its slope has.

    Args:
        function: the loss along the direction.
        t: the first length to try.
        reach: the direction's largest element.
        loss, gradient, slope: at length 0.
        c1, c2: the conditions' factors.
        tolerance: a bracket that is smaller, times `reach`, ends the search.
        most: evaluations.

    Returns:
        The loss and the gradient there, the length, the number of evaluations.
    """
    line = _Line(function, reach, _Point(0.0, loss, gradient, slope), c1, c2)
    bracket = _bracket(line, t, most)
    best = bracket[0] if len(bracket) == 1 else _zoomed(line, bracket, tolerance, most)
    return best.loss, best.gradient, best.t, line.tried


def _bracket(line: _Line, t: float, most: int) -> list[_Point]:
    """The point that meets both conditions, if one is found at once, or two that have such a point between them."""
    before, new = line.start, line.at(t)
    for attempt in range(most):
        if line.is_high(new) or (attempt > 1 and new.loss >= before.loss):
            return [before, new]
        if line.is_flat(new):
            return [new]
        if new.slope >= 0:
            return [before, new]
        farther = _lowest(before, new, new.t + 0.01 * (new.t - before.t), new.t * 10)
        before, new = new, line.at(farther)
    return [line.start, new]


def _zoomed(line: _Line, bracket: list[_Point], tolerance: float, most: int) -> _Point:
    """The lower of two points around one that meets both conditions, after the bracket was made smaller until it does,
    or is smaller than the tolerance, or there were enough evaluations."""
    stuck = False
    low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
    while line.tried <= most:
        a, b = bracket
        if abs(b.t - a.t) * line.reach < tolerance:
            break
        t, stuck = _next_length(a, b, stuck)
        new = line.at(t)
        if line.is_high(new) or new.loss >= bracket[low].loss:
            bracket[high] = new
            low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
            continue
        if line.is_flat(new):
            return new
        if new.slope * (bracket[high].t - bracket[low].t) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = new
    return bracket[low]


def _next_length(a: _Point, b: _Point, stuck: bool) -> tuple[float, bool]:
    """(the length to try between two points, whether it is near an end). Where it was near one the last time, or is
    outside, it is a tenth away from the nearer end: else a bracket might never get smaller."""
    least, most = min(a.t, b.t), max(a.t, b.t)
    t = _lowest(a, b, least, most)
    edge = 0.1 * abs(b.t - a.t)
    if min(most - t, t - least) >= edge:
        return t, False
    if stuck or t >= most or t <= least:
        return (most - edge if abs(t - most) < abs(t - least) else least + edge), False
    return t, True


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
