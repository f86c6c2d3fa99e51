"""How many operations an op takes: what a profile divides by a time, and a pass makes a time of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Final

from genesis.ir.sym_int import hint

if TYPE_CHECKING:
    from genesis.ir.node import Node

PRODUCTS: Final = ("matmul", "matmul_split_k", "ragged_matmul", "ragged_matmul_sums", "linear", "convolution",
                   "convolution_input", "convolution_weight",
                   "sdpa", "flash_attention", "flash_attention_dq", "flash_attention_dkv", "linear_cross_entropy")
"""Names of the ops that are computed as products of matrices."""


def is_product(node: Node) -> bool:
    """Whether an op is computed as products of matrices."""
    return node.op.name in PRODUCTS


def flops_of_nodes(nodes: Iterable[Node]) -> int:
    """Operations of a kernel that computes these nodes."""
    return sum(map(flops_of, nodes))


def flops_of(node: Node) -> int:
    """Operations of one op: two for each multiplication of a product, of the others what an element weighs. Symbolic
    sizes count with their hints."""
    if node.op.kind in ("leaf", "movement", "control", "index", "random"):
        return 0
    name, shapes = node.op.name, [tuple(map(hint, x.type.shape)) for x in node.inputs if type(x.type) is not tuple]
    results = node.types
    out = tuple(map(hint, results[0].shape))
    if name in ("matmul", "matmul_split_k", "linear"):
        return 2 * prod(out) * shapes[0][-1] if name != "matmul_split_k" else 2 * _inner(shapes, out)
    if name in ("ragged_matmul", "ragged_matmul_sums"):
        return 2 * prod(shapes[0]) * out[-1]
    if name in ("sdpa", "flash_attention"):
        *batch, queries, width = shapes[0]
        return 2 * prod(batch) * queries * shapes[1][-2] * (width + shapes[2][-1]) // (2 if node["causal"] else 1)
    if name in ("flash_attention_dq", "flash_attention_dkv"):
        *batch, queries, width = shapes[0]
        return 2 * prod(batch) * queries * shapes[1][-2] * width * (3 if name.endswith("q") else 4)
    if name == "convolution":
        return 2 * prod(out) * prod(shapes[1][1:])
    if name == "convolution_input":
        return 2 * prod(shapes[0]) * prod(shapes[1][1:])
    if name == "convolution_weight":
        return 2 * prod(shapes[-1]) * prod(out[1:])
    return node.op.weight * max([prod(out), *map(prod, shapes)])


def _inner(shapes: Sequence[tuple[int, ...]], out: tuple[int, ...]) -> int:
    """Multiplications of a product of two matrices whose parts are results."""
    (*batch, rows, inner), (*_, columns) = shapes[0], shapes[1]
    return prod(batch) * rows * inner * columns
