"""GPUs: operands of large products that the copy engine cannot bring as they lie are copied.

It brings blocks of matrices whose rows are equally far apart, and begin at multiples of 16 bytes
(`templates/streamed_matmul.py`). Of rows at odd places a thread loads two bytes at a time, and where some are left out
(`hidden[:, :-1]` as one matrix) it computes where each lies. The copies move their bytes twice, and are counted against
what the streamed product saves. Of float32 products those that have all bits gain by it; a thread that copies single
numbers has instructions for them beside its multiply-adds.

    before: %2 = matmul(%0, %1)      after: %2: bf16[4001,4008] = pad(%0, high=(0,7))
                                            %3 = cast(%2, dtype=bf16)                     # a copy
                                            %4: bf16[4001,4001] = slice(%3)
                                            %5 = matmul(%4, …)

    before: %2: bf16[8,2047,1024] = slice(%0)            after: %2: bf16[8,2047,1024] = slice(%0)
            %3: bf16[16376,1024] = reshape(%2)                  %3: bf16[16376,1024] = reshape(%2)
            %4 = matmul(%3, %1)                                 %4 = cast(%3, dtype=bf16) # a copy
                                                                %5 = matmul(%4, %1)
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from genesis.ir.graph import Graph, rewrite, substitute, with_inputs
from genesis.ir.node import Node, located, make
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.movement import pad, reshape, slice
from genesis.ir.size_divisors import divided_by, is_multiple
from genesis.ir.sym_int import hint
from genesis.ir.types import bfloat16, float16, float32
from genesis.passes.fusion.index_map import Expr
from genesis.passes.fusion.operand_view import ONE_SOURCE, operand_view
from genesis.passes.gpu import Gpu
from genesis.passes.graph.memory_order import strides_of
from genesis.passes.graph.snapshots import copied
from genesis.passes.kernel_time import copy_microseconds
from genesis.passes.multiply_add_times import fastest_streamed, streams_sooner
from genesis.passes.product_times import (
    UNALIGNED,
    VECTOR_BYTES,
    in_vectors,
    kind_of,
    product_microseconds,
    streamed_microseconds,
)

SLOWER: Final = 0.15
"""What a product whose operands are found row by row takes more than a streamed one, of the latter's time (H200,
2026-11: logits of 151,936 classes from hidden[:, :-1] 4.37 for 3.80 ms, gradients of their weight 4.48 for 3.79)."""


IN_PAIRS: Final = 1.5
"""How much longer a product by pointers takes where threads copy two or four elements at once, not eight; reckoned."""

FEW_GAIN: Final = 0.8
"""Maximum share of a product's time by pointers that its copies and its streamed form take together, where programs
have a tile or two: the model knows nothing of a tile's end, which no other tile hides there. An H200 took 21.1, 24.6,
23.9 and 19.6 µs where the sum is 16.2, 21.2, 22.8 and 17.3, and 28.1, 39.3, 46.0 and 32.8 by pointers (2026-11)."""

SINGLY: Final = 1.1
"""How much longer a product of multiply-adds takes where threads copy numbers one by one (H200: a linear layer of
1274 × 1265 × 1619 with both gradients took 495 µs, where its model says 402, and products of whole vectors 1.06 of
that)."""


def align_operands(graph: Graph, gpu: Gpu) -> Graph:
    """The graph with copies of the operands that keep a large product from being streamed."""
    graph = _written_in_rows(graph)
    copies: dict[Node, Node] = {}  # one of each matrix, for all products that read it

    def rule(node: Node) -> Node | None:
        if node.op is not matmul or node.type.ndim != 2:
            return None
        if node.dtype is float32:
            return _added_up(node, gpu)
        if node.dtype not in (float16, bfloat16):
            return None
        if not gpu.stores_beside_sums(node):
            return _of_few_tiles(node, gpu)
        found = _gathered(node, gpu, copies) or node
        return _aligned(found, gpu) or found
    return rewrite(graph, rule)


def _streamed_microseconds(product: Node, gpu: Gpu) -> float:
    return 2e6 * hint(product.type.numel) * hint(product.inputs[0].type.shape[1]) / gpu.product_rate


# Rows at odd places

def _aligned(node: Node, gpu: Gpu) -> Node | None:
    odd = [x for x in node.inputs if not in_vectors(x)]
    copies = sum(copy_microseconds(x, gpu) for x in odd)
    time = product_microseconds(node, 1, gpu) * (1.0 if kind_of(node) in UNALIGNED else IN_PAIRS)
    if not odd or time < _streamed_microseconds(node, gpu) + copies:
        return None
    return _over_copies(node, odd)


def _of_few_tiles(node: Node, gpu: Gpu) -> Node | None:
    """The same of a product whose programs have a tile or two, where threads load single elements."""
    if not gpu.streams(node) or kind_of(node) not in UNALIGNED:
        return None
    odd = [x for x in node.inputs if not in_vectors(x)]
    copies = sum(copy_microseconds(x, gpu) for x in odd)
    if not odd or streamed_microseconds(node, gpu) + copies > FEW_GAIN * product_microseconds(node, 1, gpu):
        return None
    return _over_copies(node, odd)


def _over_copies(node: Node, odd: list[Node]) -> Node:
    """The product over copies of these of its operands."""
    return make(node.op, tuple(_in_vectors(x) if x in odd else x for x in node.inputs), node.attrs, node.source)


def _added_up(node: Node, gpu: Gpu) -> Node | None:
    """The same of float32 whose bits all count."""
    if kind_of(node) != "ieee" or not gpu.adds_up_streams(node):
        return None
    odd = [x for x in node.inputs if not in_vectors(x)]
    copies = sum(copy_microseconds(x, gpu) for x in odd)
    rows, columns = node.type.shape
    streamed = fastest_streamed(rows, columns, node.inputs[0].type.shape[1], gpu.multiprocessors)
    if not odd or not streams_sooner(streamed + copies, SINGLY * product_microseconds(node, 1, gpu)):
        return None
    return _over_copies(node, odd)


def _in_vectors(x: Node) -> Node:
    """The same elements, copied to rows of whole vectors; in columns where they lie in columns."""
    strides = strides_of(x)
    return copied_in_vectors(x, turned=strides is not None and strides[0] == 1 != strides[1])


def copied_in_vectors(x: Node, *, turned: bool) -> Node:
    """The same matrix, copied to rows of whole vectors; to columns where it is `turned`."""
    if turned:
        return swap_last(copied_in_vectors(swap_last(x), turned=False))
    rows, columns = x.type.shape
    vector = VECTOR_BYTES // x.dtype.itemsize
    full = -(-columns // vector) * vector
    if is_multiple(columns, vector):
        return copied(x)
    return slice(copied(pad(x, low=(0, 0), high=(0, full - columns))), starts=(0, 0), stops=(rows, columns),
                 steps=(1, 1))


def brought_by_blocks(x: Node) -> bool:
    """Can the copy engine bring blocks of this matrix as it lies, and of all sizes of its class?"""
    view, vector = operand_view(x), VECTOR_BYTES // x.dtype.itemsize
    if not (view.batch.is_constant and _is_step(view.row) and _is_step(view.column)):
        return False
    (_, row), (_, column) = (*view.row.terms, *view.column.terms)
    stride, unit, length = (row, column, x.type.shape[1]) if column == 1 else (column, row, x.type.shape[0])
    return (unit == 1 and is_multiple(stride, vector) and is_multiple(view.batch.constant, vector)
            and hint(stride) >= hint(length))


# Rows that are not equally far apart

def _gathered(node: Node, gpu: Gpu, copies: dict[Node, Node]) -> Node | None:
    """The product over copies of matrices from which rows were left out; None if there are none, or they take longer
    than is saved."""
    parts = {x: matrix for x in node.inputs if (matrix := _with_gaps(x)) is not None}
    new = {matrix for matrix in parts.values() if matrix not in copies}
    if not parts or sum(copy_microseconds(x, gpu) for x in new) > SLOWER * _streamed_microseconds(node, gpu):
        return None
    copies.update((x, copied(x)) for x in new)
    inputs = tuple([_over(x, parts[x], copies[parts[x]]) if x in parts else x for x in node.inputs])
    return make(node.op, inputs, node.attrs, node.source)


def _written_in_rows(graph: Graph) -> Graph:
    """The graph in which what is computed for products alone lies as they read it: the kernel that computes it writes
    it there, which no copy can be cheaper than.

        before: %1: bf16[64,3,224,224] = cast(%0)        after: %1: bf16[64,3,224,224] = cast(%0)
                %2: bf16[12544,768] = patches of %1             %2: bf16[12544,768] = patches of %1
                %3 = matmul(%2, …)                              %3: bf16[12544,768] = cast(%2, dtype=bf16)  # a copy
                                                                %4 = matmul(%3, …)
    """
    operands = dict.fromkeys(x for node in graph.nodes if node.op is matmul and node.type.ndim == 2 and
                             node.dtype in (float16, bfloat16) for x in node.inputs)
    matrices = {matrix for x in operands if (matrix := _with_gaps(x)) is not None}
    users = Counter(x for node in graph.nodes for x in node.inputs) if matrices else Counter[Node]()
    users.update(graph.roots)
    written = {matrix for matrix in matrices if _is_read_so_alone(matrix, users)}
    if not written:
        return graph
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        with located(node.source):
            new = with_inputs(node, tuple([replaced[x] for x in node.inputs]))
            replaced[node] = copied(new) if node in written else new
    return substitute(graph, replaced)


def _is_read_so_alone(matrix: Node, users: Counter[Node]) -> bool:
    """Are all views from a computed value to a matrix read by the next alone?"""
    x = matrix
    while x.op in ONE_SOURCE:
        x = x.inputs[0]
        if users[x] != 1:
            return False
    return x.op.kind == "pointwise"


def _with_gaps(x: Node) -> Node | None:
    """The first matrix among the views that an operand is made by whose rows or columns are not equally far apart in
    memory, if the operand's are not, and rows of a copy were whole vectors."""
    found = None
    if not _in_steps(x):
        while x.op in ONE_SOURCE:
            if x.op is reshape and x.type.ndim == 2 and not _in_steps(x):
                found = x
            x = x.inputs[0]
    return found if found is not None and divided_by(found.type.shape[1], VECTOR_BYTES // x.dtype.itemsize) else None


def _in_steps(x: Node) -> bool:
    """Are the rows of a matrix equally far apart in memory, and its columns?"""
    view = operand_view(x)
    return _is_step(view.row) and _is_step(view.column)


def _is_step(part: Expr) -> bool:
    return len(part.terms) == 1 and part.terms[0][0].kind == "var"


def _over(x: Node, matrix: Node, copy: Node) -> Node:
    """The views of a matrix as those of its copy."""
    if x is matrix:
        return copy
    return make(x.op, (_over(x.inputs[0], matrix, copy), *x.inputs[1:]), x.attrs, x.source)
