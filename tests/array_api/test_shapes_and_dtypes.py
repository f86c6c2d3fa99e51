"""Shapes and dtypes beside numpy: promotion, Python numbers, empty arrays, arrays without dimensions, axes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import genesis
from genesis import array_api as xp

INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
FLOATS = ("float32", "float64")
QUIET = {"deadline": None, "database": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}
SHAPES = st.lists(st.sampled_from((0, 1, 2, 3, 5)), max_size=4).map(tuple)


def array(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers that every dtype holds, some of them twice."""
    return (np.arange(int(np.prod(shape))) * 5 % 7).reshape(shape).astype(dtype)


def assert_same(got: Any, want: Any) -> None:
    """One shape, one dtype (uint64 is int64 here) and the same values."""
    want = np.asarray(want)
    assert tuple(got.shape) == want.shape
    assert got.dtype.name == {"uint64": "int64"}.get(want.dtype.name, want.dtype.name)
    np.testing.assert_allclose(got.numpy(), want, rtol=1e-6)


def assert_same_outcome(call: Any, x: np.ndarray) -> None:
    """The call (of a namespace and an array) gives the same in both, or both refuse it."""
    def outcome(namespace: Any, of: Any) -> Any:
        try:
            found = call(namespace, of)
            genesis.eval(*([found] if isinstance(found, genesis.Tensor) else []))
            return found
        except (ValueError, IndexError, RuntimeError, TypeError):
            return None
    with np.errstate(all="ignore"):
        want, got = outcome(np, x), outcome(xp, xp.asarray(x))
    assert (want is None) == (got is None)
    if want is not None:
        assert_same(got, want)


ARITHMETIC = ("add", "subtract", "multiply", "maximum", "minimum", "equal", "less")
OF_FLOATS = ("divide", "atan2", "hypot", "copysign", "logaddexp", "nextafter")


@pytest.mark.parametrize("one, other", [*itertools.product(INTEGERS, INTEGERS), *itertools.product(FLOATS, FLOATS)])
def test_promotion(one: str, other: str) -> None:
    """The two dtypes alone say what is computed: arrays without dimensions are no exception, as they are in torch."""
    for name in ARITHMETIC + (OF_FLOATS if one in FLOATS else ("bitwise_and", "bitwise_or", "bitwise_xor")):
        for shapes in (((3,), (3,)), ((3,), ()), ((), (2, 3)), ((), ())):
            x, y = array(one, shapes[0]), array(other, shapes[1]) + np.ones((), other)
            assert_same(getattr(xp, name)(xp.asarray(x), xp.asarray(y)), getattr(np, name)(x, y))
    x, y = array(one, (2, 3)), array(other, (3, 2))
    assert_same(xp.matmul(xp.asarray(x), xp.asarray(y)), x @ y)
    assert_same(xp.tensordot(xp.asarray(x), xp.asarray(y), axes=((1,), (0,))), np.tensordot(x, y, ((1,), (0,))))
    assert_same(xp.vecdot(xp.asarray(x), xp.asarray(y[:, 0].copy())), np.vecdot(x, y[:, 0]))
    assert_same(xp.where(xp.asarray(x > 2), xp.asarray(x), xp.asarray(y[0, 0])), np.where(x > 2, x, y[0, 0]))
    assert_same(xp.concat([xp.asarray(x), xp.asarray(y.T.copy())]), np.concat([x, y.T]))
    assert_same(xp.stack([xp.asarray(x[0, 0]), xp.asarray(y[0, 0])]), np.stack([x[0, 0], y[0, 0]]))


@pytest.mark.parametrize("dtype", INTEGERS + FLOATS)
def test_python_numbers_take_the_arrays_dtype(dtype: str) -> None:
    x = array(dtype, (2, 3)) + np.ones((), dtype)
    ours = xp.asarray(x)
    for number in (2, 2.5) if dtype in FLOATS else (2,):
        for name in (*ARITHMETIC, "floor_divide", "remainder", "pow", *(OF_FLOATS if dtype in FLOATS else ())):
            assert_same(getattr(xp, name)(ours, number), getattr(np, name)(x, number))
            assert_same(getattr(xp, name)(number, ours), getattr(np, name)(number, x))
        assert_same(xp.where(ours > 2, number, ours), np.where(x > 2, np.asarray(number, dtype), x))
        assert_same(xp.clip(ours, number, number + 1), np.clip(x, number, number + 1))
    with pytest.raises(TypeError, match="array"):
        xp.add(1, 2)


REDUCTIONS = ("sum", "prod", "max", "min", "mean", "std", "var", "all", "any", "count_nonzero")


@settings(max_examples=120, **QUIET)
@given(SHAPES, st.sampled_from(INTEGERS + FLOATS), st.sampled_from(REDUCTIONS), st.data())
def test_reductions(shape: tuple[int, ...], dtype: str, name: str, data: Any) -> None:
    """Over all axes, one, several, none; a maximum of nothing is refused by both."""
    axes = st.integers(-len(shape), len(shape) - 1) if shape else st.none()
    axis = data.draw(st.none() | axes | st.lists(axes, unique_by=lambda a: a % len(shape)).map(tuple)
                     if shape else st.none() | st.just(()))
    if dtype not in FLOATS and name in ("mean", "std", "var"):
        name = "sum"
    x, how = array(dtype, shape), {"axis": axis, "keepdims": data.draw(st.booleans())}
    assert_same_outcome(lambda m, x: np.sum(x != 0, **how) if m is np and name == "count_nonzero" else getattr(
        m, name)(x, **how), x)  # numpy's count_nonzero does not take axis=()


REARRANGED: dict[str, Any] = {
    "flip": lambda m, x: m.flip(x), "flip an axis": lambda m, x: m.flip(x, axis=-1), "roll": lambda m, x: m.roll(x, 2),
    "roll axes": lambda m, x: m.roll(x, (1, -1), axis=(0, -1)), "repeat": lambda m, x: m.repeat(x, 2),
    "repeat an axis": lambda m, x: m.repeat(x, 2, axis=-1), "tile": lambda m, x: m.tile(x, (2, 1, 2)),
    "tile by none": lambda m, x: m.tile(x, ()), "reshape": lambda m, x: m.reshape(x, (-1,)),
    "concat flat": lambda m, x: m.concat([x, x], axis=None), "concat": lambda m, x: m.concat([x, x], axis=-1),
    "stack": lambda m, x: m.stack([x, x], axis=-1), "expand_dims": lambda m, x: m.expand_dims(x, axis=-1),
    "moveaxis": lambda m, x: m.moveaxis(x, 0, -1), "matrix_transpose": lambda m, x: m.matrix_transpose(x),
    "take": lambda m, x: m.take(x, m.asarray([0]), axis=0), "sort": lambda m, x: m.sort(x, axis=0),
    "argsort": lambda m, x: m.argsort(x, axis=-1, stable=True), "argmax": lambda m, x: m.argmax(x, axis=-1),
    "argmin of all": lambda m, x: m.argmin(x), "cumulative_sum": lambda m, x: m.cumulative_sum(x, axis=-1),
    "cumulative_sum from 0": lambda m, x: m.cumulative_sum(x, axis=0, include_initial=True),
    "cumulative_prod": lambda m, x: m.cumulative_prod(x, axis=-1, include_initial=True, dtype=m.float64),
    "diff": lambda m, x: m.diff(x, axis=0), "second diff": lambda m, x: m.diff(x, n=2),
    "broadcast_to": lambda m, x: m.broadcast_to(x, (2, *x.shape)), "zeros_like": lambda m, x: m.zeros_like(x),
}


@settings(max_examples=200, **QUIET)
@given(SHAPES.filter(len), st.sampled_from(INTEGERS + FLOATS), st.sampled_from(sorted(REARRANGED)))
def test_shapes(shape: tuple[int, ...], dtype: str, name: str) -> None:
    assert_same_outcome(REARRANGED[name], array(dtype, shape))


@settings(max_examples=60, **QUIET)
@given(SHAPES, st.sampled_from(INTEGERS + FLOATS))
def test_sets(shape: tuple[int, ...], dtype: str) -> None:
    """Values in any order; the other results belong to them."""
    x = array(dtype, shape)
    values, indices, inverse, counts = xp.unique_all(xp.asarray(x))
    want, times = np.unique(x, return_counts=True)
    order = np.argsort(values.numpy())
    np.testing.assert_array_equal(values.numpy()[order], want)
    np.testing.assert_array_equal(counts.numpy()[order], times)
    np.testing.assert_array_equal(x.reshape(-1)[indices.numpy()], values.numpy())
    np.testing.assert_array_equal(values.numpy()[inverse.numpy()], x)
    assert tuple(inverse.shape) == x.shape


def test_no_value_is_equal_to_nan() -> None:
    """Each NaN is a value of its own, and the zeros are one."""
    values, counts = xp.unique_counts(xp.asarray([np.nan, np.nan, 0.0, -0.0]))
    assert sorted(counts.tolist()) == [1, 1, 2] and values.shape == (3,)


RANGES = [(3,), (0,), (-1,), (1, 5), (5, 1, -1), (5, 1, -2), (1, 5, -1), (0, 1, 0.25), (1.0, 4.0), (0, 10, 3), (2.5,)]


@pytest.mark.parametrize("ends", RANGES)
def test_ranges(ends: tuple[float, ...]) -> None:
    np.testing.assert_array_equal(xp.arange(*ends).numpy(), np.arange(*ends))


@pytest.mark.parametrize("count, endpoint", [*itertools.product([0, 1, 2, 5], [True, False])])
def test_evenly_spaced(count: int, endpoint: bool) -> None:
    assert_same(xp.linspace(1, 4, count, endpoint=endpoint, dtype=xp.float64), np.linspace(1, 4, count, endpoint))


@pytest.mark.parametrize("sizes, k", [*itertools.product([(3,), (3, 0), (0, 3), (3, 4)], [-5, -1, 0, 1, 5])])
def test_identities(sizes: tuple[int, ...], k: int) -> None:
    assert_same(xp.eye(*sizes, k=k, dtype=xp.float32), np.eye(*sizes, k=k, dtype=np.float32))
