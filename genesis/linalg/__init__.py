"""`genesis.linalg`: norms, products and decompositions of matrices, by torch.linalg's names.

Norms and products run on the tensor's device. Decompositions are LAPACK's, on the CPU: those of CUDA tensors go to the
host and back, which is said once.
"""

from genesis.linalg.lu_factors import lu, lu_factor, lu_solve, matrix_exp
from genesis.linalg.norms import cross, diagonal, matmul, matrix_norm, norm, vecdot, vector_norm
from genesis.linalg.tensors import tensorinv, tensorsolve, vander
from genesis.ops.decompositions import (
    cholesky,
    det,
    eigh,
    eigvalsh,
    inv,
    lstsq,
    matrix_rank,
    pinv,
    qr,
    slogdet,
    solve,
    solve_triangular,
    svd,
    svdvals,
)
from genesis.ops.diagonals import trace
from genesis.ops.linalg import outer
from genesis.ops.norms import cond
from genesis.ops.products import matrix_power, matrix_transpose, multi_dot, tensordot

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "lstsq", "lu", "lu_factor",
    "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose",
    "multi_dot", "norm", "outer", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svd", "svdvals",
    "tensordot", "tensorinv", "tensorsolve", "trace", "vander", "vecdot", "vector_norm",
]
