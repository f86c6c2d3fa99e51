"""Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011).

A counter is (a quarter, half or all of an element's logical index, the draw's number), the key the seed. So
the bits depend on nothing else: not on the device, not on what was fused, not on who recomputes them. A counter
gives four words: elements that take one word share it with their neighbours.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.leaves import zeros_like
from genesis.ir.ops.movement import slice as part_of
from genesis.ir.ops.pointwise import bitwise_and, cast, cos, ge, left_shift, log, remainder, right_shift, sqrt, where_
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.types import (
    Device,
    DType,
    TensorType,
    bfloat16,
    cpu,
    float16,
    float32,
    float64,
    int32,
    int64,
    tensor_type,
)

if TYPE_CHECKING:
    from genesis.ir.ops.entry import Attributes


def _bits_type(seed: TensorType, draw: TensorType, shape: tuple[int, ...], word: int, words: int,
               device: Device) -> TensorType:
    if words not in (1, 2, 4) or not 0 <= word < words:
        raise RuntimeError(f"an element takes 1, 2 or 4 of Philox's words and this is one of them, not word {word} of "
                           f"{words}")
    return tensor_type(shape, int32, device)


random_bits = Op("random_bits", "random", _bits_type, weight=16, attrs=("shape", "word", "words", "device"),
                 defaults={"words": 1, "device": cpu},
                 doc="32 random bits an element: of the `words` words that it takes, word `word`. Element i's words "
                     "are numbers i * words and on of the draw's stream; number n is word n % 4 of Philox4x32-10 with "
                     "key = seed (64 bits, low word first), counter = (n // 4 low, n // 4 high, draw low, draw high).")


def _drawn(seed: TensorType, draw: TensorType, shape: tuple[int, ...], dtype: DType, device: Device) -> TensorType:
    return tensor_type(shape, dtype, device)


def _top24(bits: Node) -> Node:
    """The upper 24 bits as an integer ≥ 0."""
    return bitwise_and(right_shift(bits, literal(8)), literal(0xFFFFFF))


def _two_words(seed: Node, draw: Node, shape: tuple[int, ...], device: Device) -> tuple[Node, Node]:
    first, second = (random_bits(seed, draw, shape=shape, word=word, words=2, device=device) for word in (0, 1))
    return first, second


DIGITS = {float16: 11, bfloat16: 8, float32: 24}
"""Random bits in a uniform number: as many as the dtype holds, so that none rounds up to 1."""


def _uniform(seed: Node, draw: Node, shape: tuple[int, ...], dtype: DType, device: Device) -> Node:
    if dtype is not float64:
        bits = random_bits(seed, draw, shape=shape, word=0, device=device)
        digits = DIGITS[dtype]
        top = bitwise_and(right_shift(bits, literal(32 - digits)), literal(2**digits - 1))
        return cast(cast(top, dtype=float32) * 2.0**-digits, dtype=dtype)
    high, low = _two_words(seed, draw, shape, device)
    high53 = cast(bitwise_and(right_shift(high, literal(5)), literal(0x7FFFFFF)), dtype=float64) * 2.0**26
    return (high53 + cast(bitwise_and(right_shift(low, literal(6)), literal(0x3FFFFFF)), dtype=float64)) * 2.0**-53


_DRAW: Attributes = {"attrs": ("shape", "dtype", "device"), "defaults": {"device": cpu}}

uniform = Op("uniform", "composite", _drawn, **_DRAW, decompose=_uniform, differentiable=False,
             doc="Uniform in [0, 1): 24 bits (float64: 53, float16: 11, bfloat16: 8).")


def _normal(seed: Node, draw: Node, shape: tuple[int, ...], dtype: DType, device: Device) -> Node:
    computed_in = float64 if dtype is float64 else float32
    first, second = (cast(_top24(bits), dtype=computed_in) for bits in _two_words(seed, draw, shape, device))
    radius = sqrt(log((first + 0.5) * 2.0**-24) * -2.0)
    return cast(radius * cos(second * (2 * math.pi * 2.0**-24)), dtype=dtype)


normal = Op("normal", "composite", _drawn, **_DRAW, decompose=_normal, differentiable=False, ulp=4,
            doc="Standard normal by Box and Muller's transform of words 0 and 1.")


def _integers_type(seed: TensorType, draw: TensorType, low: TensorType, high: TensorType, shape: tuple[int, ...],
                   dtype: DType, device: Device) -> TensorType:
    return tensor_type(shape, dtype, device)


def _integers(seed: Node, draw: Node, low: Node, high: Node, shape: tuple[int, ...], dtype: DType,
              device: Device) -> Node:
    words = [cast(bits, dtype=int64) for bits in _two_words(seed, draw, shape, device)]
    high31, low32 = bitwise_and(words[0], literal(0x7FFFFFFF)), bitwise_and(words[1], literal(0xFFFFFFFF))
    word63 = left_shift(high31, literal(32)) + low32
    return cast(remainder(word63, high - low) + low, dtype=dtype)


integers = Op("integers", "composite", _integers_type, attrs=("shape", "dtype", "device"), defaults={"device": cpu},
              decompose=_integers, differentiable=False,
              doc="Integers in [low, high): 63 random bits modulo the range.")


def _dropout(x: Node, threshold: Node, scale: Node, seed: Node, draw: Node) -> Node:
    return _dropped(x, threshold, scale, random_bits(seed, draw, shape=x.type.shape, word=0, device=x.type.device))


def _dropped(x: Node, threshold: Node, scale: Node, bits: Node) -> Node:
    values = upcast(x)
    factor = where_(ge(bits, threshold), scale, zeros_like(values))  # chosen after the product it is slower: the
    return downcast(values * factor, x)  # compiler then takes pairs of 16-bit results apart again


dropout: Op = Op("dropout", "composite", lambda x, threshold, scale, seed, draw: x, decompose=_dropout,
                 doc="x · scale where 32 random bits, as a signed integer, are ≥ threshold, else x · 0. With a "
                     "threshold of p · 2^32 - 2^31 and a scale of 1/(1 - p) an element is 0 with probability p and the "
                     "mean stays. Its gradient draws the same mask again.",
                 vjp=lambda g, x, threshold, scale, seed, draw, y: (
                     dropout(g, threshold, scale, seed, draw), *[None] * 4))


def _part_type(x: TensorType, *numbers: TensorType, whole: tuple[int, ...], starts: tuple[int, ...]) -> TensorType:
    if not len(whole) == len(starts) == x.ndim:
        raise RuntimeError(f"a part of shape {x.shape} cannot begin at {starts} of a whole of shape {whole}")
    return x


def _dropout_of_part(x: Node, threshold: Node, scale: Node, seed: Node, draw: Node, whole: tuple[int, ...],
                     starts: tuple[int, ...]) -> Node:
    bits = random_bits(seed, draw, shape=whole, word=0, device=x.type.device)
    stops = tuple(start + size for start, size in zip(starts, x.type.shape, strict=True))
    return _dropped(x, threshold, scale, part_of(bits, starts=starts, stops=stops, steps=(1,) * len(starts)))


dropout_of_part: Op = Op(
    "dropout_of_part", "composite", _part_type, attrs=("whole", "starts"), decompose=_dropout_of_part,
    doc="dropout of what begins at `starts` in a tensor of shape `whole`: what dropout of the whole gives there.",
    vjp=lambda g, x, threshold, scale, seed, draw, y, whole, starts: (
        dropout_of_part(g, threshold, scale, seed, draw, whole=whole, starts=starts), *[None] * 4))
