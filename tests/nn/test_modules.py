"""Every layer computes what torch's does, with torch's parameters."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn as tnn
from torch_peer import array_of, both, check_module, numbers

import genesis
from genesis import nn

LAYERS = {
    "linear": (lambda m: m.Linear(5, 3), (4, 5)),
    "linear of a vector": (lambda m: m.Linear(5, 3), (5,)),
    "linear of batches": (lambda m: m.Linear(5, 3), (2, 3, 5)),
    "linear without bias": (lambda m: m.Linear(5, 3, bias=False), (4, 5)),
    "flatten": (lambda m: m.Flatten(), (2, 3, 4)),
    "flatten the front": (lambda m: m.Flatten(0, 1), (2, 3, 4)),
    "identity": (lambda m: m.Identity(7, unused=True), (2, 3)),
    "relu": (lambda m: m.ReLU(), (4, 5)),
    "gelu": (lambda m: m.GELU(), (4, 5)),
    "gelu by tanh": (lambda m: m.GELU(approximate="tanh"), (4, 5)),
    "silu": (lambda m: m.SiLU(), (4, 5)),
    "sigmoid": (lambda m: m.Sigmoid(), (4, 5)),
    "tanh": (lambda m: m.Tanh(), (4, 5)),
    "softmax": (lambda m: m.Softmax(dim=-1), (4, 5)),
    "softmax of a middle dimension": (lambda m: m.Softmax(dim=1), (2, 3, 4)),
    "layer norm": (lambda m: m.LayerNorm(6), (4, 6)),
    "layer norm of two dimensions": (lambda m: m.LayerNorm((3, 4), eps=1e-3), (2, 3, 4)),
    "layer norm without bias": (lambda m: m.LayerNorm(6, bias=False), (4, 6)),
    "layer norm without weight": (lambda m: m.LayerNorm(6, elementwise_affine=False), (4, 6)),
    "rms norm": (lambda m: m.RMSNorm(6), (4, 6)),
    "rms norm with eps": (lambda m: m.RMSNorm(6, eps=1e-2), (4, 6)),
    "rms norm without weight": (lambda m: m.RMSNorm((3, 4), elementwise_affine=False), (2, 3, 4)),
    "sequential": (lambda m: m.Sequential(m.Linear(5, 8), m.GELU(), m.LayerNorm(8), m.Linear(8, 2)), (4, 5)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_torchs(name: str) -> None:
    make, shape = LAYERS[name]
    check_module(make(nn), make(tnn), numbers(*shape), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_prints_as_torchs(name: str) -> None:
    make, _ = LAYERS[name]
    assert repr(make(nn)) == repr(make(tnn))


@pytest.mark.parametrize("padding_idx", [None, 0, -1])
def test_embedding(padding_idx: int | None) -> None:
    ids = np.array([[1, 0, 4], [4, 4, 2]])
    check_module(nn.Embedding(5, 3, padding_idx=padding_idx), tnn.Embedding(5, 3, padding_idx=padding_idx), ids)


def test_a_padding_row_starts_at_zero() -> None:
    assert nn.Embedding(5, 3, padding_idx=2).weight[2].tolist() == [0.0, 0.0, 0.0]


def test_relu_in_place_writes_its_input() -> None:
    x = genesis.tensor([-1.0, 2.0])
    assert nn.ReLU(inplace=True)(x) is x
    assert x.tolist() == [0.0, 2.0]


def test_dropout_drops_and_scales() -> None:
    x = genesis.ones(10_000)
    y = array_of(nn.Dropout(0.25)(x))
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((y == 0).mean() - 0.25) < 0.02  # four standard deviations


def test_dropout_passes_gradient_where_it_passed_values() -> None:
    x = genesis.ones(1000, requires_grad=True)
    y = nn.Dropout(0.5)(x)
    y.sum().backward()
    assert np.array_equal(array_of(y), array_of(x.grad))


def test_dropout_does_nothing_in_eval_mode() -> None:
    x = genesis.ones(3)
    assert nn.Dropout(0.9).eval()(x) is x


def test_dropout_of_everything() -> None:
    assert nn.Dropout(1.0)(genesis.ones(3)).tolist() == [0.0, 0.0, 0.0]


def test_two_dropouts_differ_and_a_seed_repeats() -> None:
    def draw() -> np.ndarray:
        genesis.manual_seed(3)
        return np.stack([array_of(nn.Dropout()(genesis.ones(100))) for _ in range(2)])
    first, again = draw(), draw()
    assert not np.array_equal(first[0], first[1])
    assert np.array_equal(first, again)


def test_dropout_needs_a_probability() -> None:
    with pytest.raises(ValueError, match="not a probability"):
        nn.Dropout(1.5)


@pytest.mark.parametrize("low, high, layer", [
    (-0.5, 0.5, lambda: nn.Linear(4, 5000).weight),  # 1/√4
    (-0.5, 0.5, lambda: nn.Linear(4, 5000).bias),
])
def test_linear_starts_uniform(low, high, layer) -> None:  # type: ignore[no-untyped-def]
    values = array_of(layer())
    assert values.min() >= low and values.max() <= high
    assert abs(values.std() - (high - low) / 12**0.5) < 0.01


def test_embedding_starts_normal() -> None:
    values = array_of(nn.Embedding(1000, 20).weight)
    assert abs(values.mean()) < 0.03 and abs(values.std() - 1) < 0.03


@pytest.mark.parametrize("function, torch_function, options", [
    (nn.init.xavier_uniform_, tnn.init.xavier_uniform_, {"gain": 2.0}),
    (nn.init.xavier_normal_, tnn.init.xavier_normal_, {}),
    (nn.init.kaiming_uniform_, tnn.init.kaiming_uniform_, {"nonlinearity": "relu"}),
    (nn.init.kaiming_normal_, tnn.init.kaiming_normal_, {"mode": "fan_out", "a": 0.2}),
])
def test_initial_deviations(function, torch_function, options) -> None:  # type: ignore[no-untyped-def]
    ours, theirs = both(np.zeros((200, 100), np.float32))
    assert function(ours, **options) is ours
    torch_function(theirs, **options)
    assert abs(array_of(ours).std() / theirs.std().item() - 1) < 0.05


def test_a_shape_that_does_not_fit_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"\(4, 6\).*\(3, 5\)"):
        nn.Linear(5, 3)(genesis.ones(4, 6))
    with pytest.raises(RuntimeError, match="normalized shape"):
        nn.LayerNorm(6)(genesis.ones(4, 5))
