"""What fusion decides: which nodes become one kernel, and why."""

from __future__ import annotations

from dataclasses import dataclass

from genesis.ir.graph import Graph
from genesis.ir.node import Node


@dataclass(frozen=True)
class Group:
    """One kernel.

    Attributes:
        kind: "loop" (pointwise ops and reductions over one iteration space), "matmul", "scan",
            "scatter", "foreach" (one pointwise program over many tensors); on the CPU "call" (one
            op or composite) and "view" (movement that moves nothing).
        nodes: what it computes, operands before users. Leaves (`const`, `iota`, `scalar`) and
            movement nodes that feed it are among them.
        inputs: values it reads from memory, row-major and contiguous; no leaves but `input`.
        outputs: its nodes that are written to memory, row-major and contiguous.
        reason: why these nodes are together, in words (`genesis why` prints it).
    """

    kind: str
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    reason: str


@dataclass(frozen=True)
class Schedule:
    """A graph and its groups in the order in which they run."""

    graph: Graph
    groups: tuple[Group, ...]
