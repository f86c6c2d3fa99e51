"""A recurrent layer over time in one direction: one op, which a backend that has no call for it writes out when it
compiles; and a step of a cell."""

from __future__ import annotations

from typing import NamedTuple

from genesis.frontend.autocast_policy import cast_for
from genesis.frontend.recording import record
from genesis.frontend.tensor import Tensor
from genesis.ir.ops.recurrent import recurrent
from genesis.ops.activation import relu
from genesis.ops.special import sigmoid
from genesis.ops.trigonometry import tanh

State = tuple[Tensor, ...]


class Weights(NamedTuple):
    """The parameters of a layer in one direction, by torch's names."""

    weight_ih: Tensor
    weight_hh: Tensor
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    weight_hr: Tensor | None


def over_time(mode: str, reverse: bool, x: Tensor, state: State, weights: Weights,
              within: Tensor | None) -> tuple[Tensor, State]:
    """All results of a layer, and its last state.

    Args:
        mode: one of `GATES` (`genesis.ir.ops.recurrent`).
        reverse: from the last step to the first.
        x: (time, batch, input size).
        state: (hidden,), of an LSTM (hidden, cell), each (batch, size).
        weights: of the layer.
        within: bool (time, batch, 1), False behind the end of a sequence; None: all have one length.
    """
    biased, projected = weights.bias_ih is not None, weights.weight_hr is not None
    floats = cast_for(recurrent, x, *state, *[p for p in weights if p is not None])
    given = floats if within is None else (*floats, within)
    results, *last = record(recurrent, given, (mode, reverse, biased, projected, within is not None))
    return results, tuple(last)


def step(mode: str, from_input: Tensor, from_hidden: Tensor, state: State) -> State:
    """The next state of a cell: (hidden,), of an LSTM (hidden, cell).

    Args:
        mode: one of `GATES`.
        from_input, from_hidden: (batch, gates · hidden), weights and biases of torch's order of gates applied.
        state: before.
    """
    if mode == "LSTM":
        i, f, g, o = (from_input + from_hidden).chunk(4, -1)
        cell = sigmoid(f) * state[1] + sigmoid(i) * tanh(g)
        return sigmoid(o) * tanh(cell), cell
    if mode == "GRU":
        (r, z, n), (hr, hz, hn) = from_input.chunk(3, -1), from_hidden.chunk(3, -1)
        new, kept = tanh(n + sigmoid(r + hr) * hn), sigmoid(z + hz)
        return (new + kept * (state[0] - new),)
    activation = tanh if mode == "RNN_TANH" else relu
    return (activation(from_input + from_hidden),)
