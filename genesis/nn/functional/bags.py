"""Sums, means and maxima of rows of a table, a bag of them each."""

from __future__ import annotations

import math

from genesis.frontend.recording import record, record_in, require_tensors
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import indexing
from genesis.ir.types import float32, int64
from genesis.nn.functional.lookup import _row, _scaled, _shorten
from genesis.ops.comparison import where
from genesis.ops.creation import ones, zeros
from genesis.ops.parts import cat
from genesis.ops.rounding import maximum

__all__ = ["embedding_bag"]


def embedding_bag(input: Tensor, weight: Tensor, offsets: Tensor | None = None, max_norm: float | None = None,
                  norm_type: float = 2.0, scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                  per_sample_weights: Tensor | None = None, include_last_offset: bool = False,
                  padding_idx: int | None = None) -> Tensor:
    """The sum, mean or maximum of the rows of each bag; an empty bag gives 0.

    Args:
        input: integers in [0, rows): (bags, length), or (n) with offsets.
        weight: (rows, size).
        offsets: (bags), where each bag starts in a one-dimensional input; increasing, the first 0.
        max_norm, norm_type, scale_grad_by_freq, sparse: as of `embedding`.
        mode: "sum", "mean" or "max".
        per_sample_weights: of the input's shape, a factor of each row; only for sums.
        include_last_offset: offsets ends with where the last bag ends.
        padding_idx: a row that does not count.

    Returns:
        (bags, size).

    Raises:
        ValueError: shapes do not fit, or an unknown mode.
        NotImplementedError: per_sample_weights of another mode than "sum".

    >>> import genesis
    >>> table = genesis.arange(4.0).reshape(4, 1)
    >>> embedding_bag(genesis.tensor([1, 2, 3]), table, genesis.tensor([0, 2]), mode="sum").tolist()
    [[3.0], [3.0]]
    """
    if input.spec.dtype.is_floating_point and weight.spec.dtype is int64:  # torch's order of old
        input, weight = weight, input
    _check(input, weight, offsets, mode, scale_grad_by_freq, sparse, per_sample_weights)
    if padding_idx is not None:
        padding_idx = _row("embedding_bag", weight, padding_idx)
    if max_norm is not None:
        _shorten("embedding_bag", input, weight, float(max_norm), float(norm_type))
    rows = record_in("embedding_bag", indexing.take, (weight, input), (0,))
    rows = _scaled(rows, input, weight.spec.shape[0], padding_idx, scale_grad_by_freq)
    if rows.dtype.itemsize < 4:
        rows = rows.to(float32)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    counts = None if padding_idx is None else input != padding_idx
    bags = _of_equal_length(rows, counts, mode) if offsets is None else _of_segments(
        rows, counts, offsets, include_last_offset, mode)
    found: Tensor = bags.to(weight.dtype)
    return found


def _check(input: Tensor, weight: Tensor, offsets: Tensor | None, mode: str, by_frequency: bool, sparse: bool,
           factors: Tensor | None) -> None:
    require_tensors(input, weight, offsets, factors)
    op, named = "embedding_bag", [("input", input), ("weight", weight)]
    if factors is not None and factors.spec.shape != input.spec.shape:
        raise failure(op, "If per_sample_weights is not None, then it must have the same shape as the input",
                      [*named, ("per_sample_weights", factors)], error=ValueError)
    if weight.spec.ndim != 2:
        raise failure(op, f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.spec.ndim}", named,
                      error=ValueError)
    if input.spec.ndim not in (1, 2):
        raise failure(op, f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.spec.ndim}", named,
                      error=ValueError)
    if input.spec.ndim == 2 and offsets is not None:
        raise failure(op, "if input is 2D, then offsets has to be None, as input is treated is a mini-batch of fixed "
                      "length sequences", named, error=ValueError)
    if input.spec.ndim == 1 and (offsets is None or offsets.spec.ndim != 1):
        raise failure(op, "offsets has to be a 1D Tensor", named, error=ValueError)
    if mode not in ("sum", "mean", "max"):
        raise failure(op, f"mode has to be one of sum, mean or max, not {mode!r}", error=ValueError)
    if mode == "max" and (by_frequency or sparse):
        raise failure(op, "max mode does not support scaling the gradient by the frequency, or sparse weights",
                      error=ValueError)
    if factors is not None and mode != "sum":
        raise failure(op, "per_sample_weights was not None. per_sample_weights is only supported for mode='sum' (got "
                      f"mode={mode!r}).", error=NotImplementedError)


def _of_equal_length(rows: Tensor, counts: Tensor | None, mode: str) -> Tensor:
    """Bags side by side: (bags, length, size)."""
    bags, length, size = rows.spec.shape
    if not length:
        return rows.sum(dim=1)
    if counts is None:
        return rows.sum(dim=1) if mode == "sum" else rows.mean(dim=1) if mode == "mean" else rows.amax(dim=1)
    kept = counts.unsqueeze(-1).expand(bags, length, size)
    if mode == "max":
        return _finite(where(kept, rows, -math.inf).amax(dim=1), counts.any(dim=1))
    total = where(kept, rows, 0.0).sum(dim=1)
    return total if mode == "sum" else total / counts.sum(dim=1).clamp(min=1).unsqueeze(-1).to(total.dtype)


def _of_segments(rows: Tensor, counts: Tensor | None, offsets: Tensor, include_last: bool, mode: str) -> Tensor:
    """Bags one after another: rows (n, size) and where each bag starts."""
    n, size = rows.spec.shape
    marks, device = offsets.spec.shape[0], rows.device
    bags = marks - 1 if include_last else marks
    marked = (zeros(n + 1, dtype=int64, device=device), offsets, ones(marks, dtype=int64, device=device))
    starts = record_in("embedding_bag", indexing.index_add, marked, (0,))
    number = starts[:n].cumsum(0) - 1                                # the bag of each row
    weights = ones(n, dtype=float32, device=device) if counts is None else counts.to(float32)
    filled = _added(weights, number, marks)[:bags]
    if mode == "max":
        kept = rows if counts is None else where(counts.unsqueeze(-1).expand(n, size), rows, -math.inf)
        return _maxima(kept, number, offsets, bags, filled)
    kept = rows if counts is None else where(counts.unsqueeze(-1).expand(n, size), rows, 0.0)
    total = _added(kept, number, marks)[:bags]
    return total if mode == "sum" else total / filled.clamp(min=1).unsqueeze(-1).to(total.dtype)


def _added(values: Tensor, number: Tensor, bags: int) -> Tensor:
    shape = (bags, *values.spec.shape[1:])
    nothing = zeros(*shape, dtype=values.dtype, device=values.device)
    found: Tensor = record(indexing.index_add, (nothing, number, values), (0,))
    return found


def _maxima(rows: Tensor, number: Tensor, offsets: Tensor, bags: int, filled: Tensor) -> Tensor:
    """Running maxima within bags by doubling: after step k a row has that of the 2^k rows up to it; ends have all."""
    n = rows.spec.shape[0]
    if not n:
        return zeros(bags, rows.spec.shape[1], dtype=rows.dtype, device=rows.device)
    reach = 1
    while reach < n:
        same = (number[reach:] == number[:-reach]).unsqueeze(-1).expand(n - reach, rows.spec.shape[1])
        later = where(same, maximum(rows[reach:], rows[:-reach]), rows[reach:])
        rows = cat([rows[:reach], later])
        reach *= 2
    ends = cat([offsets[1:], offsets.new_full((1,), n)])[:bags] - 1
    return _finite(rows[ends.clamp(min=0)], filled > 0)


def _finite(maxima: Tensor, some: Tensor) -> Tensor:
    """0 for bags without a row."""
    return where(some.unsqueeze(-1).expand(maxima.spec.shape), maxima, 0.0)
