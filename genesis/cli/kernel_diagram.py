"""The kernels of a training step as a picture: forward runs down on the left, backward up in the
middle, updates stand on the right. What backward keeps of forward then crosses between neighbours.

         forward        backward       update
         embedding ┐  ┌ embedding' ──▶ adamw
            ▼      │  │    ▲
          linear ──┼──┼▶ linear'
            ▼      │  │    ▲
           loss ───┴──┴────┘
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from genesis.cli.inspect import StepBox, counted

BOX_WIDTH, BOX_HEIGHT, ROW = 210, 31, 41
COLUMN = {"forward": 70, "backward": 420, "update": 770}
WIDTH, TOP = 1060, 34
"""Pixels: of a box, from one to the next below it, to the left edge of each column, of the picture, above the boxes."""


def draw_step(boxes: Sequence[StepBox]) -> str:
    """The SVG element for the boxes of a step, which are in the order in which they run."""
    places = _places(boxes)
    height = max((y for _, y in places), default=0) + ROW + 12
    parts = [f'<svg class="step" width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}">']
    parts += [f'<text class="column" x="{x + BOX_WIDTH / 2}" y="18" text-anchor="middle">{phase}</text>'
              for phase, x in COLUMN.items() if any(box.phase == phase for box in boxes)]
    parts += [_arrow(boxes[source], places[source], boxes[target], places[target])
              for target, box in enumerate(boxes) for source in box.sources]
    parts += [_box(box, x, y) for box, (x, y) in zip(boxes, places, strict=True)]
    return "\n".join([*parts, "</svg>"])


def _box(box: StepBox, x: float, y: float) -> str:
    names, middle = counted(box.kernels), x + BOX_WIDTH / 2
    return (f'<g class="{box.phase}"><title>{escape(chr(10).join([names, box.line, *box.reasons]))}</title>'
            f'<rect x="{x}" y="{y:.1f}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="4"/>'
            f'<text x="{middle}" y="{y + 13:.1f}" text-anchor="middle">{escape(_fit(names, 30))}</text>'
            f'<text class="line" x="{middle}" y="{y + 25:.1f}" text-anchor="middle">'
            f"{escape(_fit(box.line, 36))}</text></g>")


def _places(boxes: Sequence[StepBox]) -> list[tuple[float, float]]:
    """Left upper corner of each box. The taller column sets the height, the other is spread over it."""
    count = {phase: sum(box.phase == phase for box in boxes) for phase in COLUMN}
    rows = max([1, *count.values()])
    seen = dict.fromkeys(COLUMN, 0)
    places = []
    for box in boxes:
        at = seen[box.phase]
        seen[box.phase] += 1
        spread = (rows - 1) / max(1, count[box.phase] - 1) if box.phase != "update" else 1.0
        row = at * spread if box.phase != "backward" else rows - 1 - at * spread
        places.append((float(COLUMN[box.phase]), TOP + row * ROW))
    return places


def _arrow(source: StepBox, start: tuple[float, float], target: StepBox, end: tuple[float, float]) -> str:
    """A curve from side to side between columns; within one a short line, or an arc round what is between."""
    half = BOX_HEIGHT / 2
    if source.phase != target.phase:
        rightwards = start[0] < end[0]
        x1, x2 = start[0] + BOX_WIDTH * rightwards, end[0] + BOX_WIDTH * (not rightwards)
        middle = (x1 + x2) / 2
        y1, y2 = start[1] + half, end[1] + half
        path = f"M{x1:.0f} {y1:.1f} C{middle:.0f} {y1:.1f} {middle:.0f} {y2:.1f} {x2:.0f} {y2:.1f}"
    elif abs(end[1] - start[1]) < 1.9 * ROW:
        x, down = start[0] + BOX_WIDTH / 2, end[1] > start[1]
        path = f"M{x:.0f} {start[1] + BOX_HEIGHT * down:.1f} L{x:.0f} {end[1] + BOX_HEIGHT * (not down):.1f}"
    else:
        left = source.phase == "forward"
        x = start[0] + BOX_WIDTH * (not left)
        bow = min(60.0, 12 + abs(end[1] - start[1]) / 8) * (-1 if left else 1)
        path = (f"M{x:.0f} {start[1] + half:.1f} C{x + bow:.0f} {start[1] + half:.1f} {x + bow:.0f} {end[1] + half:.1f}"
                f" {x:.0f} {end[1] + half:.1f}")
    return f'<path class="{"kept" if source.phase != target.phase else "flow"}" d="{path}"/>'


def _fit(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most - 1] + "…"
