"""Buckets of gradients for communication hooks: what a hook makes of each becomes the gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from genesis.distributed.work import Future
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops.collectives import bucketed
from genesis.ops.parts import cat


class GradBucket:
    """Gradients that are reduced together, as a hook sees them; torch's names."""

    def __init__(self, index: int, last: bool, parameters: Sequence[Tensor], gradients: Sequence[Tensor]):
        self._index, self._last = index, last
        self._parameters, self._shapes = list(parameters), [tuple(g.shape) for g in gradients]
        self._buffer = cat([g.reshape(-1) for g in gradients])

    def index(self) -> int:
        """Its number: the first has the gradients that backward makes first."""
        return self._index

    def is_last(self) -> bool:
        """Whether it is the last of this backward."""
        return self._last

    def buffer(self) -> Tensor:
        """All its gradients, one after another: one dimension."""
        return self._buffer

    def set_buffer(self, tensor: Tensor) -> None:
        """Let the buffer be another tensor of as many elements."""
        self._buffer = tensor

    def parameters(self) -> list[Tensor]:
        """The parameters that the gradients are of."""
        return self._parameters

    def gradients(self) -> list[Tensor]:
        """The gradients, each in its shape."""
        return self.cut(self._buffer)

    def cut(self, flat: Tensor) -> list[Tensor]:
        """Such a buffer's parts, each in its gradient's shape."""
        sizes = [p.numel() for p in self._parameters]
        return [x.view(shape) for x, shape in zip(flat.split(sizes), self._shapes, strict=True)]


def reduce_by_hook(hook: Callable[[Any, GradBucket], Any], state: Any, parameters: Sequence[Tensor],
                   gradients: Sequence[Tensor], first: int, cap: int) -> None:
    """Write what the hook makes of each bucket to the gradients. A bucket has one device and one dtype.

    Raises:
        RuntimeError: a hook gives something else than a future of a tensor as large as its bucket.
    """
    chosen = []
    numbered = sorted(range(len(gradients)), key=lambda at: (str(gradients[at].device), gradients[at].dtype.name))
    for _, alike in groupby(numbered, key=lambda at: (str(gradients[at].device), gradients[at].dtype.name)):
        places = list(alike)
        sizes = [gradients[at].numel() * gradients[at].element_size() for at in places]
        chosen += [[places[i] for i in bucket] for bucket in bucketed(sizes, first, cap)]
    with no_grad():
        for number, places in enumerate(chosen):
            own = [gradients[at] for at in places]
            bucket = GradBucket(number, number == len(chosen) - 1, [parameters[at] for at in places], own)
            found = hook(state, bucket)
            flat = found.wait() if isinstance(found, Future) else found
            flat = flat[0] if isinstance(flat, (list, tuple)) else flat
            if not isinstance(flat, Tensor) or flat.numel() != sum(g.numel() for g in own):
                raise failure("register_comm_hook", "a hook gives a future of a tensor as large as its bucket",
                              [("bucket", bucket.buffer()), ("result", flat)])
            for g, part in zip(own, bucket.cut(flat.reshape(-1)), strict=True):
                g.copy_(part)
