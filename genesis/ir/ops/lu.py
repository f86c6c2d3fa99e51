"""LU factors with row exchanges, and the exponential of matrices, by torch's CPU kernels.

Gradients: of LU by triangles, as Giles (2008) derives them; of the exponential by the block matrix of Mathias, A chain
rule for matrix functions and applications (1996).
"""

from __future__ import annotations

from genesis.ir.node import Node, Op
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.control import item
from genesis.ir.ops.decompositions import NO_SOLUTION, matrices, on_triangle, solve_triangular
from genesis.ir.ops.leaves import iota, zeros_like
from genesis.ir.ops.movement import concat, expand, reshape, take_range
from genesis.ir.ops.pointwise import cast, eq
from genesis.ir.types import TensorType, int32, int64, tensor_type


def _lu_type(a: TensorType, checked: bool) -> tuple[TensorType, TensorType]:
    matrices("lu_factor", a)
    return a, tensor_type((*a.shape[:-2], min(a.shape[-2:])), int32, a.device)


def _lu_vjp(g: tuple[Node | None, Node | None], a: Node, y: Node, checked: bool) -> tuple[Node | None]:
    """With A = P L U, square: P L⁻ᵀ (tril(Lᵀ dL, -1) + triu(dU Uᵀ)) U⁻ᵀ. What is beyond the square goes in first."""
    if g[0] is None:
        return (None,)
    m, n = a.type.shape[-2:]
    k, rows, columns = min(m, n), a.type.ndim - 2, a.type.ndim - 1
    packed = item(y, index=0)
    square, to_square = (take_range(take_range(x, rows, 0, k), columns, 0, k) for x in (packed, g[0]))
    to_lower, to_upper = on_triangle(to_square, lower=True, strict=True), on_triangle(to_square, lower=False)
    upper = on_triangle(square, lower=False)
    rest = None
    if n > k:  # U = [U1 U2], U2 = L⁻¹ A2
        beyond, to_beyond = (take_range(x, columns, k, n) for x in (packed, g[0]))
        rest = solve_triangular(swap_last(square), to_beyond, upper=True, unitriangular=True)
        to_lower = to_lower - on_triangle(matmul(rest, swap_last(beyond)), lower=True, strict=True)
    if m > k:  # L = [L1; L2], L2 = A2 U⁻¹
        beyond, to_beyond = (take_range(x, rows, k, m) for x in (packed, g[0]))
        rest = _right_solved(upper, to_beyond)
        to_upper = to_upper - on_triangle(matmul(swap_last(beyond), rest), lower=False)
    lower = on_triangle(square, lower=True, strict=True) + _eye(square)
    inner = on_triangle(matmul(swap_last(lower), to_lower), lower=True, strict=True)
    inner = inner + on_triangle(matmul(to_upper, swap_last(upper)), lower=False)
    found = _right_solved(upper, solve_triangular(swap_last(lower), inner, upper=True, unitriangular=True))
    if rest is not None:
        found = concat(found, rest, axis=columns if n > k else rows)
    return (matmul(permutation_matrix(item(y, index=1), found), found),)


def _right_solved(upper: Node, x: Node) -> Node:
    """x U⁻ᵀ."""
    return swap_last(solve_triangular(upper, swap_last(x), upper=True, unitriangular=False))


def _eye(x: Node) -> Node:
    shape, rank = x.type.shape, x.type.ndim
    rows, columns = (iota(shape=shape, axis=axis, dtype=int64, device=x.type.device) for axis in (rank - 2, rank - 1))
    return cast(eq(rows, columns), dtype=x.dtype)


def permutation_matrix(pivots: Node, like: Node) -> Node:
    """P with A = P L U, in the dtype of `like`, whose matrices have P's number of rows."""
    m = like.type.shape[-2]
    place = pivots_to_rows(pivots, size=m)
    shape = (*like.type.shape[:-2], m, m)
    rows = iota(shape=shape, axis=len(shape) - 2, dtype=int64, device=like.type.device)
    taken = expand(reshape(place, shape=(*shape[:-2], 1, m)), shape=shape)
    return cast(eq(rows, taken), dtype=like.dtype)


lu_factor: Op = Op("lu_factor", "linalg", _lu_type, attrs=("checked",), defaults={"checked": False}, vjp=_lu_vjp,
                   ulp=64, raises=NO_SOLUTION,
                   doc="(L below the diagonal and U on and above it, row exchanges from 1) with A = P L U. `checked` "
                       "raises where U has a zero on its diagonal, so that no system is solved by it.")

pivots_to_rows: Op = Op("pivots_to_rows", "linalg", ulp=0, attrs=("size",),
                        infer=lambda p, size: tensor_type((*p.shape[:-1], size), int64, p.device),
                        doc="Row exchanges as a permutation: the row of A that each row of L U is.")


def _exp_type(a: TensorType) -> TensorType:
    matrices("matrix_exp", a, square=True)
    return a


def _exp_vjp(g: Node, a: Node, y: Node) -> tuple[Node]:
    """The upper right block of exp([[Aᵀ, g], [0, Aᵀ]])."""
    n, rows, columns = a.type.shape[-1], a.type.ndim - 2, a.type.ndim - 1
    turned = swap_last(a)
    top, bottom = concat(turned, g, axis=columns), concat(zeros_like(g), turned, axis=columns)
    whole = matrix_exp(concat(top, bottom, axis=rows))
    return (take_range(take_range(whole, rows, 0, n), columns, n, 2 * n),)


matrix_exp: Op = Op("matrix_exp", "linalg", _exp_type, vjp=_exp_vjp, ulp=256, doc="Σ Aᵏ / k! of square matrices.")
