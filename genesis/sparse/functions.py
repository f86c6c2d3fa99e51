"""Products, sums and softmax of sparse matrices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ops.creation import zeros
from genesis.ops.exponential import exp, log
from genesis.ops.rearrange import cat
from genesis.sparse.tensor import SparseTensor, mm, sparse_coo_tensor

spmm = mm


def addmm(mat: Tensor, mat1: SparseTensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta · mat + alpha · (mat1 @ mat2)."""
    return beta * mat + alpha * mm(mat1, mat2)


def sum(input: SparseTensor, dim: int | Sequence[int] | None = None, dtype: Any = None) -> Any:
    """The sum of all elements, a dense number; along some listed dimensions a sparse tensor, as torch's is.

    >>> import genesis
    >>> x = genesis.sparse_coo_tensor([[0, 0, 1], [0, 1, 1]], [1.0, 2.0, 3.0], (2, 2))
    >>> genesis.sparse.sum(x), genesis.sparse.sum(x, 1).to_dense()
    (tensor(6.), tensor([3., 3.]))
    """
    given = input if dtype is None else input.to(dtype)
    values = given._values()
    if dim is None:
        return values.sum()
    dims = {d % input.ndim for d in ([dim] if isinstance(dim, int) else dim)}
    inner = [d for d in dims if d >= input.sparse_dim()]
    if inner:
        values = values.sum([d - input.sparse_dim() + 1 for d in inner])
    kept = [d for d in range(input.sparse_dim()) if d not in dims]
    shape = [size for d, size in enumerate(input.shape) if d not in dims]
    if not kept:
        return values.sum(0)
    return SparseTensor(given._indices()[kept], values, shape).coalesce()


def softmax(input: SparseTensor, dim: int, *, dtype: Any = None) -> SparseTensor:
    """Softmax along one dimension of a matrix over the places that are listed: all others are -inf, and stay 0.

    >>> import genesis
    >>> scores = genesis.sparse_coo_tensor([[0, 0, 1], [0, 1, 1]], [1.0, 1.0, 3.0], (2, 2))
    >>> genesis.sparse.softmax(scores, 1).to_dense()
    tensor([[0.5000, 0.5000],
            [0.0000, 1.0000]])
    """
    given, groups, shifted = _shifted(input, dim, dtype)
    powers = exp(shifted)
    totals = zeros(given.shape[1 - dim % 2], dtype=powers.dtype, device=powers.device).index_add(0, groups, powers)
    return given._with(powers / totals[groups])


def log_softmax(input: SparseTensor, dim: int, *, dtype: Any = None) -> SparseTensor:
    """The logarithm of `softmax` at the places that are listed."""
    given, groups, shifted = _shifted(input, dim, dtype)
    powers = exp(shifted)
    totals = zeros(given.shape[1 - dim % 2], dtype=powers.dtype, device=powers.device).index_add(0, groups, powers)
    return given._with(shifted - log(totals)[groups])


def _shifted(input: SparseTensor, dim: int, dtype: Any) -> tuple[SparseTensor, Tensor, Tensor]:
    """The coalesced matrix, the row (column) of each value, and the values less the greatest of it."""
    if input.ndim != 2 or input.sparse_dim() != 2:
        raise failure("sparse.softmax", f"it takes a matrix, not a tensor of shape {input.shape}")
    given = (input if dtype is None else input.to(dtype)).coalesce()
    groups, values = given._indices()[1 - dim % 2], given._values()
    start = zeros(given.shape[1 - dim % 2], dtype=values.dtype, device=values.device)
    most = start.scatter_reduce(0, groups, values.detach(), "amax", include_self=False)
    return given, groups, values - most[groups]


def spdiags(diagonals: Tensor, offsets: Tensor, shape: Sequence[int], layout: Any = None) -> SparseTensor:
    """The matrix with these rows as diagonals; element j of the one with offset k is in column j, row j - k.

    >>> import genesis
    >>> genesis.sparse.spdiags(genesis.ones(1, 2), genesis.tensor([1]), (2, 2)).to_dense()
    tensor([[0., 1.],
            [0., 0.]])
    """
    from genesis.ops.creation import tensor
    given = diagonals if diagonals.ndim == 2 else diagonals.unsqueeze(0)
    places, values = [], []
    for row, offset in zip(given, offsets.reshape(-1).tolist(), strict=True):
        columns = [j for j in range(min(row.shape[0], shape[1])) if 0 <= j - offset < shape[0]]
        places.append(tensor([[j - offset for j in columns], columns], device=row.device))
        values.append(row[columns])
    return sparse_coo_tensor(cat(places, 1), cat(values), shape)


class FloatTensor:
    """torch's older name of `sparse_coo_tensor` with float32 values."""

    def __new__(cls, indices: Tensor, values: Tensor, size: Sequence[int] | None = None) -> Any:
        """The sparse tensor."""
        return sparse_coo_tensor(indices, values.float(), size)
