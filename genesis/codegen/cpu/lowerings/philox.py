"""Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011) with torch's 64-bit integers, exactly.

A counter of four 32-bit words goes through ten rounds. A round multiplies words 0 and 2 by
constants to 64 bits and mixes the halves with the other words and the key:

    c0, c1, c2, c3 = high(M1·c2) ^ c1 ^ k0, low(M1·c2), high(M0·c0) ^ c3 ^ k1, low(M0·c0)

Words are kept in 64-bit lanes. Only words that are multiplied must have clean upper halves, so only they are
masked. Blocks are small enough to stay in the cache, and several are computed at once, each in a thread of its own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import torch
from torch import Tensor

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
LOW: Final = 0xFFFFFFFF
BLOCK: Final = 32768  # counters: six buffers of 256 KiB; torch's own threads would start above this

Words = tuple[Tensor, Tensor, Tensor, Tensor]
Key = tuple[int, int]

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
        buffers = torch.empty((5, min(BLOCK, counters)), dtype=torch.int64)
        for start in own:
            count = min(BLOCK, counters - start)
            words = _rounds([buffer[:count] for buffer in buffers], start, draw, keys)
            use(start, tuple([word.bitwise_and_(LOW) for word in words]))  # type: ignore[arg-type]

    if workers < 2:
        run(starts)
    else:
        list(_threads().map(run, [starts[i::workers] for i in range(workers)]))


def _threads() -> ThreadPoolExecutor:
    process = os.getpid()
    if process not in _pool:
        _pool.clear()
        _pool[process] = ThreadPoolExecutor(torch.get_num_threads(), "genesis-philox")
    return _pool[process]


def _keys(seed: int) -> list[Key]:
    low, high = seed & LOW, seed >> 32 & LOW
    return [(low + i * _W0 & LOW, high + i * _W1 & LOW) for i in range(10)]


def _rounds(buffers: list[Tensor], start: int, draw: int, keys: list[Key]) -> tuple[Tensor, ...]:
    """The four words after ten rounds, words 1 and 3 with rubbish in their upper halves."""
    c0, c1, c2, c3, spare = buffers
    torch.arange(start & LOW, (start & LOW) + c0.numel(), out=c0)  # BLOCK divides 2^32: no carry
    c1.fill_(start >> 32)
    c2.fill_(draw & LOW)
    c3.fill_(draw >> 32 & LOW)
    for k0, k1 in keys:
        p1 = torch.mul(c2, _M1, out=spare)
        p0 = torch.mul(c0, _M0, out=c0)
        new_c0 = torch.bitwise_right_shift(p1, 32, out=c2).bitwise_xor_(c1).bitwise_xor_(k0).bitwise_and_(LOW)
        new_c2 = torch.bitwise_right_shift(p0, 32, out=c1).bitwise_xor_(c3).bitwise_xor_(k1).bitwise_and_(LOW)
        c0, c1, c2, c3, spare = new_c0, p1, new_c2, p0, c3
    return c0, c1, c2, c3
