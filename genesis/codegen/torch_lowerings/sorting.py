"""Sorting and searching. torch takes NaN for the largest too; all sorts here are stable."""

from __future__ import annotations

import torch
from torch import Tensor

from genesis.codegen.torch_lowerings.table import Lowering
from genesis.ir.types import DType

Outs = tuple[Tensor, ...]


def _sort(outs: Outs, x: Tensor, axis: int, descending: bool) -> None:
    torch.sort(x, stable=True, dim=axis, descending=descending, out=outs)


def _topk(outs: Outs, x: Tensor, k: int, axis: int, largest: bool) -> None:
    torch.topk(x, k, axis, largest, True, out=outs)


def _unsort(outs: Outs, x: Tensor, index: Tensor, axis: int) -> None:
    outs[0].scatter_(axis, index.long(), x)


def _searchsorted(outs: Outs, rows: Tensor, values: Tensor, right: bool, dtype: DType) -> None:
    outs[0].copy_(torch.searchsorted(rows.contiguous(), values.contiguous(), right=right))


def _counted(x: Tensor, count: int) -> Tensor:
    found = torch.nonzero(x.reshape(-1), as_tuple=True)[0]
    if len(found) != count:
        raise RuntimeError(f"{len(found)} elements are not 0, not the {count} that were counted")
    return found


def _nonzero(outs: Outs, x: Tensor, count: int) -> None:
    outs[0].copy_(_counted(x, count))


def _compress(outs: Outs, x: Tensor, mask: Tensor, count: int) -> None:
    torch.index_select(x, 0, _counted(mask, count), out=outs[0])


def _kthvalue(outs: Outs, x: Tensor, k: int, axis: int) -> None:
    torch.kthvalue(x, k, axis, out=outs)


def _bincount(outs: Outs, ids: Tensor, size: int) -> None:
    outs[0].copy_(torch.bincount(ids, minlength=size))


SORTING: dict[str, Lowering] = {
    "sort": Lowering(_sort),
    "topk": Lowering(_topk),
    "unsort": Lowering(_unsort),
    "searchsorted": Lowering(_searchsorted),
    "nonzero": Lowering(_nonzero),
    "compress": Lowering(_compress),
    "kthvalue": Lowering(_kthvalue, supports=lambda types, attributes: types[0].dtype.kind != "bool"),
    "bincount": Lowering(_bincount),
}
