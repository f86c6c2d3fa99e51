"""CPU: images that convolutions make keep their channels last in memory, through all that follows.

oneDNN's convolutions run over channels that lie side by side. Of images whose channels come first each call makes such
a copy, and turns its result back. So the first convolution's image and all weights are copied once, results stay as
they are made (by torch's kernels in the order of their operand), and what is computed element by element is computed
over a turned view, in the order of memory. Training steps of four networks take 0.55 to 0.9 of the time
(`benchmarks/ordinary_steps.py`). Group norms want channels first: torch's backward of one takes 2 ms and not 0.1 where
they come last, and copies before and behind each take what convolutions save; such programs are left alone.

    before: %2 = convolution(%0, %1, …)       after: %3 = permute(cast(permute(%0)))  and so the weight, %4
            %3 = relu(%2)                            %5 = convolution(%3, %4, …)
                                                     %6 = permute(relu(permute(%5)))

What is read from outside of the program, or by an op that wants another order, is copied there.
"""

from __future__ import annotations

from typing import Final

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node, make
from genesis.ir.ops import channel_norm, convolution, movement
from genesis.ir.ops.convolution_last import last_axes
from genesis.ir.sym_int import hint
from genesis.passes.graph.memory_order import CONVOLUTIONS, FIRST, FOLLOWERS, lies_last
from genesis.passes.graph.row_rules import SLOPES
from genesis.passes.graph.snapshots import copied

LAST: Final = last_axes(4)
"""(n, channels, height, width) → (n, height, width, channels)."""

FEWEST: Final = 1 << 14
"""Elements of an image and its convolution, below which turning costs what it saves."""

GROUP_NORMS: Final = (channel_norm.group_norm, channel_norm.group_norm_backward)


def lay_out_images(graph: Graph) -> Graph:
    """The graph with images that are convolved in the order that convolutions work in."""
    if any(node.op in GROUP_NORMS for node in graph.nodes) or not any(map(_is_worth_it, graph.nodes)):
        return graph
    return rewrite(graph, _laid_out)


def _is_worth_it(node: Node) -> bool:
    return node.op in CONVOLUTIONS and node.type.ndim == 4 and node.type.dtype.name == "float32" and (
        hint(node.type.numel + node.inputs[0].type.numel) >= FEWEST)


def _laid_out(node: Node) -> Node | None:
    if node.op in CONVOLUTIONS:
        image, weight, *bias = node.inputs
        return make(node.op, (_turned(image), _turned(weight), *bias), node.attrs, node.source) if (
            _is_worth_it(node)) else None
    if not any(lies_last(x) for x in node.inputs):
        return None
    if node.op in FOLLOWERS or node.op is convolution.convolution_weight:
        operands = tuple([_turned(x) if x.type.ndim == 4 else x for x in node.inputs])
        return None if operands == node.inputs else make(node.op, operands, node.attrs, node.source)
    if node.op is movement.concat and node["axis"] == 1 and all(lies_last(x) for x in node.inputs):
        return _first(movement.concat(*[_last(x) for x in node.inputs], axis=3))
    if (node.op.kind == "pointwise" or node.op in SLOPES) and type(node.type) is not tuple and not node.type.weak:
        operands = tuple([_last(x) if x.type.ndim == 4 else x for x in node.inputs])
        return _first(make(node.op, operands, node.attrs, node.source))
    return None


def _turned(x: Node) -> Node:
    """The image in that order, copied if it lies otherwise."""
    return x if lies_last(x) else _first(copied(_last(x)))


def _last(x: Node) -> Node:
    return x.inputs[0] if x.op is movement.permute and x["axes"] == FIRST else movement.permute(x, axes=LAST)


def _first(x: Node) -> Node:
    return movement.permute(x, axes=FIRST)
