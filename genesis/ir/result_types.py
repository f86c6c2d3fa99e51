"""The types of results, worked out once for an op, its attributes and the types of its operands.

`make` asks for one with each node. The table is bounded: what a loop goes through place by place (`Op.placed`) is kept
only where it comes often, and types with sizes of a trace go with the trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from genesis.ir.memos import counted
from genesis.ir.types import TensorType, forget_types_of, traces_of

if TYPE_CHECKING:
    from genesis.ir.node import Node, Op, Types
    from genesis.ir.size_trace import Trace

_result_types: dict[tuple, Types] = {}
MOST_RESULT_TYPES: Final = 1 << 16
"""Result types that are remembered, by op, attributes and operands' types; when there are more, all are dropped."""

_placed_types: dict[int, int] = {}
"""Hash of the key of a type of a placed op (`Op.placed`) → how often it was worked out."""

OFTEN_PLACED: Final = 8
"""Times that the type of a slice is worked out before it is remembered: a loop that goes along a tensor asks for that
of each place a few times, and would fill the table with what never comes again, which Python's collector goes through
(a quarter of the time of such a loop)."""

counted("types of results", lambda: len(_result_types), 400, MOST_RESULT_TYPES + 1)


def result_type(op: Op, inputs: tuple[Node, ...], attrs: tuple) -> Types:
    """The type of `op(inputs)` with these attributes, of an op with several results a tuple of them.

    Raises what the op's type rule does.
    """
    key: tuple
    if (count := len(inputs)) == 2:  # few operands, as most nodes have, need no list
        a, b = inputs
        key = (op, attrs, a.type, b.type)
    elif count == 1:
        kind = inputs[0].type
        if type(kind) is tuple:  # `item`: looking up hundreds of types takes longer than choosing
            return op.infer(kind, *attrs)
        key = (op, attrs, kind)
    elif count == 3:
        a, b, c = inputs
        key = (op, attrs, a.type, b.type, c.type)
    else:
        key = (op, attrs, *[x.type for x in inputs])
    found = _result_types.get(key)
    return found if found is not None else _infer(op, attrs, key)


def _infer(op: Op, attrs: tuple, key: tuple) -> Types:
    """Work out the type with this key, and remember it: of a placed op, where it comes often."""
    if _is_operand(attrs):
        raise TypeError(f"{op.name}: an attribute is a tensor, not a number")
    if op.placed and not _comes_again(key):
        return op.infer(*key[2:], *attrs)
    if len(_result_types) > MOST_RESULT_TYPES:
        _result_types.clear()
    found: Types = op.infer(*key[2:], **dict(zip(op.attrs, attrs, strict=True)))
    for trace in _traces((*key[1:], found)):
        trace.result_types.append(key)
    _result_types[key] = found
    return found


def _comes_again(key: tuple) -> bool:
    """Whether the type of a placed op was worked out often."""
    if len(_placed_types) >= MOST_RESULT_TYPES >> 4:
        _placed_types.clear()
    place = hash(key)
    found = _placed_types[place] = _placed_types.get(place, 0) + 1
    return found >= OFTEN_PLACED


_operand_class: type | None = None


def set_operand_class(cls: type) -> None:
    """Set the class of what stands for nodes outside, and is never an attribute; `frontend/recording.py` calls this."""
    global _operand_class
    _operand_class = cls


def _is_operand(attrs: tuple) -> bool:
    """Whether an attribute is, or holds, a tensor where a number should be. Asked when a type is worked out."""
    for x in attrs:
        if x.__class__ is tuple:
            if _is_operand(x):
                return True
        elif x.__class__ is not int and _operand_class is not None and isinstance(x, _operand_class):
            return True
    return False


def forget_sizes_of(trace: Trace) -> None:
    """Drop what the tables know of types with sizes of this trace, which is over; other threads' traces go on."""
    trace.end()
    forget_types_of(trace)
    keys, trace.result_types = trace.result_types, []
    for key in keys:
        _result_types.pop(key, None)


def _traces(parts: Iterable[object]) -> set[Trace]:
    """The traces whose sizes are among these attributes, types, and tuples of such."""
    found: set[Trace] = set()
    for x in parts:
        if x.__class__ is tuple:
            found |= _traces(x)
        elif x.__class__ is TensorType:
            found |= traces_of(x.shape)
        elif x.__class__ is not int:
            found |= traces_of((x,))
    return found
