"""A seed gives the same bits on the CPU and on CUDA, compiled or not, fused or not."""

from __future__ import annotations

import numpy as np
import pytest

import genesis
from genesis.nn import functional as F
from tests.sweeping import by_default

from .compare import array, same


def draws(device: str) -> list:
    """Draws of every kind, in one order."""
    return [genesis.rand(3, 5, device=device), genesis.randint(0, 1000, (17,), device=device),
            genesis.rand(7, dtype=genesis.float64, device=device), genesis.randint(-5, 5, (2, 3), device=device),
            F.dropout(genesis.ones(4, 9, device=device), 0.3), genesis.rand(0, 3, device=device),
            genesis.rand(2, 2, dtype=genesis.bfloat16, device=device), genesis.rand((), device=device)]


@by_default("gpu-*", "host-fused-False-0", "host-fused-True-1*", "host-unfused-False-1*", "host-unfused-True-0")
@pytest.mark.parametrize("seed", [0, 1234567890123456789])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_same_bits(cuda, fuse, seed, compiled):
    genesis.manual_seed(seed)
    expected = list(map(array, draws("cpu")))
    genesis.manual_seed(seed)
    found = (genesis.compile(draws) if compiled else draws)("cuda")
    for want, got in zip(expected, found, strict=True):
        np.testing.assert_array_equal(array(got), want)


def test_a_seed_of_64_bits(cuda):
    """It goes to the kernel as a signed number."""
    found = []
    for device in ("cpu", "cuda"):
        genesis.manual_seed(2**64 - 3)
        found.append(array(genesis.rand(3, device=device)).tolist())
    assert found[0] == found[1]


def test_a_compiled_function_draws_anew(cuda):
    genesis.manual_seed(3)
    expected = [array(genesis.rand(4) * 2) for _ in range(3)]
    genesis.manual_seed(3)
    noise = genesis.compile(lambda x: genesis.rand(4, device="cuda") * x)
    x = genesis.tensor(2.0, device="cuda")
    for want in expected:
        np.testing.assert_array_equal(array(noise(x)), want)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_normals(cuda, fuse, dtype):
    """Within 4 ulp: log, cos and sqrt are each device's own; 3e-6 is 4 ulp where cos is near 0."""
    dtype = getattr(genesis, dtype)
    genesis.manual_seed(5)
    want = array(genesis.randn(301, dtype=dtype))
    genesis.manual_seed(5)
    same(genesis.randn(301, dtype=dtype, device="cuda"), want,
         {"float32": 3e-6, "float64": 1e-13, "float16": 2e-3}[dtype.name])


def test_where_it_is_drawn_does_not_matter(cuda):
    """Alone, in a chain, through a view, computed twice: an element's bits are its own."""
    found = []
    for use in (lambda x: x, lambda x: (x * 1).t().contiguous().t(), lambda x: x + genesis.zeros(5, 6, device="cuda")):
        genesis.manual_seed(11)
        found.append(array(use(genesis.rand(5, 6, device="cuda"))))
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()
    genesis.manual_seed(11)
    x = genesis.rand(5, 6, device="cuda")
    np.testing.assert_allclose(array(x.sum(0)), found[0].sum(0), rtol=1e-6)
    assert (array(x) == found[0]).all() and (array(x[2]) == found[0][2]).all()


def test_dropout_keeps_its_mask_for_the_gradient(cuda, fuse):
    x = genesis.ones(6, 7, device="cuda", requires_grad=True)
    y = F.dropout(x, 0.4)
    (y * 3).sum().backward()
    np.testing.assert_allclose(array(x.grad), array(y) * 3, rtol=1e-6)
    kept = array(y) != 0
    assert 0.3 < kept.mean() < 0.9
    np.testing.assert_allclose(array(y)[kept], 1 / 0.6, rtol=1e-6)


def test_draws_of_both_devices_count_together(cuda):
    genesis.manual_seed(0)
    a, b = array(genesis.rand(2)), array(genesis.rand(2))
    genesis.manual_seed(0)
    assert (array(genesis.rand(2, device="cuda")) == a).all() and (array(genesis.rand(2)) == b).all()


def test_initial_weights_do_not_depend_on_the_device(cuda):
    weights = []
    for device in ("cpu", "cuda"):
        genesis.manual_seed(0)
        layer = genesis.nn.Linear(3, 4)
        weights.append(array(layer.to(device).weight.detach()))
    assert (weights[0] == weights[1]).all()
