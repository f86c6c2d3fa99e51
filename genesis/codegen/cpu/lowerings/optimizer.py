"""Optimizer updates over all parameters at once: torch's fused in-place kernels."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.dtypes import number_tensor
from genesis.codegen.cpu.lowerings.movement import base_copied
from genesis.codegen.cpu.lowerings.table import Lowering, Writes
from genesis.ir.node import Node

Outs = tuple[Tensor, ...]

FAR = 1e9
"""A step number at which torch's own bias corrections are 1."""


def roles_of(operands: tuple[Tensor, ...], count: int, before: list[Any]) -> list[list[Tensor]]:
    """The tensors by role (parameters, gradients, moments), `count` of each.

    torch's fused kernels walk memory: all are contiguous. The calls that copy those that are not are appended to
    `before`.
    """
    rest = []
    for x in operands:
        if not x.is_contiguous():
            turned, x = x, torch.empty_like(x, memory_format=torch.contiguous_format)
            before.append(partial(x.copy_, turned))
        rest.append(x)
    return [rest[i:i + count] for i in range(0, len(rest), count)]


def _adamw(outs: Outs, *operands: Any, **attributes: Any) -> None:
    for write in _adamw_late(outs, *operands, **attributes):
        write()


def _adamw_late(outs: Outs, lr: Any, beta1: Any, beta2: Any, eps: Any, decay: Any, correction1: Any, correction2: Any,
                *tensors: Tensor, count: int, decoupled: bool) -> Writes:
    """torch derives the bias corrections c1, c2 from a step number; the op has them as operands.

    m / (√(v / c2) + eps) · lr / c1 = m / (√v + eps·√c2) · lr·√c2 / c1, so with lr and eps scaled like
    this and torch's corrections at 1 the update is the same. lr · decay is kept as it is.
    """
    before: list[Any] = []
    parameters, gradients, first, second = roles_of(tensors, count, before)
    _start(outs, parameters + first + second, before)
    lr, root, decay = float(lr), math.sqrt(correction2), float(decay)
    scaled = lr * root / float(correction1)
    call = torch._fused_adamw_ if decoupled else torch._fused_adam_
    if decoupled:
        decay = lr * decay / scaled if scaled else 0.0
    return [*before, partial(
        call, list(outs[:count]), gradients, list(outs[count:2 * count]), list(outs[2 * count:]), [],
        [number_tensor(FAR, torch.float32)] * count, lr=scaled, beta1=float(beta1), beta2=float(beta2),
        weight_decay=decay, eps=float(eps) * root, amsgrad=False, maximize=False)]


def _start(outs: Outs, bases: list[Tensor], before: list[Any]) -> None:
    """Append the calls that start results from what they update, where these lie elsewhere."""
    for out, x in zip(outs, bases, strict=True):
        before.extend(base_copied(out, x))


def _sgd(outs: Outs, *operands: Any, **attributes: Any) -> None:
    for write in _sgd_late(outs, *operands, **attributes):
        write()


def _sgd_late(outs: Outs, lr: Any, rate: Any, dampening: Any, decay: Any, *tensors: Tensor, count: int, momentum: bool,
              nesterov: bool) -> Writes:
    before: list[Any] = []
    parameters, gradients, *buffers = roles_of(tensors, count, before)
    _start(outs, parameters + (buffers[0] if momentum else []), before)
    held = list(outs[count:])
    if momentum and not rate:  # torch skips the buffers then, but they are results here
        steps, shown = list(map(torch.empty_like, gradients)), list(outs[:count])
        return [*before, partial(torch._foreach_copy_, steps, gradients),
                partial(torch._foreach_add_, steps, shown, alpha=float(decay)),
                partial(torch._foreach_copy_, held, steps),
                partial(torch._foreach_mul_, held, 1 - float(dampening)),
                partial(torch._foreach_add_, shown, steps if nesterov else held, alpha=-float(lr))]
    return [*before, partial(
        torch._fused_sgd_, list(outs[:count]), gradients, held, weight_decay=float(decay),
        momentum=float(rate) if momentum else 0.0, lr=float(lr), dampening=float(dampening),
        nesterov=nesterov, maximize=False, is_first_step=False)]


def _one_dtype(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """torch's fused kernels take one dtype for all roles."""
    return len({t.dtype for t in types if not t.weak}) == 1


def _at_least_float32(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """The sgd kernel of torch 2.13 leaves whole vectors of float16 and bfloat16 parameters unchanged."""
    return _one_dtype(types, attributes) and types[-1].dtype.itemsize >= 4


def own_tensor(node: Node, index: int) -> int:
    """The results are the roles but the second one, of gradients, which stand after the numbers."""
    numbers = next(i for i, x in enumerate(node.inputs) if not x.type.weak)  # they come first
    return numbers + (index if index < node["count"] else index + int(node["count"]))


OPTIMIZER: dict[str, Lowering] = {
    "adamw": Lowering(_adamw, supports=_one_dtype, writes_over=own_tensor, late=_adamw_late),
    "sgd": Lowering(_sgd, supports=_at_least_float32, writes_over=own_tensor, late=_sgd_late),
}
