"""Matrix products. Low-precision operands accumulate in float32."""

from __future__ import annotations

import functools
from itertools import pairwise
from typing import TYPE_CHECKING

from genesis.ir.errors import Misfit
from genesis.ir.node import Node, Op
from genesis.ir.opaque import Opaque
from genesis.ir.ops.movement import concat, permute, reshape, slice
from genesis.ir.ops.pointwise import add, cast
from genesis.ir.ops.reduction import sum
from genesis.ir.ops.samples import NUMERIC, case, cases, np, reals
from genesis.ir.ops.splits import accumulated, split_start
from genesis.ir.types import TensorType, bool_, tensor_type

if TYPE_CHECKING:
    from numpy import ndarray


def swap_last(x: Node) -> Node:
    """x with its last two dimensions swapped."""
    rank = x.type.ndim
    return permute(x, axes=(*range(rank - 2), rank - 1, rank - 2))


def _matmul_type(a: TensorType, b: TensorType) -> TensorType:
    if a.ndim != b.ndim or a.ndim < 2 or a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise RuntimeError(f"shapes {a.shape} and {b.shape} cannot be multiplied")
    if a.dtype is not b.dtype:
        raise RuntimeError(f"dtypes {a.dtype!r} and {b.dtype!r} differ")
    if a.device is not b.device:
        raise RuntimeError(f"operands are on two devices, {a.device} and {b.device}")
    _refuse_booleans(a)
    return a.with_shape((*a.shape[:-1], b.shape[-1]))


def _refuse_booleans(kind: TensorType) -> None:
    """No backend multiplies matrices of booleans: said where the op is recorded."""
    if kind.dtype is bool_:
        raise NotImplementedError("matrix products are not implemented for booleans: cast them, as with .float() or "
                                  ".int()")


matmul: Op = Op("matmul", "contract", _matmul_type, ulp=4, autocast="low", opaque=Opaque("matmul", views=(0, 1)),
                doc="Matrix product over the last two dimensions; the leading ones are equal batches.",
                vjp=lambda g, a, b, y: (matmul(g, swap_last(b)), matmul(swap_last(a), g)),
                samples=cases(case(reals().of(3, 4), reals().of(4, 5)), case(reals().of(2, 3, 4), reals().of(2, 4, 5)),
                case(reals().of(2, 2, 3, 4), reals().of(2, 2, 4, 1)), case(reals().of(20, 37), reals().of(37, 18)),
                case(reals().of(0, 3), reals().of(3, 2)),
                case(reals().of(2, 0), reals().of(0, 2)), kinds=NUMERIC, scale=4),
                reference=np.matmul)


def _split_k_type(a: TensorType, b: TensorType, splits: int, multiple: int) -> TensorType:
    whole = _matmul_type(a, b)
    return tensor_type((splits, *whole.shape), accumulated("sum", a.dtype), a.device)


def _matmul_split_k(a: Node, b: Node, splits: int, multiple: int) -> Node:
    *batch, rows, depth = a.type.shape
    columns, rank = b.type.shape[-1], len(batch)
    dtype, starts = accumulated("sum", a.dtype), [split_start(depth, splits, multiple, at) for at in range(splits + 1)]
    left, right, none, one = cast(a, dtype=dtype), cast(b, dtype=dtype), (0,) * rank, (1,) * (rank + 2)
    products = [matmul(slice(left, starts=(*none, 0, first), stops=(*batch, rows, last), steps=one),
                       slice(right, starts=(*none, first, 0), stops=(*batch, last, columns), steps=one))
                for first, last in pairwise(starts)]
    return concat(*[reshape(x, shape=(1, *x.type.shape)) for x in products], axis=0)


def _split_k_reference(a: ndarray, b: ndarray, splits: int, multiple: int) -> ndarray:
    starts = [split_start(a.shape[-1], splits, multiple, at) for at in range(splits + 1)]
    return np.stack([a[..., first:last] @ b[..., first:last, :] for first, last in pairwise(starts)])


matmul_split_k: Op = Op("matmul_split_k", "contract", _split_k_type, attrs=("splits", "multiple"),
                        opaque=Opaque("matmul", views=(0, 1)),
                        decompose=_matmul_split_k, ulp=4,
                     doc="The parts of a matrix product whose sum it is: dimension 0 of the result counts splits of "
                         "the inner dimension, whose blocks of `multiple` elements are shared out evenly. Parts of "
                         "16-bit operands are float32.",
                     samples=cases(case(reals().of(3, 7), reals().of(7, 2), splits=3, multiple=1),
                                   case(reals().of(2, 9), reals().of(9, 4), splits=4, multiple=4),
                                   case(reals().of(2, 3, 9), reals().of(2, 9, 4), splits=2, multiple=4), scale=4),
                     reference=_split_k_reference)


def _matmul_sum_type(*pairs: TensorType) -> TensorType:
    if len(pairs) < 4 or len(pairs) % 2:
        raise RuntimeError(f"a sum of products takes two pairs of matrices and more, not {len(pairs)} operands")
    products = [_matmul_type(a, b) for a, b in zip(pairs[::2], pairs[1::2], strict=True)]
    if any(x != products[0] for x in products):
        raise RuntimeError(f"products of shapes {', '.join(str(x.shape) for x in products)} cannot be added up")
    return products[0]


def _matmul_sum(*pairs: Node) -> Node:
    exact = [cast(x, dtype=accumulated("sum", x.dtype)) for x in pairs]
    products = [matmul(a, b) for a, b in zip(exact[::2], exact[1::2], strict=True)]
    return cast(functools.reduce(add, products), dtype=pairs[0].dtype)


matmul_sum: Op = Op("matmul_sum", "contract", _matmul_sum_type, opaque=Opaque("matmul", views=tuple(range(16))),
                    decompose=_matmul_sum, differentiable=False, ulp=4,
                    doc="The sum of matrix products: operands are pairs, a @ b + c @ d + …, all of one type. Sums of "
                        "16-bit operands are float32 and are rounded once.",
                    samples=cases(case(reals().of(3, 4), reals().of(4, 5), reals().of(3, 2), reals().of(2, 5)),
                                  case(reals().of(2, 3), reals().of(3, 2), reals().of(2, 1), reals().of(1, 2),
                                       reals().of(2, 4), reals().of(4, 2)), scale=4),
                    reference=lambda *pairs: functools.reduce(np.add, map(np.matmul, pairs[::2], pairs[1::2])))


def _linear_type(x: TensorType, weight: TensorType, bias: TensorType | None = None) -> TensorType:
    if weight.ndim != 2 or x.ndim < 1 or x.shape[-1] != weight.shape[1]:
        raise Misfit(f"input of shape {x.shape} does not fit weight of shape {weight.shape} (out, in)",
                     "an input whose last size is the weight's: in_features of a Linear")
    if bias is not None and bias.shape != weight.shape[:1]:
        raise RuntimeError(f"bias of shape {bias.shape} does not fit weight of shape {weight.shape}")
    if len({t.dtype for t in (x, weight, bias) if t is not None}) > 1:
        raise RuntimeError(f"dtypes of input {x.dtype!r} and parameters {weight.dtype!r} differ")
    if len({t.device for t in (x, weight, bias) if t is not None}) > 1:
        raise RuntimeError(f"operands are on two devices, {x.device} and {weight.device}")
    _refuse_booleans(x)
    return tensor_type((*x.shape[:-1], weight.shape[0]), x.dtype, x.device)


def _linear(x: Node, weight: Node, bias: Node | None = None) -> Node:
    rows = x if x.type.ndim == 2 else reshape(x, shape=_flat(x.type.shape))
    product = matmul(rows, swap_last(weight))
    shaped = reshape(product, shape=(*x.type.shape[:-1], weight.type.shape[0]))
    return shaped if bias is None else shaped + bias


def _flat(shape: tuple[int, ...]) -> tuple[int, int]:
    rows = 1
    for size in shape[:-1]:
        rows *= size
    return rows, shape[-1]


def _linear_vjp(g: Node, x: Node, weight: Node, *bias_and_y: Node) -> tuple[Node, ...]:
    rows, out_rows = reshape(x, shape=_flat(x.type.shape)), reshape(g, shape=_flat(g.type.shape))
    to_x = reshape(matmul(out_rows, weight), shape=x.type.shape)
    to_weight = matmul(swap_last(out_rows), rows)
    return (to_x, to_weight) if len(bias_and_y) == 1 else (to_x, to_weight, sum(out_rows, axes=(0,)))


linear = Op("linear", "composite", _linear_type, vjp=_linear_vjp, decompose=_linear, ulp=4, autocast="low",
            doc="x · weightᵀ (+ bias): weight is (out features, in features), leading dimensions of x are batches.",
            samples=cases(case(reals().of(3, 4), reals().of(5, 4)),
                          case(reals().of(4), reals().of(5, 4), reals().of(5)),
            case(reals().of(2, 3, 4), reals().of(5, 4), reals().of(5)),
            case(reals().of(0, 4), reals().of(5, 4), reals().of(5)), scale=4),
            reference=lambda x, weight, *bias: np.add(x @ weight.T, bias[0] if bias else 0))
