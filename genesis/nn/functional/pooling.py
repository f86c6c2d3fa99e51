"""Pools over one to three dimensions: the maximum, mean or p-norm of each window."""

from __future__ import annotations

from math import prod
from typing import Any

from genesis.frontend.recording import owned, record, require_tensors
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import avg_pool as mean_ir
from genesis.ir.ops import max_pool as max_ir
from genesis.ir.ops.windows import pooled_sizes
from genesis.ir.types import int64
from genesis.nn.functional.arguments import Ints, batched, each
from genesis.ops.creation import zeros

__all__ = ["adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
           "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
           "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "avg_pool1d", "avg_pool2d", "avg_pool3d",
           "lp_pool1d", "lp_pool2d", "lp_pool3d", "max_pool1d", "max_pool1d_with_indices", "max_pool2d",
           "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices", "max_unpool1d", "max_unpool2d",
           "max_unpool3d"]

Sizes = Any  # an int, None for the input's size, or one of these for each dimension


def max_pool1d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window, over one dimension.

    Args:
        input: (batch, channels, length) or (channels, length), real.
        kernel_size: elements of a window.
        stride: elements from one window to the next; the window's size by default.
        padding: places before and after the input that windows reach over, at most half a window;
            they hold nothing.
        dilation: elements from one element of a window to the next.
        ceil_mode: a last window may reach past the end.
        return_indices: also give where each maximum lies, as a flat position among the spatial
            elements.

    Returns:
        (batch, channels, windows), NaN where a window holds one; with `return_indices` also int64
        positions of that shape, the first of equal ones.

    Raises:
        RuntimeError: sizes that do not fit.

    >>> import genesis
    >>> max_pool1d(genesis.tensor([[1.0, 3.0, 2.0, 5.0]]), 2).tolist()
    [[3.0, 5.0]]
    """
    return _max("max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool2d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window of (batch, channels, height, width); arguments as of `max_pool1d`."""
    return _max("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool3d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, dilation: Ints = 1,
               ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window of (batch, channels, depth, height, width); arguments as of `max_pool1d`."""
    return _max("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)


def max_pool1d_with_indices(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
                            dilation: Ints = 1, ceil_mode: bool = False,
                            return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """`max_pool1d` with the positions."""
    found: tuple[Tensor, Tensor] = _max("max_pool1d", 1, input, kernel_size, stride, padding, dilation, ceil_mode, True)
    return found


def max_pool2d_with_indices(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
                            dilation: Ints = 1, ceil_mode: bool = False,
                            return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """`max_pool2d` with the positions."""
    found: tuple[Tensor, Tensor] = _max("max_pool2d", 2, input, kernel_size, stride, padding, dilation, ceil_mode, True)
    return found


def max_pool3d_with_indices(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
                            dilation: Ints = 1, ceil_mode: bool = False,
                            return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """`max_pool3d` with the positions."""
    found: tuple[Tensor, Tensor] = _max("max_pool3d", 3, input, kernel_size, stride, padding, dilation, ceil_mode, True)
    return found


def avg_pool1d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Tensor:
    """The mean of each window, over one dimension.

    Args:
        input: (batch, channels, length) or (channels, length), floating point or int64.
        kernel_size: elements of a window.
        stride: elements from one window to the next; the window's size by default.
        padding: zeros before and after the input, at most half a window.
        ceil_mode: a last window may reach past the end.
        count_include_pad: whether the zeros count in the mean.

    Returns:
        (batch, channels, windows).

    Raises:
        RuntimeError: sizes that do not fit.

    >>> import genesis
    >>> avg_pool1d(genesis.tensor([[1.0, 3.0, 2.0, 6.0]]), 2).tolist()
    [[2.0, 4.0]]
    """
    return _mean("avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


def avg_pool2d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
    """The mean of each window of (batch, channels, height, width); arguments as of `avg_pool1d`.

    `divisor_override`: what each sum is divided by, whatever it sums.
    """
    return _mean("avg_pool2d", 2, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def avg_pool3d(input: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0, ceil_mode: bool = False,
               count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
    """The mean of each window of (batch, channels, depth, height, width); arguments as of `avg_pool1d`.

    `divisor_override`: what each sum is divided by, whatever it sums.
    """
    return _mean("avg_pool3d", 3, input, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)


def lp_pool1d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None,
              ceil_mode: bool = False) -> Tensor:
    """(Σ x^p)^(1/p) of each window, over one dimension.

    Args:
        input: (batch, channels, length) or (channels, length), floating point.
        norm_type: p.
        kernel_size, stride, ceil_mode: as of `avg_pool1d`.

    >>> import genesis
    >>> lp_pool1d(genesis.tensor([[3.0, 4.0]]), 2, 2).tolist()
    [[5.0]]
    """
    return _norm("lp_pool1d", 1, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool2d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None,
              ceil_mode: bool = False) -> Tensor:
    """(Σ x^p)^(1/p) of each window of (batch, channels, height, width); arguments as of `lp_pool1d`."""
    return _norm("lp_pool2d", 2, input, norm_type, kernel_size, stride, ceil_mode)


def lp_pool3d(input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None = None,
              ceil_mode: bool = False) -> Tensor:
    """(Σ x^p)^(1/p) of each window of (batch, channels, depth, height, width); arguments as of `lp_pool1d`."""
    return _norm("lp_pool3d", 3, input, norm_type, kernel_size, stride, ceil_mode)


def adaptive_max_pool1d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """The largest element of each of `output_size` windows that cover the input evenly.

    Window i of m over n elements sees ⌊i·n/m⌋ up to ⌈(i+1)·n/m⌉.

    Args:
        input: (batch, channels, length) or (channels, length), real.
        output_size: how many windows; None for as many as there are elements.
        return_indices: also give where each maximum lies, as a flat position.

    >>> import genesis
    >>> adaptive_max_pool1d(genesis.arange(7.0).reshape(1, 7), 3).tolist()
    [[2.0, 4.0, 6.0]]
    """
    return _adaptive_max("adaptive_max_pool1d", 1, input, output_size, return_indices)


def adaptive_max_pool2d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """`adaptive_max_pool1d` over (batch, channels, height, width); a size for each of them."""
    return _adaptive_max("adaptive_max_pool2d", 2, input, output_size, return_indices)


def adaptive_max_pool3d(input: Tensor, output_size: Sizes, return_indices: bool = False) -> Any:
    """`adaptive_max_pool1d` over (batch, channels, depth, height, width); a size for each of them."""
    return _adaptive_max("adaptive_max_pool3d", 3, input, output_size, return_indices)


def adaptive_max_pool1d_with_indices(input: Tensor, output_size: Sizes,
                                     return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool1d` with the positions."""
    found: tuple[Tensor, Tensor] = _adaptive_max("adaptive_max_pool1d", 1, input, output_size, True)
    return found


def adaptive_max_pool2d_with_indices(input: Tensor, output_size: Sizes,
                                     return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool2d` with the positions."""
    found: tuple[Tensor, Tensor] = _adaptive_max("adaptive_max_pool2d", 2, input, output_size, True)
    return found


def adaptive_max_pool3d_with_indices(input: Tensor, output_size: Sizes,
                                     return_indices: bool = True) -> tuple[Tensor, Tensor]:
    """`adaptive_max_pool3d` with the positions."""
    found: tuple[Tensor, Tensor] = _adaptive_max("adaptive_max_pool3d", 3, input, output_size, True)
    return found


def adaptive_avg_pool1d(input: Tensor, output_size: Sizes) -> Tensor:
    """The mean of each of `output_size` windows that cover the input evenly; arguments as of `adaptive_max_pool1d`.

    >>> import genesis
    >>> adaptive_avg_pool1d(genesis.arange(6.0).reshape(1, 6), 3).tolist()
    [[0.5, 2.5, 4.5]]
    """
    return _adaptive_mean("adaptive_avg_pool1d", 1, input, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Sizes) -> Tensor:
    """`adaptive_avg_pool1d` over (batch, channels, height, width); a size for each of them."""
    return _adaptive_mean("adaptive_avg_pool2d", 2, input, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Sizes) -> Tensor:
    """`adaptive_avg_pool1d` over (batch, channels, depth, height, width); a size for each of them."""
    return _adaptive_mean("adaptive_avg_pool3d", 3, input, output_size)


def _windows(op: str, n: int, input: Tensor, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints,
             ceil_mode: bool) -> tuple[Tensor, bool, tuple[tuple[int, ...], ...]]:
    """(the input with a batch, whether it had none, (sizes, window, stride, padding, dilation))."""
    x, alone = batched(op, input, n)
    window = each(op, "kernel_size", kernel_size, n)
    steps = window if stride is None or (isinstance(stride, (tuple, list)) and not stride) else each(
        op, "stride", stride, n)
    border, apart = each(op, "padding", padding, n), each(op, "dilation", dilation, n)
    if min(steps) < 1:
        raise failure(op, f"stride should not be zero, but is {steps}", [("input", input)])
    if min(window) < 1 or min(apart) < 1:
        raise failure(op, f"kernel size {window} and dilation {apart} should be greater than zero", [("input", input)])
    for p, k, d in zip(border, window, apart, strict=True):
        if p < 0 or p > (d * (k - 1) + 1) // 2:
            raise failure(op, "pad must be non-negative" if p < 0 else "pad should be at most half of effective kernel "
                          f"size, but got pad={p}, kernel_size={k} and dilation={d}", [("input", input)])
    if any(size < 1 for size in x.spec.shape[1:]):
        raise failure(op, "Expected an input with non-zero sizes for all dimensions but the batch", [("input", input)])
    sizes = pooled_sizes(x.spec.shape[2:], window, steps, border, apart, bool(ceil_mode))
    if min(sizes) < 1:
        raise failure(op, f"Given input size {x.spec.shape[1:]}, the calculated output size is {sizes}: Output size is "
                      "too small", [("input", input)], hint="a smaller window, or padding")
    return x, alone, (sizes, window, steps, border, apart)


def _max(op: str, n: int, input: Tensor, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints,
         ceil_mode: bool, positions: bool) -> Any:
    x, alone, how = _windows(op, n, input, kernel_size, stride, padding, dilation, ceil_mode)
    return _results(record(max_ir.max_pool, (x,), how), alone, positions)


def _results(found: tuple[Tensor, Tensor], alone: bool, positions: bool) -> Any:
    y, index = (part.squeeze(0) for part in found) if alone else found
    return (y, index) if positions else y


def _mean(op: str, n: int, input: Tensor, kernel_size: Ints, stride: Ints | None, padding: Ints, ceil_mode: bool,
          include_pad: bool, divisor: int | None) -> Tensor:
    if divisor == 0:
        raise failure(op, "divisor must be not zero", [("input", input)])
    x, alone, how = _windows(op, n, input, kernel_size, stride, padding, 1, ceil_mode)
    sign = -1 if divisor is not None and divisor < 0 else 1
    y: Tensor = record(mean_ir.avg_pool, (x,), (*how[:4], bool(include_pad), abs(divisor or 0)))
    y = y if sign == 1 else -y
    return owned(y.squeeze(0)) if alone else y


def _norm(op: str, n: int, input: Tensor, norm_type: float, kernel_size: Ints, stride: Ints | None,
          ceil_mode: bool) -> Tensor:
    """Computed by the mean of x^p. What is left of it below 0 by rounding or an odd p gives 0, as in torch."""
    window = each(op, "kernel_size", kernel_size, n)
    count = 1
    for k in window:
        count *= k
    mean = _mean(op, n, input.pow(norm_type), kernel_size, stride, 0, ceil_mode, True, None)
    found: Tensor = (mean.sign() * mean.abs().relu() * count).pow(1.0 / norm_type)
    return found


def _covering(op: str, n: int, input: Tensor, output_size: Sizes,
              filled: int = 1) -> tuple[Tensor, bool, tuple[int, ...]]:
    """(the input with a batch, whether it had none, the windows along each axis); sizes from `filled` on are not 0."""
    if n > 1 and input.spec.ndim <= n:
        raise failure(op, f"Input dimension should be at least {n + 1}", [("input", input)], error=ValueError)
    x, alone = batched(op, input, n)
    given = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * n
    if len(given) != n:
        raise failure(op, f"output_size must be one size or {n}, not {output_size}", [("input", input)])
    sizes = each(op, "output_size", [m if o is None else o for o, m in zip(given, x.spec.shape[2:], strict=True)], n)
    if min(sizes) < 0:
        raise failure(op, f"elements of output_size must be greater than or equal to 0, not {sizes}",
                      [("input", input)])
    if any(size < 1 for size in x.spec.shape[filled:]):
        raise failure(op, "Expected input to have non-zero size for non-batch dimensions", [("input", input)])
    return x, alone, sizes


def _adaptive_max(op: str, n: int, input: Tensor, output_size: Sizes, positions: bool) -> Any:
    x, alone, sizes = _covering(op, n, input, output_size)
    return _results(record(max_ir.adaptive_max_pool, (x,), (sizes,)), alone, positions)


def _adaptive_mean(op: str, n: int, input: Tensor, output_size: Sizes) -> Tensor:
    x, alone, sizes = _covering(op, n, input, output_size, filled=2)  # as torch: means of no channels there are
    y: Tensor = record(mean_ir.adaptive_avg_pool, (x,), (sizes,)) if set(sizes) != {1} else x.mean(
        dim=tuple(range(2, n + 2)), keepdim=True)
    return owned(y.squeeze(0)) if alone else y


def _unpooled(op: str, n: int, input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None, padding: Ints,
              output_size: Any) -> Tensor:
    require_tensors(input, indices)
    x, alone = batched(op, input, n)
    if indices.spec.shape != input.spec.shape or indices.spec.dtype is not int64:
        raise failure(op, "Expected shape of indices to be same as that of the input tensor, and int64",
                      [("input", input), ("indices", indices)])
    window = each(op, "kernel_size", kernel_size, n)
    steps, border = window if stride is None else each(op, "stride", stride, n), each(op, "padding", padding, n)
    sizes = tuple((m - 1) * s - 2 * p + k for m, k, s, p in zip(x.spec.shape[2:], window, steps, border, strict=True))
    if output_size is not None:
        wanted = tuple(output_size)[-n:]
        if len(tuple(output_size)) not in (n, n + 1, n + 2) or any(
                not m - s < o < m + s for o, m, s in zip(wanted, sizes, steps, strict=True)):
            raise failure(op, f"output_size {tuple(output_size)} should be within a stride of {sizes}",
                          [("input", input)], error=ValueError)
        sizes = wanted
    batch, channels = x.spec.shape[:2]
    flat = zeros(batch, channels, prod(sizes), dtype=x.dtype, device=x.device)
    rows = indices.reshape(batch, channels, -1)
    y = flat.scatter(2, rows, x.reshape(batch, channels, -1)).reshape(batch, channels, *sizes)
    return owned(y.squeeze(0)) if alone else y


def max_unpool1d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
                 output_size: Any = None) -> Tensor:
    """The maxima of `max_pool1d` back where they came from, 0 elsewhere.

    Args:
        input: (batch, channels, windows) or (channels, windows).
        indices: the positions that the pool gave.
        kernel_size, stride, padding: the pool's.
        output_size: the size of what was pooled, where several give as many windows.

    >>> import genesis
    >>> y, where = max_pool1d(genesis.tensor([[1.0, 3.0, 5.0, 2.0]]), 2, return_indices=True)
    >>> max_unpool1d(y, where, 2).tolist()
    [[0.0, 3.0, 5.0, 0.0]]
    """
    return _unpooled("max_unpool1d", 1, input, indices, kernel_size, stride, padding, output_size)


def max_unpool2d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
                 output_size: Any = None) -> Tensor:
    """The maxima of `max_pool2d` back where they came from; arguments as of `max_unpool1d`."""
    return _unpooled("max_unpool2d", 2, input, indices, kernel_size, stride, padding, output_size)


def max_unpool3d(input: Tensor, indices: Tensor, kernel_size: Ints, stride: Ints | None = None, padding: Ints = 0,
                 output_size: Any = None) -> Tensor:
    """The maxima of `max_pool3d` back where they came from; arguments as of `max_unpool1d`."""
    return _unpooled("max_unpool3d", 3, input, indices, kernel_size, stride, padding, output_size)
