"""The same seed gives the same bits, wherever, whenever and in whatever plan they are computed."""

from __future__ import annotations

import numpy as np
import pytest

import genesis
from genesis import nn

DRAWS = {
    "rand": lambda: genesis.rand(3, 5),
    "randn": lambda: genesis.randn(3, 5),
    "randint": lambda: genesis.randint(-3, 1000, (3, 5)),
    "rand_double": lambda: genesis.rand(7, dtype=genesis.float64),
    "rand_half": lambda: genesis.rand(7, dtype=genesis.float16),
    "uniform_": lambda: genesis.empty(3, 5).uniform_(-2, 3),
    "normal_": lambda: genesis.empty(3, 5).normal_(1, 0.5),
    "normal": lambda: genesis.normal(2.0, 3.0, (4,)),
    "dropout": lambda: nn.functional.dropout(genesis.ones(50), 0.3),
    "rand_like": lambda: genesis.rand_like(genesis.ones(2, 2)),
}


@pytest.fixture(params=DRAWS)
def draw(request):
    """One way to draw."""
    return DRAWS[request.param]


def bits(tensor) -> bytes:
    """The content, bit for bit."""
    return tensor.detach().numpy().tobytes()


def test_a_seed_gives_the_same_bits(draw):
    genesis.manual_seed(1)
    first, second = draw(), draw()
    genesis.manual_seed(1)
    again = draw()
    genesis.manual_seed(2)
    other = draw()
    assert bits(first) == bits(again)
    assert bits(first) != bits(second) and bits(first) != bits(other)


def test_when_it_is_read_does_not_matter(draw):
    """Drawn first and read last, after other draws, or alone."""
    genesis.manual_seed(3)
    late = draw()
    genesis.rand(3).tolist()
    later = draw()
    values = bits(later), bits(late)
    genesis.manual_seed(3)
    early = bits(draw())
    genesis.rand(3)
    assert values == (bits(draw()), early)


def test_what_it_is_fused_with_does_not_matter(draw):
    """Read through other ops, in one plan with them, or before them."""
    genesis.manual_seed(4)
    alone = draw().double().numpy()
    genesis.manual_seed(4)
    x = draw()
    inside = (x.double() * 3 + 1).view(-1)
    genesis.manual_seed(4)
    y = draw()
    y.tolist()
    apart = (y.double() * 3 + 1).view(-1)
    assert bits(inside) == bits(apart)
    np.testing.assert_array_equal(alone, x.double().numpy())


def test_a_value_is_drawn_once(draw):
    """Reading twice, or reading parts, draws nothing new."""
    genesis.manual_seed(5)
    x = draw()
    part = x.view(-1)[:2].tolist()
    assert bits(x) == bits(x) and x.view(-1)[:2].tolist() == part
    assert (x - x).abs().sum().item() == 0


def test_equal_draws_are_different_values():
    """Two draws of one shape are two values though they look alike."""
    a, b = genesis.rand(4), genesis.rand(4)
    assert (a - b).abs().sum().item() > 0


def test_shape_does_not_change_the_elements():
    """The element's logical index counts, not the shape."""
    genesis.manual_seed(6)
    a = genesis.rand(12)
    genesis.manual_seed(6)
    b = genesis.rand(3, 4)
    assert bits(a) == bits(b)


def test_the_backward_of_dropout_sees_the_same_mask():
    x = genesis.ones(200, requires_grad=True)
    y = nn.functional.dropout(x, 0.4)
    y.sum().item()
    y.sum().backward()
    assert bits(x.grad) == bits(y)


def test_the_backward_of_dropout_in_one_plan():
    x = genesis.ones(200, requires_grad=True)
    y = nn.functional.dropout(x, 0.4)
    y.sum().backward()
    assert bits(x.grad) == bits(y)


def test_state_goes_back():
    genesis.manual_seed(7)
    genesis.rand(3)
    state = genesis.get_rng_state()
    a, b = bits(genesis.rand(3)), bits(genesis.randn(2))
    genesis.set_rng_state(state)
    assert (bits(genesis.rand(3)), bits(genesis.randn(2))) == (a, b)


def test_generators_are_independent():
    own = genesis.Generator().manual_seed(1)
    genesis.manual_seed(1)
    first = bits(genesis.rand(3, generator=own))
    genesis.manual_seed(9)
    genesis.rand(3)
    own.manual_seed(1)
    assert bits(genesis.rand(3, generator=own)) == first


def test_compiled_or_not():
    """A compiled function draws the bits that it draws uncompiled, and anew at each call."""
    def noisy(x):
        return nn.functional.dropout(x + genesis.rand(4), 0.5) + genesis.randn(4)

    x = genesis.ones(4)
    compiled = genesis.compile(noisy)
    genesis.manual_seed(8)
    expected = [bits(noisy(x)) for _ in range(4)]
    genesis.manual_seed(8)
    assert [bits(compiled(x)) for _ in range(4)] == expected
    assert len(set(expected)) == 4


def test_moments():
    """Enough draws for five standard errors."""
    genesis.manual_seed(0)
    n = 40000
    u, z = genesis.rand(n), genesis.randn(n)
    i = genesis.randint(0, 10, (n,)).numpy()
    assert abs(u.mean().item() - 0.5) < 5 * (1 / 12 / n) ** 0.5 and u.min().item() >= 0 and u.max().item() < 1
    assert abs(z.mean().item()) < 5 / n ** 0.5 and abs(z.var().item() - 1) < 5 * (2 / n) ** 0.5
    counts = np.bincount(i, minlength=10)
    assert len(counts) == 10 and abs(counts - n / 10).max() < 5 * (n * 0.09) ** 0.5
    kept = (nn.functional.dropout(genesis.ones(n), 0.25) > 0).float().mean().item()
    assert abs(kept - 0.75) < 5 * (0.25 * 0.75 / n) ** 0.5
