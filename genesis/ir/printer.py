"""The text of a graph. It is complete: `parser.parse` makes the equal graph from it.

    graph(%0: f32[4,8], %1: f32[8]; 1 number) {
      %2: f64~[] = scalar(index=0)
      %3: f32[4,8] = expand(%1, shape=(4,8))
      %4: f32[4,8] = add(%0, %3)                            # train.py:41 Block.forward
      %5: f32[4,8] = mul(%4, 0.5)
      update %0 = %5
      return %4
    }

    graph  = "graph(" inputs [";" count "number" | "numbers"] ")" "{" statement* "}"
    input  = name ":" type
    line   = name ":" type "=" op "(" operands "," attribute "=" value ")" ["#" source]
           | "update" name "=" operand
           | "return" operands
    type   = f32[4,8] | f32[4]@cuda:0 | f64~[] (a number) | "(" types ")" (several results)
    value  = True | None | 3 | 1e-05 | -inf | 'text' | (4,8) | f32 | cuda:0 | graph(...) {...}

A literal of the program stands where it is used (`0.5` above). An attribute with its default value
is left out, and so is a `type`, which the line says anyway.
"""

from __future__ import annotations

from collections.abc import Iterable

from genesis.ir.graph import Graph
from genesis.ir.node import Node, literal
from genesis.ir.sym_int import SymInt
from genesis.ir.types import Device, DType, TensorType

_COMMENT_COLUMN = 58
"""The column at which a line's comment begins, where the line is shorter."""


def print_graph(graph: Graph, sources: bool = True) -> str:
    """The graph's text; `sources` adds the user's lines as comments.

    >>> from genesis.ir import OPS, tensor_type
    >>> from genesis.ir.types import float32
    >>> x = OPS["input"](index=0, type=tensor_type((4,), float32))
    >>> print(print_graph(Graph((x,), (x * 2.0,)), sources=False))
    graph(%0: f32[4]) {
      %1: f32[4] = mul(%0, 2.0)
      return %1
    }
    """
    return "\n".join(_graph_lines(graph, sources, ""))


def node_text(node: Node, names: dict[Node, str]) -> str:
    """One node's line, without a comment; an operand that has no name yet is `%?`."""
    parts = [_reference(x, names) for x in node.inputs]
    parts += [f"{name}={value}" for name, value in _shown_attributes(node, "")]
    return f"{names.get(node, '%?')}: {type_text(node.type)} = {node.op.name}({', '.join(parts)})"


def names_of(graph: Graph) -> dict[Node, str]:
    """%0, %1, ... for the nodes in order; literals need no name."""
    named = [node for node in graph.nodes if not is_literal(node)]
    return {node: f"%{position}" for position, node in enumerate(named)}


def type_text(type: TensorType | tuple[TensorType, ...]) -> str:
    """A result's type, or the types of several results in parentheses."""
    return f"({_joined(map(str, type))})" if isinstance(type, tuple) else str(type)


def is_literal(node: Node) -> bool:
    """Whether the node is what `literal(value)` makes, so that its value can stand for it."""
    return node.op.name == "const" and node.type.weak and node is literal(node["value"])


def _graph_lines(graph: Graph, sources: bool, indent: str) -> list[str]:
    names = names_of(graph)
    header = ", ".join(f"{names[x]}: {x.type}" for x in graph.inputs)
    if graph.numbers:
        header += f"; {graph.numbers} number{'s' if graph.numbers > 1 else ''}"
    lines = [f"graph({header}) {{"]
    inner = indent + "  "
    for node in graph.nodes:
        if node in names and node.op.name != "input":
            lines.append(_node_line(node, names, sources, inner))
    for state, value in graph.updates:
        lines.append(f"{inner}update {_reference(state, names)} = {_reference(value, names)}")
    returned = ", ".join(_reference(x, names) for x in graph.outputs)
    lines.append(f"{inner}return {returned}".rstrip())
    lines.append(indent + "}")
    return lines


def _node_line(node: Node, names: dict[Node, str], sources: bool, indent: str) -> str:
    parts = [_reference(x, names) for x in node.inputs]
    parts += [f"{name}={value}" for name, value in _shown_attributes(node, indent)]
    line = f"{indent}{names[node]}: {type_text(node.type)} = {node.op.name}({', '.join(parts)})"
    return f"{line.ljust(_COMMENT_COLUMN - 2)}  # {node.source}" if sources and node.source is not None else line


def _shown_attributes(node: Node, indent: str) -> Iterable[tuple[str, str]]:
    defaults = node.op.defaults
    for name, value in zip(node.op.attrs, node.attrs, strict=False):  # a broken node is printed too
        if name == "type" and value is node.type:
            continue
        text = value_text(value, indent)
        if name not in defaults or text != value_text(defaults[name]):
            yield name, text


def _reference(node: Node, names: dict[Node, str]) -> str:
    return value_text(node["value"]) if is_literal(node) else names.get(node, "%?")


def value_text(value: object, indent: str = "") -> str:
    """An attribute's value.

    >>> from genesis.ir.types import Device, float32
    >>> value_text((1, 2.5, float("inf"), True, "tanh", float32, Device("cuda:1")))
    "(1,2.5,inf,True,'tanh',f32,cuda:1)"
    """
    if isinstance(value, tuple):
        return f"({_joined(value_text(v, indent) for v in value)})"
    if isinstance(value, DType):
        return value.short
    if isinstance(value, Graph):
        return "\n".join(_graph_lines(value, False, indent))
    if isinstance(value, (TensorType, Device, SymInt)):  # a symbolic size is shown; it cannot be parsed
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    raise TypeError(f"the text form has no syntax for an attribute of type {type(value).__name__}")


def _joined(parts: Iterable[str]) -> str:
    """Comma-separated; one part keeps its comma, as Python's tuples do."""
    found = list(parts)
    return found[0] + "," if len(found) == 1 else ",".join(found)
