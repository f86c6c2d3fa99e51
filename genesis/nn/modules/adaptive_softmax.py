"""A softmax over many classes of which few are frequent: rare ones are told apart within clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import DType
from genesis.nn import functional as F
from genesis.nn.modules.container import ModuleList, Sequential
from genesis.nn.modules.linear import Linear
from genesis.nn.modules.module import Module
from genesis.ops.parts import cat

__all__ = ["AdaptiveLogSoftmaxWithLoss"]


class ASMoutput(NamedTuple):
    """What the layer gives.

    Attributes:
        output: the log-probability of each row's own class.
        loss: minus their mean.
    """

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of classes that are sorted by how frequent they are, and their loss (Grave et al. 2017).

    The first classes and one for each cluster of rarer ones share a softmax, the head. Within a cluster there is
    another one, over a projection that is `div_value` times smaller than that of the cluster before; only rows whose
    class is in a cluster are computed there, which reads the classes.

    Args:
        in_features: size of a row.
        n_classes: how many classes there are.
        cutoffs: the first class of each cluster, in increasing order.
        div_value: how much smaller each projection is.
        head_bias: whether the head has a bias.
        device, dtype: of the parameters.

    Raises:
        ValueError: cutoffs that are no increasing classes.

    >>> import genesis
    >>> layer = AdaptiveLogSoftmaxWithLoss(16, 20, [4, 10])
    >>> x = genesis.ones(3, 16)
    >>> layer(x, genesis.tensor([0, 5, 19])).output.shape, layer.log_prob(x).shape
    (genesis.Size([3]), genesis.Size([3, 20]))
    """

    def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int], div_value: float = 4.0,
                 head_bias: bool = False, device: Any = None, dtype: DType | None = None):
        super().__init__()
        found = list(cutoffs)
        if not found:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if (found != sorted(set(found)) or found[0] <= 0 or found[-1] > n_classes - 1
                or any(int(c) != c for c in found)):
            raise ValueError("cutoffs should be a sequence of unique, positive integers sorted in an increasing order, "
                             "where each value is between 1 and n_classes-1")
        self.in_features, self.n_classes, self.div_value, self.head_bias = in_features, n_classes, div_value, head_bias
        self.cutoffs = [*found, n_classes]
        self.shortlist_size, self.n_clusters = self.cutoffs[0], len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        place: dict[str, Any] = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **place)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            size = int(in_features // div_value ** (i + 1))
            classes = self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(Sequential(Linear(in_features, size, bias=False, **place),
                                        Linear(size, classes, bias=False, **place)))

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        for layer in (self.head, *(part for pair in self.tail for part in pair)):
            layer.reset_parameters()

    def forward(self, input: Tensor, target: Tensor) -> ASMoutput:
        """Rows (batch, in_features) and their classes (batch,), or one of each → their log-probabilities and the loss.

        Raises:
            RuntimeError: shapes that do not fit, or a class that there is not.
        """
        named = [("input", input), ("target", target)]
        if target.ndim > 1:
            raise failure("AdaptiveLogSoftmaxWithLoss", "0D or 1D target tensor expected, multi-target not supported",
                          named)
        if input.ndim != target.ndim + 1:
            raise failure("AdaptiveLogSoftmaxWithLoss", f"{target.ndim}D target tensor expects {target.ndim + 1}D "
                          "input tensors", named)
        if target.ndim and input.shape[0] != target.shape[0]:
            raise failure("AdaptiveLogSoftmaxWithLoss", "Input and target should have the same size in the batch "
                          "dimension.", named)
        rows, classes = (input, target) if target.ndim else (input.unsqueeze(0), target.unsqueeze(0))
        if bool(((classes < 0) | (classes >= self.n_classes)).any()):
            raise failure("AdaptiveLogSoftmaxWithLoss", f"Target values should be in [0, {self.n_classes - 1}], but "
                          f"values in range [{classes.min().item()}, {classes.max().item()}] were found.", named)
        inside, in_head = rows.new_zeros(rows.shape[0]), classes.clone()
        for i, tail in enumerate(self.tail):
            first = self.cutoffs[i]
            chosen = ((classes >= first) & (classes < self.cutoffs[i + 1])).nonzero().squeeze(1)
            if not chosen.numel():
                continue
            found = F.log_softmax(tail(rows.index_select(0, chosen)), dim=1)
            own = (classes.index_select(0, chosen) - first).unsqueeze(1)
            inside = inside.index_copy(0, chosen, found.gather(1, own).squeeze(1).to(inside.dtype))
            in_head = in_head.index_fill(0, chosen, self.shortlist_size + i)
        head = F.log_softmax(self.head(rows), dim=1)
        output = inside + head.gather(1, in_head.unsqueeze(1)).squeeze(1)
        return ASMoutput(output if target.ndim else output.squeeze(0), (-output).mean())

    def _get_full_log_prob(self, input: Tensor, head_output: Tensor) -> Tensor:
        """The log-probabilities of all classes, given what the head makes of the rows."""
        head = F.log_softmax(head_output, dim=1)
        size = self.shortlist_size
        parts = [F.log_softmax(tail(input), dim=1) + head[:, size + i:size + i + 1] for i, tail in enumerate(self.tail)]
        return cat([head[:, :size], *parts], 1)

    def log_prob(self, input: Tensor) -> Tensor:
        """Rows (batch, in_features) → log-probabilities (batch, n_classes)."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input: Tensor) -> Tensor:
        """Rows (batch, in_features) → the likeliest class of each, int64 (batch,)."""
        return self.log_prob(input).argmax(dim=1)
