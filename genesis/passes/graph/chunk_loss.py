"""Losses by chunks of rows: the logits of a language model, and their gradient, are never whole.

    before: %1: bf16[8192,50304] = linear(%x, %w)        after: %1: bf16[1024,50304] = linear(rows 0 to 1024 of %x, %w)
            %2: bf16[8192] = cross_entropy(%1, %t)              %2: bf16[1024] = cross_entropy(%1, …)
            %3 = cross_entropy_backward(%g, %1, %t)             %3 = cross_entropy_backward(…, %1, …)
            %4: bf16[8192,768] = matmul(%3, %w)                 %4: bf16[1024,768] = matmul(%3, %w)
            %5: bf16[50304,768] = matmul(%3ᵀ, %x)               %5: f32[50304,768] = cast(matmul(%3ᵀ, …))
                                                                %6 = linear(rows 1024 to 2048 of %x, but after %4, %5)
                                                                …
                                                                %9: f32[50304,768] = add(%5, cast(matmul(…)))

What is made of the logits row by row is a *loop* (`row_rules.py` knows how ops treat rows): the loss of each row, the
gradients of the logits, and what leaves it: values of each row, which are put together again, and sums over rows (the
gradients of weight and bias), which are added up in float32. The loop runs once for each chunk of rows, and a chunk
begins when the one before has ended (`recompute`), so that all of them use the same memory. Where anything that large
is read by other ops, or returned, all stays as it is, and `genesis why` tells.

A product's kernel adds to a sum in memory before it stores its tile; that reads and writes the sum once for each chunk.
So chunks are no smaller than it takes: see `most_bytes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import Node, literal, located
from genesis.ir.ops import contraction, loss, movement, pointwise, softmax
from genesis.ir.ops.recompute import recompute
from genesis.ir.ops.splits import accumulated
from genesis.ir.size_divisors import is_multiple
from genesis.ir.sym_int import Size, SymInt, hint, weighed
from genesis.passes.graph.leave_out_rows import leave_out_rows
from genesis.passes.graph.row_rules import REDUCTIONS, Rows, Span, Use, first_use, over_rows, part, use_of
from genesis.passes.groups import MissedFusion

SHARE: Final = 12
"""Where the rest of a program is large, its chunks are too: smaller than a twelfth of what is in memory beside them
they would save little of the whole, and cost as much."""

FEWEST_ROWS: Final = 1024
"""Minimum rows of a chunk on a GPU: adding its gradient of the weight to a sum takes as long, at 3.5 TB/s, as the
product of so many rows (H200), and fewer have too few reductions for all multiprocessors."""

BLOCK: Final = 128
"""Rows of a product's tile: chunks have whole tiles, one more or less than others where they do not come out even."""

LEAST_SAVED: Final = 0.25
"""Minimum part of the logits' bytes that chunks save."""

LARGE: Final = 2
"""A value is large, as logits are, if it has at least half of their elements."""


def chunk_loss(graph: Graph, limit: int, on_gpu: bool = True) -> tuple[Graph, tuple[MissedFusion, ...]]:
    """Compute what is made of logits by chunks of rows, where these have more bytes than the limit.

    Args:
        on_gpu: whether chunks need many rows.

    Returns also what stays whole, and why.
    """
    missed: list[MissedFusion] = []
    graph = leave_out_rows(graph, limit)
    products = [node for node in graph.nodes if node.op in PRODUCTS and hint(node.type.nbytes) > limit]
    reached = _read_by_losses(graph) if products else set()
    products = [node for node in products if node in reached and hint(node.type.numel) > min(
        hint(x.type.numel) for x in node.inputs[:2])]
    for product in reversed(products):  # what comes before a loop stays as it is
        found = loop_of(graph, product)
        if isinstance(found, Loop):
            spans = chunks(found, most_bytes(graph, found, limit, FEWEST_ROWS if on_gpu else 1))
            graph = _by_chunks(graph, found, spans) if _saves(found, len(spans)) else graph
        elif found is not None:
            missed.append(found)
    return graph, tuple(missed)


PRODUCTS: Final = (contraction.linear, contraction.matmul)


def _read_by_losses(graph: Graph) -> set[Node]:
    """The values that a loss may be made of, pointwise and through movement: all other products are none's logits, and
    need no closer look."""
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op in LOSSES or node.op in REDUCTIONS or (node in found and node.op.kind in ("pointwise", "movement")):
            found.update(node.inputs)
    return found


# What is made row by row

@dataclass(frozen=True)
class Loop:
    """What is made of a product row by row.

    Attributes:
        product: the logits.
        units: how many rows there are.
        uses: how each of its nodes treats rows, in the order in which they are made.
        exits: those of them that others read.
    """

    product: Node
    units: int
    uses: dict[Node, Use]
    exits: tuple[Node, ...]

    @property
    def sums(self) -> tuple[Node, ...]:
        """The exits that are sums over rows."""
        return tuple(x for x in self.exits if self.uses[x].result is None)


def loop_of(graph: Graph, product: Node) -> Loop | MissedFusion | None:
    """The loop of a product; why there is none; or None where no loss is made of it."""
    missed = None
    if product not in graph.nodes:  # it was part of another loop
        return None
    for rows, units in _rows_of(graph, product):
        use = first_use(product, rows)
        found = _loop(graph, product, use, units) if use is not None else None
        if isinstance(found, Loop):
            return found
        missed = missed or found
    return missed


def _rows_of(graph: Graph, product: Node) -> Iterator[tuple[Rows, int]]:
    """What the rows of a product may be: all of them, those of a matrix read the other way, or the first of several
    dimensions alone, where others are sliced."""
    shape = product.type.shape
    count = len(shape) - 1
    units = 1
    for size in shape[:-1]:
        units = units * size
    yield Rows(0, count), units
    if count > 1:
        yield Rows(0, 1), shape[0]
        return
    yield Rows(1, 1), shape[1]
    for node in graph.nodes:
        if node.op is movement.reshape and node.inputs[0] is product and node.type.ndim > 2:
            first, inner = node.type.shape[0], units // node.type.shape[0]
            if first * inner == units:
                yield Rows(0, 1, inner), first
            return


def _loop(graph: Graph, product: Node, first: Use, units: int) -> Loop | MissedFusion | None:
    uses = _made_by_rows(graph, product, first, units)
    large = {node for node, use in uses.items()
             if use.result is not None and LARGE * hint(node.type.numel) >= hint(product.type.numel)}
    leading = set(large)  # what is large, and what that is made of
    for node in reversed(uses):
        if node in leading:
            leading.update(x for x in node.inputs if x in uses)
    inside = {node: use for node, use in uses.items() if node in leading or any(x in large for x in node.inputs)}
    if not any(_is_loss(node, use, large) for node, use in inside.items()):
        return None
    read = {x: node for node in graph.nodes if node not in inside for x in node.inputs if x in inside}
    for node in inside:
        if node in large and (node in read or node in graph.roots):
            return MissedFusion(product, read.get(node, node), _reason(product, node, read.get(node)))
    return Loop(product, units, inside, tuple(x for x in inside if x in read or x in graph.roots))


def _made_by_rows(graph: Graph, product: Node, first: Use, units: int) -> dict[Node, Use]:
    """What can be made of the product row by row, and sums over rows of that."""
    uses = {product: first}
    others: set[Node] = set()  # what depends on it otherwise
    for node in graph.nodes:
        if node is product or not any(x in uses or x in others for x in node.inputs):
            continue
        made = not any(x in others or (x in uses and uses[x].result is None) for x in node.inputs)
        use = None
        if made and type(node.type) is not tuple:
            known = [uses[x].result if x in uses else None for x in node.inputs]
            use = use_of(node, known, units)
        if use is None:
            others.add(node)
        else:
            uses[node] = use
    return uses


def _is_loss(node: Node, use: Use, large: set[Node]) -> bool:
    """Does it make one number of each row of something large?"""
    return (use.result is not None and any(x in large for x in node.inputs)
            and (node.op in LOSSES or (node.op in REDUCTIONS and node not in large)))


LOSSES: Final = (loss.cross_entropy, loss.nll_loss, softmax.log_softmax)
"""Ops that only losses are made of."""


def _reason(product: Node, node: Node, reader: Node | None) -> str:
    what = "they are" if node is product else f"{node.op.name} of them is"
    how = f"read by {reader.op.name}, which needs all rows, or what is made of all rows" if reader is not None else (
        "returned: somebody may still read the tensor (`del` it before the loss is computed)")
    return f"logits of {hint(product.type.nbytes) >> 20} MiB are in memory as a whole: {what} {how}"


# How many chunks

def most_bytes(graph: Graph, loop: Loop, limit: int, fewest: int) -> int:
    """Maximum bytes of a chunk's logits: the limit; more where they would be few rows, or where sums are kept over
    chunks and the program holds much beside them."""
    row = hint(loop.product.type.nbytes) // max(hint(_all_rows(loop)), 1)
    return max(limit, fewest * row, _held_beside(graph, loop) // SHARE if loop.sums else 0)


def _all_rows(loop: Loop) -> int:
    """The rows of the product as a matrix."""
    rows = loop.uses[loop.product].result
    assert rows is not None
    found = 1
    for size in loop.product.type.shape[rows.start:-1] if rows.start == 0 else loop.product.type.shape[1:]:
        found = found * size
    return found


def _held_beside(graph: Graph, loop: Loop) -> int:
    """The bytes, about, that lie in memory while the loop runs, but for its own: inputs, and what was made before and
    is read after."""
    held = sum(hint(x.type.nbytes) for x in graph.inputs)
    at = {node: number for number, node in enumerate(graph.nodes)}
    turn, last = at[loop.product], {x: node for node in graph.nodes for x in node.inputs}
    for node, reader in last.items():
        if (node.op.kind not in ("leaf", "movement") and type(node.type) is not tuple and node not in loop.uses
                and at[node] < turn < at[reader]):
            held += hint(node.type.nbytes)
    return held


def _saves(loop: Loop, count: int) -> bool:
    """Do so many chunks need less memory, by a part worth the time that they take? Sums that are rounded to 16 bits in
    the end are twice as large meanwhile, and beside them."""
    nbytes = hint(loop.product.type.nbytes)
    kept = sum(hint(x.type.numel) * accumulated("sum", x.dtype).itemsize for x in loop.sums if x.dtype.itemsize == 2)
    return nbytes - nbytes // count - kept > LEAST_SAVED * nbytes


def chunks(loop: Loop, most: int) -> list[Span]:
    """The rows of each chunk: as many chunks as it takes, or up to two more if then they are equal."""
    units: Size = loop.units
    if isinstance(units, SymInt):
        return _equal_chunks(loop, most)
    nbytes, large = hint(loop.product.type.nbytes), hint(loop.product.type.numel) // LARGE
    count = min(-(-nbytes // most), units)
    block = BLOCK if units >= BLOCK * count else 1
    count = next((n for n in range(count, count + 3) if units % (n * block) == 0), count)
    each, more = divmod(-(-units // block), count)  # the larger ones first: the others have their place in memory
    bounds = [(at * each + min(at, more)) * block for at in range(count)]
    return [Span(first, last, last - first, units, large) for first, last in pairwise([*bounds, units])]


def _equal_chunks(loop: Loop, most: int) -> list[Span]:
    """2, 4, 8, … chunks of a symbolic number of rows, all equal but the last, of 3/4 to 3/2 of what they should have:
    guards say from how many rows on.

    So a chunk's rows are known better than those of the class: they are weighed with what is usual for a chunk.
    """
    units, product = loop.units, loop.product.type
    count = 1
    while units >= 2 * count and 2 * product.nbytes > 3 * count * most:
        count *= 2
    large = hint(product.numel) // LARGE
    if count == 1:
        return [Span(0, units, units, units, large)]
    unit = 16 if is_multiple(units, 16) and units >= 32 * count else 1
    usual = max(most * hint(units) // hint(product.nbytes) // unit, 1)
    each, last = units // (unit * count), units // unit
    step, rest = unit * weighed(each, usual), unit * weighed(last - (count - 1) * each, usual)
    found = [Span(at * each * unit, (at + 1) * each * unit, step, units, large) for at in range(count - 1)]
    return [*found, Span((count - 1) * each * unit, units, rest, units, large)]


# The program by chunks

def _by_chunks(graph: Graph, loop: Loop, spans: Sequence[Span]) -> Graph:
    """The graph with a loop's nodes once for each chunk of rows."""
    parts: dict[Node, list[Node]] = {x: [] for x in loop.exits}
    ended: list[Node] = []
    for span in spans:
        made = _one_chunk(loop, span, ended)
        ended = []
        for node, before in parts.items():
            with located(node.source):
                if loop.uses[node].result is None:
                    before[:] = [_added(before[0] if before else None, made[node])]
                    ended += before
                else:
                    before.append(made[node])
                    ended.append(made[node])
    whole = {node: _together(node, loop.uses[node], found) for node, found in parts.items()}
    replaced: dict[Node, Node] = {}
    for node in graph.nodes:
        if node in loop.uses:
            replaced[node] = whole.get(node, node)
        else:
            inputs = tuple([replaced[x] for x in node.inputs])
            replaced[node] = with_inputs(node, inputs)
    return substitute(graph, replaced)


def _one_chunk(loop: Loop, span: Span, ended: Sequence[Node]) -> dict[Node, Node]:
    """The loop's nodes for some rows, which wait for the results of the chunk before."""
    made: dict[Node, Node] = {}
    for node, use in loop.uses.items():
        operands = []
        with located(node.source):
            for x, rows in zip(node.inputs, use.operands, strict=True):
                if x in made:
                    operands.append(made[x])
                    continue
                y = x if rows is None else part(x, rows, span)
                if node is loop.product and rows is not None:
                    for result in ended:
                        y = recompute(y, result)
                operands.append(y)
            made[node] = over_rows(node, use, operands, span.rows)
    return made


def _added(before: Node | None, x: Node) -> Node:
    """A sum over the rows so far, in float32 where it will be rounded to 16 bits.

    The first is added to 0, as a cast alone is computed where it is read, of a product that is rounded.
    """
    total = accumulated("sum", x.dtype)
    if total is x.dtype:
        return x if before is None else pointwise.add(before, x)
    more = pointwise.cast(x, dtype=total)
    return pointwise.add(more, literal(0.0) if before is None else before)


def _together(node: Node, use: Use, found: Sequence[Node]) -> Node:
    """A result for all rows."""
    with located(node.source):
        y = found[0] if use.result is None else movement.concat(*found, axis=use.result.start)
        if y.dtype is not node.dtype:
            y = pointwise.cast(y, dtype=node.dtype)
        return y if y.type is node.type else movement.reshape(y, shape=node.type.shape)


__all__ = ["Loop", "chunk_loss", "chunks", "loop_of", "most_bytes"]
