"""Tables of vectors."""

from __future__ import annotations

from typing import Any

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import DType
from genesis.nn import functional as F
from genesis.nn import init
from genesis.nn.modules.module import Module
from genesis.nn.parameter import Parameter
from genesis.ops.creation import empty

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """A table of `num_embeddings` vectors of size `embedding_dim`."""

    def _set_up(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, max_norm: float | None,
                norm_type: float, scale_grad_by_freq: bool, sparse: bool, _weight: Tensor | None, device: Any,
                dtype: DType | None) -> None:
        name = type(self).__name__
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise failure(name, f"padding_idx={padding_idx} is not one of {num_embeddings} rows: Padding_idx must "
                              "be within num_embeddings", error=AssertionError)
            padding_idx %= num_embeddings
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if _weight is None:
            self.weight = Parameter(empty(num_embeddings, embedding_dim, device=device, dtype=dtype))
            self.reset_parameters()
        elif _weight.shape != (num_embeddings, embedding_dim):
            raise failure(name, "Shape of weight does not match num_embeddings and embedding_dim",
                          [("weight", _weight)], error=ValueError)
        else:
            self.weight = Parameter(_weight)

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            layout = getattr(self.weight, "sharding", None)
            first, last = (0, self.num_embeddings) if layout is None else layout.region()[0]
            if first <= self.padding_idx < last:  # the row is this rank's
                with no_grad():
                    self.weight[self.padding_idx - first].zero_()

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **options: Any) -> Any:
        """A layer over a given table.

        Args:
            embeddings: (num_embeddings, embedding_dim).
            freeze: the table takes no gradient.
            options: the layer's other arguments.
        """
        if embeddings.ndim != 2:
            raise failure(cls.__name__, "Embeddings parameter is expected to be 2-dimensional",
                          [("embeddings", embeddings)], error=ValueError)
        rows, columns = embeddings.shape
        made = cls(rows, columns, _weight=embeddings, **options)  # type: ignore[call-arg]
        made.weight.requires_grad = not freeze
        return made

    def extra_repr(self) -> str:
        """The sizes, and what is not at its default."""
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        parts += [f"padding_idx={self.padding_idx}"] if self.padding_idx is not None else []
        parts += [f"max_norm={self.max_norm}"] if self.max_norm is not None else []
        parts += [f"norm_type={self.norm_type}"] if self.norm_type != 2 else []
        parts += [f"scale_grad_by_freq={self.scale_grad_by_freq}"] if self.scale_grad_by_freq else []
        parts += ["sparse=True"] if self.sparse else []
        return ", ".join(parts)


class Embedding(_Table):
    """A table of `num_embeddings` vectors of size `embedding_dim`, initially standard normal.

    Args:
        num_embeddings: how many vectors; indices are below it.
        embedding_dim: the size of a vector.
        padding_idx: a row that is 0 at first and gets no gradient.
        max_norm: rows that are read and have a larger norm are scaled down to it.
        norm_type: p of that norm.
        scale_grad_by_freq: divide a row's gradient by how often it was read.
        sparse: gradients are dense all the same.
        device, dtype: of the table.

    >>> import genesis
    >>> Embedding(10, 3)(genesis.tensor([[1, 2], [4, 5]])).shape
    genesis.Size([2, 2, 3])
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                 sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False, device: Any = None,
                 dtype: DType | None = None):
        super().__init__()
        self._set_up(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
                     _weight, device, dtype)
        if _freeze:
            self.weight.requires_grad = False

    def forward(self, input: Tensor) -> Tensor:
        """Integers of any shape → (*shape, embedding_dim)."""
        return F.embedding(input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq,
                           self.sparse)


class EmbeddingBag(_Table):
    """The sum, mean or maximum of the rows of each bag; arguments as of `Embedding` and `functional.embedding_bag`.

    >>> import genesis
    >>> EmbeddingBag(10, 3, mode="sum")(genesis.tensor([[1, 2], [4, 5]])).shape
    genesis.Size([2, 3])
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, max_norm: float | None = None, norm_type: float = 2.0,
                 scale_grad_by_freq: bool = False, mode: str = "mean", sparse: bool = False,
                 _weight: Tensor | None = None, include_last_offset: bool = False, padding_idx: int | None = None,
                 device: Any = None, dtype: DType | None = None):
        super().__init__()
        self.mode, self.include_last_offset = mode, include_last_offset
        self._set_up(num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse,
                     _weight, device, dtype)

    def forward(self, input: Tensor, offsets: Tensor | None = None,
                per_sample_weights: Tensor | None = None) -> Tensor:
        """(bags, length) integers, or (n) with offsets → (bags, embedding_dim)."""
        return F.embedding_bag(input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq,
                               self.mode, self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx)

    def extra_repr(self) -> str:
        """The sizes, and what is not at its default."""
        parts = [f"{self.num_embeddings}, {self.embedding_dim}"]
        parts += [f"max_norm={self.max_norm}"] if self.max_norm is not None else []
        parts += [f"norm_type={self.norm_type}"] if self.norm_type != 2 else []
        parts += [f"scale_grad_by_freq={self.scale_grad_by_freq}"] if self.scale_grad_by_freq else []
        parts += [f"mode={self.mode!r}"]
        parts += [f"padding_idx={self.padding_idx}"] if self.padding_idx is not None else []
        return ", ".join(parts)
