"""Random state: generators of random numbers, each a seed and a count of draws.

Each op that draws takes the next count when it is recorded, so its numbers do not depend on when, where or how it runs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.frontend import session
from genesis.frontend.at_once import Change, Expected
from genesis.frontend.session import live_numbers
from genesis.frontend.state import state
from genesis.frontend.threads import unlocked_after_fork
from genesis.ir.errors import failure
from genesis.ir.node import Node
from genesis.runtime.contexts import Switched, Temporary

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["Generator", "default_generator", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]

_DEFAULT_SEED = 67280421310721
"""The seed of a generator that was given none; torch's."""

_STATE_BYTES = 16
"""Bytes of a state: the seed and the number of draws, 8 bytes each."""


class Generator:
    """A source of draws. Any thread may use it: each draw gets a number of its own.

    Args:
        device: where its draws will be used, for `device` to say; the bits are the same everywhere.

    >>> g = Generator().manual_seed(7)
    >>> g.initial_seed(), g.next_draw(), g.next_draw()
    (7, (7, 0), (7, 1))
    """

    def __init__(self, device: Any = "cpu"):
        from genesis.ir.types import Device
        self.device = device if isinstance(device, Device) else Device(device)
        self._lock = threading.RLock()  # a signal handler may draw while this thread does
        unlocked_after_fork(self, "_lock")
        self._seed, self._draws = _DEFAULT_SEED, 0

    def manual_seed(self, seed: int) -> Generator:
        """Start over with this seed of 64 bits; a negative one counts from 2^64. Returns itself.

        Raises:
            ValueError: the seed has more bits.
        """
        _refuse("a generator was seeded")
        seed = int(seed)
        if not -2**63 <= seed < 2**64:
            raise failure("manual_seed", f"the seed {seed} is not in [-2^63, 2^64)", error=ValueError)
        with self._lock:
            self._seed, self._draws = seed % 2**64, 0
        return self

    def seed(self) -> int:
        """Start over with a seed from the operating system; returns it."""
        self.manual_seed(int.from_bytes(os.urandom(8), "little"))
        return self._seed

    def initial_seed(self) -> int:
        """The seed, from 0 to 2^64 - 1."""
        _refuse("a generator's seed was read")
        return self._seed

    def get_state(self) -> Tensor:
        """The seed and the number of draws so far as 16 bytes: a uint8 tensor on the CPU, for `set_state`."""
        _refuse("a generator's state was read")
        import numpy as np

        from genesis.frontend.host_values import from_host
        from genesis.ir.types import cpu
        with self._lock:
            return from_host(np.array([self._seed, self._draws], "<u8").view(np.uint8), cpu)

    def set_state(self, new_state: Tensor) -> Generator:
        """Go back to a state that `get_state` gave. Returns itself.

        Raises:
            TypeError: it is no uint8 tensor.
            RuntimeError: it has another size.
        """
        _refuse("a generator was set")
        from genesis.ir.types import uint8
        kind = getattr(new_state, "spec", None)
        if kind is None or getattr(kind, "dtype", None) is not uint8:
            raise failure("set_state", "expected a genesis.uint8 tensor", [("new_state", new_state)],
                          hint="pass what get_state returned", error=TypeError)
        if kind.shape != (_STATE_BYTES,):
            raise failure("set_state", f"RNG state is of the wrong size: {kind.numel} bytes, not {_STATE_BYTES}",
                          [("new_state", new_state)], hint="pass what get_state returned")
        import numpy as np
        self.stand_at(*(int(x) for x in np.array(new_state.tolist(), np.uint8).view("<u8")))
        return self

    def clone_state(self) -> Generator:
        """A new generator that will give the same draws.

        >>> g = Generator().manual_seed(7)
        >>> g.next_draw(), g.clone_state().next_draw() == g.next_draw()
        ((7, 0), True)
        """
        _refuse("a generator was copied")
        copy = Generator(self.device)
        with self._lock:
            copy._seed, copy._draws = self._seed, self._draws
        return copy

    def next_draw(self) -> tuple[int, int]:
        """The (seed, draw number) of one op, the seed as a signed integer; the next call returns the next number."""
        with self._lock:
            draw = self._draws
            self._draws = draw + 1
            return self._seed if self._seed < 2**63 else self._seed - 2**64, draw

    def standing_at(self) -> tuple[int, int]:
        """The seed, and how many draws it has given."""
        with self._lock:
            return self._seed, self._draws

    def stand_at(self, seed: int, draws: int) -> None:
        """Go to this draw of a seed: what comes next is that."""
        _refuse("a generator was set")
        with self._lock:
            self._seed, self._draws = seed % 2**64, draws

    def standing(self) -> Temporary:
        """A context after which the generator stands where it stood before."""
        return Temporary(lambda: Switched((), self.moved_to(self)))

    def ahead(self, moved: dict[Any, Any]) -> tuple[tuple[int, int], list[Change], list[Expected]]:
        """What `next_draw` gives next; see `session.ahead_of`."""
        with self._lock:
            seed, draws = self._seed, self._draws
        draw = moved.get(self, draws)
        moved[self] = draw + 1
        return ((seed if seed < 2**63 else seed - 2**64, draw), [(setattr, self, "_draws", draw + 1)],
                [((getattr, self, "_draws"), draws), ((getattr, self, "_seed"), seed)])

    def moved_to(self, other: Generator) -> list[Change]:
        """The changes that make it stand where the other one does; a caller makes them with its own."""
        return [(setattr, self, "_seed", other._seed), (setattr, self, "_draws", other._draws)]

    def __reduce__(self) -> tuple:
        return _restored, (str(self.device), self._seed, self._draws)


def _restored(device: str, seed: int, draws: int) -> Generator:
    generator = Generator(device)
    generator._seed, generator._draws = seed, draws
    return generator


def _refuse(reason: str) -> None:
    """Refuse to compile a function that does this: it is recorded at each call."""
    if state.session is not None and (running := session.active()) is not None:
        running.refuse(reason)


class _Draw:
    """The numbers of the next draw, for `live_numbers`."""

    __slots__ = ("ahead", "generator")

    def __init__(self, generator: Generator):
        self.generator, self.ahead = generator, generator.ahead

    def __call__(self) -> tuple[int, int]:
        return self.generator.next_draw()


default_generator = Generator()
"""The generator of draws without a `generator=`, on every device."""


def draw_numbers(generator: Generator | None = None) -> list[Node]:
    """The operands (seed, draw number) of one op that draws; a compiled function gets new ones at each call."""
    return live_numbers(_Draw(default_generator if generator is None else generator))


def next_draw(generator: Generator | None = None) -> tuple[int, int]:
    """The next (seed, draw number) of the generator, or of the default one for None."""
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


def get_rng_state() -> Tensor:
    """The default generator's state, a uint8 tensor."""
    return default_generator.get_state()


def set_rng_state(new_state: Tensor) -> None:
    """Put the default generator back into a state.

    >>> import genesis
    >>> state = genesis.get_rng_state()
    >>> first = genesis.rand(3).tolist()
    >>> genesis.set_rng_state(state)
    >>> genesis.rand(3).tolist() == first
    True
    """
    default_generator.set_state(new_state)


def fork_rng(devices: Sequence[Any] | None = None, enabled: bool = True, *,
             device_type: str | None = None) -> Temporary:
    """A context after which the default generator is as it was before. One generator serves all devices, so `devices`
    and `device_type` are ignored; `enabled=False` does nothing.

    >>> import genesis
    >>> state = genesis.get_rng_state()
    >>> with genesis.random.fork_rng():
    ...     x = genesis.rand(3)
    >>> genesis.equal(genesis.get_rng_state(), state)
    True
    """
    if not enabled:
        return Temporary(lambda: Switched((), ()))

    def look() -> Switched:
        _refuse("a generator was set")
        return Switched((), default_generator.moved_to(default_generator))
    return Temporary(look)
