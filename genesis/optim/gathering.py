"""The writes of a step in which each rank makes some rows of each parameter: they are gathered, and written whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from genesis.distributed.process_group import ProcessGroup
from genesis.distributed.tensor import Layout
from genesis.distributed.tensor.rows import chunk_rows, padded, rows_of
from genesis.frontend.at_once import Change
from genesis.ir.ops import collectives as ops
from genesis.ir.types import Device
from genesis.optim.writes import Writes


class GatheringWrites(Writes):
    """See `Writes`.

    Args:
        noted: as of `Writes`.
        ranks: have the rows, in their order.
        cut: id of a tensor of which rows are noted → where they are in it.
    """

    def __init__(self, noted: tuple[Change, Callable[[], Any]] | None, ranks: ProcessGroup, cut: Mapping[int, Layout]):
        super().__init__(noted)
        self._ranks, self._cut = ranks, cut

    def commit(self, last: bool = True, states: Iterable[dict[str, Any]] = ()) -> None:
        """Gather rows, by one collective for a device, and write all that was noted, with the collectives' order."""
        by_device: dict[Device, list[int]] = {}
        for at, x in enumerate(self._tensors):
            if id(x) in self._cut:
                by_device.setdefault(x.device, []).append(at)
        for device, places in by_device.items():
            self._gather(device, places)
        super().commit(last, states)

    def _gather(self, device: Device, places: list[int]) -> None:
        world = self._ranks.size()
        sizes = [self._tensors[at].shape[0] for at in places]
        chunks = [padded(self._nodes[at], chunk_rows(size, world)) for at, size in zip(places, sizes, strict=True)]
        wholes, order, following = self._ranks.upcoming(ops.all_gather, chunks, device, world=world)
        for at, whole, size in zip(places, wholes, sizes, strict=True):
            self._nodes[at] = rows_of(whole, 0, size)
        self._tensors.append(order)
        self._nodes.append(following)
