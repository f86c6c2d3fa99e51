"""Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011) with numpy's 64-bit integers, exactly.

A counter of four 32-bit words goes through ten rounds. A round multiplies words 0 and 2 by
constants to 64 bits and mixes the halves with the other words and the key:

    c0, c1, c2, c3 = high(M1·c2) ^ c1 ^ k0, low(M1·c2), high(M0·c0) ^ c3 ^ k1, low(M0·c0)

Words are kept in 64-bit lanes. Only words that are multiplied must have clean upper halves, so only they are
masked. Words 0 and 2 are one array, and words 3 and 1 another, so that a round is five calls: of a small tensor these
take all the time, and numpy's take half of torch's. Blocks are small enough to stay in the cache, and several are
computed at once, each in a thread of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

_MULTIPLIERS: Final = np.array([[0xD2511F53], [0xCD9E8D57]], np.uint64)
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
LOW: Final = 0xFFFFFFFF  # the low 32 bits of a word
BLOCK: Final = 32768  # counters: three buffers of 512 KiB; torch's own threads would start above this

_HALF: Final = np.uint64(32)
_MASK: Final = np.uint64(LOW)

Words = tuple[Tensor, Tensor, Tensor, Tensor]

_pool: dict[int, ThreadPoolExecutor] = {}
"""The threads, by the process that made them: a forked one has none of its parent's."""


def blocks(counters: int, seed: int, draw: int, use: Callable[[int, Words], None]) -> None:
    """Call use(start, words) for blocks of counters (start, ...), draw; from several threads when there are several.

    The words are 32-bit numbers in int64 tensors, in no memory but theirs until the call returns.
    """
    keys = _keys(seed)
    starts = range(0, counters, BLOCK)
    workers = min(len(starts), torch.get_num_threads())

    def run(own: Any) -> None:
        for start in own:
            even, odd = _rounds(min(BLOCK, counters - start), start, draw, keys)
            use(start, tuple([torch.from_numpy(word.view(np.int64))
                              for word in (even[0], odd[0], even[1], odd[1])]))

    if workers < 2:
        run(starts)
    else:
        list(_threads().map(run, [starts[i::workers] for i in range(workers)]))


def words_in_pairs(counters: int, seed: int, draw: int) -> tuple[Tensor, Tensor]:
    """Words 0 and 2 of counters (0, ...), draw, and words 1 and 3, each pair as a tensor (2, counters): for few."""
    even, odd = _rounds(counters, 0, draw, _keys(seed))
    return torch.from_numpy(even.view(np.int64)), torch.from_numpy(odd.view(np.int64))


def _threads() -> ThreadPoolExecutor:
    process = os.getpid()
    if process not in _pool:
        _pool.clear()
        _pool[process] = ThreadPoolExecutor(torch.get_num_threads(), "genesis-philox")
    return _pool[process]


@lru_cache(64)
def _keys(seed: int) -> tuple[np.ndarray, ...]:
    """The keys of the rounds, each for words 0 and 2."""
    low, high = seed & LOW, seed >> 32 & LOW
    return tuple([np.array([[low + i * _W0 & LOW], [high + i * _W1 & LOW]], np.uint64) for i in range(10)])


def _rounds(count: int, start: int, draw: int, keys: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The words after ten rounds of counters from `start` on: 0 and 2, and 1 and 3."""
    even, odd, product = np.empty((3, 2, count), np.uint64)
    first = start & LOW
    even[0] = np.arange(first, first + count, dtype=np.uint64)  # BLOCK divides 2^32: no carry
    even[1] = draw & LOW
    odd[1] = start >> 32
    odd[0] = draw >> 32 & LOW
    for key in keys:
        np.multiply(even, _MULTIPLIERS, product)
        np.right_shift(product[::-1], _HALF, even)
        np.bitwise_xor(even, odd[::-1], even)
        np.bitwise_xor(even, key, even)
        np.bitwise_and(even, _MASK, even)
        odd, product = product, odd
    np.bitwise_and(odd[::-1], _MASK, product)
    return even, product
