"""Sorts, scans, ranks, sets and searches end to end; on a GPU also at sizes where many programs run at once."""

from __future__ import annotations

import numpy as np
import pytest

import genesis

from .compare import check, check_gradients, integers, numbers, on_gpu_only

NAN = float("nan")


def with_special(*shape: int) -> np.ndarray:
    """Numbers with ties, NaN, infinities and zeros of both signs."""
    random = np.random.default_rng(0)
    x = random.integers(-5, 6, shape).astype(np.float32) / 2
    special = np.array([NAN, np.inf, -np.inf, -0.0], np.float32)
    return np.where(random.random(shape) < 0.2, special[random.integers(0, 4, shape)], x)


def test_sorts(cuda):
    def program(x):
        return [*x.sort(), *x.sort(0, descending=True), x.argsort(1), genesis.msort(x), *x.half().sort(-1),
                *x[0].sort(), x.sort().values[:, ::2]]
    check(program, with_special(5, 40), tolerance=0)


def test_integer_sorts(cuda):
    check(lambda x: [*x.sort(), *x.to(genesis.int8).sort(), *x.to(genesis.bool).sort(), *x.to(genesis.int32).sort(0)],
          integers(-2**40, 2**40, 4, 33) // 2**38, tolerance=0)


def test_ranks(cuda):
    def program(x):
        y = genesis.nan_to_num(x, 0.25, 9.0, -9.0)
        return [x.topk(7).values, y.topk(3, 0, largest=False).values, y.kthvalue(4, 1).values, x.median(1).values,
                x.median(), x.nanmedian(0).values, *y.mode(1), y.quantile(0.3, 1),
                genesis.nanquantile(x.masked_fill(x.isinf(), 1.0), genesis.tensor([0.1, 0.9], device=x.device), 0)]
    check(program, with_special(6, 30))


def test_what_was_found_is_reduced(cuda):
    """One of an op's two results goes, straight or through one more op, into a reduction that alone reads it."""
    check(lambda x: [x.topk(3, 1).values.sum(), x.sort(1).values.sum(0), (x.topk(3, 1).values * 2).amax(1)],
          numbers(6, 30), tolerance=1e-5)


def test_scans(cuda):
    def program(x):
        return [x.cumsum(1), x.cumsum(0), x.abs().cumprod(1), *x.cummax(0), *x.cummin(1), x.logcumsumexp(1),
                x.bfloat16().cumsum(1), (x > 0).cumsum(0)]
    check(program, numbers(5, 37), tolerance=1e-5)


def test_sets(cuda):
    def program(x, y):
        return [*x.unique(return_inverse=True, return_counts=True), *x.unique_consecutive(return_counts=True),
                *y.unique(return_inverse=True, return_counts=True, dim=0), *y.unique(dim=1, return_counts=True),
                *y.unique_consecutive(return_inverse=True, dim=0), genesis.isin(x, x[:3]), genesis.isin(x, x + 1),
                x.clamp(0).bincount(minlength=12), (x / 2.0).histc(5, -2, 2)]
    check(program, integers(-4, 8, 60), integers(0, 2, 20, 3), tolerance=0)


def test_searches(cuda):
    def program(x, y):
        rows, bounds = x.sort().values, x[0].sort().values
        return [genesis.searchsorted(rows, y), genesis.searchsorted(bounds, y, right=True), y.bucketize(bounds),
                genesis.searchsorted(x[0], y[0], sorter=x[0].argsort(), out_int32=True), (y > 0).nonzero(),
                *(y > 0).nonzero(as_tuple=True), y[y > 0], y[y[:, 0] > 0], y.masked_select(y[:1] > 0),
                y.repeat_interleave(2, 0), y[0].repeat_interleave((y[0] > 0).long() + 1)]
    check(program, numbers(3, 20), numbers(3, 7, seed=1), tolerance=0)


def test_gradients(cuda):
    def program(x):
        return [x.sort(0).values, x.topk(2, 1).values, x.kthvalue(2, 0).values, x.median(1).values, x.cumsum(1),
                x.cumprod(1), x.cummax(1).values, x.logcumsumexp(0), x[x > 0], x.masked_select(x < 0),
                x.quantile(0.4, 1), x.repeat_interleave(3, 1)]
    check_gradients(program, numbers(4, 6), tolerance=1e-5)


def test_many_equal_rows_add_up(cuda):
    """More positions than are looked through, most of them the same."""
    rows = np.minimum(integers(0, 60, 700), 5)
    check_gradients(lambda w: w[genesis.tensor(rows, device=w.device)], numbers(6, 5), tolerance=1e-5)
    check(lambda x, i: [x.index_add(0, i, x[i]), x.index_copy(0, i, x[i] * 2),
                        x.scatter_add(0, i[:, None].expand(700, 5), x[i])], numbers(6, 5), rows, tolerance=1e-5)


def test_sums_in_any_order(cuda, monkeypatch):
    monkeypatch.setattr(genesis.config, "deterministic", False)
    check(lambda x, i: x.index_add(0, i, x[i] * 0 + 1), numbers(6, 5), integers(0, 6, 500), tolerance=1e-5)


# Large

def on_both(program, *arrays):
    """The program's results on the GPU and on the CPU, as arrays."""
    found = []
    for device in ("cuda", "cpu"):
        results = program(*(genesis.tensor(x, device=device) for x in arrays))
        found.append([y.cpu().numpy() for y in results])
    return zip(*found, strict=True)


@on_gpu_only
@pytest.mark.parametrize(("shape", "dtype"), [
    ((300, 4096), "bfloat16"), ((300, 3000), "float32"), ((70, 8191), "float16"), ((3, 16384), "float32"),
    ((2, 300_001), "bfloat16"), ((1_000_003,), "int32"), ((500_000,), "int64"), ((5, 100, 70), "float32"),
    ((40_000,), "uint8")])
def test_large_sorts(cuda, shape, dtype):
    """Stable: the indices are the CPU's too."""
    x = np.random.default_rng(0).integers(-2**20, 2**20, shape)
    x = x if dtype.startswith(("int", "uint")) else (x / 2**12).astype(np.float32)

    def program(x):
        y = x.to(getattr(genesis, dtype))
        z = [*y.sort(-1), *y.sort(-1, descending=True), *(y.sort(1) if y.ndim == 3 else ())]
        return [part.float() if part.dtype in (genesis.bfloat16, genesis.float16) else part for part in z]
    for got, want in on_both(program, x):
        np.testing.assert_array_equal(got, want)


@on_gpu_only
@pytest.mark.parametrize(("shape", "k"), [((500, 50304), 50), ((64, 50304), 1000), ((8, 100_003), 3),
                                          ((3_000_000,), 100), ((20, 9000), 4000)])
def test_large_topk(cuda, shape, k):
    """Which of equal elements is taken is open, so a row has none: below 2²⁴ every integer is a float32 of its own."""
    order = np.broadcast_to(np.arange(shape[-1]) - shape[-1] // 2, shape)
    x = np.random.default_rng(0).permuted(order, axis=-1).astype(np.float32)
    for got, want in on_both(lambda x: [*x.topk(k), *x.topk(k, largest=False)], x):
        np.testing.assert_array_equal(got, want)


@on_gpu_only
@pytest.mark.parametrize(("shape", "dim"), [((300, 8192), 1), ((8192, 300), 0), ((1 << 22,), 0), ((5, 100_001), 1),
                                            ((33, 1025, 65), 1)])
def test_large_scans(cuda, shape, dim):
    """Of integers, so that both are exact; gradients too, which scan the other way."""
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float64)

    def program(x):
        leaf = x.clone().requires_grad_()
        y = leaf.cumsum(dim)
        gradient, = genesis.autograd.grad(y, [leaf], x)
        return [y.detach(), gradient, *x.cummax(dim), *x.cummin(dim)]
    for got, want in on_both(program, x):
        np.testing.assert_array_equal(got, want)


@on_gpu_only
def test_large_writes(cuda):
    """Whole numbers, so that any order of the additions gives the same; every run gives the same bits of others."""
    random = np.random.default_rng(0)
    ids = np.minimum(random.zipf(1.3, 100_000) - 1, 49_999)
    source = random.integers(-8, 9, (100_000, 48)).astype(np.float32)

    def program(i, s):
        table = s.new_zeros(50_000, 48)
        flat = (i[:, None] * 7 + genesis.arange(48, device=i.device)) % 50_000
        return [table.index_add(0, i, s), table.index_copy(0, i, s), table.scatter_add(0, flat, s),
                table.long().index_add(0, i, s.long()), i.bincount(), (s > 3).nonzero(), s[s > 5], i.unique()]
    for got, want in on_both(program, ids, source):
        np.testing.assert_array_equal(got, want)
    i, s = genesis.tensor(ids, device="cuda"), genesis.tensor(source, device="cuda") / 3
    runs = {genesis.zeros(50_000, 48, device="cuda").index_add(0, i, s * scale).cpu().numpy().tobytes()
            for scale in (1.0, 1.0)}
    assert len(runs) == 1
