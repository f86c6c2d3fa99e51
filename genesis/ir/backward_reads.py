"""What the derivative of a node reads of the forward: values of operands, the result, or nothing (that of `x + y`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from genesis.ir.memos import counted
from genesis.ir.node import Node, unique
from genesis.ir.ops import leaves

RESULT: Final = -1
"""Stands for the node's own value among the places of its operands."""

_known: dict[tuple, tuple[int, ...]] = {}
MOST_KNOWN: Final = 4096
"""Answers that are remembered; when there are more, all are dropped."""

counted("what backwards read", lambda: len(_known), 500, MOST_KNOWN + 1)


def places_read(node: Node) -> tuple[int, ...]:
    """The places of the operands whose values the node's vjp reads, and `RESULT`; the op has a vjp. The user's
    numbers count, as in torch.

    >>> from genesis.ir.ops import arithmetic, pointwise
    >>> from genesis.ir.types import float32, tensor_type
    >>> x = unique(leaves.data, (), (kind := tensor_type((2,), float32),), kind)
    >>> x.needs_grad = True
    >>> places_read(pointwise.exp(x)), places_read(pointwise.sin(x)), places_read(pointwise.neg(x))
    ((-1,), (0,), ())
    """
    wanted = tuple([x.needs_grad for x in node.inputs])
    key = (node.op, node.attrs, tuple([x.type for x in node.inputs]), wanted)
    found = _known.get(key)
    if found is None:
        if len(_known) > MOST_KNOWN:
            _known.clear()
        found = _known[key] = _read_by_vjp(node, wanted)
    return found


def _read_by_vjp(node: Node, wanted: Iterable[bool]) -> tuple[int, ...]:
    several = type(node.type) is tuple
    arriving = tuple(unique(leaves.data, (), (kind,), kind) for kind in node.types)
    given = arriving if several else arriving[0]
    found = node.op.vjp(given, *node.inputs, node, **node.attributes)  # type: ignore[misc]
    contributions = found if isinstance(found, tuple) else (found,)
    place = {x: i for i, x in reversed([*enumerate(node.inputs)]) if x.op is not leaves.const}
    place[node] = RESULT
    stack = [g for g, asked in zip(contributions, wanted, strict=False) if asked and g is not None]
    seen: set[Node] = set()
    places: set[int] = set()
    while stack:
        x = stack.pop()
        if x in place:
            places.add(place[x])
        elif x not in seen:
            seen.add(x)
            stack.extend(x.inputs)
    return tuple(sorted(places))
