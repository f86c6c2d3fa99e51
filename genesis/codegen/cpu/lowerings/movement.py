"""Leaves and movement ops: views where torch has one, else one copy into the result's memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.dtypes import CPU, torch_dtype
from genesis.codegen.cpu.lowerings.table import Lowering, Outs, Writes, into
from genesis.runtime.plan import Direct

Ints = tuple[int, ...]


def shares_memory(x: Tensor, y: Tensor) -> bool:
    """Whether y is a view over x's memory: tells what `reshape` did."""
    return x.untyped_storage()._cdata == y.untyped_storage()._cdata


def copy_base(out: Tensor, base: Tensor) -> None:
    """Start a result from `base`; nothing to do when it is the same memory already."""
    if out.data_ptr() != base.data_ptr():
        out.copy_(base)


def base_copied(out: Tensor, base: Tensor) -> Writes:
    """The calls that start a result from `base`."""
    return [] if out is base or out.data_ptr() == base.data_ptr() else [partial(out.copy_, base)]


def _fill(outs: Outs, value: Any, type: Any) -> Any:
    if outs[0] is None:
        return torch.full(type.shape, value, dtype=torch_dtype(type.dtype), device=CPU)
    return outs[0].fill_(value)


def _fill_late(outs: Outs, value: Any, type: Any) -> Writes:
    return [partial(outs[0].fill_, value)]


def _iota(outs: Outs, shape: Ints, axis: int, dtype: Any, device: Any) -> Any:
    places = torch.arange(shape[axis], dtype=torch_dtype(dtype), device=CPU)
    if len(shape) == 1:
        return into(outs, places)
    along = [1] * len(shape)
    along[axis] = shape[axis]
    out = places.new_empty(shape) if outs[0] is None else outs[0]
    return out.copy_(places.view(along))


def _region(starts: Ints, stops: Ints, steps: Ints) -> tuple[slice, ...]:
    return tuple([slice(a, b, s) for a, b, s in zip(starts, stops, steps, strict=True)])


def _slice(x: Tensor, starts: Ints, stops: Ints, steps: Ints) -> Tensor:
    return x[_region(starts, stops, steps)]


def _pad(outs: Outs, x: Tensor, low: Ints, high: Ints, value: Any) -> None:
    out = outs[0]
    out.fill_(value)
    out[tuple([slice(a, a + n) for a, n in zip(low, x.shape, strict=True)])].copy_(x)


def _concat(outs: Outs, *parts: Tensor, axis: int) -> Any:
    return torch.cat(parts, axis, out=outs[0])


def _concat_late(outs: Outs, *parts: Tensor, axis: int) -> Writes:
    return [partial(torch.cat, parts, axis, out=outs[0])]


def _assign(outs: Outs, base: Tensor, value: Tensor, starts: Ints, stops: Ints, steps: Ints) -> None:
    out = outs[0]
    copy_base(out, base)
    out[_region(starts, stops, steps)].copy_(value)


def _assign_late(outs: Outs, base: Tensor, value: Tensor, starts: Ints, stops: Ints, steps: Ints) -> Writes:
    out = outs[0]
    return [*base_copied(out, base), partial(out[_region(starts, stops, steps)].copy_, value)]


def _linspace(outs: Outs, start: float, end: float, count: int, dtype: Any, device: Any) -> Any:
    return torch.linspace(start, end, count, dtype=torch_dtype(dtype), device=CPU, out=outs[0])


def _triangle(outs: Outs, x: Tensor, diagonal: int, upper: bool) -> Any:
    return (torch.triu if upper else torch.tril)(x, int(diagonal), out=outs[0])


MOVEMENT: dict[str, Lowering] = {
    "const": Lowering(_fill, allocates=True, late=_fill_late, direct=Direct(Tensor.fill_, ("value",), "")),
    "fill": Lowering(_fill, allocates=True, late=_fill_late, direct=Direct(Tensor.fill_, out="")),
    "iota": Lowering(_iota, allocates=True),
    "linspace": Lowering(_linspace, allocates=True),
    "reshape": Lowering(lambda x, shape: x.reshape(shape), "view"),
    "permute": Lowering(lambda x, axes: x.permute(axes), "view"),
    "expand": Lowering(lambda x, shape: x.expand(shape), "view"),
    "slice": Lowering(_slice, "view"),
    "pad": Lowering(_pad),
    "triangle": Lowering(_triangle, allocates=True),
    "flip": Lowering(lambda x, axes: torch.flip(x, axes), "fresh"),
    "concat": Lowering(_concat, allocates=True, late=_concat_late),
    "assign": Lowering(_assign, in_place=(0,), late=_assign_late),
    "recompute": Lowering(lambda x, after=None: x.view(x.shape), "view"),
}
