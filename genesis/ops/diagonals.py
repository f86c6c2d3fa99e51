"""Diagonals, windows and any other strided look at a tensor; and copies with such a part replaced."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from genesis.frontend import view_geometry
from genesis.frontend.detached import note_detached
from genesis.frontend.grad_mode import mode
from genesis.frontend.recording import TensorBase, note_view, over, owned, require_tensors
from genesis.frontend.views import STRIDED, View
from genesis.ir.errors import failure
from genesis.ir.types import tensor_type
from genesis.ops.common import axis_in, shape_of
from genesis.ops.out import into
from genesis.ops.parts import narrow, select, sliced
from genesis.ops.shape import movedim, padded, reshape, shown, strides_of, unsqueeze, untracked

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["as_strided", "as_strided_scatter", "diag", "diag_embed", "diagflat", "diagonal", "diagonal_scatter",
           "select_scatter", "slice_scatter", "trace"]


def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A view of a diagonal of two dimensions, as a last dimension in their place.

    Args:
        input: at least two dimensions.
        offset: how far above the main diagonal; below it when negative.
        dim1: the rows.
        dim2: the columns.

    >>> import genesis
    >>> genesis.arange(9).reshape(3, 3).diagonal()
    tensor([0, 4, 8])
    """
    ndim = input.spec.ndim
    rows, columns = axis_in("diagonal", dim1, ndim), axis_in("diagonal", dim2, ndim)
    if rows == columns:
        raise failure("diagonal", f"diagonal dimensions cannot be identical {dim1}, {dim2}", [("input", input)])
    if (rows, columns) != (ndim - 2, ndim - 1):
        input = movedim(input, (rows, columns), (-2, -1))
    return shown(input, view_geometry.diagonal(input.spec, input.part, operator.index(offset)))


def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """A matrix with this vector on a diagonal, or a matrix's diagonal as a copy."""
    if input.spec.ndim == 1:
        return into(out, diag_embed(input, diagonal))
    if input.spec.ndim != 2:
        raise failure("diag", "expected a vector or a matrix", [("input", input)])
    return into(out, _diagonal(input, diagonal).clone())


_diagonal = diagonal


def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """Matrices with the last dimension on a diagonal and zeros elsewhere.

    >>> import genesis
    >>> genesis.diag_embed(genesis.tensor([1, 2]))
    tensor([[1, 0],
            [0, 2]])
    """
    ndim = input.spec.ndim + 1
    rows, columns = axis_in("diag_embed", dim1, ndim), axis_in("diag_embed", dim2, ndim)
    if rows == columns:
        raise failure("diag_embed", f"diagonal dimensions cannot be identical {dim1}, {dim2}", [("input", input)])
    offset = operator.index(offset) if rows < columns else -operator.index(offset)
    count = input.spec.shape[-1]
    size = count + abs(offset)
    spread = padded(unsqueeze(input, -1), input.spec.ndim, 0, size)  # each element, then a row's length of zeros
    flat = reshape(spread, (*input.spec.shape[:-1], count * (size + 1)))
    first = offset if offset >= 0 else -offset * size
    total = size * size
    whole = padded(flat, flat.spec.ndim - 1, first, max(total - first - flat.spec.shape[-1], 0))
    matrix = reshape(narrow(whole, -1, 0, total), (*input.spec.shape[:-1], size, size))
    return owned(movedim(matrix.contiguous(), (-2, -1), (min(rows, columns), max(rows, columns))))


def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """A matrix with all elements on a diagonal."""
    return diag_embed(reshape(input, -1), offset)


def trace(input: Tensor) -> Tensor:
    """The sum of a matrix's main diagonal."""
    if input.spec.ndim != 2:
        raise failure("trace", "expected a matrix", [("input", input)])
    return diagonal(input).sum()


def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of the storage with these sizes and strides; elements may overlap.

    Args:
        input: its storage is looked at, whatever part of it the tensor shows.
        size: the view's shape.
        stride: in elements, one for each dimension, ≥ 0.
        storage_offset: of the first element; the input's own for None.

    Raises:
        RuntimeError: sizes and strides do not fit together, or reach beyond the storage.

    >>> import genesis
    >>> genesis.arange(5).as_strided((3, 3), (1, 1))
    tensor([[0, 1, 2],
            [1, 2, 3],
            [2, 3, 4]])
    """
    require_tensors(input)
    shape, strides = shape_of((size,)), shape_of((stride,))
    start = operator.index(storage_offset) if storage_offset is not None else (
        0 if input.part is None else input.part.offset)
    if len(shape) != len(strides):
        raise failure("as_strided", f"mismatch in length of strides {list(strides)} and shape {list(shape)}",
                      [("input", input)])
    if any(step < 0 for step in strides) or start < 0:
        raise failure("as_strided", f"strides {list(strides)} and offset {start} may not be negative",
                      [("input", input)])
    last = start + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    count = input.storage.type.numel
    if 0 not in shape and last >= count:
        raise failure("as_strided", f"setStorage: sizes {list(shape)}, strides {list(strides)} and offset {start} "
                      f"reach element {last} of a storage of {count}", [("input", input)])
    if input.leaf is not None and input.part is not None and input.part.leaf_steps:
        if not mode.enabled:
            return as_strided(input.detach(), size, stride, storage_offset)
        raise failure("as_strided", "the input is a view that wants a gradient of its own", [("input", input)],
                      hint="take as_strided of a copy: x.clone()")
    kind = input.spec
    result = over(input.storage, tensor_type(shape, kind.dtype, kind.device),
                  View(strides, start, ((STRIDED, (shape, strides, start)),)))
    result.leaf, result.detached, result.is_view = input.leaf, input.detached, True
    if result.leaf is None:
        note_view(result)
    if result.detached is not None and input.storage.needs_grad:
        note_detached(result)
    if not mode.enabled:
        untracked(result, input)
    return result


def unfold(input: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """A view of all windows of `size` elements along a dimension, `step` apart, in a new last dimension.

    >>> import genesis
    >>> genesis.arange(5).unfold(0, 3, 2)
    tensor([[0, 1, 2],
            [2, 3, 4]])
    """
    shape = input.spec.shape
    axis = axis_in("unfold", dimension, max(len(shape), 1))
    length = shape[axis] if shape else 1
    if not 0 <= size <= length:
        raise failure("unfold", f"maximum size for tensor at dimension {dimension} is {length} but size is {size}",
                      [("input", input)])
    if step < 1:
        raise failure("unfold", f"step is {step} but must be > 0", [("input", input)])
    if not shape:
        return as_strided(input, (size,), (1,))
    strides = strides_of(input)
    count, own = (length - size) // step + 1, strides[axis]
    return as_strided(input, (*shape[:axis], count, *shape[axis + 1:], size),
                      (*strides[:axis], step * own, *strides[axis + 1:], own))


def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with the position `index` along `dim` replaced."""
    return _with("select_scatter", input, src, lambda x: select(x, dim, index))


def slice_scatter(input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
                  step: int = 1, *, out: Tensor | None = None) -> Tensor:
    """A copy with the elements start:end:step along `dim` replaced."""
    axis = axis_in("slice_scatter", dim, input.spec.ndim)
    if step < 1:
        raise failure("slice_scatter", f"step must be positive, not {step}", [("input", input)])
    first, last, _ = slice(start, end).indices(input.spec.shape[axis])
    starts, stops, steps = [0] * input.spec.ndim, list(input.spec.shape), [1] * input.spec.ndim
    starts[axis], stops[axis], steps[axis] = first, max(first, last), step
    found = _with("slice_scatter", input, src, lambda x: sliced(x, tuple(starts), tuple(stops), tuple(steps)))
    return into(out, found)


def diagonal_scatter(input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A copy with a diagonal replaced."""
    return _with("diagonal_scatter", input, src, lambda x: diagonal(x, offset, dim1, dim2))


def as_strided_scatter(input: Tensor, src: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A copy with the elements that `as_strided` shows replaced."""
    return _with("as_strided_scatter", input, src, lambda x: as_strided(x, size, stride, storage_offset))


def _with(op: str, input: Tensor, src: Tensor, part: Any) -> Tensor:
    """A copy of the input whose part is the source."""
    require_tensors(input, src)
    copy = input.clone()
    place = part(copy)
    if place.spec.shape != src.spec.shape:
        raise failure(op, f"expected src to have a size equal to the part of the input: {list(place.spec.shape)}, got "
                      f"{list(src.spec.shape)}", [("input", input), ("src", src)])
    place.copy_(src)
    return copy


class DiagonalMethods(TensorBase):
    """The methods of a tensor that are the functions above."""

    __slots__ = ()

    diagonal = diagonal
    diag = diag
    diag_embed = diag_embed
    diagflat = diagflat
    trace = trace
    as_strided = as_strided
    unfold = unfold
    select_scatter = select_scatter
    slice_scatter = slice_scatter
    diagonal_scatter = diagonal_scatter
    as_strided_scatter = as_strided_scatter
