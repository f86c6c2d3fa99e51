"""Pointwise ops on a product's elements are computed by the product's kernel, before it stores a tile.

before: %2 = matmul(%0, %1)              after: group matmul: %2, %3, reads %0, %1, %b, writes %3
        %3 = add(%2, %b)                        (%2 is in no memory, unless others read it)

So are sums of each tile's columns, where `split_reductions` has cut a sum over the product's rows as tiles lie (a
bias's gradient): another kernel adds up what the tiles give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from genesis.ir.node import Node
from genesis.ir.ops import contraction, ragged
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.sym_int import hint
from genesis.ir.types import bfloat16, float16, float32
from genesis.passes.fusion.cluster_graph import Refused
from genesis.passes.fusion.loop_reads import coordinates
from genesis.passes.product_times import TILE_ROWS, splits_of_tiles

if TYPE_CHECKING:
    from genesis.passes.fusion.cluster import Cluster
    from genesis.passes.fusion.fuse import _Fuser

PRODUCTS = (contraction.matmul, contraction.matmul_sum, ragged.ragged_matmul, ragged.ragged_matmul_sums)
"""Ops whose kernels may have an epilogue."""

MATRICES = (contraction.matmul, contraction.matmul_sum)
"""Those of them that may be streamed."""

DTYPES = (float32, float16, bfloat16)
"""Dtypes of products that have an epilogue: those whose tiles are float32 sums."""

MOST_WEIGHT = 8
"""Maximum weighted ops of an epilogue per element: the tensor cores idle meanwhile. A gelu takes as long there as in a
kernel of its own."""

MOST_WEIGHT_BESIDE = 32
"""Likewise, where one tile's epilogue is computed while another tile has the tensor cores."""

DEPTH_PER_WEIGHT = 16
"""Elements of the inner dimension that take as long on the tensor cores as a weighted op on the sums beside them (an
H200's do 4096 operations a cycle, its lanes 128)."""

MOST_WEIGHT_OF_DEEP = 64
"""Maximum weighted ops of an epilogue beside sums however long these take: compile time grows with each."""

FEW_STORED = 2
"""Values of the product's size that an epilogue may store whatever its sums take: a gelu and what its gradient reads
(H200, a step of GPT-2 16 × 1024 32.25 ms with the gelu in a kernel of its own, 31.86 with both stored by the
product's)."""

MOST_STORED = 3
"""Maximum values of the product's size that an epilogue stores: the gradients of a gate and of what it opens, and the
opened value again, which a weight's gradient reads."""

MOST_READS = 1
"""Maximum values of the product's size that an epilogue reads while registers hold the tile."""

MOST_READS_BESIDE = 2
"""Likewise, where one tile's epilogue waits for them while another tile has the tensor cores: a gate and its factor. A
thread has 32 registers for each at a time."""

SHORT = 4
"""Maximum pointwise ops of an epilogue whose values are loaded while the tile is summed up (as `SHORT_EPILOGUE` of
`codegen/cuda/templates/product_choice.py`)."""

WEIGHT_PER_VALUE = 2.8
"""Weighted ops of a longer epilogue that take as long, exposed, as a kernel of its own takes to read or write a value
for each sum (one H200, both with their gradients: linear + gelu by tanh 16384 × 768 × 3072, 21 weighted ops, 3.5 ps an
element for 2.1 of four values; a gate of silu, 16 weighted ops, 1.9 to 3.3 for 2.9 of six)."""

DEPTH_PER_VALUE = 190
"""Elements of the inner dimension that take as long on the tensor cores as memory takes to read or write a 16-bit value
for each sum: 2 bytes at 3.5 TB/s and 2 operations at 0.66 PFLOP/s (an H200's rates, `codegen/cuda/gpu_model.py`)."""


def merge_epilogues(fuser: _Fuser) -> None:
    """Merge each product's cluster with the loops that read nothing of it but each element where it stands."""
    for product in fuser.values.materialized:
        if product.op not in PRODUCTS or product.dtype not in DTYPES:
            continue
        a = fuser.dag.of[product]
        for b in list(fuser.dag.readers[a]):
            first, second = fuser.clusters[a], fuser.clusters.get(b)
            if second is None or second.kind != "loop":
                continue
            try:
                _require_epilogue(fuser, product, first, second)
                if fuser.dag.waits_for_later(a, b):
                    raise Refused("the product would wait, with all that it reads, for values that are made later")
                fuser.dag.merge(a, b, second.levels)
            except Refused as refusal:
                fuser.refused |= dict.fromkeys(fuser.dag.readers[a].get(b, ()), str(refusal))
                continue
            first.levels.update(second.levels)
            first.weight += second.weight
            del fuser.clusters[b]


def _require_epilogue(fuser: _Fuser, product: Node, first: Cluster, second: Cluster) -> None:
    """Raise Refused if a product's kernel cannot compute a loop that reads it, or had better not."""
    beside = fuser.gpu is not None and product.op in MATRICES and fuser.gpu.stores_beside_sums(product)
    if second.has_inlined or second.size != product.type.numel:
        raise Refused("a product's tile knows neither whole rows nor other elements")
    if second.space is not None and not (beside and _sums_tiles(product, second)):
        raise Refused("a product's tile knows neither whole rows nor whole columns")
    if 1 in product.type.shape[-2:]:
        raise Refused("a tile of one row or column is a vector")
    if second.writes_rows:
        raise Refused("a row is written into memory by a kernel that reads none of it")
    if second.updates:
        raise Refused("updates of memory run together, in one launch for all tensors")
    stored = [x for x in _stored(fuser, first, second) if x.type.numel == second.size]
    beside = beside and len(stored) <= MOST_STORED
    deep = min(hint(product.inputs[0].shape[-1]) // DEPTH_PER_WEIGHT, MOST_WEIGHT_OF_DEEP)
    if first.weight + second.weight > (max(MOST_WEIGHT_BESIDE, deep) if beside else MOST_WEIGHT):
        raise Refused(f"the product's tile would wait for {first.weight + second.weight} weighted ops")
    known = {*first.levels, *second.levels}
    read = dict.fromkeys(x for node in second.levels for x in fuser.reads[node] if x not in known)
    reads = sum(_about_as_large(x, product) for x in read)
    if reads > (MOST_READS_BESIDE if beside else MOST_READS):
        raise Refused("the product's tile would be held while several other values are loaded")
    ops = sum(node.op.kind == "pointwise" for node in known)
    read = dict.fromkeys(x for node in second.levels for x in fuser.values.reads[node] if x not in known)
    moved = sum(_about_as_large(x, product) for x in read)  # inputs, too
    if moved and ops > SHORT and first.weight + second.weight > WEIGHT_PER_VALUE * (moved + len(stored) + 1):
        raise Refused(f"the product's tile would wait for what it reads, and for {first.weight + second.weight} "
                      "weighted ops: in a kernel of their own they take no longer than memory does")
    if (reads > MOST_READS or len(stored) > FEW_STORED) and not _moved_beside(fuser, product, (*known,), stored):
        raise Refused("memory takes longer to move what the product's tiles would read and store than their sums take")
    at = coordinates(((second.size, "x"),)).element
    if any(x in known and e != at for node in second.levels for x, e in fuser.one_loop.reads_at(node, at)):
        raise Refused("it reads other elements of the product than it computes")


def _moved_beside(fuser: _Fuser, product: Node, nodes: Sequence[Node], stored: Sequence[Node]) -> bool:
    """Whether what nodes on a product's elements read and store is moved in the time that its sums take."""
    read = dict.fromkeys(x for node in nodes if node is not product for x in fuser.values.reads[node] if x not in nodes)
    nbytes = sum(x.dtype.itemsize for x in (*stored, *(x for x in read if _about_as_large(x, product))))
    return 2 * hint(product.inputs[0].shape[-1]) >= DEPTH_PER_VALUE * nbytes


def _about_as_large(x: Node, product: Node) -> bool:
    return 2 * hint(x.type.numel) >= hint(product.type.numel)


def _sums_tiles(product: Node, second: Cluster) -> bool:
    """Whether all that a cluster reduces are columns, in splits that tiles of the product are."""
    (*_, rows, columns), partial = product.shape, [x for x, level in second.levels.items() if level == "partial"]
    return (set(second.levels.values()) <= {"pointwise", "partial"} and second.space == ((rows, "r"), (columns, "x"))
            and second.splits == (splits_of_tiles(rows), TILE_ROWS)
            and all(x.op is reduce_splits and x["how"] == "sum" for x in partial))


def _stored(fuser: _Fuser, first: Cluster, second: Cluster) -> set[Node]:
    """The values that a kernel of two clusters would store, as others read them."""
    both = {fuser.dag.of[next(iter(cluster.levels))] for cluster in (first, second)}
    read = {producer for own in both for reader, edges in fuser.dag.readers[own].items() if reader not in both
            for producer, _ in edges}
    return read | fuser.outputs.intersection((*first.levels, *second.levels))
