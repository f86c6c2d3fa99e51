"""A batch norm of fixed statistics, taken into the layer before it."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.nn.parameter import Parameter
from genesis.ops.creation import ones_like, zeros_like
from genesis.ops.exponential import rsqrt

Pair = tuple[Parameter, Parameter]


def _fused(weight: Tensor, bias: Tensor | None, mean: Tensor, var: Tensor, eps: float, scale: Tensor | None,
           shift: Tensor | None, along: int) -> Pair:
    bias = zeros_like(mean) if bias is None else bias
    factor = rsqrt(var + eps) * (ones_like(mean) if scale is None else scale)
    shape = [1] * weight.ndim
    shape[along] = -1
    new = (bias - mean) * factor + (zeros_like(mean) if shift is None else shift)
    return (Parameter((weight * factor.reshape(shape)).to(weight.dtype).detach(), weight.requires_grad),
            Parameter(new.to(bias.dtype).detach(), bias.requires_grad))


def fuse_conv_bn_weights(conv_w: Tensor, conv_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
                         bn_w: Tensor | None, bn_b: Tensor | None, transpose: bool = False) -> Pair:
    """Weight and bias of a convolution that does what convolution and batch norm do one after the other."""
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 1 if transpose else 0)


def fuse_linear_bn_weights(linear_w: Tensor, linear_b: Tensor | None, bn_rm: Tensor, bn_rv: Tensor, bn_eps: float,
                           bn_w: Tensor, bn_b: Tensor) -> Pair:
    """Weight and bias of a linear layer that does what it and a batch norm do one after the other."""
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, 0)


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A copy of a convolution, in evaluation mode, with a batch norm taken in.

    >>> import genesis
    >>> from genesis import nn
    >>> conv, norm = nn.Conv1d(2, 3, 1).eval(), nn.BatchNorm1d(3).eval()
    >>> x = genesis.ones(1, 2, 4)
    >>> genesis.allclose(nn.utils.fuse_conv_bn_eval(conv, norm)(x), norm(conv(x)), atol=1e-6)
    True
    """
    return _with_norm(conv, bn, 1 if transpose else 0)


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A copy of a linear layer, in evaluation mode, with a batch norm taken in."""
    return _with_norm(linear, bn, 0)


def _with_norm(layer: Any, bn: Any, along: int) -> Any:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval!")
    found = deepcopy(layer)
    found.weight, found.bias = _fused(found.weight, found.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight,
                                      bn.bias, along)
    return found
