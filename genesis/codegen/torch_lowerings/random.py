"""Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011) in numpy, exactly.

A counter of four 32-bit words goes through ten rounds. A round multiplies words 0 and 2 by
constants to 64 bits and mixes the halves with the other words and the key:

    c0, c1, c2, c3 = high(M1·c2) ^ c1 ^ k0, low(M1·c2), high(M0·c0) ^ c3 ^ k1, low(M0·c0)

Words are kept in 64-bit lanes. Only words that are multiplied must have clean upper halves, so
only they are masked. Blocks are small enough that all of this stays in the cache.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from genesis.codegen.torch_lowerings.table import Lowering

_M0, _M1 = 0xD2511F53, 0xCD9E8D57
_W0, _W1 = 0x9E3779B9, 0xBB67AE85
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_BLOCK = 16384  # six buffers of 128 KiB

Key = tuple[int, int]


def _keys(seed: int) -> list[Key]:
    low, high = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    return [(low + i * _W0 & 0xFFFFFFFF, high + i * _W1 & 0xFFFFFFFF) for i in range(10)]


def philox(out: np.ndarray, seed: int, draw: int, word: int) -> None:
    """Write word `word` of Philox(key=seed, counter=(i, draw)) to out[i], a flat uint32 array.

    >>> bits = np.empty(2, np.uint32)
    >>> philox(bits, seed=0, draw=0, word=0)
    >>> hex(bits[0])
    '0x6627e8d5'
    """
    keys = _keys(seed)
    words = np.empty((5, min(_BLOCK, out.size)), np.uint64)
    steps = np.arange(words.shape[1], dtype=np.uint64)
    for start in range(0, out.size, _BLOCK):
        count = min(_BLOCK, out.size - start)
        block = words[:, :count]
        np.add(steps[:count], np.uint64(start & 0xFFFFFFFF), out=block[0])  # _BLOCK divides 2^32: no carry
        found = _rounds(list(block), start >> 32, draw, keys)[word]
        np.copyto(out[start:start + count], found, casting="unsafe")  # keeps the low 32 bits


def _rounds(buffers: list[np.ndarray], index_high: int, draw: int, keys: list[Key]) -> tuple[np.ndarray, ...]:
    """The four words after ten rounds; buffers[0] holds word 0 of the counters, the rest is scratch."""
    c0, c1, c2, c3, spare = buffers
    c2.fill(draw & 0xFFFFFFFF)
    c1.fill(index_high)
    c3.fill(draw >> 32 & 0xFFFFFFFF)
    for k0, k1 in keys:
        p1 = np.multiply(c2, np.uint64(_M1), out=spare)
        p0 = np.multiply(c0, np.uint64(_M0), out=c0)
        new_c0 = _mix(p1, c1, k0, out=c2)
        new_c2 = _mix(p0, c3, k1, out=c1)
        c0, c1, c2, c3, spare = new_c0, p1, new_c2, p0, c3
    return c0, c1, c2, c3


def _mix(product: np.ndarray, word: np.ndarray, key: int, out: np.ndarray) -> np.ndarray:
    """high(product) ^ word ^ key with a clean upper half."""
    np.right_shift(product, _HALF, out=out)
    np.bitwise_xor(out, word, out=out)
    np.bitwise_xor(out, np.uint64(key), out=out)
    return np.bitwise_and(out, _LOW, out=out)


def _random_bits(outs: tuple[Tensor, ...], seed: Any, draw: Any, shape: tuple[int, ...], word: int,
                 device: Any) -> None:
    philox(outs[0].numpy().reshape(-1).view(np.uint32), int(seed), int(draw), word)


RANDOM: dict[str, Lowering] = {"random_bits": Lowering(_random_bits)}
