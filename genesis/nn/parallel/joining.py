"""`join`: ranks with fewer batches than others take part in the collectives of the others' steps.

Before each forward the ranks that still train say so, in one small sum over all; a rank that is done answers, does
what a step's collectives need with zeros, and waits for the next step, until nobody trains.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from genesis.distributed.collectives import ReduceOp, all_reduce, broadcast_coalesced
from genesis.distributed.process_group import ProcessGroup
from genesis.frontend.engine_protocol import engine
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import Device, int32
from genesis.ops.creation import tensor


class Joining:
    """What the ranks of a group know of each other inside `join`.

    Args:
        group: the ranks.
        device: of the sums.
        by_initial: gradients are divided by the number of all ranks, not of those that train.
        throws: raise on all ranks when the first is done.
    """

    def __init__(self, group: ProcessGroup, device: Device, by_initial: bool, throws: bool):
        self._group, self._device, self.by_initial, self.throws = group, device, by_initial, throws
        self._latest: Tensor | None = None

    def announce(self, trains: bool, synchronizes: bool = False) -> Tensor:
        """Whether each rank trains, and last whether its gradients are reduced in this step."""
        said = [0] * (self._group.size() + 1)
        if trains:
            said[self._group.rank()], said[-1] = 1, int(synchronizes)
        with no_grad():
            told = tensor(said, dtype=int32, device=self._device)
            all_reduce(told, ReduceOp.SUM, self._group)
        return told

    def begin(self, synchronizes: bool) -> None:
        """A rank that trains begins a forward.

        Raises:
            RuntimeError: a rank is done, and `throws`.
        """
        self._latest = self.announce(True, synchronizes)
        if self.throws and 0 in self._latest[:-1].tolist():
            raise failure("join", "Detected at least one rank that exhausted inputs. Throwing across all ranks.")

    @property
    def has_begun(self) -> bool:
        """Whether there was a step."""
        return self._latest is not None

    def source(self) -> int:
        """A rank of the group that took part in the last step."""
        assert self._latest is not None
        return max(at for at, trains in enumerate(self._latest[:-1].tolist()) if trains)

    def scale(self) -> Tensor | None:
        """What means over all ranks are multiplied by to be means over those that train."""
        if self.by_initial or self._latest is None:
            return None
        return self._group.size() / self._latest[:-1].sum().float()

    def others(self) -> Iterator[bool]:
        """Whether gradients are reduced, for each step that others make after this rank was done."""
        while True:
            told = self.announce(False)
            values = told.tolist()
            if not any(values[:-1]):
                return
            self._latest = told
            if self.throws:
                raise failure("join", "Detected at least one rank that exhausted inputs. Throwing across all ranks.")
            yield values[-1] > 0


@contextmanager
def joined(model: Any, by_initial: bool, enable: bool, throws: bool) -> Iterator[None]:
    """The context of `DistributedDataParallel.join`."""
    group = model.process_group
    if not enable or group.size() == 1:
        yield
        return
    device = next(model.parameters()).device
    joining = Joining(group, device, by_initial, throws)
    try:
        model.joining = joining
        yield
        for reduces in joining.others():
            model.shadow(reduces)
        held: list[Tensor] = [*model.parameters(), *model.buffers()]
        if joining.has_begun:
            with no_grad():
                broadcast_coalesced(held, group=group, group_src=joining.source())
            engine.materialize(held)
    finally:
        model.joining = None
