"""genesis.array_api beside numpy, which implements the standard too: the same calls, the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import genesis
from genesis import array_api as xp

X = np.array([[0.5, -1.5, 2.0], [3.0, 0.25, -0.75]], np.float32)
Y = np.array([[2.0, 1.5, -2.0], [0.5, 4.0, 1.0]], np.float32)
N = np.array([[3, 1, 2], [1, 1, 5]], np.int64)
B = np.array([[True, False, True], [False, False, True]])



def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


UNARY = words("abs acos acosh asin asinh atan atanh ceil cos cosh exp expm1 floor isfinite isinf isnan log log1p log2 "
              "log10 negative positive reciprocal round sign signbit sin sinh square sqrt tan tanh trunc")
BINARY = words("add atan2 copysign divide equal greater greater_equal hypot less less_equal logaddexp maximum minimum "
               "multiply nextafter not_equal subtract floor_divide remainder pow")

CALLS: dict[str, Any] = {
    **{name: lambda m, a, name=name: getattr(m, name)(m.abs(a(X)) + (1 if name == "acosh" else 0.1)
                                                      if name not in ("acos", "asin", "atanh") else a(X) / 4)
       for name in UNARY},
    **{name: lambda m, a, name=name: getattr(m, name)(m.abs(a(X)) if name == "pow" else a(X), a(Y)) for name in BINARY},
    **{name: lambda m, a, name=name: getattr(m, name)(a(N), a(N) * 0 + 1) for name in (
        "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift")},
    "bitwise_invert": lambda m, a: m.bitwise_invert(a(N)),
    **{name: lambda m, a, name=name: getattr(m, name)(a(B), ~a(B))
       for name in ("logical_and", "logical_or", "logical_xor")},
    "logical_not": lambda m, a: m.logical_not(a(B)),
    "clip": lambda m, a: m.clip(a(X), 0, 1),
    "where": lambda m, a: m.where(a(B), a(X), a(Y)),
    **{name: lambda m, a, name=name: getattr(m, name)(a(X), axis=1, keepdims=True) for name in (
        "sum", "prod", "max", "min", "mean", "var", "std", "all", "any", "argmax", "argmin", "count_nonzero")},
    **{f"{name} of all": lambda m, a, name=name: getattr(m, name)(a(N)) for name in (
        "sum", "prod", "max", "min", "all", "any", "argmax", "count_nonzero")},
    "std with correction": lambda m, a: m.std(a(X), axis=(0, 1), correction=1),
    "cumulative_sum": lambda m, a: m.cumulative_sum(a(X), axis=0, include_initial=True),
    "cumulative_prod": lambda m, a: m.cumulative_prod(a(X), axis=1),
    "diff": lambda m, a: m.diff(a(X), axis=1),
    "sort": lambda m, a: m.sort(a(X), descending=True) if m is xp else -np.sort(-X),
    "argsort": lambda m, a: m.argsort(a(X), axis=0),
    "searchsorted": lambda m, a: m.searchsorted(a(np.array([1.0, 2.0, 2.0])), a(np.array([2.0, 0.0])), side="right"),
    "nonzero": lambda m, a: m.nonzero(a(B)),
    "unique_values": lambda m, a: m.sort(m.unique_values(a(N))),
    "unique_counts": lambda m, a: m.unique_counts(a(N)),
    "unique_inverse": lambda m, a: m.unique_inverse(a(N)),
    "unique_all": lambda m, a: m.unique_all(a(N)),
    "arange": lambda m, a: m.arange(5, 1, -2),
    "linspace": lambda m, a: m.linspace(0, 1, 4, endpoint=False),
    "eye": lambda m, a: m.eye(3, 4, k=1),
    "full": lambda m, a: m.full((2, 2), 7),
    "zeros_like": lambda m, a: m.zeros_like(a(N)),
    "meshgrid": lambda m, a: m.meshgrid(a(np.array([1, 2, 3])), a(np.array([4, 5]))),
    "tril": lambda m, a: m.tril(a(X), k=-1),
    "triu": lambda m, a: m.triu(a(X), k=1),
    "broadcast_to": lambda m, a: m.broadcast_to(a(X), (2, 2, 3)),
    "broadcast_arrays": lambda m, a: m.broadcast_arrays(a(X), a(X[:, :1])),
    "concat": lambda m, a: m.concat([a(X), a(Y)], axis=None),
    "expand_dims": lambda m, a: m.expand_dims(a(X), axis=1),
    "flip": lambda m, a: m.flip(a(X)),
    "matrix_transpose": lambda m, a: m.matrix_transpose(a(X)),
    "moveaxis": lambda m, a: m.moveaxis(a(X), 0, 1),
    "permute_dims": lambda m, a: m.permute_dims(a(X), (1, 0)),
    "repeat": lambda m, a: m.repeat(a(X), 2, axis=1),
    "reshape": lambda m, a: m.reshape(a(X), (3, 2)),
    "roll": lambda m, a: m.roll(a(X), 1, axis=(0, 1)),
    "squeeze": lambda m, a: m.squeeze(a(X[:1]), 0),
    "stack": lambda m, a: m.stack([a(X), a(Y)], axis=2),
    "take": lambda m, a: m.take(a(X), a(np.array([2, 0])), axis=1),
    "take_along_axis": lambda m, a: m.take_along_axis(a(X), a(np.array([[1], [2]])), axis=1),
    "tile": lambda m, a: m.tile(a(X), (2, 1)),
    "unstack": lambda m, a: m.unstack(a(X), axis=1),
    "vecdot": lambda m, a: m.vecdot(a(X), a(Y)),
    "matmul": lambda m, a: m.matmul(a(X), m.matrix_transpose(a(Y))),
    "tensordot": lambda m, a: m.tensordot(a(X), a(Y), axes=2),
    "astype": lambda m, a: m.astype(a(X), m.int64),
    "isdtype": lambda m, a: m.asarray([m.isdtype(m.float32, "real floating"), m.isdtype(m.int64, ("bool", "numeric"))]),
    "result_type": lambda m, a: m.zeros((2,), dtype=m.result_type(m.float32, m.int8 if m is np else m.float32)),
}


def parts(found: Any) -> list[Any]:
    return list(found) if isinstance(found, (tuple, list)) else [found]


@pytest.mark.parametrize("name", CALLS)
def test_it_gives_what_numpy_gives(name: str) -> None:
    wanted = parts(CALLS[name](np, lambda x: x))
    found = parts(CALLS[name](xp, lambda x: xp.asarray(x)))
    assert len(found) == len(wanted)
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_allclose(got.numpy(), np.asarray(want), rtol=2e-6, atol=1e-6)


NAMES = words("e inf nan newaxis pi arange asarray empty empty_like eye from_dlpack full full_like linspace "
              "meshgrid ones ones_like tril triu zeros zeros_like astype broadcast_arrays broadcast_to can_cast "
              "finfo iinfo isdtype result_type bool int8 int16 int32 int64 uint8 float32 float64 abs acos acosh "
              "add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or "
              "bitwise_right_shift bitwise_xor ceil clip copysign cos cosh divide equal exp expm1 floor "
              "floor_divide greater greater_equal hypot isfinite isinf isnan less less_equal log log1p log2 log10 "
              "logaddexp logical_and logical_not logical_or logical_xor maximum minimum multiply negative "
              "nextafter not_equal positive pow reciprocal remainder round sign signbit sin sinh square sqrt "
              "subtract tan tanh trunc take take_along_axis matmul matrix_transpose tensordot vecdot concat "
              "expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack argmax "
              "argmin count_nonzero nonzero searchsorted where unique_all unique_counts unique_inverse "
              "unique_values argsort sort cumulative_prod cumulative_sum max mean min prod std sum var all any "
              "diff __array_namespace_info__ __array_api_version__ ")


def test_every_name_of_the_standard_is_there() -> None:
    """But complex dtypes, wider unsigned ones and what is about them: genesis has no such dtypes."""
    assert not [name for name in NAMES if not hasattr(xp, name)]
    for name in words("cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank "
                      "matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot vector_norm"):
        assert hasattr(xp.linalg, name), name


def test_an_array_knows_its_namespace() -> None:
    x = xp.ones(2)
    assert x.__array_namespace__(api_version="2024.12") is xp
    assert x.to_device("cpu") is x
    with pytest.raises(ValueError, match="2030"):
        x.__array_namespace__(api_version="2030.01")
    assert xp.__array_namespace_info__().default_dtypes()["real floating"] is genesis.float32


def test_errors_of_the_standard() -> None:
    with pytest.raises(ValueError, match="size 3"):
        xp.squeeze(xp.asarray(X), 1)
    with pytest.raises(ValueError, match="no kind"):
        xp.isdtype(xp.float32, "floaty")
    with pytest.raises(ValueError, match="axis"):
        xp.take(xp.asarray(X), xp.asarray([0]))
