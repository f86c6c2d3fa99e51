"""Recurrent cells: a step of Elman's network, of the LSTM (Hochreiter and Schmidhuber 1997), the GRU (Cho 2014)."""

from __future__ import annotations

import math
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops.recurrent import GATES
from genesis.ir.types import DType
from genesis.nn import functional as F
from genesis.nn import init
from genesis.nn.modules.module import Module
from genesis.nn.modules.over_time import State, step
from genesis.nn.parameter import Parameter
from genesis.ops.creation import empty

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]

def initialize(module: Module, hidden_size: int) -> None:
    """Uniform within 1/√hidden_size, as torch's."""
    bound = 1 / math.sqrt(hidden_size) if hidden_size > 0 else 0.0
    for parameter in module.parameters():
        init.uniform_(parameter, -bound, bound)


class RNNCellBase(Module):
    """The base of the cells: four parameters, and zeros for a state that is not given."""

    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(self, mode: str, input_size: int, hidden_size: int, bias: bool, device: Any, dtype: DType | None):
        super().__init__()
        self.mode, self.input_size, self.hidden_size, self.bias = mode, input_size, hidden_size, bias
        rows = GATES[mode] * hidden_size
        self.weight_ih = Parameter(empty(rows, input_size, device=device, dtype=dtype))
        self.weight_hh = Parameter(empty(rows, hidden_size, device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(rows, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        initialize(self, self.hidden_size)

    def next_state(self, input: Tensor, state: State | None) -> State:
        """One step, of a batch or of one example."""
        name = type(self).__name__
        if input.spec.ndim not in (1, 2):
            raise failure(name, f"Expected input to be 1D or 2D, got {input.spec.ndim}D instead", [("input", input)],
                          error=ValueError)
        if input.spec.shape[-1] != self.input_size:
            raise failure(name, f"input has inconsistent input_size: got {input.spec.shape[-1]} expected "
                          f"{self.input_size}", [("input", input)])
        count = 2 if self.mode == "LSTM" else 1
        if state is None:
            state = (input.new_zeros((*input.spec.shape[:-1], self.hidden_size)),) * count
        for hidden in state:
            if hidden.spec.shape != (*input.spec.shape[:-1], self.hidden_size):
                raise failure(name, f"hidden has inconsistent shape {list(hidden.spec.shape)}", [("hidden", hidden)])
        return step(self.mode, F.linear(input, self.weight_ih, self.bias_ih),
                    F.linear(state[0], self.weight_hh, self.bias_hh), state)

    def extra_repr(self) -> str:
        """The sizes, and what is not as usual."""
        text = f"{self.input_size}, {self.hidden_size}"
        return text + ("" if self.bias else f", bias={self.bias}")


class RNNCell(RNNCellBase):
    """tanh(W_ih x + b_ih + W_hh h + b_hh), or with nonlinearity="relu" its rectifier.

    >>> import genesis
    >>> RNNCell(3, 2)(genesis.ones(5, 3)).shape
    genesis.Size([5, 2])
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh",
                 device: Any = None, dtype: DType | None = None):
        if nonlinearity not in ("tanh", "relu"):
            raise failure("RNNCell", f"Unknown nonlinearity: {nonlinearity}", hint="tanh or relu")
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, bias, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """(batch, input_size) and the hidden state, 0 by default → the next one."""
        return self.next_state(input, None if hx is None else (hx,))[0]

    def extra_repr(self) -> str:
        """The sizes, and what is not as usual."""
        return super().extra_repr() + ("" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}")


class LSTMCell(RNNCellBase):
    """One step of long short-term memory; gates in the order i, f, g, o."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: DType | None = None):
        super().__init__("LSTM", input_size, hidden_size, bias, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> State:
        """(batch, input_size) and (hidden, cell), 0 by default → the next ones."""
        return self.next_state(input, hx)


class GRUCell(RNNCellBase):
    """One step of the gated recurrent unit; gates in the order r, z, n."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None,
                 dtype: DType | None = None):
        super().__init__("GRU", input_size, hidden_size, bias, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """(batch, input_size) and the hidden state, 0 by default → the next one."""
        return self.next_state(input, None if hx is None else (hx,))[0]
