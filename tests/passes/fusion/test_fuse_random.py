"""Random programs of views, arithmetic and reductions: whatever is fused, the values are torch's."""

from __future__ import annotations

import random

import pytest
import torch

from genesis.ir import Graph, Node, literal
from genesis.ir.node import broadcast
from genesis.ir.ops import indexing, movement
from genesis.ir.ops import pointwise as p
from genesis.ir.ops import reduction as r
from genesis.ir.types import int64
from genesis.passes.fusion.fuse import fuse
from tests.codegen.cuda.evaluate import evaluate
from tests.codegen.cuda.programs import an_input, some
from tests.codegen.cuda.run_interpreted import run_schedule

LARGEST = 400


class Program:
    """A random graph that grows by one op at a time."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.inputs: list[Node] = []
        self.data: list[torch.Tensor] = []
        base = tuple(self.random.choice((1, 2, 3, 4, 5, 6, 8)) for _ in range(self.random.choice((1, 2, 2, 3))))
        self.values = [self.input(base), self.input(base), self.input(base[-1:])]
        for _ in range(self.random.randrange(3, 16)):
            self.grow()

    def input(self, shape: tuple[int, ...]) -> Node:
        node = an_input(len(self.inputs), shape)
        self.inputs.append(node)
        self.data.append(some(node))
        return node

    def grow(self) -> None:
        x = self.random.choice(self.values[-5:] if self.random.random() < 0.7 else self.values)
        step = self.random.choice(STEPS)
        if x.type.ndim or step in (unary, binary):
            try:
                y = step(self, x)
            except RuntimeError:  # shapes that do not broadcast
                return
            if y.type.numel <= LARGEST:
                self.values.append(y)

    def outputs(self) -> tuple[Node, ...]:
        chosen = [self.values[-1], *self.random.sample(self.values, self.random.randrange(0, 3))]
        return tuple(node for node in dict.fromkeys(chosen) if node.op.name != "input")


def unary(program: Program, x: Node) -> Node:
    op = program.random.choice((p.exp, p.sin, p.neg, p.abs, p.sigmoid, p.tanh))
    return op(p.minimum(x, literal(2.0)))


def binary(program: Program, x: Node) -> Node:
    op = program.random.choice((p.add, p.sub, p.mul, p.maximum))
    return op(*broadcast(x, program.random.choice(program.values)))


def reduce(program: Program, x: Node) -> Node:
    axes = tuple(sorted(program.random.sample(range(x.type.ndim), program.random.randint(1, x.type.ndim))))
    y = program.random.choice((r.sum, r.max, r.min))(x, axes=axes, keepdims=program.random.random() < 0.3)
    return x - r.spread(y, x, axes) if program.random.random() < 0.6 else y


def permute(program: Program, x: Node) -> Node:
    return movement.permute(x, axes=tuple(program.random.sample(range(x.type.ndim), x.type.ndim)))


def reshape(program: Program, x: Node) -> Node:
    rows = program.random.choice([d for d in range(1, x.type.numel + 1) if x.type.numel % d == 0])
    return movement.reshape(x, shape=(rows, x.type.numel // rows))


def _region(program: Program, x: Node) -> dict[str, tuple[int, ...]]:
    starts = tuple(program.random.randrange(size) for size in x.shape)
    stops = tuple(program.random.randint(a + 1, size) for a, size in zip(starts, x.shape, strict=True))
    return {"starts": starts, "stops": stops, "steps": tuple(program.random.choice((1, 1, 2)) for _ in starts)}


def cut(program: Program, x: Node) -> Node:
    return movement.slice(x, **_region(program, x))


def pad(program: Program, x: Node) -> Node:
    low, high = (tuple(program.random.randrange(2) for _ in x.shape) for _ in range(2))
    return movement.pad(x, low=low, high=high, value=1.5)


def flip(program: Program, x: Node) -> Node:
    return movement.flip(x, axes=(program.random.randrange(x.type.ndim),))


def concat(program: Program, x: Node) -> Node:
    other = p.neg(x) if program.random.random() < 0.5 else x
    return movement.concat(x, other, axis=program.random.randrange(x.type.ndim))


def assign(program: Program, x: Node) -> Node:
    region = _region(program, x)
    return movement.assign(x, p.exp(p.minimum(movement.slice(x, **region), literal(1.0))), **region)


def gather(program: Program, x: Node) -> Node:
    axis = program.random.randrange(x.type.ndim)
    shape = tuple(program.random.randint(1, 4 if i == axis else size) for i, size in enumerate(x.shape))
    index = an_input(len(program.inputs), shape, int64)
    program.inputs.append(index)
    program.data.append(torch.randint(0, x.shape[axis], shape))
    return indexing.gather(x, index, axis=axis)


STEPS = (unary, unary, binary, binary, binary, reduce, reduce, permute, reshape, cut, pad, flip, concat, assign, gather)


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_random_programs(first: int) -> None:
    for seed in range(first, first + 50):
        torch.manual_seed(seed)
        program = Program(seed)
        graph = Graph(tuple(program.inputs), program.outputs())
        want = evaluate(graph, program.data)
        found = run_schedule(fuse(graph), program.data)
        for node, expected, got in zip(graph.roots, want, found, strict=True):
            torch.testing.assert_close(got.reshape(expected.shape), expected, rtol=2e-4, atol=2e-4, equal_nan=True,
                                       msg=lambda text, seed=seed, node=node: f"program {seed}, {node}: {text}")
