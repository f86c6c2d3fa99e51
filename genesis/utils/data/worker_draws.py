"""A worker's random numbers, which begin anew with each batch.

What a dataset draws for a batch then depends on the pass and on the batch's number, not on what its worker made before:
a pass that goes on in the middle, in other processes, gives the batches that it would have given.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from genesis.frontend.generator import default_generator, manual_seed

BATCH_DRAWS: Final = 32
"""Bits of the number of a batch's draws from Genesis' generator: those of the next batch come behind them."""


class Source(NamedTuple):
    """A generator of random numbers that datasets draw from.

    Attributes:
        state: what changes where it is seeded or drawn from.
        begin: let it begin for a batch: its pass' seed and its number.
    """

    state: Callable[[], Any]
    begin: Callable[[int, int], None]


def _numpy_state() -> Any:
    import numpy as np
    kept: Any = np.random.get_state(legacy=False)
    return kept["bit_generator"], {name: getattr(x, "tolist", lambda x=x: x)() for name, x in kept["state"].items()}


def _begin_numpy(seed: int, batch: int) -> None:
    import numpy as np
    np.random.seed([seed % 2 ** 32, seed >> 32, batch % 2 ** 32])


SOURCES: Final = (
    Source(random.getstate, lambda seed, batch: random.seed(seed << 64 | batch)),
    Source(_numpy_state, _begin_numpy),
    Source(lambda: default_generator.standing_at(), lambda seed, batch: default_generator.stand_at(
        seed, batch << BATCH_DRAWS)),
)
"""Python's, numpy's and Genesis' own."""


class WorkerDraws:
    """The generators of a worker.

    Args:
        seed: what they are seeded with until the first batch.
    """

    def __init__(self, seed: int):
        import numpy as np
        random.seed(seed)
        np.random.seed(seed % 2 ** 32)
        manual_seed(seed)
        self._left: tuple[Source, ...] = SOURCES

    def initialize(self, init: Callable[[int], Any], worker: int) -> None:
        """Call the user's `worker_init_fn`: what it seeds or draws from is the user's from then on."""
        before = [source.state() for source in SOURCES]
        try:
            init(worker)
        finally:
            self._left = tuple(source for source, state in zip(SOURCES, before, strict=True) if source.state() == state)

    def begin(self, seed: int, batch: int) -> None:
        """Begin anew for a batch of the pass that has this seed."""
        for source in self._left:
            source.begin(seed, batch)
