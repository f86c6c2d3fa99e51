"""Products on the CPU: those of few rows with a large matrix are read by oneDNN, and are as exact as the others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from genesis.codegen.cpu.lowerings import contraction
from genesis.codegen.cpu.lowerings.contraction import FEW_ROWS, READ_ALONE, _linear


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rows", "features", "alone"), [
    ((1, 1), READ_ALONE // 64, True), ((FEW_ROWS,), READ_ALONE // 64, True), ((FEW_ROWS + 1,), READ_ALONE // 64, False),
    ((1,), READ_ALONE // 128, False)], ids=["one row", "few", "more", "a small matrix"])
def test_few_rows(rows: tuple[int, ...], features: int, alone: bool, bias: bool,
                  monkeypatch: pytest.MonkeyPatch) -> None:
    if contraction._read_alone is None:
        pytest.skip("torch was built without oneDNN")
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(*rows, 64, generator=generator), torch.randn(features, 64, generator=generator)
    added = torch.randn(features, generator=generator) if bias else None
    called: list[Any] = []
    read = contraction._read_alone
    monkeypatch.setattr(contraction, "_read_alone", lambda *operands: called.append(1) or read(*operands))
    out = torch.full((*rows, features), torch.nan)
    _linear((out,), x, weight, added)
    assert bool(called) == alone
    expected = x.double() @ weight.double().t() + (0 if added is None else added.double())
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)  # sums of 64 products in float32


@pytest.mark.parametrize("apart", ["x", "weight", "bias"])
def test_operands_whose_elements_lie_apart(apart: str) -> None:
    features = READ_ALONE // 64
    x, weight, bias = torch.randn(4, 64), torch.randn(features, 64), torch.randn(features)
    if apart == "x":
        x = torch.randn(64, 4).t()
    elif apart == "weight":
        weight = torch.randn(64, features).t()
    else:
        bias = torch.randn(2 * features)[::2]
    out = torch.empty(4, features)
    _linear((out,), x, weight, bias)
    expected = x.double() @ weight.double().t() + bias.double()
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-4)  # sums of 64 products in float32


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def dots_made(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each product that is made of dot products."""
    made: list[int] = []
    dots = contraction._dots
    monkeypatch.setattr(contraction, "_dots", lambda *operands: made.append(1) or dots(*operands))
    return made


@pytest.mark.parametrize(("features", "size", "number", "apart"), [
    (600, 128, 1, True), (600, 128, 2, False), (500, 127, 1, False), (100, 128, 1, False), (512, 10_000, 1, True),
    (10, 10_001, 1, False)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_product_with_one_vector_is_a_dot_product_a_row(
        features: int, size: int, number: int, apart: bool, dtype: torch.dtype, threads: Callable[[int], None],
        monkeypatch: pytest.MonkeyPatch) -> None:
    """On one thread, where rows are neither short nor so long that BLAS has threads of its own for one."""
    if contraction._vecdot is None:
        pytest.skip("numpy is older than 2")
    threads(number)
    made = dots_made(monkeypatch)
    generator = torch.Generator().manual_seed(0)
    weight, x, bias = (torch.randn(*shape, generator=generator).to(dtype)
                       for shape in ((features, size), (1, 1, size), (features,)))
    wanted = weight.double() @ x.double().flatten()
    rounding = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 1e-2}[dtype]
    error = rounding * (weight.double().abs() @ x.double().abs().flatten()).max()
    for given in (None, bias):
        out = torch.empty(1, 1, features, dtype=dtype)
        _linear([out], x, weight, given)
        exact = wanted if given is None else wanted + bias.double()
        assert (out.flatten().double() - exact).abs().max() < error
    for outs, a, b in (([None], weight, x.view(size, 1)), ([torch.empty(1, features, dtype=dtype)], x[0], weight.t())):
        product = contraction._matmul(outs, a, b)
        assert product.shape == (a.shape[0], b.shape[1])
        assert (product.flatten().double() - wanted).abs().max() < error
    assert len(made) == (4 if apart and dtype is not torch.bfloat16 else 0)


def test_infinities_are_no_errors_of_numpys(threads: Callable[[int], None]) -> None:
    threads(1)
    weight, x, out = torch.ones(600, 128), torch.full((1, 128), float("inf")), torch.empty(1, 600)
    weight[1] = 0
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        _linear([out], x, weight)
    assert out[0, 0] == float("inf") and out[0, 1].isnan()


def test_rows_that_are_apart_in_memory_are_multiplied_as_they_were(threads: Callable[[int], None],
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    threads(1)
    made = dots_made(monkeypatch)
    weight, x, out = torch.randn(600, 256)[:, ::2], torch.randn(1, 128), torch.empty(1, 600)
    _linear([out], x, weight)
    torch.testing.assert_close(out, x @ weight.t())
    assert not made
