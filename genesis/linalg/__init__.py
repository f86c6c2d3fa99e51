"""`genesis.linalg`: norms, products and decompositions of matrices, by torch.linalg's names.

In: matrices, and batches of them. Out: tensors whose nodes are recorded.

Norms and products run on the tensor's device. Decompositions are LAPACK's, on the CPU: those of CUDA tensors go to the
host and back, which is said once.
"""

from genesis.frontend.public_functions import published as _published
from genesis.ir.errors import LinAlgError as LinAlgError
from genesis.linalg.lu_factors import *
from genesis.linalg.norms import *
from genesis.linalg.tensors import *

# isort: off
from genesis.ops.decompositions import (
    cholesky as cholesky,
    cholesky_ex as cholesky_ex,
    det as det,
    eigh as eigh,
    eigvalsh as eigvalsh,
    inv as inv,
    inv_ex as inv_ex,
    lstsq as lstsq,
    matrix_rank as matrix_rank,
    pinv as pinv,
    qr as qr,
    slogdet as slogdet,
    solve as solve,
    solve_ex as solve_ex,
    solve_triangular as solve_triangular,
    svd as svd,
    svdvals as svdvals,
)
from genesis.ops.diagonals import trace as trace
from genesis.ops.linalg import outer as outer
from genesis.ops.norms import cond as cond
from genesis.ops.products import (
    matrix_power as matrix_power,
    matrix_transpose as matrix_transpose,
    multi_dot as multi_dot,
    tensordot as tensordot,
)
# isort: on

__all__ = [name for name, value in list(globals().items()) if callable(value) and not name.startswith("_")]
__getattr__, __dir__ = _published(globals(), __name__)
