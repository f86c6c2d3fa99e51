"""The array object, and what the namespace tells of itself, as the standard has them."""

from __future__ import annotations

import operator

import numpy as np
import pytest

from genesis import array_api as xp


def test_attributes() -> None:
    x = xp.ones((2, 3, 4), dtype=xp.float64)
    assert x.shape == (2, 3, 4) and isinstance(x.shape, tuple) and x.ndim == 3 and x.dtype is xp.float64
    assert x.mT.shape == (2, 4, 3) and xp.ones((2, 3)).T.shape == (3, 2)
    assert x.to_device(x.device, stream=None) is x
    assert x.__array_namespace__() is x.__array_namespace__(api_version=None) is xp
    assert x.__dlpack_device__()[0] == 1
    np.testing.assert_array_equal(np.from_dlpack(x), np.ones((2, 3, 4)))


def test_numbers_of_arrays_without_dimensions() -> None:
    assert operator.index(xp.asarray(3)) == 3 and int(xp.asarray(-2.5)) == -2 and float(xp.asarray(2)) == 2.0
    assert complex(xp.asarray(1.5)) == 1.5 and bool(xp.asarray(0.0)) is False
    with pytest.raises(TypeError):
        operator.index(xp.asarray(1.0))
    with pytest.raises(ValueError):
        int(xp.asarray(float("nan")))
    with pytest.raises(OverflowError):
        int(xp.asarray(float("inf")))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "floordiv", "mod", "pow", "and", "or", "xor", "lshift",
                                  "rshift"])
def test_reflected_and_in_place_operators(name: str) -> None:
    """They give what the function gives, in place in the same array; what would need another dtype is refused."""
    plain = getattr(operator, {"and": "and_", "or": "or_"}.get(name, name))
    data = np.array([1, 2, 3])
    assert plain(7, xp.asarray(data)).tolist() == plain(7, data).tolist()
    x = xp.asarray(data.copy())
    assert getattr(operator, f"i{name}")(x, 2) is x and x.tolist() == plain(data, 2).tolist()
    if name in ("add", "sub", "mul"):
        with pytest.raises(RuntimeError, match="can't be cast"):
            getattr(operator, f"i{name}")(x, 1.5)
        with pytest.raises(RuntimeError, match="broadcast"):
            getattr(operator, f"i{name}")(x, xp.ones((2, 3), dtype=xp.int64))


def test_limits() -> None:
    found = xp.finfo(xp.ones(1, dtype=xp.float64))
    assert (found.bits, found.eps, found.dtype) == (64, 2.0**-52, xp.float64) and found.smallest_normal == 2.0**-1022
    assert (xp.iinfo(xp.uint8).min, xp.iinfo(xp.uint8).max, xp.iinfo(xp.uint8).dtype) == (0, 255, xp.uint8)
    for refused in (lambda: xp.finfo(xp.int8), lambda: xp.iinfo(xp.float32)):
        with pytest.raises(TypeError):
            refused()


def test_what_the_namespace_tells() -> None:
    info = xp.__array_namespace_info__()
    assert info.default_device() in info.devices()
    assert info.capabilities()["boolean indexing"] is True
    assert info.default_dtypes()["indexing"] is xp.int64 and info.default_dtypes()["real floating"] is xp.float32
    assert set(info.dtypes(kind=("bool", "unsigned integer"))) == {"bool", "uint8"}
    assert info.dtypes(kind="complex floating") == {} and info.dtypes(device=info.default_device()) == info.dtypes()
    with pytest.raises(ValueError, match="no kind"):
        info.dtypes(kind="floaty")


def test_copies() -> None:
    x = xp.ones((2, 3))
    assert xp.asarray(x, copy=False) is x and xp.asarray(x, copy=True) is not x
    assert xp.astype(x, xp.float32, copy=False) is x and xp.astype(x, xp.float32) is not x
    for refused in (lambda: xp.asarray([1], copy=False), lambda: xp.asarray(x, dtype=xp.float64, copy=False),
                    lambda: xp.reshape(x.mT, (6,), copy=False)):
        with pytest.raises(ValueError):
            refused()


def test_dtypes_of_python_numbers() -> None:
    assert xp.asarray(True).dtype is xp.bool and xp.asarray([1, 2]).dtype is xp.int64
    assert xp.asarray([1, 2.5]).dtype is xp.float32 and xp.full(2, True).dtype is xp.bool
    assert xp.result_type(xp.int8, 1) is xp.int8 and xp.result_type(xp.float64, 1.5) is xp.float64
    assert xp.result_type(xp.uint8, xp.int8) is xp.int16
    with pytest.raises(ValueError):
        xp.result_type(1, 2)


def test_sorting_keeps_the_order_of_equal_elements() -> None:
    x = xp.asarray([1, 2, 2, 1])
    assert xp.argsort(x).tolist() == [0, 3, 1, 2] and xp.argsort(x, descending=True).tolist() == [1, 2, 0, 3]
