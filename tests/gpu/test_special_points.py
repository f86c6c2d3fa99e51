"""Gradients at NaN, infinities, zeros and ties: generated kernels follow the rule that the CPU follows (torch's)."""

from __future__ import annotations

import itertools

import numpy as np

import genesis
from genesis.nn import functional as F

from .compare import check_gradients

POINTS = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0], np.float32)
PAIRS = np.array(list(itertools.product(POINTS, POINTS)), np.float32)


def test_activations(cuda):
    for name in ("relu", "leaky_relu", "relu6", "hardtanh", "hardswish", "softshrink"):
        check_gradients(lambda x, name=name: getattr(F, name)(x), POINTS)


def test_powers(cuda):
    check_gradients(lambda a, b: a**b, PAIRS[:, 0].copy(), PAIRS[:, 1].copy())
    for base in (0.0, 2.0):
        check_gradients(lambda x, base=base: base**x, POINTS)


def test_signs_and_remainders(cuda):
    for op in (genesis.copysign, genesis.maximum):
        check_gradients(op, PAIRS[:, 0].copy(), PAIRS[:, 1].copy())
    check_gradients(genesis.rsqrt, POINTS)


def test_medians_of_ties(cuda):
    x = np.array([[2.0, 1.0, 2.0], [3.0, 2.0, 0.0]], np.float32)
    for op in (genesis.median, genesis.nanmedian):
        check_gradients(op, x)
        check_gradients(op, np.where(x == 1, np.nan, x).astype(np.float32))


def test_rms_norm_of_halves(cuda):
    check_gradients(lambda x: F.rms_norm(x.half(), (3,)).float(), np.array([[1e-3, 2e-3, 3e-3]], np.float32))
