"""The IR, which says what a program is: types, nodes, graphs, the op registry, and their text form."""

from genesis.ir.graph import Graph, rewrite, topological
from genesis.ir.node import OPS, Node, Op, literal, located, make, number, op_named
from genesis.ir.types import Device, DType, TensorType, tensor_type

from genesis.ir import ops as _ops  # isort: skip  (registers every op)

__all__ = ["OPS", "DType", "Device", "Graph", "Node", "Op", "TensorType", "literal", "located", "make", "number",
           "op_named", "rewrite", "tensor_type", "topological"]
