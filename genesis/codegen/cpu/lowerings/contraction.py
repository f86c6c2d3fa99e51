"""Matrix products: mm, bmm and addmm into the result's memory."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.table import Lowering, Outs


def _not_bool(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    return types[0].dtype.kind != "bool"


def _batch(x: Tensor) -> Tensor:
    """(..., rows, columns) as (batches, rows, columns)."""
    if x.ndim == 3:
        return x
    count = 1
    for size in x.shape[:-2]:
        count *= size
    return x.reshape(count, *x.shape[-2:])


def _matmul(outs: Outs, a: Tensor, b: Tensor) -> Any:
    out = outs[0]
    if a.ndim == 2 and a.shape[0] == b.shape[1] == 1 and a.dtype in _DOT:  # ten times as fast as the product
        return torch.dot(a[0], b[:, 0], out=None if out is None else out[0, 0]).view(1, 1)
    if a.ndim == 2:
        return torch.mm(a, b, out=out)
    made = torch.bmm(_batch(a), _batch(b), out=None if out is None else _batch(out))
    return made.view((*a.shape[:-1], b.shape[-1]))


_DOT = (torch.float32, torch.float64)


def _linear(outs: Outs, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> None:
    out = outs[0]
    if x.ndim == 2:
        torch._C._nn.linear(x, weight, bias, out=out)  # addmm or mm, with the weight transposed in C
        return
    out_features, in_features = weight.shape
    rows = 1
    for size in x.shape[:-1]:
        rows *= size
    x, out = x.reshape(rows, in_features), out.view(rows, out_features)
    if bias is None:
        torch.mm(x, weight.t(), out=out)
    else:
        torch.addmm(bias, x, weight.t(), out=out)


CONTRACTION: dict[str, Lowering] = {
    "matmul": Lowering(_matmul, supports=_not_bool, allocates=True),
    "linear": Lowering(_linear, supports=_not_bool),
}
