"""How large a bucket of gradients is where the user does not say: as large as costs least.

Each reduction takes multiprocessors from products while it waits for its turn on all GPUs, so few are good; and the
last one has nothing of backward beside it, so it is to be small. What one more costs is a time, and how many bytes are
reduced in it depends on the GPUs' bus: on PCIe buckets are a quarter of those on NVLink.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt
from typing import Final

from genesis.frontend.engine_protocol import engine
from genesis.ir.types import Device

ONE_MORE: Final = 1e-4
"""Seconds that one more reduction beside backward costs (four H200s, 2026-11)."""

HOST_RATE: Final = 2e10
"""Bytes a second between processes of the CPU, where collectives wait and nothing hides them: buckets matter little."""


def bus_rate(devices: Iterable[Device]) -> float:
    """Bytes a second that a collective moves between this process' GPU, the slowest of these, and others of its host.

    >>> from genesis.ir.types import cpu
    >>> bus_rate([cpu]) / 1e9
    20.0
    """
    models = [getattr(engine.backend_of(device), "gpu", None) for device in dict.fromkeys(devices)]
    return min((HOST_RATE if model is None else model.bus_rate for model in models), default=HOST_RATE)


def cap_for(total: int, rate: float, ranks: int) -> int:
    """Bytes of a bucket: n buckets of so many bytes together cost n times what one more reduction does, and the n-th
    part of the whole, which is reduced last. That is least where both are equal.

    Args:
        total: bytes of all gradients.
        rate: `bus_rate`, the least of all ranks: all have the same buckets.
        ranks: how many there are. A reduction moves 2 (n - 1) / n times its bytes over the bus.

    >>> [cap_for(mebibytes << 20, 3.6e11, 4) >> 20 for mebibytes in (1, 24, 100, 500, 28000)]  # H200s
    [4, 23, 47, 106, 800]
    >>> cap_for(500 << 20, 3.6e11, 2) >> 20, cap_for(500 << 20, 2e10, 4) >> 20
    (131, 25)
    """
    moved = 2 * (ranks - 1) / ranks if ranks > 1 else 1.0
    return max(isqrt(int(total * ONE_MORE * rate / moved)), 1)
