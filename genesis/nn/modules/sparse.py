"""Tables of vectors."""

from __future__ import annotations

from typing import Any

from genesis.gradmode import no_grad
from genesis.ir.errors import failure
from genesis.ir.types import DType
from genesis.nn import functional as F
from genesis.nn import init
from genesis.nn.modules.module import Module
from genesis.nn.parameter import Parameter
from genesis.ops.creation import empty
from genesis.tensor import Tensor


class Embedding(Module):
    """A table of `num_embeddings` vectors of size `embedding_dim`, initially standard normal.

    Args:
        num_embeddings: how many vectors; indices are below it.
        embedding_dim: the size of a vector.
        padding_idx: a row that is 0 at first and gets no gradient.
        device, dtype: of the table.

    >>> import genesis
    >>> Embedding(10, 3)(genesis.tensor([[1, 2], [4, 5]])).shape
    genesis.Size([2, 2, 3])
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, device: Any = None,
                 dtype: DType | None = None):
        super().__init__()
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise failure("Embedding", f"padding_idx={padding_idx} is not one of {num_embeddings} rows",
                              error=ValueError)
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.weight = Parameter(empty(num_embeddings, embedding_dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx].zero_()

    def forward(self, input: Tensor) -> Tensor:
        """Integers of any shape → (*shape, embedding_dim)."""
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """The sizes."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
