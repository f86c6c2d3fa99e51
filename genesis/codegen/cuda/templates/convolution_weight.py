"""The gradient of a convolution by its weight: dw[o, tap, c] = Σ_place g[place, o] · x[place + shift(tap), c].

The result is small and the sum long, so the places are shared out over programs (`splits`); each writes its part, and
the parts are added up by whoever asked for them, always in the same order. With few channels a program takes
several taps side by side, as one row of columns.
"""

from __future__ import annotations

from math import prod

from genesis.codegen.cuda.lowerings import triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.convolution import Convolution, coordinates, digits, flat
from genesis.ir.types import float32
from genesis.passes.graph.channels_last import FEW_CHANNELS


def by_weight(c: Convolution) -> KernelSource:
    """The kernel: rows are channels of y, columns channels of x, the sum runs over places of y."""
    sizes, splits = tuple(axis.y for axis in c.axes), c.node["splits"]
    places = c.batch * prod(sizes)
    few = c.x_channels < FEW_CHANNELS
    columns, taps_apart = (c.taps * c.x_channels, 1) if few else (c.x_channels, c.taps)
    tile = c.tile(c.y_channels, columns, 64 if c.dtype is not float32 else 32, c.groups * splits * taps_apart)
    share = -(-places // (splits * tile.k)) * tile.k
    seen_in = tuple(axis.x for axis in c.axes)
    lines = [f"tiles_j = tl.cdiv({columns}, J)",
             "i = tl.program_id(0) // tiles_j * I + tl.arange(0, I)",
             "j = tl.program_id(0) % tiles_j * J + tl.arange(0, J)",
             f"group = tl.program_id(1) // {taps_apart}",
             *([f"tap = j // {c.x_channels}", f"c = j % {c.x_channels}"] if few
               else [f"tap = tl.program_id(1) % {taps_apart}", "c = j"])]
    for n, (digit, axis) in enumerate(zip(digits("tap", [str(a.window) for a in c.axes]), c.axes, strict=True)):
        lines.append(f"shift_{n} = {digit} * {axis.dilation} - {axis.padding}")
    row, column = ("[:, None]", "[None, :]") if few else ("", "")
    outer = "" if few else "[:, None]"
    lines += [f"first = tl.program_id(2){c.integer} * share", "last = tl.minimum(first + share, places)",
              f"total = tl.zeros([I, J], {triton_type(float32)})", "for start in range(first, last, K):"]
    loop = [f"k = start + tl.arange(0, K){c.integer}", *coordinates("k", sizes), "inside = k < last"]
    seen = [f"inside{row}"]
    for n, axis in enumerate(c.axes):
        loop.append(f"seen_{n} = at_{n}{row} * {axis.stride} + shift_{n}{column}")
        seen += [f"(seen_{n} >= 0)"] if axis.padding else []
        seen += [f"(seen_{n} < {axis.x})"] if axis.reach >= axis.x else []
    at = f"image{row} * {prod(seen_in)} + {flat([f'seen_{n}' for n in range(len(seen_in))], seen_in)}"
    loop += [f"seen = {' & '.join(seen)}", f"at = {at}",
             f"g_tile = tl.load(g + (k[:, None] * {c.y_channels * c.groups} + ({c.of_group(c.y_channels)}i)[None, :]), "
             f"mask=inside[:, None] & (i < {c.y_channels})[None, :], other=0)",
             f"x_tile = tl.load(x + (at{outer} * {c.x_channels * c.groups} + ({c.of_group(c.x_channels)}c)[None, :]), "
             f"mask=seen{outer} & (j < {columns})[None, :], other=0)",
             c.dot("tl.trans(g_tile)", "x_tile")]
    lines += ["    " + line for line in loop]
    lines += [f"o = (tl.program_id(2) * {c.groups} + group) * {c.y_channels} + i",
              f"to = o[:, None] * {c.taps * c.x_channels} + " + ("j[None, :]" if few else
                                                                 f"(tap * {c.x_channels} + j)[None, :]"),
              f"tl.store(out + to, total, mask=(i < {c.y_channels})[:, None] & (j < {columns})[None, :])"]
    grid = (-(-c.y_channels // tile.i) * -(-columns // tile.j), c.groups * taps_apart, splits)
    return c.source(lines, {"places": places, "share": share}, tile, grid)
