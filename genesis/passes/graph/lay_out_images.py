"""CPU: images that convolutions make keep their channels last in memory, through all that follows.

oneDNN's convolutions run over channels that lie side by side. Of images whose channels come first each call makes such
a copy, and turns its result back. So the first convolution's image and all weights are copied once, results stay as
they are made (by torch's kernels in the order of their operand), and what is computed element by element is computed
over a turned view, in the order of memory. Training steps of four networks take 0.55 to 0.9 of the time
(`benchmarks/ordinary_steps.py`). Group norms want channels first: torch's kernel for the other order takes the variance
for the mean square less the squared mean, which rounds away small ones. What comes to a norm is copied, once for it and
its backward, and so is what goes on from it. So a region, the images between group norms that would turn together, is
left alone unless its convolutions save twice the elements that are copied at its ends: where each convolution is
followed by a norm, both are about equal.

    before: %2 = convolution(%0, %1, …)       after: %3 = permute(cast(permute(%0)))  and so the weight, %4
            %3 = relu(%2)                            %5 = convolution(%3, %4, …)
                                                     %6 = permute(relu(permute(%5)))

What is read from outside of the program, or by an op that wants another order, is copied there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator
from typing import Final

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, located, make
from genesis.ir.ops import channel_norm, control, convolution, movement, saving
from genesis.ir.ops.convolution_last import channels_first, channels_last
from genesis.ir.sym_int import hint
from genesis.passes.graph.memory_order import CONVOLUTIONS, FIRST, FOLLOWERS, lies_last
from genesis.passes.graph.row_rules import SLOPES
from genesis.passes.graph.snapshots import copied, is_copy

FEWEST: Final = 1 << 14
"""Elements of an image and its convolution, below which turning costs what it saves."""

GROUP_NORMS: Final = (channel_norm.group_norm, channel_norm.group_norm_backward, saving.group_norm_saving,
                      saving.group_norm_from_saved)


SAVED: Final = 2
"""How many elements a region's convolutions save for each that is copied at its ends."""


def lay_out_images(graph: Graph) -> Graph:
    """The graph with images that are convolved in the order that convolutions work in."""
    begins = {node for node in graph.nodes if _is_worth_it(node)}
    turning: set[Node] = set()
    if any(node.op in GROUP_NORMS for node in graph.nodes):
        regions = _Regions(graph)
        begins &= regions.worth_turning()
        turning = regions.around(begins)
    if not begins:
        return graph
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        inputs = tuple([replaced[x] for x in node.inputs])
        with located(node.source):
            if node in turning:
                inputs = tuple([_turned(new) if _comes_in(x, node) else new
                                for x, new in zip(node.inputs, inputs, strict=True)])
            elif node.op in GROUP_NORMS:
                inputs = tuple([copied(x) if lies_last(x) else x for x in inputs])
            new = with_inputs(node, inputs)
            replaced[node] = (_convolved(new) if node in begins else _followed(new)) or new
    return substitute(graph, replaced)


def _is_worth_it(node: Node) -> bool:
    return node.op in CONVOLUTIONS and node.type.ndim == 4 and node.type.dtype.name == "float32" and (
        hint(node.type.numel + node.inputs[0].type.numel) >= FEWEST)


class _Regions:
    """Images that turn together: what an op that keeps the order of its operands makes, and these operands."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.next: dict[Node, Node] = {}
        for node in graph.nodes:
            if _keeps_order(node):
                self.next.setdefault(node, node)
                for x in node.inputs if node.op is control.item else _images(node):
                    if x in self.next:
                        self.next[self._of(x)] = self._of(node)

    def worth_turning(self) -> set[Node]:
        """The nodes of regions without group norms, and of those whose convolutions are worth the copies."""
        saved: defaultdict[Node, int] = defaultdict(int)
        ends: defaultdict[Node, set[Node]] = defaultdict(set)
        for node in self.next:
            images = [*_images(node), *([] if node.op is convolution.convolution_weight else [node])]
            if node.op in CONVOLUTIONS or node.op is convolution.convolution_weight:
                saved[self._of(node)] += sum(hint(x.type.numel) for x in images)
            ends[self._of(node)].update(x for x in images if _maker(x).op in GROUP_NORMS)
        for node in self.graph.nodes:
            if node.op in GROUP_NORMS:
                for x in _images(node):
                    if x in self.next:
                        ends[self._of(x)].add(x)
        return {node for node in self.next if saved[region := self._of(node)] >= SAVED * sum(
            hint(x.type.numel) for x in ends[region])}

    def around(self, nodes: Container[Node]) -> set[Node]:
        """All nodes of the regions of these ones."""
        found = {self._of(node) for node in self.next if node in nodes}
        return {node for node in self.next if self._of(node) in found}

    def _of(self, node: Node) -> Node:
        """The node that stands for its region."""
        while (after := self.next[node]) is not node:
            self.next[node] = node = self.next[after]
        return node


def _images(node: Node) -> Iterator[Node]:
    return (x for x in node.inputs if type(x.type) is not tuple and x.type.ndim == 4 and x is not _weight(node))


def _weight(node: Node) -> Node | None:
    return node.inputs[1] if node.op in CONVOLUTIONS else None


def _comes_in(x: Node, node: Node) -> bool:
    """Whether an operand is an image that comes from a group norm: it is copied where a region begins, so that nothing
    there reads images in two orders."""
    return _maker(x).op in GROUP_NORMS and x in _images(node)


def _maker(x: Node) -> Node:
    return x.inputs[0] if x.op is control.item else x


def _keeps_order(node: Node) -> bool:
    """Whether a result, or another operand, is turned because an operand is."""
    if node.op is control.item:
        return node.inputs[0].op in FOLLOWERS
    return (node.op in CONVOLUTIONS or node.op in FOLLOWERS or node.op is convolution.convolution_weight
            or _is_joined(node) or _is_pointwise(node))


def _is_joined(node: Node) -> bool:
    return node.op is movement.concat and node["axis"] == 1


def _is_pointwise(node: Node) -> bool:
    return (node.op.kind == "pointwise" or node.op in SLOPES) and type(node.type) is not tuple and not (
        node.type.weak or is_copy(node))


def _convolved(node: Node) -> Node:
    image, weight, *bias = node.inputs
    return make(node.op, (_turned(image), _turned(weight), *bias), node.attrs, node.source)


def _followed(node: Node) -> Node | None:
    """What an op becomes whose operands are turned."""
    if node.op in CONVOLUTIONS or not any(lies_last(x) or _part_of_last(x) for x in node.inputs):
        return None
    if node.op in FOLLOWERS or node.op is convolution.convolution_weight:
        operands = tuple([_turned(x) if x.type.ndim == 4 else x for x in node.inputs])
        return None if operands == node.inputs else make(node.op, operands, node.attrs, node.source)
    if _is_joined(node) and all(lies_last(x) for x in node.inputs):
        return channels_first(movement.concat(*[_last(x) for x in node.inputs], axis=3))
    if _is_pointwise(node):
        operands = tuple([_last(x) if x.type.ndim == 4 else x for x in node.inputs])
        return channels_first(make(node.op, operands, node.attrs, node.source))
    return None


def _part_of_last(x: Node) -> bool:
    """Is it a part of an image in that order, as the gradient of one of several that were joined?"""
    return x.op is movement.slice and lies_last(x.inputs[0])


def _turned(x: Node) -> Node:
    """The image in that order, copied if it lies otherwise."""
    return x if lies_last(x) else channels_first(copied(_last(x)))


def _last(x: Node) -> Node:
    return x.inputs[0] if x.op is movement.permute and x["axes"] == FIRST else channels_last(x)
