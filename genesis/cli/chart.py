"""A line chart as inline SVG; colours are CSS classes, so that it follows light and dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float]]

WIDTH, HEIGHT = 860, 360
LEFT, RIGHT, TOP, BOTTOM = 52, 14, 14, 40


@dataclass(frozen=True)
class Line:
    """A curve; `style` is its CSS class, `dots` marks its points."""

    name: str
    points: Points
    style: str
    dots: bool = False


@dataclass(frozen=True)
class Level:
    """A horizontal line at `y` with its name on it."""

    name: str
    y: float
    style: str


def line_chart(lines: Sequence[Line], levels: Sequence[Level], x_label: str, y_label: str) -> str:
    """The SVG element. Points that are not finite numbers are left out."""
    lines = [Line(line.name, [p for p in line.points if all(map(math.isfinite, p))], line.style, line.dots)
             for line in lines]
    xs = [x for line in lines for x, _ in line.points] or [0, 1]
    ys = [y for line in lines for _, y in line.points] + [level.y for level in levels] or [0, 1]
    x_axis, y_axis = _Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT), _Axis(min(ys), max(ys), HEIGHT - BOTTOM, TOP, 0.06)
    parts = [f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(y_label)}">']
    parts += [f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y_axis(t):.1f}" y2="{y_axis(t):.1f}"/>'
              f'<text class="tick" x="{LEFT - 8}" y="{y_axis(t) + 4:.1f}" text-anchor="end">{t:g}</text>'
              for t in y_axis.ticks()]
    parts += [f'<text class="tick" x="{x_axis(t):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{t:g}</text>'
              for t in x_axis.ticks()]
    parts.append(f'<text class="tick" x="{(LEFT + WIDTH) / 2}" y="{HEIGHT - 4}" text-anchor="middle">'
                 f'{escape(x_label)}</text>')
    for level in levels:
        y = y_axis(level.y)
        parts.append(f'<line class="{level.style}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                     f'<text class="{level.style}" x="{WIDTH - RIGHT - 4}" y="{y - 6:.1f}" text-anchor="end">'
                     f'{escape(level.name)}</text>')
    for line in lines:
        path = " ".join(f"{x_axis(x):.1f},{y_axis(y):.1f}" for x, y in line.points)
        parts.append(f'<polyline class="{line.style}" points="{path}"><title>{escape(line.name)}</title></polyline>')
        if line.dots:
            parts += [f'<circle class="{line.style}" cx="{x_axis(x):.1f}" cy="{y_axis(y):.1f}" r="3">'
                      f'<title>{escape(line.name)} {y:.4f} at {x:g}</title></circle>' for x, y in line.points]
    return "\n".join([*parts, "</svg>"])


def smoothed(points: Points, keep: float = 0.95) -> list[tuple[float, float]]:
    """Exponential moving average of y, corrected for its start: the weights of what is averaged add up to one.

    >>> smoothed([(0, 4.0), (1, 1.0)], keep=0.5)
    [(0, 4.0), (1, 2.0)]
    """
    result, total, weight = [], 0.0, 0.0
    for x, y in points:
        if math.isfinite(y):
            total, weight = keep * total + (1 - keep) * y, keep * weight + 1 - keep
            result.append((x, total / weight))
    return result


class _Axis:
    """Values → pixels, with round tick values; `margin` is a share of the range kept free at both ends."""

    def __init__(self, low: float, high: float, start: float, end: float, margin: float = 0.0):
        spare = ((high - low) or 1.0) * (margin or 0.0)
        self.low, self.high = low - spare, (high if high > low else low + 1.0) + spare
        self.start, self.end = start, end

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, about: int = 7) -> list[float]:
        rough = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough)
        first = math.ceil(self.low / step)
        return [round(i * step, 10) for i in range(first, math.floor(self.high / step) + 1)]
