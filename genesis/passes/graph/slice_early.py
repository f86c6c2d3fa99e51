"""What is computed row by row is computed for the rows that are read: slices move to before it.

A classifier over tokens reads the first of each picture's 197, a model that goes on with a text the logits behind its
last token. All that comes behind the last op that mixes rows, in a transformer its last attention, is made for these
rows alone, and so are its gradients: the pass runs before there are any.

    before: %1: f32[8,197,64] = linear(%x, %w)                after: %1: f32[8,1,64] = slice(%x, …)
            %2: f32[8,197,64] = layer_norm(%1, %g, %b, …)            %2: f32[8,1,64] = linear(%1, %w)
            %3: f32[8,1,64] = slice(%2, stops=(8,1,64), …)           %3: f32[8,1,64] = layer_norm(%2, %g, %b, …)

A value of which all readers want the same part is computed for that part; where they want different ones, or an op has
no rule, it stays whole. An unread row that is infinite or NaN does not reach a gradient: in torch 0 times it is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from genesis.ir.graph import Graph, substitute, with_inputs
from genesis.ir.node import OPS, Node, Op, make
from genesis.ir.ops import contraction, movement, softmax
from genesis.ir.ops.movement import slice
from genesis.ir.sym_int import Size, hint
from genesis.ir.types import TensorType
from genesis.passes.graph.row_rules import REDUCTIONS

LEAST_BYTES: Final = 1 << 20
"""Fewest bytes of an op's result that are left out for a slice to move: smaller ones take a launch either way."""

LEAST_SHARE: Final = 2
"""A slice moves where at least half of what it cuts is left out. One that leaves out little, as `logits[:, :-1]` does,
would turn whole rows into rows with gaps for its gain."""

Region = tuple[tuple[Size, Size, Size] | None, ...]
"""The (start, stop, step) that is wanted of each dimension; None: all of it."""

Rule = Callable[[Node, Region], "tuple[Region | None, ...] | None"]
"""(node, what is wanted of it) → what that takes of each operand, None of which is all; None: all of all of them."""


def slice_early(graph: Graph) -> Graph:
    """The graph whose slices stand before what is computed row by row; itself where no op is worth it."""
    if not any(node.op is slice and _leaves_out_much(node) for node in graph.nodes):
        return graph
    wanted = _wanted(graph)
    early: set[Node] = set()
    for node in graph.nodes:
        region = wanted.get(node)
        if region is not None and _of_operands(node, region) is not None and (
                _is_worth_it(node, region) or not early.isdisjoint(node.inputs)):
            early.add(node)
    return _moved(graph, wanted, early) if early else graph


def _wanted(graph: Graph) -> dict[Node, Region | None]:
    """What is wanted of each value, if all of its readers want the same part; None: all."""
    wanted: dict[Node, Region | None] = dict.fromkeys(graph.roots)
    for node in reversed(graph.nodes):
        region = wanted.get(node)
        if node.op is slice:
            parts: Sequence[Region | None] = (_region_of(node) if _leaves_out_much(node) else None,)
        else:
            parts = (None if region is None else _of_operands(node, region)) or (None,) * len(node.inputs)
        for x, part in zip(node.inputs, parts, strict=True):
            wanted[x] = part if wanted.setdefault(x, part) == part else None
    return wanted


def _moved(graph: Graph, wanted: dict[Node, Region | None], early: set[Node]) -> Graph:
    """The graph in which these nodes are made for what is wanted of them."""
    made: dict[Node, Node] = {}
    for node in graph.nodes:
        region = wanted.get(node)
        if node in early and region is not None:
            parts = _of_operands(node, region)
            assert parts is not None, "it is early"
            operands = [made[x] if x in early or part is None else _part(made[x], part)
                        for x, part in zip(node.inputs, parts, strict=True)]
            attributes = (_shape_of(node, region),) if node.op is movement.expand else node.attrs
            made[node] = make(node.op, tuple(operands), attributes, node.source)
        elif node.op is slice and node.inputs[0] in early:
            made[node] = made[node.inputs[0]]
        else:
            made[node] = with_inputs(node, tuple([made[x] for x in node.inputs]))
    return substitute(graph, made)


def _region_of(node: Node) -> Region:
    """What a slice reads."""
    parts = zip(node["starts"], node["stops"], node["steps"], strict=True)
    return tuple([None if part == (0, size, 1) else part
                  for part, size in zip(parts, node.inputs[0].type.shape, strict=True)])


def _leaves_out_much(node: Node) -> bool:
    """Does a slice read at most half of its operand?"""
    return LEAST_SHARE * hint(node.type.numel) <= hint(node.inputs[0].type.numel)


def _is_worth_it(node: Node, region: Region) -> bool:
    """Is the op one that is never part of what reads it, of a result so large that some of it is worth leaving out?"""
    if node.op not in WORTH:
        return False
    kept: Size = node.dtype.itemsize
    for size in _shape_of(node, region):
        kept = kept * size
    return hint(node.type.nbytes) - hint(kept) >= LEAST_BYTES


def _shape_of(node: Node, region: Region) -> tuple[Size, ...]:
    """The shape of what is wanted."""
    return tuple([size if part is None else -((part[0] - part[1]) // part[2])
                  for size, part in zip(node.type.shape, region, strict=True)])


def _part(x: Node, region: Region) -> Node:
    """That part of a value."""
    starts, stops, steps = zip(*[(0, size, 1) if part is None else part
                                 for size, part in zip(x.type.shape, region, strict=True)], strict=True)
    return slice(x, starts=starts, stops=stops, steps=steps)


def _of_operands(node: Node, region: Region) -> tuple[Region | None, ...] | None:
    """What a part of a value takes of each operand, as `Rule` has it."""
    rule = _pointwise if node.op.kind == "pointwise" else RULES.get(node.op)
    found = rule(node, region) if rule is not None and isinstance(node.type, TensorType) else None
    return None if found is None else tuple([part if part is None or any(part) else None for part in found])


# The rules

def _pointwise(node: Node, region: Region) -> tuple[Region | None, ...] | None:
    if any(not x.type.weak and x.type.shape != node.type.shape for x in node.inputs):
        return None
    return tuple([None if x.type.weak else region for x in node.inputs])


def _linear(node: Node, region: Region) -> tuple[Region | None, ...] | None:
    return (region, *(None,) * (len(node.inputs) - 1)) if region[-1] is None else None


def _norm(node: Node, region: Region) -> tuple[Region | None, ...] | None:
    whole = not any(region[len(region) - node["ndim"]:])
    return (region, *(None,) * (len(node.inputs) - 1)) if whole else None


def _along_axis(node: Node, region: Region) -> tuple[Region | None, ...] | None:
    return (region,) if region[node["axis"]] is None else None


def _matmul(node: Node, region: Region) -> tuple[Region | None, ...] | None:
    a, b = node.inputs
    if not a.type.shape[:-2] == b.type.shape[:-2] == node.type.shape[:-2]:
        return None
    return (*region[:-1], None), (*region[:-2], None, region[-1])


def _reduction(node: Node, region: Region) -> tuple[Region | None, ...] | None:
    axes = node["axes"] if "axes" in node.op.attrs else (node["axis"],)
    if node["keepdims"]:
        return (region,) if not any(region[axis] for axis in axes) else None
    left = iter(region)
    return tuple([None if axis in axes else next(left) for axis in range(node.inputs[0].type.ndim)]),


def _expand(node: Node, region: Region) -> tuple[Region | None, ...] | None:
    x, lead = node.inputs[0], node.type.ndim - node.inputs[0].type.ndim
    return tuple([part if size == node.type.shape[lead + axis] else None
                  for axis, (size, part) in enumerate(zip(x.type.shape, region[lead:], strict=True))]),


def _permute(node: Node, region: Region) -> tuple[Region | None, ...] | None:
    axes = node["axes"]
    return tuple([region[axes.index(axis)] for axis in range(len(axes))]),


RULES: Final[dict[Op, Rule]] = {
    contraction.linear: _linear, contraction.matmul: _matmul,
    OPS["layer_norm"]: _norm, OPS["rms_norm"]: _norm, softmax.softmax: _along_axis, softmax.log_softmax: _along_axis,
    movement.expand: _expand, movement.permute: _permute, **dict.fromkeys(REDUCTIONS, _reduction),
}
"""The rule of each op; pointwise ones share theirs."""

WORTH: Final = frozenset({contraction.linear, contraction.matmul, OPS["layer_norm"], OPS["rms_norm"], softmax.softmax,
                          softmax.log_softmax})
"""Ops for which a slice moves: kernels that read others compute these by rows that they want anyway."""
