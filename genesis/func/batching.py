"""vmap: a function of one example as a function of a batch, by rewriting what it records.

The function runs once on stand-ins for one example. Every recorded op that depends on a stand-in is made anew with a
leading batch dimension; what does not depend on one is shared. Ops without a rule are decomposed into ops that have
one; where that ends, the function is called for each example and the results are stacked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from genesis.ir.errors import Overwritten, failure
from genesis.ir.graph import Graph, topological
from genesis.ir.node import Node, unique
from genesis.ir.ops import control, leaves, movement
from genesis.ir.types import tensor_type
from genesis.ops.shape import movedim, select, stack
from genesis.recording import TensorBase, read, wrap


class NotBatchable(Exception):
    """An op has no rule and no decomposition."""


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error",
         *, chunk_size: int | None = None) -> Callable[..., Any]:
    """func over a batch: each argument's dimension `in_dims` counts examples, which func sees one at a time.

    Args:
        func: of tensors (and anything else), to a tensor or a tuple of them; it does not read values.
        in_dims: an int for all arguments, or one for each; None for an argument that all examples share.
        out_dims: where the examples are counted in the results.
        randomness: "error", "different" or "same" numbers for each example.
        chunk_size: examples to take at a time.

    Raises:
        ValueError: the arguments' batches differ in size, or there is none.
        RuntimeError: random numbers are drawn with randomness="error".

    >>> import genesis
    >>> genesis.func.vmap(genesis.dot)(genesis.ones(3, 2), genesis.arange(6.0).reshape(3, 2))
    tensor([1., 5., 9.])
    """
    @functools.wraps(func)
    def over_batch(*args: Any, **kwargs: Any) -> Any:
        dims = list(in_dims) if isinstance(in_dims, (tuple, list)) else [in_dims] * len(args)
        if len(dims) != len(args):
            raise failure("vmap", f"in_dims has {len(dims)} entries for {len(args)} arguments", error=ValueError)
        sizes = {x.type.shape[d] for x, d in zip(args, dims, strict=True)
                 if isinstance(x, TensorBase) and d is not None}
        if len(sizes) != 1:
            raise failure("vmap", f"expected one batch size, got {sorted(sizes) or 'none'}", error=ValueError)
        (size,) = sizes
        if chunk_size is not None and size > chunk_size:
            parts = [over_batch(*_chunk(args, dims, start, min(chunk_size, size - start)), **kwargs)
                     for start in range(0, size, chunk_size)]
            return _concatenated(parts, out_dims)
        front: list[Any] = [movedim(x, d, 0) if _mapped(x, d) else x
                 for x, d in zip(args, dims, strict=True)]
        mapped = [isinstance(x, TensorBase) and d is not None for x, d in zip(args, dims, strict=True)]
        try:
            found = _rewritten(func, front, mapped, kwargs, size, randomness)
        except NotBatchable:
            found = _looped(func, front, mapped, kwargs, size)
        return _placed(found, out_dims)
    return over_batch


def _mapped(x: Any, dim: Any) -> bool:
    return isinstance(x, TensorBase) and dim is not None


def _chunk(args: Any, dims: list[Any], start: int, length: int) -> list[Any]:
    from genesis.ops.shape import narrow
    return [narrow(x, d, start, length) if _mapped(x, d) else x
            for x, d in zip(args, dims, strict=True)]


def _concatenated(parts: list[Any], out_dims: Any) -> Any:
    from genesis.ops.shape import cat
    if isinstance(parts[0], (tuple, list)):
        each = out_dims if isinstance(out_dims, (tuple, list)) else [out_dims] * len(parts[0])
        return type(parts[0])(cat(list(xs), d) for xs, d in zip(zip(*parts, strict=True), each, strict=True))
    return cat(parts, out_dims)


def _placed(found: Any, out_dims: Any) -> Any:
    """The results with their batch where it is wanted."""
    if isinstance(found, (tuple, list)):
        each = out_dims if isinstance(out_dims, (tuple, list)) else [out_dims] * len(found)
        return type(found)(_placed(x, d) for x, d in zip(found, each, strict=True))
    return found if out_dims == 0 else movedim(found, 0, out_dims)


def _looped(func: Callable[..., Any], args: list[Any], mapped: list[bool], kwargs: Any, size: int) -> Any:
    """The function called for each example."""
    rows = [func(*(select(x, 0, i) if m else x for x, m in zip(args, mapped, strict=True)), **kwargs)
            for i in range(size)]
    if isinstance(rows[0], (tuple, list)):
        return type(rows[0])(stack(list(column)) for column in zip(*rows, strict=True))
    return stack(rows)


def _rewritten(func: Callable[..., Any], args: list[Any], mapped: list[bool], kwargs: Any, size: int,
               randomness: str) -> Any:
    """The function's program for one example, rewritten for all."""
    batch = Batch(size, randomness)
    given = [wrap(batch.stand_in(read(x))) if m else x for x, m in zip(args, mapped, strict=True)]
    try:
        result = func(*given, **kwargs)
    except Overwritten:
        raise failure("vmap", "the function reads a value, which differs between examples",
                      hint="compute with it instead: where() for if, index_select for x[i]") from None
    several = isinstance(result, (tuple, list))
    results = list(result) if several else [result]
    for x in results:
        if not isinstance(x, TensorBase):
            raise failure("vmap", f"the function must return tensors, got {type(x).__name__}", error=ValueError)
    nodes = _without_gradients([read(x) for x in results])
    found = [wrap(node) for node in batch.all_of(nodes)]
    return type(result)(found) if several else found[0]


def _without_gradients(nodes: list[Node]) -> list[Node]:
    """The nodes with the gradients among them written out."""
    if not any(node.op is control.grad for node in topological(nodes)):
        return nodes
    from genesis.passes.autodiff import autodiff
    return list(autodiff(Graph((), tuple(nodes))).roots)


Rule = Callable[["Batch", Node, list[Node]], Node]


class Batch:
    """The rewriting of one program.

    Attributes:
        size: how many examples there are.
    """

    def __init__(self, size: int, randomness: str):
        self.size, self._randomness = size, randomness
        self._batched: dict[Node, Node] = {}
        self._shared: set[Node] = set()
        self._several: dict[Node, tuple[Node, ...]] = {}  # what ops with several results were decomposed into

    def stand_in(self, whole: Node) -> Node:
        """A leaf for one example of a batch."""
        kind = tensor_type(whole.type.shape[1:], whole.type.dtype, whole.type.device)
        hole = unique(leaves.data, (), (kind,), kind)
        self._batched[hole] = whole
        return hole

    def all_of(self, nodes: list[Node]) -> list[Node]:
        """The nodes for all examples; one that does not depend on them is repeated."""
        for node in topological(nodes):
            self._visit(node)
        return [self.batched(node) for node in nodes]

    def _visit(self, node: Node) -> None:
        if node in self._batched or node in self._shared:
            return
        if node.op.kind == "random" and self._randomness != "same":
            if self._randomness == "error":
                raise failure("vmap", "random numbers are drawn inside", hint="randomness='different' or 'same'")
            self._batched[node] = node.op(*node.inputs, **{**node.attributes,
                                                          "shape": (self.size, *node["shape"])})
            return
        if node.op is control.item and (part := self.result(node)) is not None:
            self._visit(part)
            if part in self._batched:
                self._batched[node] = self._batched[part]
            else:
                self._shared.add(node)
            return
        if not any(x in self._batched for x in node.inputs):
            if node.op.kind == "composite" and self._randomness != "same" and _draws(node):
                self._decompose(node)
            else:
                self._shared.add(node)
            return
        rule = RULES.get(node.op.name) or BY_KIND.get(node.op.kind)
        if rule is None:
            self._decompose(node)
            return
        self._batched[node] = rule(self, node, list(node.inputs))

    def _decompose(self, node: Node) -> None:
        if node.op.decompose is None:
            raise NotBatchable(node.op.name)
        parts = node.op.decompose(*node.inputs, **node.attributes)
        if isinstance(parts, tuple):
            for part in topological(parts):
                self._visit(part)
            self._several[node] = parts
            self._shared.add(node)
        else:
            for part in topological((parts,)):
                self._visit(part)
            if parts in self._batched:
                self._batched[node] = self._batched[parts]
            else:
                self._shared.add(node)

    def result(self, node: Node) -> Node | None:
        """One result of an op with several that was decomposed."""
        parts = self._several.get(node.inputs[0])
        return None if parts is None else parts[node["index"]]

    def is_batched(self, node: Node) -> bool:
        """Does it differ between examples?"""
        return node in self._batched

    def batched(self, node: Node) -> Node:
        """The node with a leading batch dimension."""
        found = self._batched.get(node)
        if found is not None:
            return found
        one = movement.reshape(node, shape=(1, *node.type.shape))
        return movement.expand(one, shape=(self.size, *node.type.shape))


def _draws(node: Node) -> bool:
    return node.op.name in ("uniform", "normal", "integers", "dropout")


def _pointwise(batch: Batch, node: Node, operands: list[Node]) -> Node:
    return node.op(*(x if x.type.weak else batch.batched(x) for x in operands), **node.attributes)


def _deeper(batch: Batch, node: Node, operands: list[Node]) -> Node:
    """Ops whose axes count from the front."""
    changed = {name: tuple(axis + 1 for axis in value) if name == "axes" else value + 1 if name == "axis" else value
               for name, value in node.attributes.items()}
    return node.op(*map(batch.batched, operands), **changed)


def _same(batch: Batch, node: Node, operands: list[Node]) -> Node:
    """Ops that take any leading dimensions."""
    return node.op(*map(batch.batched, operands), **node.attributes)


def _reshape(batch: Batch, node: Node, operands: list[Node]) -> Node:
    return movement.reshape(batch.batched(operands[0]), shape=(batch.size, *node.type.shape))


def _permute(batch: Batch, node: Node, operands: list[Node]) -> Node:
    return movement.permute(batch.batched(operands[0]), axes=(0, *(axis + 1 for axis in node["axes"])))


def _expand(batch: Batch, node: Node, operands: list[Node]) -> Node:
    x = batch.batched(operands[0])
    missing = node.type.ndim - operands[0].type.ndim
    aligned = movement.reshape(x, shape=(batch.size, *(1,) * missing, *operands[0].type.shape))
    return movement.expand(aligned, shape=(batch.size, *node.type.shape))


def _region(batch: Batch, node: Node, operands: list[Node]) -> Node:
    first = {"starts": 0, "stops": batch.size, "steps": 1, "low": 0, "high": 0}
    changed = {name: (first[name], *value) if name in first else value for name, value in node.attributes.items()}
    return node.op(*map(batch.batched, operands), **changed)


def _take(batch: Batch, node: Node, operands: list[Node]) -> Node:
    """Rows of a table: of each example's own, of one table, or with one index."""
    from genesis.ir.ops.indexing import take
    table, index = operands
    axis = node["axis"]
    if not batch.is_batched(index):
        return take(batch.batched(table), index, axis=axis + 1)
    if not batch.is_batched(table):
        return _first(take(table, batch.batched(index), axis=axis), axis)
    rows = batch.batched(table)
    rank = rows.type.ndim
    front = movement.permute(rows, axes=(0, axis + 1, *(i for i in range(1, rank) if i != axis + 1)))
    count = table.type.shape[axis]
    flat = movement.reshape(front, shape=(batch.size * count, *front.type.shape[2:]))
    places = batch.batched(index)
    own = leaves.iota(shape=places.type.shape, axis=0, dtype=places.type.dtype, device=places.type.device)
    found = take(flat, places + own * count, axis=0)  # (batch, *index, *the table's other axes)
    k = index.type.ndim
    order = (0, *range(k + 1, k + 1 + axis), *range(1, k + 1), *range(k + 1 + axis, found.type.ndim))
    return movement.permute(found, axes=order)


def _first(x: Node, axis: int) -> Node:
    """x with an axis moved to the front."""
    return movement.permute(x, axes=(axis, *(i for i in range(x.type.ndim) if i != axis)))


def _item(batch: Batch, node: Node, operands: list[Node]) -> Node:
    return control.item(batch._batched[operands[0]], index=node["index"])


def _marker(batch: Batch, node: Node, operands: list[Node]) -> Node:
    return batch.batched(operands[0])


def _stopped(batch: Batch, node: Node, operands: list[Node]) -> Node:
    return control.stop_gradient(batch.batched(operands[0]))


BY_KIND: dict[str, Rule] = {
    "pointwise": _pointwise, "reduction": _deeper, "scan": _deeper, "linalg": _same,
}

RULES: dict[str, Rule] = {
    "reshape": _reshape, "permute": _permute, "expand": _expand, "slice": _region, "pad": _region, "assign": _region,
    "flip": _deeper, "concat": _deeper, "matmul": _same, "gather": _deeper, "scatter": _deeper, "scatter_add": _deeper,
    "sort": _deeper, "topk": _deeper, "unsort": _deeper, "take": _take, "item": _item, "watch": _marker,
    "stop_gradient": _stopped,
}
"""By the op's name, before `BY_KIND`."""
