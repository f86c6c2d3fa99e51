"""Philox against the published test vectors and a scalar version; what is drawn from its bits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from genesis.codegen.cpu.lowerings.random import philox
from genesis.ir import OPS, literal, tensor_type
from genesis.ir.types import bfloat16, cpu, float32, float64, int64
from tests.evaluate import evaluate


def scalar_philox(counter: list[int], key: list[int]) -> list[int]:
    """Ten rounds on Python integers, as the paper writes them."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [p1 >> 32 ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, p0 >> 32 ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [k[0] + 0x9E3779B9 & 0xFFFFFFFF, k[1] + 0xBB67AE85 & 0xFFFFFFFF]
    return c


def test_the_scalar_version_gives_the_published_vectors():
    """kat_vectors of Random123: all zeros, all ones, and digits of pi."""
    assert scalar_philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert scalar_philox([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert scalar_philox([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]) \
        == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]


@pytest.mark.parametrize(("words", "word"), [(1, 0), (2, 0), (2, 1), (4, 0), (4, 1), (4, 2), (4, 3)])
@pytest.mark.parametrize(("seed", "draw"), [(0, 0), (0x299F31D0A4093822, 0x0370734413198A2E), (-1, -1)])
def test_every_element_has_its_own_place_in_the_stream(seed, draw, words, word):
    """Over several blocks, with 64-bit and negative seeds; the last counter is not used up."""
    bits = np.empty(80_003, np.uint32)
    philox(bits, seed, draw, word, words)
    low, high = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    for i in (0, 1, 16_383, 16_384, 65_537, 80_002):
        counter, at = divmod(i * words + word, 4)
        assert bits[i] == scalar_philox([counter, 0, draw & 0xFFFFFFFF, draw >> 32 & 0xFFFFFFFF], [low, high])[at]


def drawn(name, *numbers, shape=(50_000,), dtype=float32, seed=5, draw=1):
    [x] = evaluate([OPS[name](literal(seed), literal(draw), *map(literal, numbers), shape=shape, dtype=dtype,
                              device=cpu)], {})
    return x.astype(np.float64)


def test_random_bits_ignore_the_shape():
    flat, square = (evaluate([OPS["random_bits"](literal(3), literal(4), shape=s, word=2, words=4)], {})[0]
                    for s in ((12,), (3, 4)))
    assert flat.tolist() == square.reshape(-1).tolist()


@pytest.mark.parametrize("dtype", [float32, float64])
def test_uniform_is_in_range_and_even(dtype):
    """Mean within 5 standard errors of 1/2, all tenths hit equally within 5 standard deviations."""
    x = drawn("uniform", dtype=dtype)
    assert x.min() >= 0
    assert x.max() < 1
    assert abs(x.mean() - 0.5) < 5 * math.sqrt(1 / 12 / x.size)
    counts = np.histogram(x, 10, (0, 1))[0]
    assert np.abs(counts - x.size / 10).max() < 5 * math.sqrt(x.size * 0.09)


def test_float64_uniforms_use_53_bits():
    x = drawn("uniform", dtype=float64) * 2.0**53
    assert (x == np.floor(x)).all()
    assert len(np.unique(x % 1024)) == 1024


@pytest.mark.parametrize("dtype", [float32, float64, bfloat16])
def test_normal_has_the_moments_of_a_normal(dtype):
    """Mean, variance and kurtosis within 5 standard errors (rounding to bfloat16 adds 2^-16 to the variance)."""
    x = drawn("normal", dtype=dtype)
    assert abs(x.mean()) < 5 / math.sqrt(x.size)
    assert abs(x.var() - 1) < 5 * math.sqrt(2 / x.size) + 2.0**-16
    assert abs((x**4).mean() - 3) < 5 * math.sqrt(96 / x.size) + 2.0**-12
    assert np.isfinite(x).all()


def test_integers_are_in_range():
    x = drawn("integers", -3, 4, dtype=int64)
    assert sorted(set(x)) == [-3, -2, -1, 0, 1, 2, 3]


def test_dropout_and_its_gradient_keep_the_same_elements():
    x = OPS["input"](index=0, type=tensor_type((10_000,), float32))
    g = OPS["input"](index=1, type=tensor_type((10_000,), float32))
    numbers = [literal(-2**30), literal(1 / 0.75), literal(9), literal(2)]
    y = OPS["dropout"](x, *numbers)
    to_x = OPS["dropout"].vjp(g, x, *numbers, y)[0]
    ones = np.ones(10_000, np.float32)
    kept, passed = evaluate([y, to_x], {x: ones, g: ones})
    assert kept.tolist() == passed.tolist()
    assert set(np.unique(kept)) == {0.0, np.float32(1 / 0.75)}
    assert abs((kept == 0).mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 10_000)
