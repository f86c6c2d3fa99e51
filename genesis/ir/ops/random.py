"""Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011).

An element's counter is (its logical index, the draw's number), its key the seed. So the bits
depend on nothing else: not on the device, not on what was fused, not on who recomputes them.
"""

from __future__ import annotations

import math
from typing import Any

from genesis.ir.node import Node, Op, literal
from genesis.ir.ops.pointwise import bitwise_and, cast, cos, ge, left_shift, log, remainder, right_shift, sqrt, where_
from genesis.ir.types import Device, DType, TensorType, cpu, float32, float64, int32, int64, tensor_type


def _bits_type(seed: TensorType, draw: TensorType, shape: tuple[int, ...], word: int, device: Device) -> TensorType:
    if not 0 <= word < 4:
        raise RuntimeError(f"Philox gives words 0 to 3, not {word}")
    return tensor_type(shape, int32, device)


random_bits = Op("random_bits", "random", _bits_type, attrs=("shape", "word", "device"), defaults={"device": cpu},
                 doc="32 random bits an element: word `word` of Philox4x32-10 with key = seed (64 bits, low word "
                     "first) and counter = (index low, index high, draw low, draw high).")


def _drawn(seed: TensorType, draw: TensorType, shape: tuple[int, ...], dtype: DType, device: Device) -> TensorType:
    return tensor_type(shape, dtype, device)


def _top24(bits: Node) -> Node:
    """The upper 24 bits as an integer ≥ 0."""
    return bitwise_and(right_shift(bits, literal(8)), literal(0xFFFFFF))


def _uniform(seed: Node, draw: Node, shape: tuple[int, ...], dtype: DType, device: Device) -> Node:
    bits = random_bits(seed, draw, shape=shape, word=0, device=device)
    if dtype is not float64:
        return cast(cast(_top24(bits), dtype=float32) * 2.0**-24, dtype=dtype)
    low = random_bits(seed, draw, shape=shape, word=1, device=device)
    high53 = cast(bitwise_and(right_shift(bits, literal(5)), literal(0x7FFFFFF)), dtype=float64) * 2.0**26
    return (high53 + cast(bitwise_and(right_shift(low, literal(6)), literal(0x3FFFFFF)), dtype=float64)) * 2.0**-53


_DRAW: dict[str, Any] = {"attrs": ("shape", "dtype", "device"), "defaults": {"device": cpu}}

uniform = Op("uniform", "composite", _drawn, **_DRAW, decompose=_uniform, differentiable=False,
             doc="Uniform in [0, 1): 24 bits (float64: 53).")


def _normal(seed: Node, draw: Node, shape: tuple[int, ...], dtype: DType, device: Device) -> Node:
    wide = float64 if dtype is float64 else float32
    first = cast(_top24(random_bits(seed, draw, shape=shape, word=0, device=device)), dtype=wide)
    second = cast(_top24(random_bits(seed, draw, shape=shape, word=1, device=device)), dtype=wide)
    radius = sqrt(log((first + 0.5) * 2.0**-24) * -2.0)
    return cast(radius * cos(second * (2 * math.pi * 2.0**-24)), dtype=dtype)


normal = Op("normal", "composite", _drawn, **_DRAW, decompose=_normal, differentiable=False, ulp=4,
            doc="Standard normal by Box and Muller's transform of words 0 and 1.")


def _integers_type(seed: TensorType, draw: TensorType, low: TensorType, high: TensorType, shape: tuple[int, ...],
                   dtype: DType, device: Device) -> TensorType:
    return tensor_type(shape, dtype, device)


def _integers(seed: Node, draw: Node, low: Node, high: Node, shape: tuple[int, ...], dtype: DType,
              device: Device) -> Node:
    words = [cast(random_bits(seed, draw, shape=shape, word=w, device=device), dtype=int64) for w in (0, 1)]
    high31, low32 = bitwise_and(words[0], literal(0x7FFFFFFF)), bitwise_and(words[1], literal(0xFFFFFFFF))
    wide = left_shift(high31, literal(32)) + low32
    return cast(remainder(wide, high - low) + low, dtype=dtype)


integers = Op("integers", "composite", _integers_type, attrs=("shape", "dtype", "device"), defaults={"device": cpu},
              decompose=_integers, differentiable=False,
              doc="Integers in [low, high): 63 random bits modulo the range.")


def _dropout(x: Node, p: Node, seed: Node, draw: Node) -> Node:
    chance = uniform(seed, draw, shape=x.type.shape, dtype=float32, device=x.type.device)
    return where_(ge(chance, p), x / (1 - p), 0.0)


dropout: Op = Op("dropout", "composite", lambda x, p, seed, draw: x, decompose=_dropout,
                 doc="x / (1 - p) where a uniform draw is ≥ p, else 0. Its gradient draws the same mask again.",
                 vjp=lambda g, x, p, seed, draw, y: (dropout(g, p, seed, draw), None, None, None))
