"""Random state: seeds and the numbers of draws.

A generator is a seed and a count of draws. Each op that draws takes the next number when it is
recorded, so what it gives does not depend on when, where or how it runs.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from genesis import session
from genesis.ir.node import Node
from genesis.session import live_numbers


class Generator:
    """A source of draws.

    >>> g = Generator().manual_seed(7)
    >>> g.initial_seed(), g.next_draw(), g.next_draw()
    (7, (7, 0), (7, 1))
    """

    def __init__(self, device: Any = "cpu"):
        self.device = device
        self._lock = threading.Lock()
        self._seed, self._draws = 67280421310721, 0

    def manual_seed(self, seed: int) -> Generator:
        """Start over with this seed (taken modulo 2^63)."""
        _refuse("a generator was seeded")
        with self._lock:
            self._seed, self._draws = int(seed) % 2**63, 0
        return self

    def seed(self) -> int:
        """Start over with a seed from the operating system; returns it."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def initial_seed(self) -> int:
        """The seed."""
        _refuse("a generator's seed was read")
        return self._seed

    def get_state(self) -> tuple[int, int]:
        """Seed and number of draws so far."""
        _refuse("a generator's state was read")
        return self._seed, self._draws

    def set_state(self, state: tuple[int, int]) -> Generator:
        """Go back to a state that `get_state` gave."""
        _refuse("a generator was set")
        with self._lock:
            self._seed, self._draws = state
        return self

    def next_draw(self) -> tuple[int, int]:
        """(seed, draw number) for one op; the next call gets the next number."""
        with self._lock:
            draw = self._draws
            self._draws = draw + 1
            return self._seed, draw


def _refuse(reason: str) -> None:
    """A compiled function that does this is recorded at each call."""
    if session.current is not None and (running := session.active()) is not None:
        running.refuse(reason)


default_generator = Generator()


def draw_numbers(generator: Generator | None = None) -> list[Node]:
    """Operands (seed, draw number) of one op that draws; a compiled function draws anew at each call."""
    return live_numbers((default_generator if generator is None else generator).next_draw)


def next_draw(generator: Generator | None = None) -> tuple[int, int]:
    """(seed, draw number) from the generator, the default one for None."""
    return (default_generator if generator is None else generator).next_draw()


def manual_seed(seed: int) -> Generator:
    """Seed the default generator, for all devices: a seed gives the same bits on each."""
    return default_generator.manual_seed(seed)


def seed() -> int:
    """Seed the default generator from the operating system; returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The default generator's seed."""
    return default_generator.initial_seed()


def get_rng_state() -> tuple[int, int]:
    """The default generator's state."""
    return default_generator.get_state()


def set_rng_state(state: tuple[int, int]) -> None:
    """Put the default generator back into a state."""
    default_generator.set_state(state)
