"""The adaptive softmax is torch's: log-probabilities, losses, gradients, predictions and refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import genesis

LIBRARIES = pytest.mark.parametrize("T", [genesis, torch], ids=["genesis", "torch"])


def layer_of(T: Any, **options: Any) -> Any:
    """A layer with parameters that both libraries get alike."""
    layer = T.nn.AdaptiveLogSoftmaxWithLoss(8, 20, [4, 10], div_value=2.0, **options)
    rng = np.random.default_rng(0)
    with T.no_grad():
        for p in layer.parameters():
            p.copy_(T.tensor(rng.standard_normal(tuple(p.shape)).astype("float32")))
    return layer


@pytest.mark.parametrize("classes", [[0, 5, 19, 3, 4, 9], [1, 2], [12], [4, 9, 4]], ids=str)
@pytest.mark.parametrize("head_bias", [False, True])
def test_losses_and_gradients(classes: list[int], head_bias: bool) -> None:
    found = []
    for T in (genesis, torch):
        layer = layer_of(T, head_bias=head_bias)
        x = T.tensor(np.random.default_rng(1).standard_normal((len(classes), 8)).astype("float32"), requires_grad=True)
        output, loss = layer(x, T.tensor(classes))
        (loss + output.pow(2).sum()).backward()
        gradients = [T.zeros_like(p) if p.grad is None else p.grad for p in (x, *layer.parameters())]
        alone = layer(x[0], T.tensor(classes[0]))
        found.append([output, loss, layer.log_prob(x), layer.predict(x), alone.output, alone.loss, *gradients])
        assert list(layer.state_dict())[-1] == "tail.1.1.weight" and layer.cutoffs == [4, 10, 20]
    for ours, theirs in zip(*found, strict=True):
        assert tuple(ours.shape) == tuple(theirs.shape)
        np.testing.assert_allclose(ours.tolist(), theirs.tolist(), rtol=2e-5, atol=2e-6)


@LIBRARIES
@pytest.mark.parametrize("cutoffs", [[], [0, 5], [5, 5], [7, 5], [20], [2.5]], ids=str)
def test_cutoffs_that_are_no_increasing_classes(T: Any, cutoffs: list[Any]) -> None:
    with pytest.raises(ValueError, match="cutoffs should be a sequence"):
        T.nn.AdaptiveLogSoftmaxWithLoss(8, 20, cutoffs)


@LIBRARIES
@pytest.mark.parametrize(("rows", "classes", "message"), [
    ((2, 8), [0, 20], "Target values should be in"), ((2, 8), [0, -1], "Target values should be in"),
    ((2, 8), [0], "same size in the batch"), ((1,), [0], "1D target tensor expects 2D"),
    ((2, 8), 0, "0D target tensor expects 1D"), ((2, 8), [[0, 1]], "multi-target not supported")])
def test_what_does_not_fit(T: Any, rows: tuple[int, ...], classes: Any, message: str) -> None:
    with pytest.raises(RuntimeError, match=message):
        layer_of(T)(T.ones(*rows), T.tensor(classes))


@LIBRARIES
def test_first_values_are_drawn_anew(T: Any) -> None:
    layer = layer_of(T)
    before = [p.detach().clone() for p in layer.parameters()]
    layer.reset_parameters()
    assert not any(T.equal(p.detach(), q) for p, q in zip(layer.parameters(), before, strict=True))
