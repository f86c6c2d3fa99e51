"""The same bytes as elements of another dtype: `Tensor.view(dtype)`."""

from __future__ import annotations

from typing import Any

from genesis.ir.errors import failure
from genesis.ir.types import DType, cpu
from genesis.ops.interop import from_numpy


def viewed_as(input: Any, dtype: DType) -> Any:
    """A tensor over the same memory, whose bytes are elements of the dtype: the last dimension grows or shrinks.

    The memory is shared as with numpy: computed now, and written to before a call returns. No gradient flows.

    Raises:
        RuntimeError: the last dimension is not contiguous, or does not hold whole elements; another device than the
            CPU.

    >>> import genesis
    >>> genesis.tensor([1.0]).view(genesis.int32)
    tensor([1065353216], dtype=genesis.int32)
    >>> genesis.tensor([1.0]).bfloat16().view(genesis.int16)
    tensor([16256], dtype=genesis.int16)
    """
    if input.dtype is dtype:
        return input.view(input.shape)
    named = [("tensor", input)]
    if input.device is not cpu:
        raise failure("view", f"bytes as {dtype!r} can be had on the CPU", named, hint="x.cpu()")
    whole = input.ndim and input.stride(-1) == 1 and not input.shape[-1] * input.itemsize % dtype.itemsize
    if not whole and input.itemsize != dtype.itemsize:
        raise failure("view", f"self.size(-1) must be divisible by {dtype.itemsize / input.itemsize} to view it as "
                      f"{dtype!r} (different element sizes), and contiguous", named)
    return from_numpy(input.detach().numpy().view(dtype.numpy))
