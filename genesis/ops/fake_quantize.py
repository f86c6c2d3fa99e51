"""Values rounded to what quantized integers can hold, with gradients that pass straight through: quantization-aware
training (Jacob et al. 2018, arXiv:1712.05877). The results are floating point; there are no quantized integers here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.recording import TensorBase, require_tensors
from genesis.ir.errors import failure
from genesis.ir.types import float32
from genesis.ops.common import to_dtype
from genesis.ops.comparison import where
from genesis.ops.rounding import clamp, round

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["fake_quantize_per_channel_affine", "fake_quantize_per_tensor_affine"]


def fake_quantize_per_tensor_affine(input: Tensor, scale: float | Tensor, zero_point: int | Tensor, quant_min: int,
                                    quant_max: int) -> Tensor:
    """(min(max(round(x / scale) + zero_point, quant_min), quant_max) - zero_point) · scale.

    Args:
        input: floating point, any shape.
        scale: the distance of two quantized values. torch rounds what it gives of a float64 input to float32.
        zero_point: the integer that stands for 0, within the bounds.
        quant_min, quant_max: bounds of the integers.

    The gradient is the result's where no bound was met, else 0.

    >>> import genesis
    >>> genesis.fake_quantize_per_tensor_affine(genesis.tensor([-1.0, 0.12, 3.0]), 0.1, 0, 0, 15)
    tensor([0.0000, 0.1000, 1.5000])
    """
    name = "fake_quantize_per_tensor_affine"
    require_tensors(input)
    _check(name, input, quant_min, quant_max)
    if isinstance(scale, TensorBase):
        scale = scale.to(float32).reshape(())
    if isinstance(zero_point, TensorBase):
        zero_point = zero_point.reshape(())
    elif not quant_min <= zero_point <= quant_max:
        raise failure(name, "`zero_point` must be between `quant_min` and `quant_max`.", [("zero_point", zero_point)])
    return _straight_through(input, scale, zero_point, quant_min, quant_max)


def fake_quantize_per_channel_affine(input: Tensor, scale: Tensor, zero_point: Tensor, axis: int, quant_min: int,
                                     quant_max: int) -> Tensor:
    """`fake_quantize_per_tensor_affine` with a scale and a zero point for each position along an axis.

    Args:
        input: floating point, any shape.
        scale, zero_point: of one dimension, as long as the input along the axis.
        axis: from 0 on.
        quant_min, quant_max: bounds of the integers.
    """
    name = "fake_quantize_per_channel_affine"
    require_tensors(input, scale, zero_point)
    _check(name, input, quant_min, quant_max)
    given = [("input", input), ("scale", scale), ("zero_point", zero_point)]
    if not 0 <= axis < input.spec.ndim:
        raise failure(name, "`axis` must be between 0 and number of dimensions of input", given)
    if scale.spec.ndim != 1 or scale.spec.shape != zero_point.spec.shape:
        raise failure(name, "scale and zero-point need to have the same dimensions", given)
    if scale.spec.shape[0] != input.spec.shape[axis]:
        raise failure(name, "dimensions of scale and zero-point are not consistent with input tensor", given)
    shape = [-1 if dimension == axis else 1 for dimension in range(input.spec.ndim)]
    scale = scale.to(float32).reshape(shape)
    return _straight_through(input, scale, zero_point.reshape(shape), quant_min, quant_max)


def _check(name: str, input: Tensor, quant_min: int, quant_max: int) -> None:
    if input.spec.dtype.kind != "float":
        raise failure(name, f"expected a floating-point tensor, not {input.spec.dtype.name}", [("input", input)])
    if quant_min > quant_max:
        raise failure(name, "`quant_min` should be less than or equal to `quant_max`.",
                      [("quant_min", quant_min), ("quant_max", quant_max)])


def _straight_through(input: Tensor, scale: Any, zero_point: Any, low: int, high: int) -> Tensor:
    """What was not cut off at a bound has the result's gradient: the rounded values are written over it without one."""
    with no_grad():
        x = to_dtype(input, float32) if input.spec.dtype.itemsize < 4 else input
        integers = round(x * (1.0 / scale)) + zero_point
        rounded = (clamp(integers, low, high) - zero_point) * scale
        inside = (integers >= low) & (integers <= high)
    result: Tensor = where(inside, input, 0.0)
    with no_grad():
        result.copy_(rounded)
    return result
