"""`SparseTensor`: places and values (torch's COO layout), and what programs ask of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from genesis.frontend.tensor import Size, Tensor
from genesis.ir.errors import failure
from genesis.ir.types import Device, DType, int64
from genesis.ops.creation import as_tensor, zeros
from genesis.ops.formats import MemoryFormat
from genesis.ops.rearrange import cat

sparse_coo = MemoryFormat("sparse_coo")


class SparseTensor:
    """A tensor that is 0 but in some places. The same place may be listed twice: then its values add up.

    Attributes:
        shape: the sizes, those of the listed dimensions first.
        is_sparse: True.
        requires_grad: whether its values do; gradients by it are gradients by its values.

    >>> import genesis
    >>> x = genesis.sparse_coo_tensor([[1, 1], [0, 0]], [2.0, 3.0], (2, 2))
    >>> x.to_dense()
    tensor([[0., 0.],
            [5., 0.]])
    >>> x.coalesce()
    tensor(indices=tensor([[1],
                           [0]]),
           values=tensor([5.]),
           size=(2, 2), nnz=1, layout=genesis.sparse_coo)
    """

    is_sparse, layout = True, sparse_coo
    __array_priority__ = 1000  # numpy leaves operators to it

    def __init__(self, indices: Tensor, values: Tensor, shape: Sequence[int], coalesced: bool = False):
        self._at, self._held, self.shape, self._coalesced = indices, values, Size(shape), coalesced

    # What it is

    @property
    def dtype(self) -> DType:
        """The values' dtype."""
        return self._held.dtype

    @property
    def device(self) -> Device:
        """Where it is."""
        return self._held.device

    @property
    def requires_grad(self) -> bool:
        """Do gradients flow to the values?"""
        return self._held.requires_grad

    @property
    def grad(self) -> SparseTensor | None:
        """The gradient by the values, at the same places; None before a backward."""
        return None if self._held.grad is None else self._with(self._held.grad)

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def T(self) -> SparseTensor:
        """The transposed matrix."""
        return self.t()

    def dim(self) -> int:
        """The number of dimensions."""
        return self.ndim

    def sparse_dim(self) -> int:
        """The number of dimensions whose places are listed."""
        return self._at.shape[0]

    def dense_dim(self) -> int:
        """The number of the others."""
        return self.ndim - self.sparse_dim()

    def size(self, dim: int | None = None) -> Any:
        """The shape, or one of its sizes."""
        return self.shape if dim is None else self.shape[dim]

    def _nnz(self) -> int:
        return self._at.shape[1]

    def is_coalesced(self) -> bool:
        """True where each place is listed once, in order."""
        return self._coalesced

    def _indices(self) -> Tensor:
        return self._at

    def _values(self) -> Tensor:
        return self._held

    def indices(self) -> Tensor:
        """The places, int64 [sparse_dim, nnz].

        Raises:
            RuntimeError: it is not coalesced.
        """
        self._check_coalesced("indices")
        return self._at

    def values(self) -> Tensor:
        """The values [nnz, ...]; as `indices`."""
        self._check_coalesced("values")
        return self._held

    def _check_coalesced(self, name: str) -> None:
        if not self._coalesced:
            raise failure(name, f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first")

    # What becomes of it

    def to_dense(self, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Tensor:
        """The tensor with all its elements."""
        flat = zeros(self._rows(), *self.shape[self.sparse_dim():], dtype=self.dtype, device=self.device)
        dense = flat.index_add(0, self._places(), self._held).reshape(self.shape)
        return dense if dtype is None else dense.to(dtype)

    def coalesce(self) -> SparseTensor:
        """Each place once, in order, with the sum of its values."""
        if self._coalesced:
            return self
        places, which = self._places().unique(sorted=True, return_inverse=True)
        values = zeros(places.shape[0], *self._held.shape[1:], dtype=self.dtype, device=self.device)
        rows, listed = [], places
        for size in reversed(self.shape[:self.sparse_dim()]):
            rows.append(listed % size)
            listed = listed // size
        indices = cat([row.reshape(1, -1) for row in reversed(rows)])
        return SparseTensor(indices, values.index_add(0, which, self._held), self.shape, True)

    def _rows(self) -> int:
        total = 1
        for size in self.shape[:self.sparse_dim()]:
            total *= size
        return total

    def _places(self) -> Tensor:
        """Each place as one number, in row-major order."""
        found = self._at[0]
        for row, size in zip(list(self._at)[1:], self.shape[1:], strict=False):
            found = found * size + row
        return found

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        """The tensor with two of the listed dimensions exchanged."""
        order, shape = list(range(self.sparse_dim())), list(self.shape)
        order[dim0], order[dim1] = order[dim1], order[dim0]
        shape[dim0], shape[dim1] = shape[dim1], shape[dim0]
        return SparseTensor(self._at[order], self._held, shape)

    def t(self) -> SparseTensor:
        """The transposed matrix."""
        return self.transpose(0, 1)

    def _with(self, values: Tensor) -> SparseTensor:
        return SparseTensor(self._at, values, self.shape, self._coalesced)

    def _map(self, change: Callable[[Tensor], Tensor]) -> SparseTensor:
        return self._with(change(self._held))

    def to(self, *args: Any, **options: Any) -> SparseTensor:
        """The matrix on another device, in another dtype, or both; arguments are those of `Tensor.to`."""
        values = self._held.to(*args, **options)
        return SparseTensor(self._at.to(values.device), values, self.shape, self._coalesced)

    def cuda(self, device: Any = None) -> SparseTensor:
        """The matrix on a GPU."""
        return self.to("cuda" if device is None else device)

    def cpu(self) -> SparseTensor:
        """The matrix on the CPU."""
        return self.to("cpu")

    def float(self) -> SparseTensor:
        """The tensor in float32."""
        return self._map(Tensor.float)

    def double(self) -> SparseTensor:
        """The tensor in float64."""
        return self._map(Tensor.double)

    def detach(self) -> SparseTensor:
        """The same without gradients."""
        return self._map(Tensor.detach)

    def clone(self) -> SparseTensor:
        """A copy of the values."""
        return self._map(Tensor.clone)

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        """Whether gradients by the values are wanted."""
        self._held.requires_grad_(requires_grad)
        return self

    def __mul__(self, other: Any) -> SparseTensor:
        return self._map(lambda values: values * other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> SparseTensor:
        return self._map(lambda values: values / other)

    def __neg__(self) -> SparseTensor:
        return self._map(lambda values: -values)

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, SparseTensor):
            return self.to_dense() + other
        return SparseTensor(cat([self._at, other._at], 1), cat([self._held, other._held]), self.shape).coalesce()

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self + (-other)

    def __matmul__(self, other: Tensor) -> Tensor:
        return mm(self, other)

    def __rmatmul__(self, other: Tensor) -> Tensor:
        return mm(other, self)

    matmul = spmm = mm = mv = __matmul__

    @staticmethod
    def product_of(first: Any, second: Any) -> Tensor:
        """`genesis.mm`, `mv` and `matmul` of two of which one is sparse."""
        return mm(first, second)

    def __repr__(self) -> str:
        indices, values = (repr(x.detach()).replace("\n", "\n" + " " * len(f"       {name}=")) for name, x in (
            ("indices", self._at), ("values", self._held)))
        note, made = f", dtype={self._held.dtype}", self._held.grad_fn
        told = note if note in values else ""
        grad = f", grad_fn={made!r}" if made is not None else ", requires_grad=True" if self.requires_grad else ""
        return (f"tensor(indices={indices},\n       values={values.replace(note, '')},\n       "
                f"size={tuple(self.shape)}, nnz={self._nnz()}{told}, layout={self.layout}{grad})")


def sparse_coo_tensor(indices: Any, values: Any, size: Sequence[int] | None = None, *, dtype: DType | None = None,
                      device: Any = None, requires_grad: bool = False, check_invariants: bool | None = None,
                      is_coalesced: bool | None = None) -> SparseTensor:
    """A tensor that is 0 but in these places.

    Args:
        indices: [sparse_dim, nnz], integers: a column is a place.
        values: [nnz, ...], the values there.
        size: the shape; by default the smallest that has the places.
        check_invariants: True reads the places, and refuses those outside.

    Raises:
        RuntimeError: the numbers of places and of values differ, or the size has another number of dimensions.

    >>> import genesis
    >>> genesis.sparse_coo_tensor([[0, 1], [1, 0]], [1.0, 2.0]).shape
    genesis.Size([2, 2])
    """
    held = as_tensor(values, dtype=dtype, device=device)
    at = as_tensor(indices, dtype=int64, device=held.device)
    named = [("indices", at), ("values", held)]
    if at.ndim != 2 or at.shape[1] != held.shape[:1][0]:
        raise failure("sparse_coo_tensor", "indices are [sparse_dim, nnz] and values [nnz, ...]", named)
    if size is None:
        size = [*((at.max(1).values + 1).tolist() if at.shape[1] else [0] * at.shape[0]), *held.shape[1:]]
    if len(size) != at.shape[0] + held.ndim - 1:
        raise failure("sparse_coo_tensor", f"number of dimensions must be sparse_dim ({at.shape[0]}) + dense_dim "
                      f"({held.ndim - 1}), but got {len(size)}", named)
    if check_invariants:
        for row, limit in zip(at.tolist(), size, strict=False):
            if any(not 0 <= place < limit for place in row):
                raise failure("sparse_coo_tensor", f"indices are outside of size {tuple(size)}", named)
    if requires_grad:
        held = held.detach().requires_grad_()
    return SparseTensor(at, held, [int(x) for x in size], bool(is_coalesced))


def mm(mat1: Any, mat2: Any) -> Tensor:
    """A sparse matrix [n, m] times a dense one [m, k], or a vector [m]: dense. Gradients flow to values and to it.

    Raises:
        RuntimeError: sizes do not fit, or both are sparse.
        TypeError: neither is.
    """
    if isinstance(mat1, SparseTensor) and isinstance(mat2, SparseTensor):
        raise failure("sparse.mm", "both matrices are sparse", hint="mm(a, b.to_dense())")
    if isinstance(mat2, SparseTensor):
        return mm(mat2.t(), mat1.mT).mT
    if not isinstance(mat1, SparseTensor):
        raise TypeError(f"sparse.mm takes a sparse and a dense matrix, not {type(mat1).__name__}")
    if mat1.ndim != 2 or mat1.sparse_dim() != 2 or mat2.ndim not in (1, 2) or mat1.shape[1] != mat2.shape[0]:
        raise failure("sparse.mm", f"mat1 and mat2 shapes cannot be multiplied ({mat1.shape} and {tuple(mat2.shape)})")
    rows, columns = mat1._indices()
    values = mat1._values()
    parts = mat2[columns] * (values if mat2.ndim == 1 else values.unsqueeze(1))
    return zeros(mat1.shape[0], *mat2.shape[1:], dtype=parts.dtype, device=parts.device).index_add(0, rows, parts)


class SparseMethods:
    """Methods of dense tensors (`frontend.tensor.install_later`)."""

    def to_sparse(self: Any, sparse_dim: int | None = None) -> SparseTensor:
        """The places that are not 0, and what is there.

        >>> import genesis
        >>> genesis.tensor([[0.0, 2.0]]).to_sparse()
        tensor(indices=tensor([[0],
                               [1]]),
               values=tensor([2.]),
               size=(1, 2), nnz=1, layout=genesis.sparse_coo)
        """
        listed = self.ndim if sparse_dim is None else sparse_dim
        inner = tuple(range(listed, self.ndim))
        full = (self != 0).any(inner) if inner else self != 0
        at = full.nonzero().t()
        return SparseTensor(at, self[tuple(at)], self.shape, True)

    def to_dense(self: Any, dtype: DType | None = None, *, masked_grad: bool | None = None) -> Any:
        """The tensor itself: it is dense."""
        return self if dtype is None else self.to(dtype)
