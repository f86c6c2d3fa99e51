"""Convolutions as matrix products whose rows are never stored (implicit GEMM), channels last.

A row of the product is a place of the result, a column a channel of it, and the sum runs over the taps of the window
and, for each tap, over channels: y[place, o] = Σ_tap Σ_c x[place + shift(tap), c] · w[o, tap, c]. A program splits its
places into coordinates once and moves them by the shift of each tap. With few channels a block of the sum takes
several taps at a time.

The gradient by the input is the same sum with places of x and of y exchanged. With a stride a place of x is seen by
every stride-th tap only: the places that the same taps see (a *phase*) are the work of the same programs, which walk
over these taps alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import Final

from genesis.codegen.cuda.block_sizes import power_of_two
from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.loops import any_needs_int64, integer_type, module, multiples_of_16
from genesis.codegen.cuda.lowerings import POINTER, triton_type
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.templates.operands import input_of
from genesis.codegen.cuda.templates.product_choice import with_room
from genesis.codegen.cuda.templates.tile import Tile
from genesis.ir.sym_int import hint
from genesis.ir.types import DType, float32
from genesis.passes.graph.channels_last import FEW_CHANNELS
from genesis.passes.groups import Group

_TILES: Final[dict[int, tuple[Tile, ...]]] = {
    # bytes of an element → tiles of places, channels and terms, the largest first
    2: (Tile(128, 256, 64, 8, 3), Tile(128, 128, 64, 8, 3), Tile(128, 64, 64, 4, 4), Tile(64, 64, 64, 4, 4)),
    4: (Tile(128, 64, 32, 8, 3), Tile(64, 64, 32, 4, 3)),
}

_OPERANDS: Final = {"convolution_last": ("x", "weight", "bias"), "convolution_input_last": ("g", "weight", "bias"),
                    "convolution_weight_last": ("g", "x")}


@dataclass(frozen=True)
class Axis:
    """One spatial dimension: the sizes of x and of y, and how the window moves."""

    x: int
    y: int
    window: int
    stride: int
    padding: int
    dilation: int

    @property
    def reach(self) -> int:
        """The last place of x that any window sees."""
        return (self.y - 1) * self.stride - self.padding + (self.window - 1) * self.dilation

    @property
    def tap_step(self) -> int:
        """How far it is from a tap that sees a place of x to the next one that does."""
        return self.stride // gcd(self.stride, self.dilation)

    def taps_of(self, phase: int) -> tuple[int, int]:
        """(first, how many) of the taps that see the places of x that are `phase` modulo the stride."""
        seen = [k for k in range(min(self.tap_step, self.window)) if self._distance(phase, k) % self.stride == 0]
        return (seen[0], -(-(self.window - seen[0]) // self.tap_step)) if seen else (0, 0)

    def _distance(self, phase: int, tap: int) -> int:
        return phase + self.padding - tap * self.dilation

    def shifts_back(self) -> list[int]:
        """All distances, in y, from a place of x divided by the stride to a place that sees it."""
        return [self._distance(phase, k) // self.stride for phase in range(self.stride) for k in range(self.window)
                if self._distance(phase, k) % self.stride == 0]


class Convolution:
    """A convolution group's sizes, operands and axes; the lines that its kernels share.

    Attributes:
        made, summed: channels of a group in the result, and in the sum for each tap.
        few: a block of the sum takes several taps.
    """

    def __init__(self, group: Group, gpu: GpuModel):
        self.group, self.gpu = group, gpu
        self.node = node = next(n for n in group.nodes if n.op.name in _OPERANDS)
        operands = dict(zip(_OPERANDS[node.op.name], node.inputs, strict=False))
        self.memory = {name: input_of(x, group) for name, x in operands.items()}
        self.memory["out"] = group.outputs[0]
        x = operands["x"].shape if "x" in operands else node.shape
        y = operands["g"].shape if "g" in operands else node.shape
        window = operands["weight"].shape[1:-1] if "weight" in operands else node["window"]
        self.axes = tuple(map(Axis, x[1:-1], y[1:-1], window, node["stride"], node["padding"], node["dilation"]))
        self.groups: int = node["groups"]
        self.x_channels, self.y_channels = x[-1] // self.groups, y[-1] // self.groups
        self.batch = x[0]
        self.taps = prod(window)
        self.dtype: DType = node.inputs[0].dtype
        self.index64 = any_needs_int64(*(n.type.numel for n in (*node.inputs, node)))
        self.integer = ".to(tl.int64)" if self.index64 else ""

    def of_group(self, channels: int) -> str:
        """The number of a group's first channel, as a summand."""
        return f"group * {channels} + " if self.groups > 1 else ""

    def tile(self, rows: int, columns: int, terms: int, products: int) -> Tile:
        """The largest tile that leaves work for all multiprocessors; `products` like this one run side by side."""
        rows = hint(rows)
        tiles = [t for t in _TILES[self.dtype.itemsize] if t.j <= max(power_of_two(columns), 64)]
        tile = next((t for t in tiles if -(-rows // t.i) * -(-columns // t.j) * products >= self.gpu.multiprocessors),
                    tiles[-1])

        def fit(block: int, size: int) -> int:
            return max(16, min(block, power_of_two(size)))
        tile = Tile(fit(tile.i, rows), fit(tile.j, columns), fit(tile.k, terms), tile.num_warps, tile.num_stages)
        return with_room(tile, self.dtype, self.gpu)

    def which_tile(self, columns: int) -> list[str]:
        """Which tile a program makes; those of the same rows follow each other."""
        lines = [f"tiles_j = tl.cdiv({columns}, J)",
                 f"i = tl.program_id(0) // tiles_j * I + tl.arange(0, I){self.integer}",
                 "j = tl.program_id(0) % tiles_j * J + tl.arange(0, J)"]
        return [*lines, "group = tl.program_id(1)"] if self.groups > 1 else lines

    def dot(self, a: str, b: str) -> str:
        """The line that adds a product to `total`."""
        precision = ', input_precision="ieee"' if self.dtype is float32 else ""
        return f"total = tl.dot({a}, {b}, total{precision})"

    def source(self, lines: list[str], sizes: dict[str, int], tile: Tile, grid: tuple[int, int, int]) -> KernelSource:
        """The finished kernel."""
        constexprs = {"I": tile.i, "J": tile.j, "K": tile.k}
        signature = {**{name: POINTER[n.dtype.name] for name, n in self.memory.items()},
                     **{name: integer_type(size) for name, size in sizes.items()},
                     **dict.fromkeys(constexprs, "constexpr")}
        name = self.node.op.name.removesuffix("_last")
        return KernelSource(name, module(name, signature, lines), signature, constexprs,
                            (*self.memory.values(), *sizes.values()), (*self.memory, *multiples_of_16(sizes)), grid,
                            tile.num_warps, tile.num_stages, label=name)


def emit_convolution(group: Group, gpu: GpuModel) -> KernelSource:
    """The kernel of a convolution group."""
    from genesis.codegen.cuda.templates.convolution_weight import by_weight
    c = Convolution(group, gpu)
    return {"convolution_last": _by_output, "convolution_input_last": _by_input,
            "convolution_weight_last": by_weight}[c.node.op.name](c)


def coordinates(name: str, sizes: tuple[int, ...]) -> list[str]:
    """Lines that split the number of a place into the number of its image and a coordinate `at_…` an axis."""
    lines: list[str] = []
    below = 1
    for n in reversed(range(len(sizes))):
        lines.insert(0, f"at_{n} = {name} // {below} % {sizes[n]}" if below > 1 else f"at_{n} = {name} % {sizes[n]}")
        below *= sizes[n]
    return [f"image = {name} // {below}", *lines]


def flat(parts: list[str], sizes: tuple[int, ...]) -> str:
    """The row-major number of a point."""
    text = parts[0]
    for part, size in zip(parts[1:], sizes[1:], strict=True):
        text = f"({text}) * {size} + {part}"
    return text


def digits(name: str, counts: list[str]) -> list[str]:
    """The digits of a number, the last one running fastest: expressions, one for each count."""
    found: list[str] = []
    for n in reversed(range(len(counts))):
        found.insert(0, f"{name} % {counts[n]}" if n else name)
        name = f"({name} // {counts[n]})"
    return found


def _by_output(c: Convolution) -> KernelSource:
    sizes = tuple(axis.y for axis in c.axes)
    places = c.batch * prod(sizes)
    few = c.x_channels < FEW_CHANNELS
    tile = c.tile(places, c.y_channels, c.x_channels * (c.taps if few else 1), c.groups)
    lines = [*c.which_tile(c.y_channels), *coordinates("i", sizes), "inside = i < places"]
    lines += [f"base_{n} = at_{n} * {axis.stride} - {axis.padding}" for n, axis in enumerate(c.axes)]
    taps = [f"tap_{n} = {digit}" for n, digit in enumerate(digits("number", [str(a.window) for a in c.axes]))]
    shifts = [f"shift_{n} = tap_{n} * {axis.dilation}" for n, axis in enumerate(c.axes)]
    bounds = [(axis.padding > 0, axis.reach >= axis.x) for axis in c.axes]
    lines += _sum(c, "x", tuple(a.x for a in c.axes), c.x_channels, str(c.taps), [*taps, *shifts], bounds, few, tile)
    lines += _store(c, "i", c.y_channels)
    return c.source(lines, {"places": places}, tile, (-(-places // tile.i) * -(-c.y_channels // tile.j), c.groups, 1))


def _by_input(c: Convolution) -> KernelSource:
    sizes = tuple(-(-axis.x // axis.stride) for axis in c.axes)  # places of a phase along each axis
    places, phases = c.batch * prod(sizes), prod(axis.stride for axis in c.axes)
    few = c.y_channels < FEW_CHANNELS
    tile = c.tile(places, c.x_channels, c.y_channels * (c.taps if few else 1), c.groups * phases)
    lines = [*c.which_tile(c.x_channels), *coordinates("i", sizes)]
    inside, below, taps = ["(i < places)"], phases, []
    for n, axis in enumerate(c.axes):
        below //= axis.stride
        lines += [f"phase_{n} = tl.program_id(2) // {below} % {axis.stride}", f"base_{n} = at_{n}",
                  f"to_{n} = at_{n} * {axis.stride} + phase_{n}"]
        first, count = zip(*map(axis.taps_of, range(axis.stride)), strict=True)
        lines += [f"first_{n} = {_chosen(f'phase_{n}', first)}", f"taps_{n} = {_chosen(f'phase_{n}', count)}"]
        inside += [f"(to_{n} < {axis.x})"] if axis.x % axis.stride else []
    lines.append(f"inside = {' & '.join(inside)}")
    counts = [f"taps_{n}" for n in range(len(c.axes))]
    for n, (digit, axis) in enumerate(zip(digits("number", counts), c.axes, strict=True)):
        taps += [f"tap_{n} = first_{n} + {digit} * {axis.tap_step}",  # these taps' distances divide exactly
                 f"shift_{n} = (phase_{n} + {axis.padding} - tap_{n} * {axis.dilation}) // {axis.stride}"]
    bounds = [(min(axis.shifts_back()) < 0, size - 1 + max(axis.shifts_back()) >= axis.y)
              for axis, size in zip(c.axes, sizes, strict=True)]
    lines += _sum(c, "g", tuple(a.y for a in c.axes), c.y_channels, " * ".join(counts), taps, bounds, few, tile)
    whole = tuple(axis.x for axis in c.axes)
    lines.append(f"row = image * {prod(whole)} + {flat([f'to_{n}' for n in range(len(whole))], whole)}")
    lines += _store(c, "row", c.x_channels)
    return c.source(lines, {"places": places}, tile,
                    (-(-places // tile.i) * -(-c.x_channels // tile.j), c.groups, phases))


def _chosen(name: str, values: tuple[int, ...]) -> str:
    """The value for a number from 0 on."""
    if len(set(values)) == 1:
        return str(values[0])
    text = str(values[-1])
    for number in reversed(range(len(values) - 1)):
        text = f"tl.where({name} == {number}, {values[number]}, {text})"
    return text


def _sum(c: Convolution, name: str, sizes: tuple[int, ...], channels: int, taps: str, shifts: list[str],
         bounds: list[tuple[bool, bool]], few: bool, tile: Tile) -> list[str]:
    """The lines that leave the sum over taps and channels in `total`.

    Args:
        name: the operand that is read at places; `sizes` are its sizes.
        channels: of a group, in the sum.
        taps: how many a program walks over; `shifts` make `tap_…` and `shift_…` of the `number` of one.
        bounds: for each axis whether a place can lie before the first and after the last element.
    """
    blocks = -(-channels // tile.k)
    ragged = few or channels % tile.k != 0
    row, column = ("[:, None]", "[None, :]") if few else ("", "")
    window = tuple(axis.window for axis in c.axes)
    lines = [f"total = tl.zeros([I, J], {triton_type(float32)})"]
    lines += [f"base_{n} = base_{n}{row}" for n in range(len(sizes)) if few]
    if few:
        lines.append(f"for start in range(0, {taps} * {channels}, K):")
        loop = ["term = start + tl.arange(0, K)", f"number = term // {channels}", f"c = term % {channels}",
                f"counts = term < {taps} * {channels}"]
    else:
        lines.append(f"for step in range(0, {taps} * {blocks}):")
        loop = [f"number = step // {blocks}" if blocks > 1 else "number = step",
                f"c = step % {blocks} * K + tl.arange(0, K)" if blocks > 1 else "c = tl.arange(0, K)",
                *([f"counts = c < {channels}"] if ragged else [])]
    loop += [*shifts, f"tap = {flat([f'tap_{n}' for n in range(len(window))], window)}"]
    loop += [f"seen_{n} = base_{n} + shift_{n}{column}" for n in range(len(sizes))]
    seen = [f"inside{row}"]
    for n, (below, above) in enumerate(bounds):
        seen += [f"(seen_{n} >= 0)"] if below else []
        seen += [f"(seen_{n} < {sizes[n]})"] if above else []
    at = f"image{row} * {prod(sizes)} + {flat([f'seen_{n}' for n in range(len(sizes))], sizes)}"
    outer = "" if few else "[:, None]"
    loop += [f"seen = {' & '.join(seen)}", f"at = {at}"]
    counted, limit = (" & counts[None, :]", "counts[:, None] & ") if ragged else ("", "")
    total_channels = channels * c.groups
    loop.append(f"a_tile = tl.load({name} + (at{outer} * {total_channels} + ({c.of_group(channels)}c)[None, :]), "
                f"mask=seen{outer}{counted}, other=0)")
    if name == "x":  # weight (made, taps, summed), of which a column is read
        weight = f"({c.of_group(c.y_channels)}j)[None, :] * {c.taps * channels} + (tap * {channels} + c)[:, None]"
        made = c.y_channels
    else:  # weight (summed, taps, made)
        weight = f"(({c.of_group(channels)}c) * {c.taps} + tap)[:, None] * {c.x_channels} + j[None, :]"
        made = c.x_channels
    weight = f"({weight}){c.integer}" if c.index64 else weight
    loop.append(f"b_tile = tl.load(weight + ({weight}), mask={limit}(j < {made})[None, :], other=0)")
    loop.append(c.dot("a_tile", "b_tile"))
    return [*lines, *("    " + line for line in loop)]


def _store(c: Convolution, row: str, made: int) -> list[str]:
    lines = []
    if "bias" in c.memory:
        lines += [f"bias_row = tl.load(bias + ({c.of_group(made)}j), mask=j < {made}, other=0)",
                  "total += bias_row.to(tl.float32)[None, :]"]
    at = f"{row}[:, None] * {made * c.groups} + ({c.of_group(made)}j)[None, :]"
    return [*lines, f"tl.store(out + ({at}), total.to({triton_type(c.node.dtype)}), "
                    f"mask=inside[:, None] & (j < {made})[None, :])"]
