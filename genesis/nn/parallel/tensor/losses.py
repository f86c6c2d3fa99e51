"""The loss of a head whose vocabulary is shared out: no process has all logits of a token.

    log Σ exp(x) − x[label] = log Σᵣ sᵣ − Σᵣ tᵣ      sᵣ: the sum of this process' exp(x − m), tᵣ: x[label] − m where the
                                                     label is its, else 0; m: the largest of all

Three numbers a token go between processes, instead of its logits.
"""

from __future__ import annotations

from genesis.distributed.collectives import ReduceOp, all_reduce
from genesis.distributed.mesh import DeviceMesh
from genesis.distributed.tensor.redistribute import redistribute
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.nn.modules.linear import Linear
from genesis.nn.modules.module import Module
from genesis.nn.parallel.tensor.style import PARTIAL, REPLICATE
from genesis.nn.parallel.tensor.weights import ColwiseParallel
from genesis.ops.parts import stack


class VocabularyParallel(ColwiseParallel):
    """A head whose logits stay where they are made: `split_cross_entropy` is its loss.

    Args:
        model: is told the processes, as its attribute `split_over`.
    """

    def __init__(self, model: Module | None = None):
        super().__init__()
        self._model = model

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Share the module out.

        Raises:
            TypeError: it is no Linear.
        """
        if not isinstance(module, Linear):
            raise failure("VocabularyParallel", f"a head is a Linear, not {type(module).__name__}", error=TypeError)
        super().apply(module, mesh)
        if self._model is not None:
            object.__setattr__(self._model, "split_over", mesh)


def split_cross_entropy(logits: Tensor, target: Tensor, mesh: DeviceMesh, first: int,
                        ignore_index: int = -100) -> Tensor:
    """The mean cross-entropy of classes that are shared out, as F.cross_entropy of all of them.

    Args:
        logits: (N, classes of this process).
        target: (N,), numbers of classes, on all processes the same.
        mesh: the processes, which call this together.
        first: the number of this process' first class.
        ignore_index: targets that do not count.

    Returns:
        A number, on all processes the same, of logits' dtype, computed in float32 at least. Without any target that
        counts it is NaN.
    """
    group, count = mesh.get_group(), logits.shape[-1]
    x = logits.float() if logits.dtype.itemsize < 4 else logits
    with no_grad():
        most = x.detach().amax(-1)
        all_reduce(most, ReduceOp.MAX, group)
    x = x - most.unsqueeze(-1)
    elsewhere = (target < first) | (target >= first + count)
    own = x.gather(-1, (target - first).clamp(0, count - 1).unsqueeze(-1)).squeeze(-1).masked_fill(elsewhere, 0)
    total, label = redistribute(stack([x.exp().sum(-1), own]), group, (PARTIAL, REPLICATE)).unbind(0)
    counts = target != ignore_index
    losses = (total.log() - label).masked_fill(~counts, 0)
    return (losses.sum() / counts.sum()).to(logits.dtype)
