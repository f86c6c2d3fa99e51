"""What each chunk of many tensors adds to their norm as one vector: one launch does it for all of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op, literal
from genesis.ir.opaque import Opaque
from genesis.ir.ops import reduction
from genesis.ir.ops.movement import concat, pad, reshape
from genesis.ir.ops.pointwise import abs, cast, pow
from genesis.ir.ops.samples import case, cases, np, reals
from genesis.ir.types import DType, TensorType, float32, tensor_type

if TYPE_CHECKING:
    from numpy import ndarray

CHUNK = 8192
"""Elements per part: few enough that a GPU has a program for each of a million elements' parts."""

MOST_PARTS = 1 << 14
"""Maximum parts: one program reduces as many in one go. Larger models have longer chunks."""


def chunk_for(elements: int) -> int:
    """Elements per part of tensors that have so many together: a power of two.

    >>> chunk_for(1000), chunk_for(1 << 30)
    (8192, 65536)
    """
    return max(CHUNK, 1 << (-(-elements // MOST_PARTS) - 1).bit_length())


def reduction_for(norm_type: float) -> Op:
    """What puts the parts of a norm together, and their terms."""
    return reduction.max if math.isinf(norm_type) else reduction.sum


def term(x: Node, norm_type: float, dtype: DType) -> Node:
    """What each element adds to the norm: |x|, or |x|^p, in the dtype of the norm."""
    upcast = x if x.dtype is dtype else cast(x, dtype=dtype)
    if norm_type == 2:
        return upcast * upcast
    return abs(upcast) if norm_type == 1 or math.isinf(norm_type) else pow(abs(upcast), literal(norm_type))


def _count(numel: int, chunk: int) -> int:
    return -(-numel // chunk)


def _type(*tensors: TensorType, norm_type: float, chunk: int) -> TensorType:
    if len({(t.dtype, t.device) for t in tensors}) != 1 or tensors[0].dtype.kind != "float":
        raise RuntimeError("norm_parts takes tensors of one floating-point dtype on one device")
    dtype = tensors[0].dtype if tensors[0].dtype.itemsize > 4 else float32
    return tensor_type((sum(_count(t.numel, chunk) for t in tensors),), dtype, tensors[0].device)


def _decompose(*tensors: Node, norm_type: float, chunk: int) -> Node:
    parts = []
    for x in tensors:
        count = _count(x.type.numel, chunk)
        terms = term(x, norm_type, x.dtype if x.dtype.itemsize > 4 else float32)
        padded = pad(reshape(terms, shape=(x.type.numel,)), low=(0,), high=(count * chunk - x.type.numel,))
        if count:
            parts.append(reduction_for(norm_type)(reshape(padded, shape=(count, chunk)), axes=(1,)))
    return concat(*parts, axis=0) if len(parts) > 1 else parts[0]


def _value(*tensors: ndarray, norm_type: float, chunk: int) -> ndarray:
    found = []
    for x in tensors:
        sizes = np.abs(x).reshape(-1)
        pieces = [sizes[start:start + chunk] for start in range(0, len(sizes), chunk)]
        found += [np.max(piece) if math.isinf(norm_type) else np.sum(piece**norm_type) for piece in pieces]
    return np.array(found)


norm_parts = Op("norm_parts", "norm", _type, attrs=("norm_type", "chunk"), decompose=_decompose,
                differentiable=False, ulp=8, opaque=Opaque("norm_parts"),
                doc="For each chunk of `chunk` elements, in row-major order, of each operand: the sum of "
                    "|x|^norm_type, or the largest |x| when that is infinite; float32 at least.",
                samples=cases(*(case(reals().of(3, 4), reals().of(5), norm_type=p, chunk=4)
                                for p in (1.0, 2.0, 3.0, math.inf)), scale=1), reference=_value)
