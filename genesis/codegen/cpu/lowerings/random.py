"""Random ops on the CPU: blocks of Philox's words, turned into numbers while they are in the cache."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.philox import LOW, blocks, words_in_pairs
from genesis.codegen.cpu.lowerings.table import Lowering
from genesis.ir.ops.random import DIGITS
from genesis.ir.types import DType, float64

Outs = tuple[Tensor, ...]

FEW: Final = 512
"""Counters up to which calls take longer than what they do: their words go in pairs, in half of the calls. Of more than
some thousand, rows of two neighbours would be written one by one."""


def fill(out: Tensor, seed: int, draw: int, words: int, write: Callable[..., None]) -> None:
    """Call write(part, *its words) for parts of a flat tensor whose elements take `words` words each.

    A counter's four words serve 4 / words neighbours, so a part is every second or fourth element of a block; of few
    elements it is two of these, as a matrix of two rows.
    """
    sharing = 4 // words
    if out.numel() <= FEW * sharing and words < 4:
        _fill_few(out, int(seed), int(draw), words, write)
        return

    def use(start: int, found: tuple[Tensor, ...]) -> None:
        own = out[start * sharing:(start + found[0].numel()) * sharing]
        for i in range(sharing):
            part = own[i::sharing]
            write(part, *[word[:part.numel()] for word in found[i * words:(i + 1) * words]])

    blocks(-(-out.numel() // sharing), int(seed), int(draw), use)


def _fill_few(out: Tensor, seed: int, draw: int, words: int, write: Callable[..., None]) -> None:
    sharing = 4 // words
    counters = -(-out.numel() // sharing)
    even, odd = words_in_pairs(counters, seed, draw)
    whole = out if out.numel() == counters * sharing else out.new_empty(counters * sharing)
    if words == 1:
        neighbours = whole.view(counters, 2, 2)
        write(neighbours[..., 0].T, even)
        write(neighbours[..., 1].T, odd)
    else:
        write(whole.view(counters, 2).T, even, odd)
    if whole is not out:
        out.copy_(whole[:out.numel()])


def philox(out: np.ndarray, seed: int, draw: int, word: int, words: int = 1) -> None:
    """Write number i * words + word of the stream to out[i], a flat uint32 array.

    Number n of a stream is word n % 4 of Philox(key=seed, counter=(n // 4, draw)).

    >>> bits = np.empty(2, np.uint32)
    >>> philox(bits, seed=0, draw=0, word=0)
    >>> hex(bits[0])
    '0x6627e8d5'
    >>> hex(bits[1])
    '0xe169c58d'
    """
    def write(part: Tensor, *found: Tensor) -> None:
        part.copy_(found[word])  # keeps the low 32 bits
    fill(torch.from_numpy(out.view(np.int32)), seed, draw, words, write)


def _random_bits(outs: Outs, seed: Any, draw: Any, shape: tuple[int, ...], word: int, words: int,
                 device: Any) -> None:
    philox(outs[0].numpy().reshape(-1).view(np.uint32), int(seed), int(draw), word, words)


def _uniform(outs: Outs, seed: Any, draw: Any, shape: tuple[int, ...], dtype: DType, device: Any) -> None:
    if dtype is float64:
        def write(part: Tensor, high: Tensor, low: Tensor) -> None:
            wide = high.bitwise_right_shift_(5).double().mul_(2.0**26).add_(low.bitwise_right_shift_(6))
            part.copy_(wide.mul_(2.0**-53))
    else:
        digits = DIGITS[dtype]

        def write(part: Tensor, bits: Tensor) -> None:  # type: ignore[misc]
            part.copy_(bits.bitwise_right_shift_(32 - digits)).mul_(2.0**-digits)
    fill(outs[0].view(-1), seed, draw, 2 if dtype is float64 else 1, write)


def _normal(outs: Outs, seed: Any, draw: Any, shape: tuple[int, ...], dtype: DType, device: Any) -> None:
    computed_in = torch.float64 if dtype is float64 else torch.float32

    def write(part: Tensor, first: Tensor, second: Tensor) -> None:
        radius = first.bitwise_right_shift_(8).to(computed_in).add_(0.5).mul_(2.0**-24).log_().mul_(-2.0).sqrt_()
        angle = second.bitwise_right_shift_(8).to(computed_in).mul_(2 * math.pi * 2.0**-24)
        part.copy_(radius.mul_(angle.cos_()))
    fill(outs[0].view(-1), seed, draw, 2, write)


def _integers(outs: Outs, seed: Any, draw: Any, low: Any, high: Any, shape: tuple[int, ...], dtype: DType,
              device: Any) -> None:
    def write(part: Tensor, first: Tensor, second: Tensor) -> None:
        wide = first.bitwise_and_(LOW >> 1).bitwise_left_shift_(32).bitwise_or_(second)
        part.copy_(wide.fmod_(int(high) - int(low)).add_(int(low)))
    fill(outs[0].view(-1), seed, draw, 2, write)


RANDOM: dict[str, Lowering] = {
    "random_bits": Lowering(_random_bits),
    "uniform": Lowering(_uniform),
    "normal": Lowering(_normal),
    "integers": Lowering(_integers),
}
