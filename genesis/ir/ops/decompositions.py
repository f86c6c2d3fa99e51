"""Matrix decompositions and solvers, by LAPACK through torch's CPU kernels. Matrices are the last two axes.

Gradients: Giles, An extended collection of matrix derivative results (2008); for svd Townsend, Differentiating the
singular value decomposition (2016); for qr Walter and Lehmann (2012); for pinv Golub and Pereyra (1973). Ops have
float32 and float64 operands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from genesis.ir.node import Node, Op
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.control import item
from genesis.ir.ops.leaves import iota, zeros_like
from genesis.ir.ops.movement import concat, expand, reshape, take_range
from genesis.ir.ops.pointwise import eq, ge, gt, where_
from genesis.ir.types import TensorType, float32, float64, int32, int64, tensor_type

if TYPE_CHECKING:
    from collections.abc import Callable


NO_SOLUTION: Final = (RuntimeError,)
"""What is raised of a matrix that is singular, not positive definite or not finite: a `LinAlgError`."""


def matrices(name: str, *types: TensorType, square: bool = False) -> None:
    """Raise the error of a matrix function unless all of these are batches of (square) matrices it takes."""
    for t in types:
        if t.ndim < 2:
            raise RuntimeError(f"linalg.{name}: The input tensor must have at least 2 dimensions.")
        if t.dtype not in (float32, float64):
            raise RuntimeError(f"linalg.{name}: expected float32 or float64, not {t.dtype!r}")
        if square and t.shape[-1] != t.shape[-2]:
            raise RuntimeError(f"linalg.{name}: A must be batches of square matrices, but they are {t.shape[-2]} by "
                               f"{t.shape[-1]} matrices")


def _square(name: str) -> Callable[..., TensorType]:
    def infer(a: TensorType, **_: object) -> TensorType:
        matrices(name, a, square=True)
        return a
    return infer


# What the gradients are made of

def _where(x: Node, lower: bool, strict: bool) -> Node:
    """A mask of the triangle of x's matrices."""
    shape, rank = x.type.shape, x.type.ndim
    rows, columns = (iota(shape=shape, axis=axis, dtype=int64, device=x.type.device) for axis in (rank - 2, rank - 1))
    first, second = (rows, columns) if lower else (columns, rows)
    return gt(first, second) if strict else ge(first, second)


def on_triangle(x: Node, lower: bool = True, strict: bool = False) -> Node:
    """The triangle of x's matrices with the diagonal, or without it; zeros elsewhere."""
    return where_(_where(x, lower, strict), x, 0.0)


def _on_diagonal(x: Node) -> Node:
    """x's diagonals, zeros elsewhere."""
    shape, rank = x.type.shape, x.type.ndim
    rows, columns = (iota(shape=shape, axis=axis, dtype=int64, device=x.type.device) for axis in (rank - 2, rank - 1))
    return where_(eq(rows, columns), x, 0.0)


def _column(v: Node) -> Node:
    """(*, n) as (*, n, 1)."""
    return reshape(v, shape=(*v.type.shape, 1))


def _row(v: Node) -> Node:
    """(*, n) as (*, 1, n)."""
    return reshape(v, shape=(*v.type.shape[:-1], 1, v.type.shape[-1]))


def _over(x: Node, v: Node) -> Node:
    """v expanded to x's shape."""
    return expand(v, shape=x.type.shape)


def _number(g: Node, like: Node) -> Node:
    """A number for each matrix, over its elements."""
    return _over(like, reshape(g, shape=(*g.type.shape, 1, 1)))


def _or_zeros(g: Node | None, like: Node) -> Node:
    return zeros_like(like) if g is None else g


# Inverse, solutions, determinants

inv: Op = Op("inv", "linalg", _square("inv"), ulp=64, raises=NO_SOLUTION, doc="Inverse of square matrices.",
             vjp=lambda g, a, y: (-matmul(matmul(swap_last(y), g), swap_last(y)),))


def _solve_type(a: TensorType, b: TensorType) -> TensorType:
    matrices("solve", a, square=True)
    matrices("solve", b)
    if a.shape[:-2] != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        raise RuntimeError(f"linalg.solve: shapes {a.shape} and {b.shape} do not fit")
    return b


def _solve_vjp(g: Node, a: Node, b: Node, y: Node) -> tuple[Node, Node]:
    to_b = solve(swap_last(a), g)
    return -matmul(to_b, swap_last(y)), to_b


solve: Op = Op("solve", "linalg", _solve_type, vjp=_solve_vjp, ulp=64, raises=NO_SOLUTION,
               doc="X with A @ X = B, for square matrices A.")


def _triangular_type(a: TensorType, b: TensorType, upper: bool, unitriangular: bool) -> TensorType:
    return _solve_type(a, b)


def _triangular_vjp(g: Node, a: Node, b: Node, y: Node, upper: bool, unitriangular: bool) -> tuple[Node, Node]:
    to_b = solve_triangular(swap_last(a), g, upper=not upper, unitriangular=unitriangular)
    return on_triangle(-matmul(to_b, swap_last(y)), lower=not upper, strict=unitriangular), to_b


solve_triangular: Op = Op("solve_triangular", "linalg", _triangular_type, attrs=("upper", "unitriangular"),
                          vjp=_triangular_vjp, ulp=64,
                          doc="X with A @ X = B; only the upper (or lower) triangle of A is read, with `unitriangular` "
                              "ones are taken for its diagonal.")


def _slogdet_type(a: TensorType) -> tuple[TensorType, TensorType]:
    matrices("slogdet", a, square=True)
    each = tensor_type(a.shape[:-2], a.dtype, a.device)
    return each, each


def _slogdet_vjp(g: tuple[Node | None, Node | None], a: Node, y: Node) -> tuple[Node | None]:
    return (None if g[1] is None else _number(g[1], a) * swap_last(inv(a)),)


slogdet: Op = Op("slogdet", "linalg", _slogdet_type, vjp=_slogdet_vjp, ulp=64,
                 doc="(sign, logarithm of the absolute value) of the determinants.")


def _det_type(a: TensorType) -> TensorType:
    return _slogdet_type(a)[0]


det: Op = Op("det", "linalg", _det_type, ulp=64, doc="Determinants.",
             vjp=lambda g, a, y: (_number(g * y, a) * swap_last(inv(a)),))


# Results with a report, where the others raise

def _reported(name: str, of: Callable[..., TensorType]) -> Callable[..., tuple[TensorType, TensorType]]:
    def infer(a: TensorType, *more: TensorType, **_: object) -> tuple[TensorType, TensorType]:
        matrices(name, a, square=True)
        return of(a, *more), tensor_type(a.shape[:-2], int32, a.device)
    return infer


def _inv_ex_vjp(g: tuple[Node | None, Node | None], a: Node, y: Node) -> tuple[Node | None]:
    inverse = item(y, index=0)
    return (None if g[0] is None else -matmul(matmul(swap_last(inverse), g[0]), swap_last(inverse)),)


inv_ex: Op = Op("inv_ex", "linalg", _reported("inv_ex", lambda a: a), vjp=_inv_ex_vjp, ulp=64,
                doc="(Inverse of square matrices, which column's pivot was 0, from 1, or 0).")


def _solve_ex_vjp(g: tuple[Node | None, Node | None], a: Node, b: Node, y: Node) -> tuple[Node | None, Node | None]:
    if g[0] is None:
        return None, None
    to_b = solve(swap_last(a), g[0])
    return -matmul(to_b, swap_last(item(y, index=0))), to_b


solve_ex: Op = Op("solve_ex", "linalg", _reported("solve_ex", _solve_type), vjp=_solve_ex_vjp, ulp=64,
                  doc="(X with A @ X = B, which column's pivot was 0, from 1, or 0), for square matrices A.")


# Factors

def _cholesky_vjp(g: Node, a: Node, y: Node, upper: bool) -> tuple[Node]:
    lower, to_lower = (swap_last(y), swap_last(g)) if upper else (y, g)
    p = on_triangle(matmul(swap_last(lower), on_triangle(to_lower)))
    p = p - _on_diagonal(p) * 0.5
    left = solve_triangular(swap_last(lower), p, upper=True, unitriangular=False)
    whole = swap_last(solve_triangular(swap_last(lower), swap_last(left), upper=True, unitriangular=False))
    return ((whole + swap_last(whole)) * 0.5,)


cholesky: Op = Op("cholesky", "linalg", lambda a, upper: _square("cholesky")(a), attrs=("upper",),
                  defaults={"upper": False}, vjp=_cholesky_vjp, ulp=64, raises=NO_SOLUTION,
                  doc="L with L @ Lᵀ = A, lower triangular (or with `upper` Lᵀ), for positive definite matrices.")


def _cholesky_ex_vjp(g: tuple[Node | None, Node | None], a: Node, y: Node, upper: bool) -> tuple[Node | None]:
    return (None,) if g[0] is None else _cholesky_vjp(g[0], a, item(y, index=0), upper)


cholesky_ex: Op = Op("cholesky_ex", "linalg", _reported("cholesky_ex", lambda a: a), attrs=("upper",),
                     defaults={"upper": False}, vjp=_cholesky_ex_vjp, ulp=64,
                     doc="(`cholesky`'s factor, the order of the first leading minor that is not positive definite, "
                         "or 0).")


def _qr_type(a: TensorType, complete: bool) -> tuple[TensorType, TensorType]:
    matrices("qr", a)
    *batch, m, n = a.shape
    k = m if complete else min(m, n)
    return tensor_type((*batch, m, k), a.dtype, a.device), tensor_type((*batch, k, n), a.dtype, a.device)


def _qr_vjp(g: tuple[Node | None, Node | None], a: Node, y: Node, complete: bool) -> tuple[Node]:
    q, r = item(y, index=0), item(y, index=1)
    m, n = a.type.shape[-2:]
    if complete and m > n:
        raise RuntimeError("linalg.qr: the gradient of more rows than columns exists with mode='reduced'")
    to_q, to_r = _or_zeros(g[0], q), _or_zeros(g[1], r)
    if m >= n:
        return (_tall_qr_gradient(q, r, to_q, to_r),)
    last = a.type.ndim - 1
    square, to_square = take_range(r, last, 0, m), take_range(to_r, last, 0, m)
    beyond, to_beyond = take_range(a, last, m, n), take_range(to_r, last, m, n)
    first = _tall_qr_gradient(q, square, to_q + matmul(beyond, swap_last(to_beyond)), to_square)
    return (concat(first, matmul(q, to_beyond), axis=last),)


def _tall_qr_gradient(q: Node, r: Node, to_q: Node, to_r: Node) -> Node:
    mixed = matmul(r, swap_last(to_r)) - matmul(swap_last(to_q), q)
    strict = on_triangle(mixed, strict=True)
    symmetric = strict + swap_last(strict) + _on_diagonal(mixed)
    inner = to_q + matmul(q, symmetric)
    return swap_last(solve_triangular(r, swap_last(inner), upper=True, unitriangular=False))


qr: Op = Op("qr", "linalg", _qr_type, attrs=("complete",), defaults={"complete": False}, vjp=_qr_vjp, ulp=64,
            doc="(Q, R) with Q @ R = A: Q has orthonormal columns, R is upper triangular.")


def _eigh_type(a: TensorType, upper: bool) -> tuple[TensorType, TensorType]:
    matrices("eigh", a, square=True)
    return tensor_type(a.shape[:-1], a.dtype, a.device), a


def _gaps(values: Node, like: Node) -> Node:
    """1 / (v_j - v_i), 0 on the diagonal."""
    gap = _over(like, _row(values)) - _over(like, _column(values))
    rank = like.type.ndim
    rows, columns = (iota(shape=like.type.shape, axis=i, dtype=int64, device=like.type.device)
                     for i in (rank - 2, rank - 1))
    same = eq(rows, columns)
    return where_(same, 0.0, 1.0 / where_(same, 1.0, gap))


def _eigh_vjp(g: tuple[Node | None, Node | None], a: Node, y: Node, upper: bool) -> tuple[Node]:
    values, vectors = item(y, index=0), item(y, index=1)
    inner = zeros_like(a)
    if g[1] is not None:
        inner = matmul(swap_last(vectors), g[1]) * _gaps(values, a)
    if g[0] is not None:
        inner = inner + _on_diagonal(_over(a, _column(g[0])))
    whole = matmul(matmul(vectors, inner), swap_last(vectors))
    return ((whole + swap_last(whole)) * 0.5,)


eigh: Op = Op("eigh", "linalg", _eigh_type, attrs=("upper",), defaults={"upper": False}, vjp=_eigh_vjp, ulp=256,
              raises=NO_SOLUTION,
              doc="(eigenvalues in ascending order, eigenvectors as columns) of symmetric matrices, of which one "
                  "triangle is read.")


def _svd_type(a: TensorType, full_matrices: bool) -> tuple[TensorType, TensorType, TensorType]:
    matrices("svd", a)
    *batch, m, n = a.shape
    k = min(m, n)
    sizes = ((m, m if full_matrices else k), (k,), (n if full_matrices else k, n))
    u, s, v = (tensor_type((*batch, *size), a.dtype, a.device) for size in sizes)
    return u, s, v


def _svd_vjp(g: tuple[Node | None, Node | None, Node | None], a: Node, y: Node, full_matrices: bool) -> tuple[Node]:
    u, s, vh = (item(y, index=i) for i in range(3))
    *_, m, n = a.type.shape
    if full_matrices and m != n and (g[0] is not None or g[2] is not None):
        raise RuntimeError("linalg.svd: the gradient by U and V exists with full_matrices=False")
    k = min(m, n)
    if full_matrices and m != n:
        u, vh = take_range(u, u.type.ndim - 1, 0, k), take_range(vh, vh.type.ndim - 2, 0, k)
    v = swap_last(vh)
    square = matmul(swap_last(u), u)
    found = _on_diagonal(_over(square, _column(_or_zeros(g[1], s))))
    spread = _gaps(s * s, square)
    if g[0] is not None:
        j = matmul(swap_last(u), g[0])
        found = found + spread * (j - swap_last(j)) * _over(square, _row(s))
    if g[2] is not None:
        to_v = swap_last(g[2])
        j = matmul(swap_last(v), to_v)
        found = found + spread * (j - swap_last(j)) * _over(square, _column(s))
    total = matmul(matmul(u, found), vh)
    if g[0] is not None and m > k:
        rest = g[0] - matmul(u, matmul(swap_last(u), g[0]))
        total = total + matmul(rest / _over(rest, _row(s)), vh)
    if g[2] is not None and n > k:
        rest = g[2] - matmul(matmul(g[2], v), vh)
        total = total + matmul(u, rest / _over(rest, _column(s)))
    return (total,)


svd: Op = Op("svd", "linalg", _svd_type, attrs=("full_matrices",), defaults={"full_matrices": True}, vjp=_svd_vjp,
             ulp=256, raises=NO_SOLUTION,
             doc="(U, S, Vᵀ) with U @ diag(S) @ Vᵀ = A: singular values in descending order.")


def _pinv_type(a: TensorType, rtol: float, hermitian: bool) -> TensorType:
    matrices("pinv", a, square=hermitian)
    *batch, m, n = a.shape
    return tensor_type((*batch, n, m), a.dtype, a.device)


def _pinv_vjp(g: Node, a: Node, y: Node, rtol: float, hermitian: bool) -> tuple[Node]:
    pt, gt_ = swap_last(y), swap_last(g)
    first = matmul(matmul(pt, g), pt)
    second = gt_ - matmul(a, matmul(y, gt_))
    third = gt_ - matmul(matmul(gt_, y), a)
    return (matmul(matmul(second, y), pt) + matmul(pt, matmul(y, third)) - first,)


pinv: Op = Op("pinv", "linalg", _pinv_type, attrs=("rtol", "hermitian"), defaults={"rtol": -1.0, "hermitian": False},
              vjp=_pinv_vjp, ulp=256, raises=NO_SOLUTION,
              doc="Moore and Penrose's inverse; singular values up to rtol times the largest count as 0 (negative: the "
                  "larger of rows and columns times eps).")

