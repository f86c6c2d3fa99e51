"""Gradient clipping and flat vectors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch_peer import array_of, assert_same, both, numbers

import genesis
from genesis import engine
from genesis.nn import utils


def gradients(scale: float = 1.0):  # type: ignore[no-untyped-def]
    """Parameters of both frameworks with equal gradients, and one parameter without."""
    ours, theirs = [], []
    for seed, shape in enumerate([(4, 3), (5,), ()]):
        a, b = both(numbers(*shape, seed=seed), grad=True)
        a.grad, b.grad = both(numbers(*shape, seed=seed + 10) * np.float32(scale))
        ours.append(a)
        theirs.append(b)
    without = both(numbers(2), grad=True)
    return [*ours, without[0]], [*theirs, without[1]]


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 3.0, float("inf")])
@pytest.mark.parametrize("max_norm", [0.5, 1e6], ids=["too long", "short enough"])
def test_clip_grad_norm(norm_type: float, max_norm: float) -> None:
    ours, theirs = gradients()
    norm = utils.clip_grad_norm_(ours, max_norm, norm_type)
    assert_same(norm, torch.nn.utils.clip_grad_norm_(theirs, max_norm, norm_type))
    for a, b in zip(ours[:-1], theirs[:-1], strict=True):
        assert_same(a.grad, b.grad)
    assert ours[-1].grad is None


@pytest.mark.parametrize("norm_type", [2.0, 1.0, 0.0, float("inf"), float("-inf")])
def test_the_norm_of_tensors_alone(norm_type: float) -> None:
    ours, theirs = gradients()
    norm = utils.get_total_norm((p.grad for p in ours[:-1]), norm_type)
    assert_same(norm, torch.nn.utils.get_total_norm([p.grad for p in theirs[:-1]], norm_type))
    assert utils.get_total_norm([]).item() == 0.0


def test_scaling_by_a_norm_that_is_given() -> None:
    ours, theirs = gradients()
    utils.clip_grads_with_norm_(ours, 0.5, genesis.tensor(2.0))
    torch.nn.utils.clip_grads_with_norm_(theirs, 0.5, torch.tensor(2.0))
    for a, b in zip(ours[:-1], theirs[:-1], strict=True):
        assert_same(a.grad, b.grad)


def test_gradients_of_several_dtypes() -> None:
    held = []
    for dtype in (genesis.float32, genesis.float64, genesis.bfloat16):
        w = genesis.zeros(2, dtype=dtype, requires_grad=True)
        w.grad = genesis.tensor([3.0, 4.0], dtype=dtype)
        held.append(w)
    norm = utils.clip_grad_norm_(held, 1.0)
    assert norm.dtype is genesis.float64
    assert norm.item() == pytest.approx(75**0.5)
    for w, places in zip(held, (6, 6, 2), strict=True):
        assert [round(g, places) for g in w.grad.tolist()] == [round(g / 75**0.5, places) for g in (3.0, 4.0)]


def test_an_empty_gradient_adds_nothing() -> None:
    ours, _ = gradients()
    empty = genesis.zeros(0, requires_grad=True)
    empty.grad = genesis.zeros(0)
    alone = utils.get_total_norm([p.grad for p in ours[:-1]], float("inf"))
    assert utils.clip_grad_norm_([*ours, empty], 0.5, float("inf")).item() == alone.item()
    assert utils.clip_grad_norm_(empty, 0.5).item() == 0.0


def test_clipping_and_a_step_take_the_gradients_memory_once() -> None:
    """The clipped gradients are written where the gradients lie: no second copy of all of them."""
    model = genesis.nn.Sequential(*[genesis.nn.Linear(64, 64) for _ in range(8)])
    optimizer = genesis.optim.SGD(model.parameters(), lr=0.1)
    x = genesis.ones(1, 64)
    arenas = []
    for clip in (False, True):
        optimizer.zero_grad()
        model(x).sum().backward()
        if clip:
            utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        arenas.append(engine.last_plan().plan.arena_bytes)
    assert arenas[1] < arenas[0] + 4 * 64 * 64


def test_clipping_keeps_the_gradients_memory() -> None:
    ours, _ = gradients()
    alias = ours[0].grad.detach()
    utils.clip_grad_norm_(ours, 0.1)
    assert np.array_equal(array_of(alias), array_of(ours[0].grad))


def test_gradients_that_are_short_enough_are_not_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """They stay as they are in memory, bit for bit; longer ones are scaled by one call for all."""
    calls = []
    scale = torch._foreach_mul_
    monkeypatch.setattr(torch, "_foreach_mul_", lambda *given: calls.append(len(given[0])) or scale(*given))
    ours = gradients()[0][:-1]
    before = [array_of(w.grad).tobytes() for w in ours]
    norm = utils.clip_grad_norm_(ours, 1e6)
    assert [array_of(w.grad).tobytes() for w in ours] == before and not calls
    utils.clip_grad_norm_(ours, norm.item() / 2)
    assert [array_of(w.grad).tobytes() for w in ours] != before and calls == [len(ours)]


def test_the_norm_may_be_a_tensor_that_is_overwritten_beside_the_gradients() -> None:
    ours = gradients()[0][:-1]
    before = [array_of(w.grad) for w in ours]
    norm = utils.get_total_norm([w.grad for w in ours]).detach()
    genesis.eval(norm)
    utils.clip_grads_with_norm_(ours, 1.0, norm.mul_(2.0))
    factor = np.float32(1 / (norm.item() + 1e-6))
    for w, g in zip(ours, before, strict=True):
        np.testing.assert_allclose(array_of(w.grad), g * factor, rtol=1e-6)


def test_clipping_low_precision_keeps_its_dtype() -> None:
    w = genesis.ones(4, dtype=genesis.bfloat16, requires_grad=True)
    w.grad = genesis.full((4,), 2.0, dtype=genesis.bfloat16)
    assert utils.clip_grad_norm_(w, 1.0).item() == 4.0
    assert w.grad.dtype is genesis.bfloat16 and w.grad.tolist() == [0.5] * 4


def test_a_norm_that_is_not_finite() -> None:
    ours, _ = gradients(scale=float("inf"))
    before = array_of(ours[0].grad)
    with pytest.raises(RuntimeError, match="norm is"):
        utils.clip_grad_norm_(ours, 1.0, error_if_nonfinite=True)
    assert np.array_equal(array_of(ours[0].grad), before, equal_nan=True)


def test_nothing_to_clip() -> None:
    assert utils.clip_grad_norm_([genesis.ones(1, requires_grad=True)], 1.0).item() == 0.0


def test_clip_grad_value() -> None:
    ours, theirs = gradients()
    utils.clip_grad_value_(ours, 0.3)
    torch.nn.utils.clip_grad_value_(theirs, 0.3)
    for a, b in zip(ours[:-1], theirs[:-1], strict=True):
        assert_same(a.grad, b.grad)


def test_vector_and_back() -> None:
    ours, theirs = gradients()
    vector = utils.parameters_to_vector(ours)
    assert_same(vector, torch.nn.utils.parameters_to_vector(theirs))
    utils.vector_to_parameters(vector * 2, ours)
    assert_same(ours[0], theirs[0] * 2)
    with pytest.raises(RuntimeError, match="20 elements"):
        utils.vector_to_parameters(vector[1:], ours)


def test_a_packed_sequence_is_cast_and_asked_as_torchs():
    for T in (genesis, torch):
        packed = T.nn.utils.rnn.pack_sequence([T.tensor([1.5, 2.5]), T.tensor([3.0])])
        for name, dtype in {"half": "float16", "float": "float32", "double": "float64", "long": "int64", "int": "int32",
                            "short": "int16", "char": "int8", "byte": "uint8"}.items():
            cast = getattr(packed, name)()
            assert cast.data.dtype is getattr(T, dtype) and cast.batch_sizes.tolist() == [2, 1], name
            assert type(cast) is type(packed)
        assert not packed.is_pinned() and not packed.is_cuda
