"""Derivatives of samples: differences of neighbours over their distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase
from genesis.ir.errors import failure, is_foreign, not_a_tensor
from genesis.ir.types import float32
from genesis.ops.common import axis_in, to_dtype
from genesis.ops.parts import cat, narrow

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor


def gradient(input: Tensor, *, spacing: Any = 1, dim: int | Sequence[int] | None = None,
             edge_order: int = 1) -> tuple[Tensor, ...]:
    """The derivative along each dimension of a function known at the points of a grid.

    Inside central differences, of second order (also for points at uneven distances: Fornberg 1988); at both ends
    differences to one side, of order edge_order.

    Args:
        input: the function's values.
        spacing: the distance of neighbours, one for each dimension of `dim`, or the points' coordinates, 1-D tensors.
        dim: the dimensions, all by default.
        edge_order: 1 or 2.

    Returns:
        A tensor of the input's shape for each dimension.

    Raises:
        RuntimeError: a dimension has fewer than edge_order + 1 elements, or the spacings do not fit.

    >>> import genesis
    >>> genesis.gradient(genesis.tensor([0.0, 1.0, 4.0, 9.0]))
    (tensor([1., 2., 4., 5.]),)
    """
    axes = list(range(input.spec.ndim)) if dim is None else [
        axis_in("gradient", d, input.spec.ndim) for d in ([dim] if isinstance(dim, int) else dim)]
    if len(set(axes)) != len(axes):
        raise failure("gradient", f"dim {axes} appears multiple times in the list of dims", [("input", input)])
    if edge_order not in (1, 2):
        raise failure("gradient", "torch.gradient only supports edge_order=1 and edge_order=2.", [("input", input)])
    spacing = 1 if spacing is None else spacing
    steps = list(spacing) if isinstance(spacing, (tuple, list)) else [spacing] * len(axes)
    if len(steps) != len(axes):
        raise failure("gradient", f"expected spacing to be unspecified, a scalar, or a list of {len(axes)}, but got "
                      f"{len(steps)}", [("input", input)])
    dtype = input.spec.dtype if input.spec.dtype.kind == "float" else float32
    upcast = to_dtype(input, float32 if dtype.itemsize < 4 else dtype)
    return tuple(to_dtype(_along(upcast, axis, step, edge_order), dtype)
                 for axis, step in zip(axes, steps, strict=True))


def _along(x: Tensor, axis: int, step: Any, edge_order: int) -> Tensor:
    count = x.spec.shape[axis]
    if count < edge_order + 1:
        raise failure("gradient", "expected each dimension size to be at least edge_order+1", [("input", x)])
    if is_foreign(step) and step.shape:
        raise not_a_tensor(step)
    if not isinstance(step, TensorBase):
        step = float(step) if not hasattr(step, "item") else step.item()
        gaps = x.new_full((count - 1,), step)
    else:
        if step.spec.shape != (count,):
            raise failure("gradient", f"expected {count} coordinates along dimension {axis}", [("spacing", step)])
        gaps = to_dtype(step, x.spec.dtype).diff()
    gaps = gaps.reshape([-1 if i == axis else 1 for i in range(x.spec.ndim)])
    slope = (narrow(x, axis, 1, count - 1) - narrow(x, axis, 0, count - 1)) / gaps
    if count == 2:
        return cat([slope, slope], axis)
    before, after = narrow(gaps, axis, 0, count - 2), narrow(gaps, axis, 1, count - 2)
    left, right = narrow(slope, axis, 0, count - 2), narrow(slope, axis, 1, count - 2)
    inside = (left * after + right * before) / (before + after)
    first, last = narrow(slope, axis, 0, 1), narrow(slope, axis, count - 2, 1)
    if edge_order == 2:  # the parabola through three points
        a, b = narrow(gaps, axis, 0, 1), narrow(gaps, axis, 1, 1)
        first = first + (first - narrow(slope, axis, 1, 1)) * a / (a + b)
        a, b = narrow(gaps, axis, count - 2, 1), narrow(gaps, axis, count - 3, 1)
        last = last + (last - narrow(slope, axis, count - 3, 1)) * a / (a + b)
    return cat([first, inside, last], axis)
