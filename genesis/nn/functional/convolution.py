"""Convolutions and transposed convolutions over one to three dimensions."""

from __future__ import annotations

from typing import Any

from genesis.frontend.autocast_policy import cast_for
from genesis.frontend.recording import record, require_tensors
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import convolution as ir
from genesis.ir.ops import movement
from genesis.nn.functional.arguments import Ints, batched, each
from genesis.ops.common import device_of

__all__ = ["conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]


def conv1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints | str = 0,
           dilation: Ints = 1, groups: int = 1) -> Tensor:
    """Convolution (in the field's sense: the weight is not turned round) over one dimension.

    Args:
        input: (batch, channels, length) or (channels, length).
        weight: (out channels, channels / groups, taps), of the input's dtype.
        bias: (out channels), or None.
        stride: elements from one window to the next.
        padding: zeros on both sides; "valid" for none, "same" for as many as keep the length (stride 1).
        dilation: elements from one tap to the next.
        groups: groups of output channels, each of which sees its group of input channels.

    Returns:
        (batch, out channels, ⌊(length + 2·padding - dilation·(taps - 1) - 1) / stride⌋ + 1); low-precision
        products accumulate in float32.

    Raises:
        RuntimeError: shapes, dtypes or devices do not fit.

    >>> import genesis
    >>> conv1d(genesis.arange(5.0).reshape(1, 1, 5), genesis.ones(1, 1, 3)).tolist()
    [[[3.0, 6.0, 9.0]]]
    """
    return _convolution("conv1d", 1, input, weight, bias, stride, padding, dilation, groups)


def conv2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints | str = 0,
           dilation: Ints = 1, groups: int = 1) -> Tensor:
    """Convolution over two dimensions: (batch, channels, height, width); arguments as of `conv1d`.

    >>> import genesis
    >>> conv2d(genesis.ones(1, 3, 8, 8), genesis.ones(4, 3, 3, 3), stride=2, padding=1).shape
    genesis.Size([1, 4, 4, 4])
    """
    return _convolution("conv2d", 2, input, weight, bias, stride, padding, dilation, groups)


def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints | str = 0,
           dilation: Ints = 1, groups: int = 1) -> Tensor:
    """Convolution over three dimensions: (batch, channels, depth, height, width); arguments as of `conv1d`."""
    return _convolution("conv3d", 3, input, weight, bias, stride, padding, dilation, groups)


def conv_transpose1d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints = 0,
                     output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1) -> Tensor:
    """Transposed convolution over one dimension: what the gradient of `conv1d` does to its input.

    Args:
        input: (batch, channels, length) or (channels, length).
        weight: (channels, out channels / groups, taps), of the input's dtype.
        bias: (out channels), or None.
        stride: how far an element of the input moves the window over the result.
        padding: elements that are cut off the result on both sides.
        output_padding: elements that the result is longer by; less than stride or dilation.
        groups: groups of input channels, each of which makes its group of output channels.
        dilation: elements from one tap to the next.

    Returns:
        (batch, out channels, (length - 1)·stride - 2·padding + dilation·(taps - 1) + output_padding + 1).

    Raises:
        RuntimeError: shapes, dtypes or devices do not fit, or output_padding is too large.

    >>> import genesis
    >>> conv_transpose1d(genesis.ones(1, 1, 2), genesis.ones(1, 1, 3), stride=2).tolist()
    [[[1.0, 1.0, 2.0, 1.0, 1.0]]]
    """
    return _transposed("conv_transpose1d", 1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints = 0,
                     output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1) -> Tensor:
    """Transposed convolution over two dimensions; arguments as of `conv_transpose1d`."""
    return _transposed("conv_transpose2d", 2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Ints = 1, padding: Ints = 0,
                     output_padding: Ints = 0, groups: int = 1, dilation: Ints = 1) -> Tensor:
    """Transposed convolution over three dimensions; arguments as of `conv_transpose1d`."""
    return _transposed("conv_transpose3d", 3, input, weight, bias, stride, padding, output_padding, groups, dilation)


def _operands(op: str, n: int, input: Tensor, weight: Tensor, bias: Tensor | None,
              groups: int) -> tuple[Tensor, bool, Tensor, Tensor | None]:
    require_tensors(input, weight, bias)
    input, weight, bias = cast_for(ir.convolution, input, weight, bias)
    input, alone = batched(op, input, n)
    named = [("input", input), ("weight", weight)]
    if weight.spec.ndim != n + 2:
        raise failure(op, f"expected {n + 2}-dimensional weight, but got weight of size {list(weight.spec.shape)}",
                      named)
    if groups <= 0:
        raise failure(op, f"non-positive groups is not supported, got {groups}")
    device_of(op, [x for x in (input, weight, bias) if x is not None and x.spec.ndim])
    return input, alone, weight, bias


def _convolution(op: str, n: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints,
                 padding: Ints | str, dilation: Ints, groups: int) -> Tensor:
    input, alone, weight, bias = _operands(op, n, input, weight, bias, groups)
    stride, dilation = each(op, "stride", stride, n), each(op, "dilation", dilation, n)
    if isinstance(padding, str):
        input, padding = _named_padding(op, padding, input, weight.spec.shape[2:], stride, dilation)
    else:
        padding = each(op, "padding", padding, n)
    for name, values, least in (("stride", stride, 1), ("dilation", dilation, 1), ("padding", padding, 0)):
        if min(values) < least:
            raise failure(op, f"{'negative' if least == 0 else 'non-positive'} {name} is not supported: {values}")
    operands = (input, weight) if bias is None else (input, weight, bias)
    y: Tensor = record(ir.convolution, operands, (stride, padding, dilation, groups))
    return y.squeeze(0) if alone else y


def _named_padding(op: str, padding: str, input: Tensor, window: tuple[int, ...], stride: tuple[int, ...],
                   dilation: tuple[int, ...]) -> tuple[Tensor, tuple[int, ...]]:
    """"same" and "valid" in numbers. An odd number of zeros has one more behind, which is put there at once."""
    if padding == "valid":
        return input, (0,) * len(window)
    if padding != "same":
        raise failure(op, f"Invalid padding string: {padding!r}", hint="'same', 'valid' or ints")
    if any(s != 1 for s in stride):
        raise failure(op, "padding='same' is not supported for strided convolutions", [("input", input)])
    total = [d * (k - 1) for k, d in zip(window, dilation, strict=True)]
    if any(t % 2 for t in total):
        none = (0,) * input.spec.ndim
        input = record(movement.pad, (input,), (none, (0, 0, *(t % 2 for t in total)), 0))
    return input, tuple(t // 2 for t in total)


def _transposed(op: str, n: int, input: Tensor, weight: Tensor, bias: Tensor | None, stride: Ints, padding: Ints,
                output_padding: Ints, groups: int, dilation: Ints) -> Tensor:
    input, alone, weight, bias = _operands(op, n, input, weight, bias, groups)
    stride, padding, dilation = (each(op, name, value, n) for name, value in (
        ("stride", stride), ("padding", padding), ("dilation", dilation)))
    extra = each(op, "output_padding", output_padding, n)
    named: list[tuple[str, Any]] = [("input", input), ("weight", weight)]
    if min(stride) < 1 or min(dilation) < 1 or min(padding) < 0 or min(extra) < 0:
        raise failure(op, f"stride {stride} and dilation {dilation} must be positive, padding {padding} and "
                      f"output_padding {extra} not negative")
    if any(e >= max(s, d) for e, s, d in zip(extra, stride, dilation, strict=True)):
        raise failure(op, f"output padding must be smaller than either stride or dilation, but got output_padding: "
                      f"{extra}, stride: {stride}, dilation: {dilation}", named)
    if weight.spec.shape[0] != input.spec.shape[1]:
        raise failure(op, f"Given transposed=1, weight of size {list(weight.spec.shape)}, expected input "
                      f"{list(input.spec.shape)} to have {weight.spec.shape[0]} channels, but got "
                      f"{input.spec.shape[1]} channels instead", named)
    sizes = tuple((m - 1) * s - 2 * p + d * (k - 1) + e + 1 for m, s, p, d, k, e in zip(
        input.spec.shape[2:], stride, padding, dilation, weight.spec.shape[2:], extra, strict=True))
    if min(sizes) < 1:
        raise failure(op, f"the result would have the sizes {sizes}", named, hint="less padding")
    if any(e >= s for e, s in zip(extra, stride, strict=True)):  # the convolution back sees more than the input
        none = (0,) * input.spec.ndim
        more = (0, 0, *(e // s for e, s in zip(extra, stride, strict=True)))
        input = record(movement.pad, (input,), (none, more, 0))
    operands = (input, weight) if bias is None else (input, weight, bias)
    y: Tensor = record(ir.convolution_input, operands, (sizes, stride, padding, dilation, groups))
    return y.squeeze(0) if alone else y
