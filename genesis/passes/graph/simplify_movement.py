"""Canonicalize's rules for movement ops: what moves nothing, or twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from genesis.ir.node import Node, Op, make
from genesis.ir.ops import leaves, movement
from genesis.ir.sym_int import SymInt

Rule = Callable[[Node], "Node | None"]
Region = tuple[tuple[int, int, int], ...]
"""(start, stop, step) for each dimension."""


def _unchanged(node: Node) -> Node | None:
    """The op does nothing when the type stays: it moves no element otherwise than by changing the shape."""
    return node.inputs[0] if node.type is node.inputs[0].type else None


def _last_shape(node: Node) -> Node | None:
    """op(op(x, a), b) → op(x, b)."""
    x = node.inputs[0]
    return make(node.op, x.inputs, node.attrs) if x.op is node.op else None


def _of_constant(node: Node) -> Node | None:
    """A movement of a constant is a constant."""
    x = node.inputs[0]
    return make(leaves.const, (), (x["value"], node.type)) if x.op is leaves.const else None


def _permute(node: Node) -> Node | None:
    axes, x = node["axes"], node.inputs[0]
    if axes == tuple(range(len(axes))):
        return x
    if x.op is movement.permute:
        inner = x["axes"]
        return movement.permute(x.inputs[0], axes=tuple(inner[a] for a in axes))
    return None


def _flip(node: Node) -> Node | None:
    """Only axes of more than one element, in order, each once."""
    x = node.inputs[0]
    axes = set(node["axes"])
    if x.op is movement.flip:
        axes ^= set(x["axes"])
        x = x.inputs[0]
    moved = tuple(a for a in sorted(axes) if x.type.shape[a] > 1)
    return movement.flip(x, axes=moved) if moved else x


# Slices

def region_of(node: Node) -> Region:
    """What a slice reads, or an assign writes."""
    return tuple(zip(node["starts"], node["stops"], node["steps"], strict=True))


def sliced(x: Node, region: Region) -> Node:
    """The slice of x."""
    starts, stops, steps = zip(*region, strict=True) if region else ((), (), ())
    return movement.slice(x, starts=starts, stops=stops, steps=steps)


def _slice_of_slice(node: Node) -> Node | None:
    x = node.inputs[0]
    if x.op is not movement.slice or not node.type.numel:
        return None
    found = []
    for (first, _, outer), (start, _, step), count in zip(region_of(x), region_of(node), node.type.shape, strict=True):
        begin = first + start * outer
        found.append((begin, begin + (count - 1) * step * outer + 1, step * outer))
    return sliced(x.inputs[0], tuple(found))


def _slice_of_pad(node: Node) -> Node | None:
    """Only the operand's own elements are read."""
    x = node.inputs[0]
    if x.op is not movement.pad or not node.type.numel:
        return None
    found = []
    for (start, stop, step), low, size in zip(region_of(node), x["low"], x.inputs[0].type.shape, strict=True):
        if not low <= start < stop <= low + size:
            return None
        found.append((start - low, stop - low, step))
    return sliced(x.inputs[0], tuple(found))


def _slice_of_concat(node: Node) -> Node | None:
    """One operand has all that is read."""
    x = node.inputs[0]
    if x.op is not movement.concat or not node.type.numel:
        return None
    axis, region, begin = x["axis"], region_of(node), 0
    start, stop, step = region[axis]
    for part in x.inputs:
        end = begin + part.type.shape[axis]
        if begin <= start < stop <= end:
            return sliced(part, (*region[:axis], (start - begin, stop - begin, step), *region[axis + 1:]))
        begin = end
    return None


def _slice_of_assign(node: Node) -> Node | None:
    """What was just written there; and where one of the places is a symbol, what was there before, if nothing of it was
    written. Between numbers that is seen element by element: between symbols each element would be one or the other,
    and of a recurrence (`x[i] = f(x[i - 1])`) so would be all that it is made of.
    """
    x = node.inputs[0]
    if x.op is not movement.assign:
        return None
    read, written = region_of(node), region_of(x)
    if read == written:
        return x.inputs[1]
    if any(isinstance(a, SymInt) or isinstance(b, SymInt) for (a, _, _), (b, _, _) in zip(read, written, strict=True)):
        for (start, stop, _), (first, end, _) in zip(read, written, strict=True):
            if start >= end or stop <= first:
                return sliced(x.inputs[0], read)
    return None


# Concat and assign

def _concat(node: Node) -> Node | None:
    """Empty operands add nothing, and neighbouring slices are one slice."""
    axis = node["axis"]
    parts: list[Node] = []
    for x in node.inputs:
        if not x.type.shape[axis]:
            continue
        joined = _joined(parts[-1], x, axis) if parts else None
        if joined is None:
            parts.append(x)
        else:
            parts[-1] = joined
    if not parts:
        return node.inputs[0]
    if len(parts) == len(node.inputs) > 1:
        return None
    return parts[0] if len(parts) == 1 else movement.concat(*parts, axis=axis)


def _joined(a: Node, b: Node, axis: int) -> Node | None:
    """The slice that a and b are the halves of."""
    if a.op is not movement.slice or b.op is not movement.slice or a.inputs != b.inputs:
        return None
    left, right = region_of(a), region_of(b)
    (start, middle, step), (again, stop, step2) = left[axis], right[axis]
    if step != 1 or step2 != 1 or middle != again or left[:axis] + left[axis + 1:] != right[:axis] + right[axis + 1:]:
        return None
    whole = sliced(a.inputs[0], (*left[:axis], (start, stop, 1), *left[axis + 1:]))
    return _unchanged(whole) or whole


def _assign(node: Node) -> Node | None:
    """The value is all that is left, or nothing is written, or only what is there, or the region was just written."""
    base, value = node.inputs
    if value.type is base.type:
        return value
    region = region_of(node)
    if not value.type.numel or (value.op is movement.slice and value.inputs[0] is base and region_of(value) == region):
        return base
    if base.op is movement.assign and region_of(base) == region:
        return make(node.op, (base.inputs[0], value), node.attrs)
    return None


RULES: Final[dict[Op, tuple[Rule, ...]]] = {
    movement.reshape: (_unchanged, _last_shape, _of_constant),
    movement.expand: (_unchanged, _last_shape, _of_constant),
    movement.permute: (_permute, _of_constant),
    movement.flip: (_of_constant, _flip),
    movement.slice: (_unchanged, _of_constant, _slice_of_slice, _slice_of_pad, _slice_of_concat, _slice_of_assign),
    movement.pad: (_unchanged,),
    movement.concat: (_concat,),
    movement.assign: (_assign,),
}
