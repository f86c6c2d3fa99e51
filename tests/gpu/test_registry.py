"""Every op of the registry on CUDA: its samples, against its reference, within its own bound.

All cases of an op are one program, so that on a GPU its kernels compile side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from genesis import engine
from genesis.engine.compilation import compile_graph
from genesis.ir import OPS, Device, Node, literal, tensor_type
from genesis.ir.graph import Graph
from genesis.ir.node import make
from genesis.ir.ops import leaves
from genesis.ir.ops.samples import Case
from genesis.ir.types import DType
from tests.ops import test_registry as registry

GPU = Device("cuda", 0)
CHECKED = [name for name in registry.TESTED if OPS[name].reference is not None]


class Program:
    """Nodes over inputs on CUDA, and what those inputs hold."""

    def __init__(self) -> None:
        self.inputs: list[Node] = []
        self.arrays: list[np.ndarray] = []
        self.roots: list[Node] = []

    def operand(self, value: Any, dtype: DType) -> Node:
        """An input with this content, or a number of the formula."""
        if not isinstance(value, np.ndarray):
            return literal(value)
        self.arrays.append(np.ascontiguousarray(value))
        kind = tensor_type(value.shape, registry.DTYPES_OF_NUMPY[value.dtype], GPU)
        self.inputs.append(make(leaves.input, (), (len(self.inputs), kind)))
        return self.inputs[-1]

    def run(self) -> list[np.ndarray]:
        """The roots' values."""
        compiled = compile_graph(Graph(tuple(self.inputs), tuple(self.roots)), GPU)
        memories = []
        for x in self.arrays:
            memories.append(engine.allocate(x.nbytes, GPU))
            if x.nbytes:
                memories[-1].copy_from_host(x)
        found = []
        for root, memory in zip(self.roots, compiled.run(memories, ()), strict=True):
            found.append(np.empty(root.type.shape, root.type.dtype.numpy))
            if root.type.nbytes:
                memory.copy_to_host(found[-1])
        return found


def cases(name: str, every_dtype: bool) -> list[tuple[Case, DType, registry.Built]]:
    """The op's samples, contiguous."""
    return [(case, dtype, built) for case, dtype, layout, built in registry.runs(OPS[name], fast=not every_dtype)
            if layout == "contiguous"]


@pytest.mark.gpu
@pytest.mark.parametrize("cuda", ["gpu"], indirect=True)
@pytest.mark.parametrize("name", CHECKED)
def test_forward(cuda, name):
    """In the main dtypes, on a GPU. The interpreter has `codegen/cuda/test_pointwise.py`, and here the sweep."""
    check(name, every_dtype=False)


@pytest.mark.sweep
@pytest.mark.parametrize("name", CHECKED)
def test_forward_in_every_dtype(cuda, name):
    check(name, every_dtype=True)


def check(name: str, every_dtype: bool) -> None:
    """The op's samples on CUDA give the reference's values."""
    op, program, expectations = OPS[name], Program(), []
    for case, dtype, built in cases(name, every_dtype):
        node = op(*(program.operand(value, dtype) for value in built.values), **case.attributes)
        about = f"{name} {dtype.short} {registry.shapes(built)} {case.attributes}"
        outputs = registry.parts(node)
        if any(x.type.weak for x in outputs):
            continue
        here = registry.apply(op, built, case)
        expectations.append((here, len(outputs), registry.expected(op, built, case, here), about))
        program.roots += outputs
    found = iter(program.run())
    for node, count, want, about in expectations:
        got = [next(found) for _ in range(count)]
        registry.check(op, node, got if isinstance(node.type, tuple) else got[0], want, about)
