"""Methods that change which part of its memory a tensor shows, or how: `x.t_()` is x with its dimensions exchanged.

They write nothing: other tensors over the memory stay as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend import session
from genesis.frontend.grad_mode import mode
from genesis.frontend.recording import FREED, TensorBase, require_tensors, show
from genesis.ir.errors import failure
from genesis.ir.types import row_major
from genesis.ops.common import Axis, shape_of
from genesis.ops.creation import zeros
from genesis.ops.diagonals import as_strided
from genesis.ops.parts import cat
from genesis.ops.shape import clone, reshape, squeeze, strides_of, t, transpose, unsqueeze

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor


def shows(tensor: Any, like: Any) -> Any:
    """Make the tensor show what another one shows.

    Raises:
        RuntimeError: it is a leaf that requires grad, whose gradient would no longer fit it.
    """
    if tensor.leaf is not None and tensor.leaf != FREED and mode.enabled:
        raise failure("in-place view", "a leaf variable that requires grad is being used in an in-place operation",
                      [("tensor", tensor)], hint="use the out-of-place method")
    session.rebound()
    show(tensor, like)
    return tensor


class InplaceViewMethods(TensorBase):
    """Views in place. Each returns the tensor."""

    __slots__ = ()

    def t_(self: Any) -> Tensor:
        """`t` in place.

        >>> import genesis
        >>> x = genesis.zeros(2, 3)
        >>> x.t_().shape, x.stride()
        (genesis.Size([3, 2]), (1, 3))
        """
        return shows(self, t(self))

    def transpose_(self: Any, dim0: int, dim1: int) -> Tensor:
        """`transpose` in place."""
        return shows(self, transpose(self, dim0, dim1))

    swapdims_ = transpose_

    def swapaxes_(self: Any, axis0: int, axis1: int) -> Tensor:
        """`swapaxes` in place."""
        return shows(self, transpose(self, axis0, axis1))

    def squeeze_(self: Any, dim: Axis = None) -> Tensor:
        """`squeeze` in place."""
        return shows(self, squeeze(self, dim))

    def unsqueeze_(self: Any, dim: int) -> Tensor:
        """`unsqueeze` in place."""
        return shows(self, unsqueeze(self, dim))

    def as_strided_(self: Any, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
        """`as_strided` in place."""
        return shows(self, as_strided(self, size, stride, storage_offset))

    def set_(self: Any, source: Tensor, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
        """Show what the source shows, of the source's memory; with a size, that much of it from `storage_offset` on."""
        return shows(self, source if size is None else as_strided(
            source, size, row_major(tuple(size)) if stride is None else stride, storage_offset))

    def resize_(self: Any, *sizes: Any, size: Any = None) -> Tensor:
        """Change the shape: the tensor shows the first elements of its memory, or of a larger copy with zeros behind.

        Raises:
            RuntimeError: it requires grad.

        >>> import genesis
        >>> genesis.tensor([[1, 2], [3, 4]]).resize_(3)
        tensor([1, 2, 3])
        """
        if self.requires_grad:
            raise failure("resize_", "cannot resize variables that require grad", [("tensor", self)], hint="detach()")
        shape = shape_of(sizes if size is None else (size,))
        if shape == self.spec.shape:
            return self
        strides, start = row_major(shape), self.storage_offset()
        count = 1
        for size in shape:
            if size < 0:
                raise failure("resize_", f"Trying to create tensor with negative dimension {size}: {list(shape)}")
            count *= size
        whole = self.storage.type.numel
        if start + count <= whole:
            return shows(self, as_strided(self, shape, strides, start))
        before = reshape(as_strided(self, (whole - start,), (1,), start), -1)
        more = zeros(start + count - whole, dtype=self.spec.dtype, device=self.spec.device)
        return shows(self, reshape(cat([clone(before), more]), shape))

    def resize_as_(self: Any, the_template: Tensor) -> Tensor:
        """`resize_` to the other tensor's shape."""
        require_tensors(self, the_template)
        return self.resize_(the_template.spec.shape)

    def fill_diagonal_(self: Any, fill_value: float, wrap: bool = False) -> Tensor:
        """Write the value where all indices are equal; with `wrap` on again after the end of a tall matrix.

        Raises:
            RuntimeError: fewer than two dimensions, or more than two that differ.

        >>> import genesis
        >>> genesis.zeros(2, 2).fill_diagonal_(5)
        tensor([[5., 0.],
                [0., 5.]])
        """
        shape, strides = self.spec.shape, strides_of(self)
        if len(shape) < 2:
            raise failure("fill_diagonal_", "dimensions must larger than 1", [("tensor", self)])
        if len(shape) > 2 and len(set(shape)) > 1:
            raise failure("fill_diagonal_", "all dimensions of input must be of equal length", [("tensor", self)])
        start, step, count = self.storage_offset(), sum(strides), min(shape)
        as_strided(self, (count,), (step,), start).fill_(fill_value)
        if wrap and len(shape) == 2 and shape[0] > shape[1] + 1:
            width = shape[1] + 1
            more = -(-self.spec.numel // width) - count
            as_strided(self, (more,), (step,), start + strides[0] * width).fill_(fill_value)
        return self
