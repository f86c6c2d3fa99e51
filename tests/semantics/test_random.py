"""The same seed gives the same bits, wherever, whenever and in whatever plan they are computed."""

from __future__ import annotations

import copy
import pickle

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


@pytest.mark.parametrize("dtype", [genesis.float16, genesis.bfloat16, genesis.float32, genesis.float64])
def test_uniform_is_below_one_in_every_dtype(dtype):
    """24 bits rounded to a narrow dtype would give 1 now and then."""
    genesis.manual_seed(0)
    x = genesis.rand(50000, dtype=dtype)
    assert x.max().item() < 1 and x.min().item() >= 0
    assert abs(x.double().mean().item() - 0.5) < 5 * (1 / 12 / 50000) ** 0.5 + dtype.eps


def test_uniform_in_place_stays_within_its_ends():
    genesis.manual_seed(0)
    x = genesis.empty(50000, dtype=genesis.bfloat16).uniform_(2, 3)
    assert x.min().item() >= 2 and x.max().item() <= 3
    named = genesis.empty(9).uniform_(**{"from": 5, "to": 6})
    assert named.min().item() >= 5


def test_a_permutation_has_every_number_once():
    genesis.manual_seed(0)
    found = genesis.randperm(1000).tolist()
    assert sorted(found) == list(range(1000)) and found != sorted(found)
    assert genesis.randperm(0).tolist() == [] and genesis.randperm(3, dtype=genesis.int32).dtype is genesis.int32


@pytest.mark.parametrize("replacement", [True, False])
def test_multinomial_draws_by_weight(replacement):
    """First draws of many rows have the weights' shares; without replacement a row repeats nothing."""
    genesis.manual_seed(0)
    n, weights = 20000, [1.0, 0.0, 2.0, 5.0]
    rows = genesis.tensor([weights]).expand(n, 4)
    found = genesis.multinomial(rows, 3, replacement).numpy()
    share = np.bincount(found[:, 0], minlength=4) / n
    wanted = np.array(weights) / sum(weights)
    assert (abs(share - wanted) <= 5 * np.sqrt(wanted * (1 - wanted) / n)).all()
    assert 1 not in found
    if not replacement:
        assert all(len(set(row)) == 3 for row in found.tolist())


@pytest.mark.parametrize(("draw", "mean", "deviation"), [
    (lambda x: x.exponential_(2.0), 0.5, 0.5), (lambda x: x.geometric_(0.25), 4.0, 12 ** 0.5),
    (lambda x: x.bernoulli_(0.3), 0.3, 0.21 ** 0.5), (lambda x: x.random_(10), 4.5, 8.25 ** 0.5),
    (lambda x: x.log_normal_(0.0, 0.5), np.exp(0.125), np.sqrt((np.exp(0.25) - 1) * np.exp(0.25)))])
def test_distributions_have_their_means(draw, mean, deviation):
    """Within five standard errors."""
    genesis.manual_seed(0)
    n = 40000
    x = draw(genesis.empty(n))
    assert abs(x.double().mean().item() - mean) < 5 * deviation / n ** 0.5


def test_generators_state_is_sixteen_bytes():
    own = genesis.Generator().manual_seed(-1)
    assert own.initial_seed() == 2**64 - 1 and own.device == genesis.device("cpu")
    first = genesis.rand(3, generator=own).tolist()
    copy, state = own.clone_state(), own.get_state()
    assert state.dtype is genesis.uint8 and state.shape == (16,)
    second = genesis.rand(3, generator=own).tolist()
    assert first != second == genesis.rand(3, generator=copy).tolist()
    assert genesis.rand(3, generator=own.set_state(state)).tolist() == second
    with pytest.raises(RuntimeError, match="RNG state is of the wrong size"):
        own.set_state(genesis.zeros(3, dtype=genesis.uint8))
    with pytest.raises(TypeError, match=r"expected a genesis\.uint8 tensor"):
        own.set_state(genesis.zeros(16))
    with pytest.raises(ValueError, match="is not in"):
        own.manual_seed(2**64)


def test_threads_draw_different_numbers():
    from concurrent.futures import ThreadPoolExecutor
    own = genesis.Generator().manual_seed(0)
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda _: own.next_draw(), range(400)))
    assert sorted(draw for _, draw in drawn) == list(range(400))


@pytest.mark.parametrize(("call", "message"), [
    (lambda: genesis.rand(2, dtype=genesis.int64), "only for floating-point"),
    (lambda: genesis.randint(3, 3, (2,)), "expects 'from' to be less than 'to'"),
    (lambda: genesis.randint(0, 300, (2,), dtype=genesis.uint8), "out of bounds"),
    (lambda: genesis.randperm(-1), "n must be non-negative"),
    (lambda: genesis.randperm(300, dtype=genesis.uint8), "n is too large"),
    (lambda: genesis.normal(0.0, -1.0, (2,)), "expects std >= 0.0"),
    (lambda: genesis.bernoulli(genesis.ones(2).long()), "not implemented for"),
    (lambda: genesis.empty(2).bernoulli_(2.0), r"expects p to be in \[0, 1\]"),
    (lambda: genesis.empty(2).uniform_(2, 1), "expects to return a"),
    (lambda: genesis.empty(2).exponential_(0.0), "expects lambda > 0"),
    (lambda: genesis.empty(2).geometric_(1.0), r"expects p to be in \(0, 1\)"),
    (lambda: genesis.empty(2).log_normal_(0.0, 0.0), r"expects std > 0\.0"),
    (lambda: genesis.empty(2).cauchy_(0.0, 0.0), r"expects sigma > 0\.0"),
    (lambda: genesis.multinomial(genesis.ones(3), 4), "without replacement"),
    (lambda: genesis.multinomial(genesis.ones(3), 0), "n_sample <= 0"),
    (lambda: genesis.multinomial(genesis.ones(1, 1, 1), 1), "1 or 2 dim")])
def test_what_cannot_be_drawn_is_refused(call, message):
    with pytest.raises(RuntimeError, match=message):
        call()


def test_seeds_of_64_bits() -> None:
    """As in torch: negative ones count from 2^64, and no two others are the same."""
    seeds = [0, 1, 2**32, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1]
    found = {}
    for seed in seeds:
        assert genesis.manual_seed(seed).initial_seed() == seed
        found[seed] = tuple(genesis.rand(4).tolist())
    assert len(set(found.values())) == len(seeds)
    for seed in (-1, -(2**63)):
        assert genesis.manual_seed(seed).initial_seed() == seed + 2**64
        assert tuple(genesis.rand(4).tolist()) == found[seed + 2**64]
    for seed in (2**64, -(2**63) - 1):
        with pytest.raises(ValueError, match="is not in"):
            genesis.manual_seed(seed)


def test_a_copied_or_pickled_generator_goes_on() -> None:
    generator = genesis.Generator().manual_seed(3)
    genesis.rand(4, generator=generator).tolist()
    copies = pickle.loads(pickle.dumps(generator)), copy.deepcopy(generator), generator.clone_state()
    want = genesis.rand(4, generator=generator).tolist()
    assert [genesis.rand(4, generator=each).tolist() for each in copies] == [want] * 3
