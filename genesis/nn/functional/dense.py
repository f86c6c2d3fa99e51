"""Affine and bilinear maps."""

from __future__ import annotations

from genesis.frontend.autocast_policy import cast_for
from genesis.frontend.recording import emit, read, require_tensors, wrap
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import contraction, ragged
from genesis.ir.types import DType

__all__ = ["bilinear", "grouped_mm", "linear"]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x · weightᵀ + bias.

    Args:
        input: (..., in features); the leading dimensions are a batch.
        weight: (out features, in features), of the input's dtype.
        bias: (out features), or None.

    Returns:
        (..., out features) in the input's dtype; low-precision products accumulate in float32.

    Raises:
        RuntimeError: shapes, dtypes or devices do not fit.

    >>> import genesis
    >>> linear(genesis.ones(5, 2), genesis.ones(3, 2), genesis.ones(3)).shape
    genesis.Size([5, 3])
    """
    input, weight, bias = cast_for(contraction.linear, input, weight, bias)
    operands = (input, weight) if bias is None else (input, weight, bias)
    return wrap(emit(contraction.linear, tuple([read(x) for x in operands])))


def grouped_mm(mat_a: Tensor, mat_b: Tensor, *, offs: Tensor | None = None, bias: Tensor | None = None,
               out_dtype: DType | None = None) -> Tensor:
    """Products of groups whose sizes the device knows: layers of experts, whose rows are sorted by expert.

    Args:
        mat_a, mat_b: (M, K) and (G, K, N), the rows are of groups; or (M, K) and (K, N), the inner dimension is; or
            (G, M, K) and (K, N), the columns are; or (G, M, K) and (G, K, N), equal groups, without offs.
        offs: (G) int32 on their device: where the rows (elements, columns) of each group end.
        bias: not taken, as in torch.
        out_dtype: the result's dtype; the operands' by default.

    Returns:
        (M, N), (G, M, N), (M, N) or (G, M, N). Rows and columns of no group are zeros.

    Raises:
        RuntimeError: shapes, dtypes or devices do not fit, offs is missing or has no group for each matrix.
        NotImplementedError: a bias.

    >>> import genesis
    >>> rows, weights = genesis.ones(3, 2), genesis.tensor([[[1.0], [1.0]], [[10.0], [10.0]]])
    >>> grouped_mm(rows, weights, offs=genesis.tensor([1, 3], dtype=genesis.int32)).tolist()
    [[2.0], [20.0], [20.0]]
    """
    require_tensors(mat_a, mat_b, offs, bias)
    if bias is not None:
        raise NotImplementedError("grouped_mm takes no bias yet: add bias[group of each row] to the result")
    named = [("mat_a", mat_a), ("mat_b", mat_b), ("offs", offs)]
    ranks = mat_a.ndim, mat_b.ndim
    if ranks not in ((2, 3), (2, 2), (3, 2), (3, 3)):
        raise failure("grouped_mm", f"operands have {ranks[0]} and {ranks[1]} dimensions", named,
                      "each is a matrix, or a stack with one for each group")
    if (offs is None) != (ranks == (3, 3)):
        raise failure("grouped_mm", "offs says where groups end, for operands of which one is a matrix, and only then",
                      named, "pass offs=counts.cumsum(0).to(genesis.int32)")
    mat_a, mat_b = cast_for(ragged.ragged_matmul, mat_a, mat_b)
    a, b = read(mat_a), read(mat_b)
    if offs is None:
        made = emit(contraction.matmul, (a, b))
    elif ranks == (2, 3):
        made = emit(ragged.ragged_matmul, (a, b, read(offs)))
    elif ranks == (2, 2):
        made = emit(ragged.ragged_matmul_sums, (contraction.swap_last(a), b, read(offs)))
    else:
        made = contraction.swap_last(emit(ragged.ragged_matmul, (
            contraction.swap_last(b), contraction.swap_last(a), read(offs))))
    found = wrap(made)
    return found if out_dtype is None else found.to(out_dtype)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y[o] = Σ x1[i] · weight[o, i, j] · x2[j] + bias[o].

    Args:
        input1: (..., in1 features), floating point.
        input2: (..., in2 features), with the same leading dimensions.
        weight: (out features, in1 features, in2 features).
        bias: (out features), or None.

    Returns:
        (..., out features).

    Raises:
        RuntimeError: shapes do not fit.

    >>> import genesis
    >>> bilinear(genesis.tensor([[2.0]]), genesis.tensor([[3.0]]), genesis.ones(1, 1, 1)).tolist()
    [[6.0]]
    """
    require_tensors(input1, input2, weight, bias)
    input1, input2, weight, bias = cast_for(contraction.linear, input1, input2, weight, bias)
    named = [("input1", input1), ("input2", input2), ("weight", weight)]
    *batch, first = input1.spec.shape
    if tuple(batch) != input2.spec.shape[:-1]:
        raise failure("bilinear", "bilinear(): input batch dimensions do not match", named)
    if weight.spec.ndim != 3 or weight.spec.shape[1:] != (first, input2.spec.shape[-1]):
        raise failure("bilinear", f"bilinear(): input sizes do not match weight sizes: got {first} and "
                      f"{input2.spec.shape[-1]} for a weight of {weight.spec.shape}", named)
    out, _, second = weight.spec.shape
    if bias is not None and bias.spec.shape != (out,):
        raise failure("bilinear", f"bilinear(): bias size does not match weight size: got {bias.spec.shape} but "
                      f"expected {out}", [*named, ("bias", bias)])
    rows = input1.reshape(-1, first) if batch else input1.reshape(1, first)
    half = (rows @ weight.permute(1, 0, 2).reshape(first, out * second)).reshape(-1, out, second)
    y = (half @ input2.reshape(half.spec.shape[0], second, 1)).reshape(*batch, out)
    return y if bias is None else y + bias
