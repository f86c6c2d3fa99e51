"""From class and token numbers to rows and vectors."""

from __future__ import annotations

from genesis.ir.errors import failure
from genesis.ir.ops import indexing
from genesis.ir.types import int64
from genesis.ops.creation import arange
from genesis.recording import record
from genesis.tensor import Tensor


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of a table.

    Args:
        input: integers in [0, rows), any shape.
        weight: (rows, size).
        padding_idx: a row that gets no gradient.

    Returns:
        (*input.shape, size) in the table's dtype.

    Raises:
        RuntimeError: weight is not a table, or padding_idx not one of its rows.
        IndexError: input does not have an integer dtype.

    >>> import genesis
    >>> embedding(genesis.tensor([2, 0]), genesis.arange(3.0).reshape(3, 1)).tolist()
    [[2.0], [0.0]]
    """
    if weight.type.ndim != 2:
        raise failure("embedding", "weight must be a table (rows, size)", [("weight", weight)])
    rows: Tensor = record(indexing.take, (weight, input), (0,))
    if padding_idx is None:
        return rows
    count = weight.type.shape[0]
    if not -count <= padding_idx < count:
        raise failure("embedding", f"padding_idx={padding_idx} is not a row", [("weight", weight)],
                      hint=f"a row from {-count} to {count - 1}")
    padding = (input == padding_idx % count).unsqueeze(-1)
    return rows.detach().where(padding, rows)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Class numbers as vectors of one 1 and else 0.

    Args:
        tensor: integers in [0, num_classes), any shape.
        num_classes: length of a vector; -1 for the largest number + 1, which reads the values.

    Returns:
        int64, (*tensor.shape, num_classes).

    >>> import genesis
    >>> one_hot(genesis.tensor([0, 2]), 3).tolist()
    [[1, 0, 0], [0, 0, 1]]
    """
    if tensor.type.dtype.kind != "int":
        raise failure("one_hot", "class numbers must be integers", [("tensor", tensor)])
    if num_classes == -1:
        if tensor.type.numel == 0:
            raise failure("one_hot", "no class number to count the classes by", [("tensor", tensor)],
                          hint="give num_classes")
        num_classes = int(tensor.max().item()) + 1
    classes = arange(num_classes, device=tensor.device, dtype=tensor.dtype)
    return (tensor.unsqueeze(-1) == classes).to(int64)
