"""The bar of the demo: how well the next byte is known from the byte before it."""

from __future__ import annotations

from typing import Any

import numpy as np

VOCABULARY = 256
"""Tokens: the bytes there are."""


def bigram_counts(data: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Counts of how often each byte follows each other byte:
-- int64[256, 256], rows are the byte before.

    >>> int(bigram_counts(np.frombuffer(b"abab", dtype=np.uint8))[ord("a"), ord("b")])
    2
    """
    pairs = data[:-1].astype(np.int64) * VOCABULARY + data[1:]
    return np.bincount(pairs, minlength=VOCABULARY * VOCABULARY).reshape(VOCABULARY, VOCABULARY)


def conditional_entropy(data: np.ndarray[Any, Any]) -> float:
    """Entropy of a byte given the byte before it, in nats, by the data's own frequencies.

    No bigram model can predict this data better, even one fitted to it: H = -Σ p(a, b) ln p(b | a).

    >>> conditional_entropy(np.frombuffer(b"ababab", dtype=np.uint8))
    0.0
    """
    counts = bigram_counts(data)
    before = counts.sum(axis=1, keepdims=True)
    seen = counts > 0
    surprise = np.log((before / np.maximum(counts, 1))[seen])
    return float((counts[seen] * surprise).sum() / max(counts.sum(), 1))


def bigram_cross_entropy(train: np.ndarray[Any, Any], validation: np.ndarray[Any, Any],
                         smoothing: float = 1.0) -> float:
    """Loss in nats per byte of a bigram model fitted to `train` with add-`smoothing` counts."""
    counts = bigram_counts(train) + smoothing
    surprise = -np.log(counts / counts.sum(axis=1, keepdims=True))
    observed = bigram_counts(validation)
    return float((observed * surprise).sum() / max(observed.sum(), 1))
