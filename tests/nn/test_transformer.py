"""Attention with several heads and the Transformer's layers beside torch's, with torch's weights."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from torch import nn as tnn
from torch_peer import assert_same, both, check_result, copy_weights, numbers

import genesis
import genesis.nn.functional as F
from genesis import nn

PADDING = np.array([[False, False, False, True, True], [False, False, False, False, True]])
CAUSAL = np.triu(np.ones((5, 5), bool), 1)


def pair(make: Any) -> tuple[Any, Any]:
    """The layer of each framework with equal weights, biases that are not 0."""
    theirs = make(tnn)
    with torch.no_grad():
        for seed, parameter in enumerate(theirs.parameters()):
            parameter.copy_(torch.tensor(numbers(*parameter.shape, seed=seed) * 0.3))
    ours = make(nn)
    copy_weights(ours, theirs)
    return ours, theirs


def gradients_agree(ours: Any, theirs: Any) -> None:
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        assert_same(parameter.grad, expected[name].grad, rtol=1e-3, atol=1e-4)


MASKS: dict[str, dict[str, np.ndarray]] = {
    "none": {}, "padding": {"key_padding_mask": PADDING}, "causal": {"attn_mask": CAUSAL},
    "both": {"key_padding_mask": PADDING, "attn_mask": CAUSAL},
    "numbers": {"attn_mask": numbers(5, 5, seed=8)},
    "numbers and padding": {"attn_mask": numbers(5, 5, seed=8), "key_padding_mask": np.where(PADDING, -1.5, 0).astype(
        np.float32)},
    "of each head": {"attn_mask": numbers(4, 5, 5, seed=8) > 1},
}


@pytest.mark.parametrize("mask, weights, options", [*itertools.product(
    MASKS, [True, False], [{}, {"bias": False}, {"add_bias_kv": True, "add_zero_attn": True}, {"batch_first": True}])])
def test_multihead_attention(mask: str, weights: bool, options: dict[str, Any]) -> None:
    ours, theirs = pair(lambda m: m.MultiheadAttention(8, 2, **options))
    shape = (2, 5, 8) if options.get("batch_first") else (5, 2, 8)
    x, tx = both(numbers(*shape), grad=True)
    found = {name: both(array) for name, array in MASKS[mask].items()}
    y, seen = ours(x, x, x, need_weights=weights, **{name: m for name, (m, _) in found.items()})
    ty, tseen = theirs(tx, tx, tx, need_weights=weights, **{name: m for name, (_, m) in found.items()})
    check_result(y, ty, [(x, tx)], rtol=1e-3, atol=1e-4)
    gradients_agree(ours, theirs)
    if weights:
        assert_same(seen, tseen, rtol=1e-3, atol=1e-5)
    else:
        assert seen is None


def test_keys_and_values_of_other_sizes() -> None:
    ours, theirs = pair(lambda m: m.MultiheadAttention(8, 2, kdim=3, vdim=6))
    pairs = [both(numbers(*shape, seed=i), grad=True) for i, shape in enumerate([(5, 2, 8), (7, 2, 3), (7, 2, 6)])]
    (y, seen), (ty, tseen) = ours(*(x for x, _ in pairs)), theirs(*(x for _, x in pairs))
    check_result(y, ty, pairs, rtol=1e-3, atol=1e-4)
    gradients_agree(ours, theirs)
    assert_same(seen, tseen, rtol=1e-3)
    for average in (True, False):
        assert_same(ours(*(x for x, _ in pairs), average_attn_weights=average)[1],
                    theirs(*(x for _, x in pairs), average_attn_weights=average)[1], rtol=1e-3)


def test_without_a_batch_and_causal() -> None:
    ours, theirs = pair(lambda m: m.MultiheadAttention(8, 2))
    x, tx = both(numbers(5, 8), grad=True)
    mask, tmask = both(CAUSAL)
    for weights in (True, False):
        y, _ = ours(x, x, x, attn_mask=mask, is_causal=True, need_weights=weights)
        ty, _ = theirs(tx, tx, tx, attn_mask=tmask, is_causal=True, need_weights=weights)
        assert_same(y, ty, rtol=1e-3, atol=1e-5)


ENCODERS: dict[str, dict[str, Any]] = {
    "plain": {}, "gelu first": {"activation": "gelu", "norm_first": True}, "batch first": {"batch_first": True},
    "no bias": {"bias": False, "layer_norm_eps": 1e-3}}


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder_layer(name: str) -> None:
    ours, theirs = pair(lambda m: m.TransformerEncoderLayer(8, 2, 16, dropout=0.0, **ENCODERS[name]))
    x, tx = both(numbers(*(2, 5, 8) if "batch first" in name else (5, 2, 8)), grad=True)
    (padding, tpadding), (mask, tmask) = both(PADDING), both(CAUSAL)
    check_result(ours(x, mask, padding), theirs(tx, tmask, tpadding), [(x, tx)], rtol=1e-3, atol=1e-4)
    gradients_agree(ours, theirs)


@pytest.mark.parametrize("name", ENCODERS)
def test_decoder_layer(name: str) -> None:
    ours, theirs = pair(lambda m: m.TransformerDecoderLayer(8, 2, 16, dropout=0.0, **ENCODERS[name]))
    turned = "batch first" in name
    x, tx = both(numbers(*(2, 5, 8) if turned else (5, 2, 8)), grad=True)
    memory, tmemory = both(numbers(*(2, 7, 8) if turned else (7, 2, 8), seed=1), grad=True)
    mask, tmask = both(CAUSAL)
    check_result(ours(x, memory, mask), theirs(tx, tmemory, tmask), [(x, tx), (memory, tmemory)], rtol=1e-3, atol=1e-4)
    gradients_agree(ours, theirs)


def test_a_transformer() -> None:
    ours, theirs = pair(lambda m: m.Transformer(8, 2, 2, 2, 16, dropout=0.0))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    (x, tx), (y, ty) = both(numbers(5, 2, 8), grad=True), both(numbers(4, 2, 8, seed=1), grad=True)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    tmask = tnn.Transformer.generate_square_subsequent_mask(4)
    assert_same(mask, tmask)
    check_result(ours(x, y, tgt_mask=mask), theirs(tx, ty, tgt_mask=tmask), [(x, tx), (y, ty)], rtol=1e-3, atol=1e-4)


def test_copies_of_a_layer_share_nothing() -> None:
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2)
    first, second = (layer.linear1.weight for layer in encoder.layers)
    assert first is not second and np.array_equal(first.detach().numpy(), second.detach().numpy())


@pytest.mark.parametrize("shape, bias", [*itertools.product([(5,), (2, 3), ()], [True, False])])
def test_bilinear(shape: tuple[int, ...], bias: bool) -> None:
    x, tx = both(numbers(*shape, 3), grad=True)
    y, ty = both(numbers(*shape, 4, seed=1), grad=True)
    weight, tweight = both(numbers(6, 3, 4, seed=2), grad=True)
    extra, textra = both(numbers(6, seed=3), grad=True) if bias else (None, None)
    check_result(F.bilinear(x, y, weight, extra), TF.bilinear(tx, ty, tweight, textra),
                 [(x, tx), (y, ty), (weight, tweight)], rtol=1e-4, atol=1e-5)


def test_a_bilinear_layer() -> None:
    ours, theirs = pair(lambda m: m.Bilinear(3, 4, 5))
    (x, tx), (y, ty) = both(numbers(2, 3)), both(numbers(2, 4, seed=1))
    assert_same(ours(x, y), theirs(tx, ty), rtol=1e-4)
    assert repr(ours) == repr(theirs)
    assert nn.Unflatten(1, (2, 3))(genesis.ones(4, 6)).shape == (4, 2, 3)


@pytest.mark.parametrize("call, error, message", [
    (lambda x: nn.MultiheadAttention(8, 3), AssertionError, "divisible"),
    (lambda x: nn.MultiheadAttention(0, 1), ValueError, "greater than 0"),
    (lambda x: nn.MultiheadAttention(8, 2)(x, x, x, is_causal=True), RuntimeError, "Need attn_mask"),
    (lambda x: nn.MultiheadAttention(8, 2)(x, x, x, attn_mask=x), RuntimeError, "should be one of"),
    (lambda x: nn.MultiheadAttention(8, 2)(x, x, x[0]), AssertionError, "unbatched 2D or batched 3D"),
    (lambda x: nn.TransformerEncoderLayer(8, 2, activation="tanh"), RuntimeError, "relu/gelu"),
    (lambda x: F.bilinear(x, x[0], x), RuntimeError, "batch dimensions"),
])
def test_errors(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call(genesis.ones(5, 2, 8))
