"""The losses beside torch's: values and gradients under every reduction, layers, errors."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as TF
from torch import nn as tnn
from torch_peer import assert_same, both, check_result, numbers

import genesis
import genesis.nn.functional as F
from genesis import nn


def chances(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(0.02, 0.98, shape).astype(np.float32)


def signs(*shape: int) -> np.ndarray:
    return np.sign(numbers(*shape, seed=5)).astype(np.float32)


def labels(rows: int, classes: int) -> np.ndarray:
    """The numbers of some classes in each row, then -1 and what comes after."""
    random = np.random.default_rng(3)
    found = np.stack([random.permutation(classes) for _ in range(rows)])
    for row, count in zip(found, random.integers(0, classes + 1, rows), strict=True):
        row[count:count + 1] = -1
    return found


Operands = tuple[tuple[np.ndarray, ...], tuple[np.ndarray, ...]]
LOSSES: dict[str, tuple[str, Operands, dict[str, Any]]] = {
    # name → function, (arrays that want gradients, other arrays), options
    "mse": ("mse_loss", ((numbers(3, 4), numbers(3, 4, seed=1)), ()), {}),
    "mse broadcast": ("mse_loss", ((numbers(3, 4), numbers(4, seed=1)), ()), {}),
    "l1": ("l1_loss", ((numbers(3, 4), numbers(3, 4, seed=1)), ()), {}),
    "smooth l1": ("smooth_l1_loss", ((numbers(3, 4), numbers(3, 4, seed=1)), ()), {"beta": 0.7}),
    "smooth l1 of 0": ("smooth_l1_loss", ((numbers(3, 4), numbers(3, 4, seed=1)), ()), {"beta": 0.0}),
    "huber": ("huber_loss", ((numbers(3, 4), numbers(3, 4, seed=1)), ()), {"delta": 0.7}),
    "binary": ("binary_cross_entropy", ((chances(3, 4), chances(3, 4, seed=1)), ()), {}),
    "binary certain": ("binary_cross_entropy", ((np.array([0, 1, 1, 0], np.float32),),
                                                (np.array([0, 1, 0, 1], np.float32),)), {}),
    "soft margin": ("soft_margin_loss", ((numbers(3, 4),), (signs(3, 4),)), {}),
    "kl": ("kl_div", ((np.log(chances(3, 4)), chances(3, 4, seed=1)), ()), {}),
    "kl of logs": ("kl_div", ((np.log(chances(3, 4)), np.log(chances(3, 4, seed=1))), ()), {"log_target": True}),
    "poisson": ("poisson_nll_loss", ((numbers(3, 4),), (np.arange(12, dtype=np.float32).reshape(3, 4),)), {}),
    "poisson full": ("poisson_nll_loss", ((chances(3, 4),), (np.arange(12, dtype=np.float32).reshape(3, 4),)),
                     {"log_input": False, "full": True}),
    "gaussian": ("gaussian_nll_loss", ((numbers(3, 4), numbers(3, 4, seed=1), chances(3, 4)), ()), {}),
    "gaussian full": ("gaussian_nll_loss", ((numbers(3, 4), numbers(3, 4, seed=1), chances(3, 1)), ()), {"full": True}),
    "gaussian rows": ("gaussian_nll_loss", ((numbers(3, 4), numbers(3, 4, seed=1), chances(3)), ()), {"eps": 0.3}),
    "cosine": ("cosine_embedding_loss", ((numbers(5, 4), numbers(5, 4, seed=1)), (signs(5),)), {"margin": 0.2}),
    "cosine of one": ("cosine_embedding_loss", ((numbers(4), numbers(4, seed=1)), (np.float32(-1),)), {}),
    "ranking": ("margin_ranking_loss", ((numbers(5), numbers(5, seed=1)), (signs(5),)), {"margin": 0.3}),
    "hinge": ("hinge_embedding_loss", ((np.abs(numbers(3, 4)),), (signs(3, 4),)), {"margin": 0.6}),
    "triplet": ("triplet_margin_loss", (tuple(numbers(5, 4, seed=i) for i in range(3)), ()), {}),
    "triplet swap": ("triplet_margin_loss", (tuple(numbers(5, 4, seed=i) for i in range(3)), ()),
                     {"swap": True, "p": 1, "margin": 2.0}),
    "triplet distance": ("triplet_margin_with_distance_loss", (tuple(numbers(5, 4, seed=i) for i in range(3)), ()), {}),
    "multi margin": ("multi_margin_loss", ((numbers(5, 4),), (np.array([0, 3, 1, 1, 2]),)), {}),
    "multi margin squared": ("multi_margin_loss", ((numbers(5, 4),), (np.array([0, 3, 1, 1, 2]),)),
                             {"p": 2, "margin": 0.5}),
    "multi margin of one": ("multi_margin_loss", ((numbers(4),), (np.int64(2),)), {}),
    "multi label margin": ("multilabel_margin_loss", ((numbers(6, 5),), (labels(6, 5),)), {}),
    "multi label margin of one": ("multilabel_margin_loss", ((numbers(5),), (np.array([3, 0, -1, 1, 2]),)), {}),
    "multi label soft": ("multilabel_soft_margin_loss", ((numbers(5, 4),), (chances(5, 4),)), {}),
}


@pytest.mark.parametrize("name, reduction", [*itertools.product(LOSSES, ["mean", "sum", "none"])])
def test_a_loss_is_torchs(name: str, reduction: str) -> None:
    function, (wanted, given), options = LOSSES[name]
    pairs = [both(array, grad=True) for array in wanted]
    others = [both(array) for array in given]
    arguments = [*pairs, *others]
    check_result(getattr(F, function)(*(x for x, _ in arguments), reduction=reduction, **options),
                 getattr(TF, function)(*(x for _, x in arguments), reduction=reduction, **options), pairs, rtol=1e-4,
                 atol=1e-5)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_two_dtypes(name: str) -> None:
    """huber_loss has its input's dtype, the others what both are promoted to."""
    for one, other in itertools.permutations(("float16", "bfloat16", "float32"), 2):
        ours, theirs = (getattr(f, name)(m.ones(3, dtype=getattr(m, one)), m.zeros(3, dtype=getattr(m, other)))
                        for m, f in ((genesis, F), (torch, TF)))
        assert ours.dtype.name == str(theirs.dtype).removeprefix("torch."), (one, other)
        assert ours.item() == theirs.item()


def test_kl_div_of_a_batch() -> None:
    x, tx = both(np.log(chances(3, 4)), grad=True)
    target, ttarget = both(chances(3, 4, seed=1))
    check_result(F.kl_div(x, target, reduction="batchmean"), TF.kl_div(tx, ttarget, reduction="batchmean"), [(x, tx)])


@pytest.mark.parametrize("name, reduction", [*itertools.product(["mse_loss", "l1_loss", "huber_loss"],
                                                                ["mean", "sum", "none"])])
def test_weights_of_elements(name: str, reduction: str) -> None:
    x, tx = both(numbers(3, 4), grad=True)
    (target, ttarget), (weight, tweight) = both(numbers(3, 4, seed=1)), both(chances(3, 4))
    check_result(getattr(F, name)(x, target, reduction=reduction, weight=weight),
                 getattr(TF, name)(tx, ttarget, reduction=reduction, weight=tweight), [(x, tx)])


@pytest.mark.parametrize("name", ["multi_margin_loss", "multilabel_soft_margin_loss"])
def test_weights_of_classes(name: str) -> None:
    x, tx = both(numbers(5, 4), grad=True)
    target, ttarget = both(np.array([0, 3, 1, 1, 2]) if name == "multi_margin_loss" else chances(5, 4))
    weight, tweight = both(chances(4))
    check_result(getattr(F, name)(x, target, weight=weight), getattr(TF, name)(tx, ttarget, weight=tweight), [(x, tx)])


@pytest.mark.parametrize("p, dim", [*itertools.product([1.0, 2.0, 3.5, float("inf")], [0, 1, -1])])
def test_normalize(p: float, dim: int) -> None:
    x, tx = both(numbers(3, 4, 5), grad=True)
    check_result(F.normalize(x, p, dim), TF.normalize(tx, p, dim), [(x, tx)], rtol=1e-4)


@pytest.mark.parametrize("shapes, dim", [(((3, 4), (3, 4)), 1), (((3, 4), (4,)), 1), (((2, 3, 4), (2, 1, 4)), -1),
                                         (((3, 4), (3, 4)), 0)])
def test_cosine_similarity(shapes, dim) -> None:  # type: ignore[no-untyped-def]
    pairs = [both(numbers(*shape, seed=i), grad=True) for i, shape in enumerate(shapes)]
    check_result(F.cosine_similarity(*(x for x, _ in pairs), dim=dim),
                 TF.cosine_similarity(*(x for _, x in pairs), dim=dim), pairs)


@pytest.mark.parametrize("p, keepdim", [*itertools.product([1.0, 2.0, 3.0], [False, True])])
def test_pairwise_distance(p: float, keepdim: bool) -> None:
    pairs = [both(numbers(3, 4, seed=i), grad=True) for i in range(2)]
    check_result(F.pairwise_distance(*(x for x, _ in pairs), p=p, keepdim=keepdim),
                 TF.pairwise_distance(*(x for _, x in pairs), p=p, keepdim=keepdim), pairs, rtol=1e-4)


LAYERS: dict[str, tuple[Callable[[Any], Any], tuple[np.ndarray, ...]]] = {
    "smooth l1": (lambda m: m.SmoothL1Loss(beta=0.5), (numbers(3, 4), numbers(3, 4, seed=1))),
    "huber": (lambda m: m.HuberLoss(delta=0.5), (numbers(3, 4), numbers(3, 4, seed=1))),
    "binary": (lambda m: m.BCELoss(reduction="sum"), (chances(3, 4), chances(3, 4, seed=1))),
    "kl": (lambda m: m.KLDivLoss(reduction="batchmean"), (np.log(chances(3, 4)), chances(3, 4, seed=1))),
    "poisson": (lambda m: m.PoissonNLLLoss(full=True), (numbers(3, 4), chances(3, 4) * 5)),
    "gaussian": (lambda m: m.GaussianNLLLoss(), (numbers(3, 4), numbers(3, 4, seed=1), chances(3, 4))),
    "cosine": (lambda m: m.CosineEmbeddingLoss(0.1), (numbers(5, 4), numbers(5, 4, seed=1), signs(5))),
    "ranking": (lambda m: m.MarginRankingLoss(0.1), (numbers(5), numbers(5, seed=1), signs(5))),
    "hinge": (lambda m: m.HingeEmbeddingLoss(), (chances(3, 4), signs(3, 4))),
    "triplet": (lambda m: m.TripletMarginLoss(), tuple(numbers(5, 4, seed=i) for i in range(3))),
    "triplet distance": (lambda m: m.TripletMarginWithDistanceLoss(margin=0.4),
                         tuple(numbers(5, 4, seed=i) for i in range(3))),
    "soft margin": (lambda m: m.SoftMarginLoss(), (numbers(3, 4), signs(3, 4))),
    "multi margin": (lambda m: m.MultiMarginLoss(p=2), (numbers(5, 4), np.array([0, 3, 1, 1, 2]))),
    "multi label margin": (lambda m: m.MultiLabelMarginLoss(), (numbers(6, 5), labels(6, 5))),
    "multi label soft": (lambda m: m.MultiLabelSoftMarginLoss(), (numbers(5, 4), chances(5, 4))),
    "similarity": (lambda m: m.CosineSimilarity(), (numbers(3, 4), numbers(3, 4, seed=1))),
    "distance": (lambda m: m.PairwiseDistance(), (numbers(3, 4), numbers(3, 4, seed=1))),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_torchs(name: str) -> None:
    make, arrays = LAYERS[name]
    pairs = [both(array) for array in arrays]
    assert_same(make(nn)(*(x for x, _ in pairs)), make(tnn)(*(x for _, x in pairs)), rtol=1e-4)
    assert repr(make(nn)) == repr(make(tnn))


def test_class_weights_are_buffers() -> None:
    ours, theirs = nn.MultiMarginLoss(weight=genesis.ones(4)), tnn.MultiMarginLoss(weight=torch.ones(4))
    assert list(ours.state_dict()) == list(theirs.state_dict()) == ["weight"]


@pytest.mark.parametrize("call, error, message", [
    (lambda x: F.mse_loss(x, x, reduction="average"), ValueError, "not a valid value for reduction"),
    (lambda x: F.smooth_l1_loss(x, x, beta=-1.0), RuntimeError, "negative values for beta"),
    (lambda x: F.huber_loss(x, x, delta=0.0), RuntimeError, "non-positive values for delta"),
    (lambda x: F.binary_cross_entropy(x, x[0]), ValueError, "different to the input size"),
    (lambda x: F.gaussian_nll_loss(x, x, x[:, :2]), ValueError, "incorrect size"),
    (lambda x: F.gaussian_nll_loss(x, x, -1.0), ValueError, "negative"),
    (lambda x: F.cosine_embedding_loss(x, x, x), RuntimeError, "0D or 1D target"),
    (lambda x: F.margin_ranking_loss(x, x, x[0]), RuntimeError, "same dimension"),
    (lambda x: F.triplet_margin_loss(x, x, x, margin=-1.0), ValueError, "greater than 0"),
    (lambda x: F.triplet_margin_loss(x, x, x[0]), RuntimeError, "same number of dimensions"),
    (lambda x: F.multi_margin_loss(x, x[:, 0].long(), p=3), ValueError, "p == 1 and p == 2"),
    (lambda x: F.multi_margin_loss(x, x.long()), RuntimeError, "inconsistent target size"),
    (lambda x: F.multilabel_margin_loss(x, x.long()[:2]), RuntimeError, "inconsistent target size"),
])
def test_errors(call, error, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(error, match=message):
        call(genesis.ones(3, 4))


def test_kl_div_of_chances_that_are_0() -> None:
    """0 · log 0 is 0, and its gradient by the input too."""
    target = np.float32([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]])
    for library, functions in ((genesis, F), (torch, TF)):
        x = library.tensor([[-1.0, -2.0, -3.0], [-0.5, -1.0, -4.0]], requires_grad=True)  # type: ignore[attr-defined]
        loss = functions.kl_div(x, library.tensor(target), reduction="sum")  # type: ignore[attr-defined]
        loss.backward()
        assert loss.item() == pytest.approx(3.5568528, rel=1e-6)
        assert x.grad.tolist() == [[0, -1, 0], [-0.5, 0, -0.5]]


def test_an_ignored_row_of_minus_infinity_counts_nothing() -> None:
    logs, classes = [[-1.0, -2.0], [-np.inf, -np.inf], [-3.0, -0.5]], [1, -100, 0]
    found = F.nll_loss(genesis.tensor(logs), genesis.tensor(classes), genesis.tensor([2.0, 1.0]))
    assert found.item() == pytest.approx((2.0 * 1 + 3.0 * 2) / 3)


def test_rows_are_counted_in_float32() -> None:
    """float16 counts to 2048 and has no number above 65504."""
    logs = genesis.full((70000, 2), -0.5, dtype=genesis.float16)
    found = F.nll_loss(logs, genesis.zeros(70000, dtype=genesis.int64), genesis.ones(2, dtype=genesis.float16))
    assert found.dtype is genesis.float16 and found.item() == 0.5


@pytest.mark.parametrize(("loss", "apart", "gradient", "want"), [
    (F.mse_loss, 64.0, 2.0 ** -20, 2.0 ** -19),
    (lambda x, y: F.huber_loss(x, y, delta=128.0), 64.0, 2.0 ** -20, 2.0 ** -20),
    (F.smooth_l1_loss, 0.875, 1.5 * 2.0 ** -18, 1.3125 * 2.0 ** -24)])
@pytest.mark.parametrize("dtype", [genesis.float16, genesis.bfloat16, genesis.float32])
def test_the_gradient_of_a_mean_is_rounded_once(loss: Callable[..., Any], apart: float, gradient: float, want: float,
                                                dtype: Any) -> None:
    """A mean of 64 losses hands 2^-26, or 1.5 · 2^-24, to each: float16 would round that to 0, or 2^-23, before it is
    multiplied by the loss' own derivative."""
    x = genesis.full((64,), apart, dtype=dtype).requires_grad_()
    found = loss(x, genesis.zeros(64, dtype=dtype))
    assert found.dtype is dtype
    found.backward(genesis.tensor(gradient, dtype=dtype))
    assert x.grad.dtype is dtype
    assert x.grad.tolist() == genesis.full((64,), want, dtype=dtype).tolist()


def test_a_weight_for_each_class() -> None:
    with pytest.raises(RuntimeError, match="one factor a class"):
        F.cross_entropy(genesis.zeros(4, 3), genesis.zeros(4, dtype=genesis.int64), weight=genesis.ones(5))


def told(act: Callable[[], Any]) -> tuple[list[str], str]:
    """The warnings of a call, and the error that it ends with, without what each library calls its sizes."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            act()
            error = ""
        except Exception as raised:
            error = type(raised).__name__
    return [str(each.message).replace("genesis", "torch")[:80] for each in found], error


MISTAKES: dict[str, Callable[[Any], Any]] = {
    **{f"{name} of a column and a row": lambda L, name=name: getattr(L.nn.functional, name)(L.ones(3, 1), L.ones(3))
       for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")},
    "a module's loss": lambda L: L.nn.MSELoss()(L.ones(3, 1), L.ones(3)),
    "a loss of equal sizes": lambda L: L.nn.functional.mse_loss(L.ones(3, 1), L.ones(3, 1)),
    "the mean of a divergence": lambda L: L.nn.functional.kl_div(L.ones(2), L.ones(2)),
    "a divergence by batch": lambda L: L.nn.functional.kl_div(L.ones(2), L.ones(2), reduction="batchmean"),
    "dropout behind the only layer": lambda L: L.nn.LSTM(2, 2, 1, dropout=0.5),
    "dropout between layers": lambda L: L.nn.GRU(2, 2, 2, dropout=0.5),
    "classes of another batch": lambda L: L.nn.functional.cross_entropy(L.ones(3, 4), L.tensor([0, 1])),
    "likelihoods of another batch": lambda L: L.nn.functional.nll_loss(L.ones(3, 4, 2), L.zeros(2, 2, dtype=L.long)),
    "classes of other places": lambda L: L.nn.functional.nll_loss(L.ones(2, 4, 2), L.zeros(2, 3, dtype=L.long)),
    "ctc's targets of another batch": lambda L: L.nn.functional.ctc_loss(
        L.ones(5, 2, 4).log_softmax(2), L.tensor([[1, 2]]), L.tensor([5, 5]), L.tensor([2, 1])),
    "no sequence to pad": lambda L: L.nn.utils.rnn.pad_sequence([]),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_likely_mistake_is_told_as_torch_tells_it(name: str) -> None:
    act = MISTAKES[name]
    assert told(lambda: act(genesis)) == told(lambda: act(torch))


@pytest.mark.parametrize(("inputs", "labels"), [((5, 4), (1, 2)), ((-1, 4), (1, 2)), ((4, 4), (1, -1))])
@pytest.mark.parametrize("lengths", [list, "tensor"])
def test_lengths_that_ctc_loss_cannot_have(inputs, labels, lengths):
    """More steps than there are, or fewer than none: a number came back."""
    for lib in (torch, genesis):
        logs = (lib.arange(24.0).reshape(4, 2, 3) / 10).log_softmax(2)
        given = [lib.tensor(x) if lengths == "tensor" else list(x) for x in (inputs, labels)]
        with pytest.raises(RuntimeError, match="lengths to have value"):
            lib.nn.functional.ctc_loss(logs, lib.tensor([[1, 2], [2, 1]]), *given).item()
