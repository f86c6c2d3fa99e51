"""Reductions. torch accumulates float16 and bfloat16 in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.table import Lowering, Outs, into
from genesis.runtime.plan import Direct

Ints = tuple[int, ...]

_LOW = (torch.float16, torch.bfloat16)


def _some_axes(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """No axes mean all of them to torch, and none to the op."""
    return bool(attributes["axes"])


def _some_axes_of_floats(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    return bool(attributes["axes"]) and types[0].dtype.kind == "float"


OVER: Final = ("axes", "keepdims")
"""Attributes that stand behind the operand of a reduction."""


def _over_axes(call: Callable) -> Lowering:
    """The lowering to a torch reduction over a tuple of dimensions, an empty one of which means all to torch."""
    def run(outs: Outs, x: Tensor, axes: Ints, keepdims: bool) -> Any:
        return call(x, axes, keepdims, out=outs[0]) if axes else _same(outs, x)
    return Lowering(run, allocates=True, direct=Direct(call, OVER), direct_for=_some_axes)


def _extreme(call: Callable, of_all: Callable) -> Lowering:
    """`of_all` takes integers four at a time."""
    def run(outs: Outs, x: Tensor, axes: Ints, keepdims: bool) -> Any:
        if not axes:
            return _same(outs, x)
        if keepdims or len(axes) < x.ndim or x.dtype.is_floating_point or x.dtype is torch.bool:
            return call(x, axes, keepdims, out=outs[0])
        return into(outs, of_all(x))
    return Lowering(run, allocates=True, direct=Direct(call, OVER), direct_for=_some_axes_of_floats)


def _truth(call: Callable) -> Lowering:
    """`any` and `all`, which are uint8 of uint8 to torch."""
    def run(outs: Outs, x: Tensor, axes: Ints, keepdims: bool) -> Any:
        x = x if x.dtype is not torch.uint8 else x.bool()
        return call(x, axes, keepdims, out=outs[0]) if axes else _same(outs, x if x.dtype is torch.bool else x != 0)
    return Lowering(run, allocates=True)


def _same(outs: Outs, x: Tensor) -> Any:
    """A reduction over no axes."""
    return into(outs, x if outs[0] is not None else x.clone(memory_format=torch.contiguous_format))


def _sum(outs: Outs, x: Tensor, axes: Ints, keepdims: bool) -> Any:
    return torch.sum(x, axes, keepdims, dtype=x.dtype, out=outs[0]) if axes else _same(outs, x)


def _prod(outs: Outs, x: Tensor, axes: Ints, keepdims: bool) -> None:
    """torch multiplies over one dimension, so several are moved last and joined."""
    out = outs[0]
    if not axes:
        out.copy_(x)
        return
    if len(axes) > 1:
        kept = [i for i in range(x.ndim) if i not in axes]
        sizes = [x.shape[i] for i in kept]
        count = 1
        for a in axes:
            count *= x.shape[a]
        x, out, axes = x.permute(*kept, *axes).reshape(*sizes, count), out.view(sizes), (len(kept),)
        keepdims = False
    if out.dtype in _LOW:  # torch rounds after every factor
        out.copy_(torch.prod(x, axes[0], keepdims, dtype=torch.float32))
    else:
        torch.prod(x, axes[0], keepdims, dtype=out.dtype, out=out)


def _arg(call: Callable) -> Lowering:
    def run(outs: Outs, x: Tensor, axis: int, keepdims: bool) -> Any:
        return call(x if x.dtype is not torch.bool else x.view(torch.uint8), axis, keepdims, out=outs[0])
    return Lowering(run, allocates=True)


def _variance(call: Callable) -> Lowering:
    def run(outs: Outs, x: Tensor, axes: Ints, keepdims: bool, correction: float) -> Any:
        return call(x, axes, correction=correction, keepdim=keepdims, out=outs[0])
    return Lowering(run, supports=_some_axes, allocates=True)


def _vector_norm(outs: Outs, x: Tensor, axes: Ints, keepdims: bool, p: float) -> Any:
    return torch.linalg.vector_norm(x, p, axes, keepdims, out=outs[0])


def _nansum(outs: Outs, x: Tensor, axes: Ints, keepdims: bool) -> Any:
    return torch.nansum(x, axes, keepdims, dtype=x.dtype, out=outs[0])


def _count_nonzero(x: Tensor, axes: Ints, keepdims: bool) -> Tensor:
    found = torch.count_nonzero(x) if len(axes) == x.ndim else torch.count_nonzero(x, axes)
    return found.reshape([1 if i in axes else n for i, n in enumerate(x.shape)]) if keepdims else found


def _composite(call: Callable) -> Lowering:
    def run(outs: Outs, x: Tensor, axes: Ints, keepdims: bool) -> Any:
        return call(x, axes, keepdims, out=outs[0])
    return Lowering(run, supports=_some_axes, allocates=True, direct=Direct(call, OVER))


REDUCTION: dict[str, Lowering] = {
    "sum": Lowering(_sum, allocates=True, direct=Direct(torch.sum, OVER), direct_for=_some_axes_of_floats),
    "prod": Lowering(_prod),
    "mean": _over_axes(torch.mean),
    "max": _extreme(torch.amax, torch.max),
    "min": _extreme(torch.amin, torch.min),
    "any": _truth(torch.any),
    "all": _truth(torch.all),
    "argmax": _arg(torch.argmax),
    "argmin": _arg(torch.argmin),
    "var": _variance(torch.var),
    "std": _variance(torch.std),
    "vector_norm": Lowering(_vector_norm, supports=_some_axes, allocates=True,
                            direct=Direct(torch.linalg.vector_norm, ("p", *OVER))),
    "logsumexp": _composite(torch.logsumexp),
    "nanmean": _composite(torch.nanmean),
    "nansum": Lowering(_nansum, supports=_some_axes, allocates=True),
    "count_nonzero": Lowering(_count_nonzero, "fresh", _some_axes),
}
