"""Functions beyond what the layers show: losses, attention, padding, classes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from torch_peer import array_of, assert_same, both, check_result, numbers

import genesis
import genesis.nn.functional as F

REDUCTIONS = ["mean", "sum", "none"]
CLASS_SHAPES = [(4, 5), (5,), (2, 5, 3), (2, 5, 3, 2)]


def class_ids(shape: tuple[int, ...], ignored: bool = False) -> np.ndarray:
    """Class numbers below 5 for logits of this shape, some of them -100."""
    rows = shape[:1] + shape[2:] if len(shape) > 1 else ()
    ids = np.random.default_rng(1).integers(0, 5, rows)
    return np.where(np.arange(ids.size).reshape(ids.shape) % 3 == 1, -100, ids) if ignored else ids


@pytest.mark.parametrize("shape, reduction, smoothing, weighted", [*itertools.product(
    CLASS_SHAPES, REDUCTIONS, [0.0, 0.1], [False, True])])
def test_cross_entropy_of_class_numbers(shape, reduction, smoothing, weighted) -> None:  # type: ignore[no-untyped-def]
    x, tx = both(numbers(*shape), grad=True)
    target, ttarget = both(class_ids(shape, ignored=True))
    weight, tweight = both(np.array([0.5, 1, 2, 1, 0.1], np.float32)) if weighted else (None, None)
    y = F.cross_entropy(x, target, weight, reduction=reduction, label_smoothing=smoothing)
    ty = TF.cross_entropy(tx, ttarget, tweight, reduction=reduction, label_smoothing=smoothing)
    check_result(y, ty, [(x, tx)])


def test_ignored_rows_of_bfloat16_do_not_count() -> None:
    """The mean is of what is written in bfloat16, so to its 8 bits."""
    x, target = numbers(6, 5), class_ids((6, 5), ignored=True)
    y = F.cross_entropy(genesis.tensor(x).bfloat16(), genesis.tensor(target))
    ty = TF.cross_entropy(torch.tensor(x).bfloat16(), torch.tensor(target))
    assert y.item() == pytest.approx(ty.item(), rel=2 ** -7)


@pytest.mark.parametrize("shape, reduction, smoothing, weighted", [*itertools.product(
    CLASS_SHAPES, REDUCTIONS, [0.0, 0.1], [False, True])])
def test_cross_entropy_of_probabilities(shape, reduction, smoothing, weighted) -> None:  # type: ignore[no-untyped-def]
    x, tx = both(numbers(*shape), grad=True)
    axis = 1 if len(shape) > 1 else 0
    chances = np.exp(numbers(*shape, seed=2))
    target, ttarget = both(chances / chances.sum(axis, keepdims=True))
    weight, tweight = both(np.array([0.5, 1, 2, 1, 0.1], np.float32)) if weighted else (None, None)
    y = F.cross_entropy(x, target, weight, reduction=reduction, label_smoothing=smoothing)
    ty = TF.cross_entropy(tx, ttarget, tweight, reduction=reduction, label_smoothing=smoothing)
    check_result(y, ty, [(x, tx)])


def test_cross_entropy_that_ignores_all_is_nan_as_torchs() -> None:
    x, _ = both(numbers(2, 5))
    assert np.isnan(F.cross_entropy(x, genesis.tensor([-100, -100])).item())
    assert F.cross_entropy(x, genesis.tensor([-100, -100]), reduction="sum").item() == 0.0


def test_cross_entropy_counts_far_in_low_precision() -> None:
    """float16 holds no integer above 2048 exactly: the mean over more rows must not be taken in it."""
    x, target = genesis.zeros(4099, 2, dtype=genesis.float16), genesis.zeros(4099, dtype=genesis.int64)
    assert abs(F.cross_entropy(x, target).item() - np.log(2)) < 1e-3  # eps of float16


def test_cross_entropy_ignores_the_index_it_is_given() -> None:
    x, tx = both(numbers(4, 5), grad=True)
    target, ttarget = both(np.array([0, 3, 3, 1]))
    check_result(F.cross_entropy(x, target, ignore_index=3), TF.cross_entropy(tx, ttarget, ignore_index=3), [(x, tx)])


@pytest.mark.parametrize("shape, reduction, weighted", [*itertools.product(CLASS_SHAPES, REDUCTIONS, [False, True])])
def test_nll_loss(shape, reduction, weighted) -> None:  # type: ignore[no-untyped-def]
    x, tx = both(numbers(*shape), grad=True)
    target, ttarget = both(class_ids(shape, ignored=len(shape) > 1))
    weight, tweight = both(np.array([0.5, 1, 2, 1, 0.1], np.float32)) if weighted else (None, None)
    check_result(F.nll_loss(x, target, weight, reduction=reduction),
                 TF.nll_loss(tx, ttarget, tweight, reduction=reduction), [(x, tx)])


@pytest.mark.parametrize("name, reduction", [*itertools.product(
    ["mse_loss", "l1_loss", "binary_cross_entropy_with_logits"], REDUCTIONS)])
def test_elementwise_losses(name: str, reduction: str) -> None:
    x, tx = both(numbers(3, 4) * 5, grad=True)
    target, ttarget = both(np.random.default_rng(1).random((3, 4), dtype=np.float32), grad=True)
    check_result(getattr(F, name)(x, target, reduction=reduction), getattr(TF, name)(tx, ttarget, reduction=reduction),
                 [(x, tx), (target, ttarget)])


def test_binary_cross_entropy_with_weights() -> None:
    x, tx = both(np.array([[-1000.0, 0.0, 1000.0], [0.5, -0.5, 3.0]], np.float32), grad=True)
    target, ttarget = both(np.array([[0, 1, 1], [0, 1, 0]], np.float32))
    weight, tweight = both(numbers(3) ** 2)
    positive, tpositive = both(numbers(3, seed=4) ** 2)
    check_result(F.binary_cross_entropy_with_logits(x, target, weight, pos_weight=positive),
                 TF.binary_cross_entropy_with_logits(tx, ttarget, tweight, pos_weight=tpositive), [(x, tx)])


def attention_operands(batch: tuple[int, ...] = (2, 3), queries: int = 5, keys: int = 5, size: int = 4,
                       value_size: int = 4) -> list[tuple[Any, torch.Tensor]]:
    shapes = [(*batch, queries, size), (*batch, keys, size), (*batch, keys, value_size)]
    return [both(numbers(*shape, seed=i), grad=True) for i, shape in enumerate(shapes)]


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}], ids=str)
@pytest.mark.parametrize("sizes", [{}, {"keys": 7}, {"value_size": 6}, {"batch": ()}, {"batch": (3,)}], ids=str)
def test_attention(options: dict[str, Any], sizes: dict[str, Any]) -> None:
    pairs = attention_operands(**sizes)
    check_result(F.scaled_dot_product_attention(*[ours for ours, _ in pairs], **options),
                 TF.scaled_dot_product_attention(*[theirs for _, theirs in pairs], **options), pairs,
                 rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("sizes", [(3, 0), (0, 4), (0, 0)])
@pytest.mark.parametrize("masked", [False, True])
def test_attention_to_nothing(sizes: tuple[int, int], masked: bool) -> None:
    """Queries of no size find all keys alike; without keys there are no queries either."""
    x, tx = both(numbers(1, 2, *sizes), grad=True)
    v, tv = both(numbers(1, 2, sizes[0], 5, seed=1), grad=True)
    mask, tmask = both(np.zeros((sizes[0], sizes[0]), np.float32)) if masked else (None, None)
    check_result(F.scaled_dot_product_attention(x, x, v, mask), TF.scaled_dot_product_attention(tx, tx, tv, tmask),
                 [(x, tx), (v, tv)])


@pytest.mark.parametrize("mask", [
    np.tril(np.ones((5, 5), bool)), numbers(5, 5), numbers(2, 1, 5, 5), numbers(3, 5, 5) > -1.5, numbers(1, 5),
], ids=lambda mask: f"{mask.dtype} {mask.shape}")
def test_attention_with_a_mask(mask: np.ndarray) -> None:
    pairs = attention_operands()
    ours, theirs = both(mask, grad=mask.dtype.kind == "f")
    y = F.scaled_dot_product_attention(*[x for x, _ in pairs], attn_mask=ours)
    ty = TF.scaled_dot_product_attention(*[x for _, x in pairs], attn_mask=theirs)
    check_result(y, ty, [*pairs, (ours, theirs)] if theirs.requires_grad else pairs, rtol=1e-4, atol=1e-5)


def test_attention_with_shared_heads() -> None:
    (q, tq), = [both(numbers(2, 6, 5, 4), grad=True)]
    (k, tk), (v, tv) = (both(numbers(2, 2, 5, 4, seed=s), grad=True) for s in (1, 2))
    check_result(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True),
                 TF.scaled_dot_product_attention(tq, tk, tv, is_causal=True, enable_gqa=True),
                 [(q, tq), (k, tk), (v, tv)], rtol=1e-4, atol=1e-5)


def test_attention_broadcasts_batches() -> None:
    q, tq = both(numbers(2, 3, 5, 4), grad=True)
    k, tk = both(numbers(1, 3, 5, 4, seed=1), grad=True)
    check_result(F.scaled_dot_product_attention(q, k, k), TF.scaled_dot_product_attention(tq, tk, tk),
                 [(q, tq), (k, tk)], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_attention_dropout_keeps_the_mean(causal: bool) -> None:
    """With values of 1 each weight that survives counts 1/(1-p): a row's mean is 1, a single row's varies."""
    genesis.manual_seed(0)
    q, v = genesis.zeros(64, 16, 4), genesis.ones(64, 16, 1)
    y = array_of(F.scaled_dot_product_attention(q, q, v, dropout_p=0.5, is_causal=causal))
    assert abs(y.mean() - 1) < 0.1
    assert y.std() > 0.1


@pytest.mark.parametrize("kind", ["bool", "added", "of each key"])
def test_attention_takes_a_mask_beside_the_triangle(kind: str) -> None:
    """As torch's kernels on a CPU do; the first key is seen by all, so that each row has one."""
    pairs = [both(numbers(2, 3, 5, 4, seed=seed), grad=True) for seed in range(3)]
    given = numbers(2, 1, 1 if kind == "of each key" else 5, 5, seed=9)
    given[..., 0] = 1
    mask, tmask = both(given if kind == "added" else given > 0)
    check_result(F.scaled_dot_product_attention(*(ours for ours, _ in pairs), attn_mask=mask, is_causal=True),
                 TF.scaled_dot_product_attention(*(theirs for _, theirs in pairs), attn_mask=tmask, is_causal=True),
                 pairs, rtol=1e-4, atol=1e-5)


def test_attention_says_what_does_not_fit() -> None:
    q = genesis.ones(2, 3, 5, 4)
    with pytest.raises(RuntimeError, match="does not broadcast"):
        F.scaled_dot_product_attention(q, q, q, attn_mask=genesis.ones(4, 4))
    with pytest.raises(RuntimeError, match="enable_gqa"):
        F.scaled_dot_product_attention(q, genesis.ones(2, 2, 5, 4), genesis.ones(2, 2, 5, 4))


@pytest.mark.parametrize("padding", [(1, 2), (0, 1, 2, 0), (-1, 1), (1, 0, -1, -1)])
def test_pad(padding: tuple[int, ...]) -> None:
    x, tx = both(numbers(3, 4), grad=True)
    check_result(F.pad(x, padding, value=2.5), TF.pad(tx, padding, value=2.5), [(x, tx)])


def test_one_hot() -> None:
    ids, tids = both(np.array([[0, 3], [2, 1]]))
    assert_same(F.one_hot(ids), TF.one_hot(tids))
    assert_same(F.one_hot(ids, 6), TF.one_hot(tids, 6))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_extremes_and_dtypes(name: str) -> None:
    x, tx = both(np.array([[1000.0, 1001.0, -np.inf], [0.0, -1000.0, 1.0]], np.float32))
    assert_same(getattr(F, name)(x, 1), getattr(TF, name)(tx, 1))
    assert_same(getattr(F, name)(x, 0, dtype=genesis.float64), getattr(TF, name)(tx, 0, dtype=torch.float64))
    assert_same(getattr(F, name)(x[0, 0], 0), getattr(TF, name)(tx[0, 0], 0))
    with pytest.raises(IndexError, match="dimension 2"):
        getattr(F, name)(x, 2)


@pytest.mark.parametrize("call", [
    lambda: F.cross_entropy(genesis.ones(2, 3), genesis.ones(2, 4)),
    lambda: F.cross_entropy(genesis.ones(2, 3), genesis.zeros(3, dtype=genesis.int64)),
    lambda: F.cross_entropy(genesis.ones(2, 3), genesis.zeros(2, dtype=genesis.int64), reduction="average"),
    lambda: F.gelu(genesis.ones(2), approximate="sigmoid"),
    lambda: F.pad(genesis.ones(2), (1, 1, 1, 1)),
    lambda: F.embedding(genesis.tensor([0]), genesis.ones(3)),
    lambda: F.one_hot(genesis.ones(3)),
])
def test_errors_name_the_users_line(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises((RuntimeError, ValueError), match=r"test_functional\.py:\d+"):
        call()
