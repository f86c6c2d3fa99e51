"""Ops indexed by integer tensors. All are deterministic: equal indices are walked in order.

torch does so itself but for index_copy_, whose threads write equal rows at once: there the rows that stay are found
before. Adding rows up in float16 or bfloat16 would round after every row; they add up in float32 here.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.movement import base_copied, copy_base
from genesis.codegen.cpu.lowerings.table import Lowering, Outs, Writes
from genesis.ir.failed_op import Unfit

_INDEX = (torch.int64, torch.int32)
_LOW = (torch.float16, torch.bfloat16)


def _flat(index: Tensor) -> Tensor:
    """A one-dimensional index in a dtype that torch takes."""
    if index.dtype not in _INDEX:
        index = index.long()
    return index if index.ndim == 1 else index.reshape(-1)


def _rows(x: Tensor, axis: int, index: Tensor, like: Tensor) -> Tensor:
    """x of shape (..., *index.shape, ...) with the index's dimensions joined into one."""
    if index.ndim == 1:
        return x
    return x.reshape(*like.shape[:axis], index.numel(), *like.shape[axis + 1:])


def _row_number(outs: Outs, index: Tensor, size: int, dim: int) -> None:
    if index.numel():
        low, high = index.aminmax()
        if low < -size or high >= size:
            wrong = index[(index < -size) | (index >= size)].reshape(-1)[0].item()
            raise IndexError(f"index {wrong} is out of bounds for dimension {dim} with size {size}")
        if low < 0:
            torch.remainder(index, size, out=outs[0])
        else:  # a copy takes a tenth of the time
            outs[0].copy_(index)


def _require_all(outs: Outs, x: Tensor, condition: Tensor, name: str, problem: str) -> Any:
    if not condition.all():
        raise Unfit(f"{name}: {problem}")
    return x.clone(memory_format=torch.contiguous_format) if outs[0] is None else outs[0].copy_(x)


def _take(outs: Outs, x: Tensor, index: Tensor, axis: int) -> Any:
    if outs[0] is None:
        found = torch.index_select(x, axis, _flat(index))
        return found if index.ndim == 1 else found.view((*x.shape[:axis], *index.shape, *x.shape[axis + 1:]))
    return torch.index_select(x, axis, _flat(index), out=_rows(outs[0], axis, index, x))


def _index_add(outs: Outs, base: Tensor, index: Tensor, source: Tensor, axis: int) -> None:
    out = outs[0]
    rows = _rows(source, axis, index, base)
    if out.dtype in _LOW:
        out.copy_(base.float().index_add_(axis, _flat(index), rows.float()))
        return
    copy_base(out, base)
    out.index_add_(axis, _flat(index), rows)


def _inside(index: Tensor, base: Tensor, dim: int) -> Tensor:
    """The index, if all of it is inside that dimension; a number is a row of one.

    Raises:
        IndexError: some of it is not.
    """
    if index.numel():
        size = base.shape[dim] if base.ndim else 1
        low, high = index.aminmax()
        if low < 0 or high >= size:
            raise IndexError(f"index {(low if low < 0 else high).item()} is out of bounds for dimension {dim} with "
                             f"size {size}")
    return index


def _index_add_late(outs: Outs, base: Tensor, index: Tensor, source: Tensor, axis: int) -> Writes:
    out = outs[0]
    rows, places = _rows(source, axis, index, base), _inside(_flat(index), base, axis)
    if out.dtype in _LOW:
        return [partial(out.copy_, base.float().index_add_(axis, places, rows.float()))]
    return [*base_copied(out, base), partial(out.index_add_, axis, places, rows)]


DIVIDED: Final = 32768
"""Elements from which torch divides a copy among its threads (`at::internal::GRAIN_SIZE`)."""

NARROW: Final = 16
"""Elements of a row below which finding the rows that stay costs more than writing all of them."""


def _index_copy(outs: Outs, base: Tensor, index: Tensor, source: Tensor, axis: int) -> None:
    """torch looks at each index itself, as it writes: what is written before it raises nobody reads."""
    if source.numel() < DIVIDED or torch.get_num_threads() == 1:
        out = outs[0]
        copy_base(out, base)
        out.index_copy_(axis, _flat(index).long(), _rows(source, axis, index, base))
        return
    for write in _index_copy_late(outs, base, index, source, axis):
        write()


def _one_row(out: Tensor, base: Tensor, index: Tensor, source: Tensor, axis: int) -> Writes:
    """The calls that write one row: its number is read once, and nothing is looked for."""
    row, size = int(index), base.shape[axis]
    if not 0 <= row < size:
        raise IndexError(f"index {row} is out of bounds for dimension {axis} with size {size}")
    return [*base_copied(out, base), partial(out.select(axis, row).copy_, source.select(axis, 0))]


def _index_copy_late(outs: Outs, base: Tensor, index: Tensor, source: Tensor, axis: int) -> Writes:
    if index.ndim == 1 and index.numel() == 1:
        return _one_row(outs[0], base, index, source, axis)
    out, rows, index = outs[0], _rows(source, axis, index, base), _inside(_flat(index).long(), base, axis)
    started = base_copied(out, base)
    if rows.numel() >= DIVIDED and torch.get_num_threads() > 1 and not _ascends(index):
        if rows.numel() < NARROW * index.numel():  # scatter_ has a line of the axis in one thread
            along = [1] * rows.ndim
            along[axis] = -1
            return [*started, partial(out.scatter_, axis, index.reshape(along).expand(rows.shape), rows)]
        last = _last_of_equal(index, out.shape[axis])
        if last.numel() < index.numel():
            index, rows = index[last], rows.index_select(axis, last)
    return [*started, partial(out.index_copy_, axis, index, rows)]


def _ascends(index: Tensor) -> bool:
    """Whether each number of an index (n,) is above the one before, as those of a mask are: none comes twice."""
    return bool((index[1:] > index[:-1]).all())


def _last_of_equal(index: Tensor, size: int) -> Tensor:
    """The last position of each of an index's values (n,), all below `size`; in order."""
    places = torch.arange(index.numel(), dtype=torch.int64, device=index.device)
    last = index.new_empty(size).scatter_(0, index, places)
    return (last[index] == places).nonzero().view(-1)


def _gather(outs: Outs, x: Tensor, index: Tensor, axis: int) -> Any:
    return torch.gather(x, axis, index.long(), out=outs[0])


def _repeated(index: Tensor, base: Tensor, axis: int) -> Tensor:
    """An index that torch adds at as told.

    torch takes one that is expanded for an index of whole rows, also where it has fewer elements than the base along
    another axis: then sums go to wrong places (2.13, on the CPU). Such an index is written out.
    """
    rows = (*index.shape[:axis], *index.shape[axis + 1:]) == (*base.shape[:axis], *base.shape[axis + 1:])
    return index if rows else index.contiguous()


def _scatter_add(outs: Outs, base: Tensor, index: Tensor, source: Tensor, axis: int) -> None:
    out, index = outs[0], _repeated(index.long(), base, axis)
    if out.dtype in _LOW:
        out.copy_(base.float().scatter_add_(axis, index, source.float()))
        return
    copy_base(out, base)
    out.scatter_add_(axis, index, source)


def _scatter_add_late(outs: Outs, base: Tensor, index: Tensor, source: Tensor, axis: int) -> Writes:
    out, index = outs[0], _repeated(_inside(index.long(), base, axis), base, axis)
    if out.dtype in _LOW:
        return [partial(out.copy_, base.float().scatter_add_(axis, index, source.float()))]
    return [*base_copied(out, base), partial(out.scatter_add_, axis, index, source)]


def _scatter(outs: Outs, base: Tensor, index: Tensor, source: Tensor, axis: int) -> None:
    out = outs[0]
    copy_base(out, base)
    out.scatter_(axis, index.long(), source)


def _scatter_late(outs: Outs, base: Tensor, index: Tensor, source: Tensor, axis: int) -> Writes:
    return [*base_copied(outs[0], base),
            partial(outs[0].scatter_, axis, _inside(index.long(), base, axis), source)]


def _scatter_reduce(outs: Outs, base: Tensor, index: Tensor, source: Tensor, axis: int, reduce: str,
                    include_self: bool) -> None:
    out = outs[0]
    copy_base(out, base)
    out.scatter_reduce_(axis, _repeated(index.long(), base, axis), source, reduce, include_self=include_self)


def _at_least_float32(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """torch rounds after every element: float16 and bfloat16 are added up in the decomposition, in float32."""
    return types[0].dtype.itemsize >= 4


INDEXING: dict[str, Lowering] = {
    "scatter_reduce": Lowering(_scatter_reduce, supports=_at_least_float32, in_place=(0,)),
    "row_number": Lowering(_row_number),
    "require_all": Lowering(_require_all, in_place=(0,), allocates=True),
    "take": Lowering(_take, allocates=True),
    "index_add": Lowering(_index_add, in_place=(0,), late=_index_add_late, late_reads=True),
    "index_copy": Lowering(_index_copy, in_place=(0,), late=_index_copy_late, late_reads=True),
    "gather": Lowering(_gather, allocates=True),
    "scatter_add": Lowering(_scatter_add, in_place=(0,), late=_scatter_add_late, late_reads=True),
    "scatter": Lowering(_scatter, in_place=(0,), late=_scatter_late, late_reads=True),
}
