"""Concatenations whose parts are written where they lie, so that no kernel copies them.

before: attention_dq %1                                  after: attention_dq %1         (a slice of %4)
        attention_dkv %2, %3                                    attention_dkv %2, %3    (slices of %4)
        loop %4 = concat(%1, %2, %3), %5 = sum(%4)              joined %4
                                                                loop %5 = sum(%4)

It is decided when all else is fused: what one kernel computes and concatenates has no parts in memory, and stays so. A
part is a slice if its kernel can write with strides, in whole sectors of memory, and nobody else reads it. If one part
of a concatenation cannot be a slice, all are copied, and `genesis why` says which and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Final

from genesis.ir.node import Node
from genesis.ir.ops import contraction, movement
from genesis.ir.ops.splits import reduce_splits
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import hint
from genesis.passes.fusion.epilogues import DTYPES, MOST_WEIGHT
from genesis.passes.fusion.index_map import ZERO, Expr, flatten, offset, replaced_by, unflatten, variable
from genesis.passes.fusion.materialize import maker, weight
from genesis.passes.fusion.operand_view import OperandView, separated
from genesis.passes.groups import Slice

if TYPE_CHECKING:
    from genesis.passes.fusion.cluster import Cluster
    from genesis.passes.fusion.fuse import _Fuser

SECTOR: Final = 32
"""Bytes of memory that a GPU writes at once: of a shorter run it has to read the rest first."""

VECTOR: Final = 16
"""Bytes that a thread stores at once, and what the copy engine wants starts and strides to be multiples of."""

LEAST_ALONE: Final = 4 << 20
"""Bytes of a pointwise part from which on a launch of its own (2 µs) takes less than a copy of it (3.5 TB/s, H200).
Smaller ones are computed together, in one launch for all of a structure."""

Push = Callable[[Expr], Expr]
"""The place of an element in a part → its place in the whole."""


def slices_of(fuser: _Fuser) -> dict[Node, Slice]:
    """The values that are to be written where their concatenation lies. What is refused is noted with the fuser."""
    found: dict[Node, Slice] = {}
    joined: set[Node] = set()
    readers = Counter(x for node in fuser.values.materialized for x in fuser.values.reads[node])
    for whole in fuser.values.materialized:
        parts = list(_parts(whole, lambda e: e, fuser.values.reads))
        if (len(parts) < 2 and not _is_permuted_product(fuser, whole)) or not _is_stored(fuser, whole):
            continue
        made = [Slice(base, fuser.values.name[whole], push(variable("e", base.type.numel))) for base, push in parts]
        times = Counter(base for base, _ in parts)
        reasons = ["this part is put together of slices itself" if each.part in joined
                   else _refusal(fuser, whole, each, readers[each.part] == times[each.part] == 1) for each in made]
        together = _computed_together(fuser, [base for base, _ in parts])
        reasons = [why or (TOGETHER if each.part in together else None)
                   for why, each in zip(reasons, made, strict=True)]
        if not any(reasons):
            found.update((each.part, each) for each in made)
            joined.add(whole)
        elif any(_writes_with_strides(fuser, base, whole) for base, _ in parts):
            fuser.refused.update(((each.part, whole), f"{why}: the concatenation is copied") for each, why in zip(
                made, reasons, strict=True) if why)
    return found


def _is_permuted_product(fuser: _Fuser, whole: Node) -> bool:
    """Is it a batch of products with its dimensions in another order, as gradients of permuted batches are?"""
    if whole.op is not movement.permute or whole.type.ndim < 3:
        return False
    product = whole.inputs[0]
    return product.op is contraction.matmul and product in fuser.values.reads[whole]


def computed_apart(fuser: _Fuser) -> set[tuple[Node, Node]]:
    """(part, concatenation) of pointwise parts that kernels write which there are anyway, if the concatenation's does
    not compute them: a little work on a product's elements, or on rows that are reduced. Where all other parts are such
    ones, too, or results of products and attention."""
    found: set[tuple[Node, Node]] = set()
    readers: dict[Node, list[Node]] = {}
    for node in fuser.values.materialized:
        for x in fuser.reads[node]:
            readers.setdefault(x, []).append(node)
    for whole in fuser.values.materialized:
        parts = [base for base, _ in _parts(whole, lambda e: e, fuser.values.reads)]
        if len(parts) < 2 or any(
                readers.get(x) != [whole] or fuser.values.name.get(x, x) in fuser.outputs for x in parts):
            continue
        apart = [x for x in parts if x.op.kind == "pointwise" and (
            _is_epilogue(fuser, x, readers) or _reads_own_rows(fuser, x))]
        if apart and all(x in apart or maker(x).op.opaque is not None for x in parts):
            found.update((x, whole) for x in apart)
    return found


def _reads_own_rows(fuser: _Fuser, part: Node) -> bool:
    """Is a value computed from reductions of its own rows?"""
    seen, pending = {part}, [part]
    while pending:
        for x in fuser.reads[pending.pop()]:
            if x.op.kind == "reduction" and x.op is not reduce_splits and x.inputs[0].type.numel == part.type.numel:
                return True
            if x not in seen and x.op.kind == "pointwise" and x.type.numel == part.type.numel:
                seen.add(x)
                pending.append(x)
    return False


def _is_epilogue(fuser: _Fuser, part: Node, readers: Mapping[Node, list[Node]]) -> bool:
    """Is a value pointwise work on one product, which nothing else reads, and as little as a product's kernel does?"""
    chain, pending, product = {part}, [part], None
    while pending:
        for x in fuser.reads[pending.pop()]:
            if x in chain or x.type.numel != part.type.numel:
                continue
            if x.op is contraction.matmul and product is None and x.dtype in DTYPES:
                product = x
            elif x.op.kind != "pointwise" or x in fuser.outputs:
                return False
            else:
                pending.append(x)
            chain.add(x)
    own = [*chain - {part}]
    return (product is not None and chain.issuperset(y for x in own for y in readers[x])
            and sum(map(weight, chain)) <= MOST_WEIGHT)


def slice_view(found: Slice, beside: bool = False) -> OperandView | None:
    """Where a slice's element (batch, row, column) lies, as three parts of an address; None if it has none such.

    Args:
        beside: the last of the batch's dimensions stands between rows and columns, as attention's heads do with
            `beside`.
    """
    *batches, rows, columns = shape = found.part.shape
    if beside:
        *batches, rows, heads, columns = shape
        batches.append(heads)
    batch = unflatten(variable("b", prod(batches)), batches)
    row, column = variable("i", rows), variable("j", columns)
    point = (*batch[:-1], row, batch[-1], column) if beside else (*batch, row, column)
    return separated(found.whole, replaced_by(found.address, flatten(point, shape)))


def _parts(node: Node, push: Push, ends: Container[Node], top: bool = True) -> Iterator[tuple[Node, Push]]:
    """(value, where its elements lie in the whole) of all that a node concatenates, through views up to these ends."""
    if node in ends and not top:
        yield node, push
    elif node.op is movement.reshape:
        yield from _parts(node.inputs[0], push, ends, False)
    elif node.op is movement.permute:
        x, axes, shape = node.inputs[0], node["axes"], node.shape

        def permuted(e: Expr) -> Expr:
            point = unflatten(e, x.shape)
            return push(flatten([point[axis] for axis in axes], shape))
        yield from _parts(x, permuted, ends, False)
    elif node.op is movement.concat:
        start = 0
        for x in node.inputs:
            yield from _parts(x, _behind(x, node, start, push), ends, False)
            start += x.shape[node["axis"]]
    else:
        yield node, push


def _behind(x: Node, concat: Node, start: int, push: Push) -> Push:
    """Where the elements of an operand lie that begins there along the axis."""
    axis = concat["axis"]

    def moved(e: Expr) -> Expr:
        point = list(unflatten(e, x.shape))
        point[axis] = offset(point[axis], start)
        return push(flatten(point, concat.shape))
    return moved


def _is_stored(fuser: _Fuser, whole: Node) -> bool:
    """Does a loop write it, and not for another loop alone, over memory of the program's own?"""
    own = fuser.dag.of[whole]
    cluster = fuser.clusters[own]
    if cluster.kind != "loop" or cluster.levels[whole] != "pointwise" or cluster.updates:
        return False
    name = fuser.values.name[whole]
    if name in fuser.outputs or whole in fuser.outputs:
        return all(value is not name for _, value in fuser.graph.updates)
    return any(producer is whole for edges in fuser.dag.readers[own].values() for producer, _ in edges)


def _refusal(fuser: _Fuser, whole: Node, made: Slice, only_reader: bool) -> str | None:
    """Why a part is no slice; None if it is one."""
    part = made.part
    own = fuser.dag.of.get(part)
    if own is None:
        return "this part is in memory before"
    if own == fuser.dag.of[whole]:
        return "the kernel that concatenates computes this part"
    if not only_reader or fuser.values.name[part] in fuser.outputs:
        return "others read this part, too"
    cluster = fuser.clusters[own]
    if not _writes_with_strides(fuser, part, whole):
        return f"the kernel of this part ({cluster.kind}) writes a whole memory"
    return _scattered(cluster, made)


TOGETHER: Final = "small pointwise parts are computed in one launch"


def _computed_together(fuser: _Fuser, parts: Sequence[Node]) -> list[Node]:
    """The parts that small pointwise kernels make, if there are several: `join_equal_groups` may make them one."""
    found = [x for x in parts if x in fuser.dag.of and (own := fuser.clusters[fuser.dag.of[x]]).kind == "loop"
             and own.space is None and hint(x.type.nbytes) < LEAST_ALONE]
    return found if len(found) > 1 else []


def _writes_with_strides(fuser: _Fuser, part: Node, whole: Node) -> bool:
    """Is the part made by another kernel, which could write it anywhere?"""
    own = fuser.dag.of.get(part)
    if own is None or own == fuser.dag.of[whole]:
        return False
    cluster = fuser.clusters[own]
    if cluster.kind == "loop":
        return (cluster.levels[part] in ("pointwise", "row") and part.op is not reduce_splits
                and not cluster.updates and not cluster.writes_rows)
    return cluster.kind == "attention_backward" or (
        cluster.kind == "matmul" and any(node.op is contraction.matmul for node in cluster.levels))


def _scattered(cluster: Cluster, made: Slice) -> str | None:
    """Why a kernel had better not write where a slice lies; None if it may."""
    size, whole_run = made.part.dtype.itemsize, made.part.type.numel
    run, aligned = 1, is_multiple(made.address.constant * size, VECTOR)
    for atom, k in made.address.terms:
        if k.__class__ is int and k == 1:
            plain = atom.inner is None or (atom.kind == "mod" and atom.inner == variable("e", whole_run))
            run = 0 if not plain else whole_run if atom.inner is None else atom.number
            aligned &= atom.inner is None or is_multiple(run * size, VECTOR)
        else:
            aligned &= is_multiple(k * size, VECTOR)
    if hint(run) * size < SECTOR:
        return f"neighbours of this part are {hint(run) * size} bytes there"
    by_pointers = cluster.kind == "matmul" and hint(prod(made.part.shape[:-2])) > 1  # batches are not streamed
    if not aligned and not by_pointers:
        return f"this part lies at no multiple of {VECTOR} bytes"
    if cluster.kind != "loop":
        op = maker(made.part)
        view = slice_view(made, beside=cluster.kind != "matmul" and op["beside"])
        if view is None or view.column != variable("j", made.part.shape[-1]) or (
                cluster.kind == "matmul" and not _one_stride(view.row)):
            return "the rows of this part have no one distance there"
    return None


def _one_stride(row: Expr) -> bool:
    """Are rows equally far apart?"""
    return row == ZERO or (len(row.terms) == 1 and row.terms[0][0].kind == "var")
