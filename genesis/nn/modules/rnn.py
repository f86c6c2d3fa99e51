"""Recurrent layers over whole sequences."""

from __future__ import annotations

import warnings
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops.recurrent import GATES
from genesis.ir.types import DType
from genesis.nn import functional as F
from genesis.nn.modules.module import Module
from genesis.nn.modules.over_time import State, Weights, over_time
from genesis.nn.modules.recurrent import initialize
from genesis.nn.parameter import Parameter
from genesis.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence
from genesis.ops.creation import empty
from genesis.ops.parts import cat, stack
from genesis.ops.ranges import arange

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]


class RNNBase(Module):
    """The base of `RNN`, `LSTM` and `GRU`.

    Args:
        mode: one of `GATES`.
        input_size: of each step.
        hidden_size: of the state.
        num_layers: one on top of the other.
        bias: False leaves the biases out.
        batch_first: inputs and results are (batch, time, ...), not (time, batch, ...).
        dropout: between the layers.
        bidirectional: another state goes backwards; results are side by side.
        proj_size: of an LSTM: the hidden state is projected to this size.
        device, dtype: of the parameters, which start uniform within 1/√hidden_size.
    """

    def __init__(self, mode: str, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
                 device: Any = None, dtype: DType | None = None):
        super().__init__()
        if not 0 <= dropout <= 1:
            raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element "
                             "being zeroed")
        if dropout > 0 and num_layers == 1:
            warnings.warn("dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects "
                          f"num_layers greater than 1, but got dropout={dropout} and num_layers=1", stacklevel=3)
        if hidden_size <= 0 or num_layers <= 0:
            raise ValueError("hidden_size and num_layers must be greater than zero")
        if not 0 <= proj_size < hidden_size:
            raise ValueError("proj_size has to be smaller than hidden_size, and not negative")
        if proj_size and mode != "LSTM":
            raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
        self.bidirectional, self.proj_size = bidirectional, proj_size
        rows, out = GATES[mode] * hidden_size, proj_size or hidden_size
        for layer in range(num_layers):
            width = input_size if layer == 0 else out * (2 if bidirectional else 1)
            for suffix in self._suffixes(layer):
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, width), "weight_hh": (rows, out)}
                if bias:
                    shapes |= {"bias_ih": (rows,), "bias_hh": (rows,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                for name, shape in shapes.items():
                    self.register_parameter(name + suffix, Parameter(empty(*shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def _suffixes(self, layer: int) -> list[str]:
        return [f"_l{layer}", f"_l{layer}_reverse"] if self.bidirectional else [f"_l{layer}"]

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        initialize(self, self.hidden_size)

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    # torch's own lists under its names for them: programs set gates' biases and wrap weights by these.

    @property
    def _all_weights(self) -> list[list[str]]:
        kinds = ["weight_ih", "weight_hh", *(["bias_ih", "bias_hh"] if self.bias else []),
                 *(["weight_hr"] if self.proj_size else [])]
        return [[kind + suffix for kind in kinds]
                for layer in range(self.num_layers) for suffix in self._suffixes(layer)]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Tensor]:
        return [getattr(self, name) for name in self._flat_weights_names]

    def flatten_parameters(self) -> None:
        """Does nothing: torch puts cuDNN's weights in one piece of memory."""

    def run(self, input: Any, state: State | None) -> tuple[Any, State]:
        """The results of all steps, packed where the input is, and the last states, each (layers · directions, batch,
        size)."""
        if isinstance(input, PackedSequence):
            return self._run_packed(input, state)
        return self._run(input, state, None)

    def _run_packed(self, packed: PackedSequence, state: State | None) -> tuple[PackedSequence, State]:
        """The sequences are padded, steps behind the end of one leave its state, and the results are packed again."""
        lengths, order, back = packed.lengths(), packed.sorted_indices, packed.unsorted_indices
        padded, counts = pad_packed_sequence(PackedSequence(packed.data, packed.batch_sizes), self.batch_first)
        if state is not None and order is not None:
            state = tuple(h.index_select(1, order) for h in state)
        steps = arange(lengths[0], device=padded.device)
        within = None if lengths[0] == lengths[-1] else steps[:, None, None] < counts.to(padded.device)[:, None]
        results, ends = self._run(padded, state, within)
        if back is not None:
            ends = tuple(h.index_select(1, back) for h in ends)
        found = pack_padded_sequence(results, lengths, self.batch_first)
        return PackedSequence(found.data, packed.batch_sizes, order, back), ends

    def _run(self, input: Tensor, state: State | None, within: Tensor | None) -> tuple[Tensor, State]:
        """`run` of padded sequences; `within` is (time, batch, 1), False behind the end of a sequence."""
        name = type(self).__name__
        if input.spec.ndim not in (2, 3):
            raise failure(name, f"Expected input to be 2D or 3D, got {input.spec.ndim}D instead", [("input", input)],
                          error=ValueError)
        alone = input.spec.ndim == 2
        x = input.unsqueeze(1) if alone else input.transpose(0, 1) if self.batch_first else input
        if x.spec.shape[-1] != self.input_size:
            raise failure(name, f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got "
                          f"{x.spec.shape[-1]}", [("input", input)])
        directions = 2 if self.bidirectional else 1
        sizes = [self.proj_size or self.hidden_size, *([self.hidden_size] if self.mode == "LSTM" else [])]
        shapes = [(self.num_layers * directions, x.spec.shape[1], size) for size in sizes]
        if state is None:
            state = tuple(x.new_zeros(shape) for shape in shapes)
        elif alone:
            state = tuple(h.unsqueeze(1) for h in state)
        for hidden, shape in zip(state, shapes, strict=True):
            if hidden.spec.shape != shape:
                raise failure(name, f"Expected hidden size {shape}, got {list(hidden.spec.shape)}", [("hx", hidden)])
        last: list[State] = []
        for layer in range(self.num_layers):
            results = []
            for suffix in self._suffixes(layer):
                found, end = self._direction(x, suffix, tuple(h[len(last)] for h in state), within)
                results.append(found)
                last.append(end)
            x = cat(results, -1) if len(results) > 1 else results[0]
            if self.dropout and layer < self.num_layers - 1:
                x = F.dropout(x, self.dropout, self.training)
        ends = tuple(stack(list(part)) for part in zip(*last, strict=True))
        if alone:
            return x.squeeze(1), tuple(h.squeeze(1) for h in ends)
        return x.transpose(0, 1) if self.batch_first else x, ends

    def _direction(self, x: Tensor, suffix: str, state: State, within: Tensor | None) -> tuple[Tensor, State]:
        """One layer in one direction."""
        def own(name: str, there: bool = True) -> Any:  # with a default it would drop what a signal's handler raises
            return getattr(self, name + suffix) if there else None

        weights = Weights(own("weight_ih"), own("weight_hh"), own("bias_ih", self.bias), own("bias_hh", self.bias),
                          own("weight_hr", self.proj_size > 0))
        return over_time(self.mode, suffix.endswith("reverse"), x, state, weights, within)

    def extra_repr(self) -> str:
        """The sizes, and what is not as usual."""
        usual = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0,
                 "bidirectional": False}
        more = [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]
        return ", ".join([str(self.input_size), str(self.hidden_size), *more])


class RNN(RNNBase):
    """Elman's network; nonlinearity "tanh" or "relu", the other arguments as of `RNNBase`.

    >>> import genesis
    >>> results, last = RNN(3, 2)(genesis.ones(7, 5, 3))
    >>> results.shape, last.shape
    (genesis.Size([7, 5, 2]), genesis.Size([1, 5, 2]))
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, nonlinearity: str = "tanh",
                 bias: bool = True, batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
                 device: Any = None, dtype: DType | None = None):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """(time, batch, input_size), or packed, and the first hidden state → (all results, the last hidden state)."""
        results, state = self.run(input, None if hx is None else (hx,))
        return results, state[0]


class LSTM(RNNBase):
    """Long short-term memory (Hochreiter and Schmidhuber 1997); arguments as of `RNNBase`."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, proj_size: int = 0,
                 device: Any = None, dtype: DType | None = None):
        super().__init__("LSTM", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
                         proj_size, device, dtype)

    def forward(self, input: Any, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, State]:
        """(time, batch, input_size), or packed, and the first (hidden, cell) → (all results, the last (hidden,
        cell))."""
        return self.run(input, hx)


class GRU(RNNBase):
    """Gated recurrent units (Cho et al. 2014); arguments as of `RNNBase`."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, device: Any = None,
                 dtype: DType | None = None):
        super().__init__("GRU", input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
                         device=device, dtype=dtype)

    def forward(self, input: Any, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        """(time, batch, input_size), or packed, and the first hidden state → (all results, the last hidden state)."""
        results, state = self.run(input, None if hx is None else (hx,))
        return results, state[0]
