"""GPUs that stream products: a sum of products of matrices is one product that has several pairs of operands.

A value that several layers read (queries, keys and values; a gate and what it opens) has a gradient for each of them.
Each would be stored, and read again by the kernel that adds them up; and a product over few terms, as a low-rank layer
beside a large one has, takes the time of writing its result. A streamed product's loop over the inner dimension goes on
with the next pair's blocks instead, and the sum is rounded once.

All pairs of a product lie alike, in whole vectors: a small operand that lies otherwise than that of the longest pair is
copied. A number that multiplies a term is a factor of its first operand where that is smaller.

    before: %4: bf16[8192,2048] = matmul(%0, %1)         after: %4: bf16[8192,2048] = matmul_sum(%0, %1, %2, %3)
            %5: bf16[8192,2048] = matmul(%2, %3)
            %6: bf16[8192,2048] = add(%4, %5)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Final

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops.contraction import matmul, matmul_sum
from genesis.ir.ops.movement import reshape
from genesis.ir.ops.pointwise import mul
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import hint
from genesis.ir.types import bfloat16, float16
from genesis.passes.gpu import Gpu
from genesis.passes.graph.align_operands import brought_by_blocks, copied_in_vectors
from genesis.passes.graph.memory_order import strides_of
from genesis.passes.graph.scale_products import SMALLER
from genesis.passes.graph.sum_terms import Joined, readers, sums_of, with_joined
from genesis.passes.product_times import VECTOR_BYTES, in_vectors

VECTOR: Final = VECTOR_BYTES // 2
"""Elements of 16 bits in steps of which the copy engine finds rows."""

MOST_PAIRS: Final = 4
"""Most pairs of one product: each has two maps among the kernel's parameters, and a branch in its loads."""


@dataclass(frozen=True)
class _Term:
    """A term of a sum: a product that is multiplied by some numbers.

    Attributes:
        node, product: the term, and the product that it is.
        brought: which operands the copy engine brings as they lie.
        turned: of which operands columns, not rows, lie side by side.
        wanted: of which they shall.
    """

    node: Node
    product: Node
    numbers: tuple[Node, ...]
    brought: tuple[bool, bool]
    turned: tuple[bool, bool]
    wanted: tuple[bool, bool]

    def may_lie_as(self, wanted: tuple[bool, bool]) -> bool:
        """Are its operands turned so, or small enough to be copied?"""
        return all((lies and now is then) or _is_small(x, self.product)
                   for x, lies, now, then in zip(self.product.inputs, self.brought, self.turned, wanted, strict=True))

    def pair(self, replaced: Mapping[Node, Node]) -> list[Node]:
        """The operands, the first multiplied by the numbers, as they shall lie."""
        left, right = (replaced[x] for x in self.product.inputs)
        lies, now = self.brought, self.turned
        if self.numbers:  # what is computed anew lies in rows
            left = reduce(mul, [replaced[x] for x in self.numbers], left)
            lies, now = (is_multiple(left.type.shape[1], VECTOR), lies[1]), (False, now[1])
        return [x if kept and is_so is then else copied_in_vectors(x, turned=then)
                for x, kept, is_so, then in zip((left, right), lies, now, self.wanted, strict=True)]


def sum_products(graph: Graph, gpu: Gpu) -> Graph:
    """The graph with such sums as one product; the graph itself if there are none."""
    users = readers(graph)
    sums: dict[Node, Joined] = {}
    for node, terms in sums_of(graph, users).items():
        if node.type.dtype not in (float16, bfloat16):
            continue
        products = [found for term in terms if (found := _term(term, node, users, gpu)) is not None]
        longest = max(products, key=lambda x: hint(x.product.inputs[0].shape[-1]), default=None)
        if longest is None:
            continue
        joined = [replace(x, wanted=longest.turned) for x in products if x.may_lie_as(longest.turned)][:MOST_PAIRS]
        if len(joined) > 1:
            known = {x.node for x in joined}
            sums[node] = Joined([x for x in terms if x not in known], partial(_one_product, joined))
    return with_joined(graph, sums)


def _one_product(terms: list[_Term], replaced: Mapping[Node, Node]) -> Node:
    return matmul_sum(*(x for term in terms for x in term.pair(replaced)))


def _product_in(term: Node) -> tuple[Node, list[Node]]:
    """What a term is a view of, and the numbers that multiply it on the way."""
    numbers = []
    while True:
        if term.op is mul and sum(map(_is_number, term.inputs)) == 1:
            number = next(filter(_is_number, term.inputs))
            numbers.append(number)
            term = next(x for x in term.inputs if x is not number)
        elif term.op is reshape:
            term = term.inputs[0]
        else:
            return term, numbers


def _is_number(x: Node) -> bool:
    return type(x.type) is not tuple and x.type.weak and not x.type.ndim


def _read_once(term: Node, product: Node, users: Counter[Node]) -> bool:
    """Does nothing else read a term, or what it is made of?"""
    while term is not product and users[term] == 1:
        term = next(x for x in term.inputs if not _is_number(x))
    return term is product and users[product] == 1


def _term(term: Node, whole: Node, users: Counter[Node], gpu: Gpu) -> _Term | None:
    """A term of a sum as a product; None for one that is no streamed product that nothing else reads, or whose factor
    stays behind it."""
    product, numbers = _product_in(term)
    if product.op is not matmul or product.type.ndim != 2 or term.type != whole.type or not (
            _read_once(term, product, users) and gpu.stores_beside_sums(product)
            and all(map(in_vectors, product.inputs))):
        return None
    if numbers and not (product.dtype is bfloat16 and _is_small(product.inputs[0], product)):
        return None
    strides = [strides_of(x) for x in product.inputs]
    if any(found is None or 1 not in found for found in strides):
        return None
    left, right = (found is not None and found[-1] != 1 for found in strides)
    brought = [brought_by_blocks(x) for x in product.inputs]
    if not all(lies or _is_small(x, product) for x, lies in zip(product.inputs, brought, strict=True)):
        return None
    return _Term(term, product, tuple(numbers), (brought[0], brought[1]), (left, right), (left, right))


def _is_small(operand: Node, product: Node) -> bool:
    """Is it so much smaller than the product that a kernel of its own takes less than is saved?"""
    return SMALLER * hint(operand.type.numel) <= hint(product.type.numel)
