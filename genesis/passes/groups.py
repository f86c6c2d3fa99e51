"""What fusion decides: which nodes become one kernel, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import leaves
from genesis.ir.types import TensorType
from genesis.passes.fusion.index_map import Expr, replaced_by

Space = tuple[tuple[int, str], ...]
"""An iteration space: sizes in row-major order, each "x" (kept) or "r" (reduced)."""


@dataclass(frozen=True)
class Slice:
    """Where a kernel's result lies in a larger value, of which other kernels write the other parts.

    Attributes:
        part: the result.
        whole: the larger value. It is written when all its parts are.
        address: the element of the whole that has the result's element `e`, both counted row-major.
    """

    part: Node
    whole: Node
    address: Expr


@dataclass(frozen=True)
class Group:
    """One kernel.

    Attributes:
        kind: "loop" (pointwise ops and reductions over one iteration space), "matmul", "attention",
            "attention_backward", "scan", "scatter", "foreach" (one pointwise program over many tensors), "norm_parts"
            (what many tensors add to a norm), "sums_of_columns" (of many matrices), "side_by_side" (small loops in one
            launch), "joined" (a concatenation whose parts were written where it lies: no kernel); on the CPU "call"
            (one op or composite) and "view" (movement that moves nothing).
        nodes: what it computes, operands before users. Leaves (`const`, `iota`, `scalar`) and
            movement nodes that feed it are among them.
        inputs: values it reads from memory, row-major and contiguous; no leaves but `input`.
        outputs: its nodes that are written to memory, row-major and contiguous unless they are `slices`.
        reason: why these nodes are together, in words (`genesis why` prints it).
        space: of a loop: each output covers all of it, or its kept part.
        members: the loop groups that it runs: of a foreach of equal structure, side by side any.
        in_place: (output, input): the kernel may write this output over this input's memory, because
            it reads every element of the input just where it writes that element of the output.
        starts_from: (output, input): the kernel writes only a part of this output; before it runs, the output's
            memory must have the input's content (the planner lets them share memory, or has it copied).
        after: values of other groups that it does not read and runs after all the same (`recompute`).
        keeps: values that it does not read and that are in memory until it has run: a collective may still move them
            (`overlap_collectives`).
        slices: outputs that lie in larger values.
    """

    kind: str
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    reason: str
    space: Space = ()
    members: tuple[Group, ...] = ()
    in_place: tuple[tuple[Node, Node], ...] = ()
    starts_from: tuple[tuple[Node, Node], ...] = ()
    after: tuple[Node, ...] = ()
    keeps: tuple[Node, ...] = ()
    slices: tuple[Slice, ...] = ()

    @cached_property
    def scalars(self) -> tuple[Node, ...]:
        """The plan's numbers that the kernel reads, in order of first use."""
        return tuple(node for node in self.nodes if node.op is leaves.scalar)

    @property
    def collective(self) -> Node | None:
        """The collective that it is; None if it is none."""
        return next((node for node in self.nodes if node.op.kind == "collective"), None)

    @property
    def runs_nothing(self) -> bool:
        """Whether it only says where a value is."""
        return self.kind in ("view", "joined")

    def slice_of(self, output: Node) -> Slice | None:
        """The slice that an output is; None if its memory is its own."""
        return next((x for x in self.slices if x.part is output), None)

    def address(self, output: Node, position: Expr) -> Expr:
        """The element of its memory where an output's element at a row-major position is written."""
        found = self.slice_of(output)
        return position if found is None else replaced_by(found.address, position)

    def memory_type(self, output: Node) -> TensorType:
        """The type of what lies in an output's memory: the larger value's, of a slice."""
        found = self.slice_of(output)
        return output.type if found is None else found.whole.type


class Late(Enum):
    """Whether what runs a group may be one of a program's last calls, those that overwrite memory.

    They are made ready before the first of them runs, and then run in one loop, which no line of Python interrupts and
    in which nothing fails.
    """

    ALWAYS = "always"
    OF_EARLIER_VALUES = "if what it reads is there before the first of them runs"
    NEVER = "never"


@dataclass(frozen=True)
class MissedFusion:
    """A fusion that was possible in principle and did not happen."""

    producer: Node
    consumer: Node
    why: str


@dataclass(frozen=True)
class Schedule:
    """A graph and its groups in the order in which they run.

    Attributes:
        missed: what did not become one kernel.
        placed: (collective, why it stands where it stands).
    """

    graph: Graph
    groups: tuple[Group, ...]
    missed: tuple[MissedFusion, ...] = ()
    placed: tuple[tuple[Node, str], ...] = ()
