"""The index that was out of bounds, found after a program on the CPU failed: its op, value and the user's line.

A call of torch's that finds an index outside says neither which op asked nor where it was recorded, and a plan is
shared by equal programs of other lines. So nothing is checked as long as all goes well; when a run failed, the nodes
that take an index are looked at again, operands before users, until one has an index outside.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from genesis.ir.errors import IndexOutOfRange, describe
from genesis.ir.node import Node, Op
from genesis.ir.ops.checked import TAKING_AN_INDEX, Range
from genesis.ir.ops.row_number import row_number
from genesis.ir.ops.scatter_reduce import scatter_reduce

if TYPE_CHECKING:
    from numpy import ndarray

    from genesis.ir.source import Source, TextSource
    from genesis.ir.types import TensorType


class Line(NamedTuple):
    """The user's line that recorded an op.

    Attributes:
        text: with its file; '' where it is not known.
        called: the public function that recorded it, where the line need not name it; else ''.
    """

    text: str = ""
    called: str = ""


def find_misplaced(order: Iterable[Node], value_of: Callable[[Node], ndarray]) -> tuple[Node, IndexOutOfRange] | None:
    """The first of these nodes, operands before users, whose index is outside, and what to say of it.

    `value_of` gives the value of an index as a numpy array.
    """
    for node in order:
        allowed = allowed_in(node.op, node.inputs, node.attributes)
        if allowed is None:
            continue
        values = value_of(index_of(node.op, node.inputs))
        outside = is_outside(values, allowed)
        if outside.any():
            return node, misplaced(node.op, node.inputs, int(values[outside].flat[0]), allowed, line_of(node.source))
    return None


class Typed(Protocol):
    """What has a tensor's type: a node, or what stands for one."""

    @property
    def type(self) -> TensorType:
        """Its shape and dtype."""


T = TypeVar("T")


def allowed_in(op: Op, operands: Sequence[Typed], attributes: Mapping[str, int]) -> Range | None:
    """The range that the op's index must be in; None if it takes no index. Operands are what has a `type`."""
    if op is row_number:
        return Range(attributes["size"], attributes["dim"], negative=True)
    if op is scatter_reduce:
        return Range(operands[0].type.shape[attributes["axis"]], attributes["axis"])
    rule = TAKING_AN_INDEX.get(op)
    return None if rule is None else rule(operands, attributes)  # type: ignore[arg-type]


def index_of(op: Op, operands: Sequence[T]) -> T:
    """The operand that is the index."""
    return operands[0 if op is row_number else 1]


def is_outside(values: ndarray, allowed: Range) -> ndarray:
    """Where an index, an array or a tensor of torch's, is outside of what it must be in."""
    outside = (values < _least(allowed)) | (values >= allowed.size)
    return outside if allowed.ignored is None else outside & (values != allowed.ignored)


def _least(allowed: Range) -> int:
    return -allowed.size if allowed.negative else 0


def misplaced(op: Op, operands: Sequence[Typed], value: int, allowed: Range, line: Line) -> IndexOutOfRange:
    """The error for this value of the op's index."""
    name = called(op, line)
    what, where = ("class", "target") if "ignore_index" in op.attrs else ("index", "index")
    lines = [f"{name}: {what} {value} is out of bounds for dimension {allowed.dim} with size {allowed.size}",
             f"  {where}: {describe(index_of(op, operands))}"]
    if op is not row_number:
        lines.append(f"  input: {describe(operands[0])}")
    if line.text:
        lines.append(f"  at {line.text}")
    passes = "" if allowed.ignored is None else f", or {allowed.ignored}, which is ignored"
    lines.append(f"  try: {what} numbers from {_least(allowed)} to {allowed.size - 1}{passes}" if allowed.size else
                 "  try: no index: the dimension is empty")
    return IndexOutOfRange("\n".join(lines))


CALLED: Final[dict[str, tuple[str, ...]]] = {
    "take": ("index_select", "embedding"),
    "gather": ("take_along_dim", "gather"),
    "row_number": ("take_along_dim", "take", "index_fill", "index_put", "index_reduce", "put"),
    "scatter": ("one_hot", "scatter"),
    "scatter_reduce": ("scatter_reduce", "index_reduce"),
}
"""Op → the functions that users call for it, what is part of another's name last."""

_USUAL: Final = {"take": "embedding", "row_number": "indexing"}
"""Op → what a line calls that has none of these names: a module, or brackets."""


def called(op: Op, line: Line) -> str:
    """What the user called on the line that recorded this op, as far as that is known.

    >>> from genesis.ir.ops import indexing
    >>> called(indexing.take, Line("a.py:3: y = x.index_select(0, i)"))
    'index_select'
    >>> called(indexing.take, Line("a.py:4: y = self.table(i)"))
    'embedding'
    >>> called(indexing.take, Line("a.py:4: y = self.table(i)", "embedding_bag"))
    'embedding_bag'
    """
    if line.called:
        return line.called
    found = next((name for name in CALLED.get(op.name, ()) if re.search(rf"\b{name}_?\(", line.text)), "")
    return found or _USUAL.get(op.name, op.name)


def line_of(source: Source | TextSource | None) -> Line:
    """The user's line with its file and text, as far as they are known."""
    if source is None:
        return Line()
    if not source.filename or source.filename.startswith("<"):
        return Line("", source.called)
    return Line(f"{source.filename}:{source.line}: {source.text}", source.called)
