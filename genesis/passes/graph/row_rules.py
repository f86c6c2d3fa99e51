"""Rules for computing some rows of a value: where the rows of an op's operands and of its result are, and the op over
some of them.

A value's *rows* are `units` things that lie one after another in neighbouring dimensions, as the tokens of logits
(batch, time, classes) do in dimensions 0 and 1. For some of them these dimensions are one.

    logits: (8, 1024, 50304), 8192 units        Rows(start=0, count=2, inner=1)        256 of them: (256, 50304)
    the same, 8 units                           Rows(start=0, count=1, inner=1)        2 of them: (2, 1024, 50304)
    reshaped to (8192, 50304), 8 units          Rows(start=0, count=1, inner=1024)     2 of them: (2048, 50304)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from genesis.ir.node import OPS, Node, Op, make
from genesis.ir.ops import activation, contraction, indexing, leaves, loss, movement, pointwise, reduction, softmax
from genesis.ir.sym_int import hint

if TYPE_CHECKING:
    from genesis.ir.node import Attr

T = TypeVar("T")


@dataclass(frozen=True)
class Rows:
    """Where the rows of a value are.

    Attributes:
        start, count: the dimensions that hold them.
        inner: how many elements of these dimensions a row has.
    """

    start: int
    count: int
    inner: int = 1

    @property
    def stop(self) -> int:
        """The first dimension after them."""
        return self.start + self.count

    def merged(self, values: Sequence[T], one: T) -> tuple[T, ...]:
        """Something of each dimension, with one thing instead of the rows' dimensions."""
        return (*values[:self.start], one, *values[self.stop:])

    def axis(self, axis: int) -> int:
        """The number of another dimension where the rows are one dimension."""
        return axis if axis < self.start else axis - self.count + 1

    def has(self, axis: int) -> bool:
        """Whether a dimension is one of the rows'."""
        return self.start <= axis < self.stop


@dataclass(frozen=True)
class Use:
    """How an op treats rows.

    Attributes:
        operands: where the rows are in each operand; None: it is taken whole.
        result: where they are in the result; None: it is a sum over them.
    """

    operands: tuple[Rows | None, ...]
    result: Rows | None


Known = Sequence["Rows | None"]
"""Where each operand's rows are, as far as it is one of the values that are made by rows."""

Rule = Callable[[Node, Known, int], "Use | None"]
"""(node, known, how many rows there are) → how it treats them; None: it needs all of them at once."""


def use_of(node: Node, known: Known, units: int) -> Use | None:
    """How an op treats rows of its operands; None if it has no rule, or needs all rows of one at once."""
    rule = _pointwise if node.op.kind == "pointwise" else RULES.get(node.op)
    found = rule(node, known, units) if rule is not None else None
    if found is None or any(rows is not None and use != rows
                            for rows, use in zip(known, found.operands, strict=True)):
        return None
    return found


def first_use(product: Node, rows: Rows) -> Use | None:
    """How a product whose result has its rows there treats them."""
    if product.op is contraction.linear:
        fits = rows.start == 0 and rows.count < product.type.ndim
        return Use((rows, *(None,) * (len(product.inputs) - 1)), rows) if fits else None
    if product.type.ndim != 2 or rows.count != 1:
        return None
    return Use((rows, None) if rows.start == 0 else (None, rows), rows)


def over_rows(node: Node, use: Use, operands: Sequence[Node], rows: int) -> Node:
    """The op over some rows.

    Args:
        use: how it treats rows.
        operands: with those rows, one dimension.
        rows: how many there are.
    """
    attributes = tuple([_attribute(node, name, use, rows) for name in node.op.attrs])
    return make(node.op, tuple(operands), attributes, node.source)


def _attribute(node: Node, name: str, use: Use, rows: int) -> Attr:
    """An attribute of the op over some rows, where these are one dimension."""
    value, given = node[name], next(x for x in use.operands if x is not None)
    if name == "shape":
        assert use.result is not None
        return use.result.merged(value, rows * use.result.inner)
    if name == "axes":
        return tuple(dict.fromkeys(given.start if given.has(axis) else given.axis(axis) for axis in value))
    if name == "axis":
        return given.axis(value)
    if name in REGION:
        return given.merged(value, rows * given.inner if name == "stops" else REGION[name])
    return value


REGION: Final = {"starts": 0, "stops": 0, "steps": 1, "low": 0, "high": 0}
"""Attributes with a number a dimension → that of a dimension which is taken as it is."""


@dataclass(frozen=True)
class Span:
    """Some of the rows.

    Attributes:
        first, last: they begin with the one and end before the other.
        rows: how many they are.
        units: how many rows there are in all.
        large: values of so many elements are made for some rows where that is possible.
    """

    first: int
    last: int
    rows: int
    units: int
    large: int


def part(x: Node, rows: Rows, span: Span) -> Node:
    """Some rows of a value that does not depend on what is made by rows, as one dimension.

    They are a slice of it, unless all of it is cheaper to make than to keep, or large: then these rows alone are made.
    """
    shape = rows.merged(x.type.shape, span.rows * rows.inner)
    if x.op is leaves.const:
        return make(x.op, (), (x["value"], x.type.with_shape(shape)), x.source)
    if x.op is leaves.iota and not rows.has(x["axis"]):
        return leaves.iota(shape=shape, axis=rows.axis(x["axis"]), dtype=x["dtype"], device=x["device"])
    if x.op is movement.expand:
        y, lead = x.inputs[0], x.type.ndim - x.inputs[0].type.ndim
        if rows.stop <= lead:
            return movement.expand(y, shape=shape)
        inside = Rows(rows.start - lead, rows.count, rows.inner)
        if rows.start >= lead and y.type.shape[inside.start:inside.stop] == x.type.shape[rows.start:rows.stop]:
            return movement.expand(part(y, inside, span), shape=shape)
    if hint(x.type.numel) >= span.large and (x.op.kind == "pointwise" or RULES.get(x.op) is _alike):
        use = use_of(x, tuple(None if y.type.weak else rows for y in x.inputs), span.units)
        if use is not None:
            operands = [y if at is None else part(y, at, span) for y, at in zip(x.inputs, use.operands, strict=True)]
            return over_rows(x, use, operands, span.rows)
    y = x if rows.count == 1 else movement.reshape(x, shape=rows.merged(x.type.shape, span.units * rows.inner))
    found = movement.take_range(y, rows.start, span.first * rows.inner, span.last * rows.inner)
    return movement.reshape(found, shape=shape)


# The rules

def _pointwise(node: Node, known: Known, units: int) -> Use | None:
    rows = next(x for x in known if x is not None)
    if any(not x.type.weak and x.type.shape != node.type.shape for x in node.inputs):
        return None
    return Use(tuple(None if x.type.weak else rows for x in node.inputs), rows)


def _alike(node: Node, known: Known, units: int) -> Use | None:
    """Ops along one axis, whose operands and result have the same other dimensions."""
    rows = next(x for x in known if x is not None)
    if rows.has(node["axis"]):
        return None
    same = all(x.type.shape[rows.start:rows.stop] == node.type.shape[rows.start:rows.stop] for x in node.inputs)
    return Use((rows,) * len(node.inputs), rows) if same else None


def _of_rows(node: Node, known: Known, units: int) -> Use | None:
    """Losses: dimension 0 of every operand counts rows."""
    rows = next(x for x in known if x is not None)
    return Use((rows,) * len(node.inputs), rows) if (rows.start, rows.count) == (0, 1) else None


def _linear(node: Node, known: Known, units: int) -> Use | None:
    return first_use(node, known[0]) if known[0] is not None else None


def _matmul(node: Node, known: Known, units: int) -> Use | None:
    """Rows of the result from rows of one matrix, or a sum over rows of both."""
    a, b = known
    rows = a or b
    assert rows is not None
    if node.type.ndim != 2:
        inside = rows.stop <= node.type.ndim - 2
        return Use((rows, rows), rows) if inside else None
    if rows.count != 1:
        return None
    if rows.start == (1 if a is not None else 0):
        return Use((Rows(1, 1, rows.inner), Rows(0, 1, rows.inner)), None)
    return Use((rows, None) if a is not None else (None, rows), rows)


def _permute(node: Node, known: Known, units: int) -> Use | None:
    rows, = known
    assert rows is not None
    first = node["axes"].index(rows.start)
    together = node["axes"][first:first + rows.count] == tuple(range(rows.start, rows.stop))
    return Use((rows,), Rows(first, rows.count, rows.inner)) if together else None


def _reshape(node: Node, known: Known, units: int) -> Use | None:
    """The dimensions before the rows stay, and the rows begin a dimension and end one."""
    rows, = known
    assert rows is not None
    before, shape = _elements(node.inputs[0].type.shape[:rows.start]), node.type.shape
    start = next((at for at in range(len(shape) + 1) if _elements(shape[:at]) == before), None)
    if start is None:
        return None
    elements: int = 1
    for stop in range(start, len(shape)):
        elements = elements * shape[stop]
        inner = 1 if elements is units else elements // units
        if inner * units == elements:
            return Use((rows,), Rows(start, stop + 1 - start, inner))
    return None


def _expand(node: Node, known: Known, units: int) -> Use | None:
    rows, = known
    assert rows is not None
    lead = node.type.ndim - node.inputs[0].type.ndim
    return Use((rows,), Rows(rows.start + lead, rows.count, rows.inner))


def _region(node: Node, known: Known, units: int) -> Use | None:
    """Slices and pads of other dimensions than the rows'."""
    x, rows = node.inputs[0], next(x for x in known if x is not None)
    dims = range(rows.start, rows.stop)
    if node.op is movement.pad:
        whole = all(node["low"][d] == 0 and node["high"][d] == 0 for d in dims)
    else:
        whole = all((node["starts"][d], node["stops"][d], node["steps"][d]) == (0, x.type.shape[d], 1) for d in dims)
    return Use((rows,) * len(node.inputs), rows) if whole else None


def _flip(node: Node, known: Known, units: int) -> Use | None:
    rows, = known
    assert rows is not None
    return Use((rows,), rows) if not any(map(rows.has, node["axes"])) else None


def _reduction(node: Node, known: Known, units: int) -> Use | None:
    """A reduction over other dimensions than the rows'; a sum also over all of these."""
    rows, = known
    assert rows is not None
    axes = node["axes"] if "axes" in node.op.attrs else (node["axis"],)
    over = sum(map(rows.has, axes))
    if over:
        return Use((rows,), None) if over == rows.count and node.op is reduction.sum else None
    kept = node["keepdims"]
    start = rows.start if kept else rows.start - sum(axis < rows.start for axis in axes)
    return Use((rows,), Rows(start, rows.count, rows.inner))


def _elements(shape: Sequence[int]) -> int:
    found: int = 1
    for size in shape:
        found = found * size
    return found


REDUCTIONS: Final = frozenset(OPS[name] for name in (
    "sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "mean", "logsumexp", "var", "std", "count_nonzero"))
"""Reductions of one operand over its axes."""

SLOPES: Final = (
    pointwise.relu_backward, pointwise.silu_backward, pointwise.gelu_backward, activation.leaky_relu_backward,
    activation.elu_backward, activation.softplus_backward, activation.logsigmoid_backward, activation.mish_backward,
    activation.hardsigmoid_backward, activation.hardswish_backward, activation.hardtanh_backward,
    activation.hardshrink_backward, activation.softshrink_backward, activation.threshold_backward)
"""Gradients of activations, element by element."""

RULES: Final[dict[Op, Rule]] = {
    contraction.linear: _linear, contraction.matmul: _matmul,
    movement.permute: _permute, movement.reshape: _reshape, movement.expand: _expand, movement.slice: _region,
    movement.pad: _region, movement.assign: _region, movement.flip: _flip, movement.concat: _alike,
    **dict.fromkeys((softmax.softmax, softmax.softmax_backward, softmax.log_softmax, softmax.log_softmax_backward,
                     indexing.gather, indexing.scatter_add, indexing.scatter), _alike),
    **dict.fromkeys((loss.cross_entropy, loss.cross_entropy_backward, loss.nll_loss), _of_rows),
    **dict.fromkeys(REDUCTIONS, _reduction), **dict.fromkeys(SLOPES, _pointwise),
}
"""The rule of each op; pointwise ones share theirs. Other ops need all rows at once."""
