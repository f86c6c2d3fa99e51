"""Products of vectors, matrices and tensors that are made of `matmul`, `*` and `sum`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase, emit, read, require_tensors, wrap
from genesis.ir.errors import failure
from genesis.ir.ops.cross import cross as cross_op
from genesis.ops.common import axis_in, broadcast_shapes, operands
from genesis.ops.inplace import write_back
from genesis.ops.linalg import bmm, dot, matmul, mm, mv, outer
from genesis.ops.norms import norm
from genesis.ops.out import into
from genesis.ops.shape import permute, reshape, transpose, unsqueeze

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["addbmm", "addmv", "addr", "baddbmm", "cdist", "chain_matmul", "cross", "ger", "inner", "kron",
           "matrix_power", "tensordot", "vdot"]


def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sum of the products of two vectors (real dtypes: the same as `dot`)."""
    return into(out, dot(input, other))


def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Products summed over the last dimensions; of numbers the product.

    Args:
        input: (*m, k).
        other: (*n, k).

    Returns:
        (*m, *n).

    >>> import genesis
    >>> genesis.inner(genesis.tensor([1., 2.]), genesis.tensor([[1., 1.], [0., 3.]]))
    tensor([3., 6.])
    """
    if not input.spec.ndim or not other.spec.ndim:
        return into(out, input * other)
    if input.spec.shape[-1] != other.spec.shape[-1]:
        raise failure("inner", f"the size of the last dimension must match but got {input.spec.shape[-1]} and "
                      f"{other.spec.shape[-1]}", [("input", input), ("other", other)])
    return into(out, tensordot(input, other, ([-1], [-1])))


def ger(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """`outer` by another name."""
    return into(out, outer(input, vec2))


def _scaled(input: Tensor, product: Tensor, beta: float, alpha: float) -> Tensor:
    """beta · input + alpha · product; with beta 0 the input is not looked at, not even its NaNs."""
    require_tensors(input)
    kind = product.spec.dtype.kind
    if kind == "bool":
        return (input & bool(beta)) | (product & bool(alpha))
    if kind == "int":
        beta, alpha = int(beta), int(alpha)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product.expand(broadcast_shapes(input.spec.shape, product.spec.shape))
    return (input if beta == 1 else input * beta) + product


def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1,
          out: Tensor | None = None) -> Tensor:
    """beta · input + alpha · mat @ vec."""
    return into(out, _scaled(input, mv(mat, vec), beta, alpha))


def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1,
         out: Tensor | None = None) -> Tensor:
    """beta · input + alpha · outer(vec1, vec2)."""
    for name, x in (("vec1", vec1), ("vec2", vec2)):
        rank = x.spec.ndim
        if rank != 1:
            raise failure("addr", f"expected 1-D argument {name}, but got {x.spec.ndim}-D", [(name, x)])
    return into(out, _scaled(input, outer(vec1, vec2), beta, alpha))


def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1,
           out: Tensor | None = None) -> Tensor:
    """beta · input + alpha · the sum of the batches' products.

    Args:
        input: broadcasts to (n, p).
        batch1: (b, n, m).
        batch2: (b, m, p).
    """
    unfit = batch1.spec.ndim != 3 or batch2.spec.ndim != 3 or batch1.spec.shape[0] != batch2.spec.shape[0]
    if unfit:
        raise failure("addbmm", "expected two batches of as many matrices", [("batch1", batch1), ("batch2", batch2)])
    count, rows, depth = batch1.spec.shape
    wide = reshape(permute(batch1, [1, 0, 2]), rows, count * depth)
    product = mm(wide, reshape(batch2, -1 if count * depth else 0, batch2.spec.shape[2]))
    return into(out, _scaled(input, product, beta, alpha).contiguous())


def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1,
            out: Tensor | None = None) -> Tensor:
    """beta · input + alpha · batch1 @ batch2, batch by batch."""
    return into(out, _scaled(input, bmm(batch1, batch2), beta, alpha).contiguous())


def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Kronecker product: each element of the input times all of `other`, as blocks.

    >>> import genesis
    >>> genesis.kron(genesis.tensor([1, 2]), genesis.tensor([1, 10]))
    tensor([ 1, 10,  2, 20])
    """
    ndim = max(input.spec.ndim, other.spec.ndim)
    a, b = (((1,) * (ndim - x.spec.ndim) + x.spec.shape) for x in (input, other))
    spread_a = tuple(n for size in a for n in (size, 1))
    spread_b = tuple(n for size in b for n in (1, size))
    return into(out, reshape(reshape(input, spread_a) * reshape(other, spread_b),
                             tuple(m * n for m, n in zip(a, b, strict=True))))


def multi_dot(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    """The product of several matrices in the order with the fewest multiplications.

    The order is found by dynamic programming (Cormen et al., Introduction to Algorithms, 15.2). The first and the last
    may be vectors: a row and a column.

    >>> import genesis
    >>> genesis.linalg.multi_dot([genesis.ones(2, 3), genesis.ones(3, 4), genesis.ones(4)])
    tensor([12., 12.])
    """
    count = len(tensors)
    if count < 2:
        raise failure("multi_dot", f"expected at least 2 tensors but got {count}")
    first, last = tensors[0], tensors[-1]
    for position, x in enumerate(tensors):
        allowed = (1, 2) if position in (0, count - 1) else (2,)
        unfit = x.spec.ndim not in allowed
        if unfit:
            raise failure("multi_dot", f"tensor {position} must be {' or '.join(f'{n}D' for n in allowed)}, got "
                          f"{x.spec.ndim}D", [("tensor", x)])
    parts = [reshape(first, 1, -1) if first.spec.ndim == 1 else first, *tensors[1:-1],
             reshape(last, -1, 1) if last.spec.ndim == 1 else last]
    product = _in_best_order(parts)
    shape = (*first.spec.shape[:-1], *last.spec.shape[1:])
    return into(out, product if product.spec.shape == shape else reshape(product, shape))


def _in_best_order(parts: list[Tensor]) -> Tensor:
    """The product of matrices, parenthesised where that is cheapest."""
    sizes = [parts[0].spec.shape[0], *(x.spec.shape[1] for x in parts)]
    count = len(parts)
    cost: dict[tuple[int, int], float] = {(i, i): 0 for i in range(count)}
    cut: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            cost[i, j] = math.inf
            for k in range(i, j):
                found = cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1]
                if found < cost[i, j]:
                    cost[i, j], cut[i, j] = found, k

    def multiplied(i: int, j: int) -> Tensor:
        return parts[i] if i == j else mm(multiplied(i, cut[i, j]), multiplied(cut[i, j] + 1, j))
    return multiplied(0, count - 1)


def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """`linalg.multi_dot` of matrices that are given one by one; one alone is returned."""
    for x in matrices:
        unfit = x.spec.ndim != 2
        if unfit:
            raise failure("chain_matmul", "expected matrices", [("matrix", x)])
    return into(out, matrices[0] if len(matrices) == 1 else multi_dot(matrices))


def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """A square matrix (or a batch of them) times itself, n factors; negative n: of the inverse.

    >>> import genesis
    >>> genesis.matrix_power(genesis.tensor([[1., 1.], [0., 1.]]), 5)
    tensor([[1., 5.],
            [0., 1.]])
    """
    if input.spec.ndim < 2 or input.spec.shape[-1] != input.spec.shape[-2]:
        raise failure("matrix_power", "the input must be batches of square matrices", [("input", input)])
    if n < 0:
        from genesis.ops.decompositions import inv
        input, n = inv(input), -n
    result, given = None, input
    while n:
        if n & 1:
            result = input if result is None else matmul(result, input)
        n >>= 1
        if n:
            input = matmul(input, input)
    if result is not None:
        return into(out, result.clone() if result is given else result)
    from genesis.ops.ranges import eye
    size = input.spec.shape[-1]
    return into(out, eye(size, dtype=input.spec.dtype, device=input.spec.device).expand(input.spec.shape).clone())


def cross(input: Tensor, other: Tensor, dim: int | None = None, *, out: Tensor | None = None) -> Tensor:
    """Vector product along a dimension of size 3: the first such one for None.

    >>> import genesis
    >>> genesis.cross(genesis.tensor([1, 0, 0]), genesis.tensor([0, 1, 0]))
    tensor([0, 0, 1])
    """
    if dim is None:
        dim = next((i for i, size in enumerate(input.spec.shape) if size == 3), -1)
    return into(out, cross_along("cross", input, other, dim))


def cross_along(name: str, input: Tensor, other: Tensor, dim: int) -> Tensor:
    """Vector product along a dimension, operands broadcast."""
    if input.spec.ndim != other.spec.ndim:
        raise failure(name, "inputs must have the same number of dimensions", [("input", input), ("other", other)])
    axis = axis_in(name, dim, input.spec.ndim)
    if input.spec.shape[axis] != 3 or other.spec.shape[axis] != 3:
        raise failure(name, f"inputs dimension {dim} must have length 3", [("input", input), ("other", other)])
    return wrap(emit(cross_op, operands(name, (input, other)), (axis,)))


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, *, out: Tensor | None = None) -> Tensor:
    """Products summed over pairs of dimensions: the last `dims` of a with the first of b, or ([of a], [of b]).

    >>> import genesis
    >>> genesis.tensordot(genesis.ones(2, 3, 4), genesis.ones(4, 3, 5), dims=([1, 2], [1, 0])).shape
    genesis.Size([2, 5])
    """
    require_tensors(a, b)
    if isinstance(dims, TensorBase):
        dims = dims.tolist()  # type: ignore[attr-defined]
    if isinstance(dims, int):
        unfit = dims < 0 or dims > min(a.spec.ndim, b.spec.ndim)
        if unfit:
            raise failure("tensordot", f"expects dims >= 0 and no more than there are, but got {dims}",
                          [("a", a), ("b", b)])
        of_a, of_b = list(range(a.spec.ndim - dims, a.spec.ndim)), list(range(dims))
    else:
        of_a, of_b = ([axis_in("tensordot", d, x.spec.ndim) for d in ([given] if isinstance(given, int) else given)]
                      for given, x in zip(dims, (a, b), strict=True))
    if len(of_a) != len(of_b):
        raise failure("tensordot", "both dimension lists should have the same length", [("a", a), ("b", b)])
    for i, j in zip(of_a, of_b, strict=True):
        m, n = a.spec.shape[i], b.spec.shape[j]
        if m != n and 1 not in (m, n):
            raise failure("tensordot", f"contracted dimensions need to match, but first has size {m} in dim {i} and "
                          f"second has size {n} in dim {j}", [("a", a), ("b", b)])
        if m == 1 != n:
            b = b.sum(j, keepdim=True, dtype=b.spec.dtype)
        elif n == 1 != m:
            a = a.sum(i, keepdim=True, dtype=a.spec.dtype)
    left_a = [i for i in range(a.spec.ndim) if i not in of_a]
    left_b = [i for i in range(b.spec.ndim) if i not in of_b]
    shape = (*(a.spec.shape[i] for i in left_a), *(b.spec.shape[i] for i in left_b))
    depth = math.prod(a.spec.shape[i] for i in of_a)
    rows = math.prod(a.spec.shape[i] for i in left_a)
    columns = math.prod(b.spec.shape[i] for i in left_b)
    product = mm(reshape(permute(a, [*left_a, *of_a]), rows, depth),
                 reshape(permute(b, [*of_b, *left_b]), depth, columns))
    return into(out, reshape(product, shape))


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: str = "use_mm_for_euclid_dist_if_necessary") -> Tensor:
    """Distances of every row of x1 to every row of x2, in the p-norm.

    Args:
        x1: (*batch, m, k), floating point.
        x2: (*batch, n, k).
        p: ≥ 0; 0 counts the coordinates that differ, inf takes the largest difference.
        compute_mode: accepted for torch's sake; differences are always taken directly, which is the exact way.

    Returns:
        (*batch, m, n).

    >>> import genesis
    >>> genesis.cdist(genesis.tensor([[0., 0.]]), genesis.tensor([[3., 4.], [0., 1.]]))
    tensor([[5., 1.]])
    """
    for name, x in (("x1", x1), ("x2", x2)):
        unfit = x.spec.ndim < 2 or x.spec.dtype.kind != "float"
        if unfit:
            raise failure("cdist", f"{name} must be floating point and have at least two dimensions", [(name, x)])
    if x1.spec.shape[-1] != x2.spec.shape[-1]:
        raise failure("cdist", "x1 and x2 must have the same number of columns", [("x1", x1), ("x2", x2)])
    if p < 0:
        raise failure("cdist", f"only supports non-negative p values, not {p}")
    difference = unsqueeze(x1, -2) - unsqueeze(x2, -3)
    return norm(difference, p, -1)


def matrix_transpose(input: Tensor) -> Tensor:
    """`mT` as a function."""
    if input.spec.ndim < 2:
        raise failure("matrix_transpose", "the input must have at least 2 dimensions", [("input", input)])
    return transpose(input, -1, -2)


class ProductMethods(TensorBase):
    """The methods of a tensor that are the functions above."""

    __slots__ = ()

    vdot = vdot
    inner = inner
    ger = ger
    addmv = addmv
    addr = addr
    addbmm = addbmm
    baddbmm = baddbmm
    kron = kron
    matrix_power = matrix_power
    cross = cross

    def addmv_(self: Any, mat: Tensor, vec: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        """`addmv` in place."""
        return write_back("addmv_", self, lambda: read(addmv(self, mat, vec, beta=beta, alpha=alpha)))

    def addr_(self: Any, vec1: Tensor, vec2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        """`addr` in place."""
        return write_back("addr_", self, lambda: read(addr(self, vec1, vec2, beta=beta, alpha=alpha)))

    def addbmm_(self: Any, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        """`addbmm` in place."""
        return write_back("addbmm_", self, lambda: read(addbmm(self, batch1, batch2, beta=beta, alpha=alpha)))

    def baddbmm_(self: Any, batch1: Tensor, batch2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        """`baddbmm` in place."""
        return write_back("baddbmm_", self, lambda: read(baddbmm(self, batch1, batch2, beta=beta, alpha=alpha)))
