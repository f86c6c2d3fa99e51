"""The norm of many tensors, and gradients clipped by it or element by element."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.table import Lowering, Writes
from genesis.ir.node import Node


def _total_norm(outs: tuple[Tensor, ...], *tensors: Tensor, norm_type: float) -> None:
    some = [x for x in tensors if x.numel()]
    if not some:
        outs[0].zero_()
        return
    norms = torch._foreach_norm(some, norm_type, dtype=outs[0].dtype)
    torch.linalg.vector_norm(torch.stack(norms), norm_type, out=outs[0])


def _clip_by_norm(outs: tuple[Tensor, ...], bound: Any, norm: Tensor, *gradients: Tensor) -> None:
    for write in _clip_by_norm_late(outs, bound, norm, *gradients):
        write()


def _clip_by_norm_late(outs: tuple[Tensor, ...], bound: Any, norm: Tensor, *gradients: Tensor) -> Writes:
    """The norm is read here: gradients that are short enough stay as they are, where they lie. As a number the factor
    costs less than as a tensor; gradients of 16 bits are multiplied by it in their own dtype, as torch does."""
    factor: Any = (float(bound) / (norm + 1e-6)).clamp_(max=1.0)
    if all(out.itemsize >= 4 for out in outs):
        factor = factor.item()
    here, writes = [], list[Callable[[], Any]]()
    for out, gradient in zip(outs, gradients, strict=True):
        if out.data_ptr() == gradient.data_ptr():
            here.append(out)
        else:
            writes.append(partial(torch.mul, gradient, factor, out=out))
    if here and factor != 1:
        writes.append(partial(torch._foreach_mul_, here, factor))
    return writes


def _clip_by_value(outs: tuple[Tensor, ...], low: Any, high: Any, *gradients: Tensor) -> None:
    for out, gradient in zip(outs, gradients, strict=True):
        torch.clamp(gradient, low, high, out=out)


def _clip_by_value_late(outs: tuple[Tensor, ...], low: Any, high: Any, *gradients: Tensor) -> Writes:
    return [partial(torch.clamp, gradient, low, high, out=out) for out, gradient in zip(outs, gradients, strict=True)]


def _own_gradient(node: Node, index: int) -> int:
    """Each result may lie where its gradient lies, which stands after two other operands."""
    return 2 + index


def _bound_is_number(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    return bool(types[0].weak)


CLIPPING: dict[str, Lowering] = {
    "total_norm": Lowering(_total_norm),
    "clip_by_norm": Lowering(_clip_by_norm, supports=_bound_is_number, writes_over=_own_gradient,
                             late=_clip_by_norm_late, late_reads=True),
    "clip_by_value": Lowering(_clip_by_value, supports=_bound_is_number, writes_over=_own_gradient,
                              late=_clip_by_value_late),
}
