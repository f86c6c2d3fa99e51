"""Device checks: a kernel notes an index that is out of bounds, and whoever waits for the GPU raises the error.

Each GPU has one word in pinned host memory that its kernels can write to. It is 0 until a check fails; a check that
finds it 0 puts its own number and the index there, so the first is kept. Nobody else touches it: a program whose
indices are right pays a comparison for each index, and a look at host memory where it waits anyway.
"""

from __future__ import annotations

import ctypes
import linecache
import re
from typing import Final

from genesis.runtime.collectives import DistBackendError
from genesis.runtime.cuda.cuda_python_driver import cached_per_driver, driver
from genesis.runtime.ledger import ledger
from genesis.runtime.plan import Check

INDEX_BITS: Final = 43
"""Bits of the error word that hold the index + 2^42 (kernels limit it to that range); the bits above hold the check."""

MOST_CHECKS: Final = 1 << (63 - INDEX_BITS)
"""Checks that can be told apart in one process: as many as the bits above the index can number."""


@cached_per_driver
def word_of(device: int) -> int:
    """The address of the GPU's error word, the same for its kernels and for the host."""
    gpu = driver()
    gpu.use(device)
    return gpu.alloc_host(8)


_checks: Final[dict[Check, int]] = {}
_by_number: Final[list[Check]] = []


def failure_word(check: Check) -> int:
    """The error word's value when this check fails for index 0: a kernel adds the index to it."""
    number = _checks.get(check)
    if number is None:
        number = _checks[check] = min(len(_by_number) + 1, MOST_CHECKS - 1)
        _by_number.append(check)
    return (number << INDEX_BITS) + (1 << (INDEX_BITS - 1))


def raise_failed(device: int) -> None:
    """Raise the error of the first check that failed on a GPU since the last call. The work that may fail is done.

    Raises:
        IndexError: with the op, the index, the dimension and the user's line. The next call has nothing to raise.
        DistBackendError: a collective of the GPU's was aborted: values are wrong from then on.
    """
    if ledger.aborted is not None:
        raise DistBackendError(ledger.aborted)
    word = ctypes.c_int64.from_address(word_of(device))
    value = word.value
    if value:
        word.value = 0
        check = _by_number[(value >> INDEX_BITS) - 1]
        raise IndexError(_message(check, (value & (1 << INDEX_BITS) - 1) - (1 << (INDEX_BITS - 1))))


def _message(check: Check, index: int) -> str:
    lines = [f"{check.name}: index {index} is out of bounds for dimension {check.dim} with size {check.size}"]
    found = re.match(r"(.+):(\d+)", check.line)
    if found is not None:
        text = linecache.getline(found[1], int(found[2])).strip()
        lines.append(f"  at {found[0]}: {text}" if text else f"  at {check.line}")
    lines.append("  found on the GPU, which went on with the nearest row; raised by the first call that waited for it")
    return "\n".join(lines)
