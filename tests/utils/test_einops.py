"""einops' documented examples over tensors of Genesis, beside numpy."""

from __future__ import annotations

import copy
import importlib

import numpy as np
import pytest

import genesis

einops = pytest.importorskip("einops")
IMAGES = np.random.RandomState(0).randn(6, 4, 6, 3).astype(np.float32)


@pytest.mark.parametrize(("pattern", "sizes"), [
    ("b h w c -> b h w c", {}), ("b h w c -> (b h) w c", {}), ("b h w c -> h (b w) c", {}),
    ("b h w c -> b c h w", {}), ("b h w c -> b (c h w)", {}),
    ("b (h1 h) (w1 w) c -> (b h1 w1) h w c", {"h1": 2, "w1": 2}),
    ("b (h h1) (w w1) c -> b h w (c h1 w1)", {"h1": 2, "w1": 2}), ("(b1 b2) h w c -> (b1 h) (b2 w) c", {"b1": 2})])
def test_rearrange(pattern: str, sizes: dict[str, int]) -> None:
    found = einops.rearrange(genesis.tensor(IMAGES), pattern, **sizes)
    np.testing.assert_array_equal(found.numpy(), einops.rearrange(IMAGES, pattern, **sizes))


@pytest.mark.parametrize("reduction", ["mean", "min", "max", "sum", "prod"])
@pytest.mark.parametrize(("pattern", "sizes"), [
    ("b h w c -> h w c", {}), ("b h w c -> b () () c", {}), ("b (h h1) (w w1) c -> b h w c", {"h1": 2, "w1": 2})])
def test_reduce(pattern: str, sizes: dict[str, int], reduction: str) -> None:
    found = einops.reduce(genesis.tensor(IMAGES), pattern, reduction, **sizes)
    np.testing.assert_allclose(found.numpy(), einops.reduce(IMAGES, pattern, reduction, **sizes), rtol=1e-5, atol=1e-6)


def test_repeat_pack_einsum_and_lists() -> None:
    x = genesis.tensor(IMAGES)
    np.testing.assert_array_equal(einops.repeat(x, "b h w c -> b (h 2) w c").numpy(),
                                  einops.repeat(IMAGES, "b h w c -> b (h 2) w c"))
    packed, shapes = einops.pack([x, x[:, 0]], "b * c")
    assert packed.shape == (6, 30, 3)
    assert einops.unpack(packed, shapes, "b * c")[0].tolist() == x.tolist()
    np.testing.assert_allclose(einops.einsum(x, x, "b h w c, b h w d -> c d").numpy(),
                               einops.einsum(IMAGES, IMAGES, "b h w c, b h w d -> c d"), rtol=1e-4)
    assert einops.rearrange(list(x), "b h w c -> b h w c").shape == x.shape
    assert einops.parse_shape(x, "b h w c") == {"b": 6, "h": 4, "w": 6, "c": 3}


@pytest.mark.parametrize("compiled", [False, True])
def test_gradients_and_compiled_functions(compiled: bool) -> None:
    def loss(x: genesis.Tensor) -> genesis.Tensor:
        return (einops.rearrange(x, "b h w c -> b c (h w)") ** 2).sum()
    run = genesis.compile(loss) if compiled else loss
    for _ in range(3):
        x = genesis.tensor(IMAGES, requires_grad=True)
        run(x).backward()
        assert x.grad is not None
        np.testing.assert_allclose(x.grad.numpy(), 2 * IMAGES, rtol=1e-6)
    assert not compiled or genesis.explain(run).hits


@pytest.mark.parametrize("compiled", [False, True])
def test_layers_are_modules(compiled: bool) -> None:
    layers = importlib.import_module("einops.layers.genesis")
    genesis.manual_seed(0)
    net = genesis.nn.Sequential(
        layers.Rearrange("b (h h1) w c -> b h w (h1 c)", h1=2), genesis.nn.Linear(6, 4),
        layers.EinMix("b h w (g c) -> b h (w d)", weight_shape="g c d", bias_shape="d", g=2, c=2, d=3),
        layers.Reduce("b h w -> b w", "mean"))
    assert [name for name, _ in net.named_parameters()] == ["1.weight", "1.bias", "2.weight", "2.bias"]
    assert repr(net[3]) == "Reduce('b h w -> b w', 'mean')"
    weights = {name: np.array(p.tolist(), np.float32) for name, p in net.named_parameters()}
    run = genesis.compile(net) if compiled else net
    for _ in range(3):
        found = run(genesis.tensor(IMAGES))
        hidden = einops.rearrange(IMAGES, "b (h h1) w c -> b h w (h1 c)", h1=2) @ weights["1.weight"].T
        hidden = hidden + weights["1.bias"]
        mixed = np.einsum("bhwgc,gcd->bhwd", hidden.reshape(6, 2, 6, 2, 2), weights["2.weight"]) + weights["2.bias"][0]
        np.testing.assert_allclose(found.detach().numpy(), mixed.reshape(6, 2, 18).mean(1), rtol=2e-5, atol=2e-6)
        found.sum().backward()
    assert not compiled or genesis.explain(run).hits
    assert copy.deepcopy(net)(genesis.tensor(IMAGES)).tolist() == net(genesis.tensor(IMAGES)).tolist()
