"""Decompositions at large, low-precision and empty operands, where a formula that is right in between breaks."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import genesis
from genesis.ir import OPS, literal, tensor_type
from genesis.ir.ops import leaves
from genesis.ir.types import DTYPES, bfloat16, cpu, float16, float32, float64, int64
from tests.evaluate import evaluate

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def decomposed(name: str, *arrays: np.ndarray, **attributes: Any) -> np.ndarray:
    """The op's decomposition, its float results in float64."""
    kinds = {d.numpy: d for d in DTYPES}
    inputs = [leaves.input(index=i, type=tensor_type(x.shape, kinds[x.dtype])) for i, x in enumerate(arrays)]
    found, = evaluate([OPS[name](*inputs, **attributes)], dict(zip(inputs, arrays, strict=True)), frozenset({name}))
    return np.asarray(found, np.float64)


@pytest.mark.parametrize("name, want", [
    ("softmax", [0.5, 0.5, 0.0]), ("log_softmax", [-np.log(2), -np.log(2), -2000 - np.log(2)])])
def test_scores_whose_exponentials_overflow(name: str, want: list[float]) -> None:
    found = decomposed(name, np.array([1000.0, 1000.0, -1000.0], np.float32), axis=0)
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_softmax_of_bfloat16_is_rounded_once() -> None:
    """Computed in bfloat16 it would be rounded three times: before the sum, in it and after the division."""
    row = np.linspace(-3, 3, 70).astype(BFLOAT16)
    exact = np.exp(row.astype(float)) / np.exp(row.astype(float)).sum()
    np.testing.assert_allclose(decomposed("softmax", row, axis=0), exact, rtol=1.01 * 2**-8)


@pytest.mark.parametrize("name, attributes", [
    ("relu", {}), ("threshold", {"bound": 0.0, "value": -1.0}), ("hardtanh", {"least": -1.0, "most": 1.0}),
    ("hardshrink", {"bound": 4.0}), ("softshrink", {"bound": 4.0}), ("hardsigmoid", {}), ("hardswish", {})])
def test_where_an_activation_is_flat_the_gradient_of_infinity_is_0(name: str, attributes: dict[str, Any]) -> None:
    """As torch's kernels have it, which run on the CPU; infinity · 0 is not a number."""
    flat = np.float32([-3.5, -3.5, -3.5])
    gradients = np.float32([np.inf, np.nan, 2.0])
    place = np.zeros(3, np.float32) if name == "relu" else flat  # relu's gradient looks at its result
    np.testing.assert_array_equal(decomposed(f"{name}_backward", gradients, place, **attributes), 0)
    x = genesis.tensor(flat, requires_grad=True)
    y = getattr(genesis.nn.functional, name)(x, *attributes.values())
    y.backward(genesis.tensor(gradients))
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_relu_passes_a_gradient_on_at_nan() -> None:
    found = decomposed("relu_backward", np.float32([2.0, 3.0]), np.float32([np.nan, 0.0]))
    np.testing.assert_array_equal(found, [2.0, 0.0])


@pytest.mark.parametrize("name", ["layer_norm", "rms_norm"])
def test_a_row_of_zeros_is_normalized_to_zeros(name: str) -> None:
    np.testing.assert_array_equal(decomposed(name, np.zeros((2, 8), np.float32), ndim=1, eps=1e-5), 0)


def test_norms_of_bfloat16_are_computed_in_float32() -> None:
    """Squares of 300 are 90,000, and their mean over 4,096 loses all bits in bfloat16."""
    row = np.where(np.arange(4096) % 2, 300, -300).astype(BFLOAT16)
    np.testing.assert_array_equal(decomposed("layer_norm", row, ndim=1, eps=0.0), np.sign(row.astype(float)))
    np.testing.assert_array_equal(decomposed("rms_norm", row, ndim=1, eps=0.0), np.sign(row.astype(float)))


def test_the_mean_of_nothing_is_nan() -> None:
    assert np.isnan(decomposed("mean", np.zeros((0, 3), np.float32), axes=(0,))).all()


def test_lerp_by_one_is_the_end_itself() -> None:
    """From the other end 1e8 + 1 · (1 - 1e8) is 0."""
    a, b = np.float32([1e8, 1.0]), np.float32([1.0, 1e8])
    np.testing.assert_array_equal(decomposed("lerp", a, b, np.ones(2, np.float32)), b)
    np.testing.assert_array_equal(decomposed("lerp", a, b, np.zeros(2, np.float32)), a)


@pytest.mark.parametrize("name, dtype", [*(("uniform", d) for d in (float16, bfloat16, float32, float64)),
                                         ("integers", int64), ("normal", float32)])
def test_drawing_by_primitives_gives_the_same_numbers(name: str, dtype: Any) -> None:
    """What a GPU draws is what the CPU's own kernels draw."""
    bounds = [literal(-3), literal(4)] if name == "integers" else []
    node = OPS[name](literal(5), literal(1), *bounds, shape=(3000,), dtype=dtype, device=cpu)
    own, by_primitives = (np.asarray(evaluate([node], {}, frozenset(names))[0], np.float64) for names in ((), (name,)))
    np.testing.assert_allclose(own, by_primitives, rtol=0, atol=1e-6 if name == "normal" else 0)
    if name == "integers":
        assert set(own) == set(range(-3, 4))


def test_the_norm_of_float16_gradients_is_float32() -> None:
    found = decomposed("total_norm", np.full(400, 60000, np.float16), norm_type=2.0)
    assert float(found) == pytest.approx(20 * float(np.float16(60000)), rel=1e-6)


@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.0, np.inf])
def test_empty_gradients_add_nothing_to_the_norm(norm_type: float) -> None:
    found = decomposed("total_norm", np.ones(4, np.float32), np.zeros(0, np.float32), norm_type=norm_type)
    assert float(found) == pytest.approx(4 ** (1 / norm_type), rel=1e-6)
    assert decomposed("total_norm", np.zeros(0, np.float32), norm_type=norm_type) == 0


def test_clipping_leaves_small_gradients() -> None:
    norm, x = (leaves.input(index=i, type=tensor_type(shape, float32)) for i, shape in enumerate([(), (4,)]))
    feeds = {norm: np.asarray(2.0, np.float32), x: np.ones(4, np.float32)}
    (found,), = evaluate([OPS["clip_by_norm"](literal(10.0), norm, x)], feeds, frozenset({"clip_by_norm"}))
    assert found.tolist() == [1.0] * 4
