"""Kernels touch no memory but their tensors', also where a mask decides what is read."""

from __future__ import annotations

import pytest
import torch

from genesis.ir.graph import Graph
from genesis.ir.node import Node
from genesis.ir.ops import leaves, movement
from genesis.ir.types import float32, tensor_type
from genesis.passes.fusion.fuse import fuse

from .run_interpreted import run_schedule


def rows_of(size: int) -> Node:
    return leaves.input(index=0, type=tensor_type((size, 3), float32))


PROGRAMS = {
    "the last part of a concatenation": (lambda x: movement.concat(x, x * 2.0, axis=0) + 1.0,
                                         lambda x: torch.cat([x, x * 2]) + 1),
    "three parts": (lambda x: movement.concat(x + 1.0, x * 2.0, x, axis=1) * 3.0,
                    lambda x: torch.cat([x + 1, x * 2, x], 1) * 3),
    "padding": (lambda x: movement.pad(x * 2.0, low=(2, 1), high=(1, 2)) + 1.0,
                lambda x: torch.nn.functional.pad(x * 2, (1, 2, 2, 1)) + 1),
}


@pytest.mark.parametrize("program, expected", PROGRAMS.values(), ids=PROGRAMS.keys())
def test_only_its_tensors(program, expected) -> None:
    x = rows_of(5)
    values = torch.arange(15.0).reshape(5, 3)
    found, = run_schedule(fuse(Graph((x,), (program(x),))), [values])
    assert torch.equal(found, expected(values))
