"""GPUs: a convolution of few channels whose windows lie side by side is a product of patches.

A vision transformer's first layer cuts a picture of three channels into patches and multiplies each by one matrix. As a
convolution it wants the channels last in memory, three numbers side by side, which takes longer to write than the layer
to compute. Patches are runs of a window's rows: a copy has them in lines, and the gradients read the same copy.

    before: %2: bf16[64,768,14,14] = convolution(%0, %1, stride=(16,16), …)   # %0: bf16[64,3,224,224]
    after:  %2: bf16[64,3,14,16,14,16] = reshape(%0)   %3: bf16[64,14,14,3,16,16] = permute(%2)
            %4: bf16[12544,768] = reshape(%3)          %5: bf16[12544,768] = matmul(%4, …)
            %6: bf16[64,768,14,14] = permute of %5
"""

from __future__ import annotations

from math import prod

from genesis.ir.graph import Graph, rewrite
from genesis.ir.node import Node
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.convolution import convolution, convolution_input, convolution_weight
from genesis.ir.ops.movement import expand, pad, permute, reshape, slice
from genesis.ir.ops.pointwise import add
from genesis.passes.graph.channels_last import DOTS, FEW_CHANNELS

Sizes = tuple[int, ...]


def patch_products(graph: Graph) -> Graph:
    """The graph with such convolutions, and their gradients, as products."""
    return rewrite(graph, _product)


def _product(node: Node) -> Node | None:
    if node.op is convolution:
        x, weight, *bias = node.inputs
        return _forward(node, x, weight, bias) if _side_by_side(node, x.shape[1], weight.shape[2:]) else None
    if node.op is convolution_weight:
        g, x = node.inputs
        return _by_weight(node, g, x) if _side_by_side(node, x.shape[1], node["window"]) else None
    if node.op is convolution_input:
        g, weight, *bias = node.inputs
        beside = not bias and _side_by_side(node, weight.shape[1], weight.shape[2:])
        return _by_input(node, g, weight) if beside else None
    return None


def _side_by_side(node: Node, channels: int, window: Sizes) -> bool:
    """Do windows of few channels neither overlap nor leave anything out?"""
    return (node.dtype.name in DOTS and node["groups"] == 1 and node["stride"] == window and prod(window) > 1
            and not any(node["padding"]) and set(node["dilation"]) == {1}
            and channels.__class__ is int and channels < FEW_CHANNELS and bool(node.type.numel))


def _forward(node: Node, x: Node, weight: Node, bias: list[Node]) -> Node:
    out, channels, window = node.shape[2:], x.shape[1], weight.shape[2:]
    product = matmul(_patches(x, out, window), swap_last(_flat(weight, channels * prod(window))))
    if bias:
        product = add(product, expand(reshape(bias[0], shape=(1, node.shape[1])), shape=product.shape))
    return _channels_first(reshape(product, shape=(node.shape[0], *out, node.shape[1])))


def _by_weight(node: Node, g: Node, x: Node) -> Node:
    patches = _patches(x, g.shape[2:], node["window"])
    return reshape(matmul(swap_last(_places(g)), patches), shape=node.shape)


def _by_input(node: Node, g: Node, weight: Node) -> Node:
    out, (channels, *window) = g.shape[2:], weight.shape[1:]
    patches = matmul(_places(g), _flat(weight, channels * prod(window)))
    n = len(out)
    apart = reshape(patches, shape=(node.shape[0], *out, channels, *window))
    pairs = [axis for k in range(n) for axis in (1 + k, 2 + n + k)]
    covered = tuple([size * k for size, k in zip(out, window, strict=True)])
    x = reshape(permute(apart, axes=(0, 1 + n, *pairs)), shape=(node.shape[0], channels, *covered))
    if covered == node.shape[2:]:
        return x
    left = tuple([size - inside for size, inside in zip(node.shape[2:], covered, strict=True)])
    return pad(x, low=(0,) * (n + 2), high=(0, 0, *left))


def _patches(x: Node, out: Sizes, window: Sizes) -> Node:
    """(…, channels times window): the patches of x, one a row."""
    n, channels = len(out), x.shape[1]
    covered = tuple([size * k for size, k in zip(out, window, strict=True)])
    if covered != x.shape[2:]:
        x = slice(x, starts=(0,) * (n + 2), stops=(*x.shape[:2], *covered), steps=(1,) * (n + 2))
    apart = reshape(x, shape=(*x.shape[:2], *[size for pair in zip(out, window, strict=True) for size in pair]))
    places, inside = [2 + 2 * k for k in range(n)], [3 + 2 * k for k in range(n)]
    rows = permute(apart, axes=(0, *places, 1, *inside))
    return reshape(rows, shape=(x.shape[0] * prod(out), channels * prod(window)))


def _places(g: Node) -> Node:
    """(places, channels): what g has at each place of its pictures."""
    n = g.type.ndim - 2
    return reshape(permute(g, axes=(0, *range(2, n + 2), 1)), shape=(g.shape[0] * prod(g.shape[2:]), g.shape[1]))


def _channels_first(x: Node) -> Node:
    n = x.type.ndim - 2
    return permute(x, axes=(0, n + 1, *range(1, n + 1)))


def _flat(weight: Node, depth: int) -> Node:
    return reshape(weight, shape=(weight.shape[0], depth))
