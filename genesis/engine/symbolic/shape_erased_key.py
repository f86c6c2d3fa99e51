"""Shape-erased keys: what a program is, apart from its numbers.

A captured program's key says what the program is: ops, attributes, types, positions. Taking the sizes out of it
leaves what programs of different batch sizes have in common. It is made of plain values only, so its text is the
same in every process and names what is kept on disk.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from genesis.engine.state import MOST_PROGRAMS, Cache
from genesis.ir.graph import Graph
from genesis.ir.node import Op
from genesis.ir.sym_int import SymInt
from genesis.ir.types import Device, DType, TensorType

ShapeErasedKey = tuple[tuple[Any, ...], list[Any]]
"""(the key without its numbers, the numbers in order)."""


class NotWritable(Exception):
    """An attribute's value has no text of its own."""


def shape_erased_key(key: tuple) -> ShapeErasedKey:
    """Take the numbers out of a key of `capture`. Positions stay: they are not sizes.

    Raises:
        NotWritable: some attribute's value cannot be written down.
    """
    shape: list[Any] = []
    numbers: list[Any] = []
    for item in key:
        kind = item.__class__
        if kind is int:
            shape.append(item)
        elif kind is Op:
            shape.append(item.name)
        elif kind is tuple:
            part, own = _taken_apart(item)
            shape.append(part)
            numbers += own
        elif kind is str:
            shape.append(item)
        else:
            shape.append(_part(item, numbers))
    return tuple(shape), numbers


_apart: Final[Cache[tuple, tuple[Any, tuple[Any, ...]]]] = Cache(MOST_PROGRAMS)
"""Attributes → what `_taken_apart` made of them."""


def _taken_apart(attrs: tuple) -> tuple[Any, tuple[Any, ...]]:
    """`_part` of attributes. Programs have few different ones, so it is remembered unless it has symbolic sizes."""
    found = _apart.get(attrs)
    if found is None:
        numbers: list[Any] = []
        found = _part(attrs, numbers), tuple(numbers)
        if not any(x.__class__ is SymInt for x in numbers) and _plain(attrs):
            _apart.add(attrs, found)
    return found


def _plain(attrs: tuple) -> bool:
    """False if 1, 1.0 or True would be mistaken for each other, or a graph be kept alive."""
    return all(x.__class__ in (int, str, DType, TensorType, Device) or x is None or (
        x.__class__ is tuple and _plain(x)) for x in attrs)


def _part(x: Any, numbers: list[Any]) -> Any:
    """A value without its numbers, which are appended to `numbers`."""
    kind = x.__class__
    if kind is int or kind is SymInt:
        numbers.append(x)
        return "#"
    if kind is tuple:
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
        numbers: list[Any] = []
        place = {node: position for position, node in enumerate(graph.nodes)}
        rows = tuple((node.op.name, _part(node.attrs, numbers), tuple([place[x] for x in node.inputs]))
                     for node in graph.nodes)
        ends = tuple(place[node] for node in graph.outputs)
        found = ("graph", graph.numbers, len(graph.inputs), rows, ends), numbers
        if not any(x.__class__ is SymInt for x in numbers):
            _graphs[graph] = found
    return found
