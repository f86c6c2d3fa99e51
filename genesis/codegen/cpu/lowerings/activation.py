"""Activations with parameters, and their gradients, as torch's kernels into the result's memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.table import Lowering, Outs, builtin
from genesis.runtime.plan import Direct

_aten, _nn = torch.ops.aten, torch._C._nn  # the latter where it has the function: its calls are 1 µs shorter


def _forward(call: Callable) -> Lowering:
    """`call(x, *attributes, out=)`."""
    def run(outs: Outs, x: Tensor, **how: Any) -> Any:
        return call(x, *how.values(), out=outs[0])
    return Lowering(run, in_place=(0,), allocates=True, direct=Direct(call, None))


def _backward(overload: Callable) -> Lowering:
    """`overload(g, x, *attributes, grad_input=)`."""
    call = builtin(overload)

    def run(outs: Outs, g: Tensor, x: Tensor, **how: Any) -> None:
        call(g, x, *how.values(), grad_input=outs[0])
    return Lowering(run, in_place=(0, 1), direct=Direct(call, None, "grad_input"))


_threshold_grad = builtin(_aten.threshold_backward.grad_input)
_leaky_relu_grad = builtin(_aten.leaky_relu_backward.grad_input)


def _leaky_relu_backward(outs: Outs, g: Tensor, x: Tensor, slope: float) -> None:
    _leaky_relu_grad(g, x, slope, False, grad_input=outs[0])


def _elu_backward(outs: Outs, g: Tensor, x: Tensor, alpha: float, scale: float, input_scale: float) -> None:
    _aten.elu_backward.grad_input(g, alpha, scale, input_scale, False, x, grad_input=outs[0])


def _logsigmoid_backward(outs: Outs, g: Tensor, x: Tensor) -> None:
    """The buffer is exp(-|x|), which torch keeps from the forward."""
    _aten.log_sigmoid_backward.grad_input(g, x, x.abs().neg_().exp_(), grad_input=outs[0])


def _threshold_backward(outs: Outs, g: Tensor, x: Tensor, bound: float, value: float) -> None:
    _threshold_grad(g, x, bound, grad_input=outs[0])


def _relu_backward(outs: Outs, g: Tensor, y: Tensor) -> None:
    _threshold_grad(g, y, 0, grad_input=outs[0])


def _not_double(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """torch's kernel has 1/6 in float32."""
    return types[0].dtype.itemsize < 8


ACTIVATION: dict[str, Lowering] = {
    "leaky_relu": _forward(_nn.leaky_relu),
    "leaky_relu_backward": Lowering(_leaky_relu_backward, in_place=(0, 1),
                                    direct=Direct(_leaky_relu_grad, ("slope", False), "grad_input")),
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
    "relu_backward": Lowering(_relu_backward, in_place=(0, 1), direct=Direct(_threshold_grad, (0,), "grad_input")),
    "threshold": _forward(torch.threshold),
    "threshold_backward": Lowering(_threshold_backward, in_place=(0, 1),
                                   direct=Direct(_threshold_grad, ("bound",), "grad_input")),
    "prelu": Lowering(torch._prelu_kernel, "fresh"),
}
