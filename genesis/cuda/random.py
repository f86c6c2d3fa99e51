"""Random state, under torch.cuda's names.

One generator serves the CPU and all GPUs: a draw has the same bits on each. So these act on the same state as
`genesis.manual_seed` and its kin, and `device` only has to be a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genesis import random
from genesis.cuda.devices import AnyDevice, device_count


def manual_seed(seed: int) -> None:
    """Seed the generator."""
    random.manual_seed(seed)


def manual_seed_all(seed: int) -> None:
    """Seed the generator, which serves all GPUs."""
    random.manual_seed(seed)


def seed() -> None:
    """Seed the generator from the operating system."""
    random.seed()


def seed_all() -> None:
    """Seed the generator, which serves all GPUs, from the operating system."""
    random.seed()


def initial_seed() -> int:
    """The generator's seed."""
    return random.initial_seed()


def get_rng_state(device: AnyDevice = "cuda") -> Any:
    """The generator's state, for `set_rng_state`."""
    return random.get_rng_state()


def get_rng_state_all() -> list[Any]:
    """The generator's state, once for each GPU."""
    return [random.get_rng_state() for _ in range(device_count())]


def set_rng_state(new_state: Any, device: AnyDevice = "cuda") -> None:
    """Put the generator back into a state."""
    random.set_rng_state(new_state)


def set_rng_state_all(new_states: Sequence[Any]) -> None:
    """Put the generator back into the state of `get_rng_state_all`."""
    for state in new_states:
        random.set_rng_state(state)
