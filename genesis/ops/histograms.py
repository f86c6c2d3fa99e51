"""Counts of elements between edges, in one dimension and in several."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, require_tensors
from genesis.ir.errors import failure, is_foreign, not_a_tensor
from genesis.ir.types import int64
from genesis.ops import return_types
from genesis.ops.comparison import where
from genesis.ops.creation import tensor, zeros
from genesis.ops.ranges import arange
from genesis.ops.searching import searchsorted

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["histogram", "histogramdd"]


def histogram(input: Tensor, bins: int | Tensor = 100, *, range: Sequence[float] | None = None,
              weight: Tensor | None = None, density: bool = False) -> return_types.Histogram:
    """The number of elements, or their weight, between neighbouring edges. The last edge belongs to its bin.

    Args:
        input: floating point, any shape.
        bins: the edges in ascending order, or how many bins of one width.
        range: the lowest and the highest edge, by default the least and the largest element.
        weight: of each element, in the input's shape.
        density: divide so that the integral is 1.

    >>> import genesis
    >>> genesis.histogram(genesis.tensor([0.0, 1.0, 1.5, 2.0]), 2)
    genesis.return_types.histogram(
    hist=tensor([1., 3.]),
    bin_edges=tensor([0., 1., 2.]))
    """
    require_tensors(input, weight)
    rows = input.detach().reshape(-1, 1)
    found = histogramdd(rows, [bins], range=range, density=density,
                        weight=None if weight is None else weight.reshape(-1))
    edges = found.bin_edges[0]
    return return_types.histogram(found.hist, edges.clone() if isinstance(bins, TensorBase) else edges)


def histogramdd(input: Tensor, bins: Any, range: Sequence[float] | None = None, weight: Tensor | None = None,
                density: bool = False) -> return_types.Histograms:
    """The number of points in each cell of a grid.

    Args:
        input: (..., dimensions): points, floating point.
        bins: for each dimension its edges or how many bins; one number serves all.
        range: lowest and highest edge of each dimension in a row, by default the extremes.
        weight: of each point.
        density: divide so that the integral is 1.

    >>> import genesis
    >>> genesis.histogramdd(genesis.tensor([[0.0, 0.0], [1.0, 1.0]]), [1, 2]).hist
    tensor([[1., 1.]])
    """
    require_tensors(input, weight)
    if input.spec.ndim < 2 or input.spec.dtype.kind != "float":
        raise failure("histogramdd", "input tensor should be floating point and have at least 2 dimensions",
                      [("input", input)])
    dims = input.spec.shape[-1]
    points = input.detach().reshape(-1, dims)
    given = [bins] * dims if isinstance(bins, int) else list(bins)
    if len(given) != dims:
        raise failure("histogramdd", f"expected {dims} sequences of bin edges for a {dims}-dimensional histogram but "
                      f"got {len(given)}", [("input", input)])
    if range is not None and len(range) != 2 * dims:
        raise failure("histogramdd", f"for a {dims}-dimensional histogram range should have {2 * dims} elements, but "
                      f"got {len(range)}", [("input", input)])
    edges = [_edges(points[:, d], how, None if range is None else range[2 * d:2 * d + 2])
             for d, how in enumerate(given)]
    cell, inside = points.new_zeros(points.spec.shape[:1], dtype=int64), None
    for d, edge in enumerate(edges):
        column, count = points[:, d], edge.spec.numel - 1
        place = (searchsorted(edge, column.contiguous(), right=True) - 1) - (column == edge[-1]).long()
        within = (column >= edge[0]) & (column <= edge[-1])
        cell, inside = cell * count + place, within if inside is None else inside & within
    shape = [edge.spec.numel - 1 for edge in edges]
    total = 1
    for size in shape:
        total *= size
    assert inside is not None
    amount = points.new_ones(points.spec.shape[:1]) if weight is None else weight.detach().reshape(-1).to(
        points.spec.dtype)
    counted = zeros(total, dtype=points.spec.dtype, device=points.spec.device).index_add(
        0, where(inside, cell, 0), where(inside, amount, amount.new_zeros(())))
    hist = counted.reshape(shape)
    if density:
        hist = hist / hist.sum()
        for d, edge in enumerate(edges):
            widths = edge.diff()
            hist = hist / widths.reshape([-1 if i == d else 1 for i in builtins.range(dims)])
    return return_types.histogramdd(hist, tuple(edges))


def _edges(column: Tensor, how: Any, ends: Sequence[float] | None) -> Tensor:
    """The edges along one dimension."""
    if isinstance(how, TensorBase):
        return how  # type: ignore[return-value]
    if is_foreign(how):
        raise not_a_tensor(how)
    if how < 1:
        raise failure("histogram", f"bins must be > 0, but got {how}")
    if ends is None and not column.spec.numel:
        ends = (0.0, 1.0)
    if ends is None:
        low, high = column.amin(), column.amax()
    else:
        if ends[0] > ends[1]:
            raise failure("histogram", f"min should not exceed max, but got min {ends[0]} max {ends[1]}")
        low, high = (tensor(float(x), dtype=column.spec.dtype, device=column.spec.device) for x in ends)
    alone = (low == high).to(column.spec.dtype) * 0.5
    low, high = low - alone, high + alone
    share = arange(how + 1, dtype=column.spec.dtype, device=column.spec.device) / how
    return where(share == 1, high, low + (high - low) * share)


class HistogramMethods(TensorBase):
    """Histograms as methods."""

    __slots__ = ()

    histogram = histogram
