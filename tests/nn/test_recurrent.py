"""Recurrent layers and cells: results, last states and all gradients are torch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn as tnn
from torch_peer import assert_same, both, copy_weights, numbers

import genesis
from genesis import nn

LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "rnn": ("RNN", {}), "relu": ("RNN", {"nonlinearity": "relu", "num_layers": 2}),
    "lstm": ("LSTM", {}), "deep lstm": ("LSTM", {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "projected": ("LSTM", {"proj_size": 2, "num_layers": 2, "bidirectional": True}),
    "gru": ("GRU", {"bias": False}), "both ways": ("GRU", {"bidirectional": True, "num_layers": 2, "dropout": 0.0}),
}


def parts(x: Any) -> list[Any]:
    """The tensors of nested tuples."""
    return [y for part in x for y in parts(part)] if isinstance(x, tuple) else [x]


def packed(states: list[Any]) -> Any:
    """A state as a layer takes it."""
    return states[0] if len(states) == 1 else tuple(states) or None


def check(ours: Any, theirs: Any, arrays: list[Any]) -> None:
    """The first array is the input, the others are the state."""
    copy_weights(ours, theirs)
    pairs = [both(array, grad=True) for array in arrays]
    (x, tx), states = pairs[0], pairs[1:]
    found, wanted = ours(x, packed([h for h, _ in states])), theirs(tx, packed([h for _, h in states]))
    found, wanted = parts(found), parts(wanted)
    assert len(found) == len(wanted)
    for number, (y, ty) in enumerate(zip(found, wanted, strict=True)):
        assert_same(y, ty, rtol=1e-4, atol=1e-5)
        weight, tweight = both(numbers(*ty.shape, seed=number))
        (y * weight).sum().backward(retain_graph=True)
        (ty * tweight).sum().backward(retain_graph=True)
    for a, b in [*pairs, *zip(ours.parameters(), theirs.parameters(), strict=True)]:
        assert_same(a.grad, b.grad, rtol=1e-3, atol=1e-4)  # sums over all steps and results


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("form", ["batch", "alone", "with state"])
def test_a_layer_is_torchs(name: str, form: str) -> None:
    kind, how = LAYERS[name]
    ours, theirs = getattr(nn, kind)(3, 4, **how), getattr(tnn, kind)(3, 4, **how)
    arrays = [numbers(5, 3) if form == "alone" else numbers(5, 2, 3)]
    if form == "with state":
        batch = 5 if how.get("batch_first") else 2
        rows = how.get("num_layers", 1) * (2 if how.get("bidirectional") else 1)
        sizes = [how.get("proj_size") or 4, 4][:2 if kind == "LSTM" else 1]
        arrays += [numbers(rows, batch, size, seed=i + 1) for i, size in enumerate(sizes)]
    check(ours, theirs, arrays)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("kind, how", [("RNNCell", {}), ("RNNCell", {"nonlinearity": "relu"}), ("LSTMCell", {}),
                                       ("GRUCell", {"bias": False})])
@pytest.mark.parametrize("batch, states", [((2,), 0), ((), 0), ((2,), 1)])
def test_a_cell_is_torchs(kind: str, how: dict[str, Any], batch: tuple[int, ...], states: int) -> None:
    ours, theirs = getattr(nn, kind)(3, 4, **how), getattr(tnn, kind)(3, 4, **how)
    given = [numbers(*batch, 4, seed=i + 1) for i in range(states * (2 if kind == "LSTMCell" else 1))]
    check(ours, theirs, [numbers(*batch, 3), *given])
    assert repr(ours) == repr(theirs)


def test_dropout_is_between_the_layers_while_training() -> None:
    layer = nn.LSTM(3, 4, 2, dropout=1.0)
    x = genesis.ones(5, 2, 3)
    assert not genesis.allclose(layer(x)[0], layer.eval()(x)[0])


@pytest.mark.parametrize("call", [
    lambda lib: lib.nn.LSTM(3, 4, dropout=1.5), lambda lib: lib.nn.RNN(3, 4, nonlinearity="sine"),
    lambda lib: lib.nn.GRU(3, 0), lambda lib: lib.nn.LSTM(3, 4, proj_size=4),
    lambda lib: lib.nn.GRU(3, 4)(lib.ones(2, 2, 2, 3)), lambda lib: lib.nn.GRU(3, 4)(lib.ones(2, 2, 5)),
    lambda lib: lib.nn.GRU(3, 4)(lib.ones(2, 2, 3), lib.ones(1, 3, 4)),
    lambda lib: lib.nn.RNNCell(3, 4)(lib.ones(2, 5)), lambda lib: lib.nn.RNNCell(3, 4)(lib.ones(1, 1, 3)),
    lambda lib: lib.nn.GRUCell(3, 4)(lib.ones(2, 3), lib.ones(3, 4)),
])
def test_what_torch_refuses_is_refused(call: Any) -> None:
    for lib in (genesis, torch):
        with pytest.raises((RuntimeError, ValueError)):
            call(lib)


def test_a_layer_on_the_cpu_is_one_call_whose_backward_reads_what_it_kept() -> None:
    layer = nn.LSTM(3, 4)
    results, _ = layer(genesis.ones(5, 2, 3))
    results.sum().backward()
    genesis.eval(*[p.grad for p in layer.parameters()])
    plan = genesis.engine.last_plan()
    assert plan is not None
    called = [call.label.split()[0] for call in plan.plan.steps]
    assert called.count("recurrent_saving") == called.count("recurrent_from_saved") == 1
    assert not {"linear", "matmul", "tanh", "sigmoid"} & set(called)


def test_a_layer_without_gradients_keeps_nothing() -> None:
    layer = nn.GRU(3, 4)
    with genesis.no_grad():
        layer(genesis.ones(5, 2, 3))[0].numpy()
    plan = genesis.engine.last_plan()
    assert plan is not None and [call.label.split()[0] for call in plan.plan.steps].count("recurrent") == 1


def test_a_read_before_the_backward_changes_no_gradient() -> None:
    x, layer = numbers(5, 2, 3), nn.LSTM(3, 4)
    found = []
    for reads in (False, True):
        layer.zero_grad()
        loss = layer(genesis.tensor(x))[0].square().sum()
        if reads:
            loss.item()
        loss.backward()
        found.append([p.grad.numpy().copy() for p in layer.parameters() if p.grad is not None])
    assert len(found[0]) == 4
    for a, b in zip(*found, strict=True):
        assert (a == b).all()


@pytest.mark.parametrize("kind, how", [("LSTM", {"proj_size": 2}), ("GRU", {}), ("RNN", {})])
def test_sequences_of_several_lengths_and_a_second_derivative(kind: str, how: dict[str, Any]) -> None:
    """Packed, both ways; float64, where torch's derivative of its derivative is exact to rounding."""
    ours, theirs = (getattr(lib, kind)(3, 4, bidirectional=True, **how) for lib in (nn, tnn))
    ours, theirs = ours.double(), theirs.double()
    copy_weights(ours, theirs)
    found = []
    for lib, layer in ((genesis, ours), (torch, theirs)):
        x = lib.tensor(numbers(5, 3, 3).astype("float64"), requires_grad=True)
        packed = lib.nn.utils.rnn.pack_padded_sequence(x, [3, 5, 1], enforce_sorted=False)
        results, last = layer(packed)
        results, _ = lib.nn.utils.rnn.pad_packed_sequence(results)
        ends = last if isinstance(last, tuple) else (last,)
        loss = results.pow(2).sum() + sum(h.pow(3).sum() for h in ends)
        slope, = lib.autograd.grad(loss, [x], create_graph=True)
        slope.pow(2).sum().backward()
        found.append([results, *ends, slope, x.grad, *[p.grad for p in layer.parameters()]])
    for y, ty in zip(*found, strict=True):
        np.testing.assert_allclose(y.detach().numpy(), ty.detach().numpy(), rtol=1e-9, atol=1e-11)


def test_a_batch_of_layers_by_vmap() -> None:
    layer = nn.GRU(3, 4)
    x = genesis.tensor(numbers(2, 5, 1, 3))
    genesis.eval(*layer.parameters())
    found = genesis.func.vmap(lambda one: layer(one)[0])(x)
    for one, result in zip(x, found, strict=True):
        assert genesis.allclose(layer(one)[0], result, atol=1e-6)


def test_a_layer_in_bfloat16_is_written_out() -> None:
    layer = nn.LSTM(3, 4).to(genesis.bfloat16)
    y = layer(genesis.ones(5, 2, 3, dtype=genesis.bfloat16))[0]
    y.sum().backward()
    assert y.dtype is genesis.bfloat16 and layer.weight_hh_l0.grad.dtype is genesis.bfloat16
    wide = nn.LSTM(3, 4)
    wide.load_state_dict({name: p.float() for name, p in layer.state_dict().items()})
    assert genesis.allclose(y.float(), wide(genesis.ones(5, 2, 3))[0], atol=0.05)  # 8 bits, over 5 steps
