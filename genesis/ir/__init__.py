"""The IR, which says what a program is: types, nodes, graphs, the op registry, and their text form.

In: nothing of Genesis. Out: what all other rooms speak of.

| file | what it does |
|---|---|
| `types.py`, `result_types.py` | types of values, and of an op's results |
| `node.py`, `graph.py`, `source.py` | ops and nodes; programs; the user's line of a node |
| `ops/`, `opaque.py`, `numbers.py` | the registry; what fusion knows of an op with a kernel; Python numbers |
| `printer.py`, `parser.py`, `verify.py` | a program as text, and the rules that it keeps |
| `walk.py`, `backward_reads.py`, `flops.py` | what a value needs, what a derivative reads, what an op takes |
| `sym_int.py`, `polynomials.py`, `size_*.py` | sizes that change, and what is asked of them |
| `place.py`, `memos.py` | where values are while a plan runs; what the process remembers, in bytes |
| `errors.py`, `failed_op.py`, `misplaced.py`, `suggest.py` | what users are told |
| `absent.py`, `torch_paths.py`, `torch_modules.py` | torch's names and modules that are left out, or elsewhere |
"""

from genesis.ir.graph import Graph, rewrite, topological
from genesis.ir.node import OPS, Node, Op, literal, located, make, op_named
from genesis.ir.numbers import number
from genesis.ir.types import Device, DType, TensorType, tensor_type

from genesis.ir import ops as _ops  # isort: skip  (registers every op)

__all__ = ["OPS", "DType", "Device", "Graph", "Node", "Op", "TensorType", "literal", "located", "make", "number",
           "op_named", "rewrite", "tensor_type", "topological"]
