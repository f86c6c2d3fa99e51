"""Small graphs for the tests of fusion and code generation, and the one check that most of them make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from genesis.ir import Device, DType, Graph, Node, tensor_type
from genesis.ir.ops import leaves
from genesis.ir.types import float32
from genesis.passes.fusion.fuse import fuse
from genesis.passes.groups import Schedule
from tests.codegen.cuda.evaluate import decomposed, evaluate, torch_dtype
from tests.codegen.cuda.run_interpreted import run_schedule

GPU = Device("cuda", 0)

TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""A few units in the last place of the dtype, for programs of a handful of ops."""


def inputs(*shapes: tuple[int, ...], dtype: DType = float32) -> tuple[Node, ...]:
    """Input nodes 0, 1, … of these shapes."""
    return tuple(an_input(i, shape, dtype) for i, shape in enumerate(shapes))


def an_input(index: int, shape: tuple[int, ...], dtype: DType = float32) -> Node:
    """One input node."""
    return leaves.input(index=index, type=tensor_type(shape, dtype, GPU))


def some(node: Node, seed: int = 0) -> torch.Tensor:
    """Data for an input."""
    generator = torch.Generator().manual_seed(seed + node["index"])
    dtype = torch_dtype(node.dtype)
    if node.dtype.kind == "float":
        return torch.randn(node.shape, generator=generator).to(dtype)
    high = 2 if node.dtype.kind == "bool" else 6
    return torch.randint(0, high, node.shape, generator=generator).to(dtype)


def check(operands: Sequence[Node], *outputs: Node, data: Sequence[torch.Tensor] | None = None,
          numbers: Sequence[Any] = (), tolerance: float | None = None, **limits: Any) -> Schedule:
    """Fuse, run in the interpreter, compare with torch; returns the schedule for more questions."""
    graph = decomposed(Graph(tuple(operands), tuple(outputs), numbers=len(numbers)))
    data = [some(x) for x in operands] if data is None else list(data)
    schedule = fuse(graph)
    found = run_schedule(schedule, data, numbers, **limits)
    for node, want, got in zip(graph.roots, evaluate(graph, data, numbers), found, strict=True):
        allowed = TOLERANCE.get(node.dtype.name, 0) if tolerance is None else tolerance
        torch.testing.assert_close(got.reshape(want.shape), want, rtol=allowed, atol=allowed, equal_nan=True,
                                   msg=lambda text, node=node: f"{node}: {text}")
    return schedule


def kinds(schedule: Schedule) -> list[str]:
    """The kind of each group."""
    return [group.kind for group in schedule.groups]
