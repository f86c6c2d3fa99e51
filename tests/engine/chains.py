"""Long programs, made to be compiled once: node by node, with another shape for every length."""

from __future__ import annotations

from genesis.ir import OPS, Device, Graph, Node, make, tensor_type
from genesis.ir.node import literal
from genesis.ir.ops import control, leaves
from genesis.ir.types import cpu, float32


def _input(index: int, shape: tuple[int, ...], device: Device) -> Node:
    return leaves.input(index=index, type=tensor_type(shape, float32, device))


def pointwise(count: int, device: Device = cpu) -> Graph:
    """`count` pointwise ops, each reading the one before."""
    x = y = _input(0, (8, count), device)
    for i in range(count):
        y = OPS["tanh"](y) if i % 3 == 0 else y * (1 + i / 1000) if i % 3 == 1 else y + x
    return Graph((x,), (y,))


def composites(count: int, device: Device = cpu) -> Graph:
    """`count` ops that CUDA decomposes."""
    x = y = _input(0, (8, count), device)
    for i in range(count):
        if i % 4 == 0:
            y = OPS["gelu"](y)
        elif i % 4 == 1:
            y = OPS["softmax"](y, axis=1)
        elif i % 4 == 2:
            y = OPS["layer_norm"](y, ndim=1, eps=1e-5)
        else:
            y = OPS["silu"](y) + x
    return Graph((x,), (y,))


def backward(count: int, device: Device = cpu) -> Graph:
    """The gradient of `count` ops: the values of the forward are alive until their turn comes."""
    x = y = _input(0, (8, count), device)
    for i in range(count):
        y = OPS["sin"](y) if i % 2 else y * x
    request = make(control.grad, (OPS["sum"](y, axes=(0, 1)), leaves.full((), 1.0, float32, device), x),
                   (1, False, 0, 0))
    return Graph((x,), (make(control.item, (request,), (0,)),))


def rows_written(count: int, device: Device = cpu) -> Graph:
    """`for i in range(count): x[i + 1] = x[i] * 2`."""
    x = y = _input(0, (count + 1, 8), device)
    for i in range(count):
        row = OPS["slice"](y, starts=(i, 0), stops=(i + 1, 8), steps=(1, 1)) * 2.0
        y = OPS["assign"](y, row, starts=(i + 1, 0), stops=(i + 2, 8), steps=(1, 1))
    return Graph((x,), (y,))


def side_by_side(count: int, device: Device = cpu) -> Graph:
    """`count` outputs of one input, and all of them joined."""
    x = _input(0, (2, count), device)
    parts = [OPS["sin"](x * (i + 0.5)) for i in range(count)]
    return Graph((x,), (OPS["concat"](*parts, axis=0), *parts))


def readers(count: int, device: Device = cpu) -> Graph:
    """`count` / 2 values of one input, added up one after the other."""
    x, start = _input(0, (2, 8), device), _input(1, (2, 8), device)
    total = start
    for i in range(count // 2):
        total = total + x * (i + 0.5)
    return Graph((x, start), (total,))


def training_step(count: int, device: Device = cpu) -> Graph:
    """Forward, backward and AdamW of `count` / 16 layers: about `count` ops forward and back, four inputs a layer."""
    layers, d = count // 16, 16
    x = _input(0, (count, d), device)
    weights, *moments = (tuple(_input(1 + family * layers + i, (d, d), device) for i in range(layers))
                         for family in range(3))
    y = x
    for w in weights:
        y = OPS["gelu"](OPS["linear"](OPS["layer_norm"](y, ndim=1, eps=1e-5), w)) + y
    loss = OPS["sum"](y * y, axes=(0, 1))
    request = make(control.grad, (loss, leaves.full((), 1.0, float32, device), *weights), (1, False, 0, 0))
    gradients = [make(control.item, (request,), (i,)) for i in range(layers)]
    numbers = [leaves.scalar(index=i, type=literal(1.0).type) for i in range(7)]
    state = (*weights, *moments[0], *moments[1])
    step = OPS["adamw"](*numbers, *weights, *gradients, *moments[0], *moments[1], count=layers, decoupled=True)
    return Graph((x, *state), (loss,), tuple((s, make(control.item, (step,), (i,))) for i, s in enumerate(state)), 7)
