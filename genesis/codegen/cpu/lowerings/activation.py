"""Activations with parameters, and their gradients, as torch's kernels into the result's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.table import Lowering, Outs

_aten, _nn = torch.ops.aten, torch._C._nn  # the latter where it has the function: its calls are 1 µs shorter


def _forward(call: Callable) -> Lowering:
    """`call(x, *attributes, out=)`."""
    def run(outs: Outs, x: Tensor, **how: Any) -> Any:
        return call(x, *how.values(), out=outs[0])
    return Lowering(run, in_place=(0,), allocates=True)


def _backward(call: Callable, out: str = "grad_input") -> Lowering:
    """`call(g, x, *attributes, grad_input=)`."""
    def run(outs: Outs, g: Tensor, x: Tensor, **how: Any) -> None:
        call(g, x, *how.values(), **{out: outs[0]})
    return Lowering(run, in_place=(0, 1))


def _leaky_relu_backward(outs: Outs, g: Tensor, x: Tensor, slope: float) -> None:
    _aten.leaky_relu_backward.grad_input(g, x, slope, False, grad_input=outs[0])


def _elu_backward(outs: Outs, g: Tensor, x: Tensor, alpha: float, scale: float, input_scale: float) -> None:
    _aten.elu_backward.grad_input(g, alpha, scale, input_scale, False, x, grad_input=outs[0])


def _logsigmoid_backward(outs: Outs, g: Tensor, x: Tensor) -> None:
    """The buffer is exp(-|x|), which torch keeps from the forward."""
    _aten.log_sigmoid_backward.grad_input(g, x, x.abs().neg_().exp_(), grad_input=outs[0])


def _threshold_backward(outs: Outs, g: Tensor, x: Tensor, bound: float, value: float) -> None:
    _aten.threshold_backward.grad_input(g, x, bound, grad_input=outs[0])


def _relu_backward(outs: Outs, g: Tensor, y: Tensor) -> None:
    _aten.threshold_backward.grad_input(g, y, 0, grad_input=outs[0])


def _not_double(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """torch's kernel has 1/6 in float32."""
    return types[0].dtype.itemsize < 8


def _prelu(x: Tensor, weight: Tensor) -> Tensor:
    return torch._prelu_kernel(x, weight)


ACTIVATION: dict[str, Lowering] = {
    "leaky_relu": _forward(_nn.leaky_relu),
    "leaky_relu_backward": Lowering(_leaky_relu_backward, in_place=(0, 1)),
    "elu": _forward(_nn.elu),
    "elu_backward": Lowering(_elu_backward, in_place=(0, 1)),
    "softplus": _forward(_nn.softplus),
    "softplus_backward": _backward(_aten.softplus_backward.grad_input),
    "logsigmoid": _forward(_nn.log_sigmoid),
    "logsigmoid_backward": Lowering(_logsigmoid_backward),
    "mish": _forward(_nn.mish),
    "mish_backward": Lowering(lambda g, x: _aten.mish_backward(g, x), "fresh"),
    "hardsigmoid": _forward(_nn.hardsigmoid),
    "hardsigmoid_backward": replace(_backward(_aten.hardsigmoid_backward.grad_input), supports=_not_double),
    "hardswish": _forward(_nn.hardswish),
    "hardswish_backward": Lowering(lambda g, x: _aten.hardswish_backward(g, x), "fresh"),
    "hardtanh": _forward(_nn.hardtanh),
    "hardtanh_backward": _backward(_aten.hardtanh_backward.grad_input),
    "hardshrink": _forward(torch.hardshrink),
    "hardshrink_backward": _backward(_aten.hardshrink_backward.grad_input),
    "softshrink": _forward(_nn.softshrink),
    "softshrink_backward": _backward(_aten.softshrink_backward.grad_input),
    "relu_backward": Lowering(_relu_backward, in_place=(0, 1)),
    "threshold": _forward(torch.threshold),
    "threshold_backward": Lowering(_threshold_backward, in_place=(0, 1)),
    "prelu": Lowering(_prelu, "fresh"),
}
