"""Instants are those of the function that is run, and of nothing that ends meanwhile."""

from __future__ import annotations

import gc
import sys
from typing import Any

import genesis
from genesis.utils.data import DataLoader, TensorDataset
from tests.faults.events import Traced


def test_a_pass_that_is_collected_meanwhile_is_no_instant() -> None:
    """One that an earlier test has left in a circle ends by lines of its room, in which an error would be dropped."""
    def loader(workers: int = 0) -> DataLoader:
        return DataLoader(TensorDataset(genesis.arange(4)), batch_size=2, num_workers=workers)

    def begun() -> None:
        """Begin a pass over a loader, where the collector looks at what came since the circle."""
        gc.set_threshold(50, 100, 100)
        left: list[Any] = [[] for _ in range(100)]
        iter(loader())
        del left
    threshold = gc.get_threshold()
    try:
        begun()
        lines = Traced("line", ("utils/data/",))
        expected = lines.places(begun)
        gc.set_threshold(0)
        circle: list[Any] = [batches := iter(loader(workers=1))]
        next(batches)
        circle.append(circle)
        del circle, batches
        assert lines.places(begun) == expected and gc.isenabled() and sys.gettrace() is None
    finally:
        gc.set_threshold(*threshold)
