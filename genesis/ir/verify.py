"""The rules of the IR, executable: what every pass may rely on and must keep.

`RULES` is the list. A rule looks at one node, or at the graph, and yields what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Final

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.printer import is_literal, names_of, node_text, type_text
from genesis.ir.sym_int import SymInt
from genesis.ir.types import Device, DType, TensorType


def verifying() -> bool:
    """Whether GENESIS_VERIFY=1: programs are verified after each pass, the ages of nodes at each flush that overwrites
    memory, and an error that a program could be compiled around is raised."""
    return os.environ.get("GENESIS_VERIFY", "0") not in ("", "0")


class VerifyError(RuntimeError):
    """A graph breaks a rule of the IR: an error of a pass, never of the user."""


def verify(graph: Graph) -> Graph:
    """Check every rule; returns the graph, so that a call can be wrapped around a pass.

    Raises:
        VerifyError: with the rule that is broken and the node's text.
    """
    names = names_of(graph)
    for rule in GRAPH_RULES:
        for problem in rule(graph):
            raise VerifyError(f"{problem}\n{graph}")
    before: set[Node] = set()
    for node in graph.nodes:
        for node_rule in NODE_RULES:
            for problem in node_rule(node, graph, before):
                raise VerifyError(f"{problem}\n  {node_text(node, names)}\n  at {node.source}")
        before.add(node)
    return graph


Problems = Iterator[str]


# Rules about the graph

def _inputs_are_numbered(graph: Graph) -> Problems:
    for position, node in enumerate(graph.inputs):
        if node.op.name != "input":
            yield f"input {position} of the graph is a node of {node.op.name}, not of input"
        elif node["index"] != position:
            yield f"input {position} of the graph has index {node['index']}"


def _updates_fit(graph: Graph) -> Problems:
    written: set[Node] = set()
    for state, value in graph.updates:
        if state not in graph.inputs:
            yield f"an update writes a node of {state.op.name}, which is no input of the graph"
        if state in written:
            yield f"input {state['index']} is updated twice"
        written.add(state)
        if value.type is not state.type:
            yield f"input {state['index']} of type {state.type} is updated with {type_text(value.type)}"


def _roots_are_single(graph: Graph) -> Problems:
    for position, node in enumerate(graph.outputs):
        if isinstance(node.type, tuple):
            yield f"output {position} is all results of {node.op.name}; an item must pick one"


def _numbers_agree(graph: Graph) -> Problems:
    seen: dict[int, TensorType] = {}
    for node in graph.nodes:
        if node.op.name == "scalar" and seen.setdefault(node["index"], node.type) is not node.type:
            yield f"number {node['index']} is read as {seen[node['index']]} and as {node.type}"


GRAPH_RULES: Final[tuple[Callable[[Graph], Problems], ...]] = (
    _inputs_are_numbered, _updates_fit, _roots_are_single, _numbers_agree)


# Rules about a node

def _operands_come_first(node: Node, graph: Graph, before: set[Node]) -> Problems:
    for position, operand in enumerate(node.inputs):
        if operand not in before:
            yield f"operand {position} of {node.op.name} comes after it"


def _one_value_each(node: Node, graph: Graph, before: set[Node]) -> Problems:
    for position, operand in enumerate(node.inputs):
        if isinstance(operand.type, tuple) and node.op.name != "item":
            yield f"operand {position} of {node.op.name} is all results of {operand.op.name}; an item must pick one"


def _leaves_are_captured(node: Node, graph: Graph, before: set[Node]) -> Problems:
    if node.op.name in ("data", "number"):
        yield f"a {node.op.name} leaf is left, which capture turns into {_CAPTURED[node.op.name]}"
    elif node.op.name == "input" and node not in graph.inputs:
        yield "an input node is none of the graph's inputs"
    elif node.op.name == "scalar" and not 0 <= node["index"] < graph.numbers:
        yield f"the graph has {graph.numbers} numbers"


def _attributes_are_typed(node: Node, graph: Graph, before: set[Node]) -> Problems:
    if len(node.attrs) != len(node.op.attrs):
        yield f"{node.op.name} has {len(node.op.attrs)} attributes, the node {len(node.attrs)}"
        return
    for name, value in zip(node.op.attrs, node.attrs, strict=True):
        check = ATTRIBUTES.get(name)
        if check is None:
            yield f"no rule says what the attribute {name} may be"
        elif not check(value):
            yield f"attribute {name} of {node.op.name} cannot be {value!r}"


def _axes_exist(node: Node, graph: Graph, before: set[Node]) -> Problems:
    typed = node.inputs[0].type if node.inputs else node.type
    if type(typed) is tuple:
        return
    rank = typed.ndim
    for name in {"axis", "axes"} & set(node.op.attrs):
        axes = node[name] if name == "axes" else (node[name],)
        if any(not 0 <= a < rank for a in axes) or len(set(axes)) != len(axes):
            yield f"{name}={node[name]} are not distinct dimensions of {rank}"


def _type_is_inferred(node: Node, graph: Graph, before: set[Node]) -> Problems:
    try:
        expected = node.op.infer(*(x.type for x in node.inputs), **node.attributes)
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        yield f"{node.op.name} does not take these operands: {error}"
        return
    if expected != node.type:
        yield f"{node.op.name} gives {type_text(expected)}"
    for type in expected if isinstance(expected, tuple) else (expected,):
        if type.weak and type.shape:
            yield f"a number has no dimensions, but this is {type}"


def _constant_fits_its_type(node: Node, graph: Graph, before: set[Node]) -> Problems:
    if node.op.name == "const" and not is_literal(node) and type(node["value"]) not in (
            SymInt, _PLAIN[node.type.dtype.kind]):
        yield f"a constant of {node.type.dtype.short} holds a {type(node['value']).__name__}"


def _called_graph_is_valid(node: Node, graph: Graph, before: set[Node]) -> Problems:
    if node.op.name == "call":
        verify(node["graph"])
    return iter(())


NODE_RULES: Final[tuple[Callable[[Node, Graph, set[Node]], Problems], ...]] = (
    _operands_come_first, _one_value_each, _leaves_are_captured, _attributes_are_typed, _axes_exist,
    _type_is_inferred, _constant_fits_its_type, _called_graph_is_valid)

_CAPTURED: Final = {"data": "an input", "number": "a scalar"}
_PLAIN: Final = {"bool": bool, "int": int, "float": float}


# What an attribute may be, by its name: one name means one thing in every op

def _size(value: object) -> bool:
    return type(value) is SymInt or (type(value) is int and value >= 0)


def _sizes(value: object) -> bool:
    return type(value) is tuple and all(map(_size, value))


def _flags(value: object) -> bool:
    return type(value) is tuple and all(isinstance(x, bool) for x in value)


def _is(*types: type) -> Callable[[object], bool]:
    return lambda value: isinstance(value, types) or (type(value) is SymInt and int in types)


ATTRIBUTES: Final[dict[str, Callable[[object], bool]]] = {
    **dict.fromkeys(("shape", "axes", "starts", "stops", "steps", "low", "high"), _sizes),
    **dict.fromkeys(("sizes", "window", "stride", "padding", "dilation"), _sizes),
    **dict.fromkeys(("axis", "index", "ndim", "word", "words", "count", "outputs", "ends", "renewed", "leaf", "groups",
                     "divisor", "splits", "chunk", "k", "run", "shift", "bits", "block", "digit"), _size),
    **dict.fromkeys(("keepdims", "causal", "beside", "turned", "decoupled", "momentum", "nesterov", "centered",
                     "create_graph", "equal_nan", "include_pad", "align_corners", "reverse", "descending", "largest",
                     "right", "skip_nan"), _is(bool)),
    **dict.fromkeys(("eps", "scale", "label_smoothing", "norm_type"), _is(int, float)),
    "value": _is(bool, int, float),
    **dict.fromkeys(("alpha", "beta", "bound", "delta", "input_scale", "least", "most", "slope", "threshold"),
                    _is(int, float)),
    "ignore_index": _is(int),
    "size": _size, "dim": _is(int), "negative": _is(bool), "ignored": _is(int, type(None)),
    **dict.fromkeys(("name", "line", "problem", "communicator"), _is(str)),
    **dict.fromkeys(("checked", "complete", "full_matrices", "hermitian", "include_self", "unitriangular", "upper"),
                    _is(bool)),
    "rtol": _is(float),
    "decimals": _is(int),
    "n": _size,
    **dict.fromkeys(("correction", "p"), _is(int, float)),
    **dict.fromkeys(("mode", "reduce", "how"), _is(str)),
    **dict.fromkeys(("multiple", "splits"), _size),
    "region": _is(int),
    **dict.fromkeys(("world", "peer", "first", "cap"), _size),
    **dict.fromkeys(("sent", "received", "whole", "to", "sources"), _sizes),
    "shapes": lambda value: type(value) is tuple and all(map(_sizes, value)),
    "dtypes": lambda value: type(value) is tuple and all(isinstance(x, DType) for x in value),
    **dict.fromkeys(("tag", "place"), _size),
    **dict.fromkeys(("before", "after"), _is(str)),
    **dict.fromkeys(("biased", "projected", "ragged"), _is(bool)),
    **dict.fromkeys(("arriving", "wanted"), _flags),
    "number": _is(int),
    "scales": lambda value: type(value) is tuple and all(isinstance(x, float) for x in value),
    "approximate": lambda value: value in ("none", "tanh"),
    "dtype": _is(DType),
    "device": _is(Device),
    "type": _is(TensorType),
    "graph": _is(Graph),
}
