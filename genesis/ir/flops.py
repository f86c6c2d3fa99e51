"""How many operations an op takes: what a profile divides by a time, and a pass makes a time of."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import prod
from typing import TYPE_CHECKING, Final

from genesis.ir.sym_int import Size, hint

if TYPE_CHECKING:
    from genesis.ir.node import Node

Shape = tuple[Size, ...]

PRODUCTS: Final = ("matmul", "matmul_split_k", "matmul_sum", "ragged_matmul", "ragged_matmul_sums", "linear",
                   "convolution", "convolution_input", "convolution_weight",
                   "sdpa", "flash_attention", "flash_attention_dq", "flash_attention_dkv", "linear_cross_entropy")
"""Names of the ops that are computed as products of matrices."""


NOT_COUNTED: Final = ("cast", "bitcast", "where")
"""Names of elementwise ops that choose or convert numbers. A product of a vector reads its matrix in bfloat16: counted,
its conversions would be as many operations again as the products or the sums."""


def is_product(node: Node) -> bool:
    """Whether an op is computed as products of matrices."""
    return node.op.name in PRODUCTS


def flops_of_nodes(nodes: Iterable[Node], size: Callable[[Size], Size] = hint) -> Size:
    """Operations of a kernel that computes these nodes."""
    return sum((flops_of(node, size) for node in nodes), 0)


def flops_of(node: Node, size: Callable[[Size], Size] = hint) -> Size:
    """Operations of one op: two for each multiplication of a product, of the others what an element weighs.

    Args:
        size: what a symbolic size counts as; its hint by default. With sizes themselves (`as_it_is`) the operations are
            a formula of them.
    """
    if node.op.kind in ("leaf", "movement", "control", "index", "random") or node.op.name in NOT_COUNTED:
        return 0
    shapes = [tuple(map(size, x.type.shape)) for x in node.inputs if type(x.type) is not tuple]
    out = tuple(map(size, node.types[0].shape))
    count = _OF_PRODUCTS.get(node.op.name)
    if count is not None:
        return count(node, shapes, out)
    return node.op.weight * max([prod(out), *map(prod, shapes)], key=hint)


def as_it_is(size: Size) -> Size:
    """The size."""
    return size


def _matmul(node: Node, shapes: list[Shape], out: Shape) -> Size:
    return 2 * prod(out) * shapes[0][-1]


def _parts_of_matmul(node: Node, shapes: list[Shape], out: Shape) -> Size:
    (*batch, rows, inner), (*_, columns) = shapes[0], shapes[1]
    return 2 * prod(batch) * rows * inner * columns


def _sum_of_matmuls(node: Node, shapes: list[Shape], out: Shape) -> Size:
    return 2 * prod(out) * sum((shape[-1] for shape in shapes[::2]), 0)


def _ragged(node: Node, shapes: list[Shape], out: Shape) -> Size:
    return 2 * prod(shapes[0]) * out[-1]


def _scores(shapes: list[Shape]) -> Size:
    """Elements of attention's score matrices."""
    *batch, queries, _ = shapes[0]
    return prod(batch) * queries * shapes[1][-2]


def _attention(node: Node, shapes: list[Shape], out: Shape) -> Size:
    """A causal one computes half of the scores."""
    return (1 if node["causal"] else 2) * _scores(shapes) * (shapes[0][-1] + shapes[2][-1])


def _attention_backward(products: int) -> Callable[[Node, list[Shape], Shape], Size]:
    """Those of a gradient that makes so many products of the scores' size; a causal one half of each."""
    return lambda node, shapes, out: (1 if node["causal"] else 2) * products * _scores(shapes) * shapes[0][-1]


_OF_PRODUCTS: Final[dict[str, Callable[[Node, list[Shape], Shape], Size]]] = {
    "matmul": _matmul, "linear": _matmul, "matmul_split_k": _parts_of_matmul, "matmul_sum": _sum_of_matmuls,
    "ragged_matmul": _ragged, "ragged_matmul_sums": _ragged,
    "sdpa": _attention, "flash_attention": _attention,
    "flash_attention_dq": _attention_backward(3), "flash_attention_dkv": _attention_backward(4),
    "convolution": lambda node, shapes, out: 2 * prod(out) * prod(shapes[1][1:]),
    "convolution_input": lambda node, shapes, out: 2 * prod(shapes[0]) * prod(shapes[1][1:]),
    "convolution_weight": lambda node, shapes, out: 2 * prod(shapes[-1]) * prod(out[1:]),
}
"""Op → its operations, by the shapes of its operands and of its first result."""
