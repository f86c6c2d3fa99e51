"""Scans. torch scans from the start only, so a reversed one is turned before and after."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.table import Lowering, Outs, into, pair

_LOW = (torch.float16, torch.bfloat16)


def _turned(call: Callable, outs: Outs, x: Tensor, axis: int, reverse: bool, **more: Any) -> Any:
    if reverse:
        return into(outs, call(x.flip(axis), axis, **more).flip(axis))
    return call(x, axis, out=outs[0], **more)


def _scan(call: Callable, combine: Callable) -> Lowering:
    def run(outs: Outs, x: Tensor, *ends: Tensor, axis: int, reverse: bool, chunk: int) -> Any:
        if not ends:
            return _turned(call, outs, x, axis, reverse, **({} if call is torch.logcumsumexp else {"dtype": x.dtype}))
        out = outs[0] if outs[0] is not None else torch.empty_like(x, memory_format=torch.contiguous_format)
        length, parts = x.shape[axis], ends[0].shape[axis]
        for part in range(parts):
            start = part * chunk
            here = x.narrow(axis, start, min(chunk, length - start)).to(ends[0].dtype)
            scanned = call(here.flip(axis), axis).flip(axis) if reverse else call(here, axis)
            before = part + (1 if reverse else -1)
            if 0 <= before < parts:
                scanned = combine(scanned, ends[0].narrow(axis, before, 1))
            out.narrow(axis, start, here.shape[axis]).copy_(scanned)
        return out
    return Lowering(run, supports=lambda types, attributes: types[0].dtype.kind != "bool", allocates=True)


def _extremes(call: Callable) -> Lowering:
    def run(outs: Outs, x: Tensor, axis: int) -> Any:
        return call(x, axis, out=pair(outs))
    return Lowering(run, allocates=True)


def _recurrence(outs: Outs, a: Tensor, b: Tensor, axis: int, reverse: bool) -> None:
    """Computes by doubling (Hillis and Steele 1986): after step d, y[i] takes the last 2d elements into account."""
    out = outs[0]
    if out.dtype in _LOW:
        a, b = a.float(), b.float()
    if reverse:
        a, b = a.flip(axis), b.flip(axis)
    a, y = a.clone(memory_format=torch.contiguous_format), b.clone(memory_format=torch.contiguous_format)
    length, distance = y.shape[axis], 1
    while distance < length:
        rest = length - distance
        factor = a.narrow(axis, distance, rest)
        earlier = torch.where(factor == 0, 0, factor * y.narrow(axis, 0, rest))
        y.narrow(axis, distance, rest).add_(earlier)
        factor.copy_(factor * a.narrow(axis, 0, rest))
        distance *= 2
    out.copy_(y.flip(axis) if reverse else y)


SCAN: dict[str, Lowering] = {
    "cumsum": _scan(torch.cumsum, torch.add),
    "cumprod": _scan(torch.cumprod, torch.mul),
    "cummax": _extremes(torch.cummax),
    "cummin": _extremes(torch.cummin),
    "logcumsumexp": _scan(torch.logcumsumexp, torch.logaddexp),
    "recurrence": Lowering(_recurrence),
}
