"""Ops that take an index from the user, and the check that goes in front of each on a GPU (see `ops/row_number.py`)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from types import CodeType
from typing import TYPE_CHECKING, Final, NamedTuple

from genesis.ir.node import Node, Op, make
from genesis.ir.ops import composite, indexing
from genesis.ir.ops.row_number import in_range, row_number
from genesis.ir.ops.searching import positions_below
from genesis.ir.source import Source

if TYPE_CHECKING:
    from genesis.ir.source import TextSource

Operands = tuple[Node, ...]


class Range(NamedTuple):
    """What an index must be in: `size` of a dimension, and what else it may be (see `in_range`)."""

    size: int
    dim: int
    negative: bool = False
    ignored: int | None = None


def _along_axis(operands: Operands, attrs: dict[str, int]) -> Range:
    shape = operands[0].type.shape or (1,)  # a number is a row of one
    return Range(shape[attrs["axis"]], attrs["axis"])


def _classes(operands: Operands, attrs: dict[str, int]) -> Range:
    return Range(operands[0].type.shape[1], 1, ignored=attrs["ignore_index"])


TAKING_AN_INDEX: Final[dict[Op, Callable[[Operands, dict[str, int]], Range]]] = {
    **dict.fromkeys((indexing.take, indexing.gather, indexing.index_add, indexing.index_copy, indexing.scatter_add,
                     indexing.scatter), _along_axis),
    composite.cross_entropy: _classes,
    composite.nll_loss: _classes,
}
"""Op whose second operand is an index → what that must be in."""

CHECKED: Final = frozenset({*TAKING_AN_INDEX, row_number})
"""Ops whose line is part of a program for a GPU: an index that is outside is reported with it."""


def with_check(op: Op, operands: Operands, attrs: tuple, source: Source | TextSource | None) -> Node:
    """The node of such an op, with its index checked."""
    values = dict(zip(op.attrs, attrs, strict=True))
    if op is row_number:
        return _check(operands[0], Range(values["size"], values["dim"], negative=True), op, source)
    allowed = TAKING_AN_INDEX[op](operands, values)
    if not _of_no_rows(allowed) and not is_inside(operands[1], allowed.size):
        operands = (operands[0], _check(operands[1], allowed, op, source), *operands[2:])
    return make(op, operands, attrs, source)


def _of_no_rows(allowed: Range) -> bool:
    """Whether there is no row to take or to write to: an index of some was an error as it was recorded."""
    return allowed.size.__class__ is int and not allowed.size and allowed.ignored is None


def _check(index: Node, allowed: Range, op: Op, source: Source | TextSource | None) -> Node:
    if index.op is in_range and index["size"] == allowed.size:
        return index
    name = (source.called if source is not None else "") or ("indexing" if op is row_number else op.name)
    return make(in_range, (index,), (*allowed, name, line_of(source)), source)


def is_inside(index: Node, size: int) -> bool:
    """Whether these positions are known to be among `size`, without a look at them."""
    below = positions_below(index)
    return below is size or (type(below) is int and type(size) is int and below <= size)


def line_of(source: Source | TextSource | None) -> str:
    """The user's line as text, '' if it is not known."""
    return "" if source is None else _line(source._code, source._offset) if isinstance(source, Source) else (
        source.full)


@lru_cache(1 << 12)
def _line(code: CodeType, offset: int) -> str:
    source = Source(code, offset)
    return f"{source.filename}:{source.line} {source.function}".rstrip()
