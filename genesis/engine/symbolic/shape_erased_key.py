"""Shape-erased keys: what a program is, apart from its numbers.

A captured program's key says what the program is: ops, attributes, types, positions. Taking the sizes out of it
leaves what programs of different batch sizes have in common. It is made of plain values only, so its text is the
same in every process and names what is kept on disk.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from genesis.engine.state import MOST_PROGRAMS, Cache
from genesis.ir.graph import Graph
from genesis.ir.node import Op, SignedAttributes
from genesis.ir.sym_int import SymInt
from genesis.ir.types import Device, DType, TensorType

ShapeErasedKey = tuple[tuple[Hashable, ...], list[int]]
"""(the key without its numbers, the numbers in order)."""


Part: TypeAlias = Any
"""An attribute's value, a type, or what these have in them: told apart by their classes."""


class NotWritable(Exception):
    """An attribute's value has no text of its own."""


def shape_erased_key(key: tuple) -> ShapeErasedKey:
    """Take the numbers out of a key of `capture`. Positions stay: they are not sizes.

    Raises:
        NotWritable: some attribute's value cannot be written down.
    """
    shape: list[Hashable] = []
    numbers: list[int] = []
    op = ""
    for item in key:
        kind = item.__class__
        if kind is int or kind is str:
            shape.append(item)
        elif kind is Op:
            op = item.name
            shape.append(op)
        else:
            part, own = _taken_apart(op, item)
            shape.append(part)
            numbers += own
    return tuple(shape), numbers


_apart: Final[Cache[tuple, tuple[Hashable, tuple[int, ...]]]] = Cache(MOST_PROGRAMS)
"""(op, attributes, their classes) → what `_taken_apart` made of them."""


def _taken_apart(op: str, x: Part) -> tuple[Hashable, tuple[int, ...]]:
    """`_part` of an op's attributes, or of a type. Programs have few different ones, so it is remembered unless it has
    symbolic sizes. 1 and True are equal and not taken apart alike, so the classes are looked up, too."""
    key = op, x, tuple(map(type, x)) if x.__class__ is tuple else x.__class__
    found = _apart.get(key)
    if found is None:
        numbers: list[int] = []
        found = _part(x, numbers), tuple(numbers)
        if not any(n.__class__ is SymInt for n in numbers) and _plain(x):
            _apart.add(key, found)
    return found


def numbers_of(x: Part) -> Sequence[int]:
    """The numbers that a key without sizes leaves out of an attribute or a type, in order."""
    numbers: list[int] = []
    _part(x, numbers)
    return numbers


def _plain(x: Part) -> bool:
    """Whether remembering it keeps no graph alive."""
    return all(map(_plain, x)) if isinstance(x, tuple) else x.__class__ is not Graph


def _part(x: Part, numbers: list[int]) -> Hashable:
    """A value without its numbers, which are appended to `numbers`."""
    kind = x.__class__
    if kind is int or kind is SymInt:
        numbers.append(x)
        return "#"
    if kind is tuple or kind is SignedAttributes:
        return tuple([_part(y, numbers) for y in x])
    if kind is TensorType:
        numbers += x.shape
        return ("type", x.dtype.short, str(x.device), x.weak, x.ndim)
    if kind is str:
        return ("text", x)
    if kind is float or kind is bool or x is None:
        return repr(x)
    if kind is DType or kind is Device:
        return str(x)
    if kind is Graph:
        part, own = _graph(x)
        numbers += own
        return part
    raise NotWritable(f"{kind.__name__} in an attribute")


_graphs: WeakKeyDictionary[Graph, ShapeErasedKey] = WeakKeyDictionary()


def _graph(graph: Graph) -> ShapeErasedKey:
    """The shape-erased key of a compiled function's graph."""
    found = _graphs.get(graph)
    if found is None:
        numbers: list[int] = []
        place = {node: position for position, node in enumerate(graph.nodes)}
        rows = tuple((node.op.name, _part(node.attrs, numbers), tuple([place[x] for x in node.inputs]))
                     for node in graph.nodes)
        ends = tuple(place[node] for node in graph.outputs)
        found = ("graph", graph.numbers, len(graph.inputs), rows, ends), numbers
        if not any(x.__class__ is SymInt for x in numbers):
            _graphs[graph] = found
    return found
