"""Shape ops made of others: stacking, splitting, turning, rolling."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, owned, require_tensors
from genesis.ir.errors import failure
from genesis.ir.types import int64
from genesis.ops.common import axes_in, axis_in, shape_of, to_dtype
from genesis.ops.out import into
from genesis.ops.parts import cat, narrow, split, stack
from genesis.ops.ranges import meshgrid
from genesis.ops.shape import flatten, flip, movedim, padded, reshape, transpose, unsqueeze

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["atleast_1d", "atleast_2d", "atleast_3d", "block_diag", "cartesian_prod", "column_stack", "dsplit",
           "dstack", "fliplr", "flipud", "hsplit", "hstack", "moveaxis", "ravel", "roll", "rot90", "row_stack",
           "swapaxes", "swapdims", "tensor_split", "unravel_index", "vsplit", "vstack"]


def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension: a view of memory in row-major order, else a copy.

    >>> import genesis
    >>> genesis.ravel(genesis.tensor([[1, 2], [3, 4]]))
    tensor([1, 2, 3, 4])
    """
    require_tensors(input)
    return flatten(input.contiguous())


def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """`transpose` by numpy's name."""
    return transpose(input, axis0, axis1)


def swapdims(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """`transpose` by another name."""
    return transpose(input, dim0, dim1)


def moveaxis(input: Tensor, source: int | Sequence[int], destination: int | Sequence[int]) -> Tensor:
    """`movedim` by numpy's name."""
    return movedim(input, source, destination)


def roll(input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = None) -> Tensor:
    """A copy whose elements moved by `shifts` along `dims`; what leaves at one end comes in at the other.

    Args:
        input: any shape.
        shifts: places to move, one for each of `dims`; negative ones go back.
        dims: None rolls all elements in row-major order.

    Raises:
        RuntimeError: there are not as many shifts as dims.

    >>> import genesis
    >>> genesis.roll(genesis.arange(5), 2)
    tensor([3, 4, 0, 1, 2])
    """
    require_tensors(input)
    if dims is None:
        if len(_listed(shifts)) != 1:
            raise failure("roll", f"{len(_listed(shifts))} shifts need as many dims", [("input", input)])
        return owned(reshape(roll(flatten(input), shifts, 0), input.spec.shape))
    steps, along = _listed(shifts), _listed(dims)
    if len(steps) != len(along):
        raise failure("roll", f"shifts and dimensions must align: {len(steps)} shifts, {len(along)} dims",
                      [("input", input)])
    moved = input
    for step, dim in zip(steps, along, strict=True):
        axis = axis_in("roll", dim, input.spec.ndim)
        size = input.spec.shape[axis]
        by = step % size if size else 0
        if by:
            moved = cat((narrow(moved, axis, size - by, by), narrow(moved, axis, 0, size - by)), axis)
    return moved if moved is not input else input.clone()


def _listed(x: int | Sequence[int]) -> list[int]:
    return list(x) if isinstance(x, Sequence) else [operator.index(x)]


def fliplr(input: Tensor) -> Tensor:
    """A copy with columns (dimension 1) backwards."""
    if input.spec.ndim < 2:
        raise failure("fliplr", "the input must have at least 2 dimensions", [("input", input)])
    return flip(input, 1)


def flipud(input: Tensor) -> Tensor:
    """A copy with rows (dimension 0) backwards."""
    if input.spec.ndim < 1:
        raise failure("flipud", "the input must have at least 1 dimension", [("input", input)])
    return flip(input, 0)


def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """A copy turned k times by 90 degrees, from the first of `dims` towards the second.

    >>> import genesis
    >>> genesis.rot90(genesis.tensor([[1, 2], [3, 4]]))
    tensor([[2, 4],
            [1, 3]])
    """
    if len(dims) != 2:
        raise failure("rot90", f"rotation happens in 2 dims, not in {len(dims)}", [("input", input)])
    flat = input.spec.ndim < 2
    if flat:
        raise failure("rot90", f"expected total dims >= 2, but got total dims = {input.spec.ndim}", [("input", input)])
    first, second = (axis_in("rot90", dim, input.spec.ndim) for dim in dims)
    if first == second:
        raise failure("rot90", f"the two dims of a rotation differ, not {tuple(dims)}", [("input", input)])
    turns = k % 4
    if turns == 0:
        return input.clone()
    if turns == 2:
        return flip(input, first, second)
    return owned(transpose(flip(input, second), first, second)) if turns == 1 else flip(
        transpose(input, first, second), second)


def atleast_1d(*tensors: Any) -> Any:
    """The tensors with at least one dimension; a tuple if several (or a list of them) are given."""
    return _each(tensors, lambda x: x if x.spec.ndim else reshape(x, 1))


def atleast_2d(*tensors: Any) -> Any:
    """The tensors with at least two dimensions, new ones in front."""
    return _each(tensors, _to_2d)


def atleast_3d(*tensors: Any) -> Any:
    """The tensors with at least three dimensions: a vector as (1, n, 1), a matrix as (m, n, 1)."""
    return _each(tensors, lambda x: x if x.spec.ndim >= 3 else unsqueeze(_to_2d(x), -1))


def _to_2d(x: Tensor) -> Tensor:
    return x if x.spec.ndim >= 2 else reshape(x, (1, -1) if x.spec.numel else (1, *(x.spec.shape or (1,))))


def _each(tensors: tuple[Any, ...], change: Any) -> Any:
    if len(tensors) == 1 and isinstance(tensors[0], TensorBase):
        return change(tensors[0])
    listed = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    return tuple([change(x) for x in listed])


def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Side by side: along dimension 1, vectors along their only one."""
    parts = atleast_1d(_some("hstack", tensors))
    return into(out, cat(parts, 0 if parts[0].spec.ndim == 1 else 1))


def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """One below the other: along dimension 0, vectors as rows."""
    return into(out, cat(atleast_2d(_some("vstack", tensors)), 0))


row_stack = vstack


def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The tensors behind each other, along dimension 2."""
    return into(out, cat(atleast_3d(_some("dstack", tensors)), 2))


def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """Side by side, vectors as columns."""
    given = _some("column_stack", tensors)
    columns = [x if x.spec.ndim > 1 else reshape(x, -1, 1) for x in given]
    return into(out, cat(columns, 1))


def _some(name: str, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, of which there is one at least."""
    if not tensors:
        raise failure(name, "expected a non-empty list of tensors")
    return list(tensors)


def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Views of parts along `dim`: so many of nearly one size, or cut at these indices.

    >>> import genesis
    >>> genesis.tensor_split(genesis.arange(5), 2)
    (tensor([0, 1, 2]), tensor([3, 4]))
    """
    axis = axis_in("tensor_split", dim, input.spec.ndim)
    size = input.spec.shape[axis]
    if isinstance(indices_or_sections, TensorBase):
        indices_or_sections = indices_or_sections.tolist()  # type: ignore[attr-defined]
    if isinstance(indices_or_sections, int):
        sections = indices_or_sections
        if sections < 1:
            raise failure("tensor_split", f"number of sections must be larger than 0, got {sections}",
                          [("input", input)])
        short, longer = divmod(size, sections)
        return split(input, [short + 1] * longer + [short] * (sections - longer), axis)
    cuts = [0, *(_cut(index, size) for index in indices_or_sections), size]
    return tuple(narrow(input, axis, start, max(stop - start, 0)) for start, stop in pairwise(cuts))


def _cut(index: int, size: int) -> int:
    """The place where an index cuts, as a slice takes it."""
    return min(max(index + size if index < 0 else index, 0), size)


def hsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along dimension 1, of a vector along 0; sections must be of one size."""
    return _even_split("hsplit", input, indices_or_sections, 1 if input.spec.ndim > 1 else 0, 1)


def vsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along dimension 0 of at least two; sections must be of one size."""
    return _even_split("vsplit", input, indices_or_sections, 0, 2)


def dsplit(input: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
    """`tensor_split` along dimension 2; sections must be of one size."""
    return _even_split("dsplit", input, indices_or_sections, 2, 3)


def _even_split(op: str, input: Tensor, how: Any, axis: int, ndim: int) -> tuple[Tensor, ...]:
    if input.spec.ndim < ndim:
        raise failure(op, f"the input must have at least {ndim} dimensions", [("input", input)])
    if isinstance(how, int) and (how < 1 or input.spec.shape[axis] % how):
        raise failure(op, f"dimension {axis} of size {input.spec.shape[axis]} is not divisible by {how}",
                      [("input", input)])
    return tensor_split(input, how, axis)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Every combination of one element of each vector, as rows."""
    require_tensors(*tensors)
    if len(tensors) == 1:
        return tensors[0]
    return stack([flatten(x) for x in meshgrid(*tensors)], 1)


def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of a larger one of zeros."""
    parts = atleast_2d(list(tensors))
    width, at = sum(x.spec.shape[1] for x in parts), 0
    rows = []
    for x in parts:
        rows.append(padded(x, 1, at, width - at - x.spec.shape[1]))
        at += x.spec.shape[1]
    return cat(rows, 0)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Flat indices as coordinates of a shape, in row-major order.

    They are int64: a size may be beyond the indices' dtype.

    >>> import genesis
    >>> genesis.unravel_index(genesis.tensor([1, 5]), (2, 3))
    (tensor([0, 1]), tensor([1, 2]))
    """
    if indices.spec.dtype.kind != "int":
        raise failure("unravel_index", f"expected 'indices' to be integer dtype, but got {indices.spec.dtype!r}",
                      [("indices", indices)], error=TypeError)
    found, left = [], to_dtype(indices, int64)
    for size in reversed(shape_of((shape,))):
        found.append(left % size)
        left = left // size
    return tuple(reversed(found))


def sum_to_size(input: Tensor, *sizes: Any, size: Any = None) -> Tensor:
    """Summed over the dimensions in which it is larger, so that it has this shape: the reverse of `expand`."""
    shape = shape_of(sizes if size is None else (size,))
    lead = input.spec.ndim - len(shape)
    if lead < 0 or any(s not in (1, have) for s, have in zip(shape, input.spec.shape[lead:], strict=True)):
        raise failure("sum_to_size", f"size {list(shape)} is not expandable to {list(input.spec.shape)}",
                      [("input", input)])
    if shape == input.spec.shape:
        return input if shape else input.sum()
    dims = [i for i in range(input.spec.ndim) if i < lead or shape[i - lead] == 1 != input.spec.shape[i]]
    summed = input.sum(axes_in("sum_to_size", tuple(dims), input.spec.ndim), keepdim=True) if dims else input
    return reshape(summed, shape)


class RearrangeMethods(TensorBase):
    """The methods of a tensor that are the functions above."""

    __slots__ = ()

    ravel = ravel
    swapaxes = swapaxes
    swapdims = swapdims
    moveaxis = moveaxis
    roll = roll
    fliplr = fliplr
    flipud = flipud
    rot90 = rot90
    tensor_split = tensor_split
    hsplit = hsplit
    vsplit = vsplit
    dsplit = dsplit
    sum_to_size = sum_to_size
