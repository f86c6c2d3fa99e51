"""Class and token numbers become rows and vectors."""

from __future__ import annotations

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.recording import record, record_in
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import composite, indexing
from genesis.ir.types import float32, int64
from genesis.ops.comparison import where
from genesis.ops.creation import ones, zeros

__all__ = ["embedding", "one_hot"]


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
              norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False) -> Tensor:
    """Rows of a table.

    Args:
        input: integers in [0, rows), any shape.
        weight: (rows, size).
        padding_idx: a row that gets no gradient.
        max_norm: rows that are read and have a larger norm are scaled down to it, in the table.
        norm_type: p of that norm.
        scale_grad_by_freq: divide a row's gradient by how often it was read.
        sparse: gradients are dense all the same.

    Returns:
        (*input.shape, size) in the table's dtype.

    Raises:
        RuntimeError: weight is not a table, or padding_idx not one of its rows.
        IndexError: input does not have an integer dtype.

    >>> import genesis
    >>> embedding(genesis.tensor([2, 0]), genesis.arange(3.0).reshape(3, 1)).tolist()
    [[2.0], [0.0]]
    """
    rank = weight.spec.ndim
    if rank != 2:
        raise failure("embedding", "weight must be a table: 'weight' must be 2-D (rows, size)", [("weight", weight)])
    if padding_idx is not None:
        padding_idx = _row("embedding", weight, padding_idx)
    if max_norm is not None:
        _shorten("embedding", input, weight, float(max_norm), float(norm_type))
    rows: Tensor = record(indexing.take, (weight, input), (0,), "embedding")
    return _scaled(rows, input, weight.spec.shape[0], padding_idx, scale_grad_by_freq)


def _row(op: str, weight: Tensor, row: int) -> int:
    count = weight.spec.shape[0]
    if not -count <= row < count:
        raise failure(op, f"Padding_idx must be within num_embeddings: padding_idx={row} is not a row",
                      [("weight", weight)], hint=f"a row from {-count} to {count - 1}", error=AssertionError)
    return row % count


def _shorten(op: str, input: Tensor, weight: Tensor, max_norm: float, norm_type: float) -> None:
    """Scale the rows that are read down to the largest norm that is allowed."""
    with no_grad():
        numbers = input.reshape(-1)
        rows = record_in(op, indexing.take, (weight.detach(), numbers), (0,))
        norms = rows.to(float32 if rows.dtype.itemsize < 4 else rows.dtype).norm(norm_type, -1, keepdim=True)
        factor = where(norms > max_norm, max_norm / (norms + 1e-7), 1.0)
        short = (rows * factor).to(rows.dtype)
        weight.copy_(record(indexing.index_copy, (weight.detach(), numbers, short), (0,)))


def _scaled(rows: Tensor, numbers: Tensor, count: int, padding_idx: int | None, by_frequency: bool) -> Tensor:
    """The rows that were read, with a factor on their gradients: 0 for padding, 1 / how often it was read."""
    factor: Tensor | None = None
    if by_frequency:
        flat = numbers.reshape(-1)
        once = ones(flat.spec.shape[0], dtype=float32, device=rows.device)
        often: Tensor = record(indexing.index_add, (zeros(count, dtype=float32, device=rows.device), flat, once), (0,))
        factor = 1 / often[numbers]
    if padding_idx is not None:
        kept = (numbers != padding_idx).to(float32)
        factor = kept if factor is None else factor * kept
    if factor is None:
        return rows
    found: Tensor = record(composite.scale_gradient, (rows, factor.unsqueeze(-1)))
    return found


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Class numbers as vectors of one 1 and else 0.

    Args:
        tensor: integers in [0, num_classes), any shape.
        num_classes: length of a vector; -1 for the largest number + 1, which reads the values.

    Returns:
        int64, (*tensor.shape, num_classes).

    Raises:
        IndexError: a number is outside of that, when the result is computed.

    >>> import genesis
    >>> one_hot(genesis.tensor([0, 2]), 3).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    if tensor.spec.dtype.kind != "int":
        raise failure("one_hot", "class numbers must be integers", [("tensor", tensor)])
    if num_classes == -1:
        if tensor.spec.numel == 0:
            raise failure("one_hot", "no class number to count the classes by", [("tensor", tensor)],
                          hint="give num_classes")
        num_classes = int(tensor.max().item()) + 1
        if num_classes <= 0:
            raise failure("one_hot", "Class values must be non-negative", [("tensor", tensor)])
    nothing = zeros(*tensor.spec.shape, num_classes, dtype=int64, device=tensor.device)
    return nothing.scatter(-1, tensor.to(int64).unsqueeze(-1), 1)
