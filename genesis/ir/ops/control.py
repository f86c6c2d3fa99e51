"""Control: ops about the program itself. No backend sees them; passes resolve each one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op, next_node_number
from genesis.ir.types import TensorType

if TYPE_CHECKING:
    from genesis.ir.graph import Graph

_new_node = Node.__new__

item = Op("item", "control", lambda x, index: x[index], attrs=("index",), differentiable=True,
          doc="One result of an op that has several.")


def results_of(node: Node) -> list[Node]:
    """All results of an op that has several and was just recorded, for the only one who knows it.

    Unlike `item`s that are recorded one by one these are not looked up, and no table knows them (`Node.shown`): an
    optimizer has hundreds, of which each is made in these lines (`benchmarks/host_time.py`).
    """
    inputs, source, types = (node,), node.source, node.types
    found = []
    for place, kind in zip(_places(len(types)), types, strict=True):
        result = _new_node(Node)
        result.op, result.inputs, result.attrs, result.type, result.source = item, inputs, place, kind, source
        result.buffer = result.hooks = result.boundary = None
        result.needs_grad, result.shown, result.number = False, True, next_node_number()
        found.append(result)
    return found


@cache
def _places(count: int) -> list[tuple[int]]:
    """The attributes of the first `count` results."""
    return [(index,) for index in range(count)]


watch = Op("watch", "control", lambda x, leaf: x, attrs=("leaf",), vjp=lambda g, x, y, leaf: g,
           doc="x, as read by the tensor number `leaf` that wants a gradient. Two tensors over one memory are "
               "two leaves.")

stop_gradient = Op("stop_gradient", "control", lambda x: x, differentiable=False, doc="x, seen as a constant (detach).")

alias = Op("alias", "control", lambda x, number: x, attrs=("number",), vjp=lambda g, x, y, number: g,
           doc="x, with a gradient of its own: the copy of a tensor, or a value that gradients are asked for, beside "
               "an equal one of another tensor.")

known = Op("known", "control", lambda x, memory: x, vjp=lambda g, x, memory, y: (g, None),
           doc="x, whose value is in memory already: differentiate x, read `memory`.")


overwritten = Op("overwritten", "control", lambda x, value: x, vjp=lambda g, x, value, y: (g, None),
                 doc="The value of `value`, differentiated as x: a tensor computed as x whose memory was written to "
                     "without gradients.")


def _lost_type(type: TensorType, number: int) -> TensorType:
    return type


lost = Op("lost", "control", _lost_type, attrs=("type", "number"),
          doc="A value whose memory was overwritten. Fine as long as nothing needs it: compiling a program that does "
              "raises. The number tells it from others: what a leaf tensor held at one time and at another are two "
              "values, by each of which it has a gradient.")


released = Op("released", "control", lambda x: x, vjp=lambda g, x, y: g,
              doc="x, as a forward reads it: nothing keeps it for a backward, which reads another copy (`renewed` of "
                  "`grad`).")


def _grad_type(*types: TensorType, outputs: int, create_graph: bool, ends: int, renewed: int) -> tuple[TensorType, ...]:
    for y, g in zip(types[:outputs], types[outputs:2 * outputs], strict=True):
        if y.shape != g.shape:
            raise RuntimeError(f"an output of shape {y.shape} needs a gradient of that shape, not {g.shape}")
    return types[2 * outputs:len(types) - 2 * renewed]


grad = Op("grad", "control", _grad_type, attrs=("outputs", "create_graph", "ends", "renewed"),
          defaults={"ends": 0, "renewed": 0},
          differentiable=True,
          doc="Reverse-mode gradients: operands are the outputs, their gradients, then the nodes to differentiate by; "
              "a result for each of these, a constant to other gradients without create_graph. At the last `ends` of "
              "them gradients stop: what is behind gets none through them. Behind these come `renewed` pairs: where "
              "gradients would read the first, they read the second, an equal value. The autodiff pass expands it.")


def asked_of(request: Node) -> tuple[Node, ...]:
    """What a `grad` node differentiates by."""
    return request.inputs[2 * request["outputs"]:len(request.inputs) - 2 * request["renewed"]]


def ends_of(request: Node) -> tuple[Node, ...]:
    """Where the gradients of a `grad` node stop."""
    asked = asked_of(request)
    return asked[len(asked) - request["ends"]:]


def renewed_in(request: Node) -> list[tuple[Node, Node]]:
    """(value, the equal value that the gradients of a `grad` node read instead)."""
    pairs = request.inputs[len(request.inputs) - 2 * request["renewed"]:]
    return list(zip(pairs[::2], pairs[1::2], strict=True))


def _call_type(*types: TensorType, graph: Graph) -> tuple[TensorType, ...]:
    return tuple(node.type for node in graph.outputs)


def _call_body(*operands: Node, graph: Graph) -> tuple[Node, ...]:
    from genesis.ir.graph import apply
    return apply(graph, operands)


def gradient_inputs(node: Node) -> Sequence[Node]:
    """What gradients of a node go on to: its operands, or for one result of a call what that result depends on.

    Those of them that have `needs_grad` get a gradient.
    """
    if node.op is item and node.inputs[0].op is call:
        operands = node.inputs[0].inputs
        return [operands[i] for i in node.inputs[0].attrs[0].differentiable_inputs[node.attrs[0]]]
    return node.inputs


call = Op("call", "control", _call_type, attrs=("graph",), differentiable=True, decompose=_call_body,
          doc="A compiled function applied to memory and numbers: the inline pass puts its graph here.")
