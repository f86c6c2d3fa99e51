"""Distances and similarities of vectors, and losses made of them."""

from __future__ import annotations

from collections.abc import Callable

from genesis.frontend.autocast_policy import in_float32
from genesis.frontend.other_words import reduction_of
from genesis.frontend.recording import require_tensors
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.nn.functional.losses import check_reduction, reduced
from genesis.ops.common import axis_in, broadcast, promote
from genesis.ops.comparison import where
from genesis.ops.out import into
from genesis.ops.ranges import triu_indices
from genesis.ops.rounding import minimum

__all__ = ["cosine_embedding_loss", "cosine_similarity", "normalize", "pairwise_distance", "pdist",
           "triplet_margin_loss", "triplet_margin_with_distance_loss"]


def normalize(input: Tensor, p: float = 2.0, dim: int | tuple[int, ...] = 1, eps: float = 1e-12,
              out: Tensor | None = None) -> Tensor:
    """x / max(‖x‖, eps) along a dimension.

    Args:
        input: floating point, any shape.
        p: of the norm.
        dim: the dimension, or several together.
        eps: the least norm.

    >>> import genesis
    >>> normalize(genesis.tensor([[3.0, 4.0]])).tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    require_tensors(input)
    return into(out, input / input.norm(p, dim, keepdim=True).clamp(min=eps))


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """x1·x2 / (max(‖x1‖, eps) · max(‖x2‖, eps)) along a dimension.

    Args:
        x1, x2: floating point, of shapes that broadcast.
        dim: the dimension of the vectors, in the common shape.
        eps: the least norm.

    >>> import genesis
    >>> cosine_similarity(genesis.tensor([1.0, 0.0]), genesis.tensor([1.0, 1.0]), dim=0).item()
    0.7071067690849304
    """
    x1, x2 = in_float32(x1, x2)
    if x1.spec.dtype.kind != "float" or x2.spec.dtype.kind != "float":
        raise failure("cosine_similarity", "expected common dtype to be floating point", [("x1", x1), ("x2", x2)])
    x1, x2 = broadcast("cosine_similarity", *promote(x1, x2))
    axis_in("cosine_similarity", dim, x1.spec.ndim)
    first, second = (x / x.norm(2, dim, keepdim=True).clamp(min=eps) for x in (x1, x2))
    return (first * second).sum(dim=dim)


def pairwise_distance(x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> Tensor:
    """‖x1 - x2 + eps‖ along the last dimension; eps keeps the gradient of equal vectors finite.

    >>> import genesis
    >>> pairwise_distance(genesis.tensor([[0.0, 0.0]]), genesis.tensor([[3.0, 4.0]]), eps=0.0).tolist()
    [5.0]
    """
    return (x1 - x2 + eps).norm(p, -1, keepdim=keepdim)


def cosine_embedding_loss(input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0,
                          size_average: bool | None = None, reduce: bool | None = None,
                          reduction: str = "mean") -> Tensor:
    """1 - cos(x1, x2) where the target is 1, max(0, cos(x1, x2) - margin) where it is -1.

    Args:
        input1, input2: (n, size) or (size).
        target: (n) or (), of 1 and -1.
        margin: cosines below it are good enough for -1.
        reduction: "mean", "sum", or "none" for a loss a pair.

    Raises:
        RuntimeError: shapes do not fit.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    require_tensors(input1, input2, target)
    op = "cosine_embedding_loss"
    check_reduction(op, reduction)
    named = [("input1", input1), ("input2", input2), ("target", target)]
    if target.spec.ndim > 1:
        raise failure(op, "0D or 1D target tensor expected, multi-target not supported", named)
    if not input1.spec.ndim == input2.spec.ndim == target.spec.ndim + 1:
        raise failure(op, f"{target.spec.ndim}D target tensor expects {target.spec.ndim + 1}D input tensors, but found "
                      f"inputs with sizes {list(input1.shape)} and {list(input2.shape)}.", named)
    input1, input2 = in_float32(input1, input2)
    dim = target.spec.ndim
    squares = ((input1 * input1).sum(dim=dim) + 1e-12) * ((input2 * input2).sum(dim=dim) + 1e-12)
    cosine = (input1 * input2).sum(dim=dim) / squares.sqrt()
    cosine, target = broadcast("cosine_embedding_loss", cosine, target)
    near = where(target == 1, 1 - cosine, 0.0)
    return reduced(near + where(target == -1, (cosine - margin).clamp(min=0), 0.0), reduction)


def pdist(input: Tensor, p: float = 2.0) -> Tensor:
    """The p-norms of the differences of each two rows: (0, 1), (0, 2), ..., (n-2, n-1).

    Args:
        input: (n, m), floating point.

    Returns:
        (n · (n - 1) / 2).

    >>> import genesis
    >>> pdist(genesis.tensor([[0.0], [1.0], [3.0]])).tolist()
    [1.0, 3.0, 2.0]
    """
    if input.spec.ndim != 2:
        raise failure("pdist", f"pdist only supports 2D tensors, got: {input.spec.ndim}D", [("input", input)])
    if input.spec.dtype.kind != "float":
        raise failure("pdist", "pdist only supports floating-point dtypes", [("input", input)])
    if p < 0:
        raise failure("pdist", "pdist only supports non-negative p values", [("input", input)])
    count = input.spec.shape[0]
    first, second = triu_indices(count, count, 1, device=input.spec.device)
    return (input[first] - input[second]).norm(p, 1)


def triplet_margin_loss(anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2,
                        eps: float = 1e-6, swap: bool = False, size_average: bool | None = None,
                        reduce: bool | None = None, reduction: str = "mean") -> Tensor:
    """max(0, ‖anchor - positive‖ - ‖anchor - negative‖ + margin) (Balntas et al. 2016).

    Args:
        anchor, positive, negative: (n, size) or (size), of shapes that broadcast.
        margin: by how much the negative should be farther.
        p, eps: of the distance (see `pairwise_distance`).
        swap: take the negative's distance to the positive where that is smaller.
        reduction: "mean", "sum", or "none" for a loss a triplet.

    Raises:
        RuntimeError: different numbers of dimensions.
        ValueError: margin is not positive.
    """
    reduction = reduction_of(size_average, reduce, reduction)
    anchor, positive, negative = in_float32(anchor, positive, negative)
    unfit = not anchor.spec.ndim == positive.spec.ndim == negative.spec.ndim
    if unfit:
        raise failure("triplet_margin_loss", "The anchor, positive, and negative tensors are expected to have the same "
                      f"number of dimensions, but got: anchor {anchor.spec.ndim}D, positive {positive.spec.ndim}D, and "
                      f"negative {negative.spec.ndim}D inputs",
                      [("anchor", anchor), ("positive", positive), ("negative", negative)])

    def distance(a: Tensor, b: Tensor) -> Tensor:
        return pairwise_distance(a, b, p, eps)
    return triplet_margin_with_distance_loss(anchor, positive, negative, distance_function=distance, margin=margin,
                                             swap=swap, reduction=reduction)


def triplet_margin_with_distance_loss(anchor: Tensor, positive: Tensor, negative: Tensor, *,
                                      distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
                                      margin: float = 1.0, swap: bool = False, reduction: str = "mean") -> Tensor:
    """`triplet_margin_loss` with another distance, by default `pairwise_distance`."""
    op = "triplet_margin_with_distance_loss"
    check_reduction(op, reduction)
    if margin <= 0:
        raise failure(op, f"margin must be greater than 0, got {margin}", error=ValueError)
    distance = distance_function or pairwise_distance
    near, far = distance(anchor, positive), distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    return reduced((near - far + margin).clamp(min=0), reduction)
