"""Dropout."""

from __future__ import annotations

from genesis.ir.errors import failure
from genesis.nn import functional as F
from genesis.nn.modules.module import Module
from genesis.tensor import Tensor


class Dropout(Module):
    """In training, each element is 0 with probability p, else divided by 1 - p.

    >>> import genesis
    >>> Dropout(0.5).eval()(genesis.ones(3)).tolist()
    [1.0, 1.0, 1.0]
    """

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0.0 <= p <= 1.0:
            raise failure("Dropout", f"p={p} is not a probability", hint="0 ≤ p ≤ 1", error=ValueError)
        self.p, self.inplace = p, inplace

    def forward(self, input: Tensor) -> Tensor:
        """The input's shape and dtype."""
        return F.dropout(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        """The probability."""
        return f"p={self.p}, inplace={self.inplace}"
