"""Other shapes, and elements by number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import genesis
from genesis import Tensor


def broadcast_arrays(*arrays: Tensor) -> list[Tensor]:
    """The arrays expanded to their common shape."""
    return list(genesis.broadcast_tensors(*arrays))


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """x expanded to a shape."""
    return genesis.broadcast_to(x, shape)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """The arrays one after another; flat for axis=None."""
    parts = [genesis.ravel(x) for x in arrays] if axis is None else list(arrays)
    return genesis.cat(parts, axis or 0)


def expand_dims(x: Tensor, /, *, axis: int = 0) -> Tensor:
    """x with a dimension of size 1 put in."""
    return genesis.unsqueeze(x, axis)


def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """x backwards along these axes, all of them for None."""
    axes = tuple(range(x.ndim)) if axis is None else (axis,) if isinstance(axis, int) else axis
    return genesis.flip(x, axes)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """x with its last two dimensions swapped."""
    return genesis.linalg.matrix_transpose(x)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """x with axes moved to new places."""
    return genesis.moveaxis(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """x with its axes in this order."""
    return genesis.permute(x, axes)


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element, or position along an axis, so many times."""
    return genesis.repeat_interleave(x, repeats, axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """x in another shape; copy=False raises ValueError where a copy would be needed."""
    if copy is False:
        try:
            return x.view(shape)
        except RuntimeError as error:
            raise ValueError(str(error)) from None
    found = genesis.reshape(x, shape)
    return found.clone() if copy else found


def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """x moved along axes; what leaves at one end comes in at the other."""
    if axis is not None and not isinstance(axis, int) and isinstance(shift, int):
        shift = (shift,) * len(axis)
    return genesis.roll(x, shift, axis)


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """x without these axes, which have size 1.

    Raises:
        ValueError: one has another size.
    """
    for one in (axis,) if isinstance(axis, int) else axis:
        if x.shape[one] != 1:
            raise ValueError(f"cannot squeeze axis {one} of size {x.shape[one]}: shape {tuple(x.shape)}")
    return genesis.squeeze(x, axis)


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """The arrays along a new axis."""
    return genesis.stack(list(arrays), axis)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The positions with these numbers along an axis; of vectors it may be left out."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError("take needs an axis for an array of more than one dimension")
        axis = 0
    return x[(slice(None),) * (axis % x.ndim) + (indices,)]


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Elements by their position along an axis."""
    return genesis.take_along_dim(x, indices, axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """x so many times along each axis."""
    return genesis.tile(x, repetitions)


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Each position along an axis."""
    return genesis.unbind(x, axis)
