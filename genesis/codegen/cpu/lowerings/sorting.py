"""Sorting and searching. torch takes NaN for the largest too; all sorts here are stable."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.dtypes import torch_dtype
from genesis.codegen.cpu.lowerings.table import Lowering, Outs, into, pair
from genesis.ir.types import DType


def _sort(outs: Outs, x: Tensor, axis: int, descending: bool) -> Any:
    return torch.sort(x, stable=True, dim=axis, descending=descending, out=pair(outs))


def _topk(outs: Outs, x: Tensor, k: int, axis: int, largest: bool) -> Any:
    return torch.topk(x, k, axis, largest, True, out=pair(outs))


def _unsort(outs: Outs, x: Tensor, index: Tensor, axis: int) -> None:
    outs[0].scatter_(axis, index.long(), x)


def _searchsorted(outs: Outs, rows: Tensor, values: Tensor, right: bool, dtype: DType) -> Any:
    as_int32 = torch_dtype(dtype) is torch.int32
    return into(outs, torch.searchsorted(rows.contiguous(), values.contiguous(), right=right, out_int32=as_int32))


def _counted(x: Tensor, count: int) -> Tensor:
    found = torch.nonzero(x.reshape(-1), as_tuple=True)[0]
    if len(found) != count:
        raise RuntimeError(f"{len(found)} elements are not 0, not the {count} that were counted")
    return found


def _nonzero(outs: Outs, x: Tensor, count: int) -> Any:
    return into(outs, _counted(x, count))


def _compress(outs: Outs, x: Tensor, mask: Tensor, count: int) -> Any:
    return torch.index_select(x, 0, _counted(mask, count), out=outs[0])


def _kthvalue(outs: Outs, x: Tensor, k: int, axis: int) -> Any:
    return torch.kthvalue(x, k, axis, out=pair(outs))


def _nanargmedian(outs: Outs, x: Tensor, axis: int) -> Any:
    return into(outs, torch.nanmedian(x, axis)[1])


def _argmedian(outs: Outs, x: Tensor, axis: int) -> Any:
    return into(outs, torch.median(x, axis)[1])


def _median(outs: Outs, x: Tensor, skip_nan: bool) -> Any:
    return into(outs, torch.nanmedian(x) if skip_nan else torch.median(x))


def _bincount(outs: Outs, ids: Tensor, size: int) -> Any:
    return into(outs, torch.bincount(ids, minlength=size))


SORTING: dict[str, Lowering] = {
    "sort": Lowering(_sort, allocates=True),
    "topk": Lowering(_topk, allocates=True),
    "unsort": Lowering(_unsort),
    "searchsorted": Lowering(_searchsorted, allocates=True),
    "nonzero": Lowering(_nonzero, allocates=True),
    "compress": Lowering(_compress, allocates=True),
    "kthvalue": Lowering(_kthvalue, supports=lambda types, attributes: types[0].dtype.kind != "bool", allocates=True),
    "nanargmedian": Lowering(_nanargmedian, allocates=True),
    "argmedian": Lowering(_argmedian, allocates=True),
    "median": Lowering(_median, allocates=True),
    "bincount": Lowering(_bincount, allocates=True),
}
