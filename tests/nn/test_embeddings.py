"""Tables beside torch's: padding, norms, frequencies, bags."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from torch import nn as tnn
from torch_peer import array_of, assert_same, both, check_module, check_result, numbers

import genesis
import genesis.nn.functional as F
from genesis import nn

IDS = np.array([1, 0, 4, 4, 2, 1, 1])
OFFSETS = np.array([0, 2, 2, 5])
TABLE = numbers(5, 3) * 2


@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"padding_idx": -1}, {"scale_grad_by_freq": True},
                                     {"scale_grad_by_freq": True, "padding_idx": 4}, {"max_norm": 1.0},
                                     {"max_norm": 0.5, "norm_type": 1.0}], ids=str)
@pytest.mark.parametrize("shape", [(7,), (7, 1)])
def test_embedding(options: dict[str, Any], shape: tuple[int, ...]) -> None:
    weight, tweight = both(TABLE, grad=True)
    ids, tids = both(IDS.reshape(shape))
    check_result(F.embedding(ids, weight, **options), TF.embedding(tids, tweight, **options), [(weight, tweight)])
    assert_same(weight, tweight)  # a largest norm changes the table


@pytest.mark.parametrize("mode, options", [*itertools.product(["sum", "mean", "max"], [
    {}, {"padding_idx": 4}, {"max_norm": 1.0}, {"include_last_offset": True}])], ids=str)
def test_bags_by_offsets(mode: str, options: dict[str, Any]) -> None:
    weight, tweight = both(TABLE, grad=True)
    ids, tids = both(IDS)
    offsets, toffsets = both(np.append(OFFSETS, 7) if "include_last_offset" in options else OFFSETS)
    check_result(F.embedding_bag(ids, weight, offsets, mode=mode, **options),
                 TF.embedding_bag(tids, tweight, toffsets, mode=mode, **options), [(weight, tweight)])


@pytest.mark.parametrize("mode, padding", [*itertools.product(["sum", "mean", "max"], [None, 4])])
def test_bags_of_equal_length(mode: str, padding: int | None) -> None:
    weight, tweight = both(TABLE, grad=True)
    ids, tids = both(np.array([[1, 0, 4], [4, 4, 4], [2, 1, 4]]))
    check_result(F.embedding_bag(ids, weight, mode=mode, padding_idx=padding),
                 TF.embedding_bag(tids, tweight, mode=mode, padding_idx=padding), [(weight, tweight)])


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_of_bags_by_frequency(mode: str) -> None:
    """Not beside torch: on the CPU it divides by the counts of other rows (counts[indices[i]] for the i-th one)."""
    found = []
    for by_frequency in (False, True):
        weight, _ = both(TABLE, grad=True)
        y = F.embedding_bag(genesis.tensor(IDS), weight, genesis.tensor(OFFSETS), mode=mode,
                            scale_grad_by_freq=by_frequency)
        (y * genesis.tensor(numbers(4, 3))).sum().backward()
        found.append(array_of(weight.grad))
    counts = np.maximum(np.bincount(IDS, minlength=5), 1)[:, None]
    np.testing.assert_allclose(found[1], found[0] / counts, rtol=1e-6)


@pytest.mark.parametrize("bags", [True, False])
def test_weights_of_the_rows(bags: bool) -> None:
    weight, tweight = both(TABLE, grad=True)
    factors, tfactors = both(numbers(7, seed=3) if bags else numbers(1, 7, seed=3), grad=True)
    ids, tids = both(IDS if bags else IDS[None])
    offsets, toffsets = both(OFFSETS) if bags else (None, None)
    check_result(F.embedding_bag(ids, weight, offsets, mode="sum", per_sample_weights=factors),
                 TF.embedding_bag(tids, tweight, toffsets, mode="sum", per_sample_weights=tfactors),
                 [(weight, tweight), (factors, tfactors)])


def test_a_bag_longer_than_any_step_of_the_maximum() -> None:
    ids = np.random.default_rng(0).integers(0, 50, 300)
    offsets = np.array([0, 1, 130, 130, 290])
    weight, tweight = both(numbers(50, 4), grad=True)
    (x, tx), (o, to) = both(ids), both(offsets)
    check_result(F.embedding_bag(x, weight, o, mode="max"), TF.embedding_bag(tx, tweight, to, mode="max"),
                 [(weight, tweight)])


LAYERS = {
    "embedding": (lambda m: m.Embedding(5, 3, max_norm=1.0, scale_grad_by_freq=True), IDS),
    "embedding padding": (lambda m: m.Embedding(5, 3, padding_idx=1, norm_type=1.0), IDS),
    "bag": (lambda m: m.EmbeddingBag(5, 3), IDS[None]),
    "bag max": (lambda m: m.EmbeddingBag(5, 3, mode="max", padding_idx=2, max_norm=3.0), IDS[None]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_torchs(name: str) -> None:
    make, ids = LAYERS[name]
    check_module(make(nn), make(tnn), ids)
    assert repr(make(nn)) == repr(make(tnn))


def test_a_given_table() -> None:
    layer = nn.Embedding.from_pretrained(genesis.tensor(TABLE))
    theirs = tnn.Embedding.from_pretrained(torch.tensor(TABLE))
    assert not layer.weight.requires_grad
    (x, tx) = both(IDS)
    assert_same(layer(x), theirs(tx))
    assert nn.EmbeddingBag.from_pretrained(genesis.tensor(TABLE), freeze=False, mode="sum").weight.requires_grad


def test_one_hot() -> None:
    assert np.array_equal(array_of(F.one_hot(genesis.tensor(IDS), 6)), np.eye(6, dtype=np.int64)[IDS])


@pytest.mark.parametrize("call, error, message", [
    (lambda t, i: F.embedding(i, t[0]), RuntimeError, "2-D"),
    (lambda t, i: F.embedding(i, t, padding_idx=7), AssertionError, "within num_embeddings"),
    (lambda t, i: F.embedding(i.float(), t), IndexError, "integer dtype"),
    (lambda t, i: F.embedding_bag(i, t), ValueError, "offsets has to be"),
    (lambda t, i: F.embedding_bag(i[None], t, i), ValueError, "if input is 2D"),
    (lambda t, i: F.embedding_bag(i[None], t, mode="prod"), ValueError, "mode has to be"),
    (lambda t, i: F.embedding_bag(i[None], t, per_sample_weights=t), ValueError, "same shape"),
    (lambda t, i: F.embedding_bag(i[None], t, per_sample_weights=t[:1, :1].expand(1, 7)), NotImplementedError, "sum"),
    (lambda t, i: nn.Embedding(5, 3, padding_idx=5), AssertionError, "within num_embeddings"),
])
def test_errors(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call(genesis.tensor(TABLE), genesis.tensor(IDS))
