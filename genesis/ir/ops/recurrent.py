"""A recurrent layer over time in one direction: Elman's network, the LSTM and the GRU, over all steps of a sequence.

A layer is one op, so that a backend may run it as one call: the products of all steps with the input are one, and so
are those for the gradients of the weights. Written out it is its steps, one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from genesis.ir.node import Node, Op, broadcast
from genesis.ir.ops.contraction import linear, matmul, swap_last
from genesis.ir.ops.control import item
from genesis.ir.ops.leaves import full, zeros_like
from genesis.ir.ops.movement import concat, reshape, take_range
from genesis.ir.ops.pointwise import common, gt, relu, sigmoid, tanh, where, where_
from genesis.ir.ops.reduction import sum
from genesis.ir.ops.samples import FLOAT, Operand, Samples, Values, booleans, case, cases, np, reals
from genesis.ir.types import TensorType, bool_, tensor_type, uint8

if TYPE_CHECKING:
    from typing import TypedDict, Unpack

    from numpy import ndarray

    from genesis.ir.node import Attr
    from genesis.ir.ops.entry import Accurate

    class How(TypedDict):
        """What a layer is like."""

        mode: str
        reverse: bool
        biased: bool
        projected: bool
        ragged: bool

GATES: Final = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}
"""Rows of the weights for each hidden element, by the kind of the layer."""

ATTRIBUTES: Final = ("mode", "reverse", "biased", "projected", "ragged")

State = tuple[Node, ...]

T = TypeVar("T")


class Operands(NamedTuple, Generic[T]):
    """The operands of a layer, by name; nodes, their types, or a backend's tensors.

    Attributes:
        x: (time, batch, input size).
        state: before the first step: hidden (batch, size), of an LSTM also cell (batch, hidden size).
        weights: (gates · hidden size, input size) and (gates · hidden size, size).
        biases: none, or two of (gates · hidden size).
        projection: none, or (size, hidden size): what makes an LSTM's hidden state smaller than its cell.
        within: none, or bool (time, batch, 1), false behind the end of a sequence. Such a step leaves the state as it
            is. Each sequence is at least as long as the next one, and at least one step long.
    """

    x: T
    state: tuple[T, ...]
    weights: tuple[T, T]
    biases: tuple[T, ...]
    projection: tuple[T, ...]
    within: tuple[T, ...]


def operands_of(given: Sequence[T], mode: str, biased: bool, projected: bool, ragged: bool,
                **other: object) -> Operands[T]:
    """What a layer with these attributes is given, by name."""
    rest = list(given)

    def take(count: int) -> tuple[T, ...]:
        found = tuple(rest[:count])
        del rest[:count]
        return found
    x, = take(1)
    state, weights, biases = take(2 if mode == "LSTM" else 1), take(2), take(2 if biased else 0)
    return Operands(x, state, (weights[0], weights[1]), biases, take(1 if projected else 0), take(1 if ragged else 0))


# Types

def _type(*types: TensorType, mode: str, reverse: bool, biased: bool, projected: bool,
          ragged: bool) -> tuple[TensorType, ...]:
    given = operands_of(types, mode, biased, projected, ragged)
    x, (into, again) = given.x, given.weights
    if x.ndim != 3:
        raise RuntimeError(f"the input must be (time, batch, size), not {x.shape}")
    if not x.shape[0]:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    common((x,), FLOAT)
    batch, rows, size = x.shape[1], into.shape[0], again.shape[1]
    hidden = rows // GATES[mode]
    wanted = [(into, (rows, x.shape[2])), (again, (rows, size)), (given.state[0], (batch, size)),
              *[(c, (batch, hidden)) for c in given.state[1:]], *[(b, (rows,)) for b in given.biases],
              *[(p, (size, hidden)) for p in given.projection]]
    for found, shape in wanted:
        if found.shape != shape:
            raise RuntimeError(f"{found.shape} does not fit an input of {x.shape} and weights of {into.shape} and "
                               f"{again.shape}: {shape} is wanted")
        if found.dtype is not x.dtype:
            raise RuntimeError(f"dtypes of input {x.dtype!r} and parameters or states {found.dtype!r} differ")
    for mask in given.within:
        if mask.shape != (*x.shape[:2], 1) or mask.dtype is not bool_:
            raise RuntimeError(f"the steps that count must be bool of {(*x.shape[:2], 1)}, not {mask}")
    if any(t.device is not x.device for t in types):
        raise RuntimeError(f"operands are on several devices: {', '.join(sorted({str(t.device) for t in types}))}")
    return (x.with_shape((*x.shape[:2], size)), *given.state)


def _gradient_types(*types: TensorType, arriving: tuple[bool, ...], **how: Unpack[How]) -> tuple[TensorType, ...]:
    return types[arriving.count(True):len(types) - how["ragged"]]


# Steps

def _at(x: Node, t: int) -> Node:
    """x[t]."""
    return reshape(take_range(x, 0, t, t + 1), shape=x.type.shape[1:])


def _split(x: Node, count: int) -> list[Node]:
    """The gates, which lie side by side."""
    size = x.type.shape[-1] // count
    return [take_range(x, x.type.ndim - 1, i * size, (i + 1) * size) for i in range(count)]


def _stack(parts: Sequence[Node]) -> Node:
    """The values of all steps as one: (time, ...)."""
    return concat(*[reshape(x, shape=(1, *x.type.shape)) for x in parts], axis=0)


class _Step(NamedTuple):
    """What a step made: its gates, the state before it, the hidden state before projection, and the state after."""

    t: int
    gates: tuple[Node, ...]
    before: State
    full: Node
    after: State


def _step(mode: str, from_input: Node, from_hidden: Node, state: State) -> tuple[tuple[Node, ...], State]:
    """The gates and the next state."""
    if mode == "LSTM":
        i, f, g, o = _split(from_input + from_hidden, 4)
        i, f, g, o = sigmoid(i), sigmoid(f), tanh(g), sigmoid(o)
        cell = f * state[1] + i * g
        return (i, f, g, o), (o * tanh(cell), cell)
    if mode == "GRU":
        (r, z, n), (hr, hz, hn) = _split(from_input, 3), _split(from_hidden, 3)
        r, z = sigmoid(r + hr), sigmoid(z + hz)
        new = tanh(n + r * hn)
        return (r, z, new, hn), (new + z * (state[0] - new),)
    found = (tanh if mode == "RNN_TANH" else relu)(from_input + from_hidden)
    return (found,), (found,)


def _mask(given: Operands[Node], t: int, like: Node) -> Node:
    return broadcast(_at(given.within[0], t), like)[0]


def _steps(given: Operands[Node], mode: str, reverse: bool) -> list[_Step]:
    """All steps, in the order in which they are made."""
    from_inputs = linear(given.x, given.weights[0], *given.biases[:1])
    state, made = given.state, []
    times = range(given.x.type.shape[0])
    for t in reversed(times) if reverse else times:
        before = state
        gates, state = _step(mode, _at(from_inputs, t), linear(before[0], given.weights[1], *given.biases[1:]), before)
        full = state[0]
        if given.projection:
            state = (linear(full, given.projection[0]), *state[1:])
        if given.within:
            state = tuple(where(_mask(given, t, new), new, old) for new, old in zip(state, before, strict=True))
        made.append(_Step(t, gates, before, full, state))
    return made


def _layer(*operands: Node, mode: str, reverse: bool, **how: bool) -> tuple[Node, ...]:
    made = _steps(operands_of(operands, mode, **how), mode, reverse)
    results = [step.after[0] for step in sorted(made, key=lambda step: step.t)]
    return (_stack(results), *made[-1].after)


# Derivative

def _pull_step(mode: str, step: _Step, to_hidden: Node, to_cell: Node | None) -> tuple[Node, Node, State]:
    """The gradients by what came from the input, by what came from the hidden state, and by the state itself."""
    if mode == "LSTM":
        i, f, g, o = step.gates
        assert to_cell is not None
        bent = tanh(f * step.before[1] + i * g)
        to_cell = to_cell + to_hidden * o * (1 - bent * bent)
        parts = (to_cell * g * i * (1 - i), to_cell * step.before[1] * f * (1 - f), to_cell * i * (1 - g * g),
                 to_hidden * bent * o * (1 - o))
        found = concat(*parts, axis=1)
        return found, found, (to_cell * f,)
    if mode == "GRU":
        r, z, new, from_hidden = step.gates
        to_new = to_hidden * (1 - z) * (1 - new * new)
        to_reset = to_new * from_hidden * r * (1 - r)
        to_update = to_hidden * (step.before[0] - new) * z * (1 - z)
        return (concat(to_reset, to_update, to_new, axis=1), concat(to_reset, to_update, to_new * r, axis=1),
                (to_hidden * z,))
    y, = step.gates
    found = to_hidden * (1 - y * y) if mode == "RNN_TANH" else where_(gt(y, zeros_like(y)), to_hidden, 0.0)
    return found, found, ()


class _Pulled(NamedTuple):
    """Gradients that a step gives: by what came from the input, by what came from the hidden state, by the projection's
    result."""

    from_input: Node
    from_hidden: Node
    projected: Node


def _backward(*given: Node, arriving: tuple[bool, ...], mode: str, reverse: bool, **how: bool) -> tuple[Node, ...]:
    """Backwards through the steps; then each weight's gradient is one product over all of them."""
    arrived = iter(given[:arriving.count(True)])
    operands = operands_of(given[arriving.count(True):], mode, **how)
    to_y, *to_last = [next(arrived) if has else None for has in arriving]
    made = _steps(operands, mode, reverse)
    to_state = [zeros_like(x) if g is None else g for g, x in zip(to_last, operands.state, strict=True)]
    pulled: dict[int, _Pulled] = {}
    for step in reversed(made):
        if to_y is not None:
            to_state[0] = to_state[0] + _at(to_y, step.t)
        kept: list[Node] = []
        if operands.within:
            masks = [_mask(operands, step.t, g) for g in to_state]
            kept = [where_(mask, 0.0, g) for mask, g in zip(masks, to_state, strict=True)]
            to_state = [where_(mask, g, 0.0) for mask, g in zip(masks, to_state, strict=True)]
        outward = to_state[0]
        to_full = matmul(outward, operands.projection[0]) if operands.projection else outward
        from_input, from_hidden, own = _pull_step(mode, step, to_full, to_state[1] if mode == "LSTM" else None)
        pulled[step.t] = _Pulled(from_input, from_hidden, outward)
        to_hidden = matmul(from_hidden, operands.weights[1])
        to_state = [to_hidden, *own] if mode == "LSTM" else [to_hidden + own[0] if own else to_hidden]
        to_state = [a + b for a, b in zip(to_state, kept, strict=True)] if kept else to_state
    return _over_all_steps(operands, made, pulled, to_state)


def _rows(parts: Sequence[Node]) -> Node:
    """The values of all steps below each other: (time · batch, ...)."""
    return concat(*parts, axis=0) if len(parts) > 1 else parts[0]


def _over_all_steps(operands: Operands[Node], made: list[_Step], pulled: dict[int, _Pulled],
                    to_state: list[Node]) -> tuple[Node, ...]:
    """The gradients of all operands, from those of each step."""
    in_order = sorted(made, key=lambda step: step.t)
    from_input, from_hidden, outward = (_rows([pulled[step.t][part] for step in in_order]) for part in range(3))
    x, hidden = operands.x, _rows([step.before[0] for step in in_order])
    flat = reshape(x, shape=(x.type.shape[0] * x.type.shape[1], x.type.shape[2]))
    found = [reshape(matmul(from_input, operands.weights[0]), shape=x.type.shape), *to_state,
             matmul(swap_last(from_input), flat), matmul(swap_last(from_hidden), hidden)]
    if operands.biases:
        found += [sum(from_input, axes=(0,)), sum(from_hidden, axes=(0,))]
    if operands.projection:
        found.append(matmul(swap_last(outward), _rows([step.full for step in in_order])))
    return tuple(found)


def _vjp(g: tuple[Node | None, ...], *operands_and_y: Node, **how: Unpack[How]) -> tuple[Node | None, ...]:
    arriving = tuple(x is not None for x in g)
    found = recurrent_backward(*[x for x in g if x is not None], *operands_and_y[:-1], arriving=arriving, **how)
    return tuple(item(found, index=i) for i in range(len(found.types)))


# What a backend keeps between the two

def _saving_type(*types: TensorType, **how: Unpack[How]) -> tuple[TensorType, ...]:
    return (*_type(*types, **how), tensor_type((1,), uint8, types[0].device))


def _saving(*operands: Node, **how: Unpack[How]) -> tuple[Node, ...]:
    return (*_layer(*operands, **how), full((1,), 0, uint8, operands[0].type.device))


def _from_saved_types(saved: TensorType, *types: TensorType, arriving: tuple[bool, ...], wanted: tuple[bool, ...],
                      **how: Unpack[How]) -> tuple[TensorType, ...]:
    results = len(arriving)
    given = types[:arriving.count(True)]
    return _gradient_types(*given, *types[len(given) + results:], arriving=arriving, **how)


def _from_saved(saved: Node, *given: Node, arriving: tuple[bool, ...], wanted: tuple[bool, ...],
                **how: Unpack[How]) -> tuple[Node, ...]:
    arrived, results = arriving.count(True), len(arriving)
    return _backward(*given[:arrived], *given[arrived + results:], arriving=arriving, **how)


# Reference and samples

def _sigmoid_value(x: ndarray) -> ndarray:
    return 1 / (1 + np.exp(-x))


def _step_value(mode: str, a: ndarray, b: ndarray, state: list[ndarray]) -> list[ndarray]:
    if mode == "LSTM":
        i, f, g, o = np.split(a + b, 4, -1)
        cell = _sigmoid_value(f) * state[1] + _sigmoid_value(i) * np.tanh(g)
        return [_sigmoid_value(o) * np.tanh(cell), cell]
    if mode == "GRU":
        (r, z, n), (hr, hz, hn) = np.split(a, 3, -1), np.split(b, 3, -1)
        kept, new = _sigmoid_value(z + hz), np.tanh(n + _sigmoid_value(r + hr) * hn)
        return [(1 - kept) * new + kept * state[0]]
    return [np.tanh(a + b) if mode == "RNN_TANH" else np.maximum(a + b, 0)]


def _value(*operands: ndarray, mode: str, reverse: bool, **how: bool) -> tuple[ndarray, ...]:
    given = operands_of(operands, mode, **how)
    state, results = list(given.state), {}
    biases = given.biases or (0, 0)
    times = range(given.x.shape[0])
    for t in reversed(times) if reverse else times:
        before = state
        state = _step_value(mode, given.x[t] @ given.weights[0].T + biases[0],
                            state[0] @ given.weights[1].T + biases[1], state)
        if given.projection:
            state[0] = state[0] @ given.projection[0].T
        if given.within:
            state = [np.where(given.within[0][t], new, old) for new, old in zip(state, before, strict=True)]
        results[t] = state[0]
    return (np.stack([results[t] for t in times]), *state)


def _lengths(*lengths: int) -> Values:
    """A mask of sequences of these lengths."""
    return booleans()._replace(way=lambda values, random, shape, dtype: (
        np.arange(shape[0])[:, None, None] < np.array(lengths)[None, :, None]))


_CASES: Final[tuple[tuple[str, bool, bool, int, tuple[int, ...]], ...]] = (
    # mode, reverse, biased, size of the projection, lengths
    ("LSTM", False, True, 0, ()), ("LSTM", True, False, 0, ()), ("LSTM", False, True, 2, ()),
    ("LSTM", True, True, 0, (3, 2)), ("LSTM", False, False, 2, (3, 1)), ("GRU", False, True, 0, ()),
    ("GRU", True, False, 0, (3, 1)), ("GRU", False, True, 0, (2, 2)), ("RNN_TANH", False, True, 0, ()),
    ("RNN_RELU", True, False, 0, (3, 1)))


def _operands(mode: str, biased: bool, projected: int, lengths: tuple[int, ...], time: int = 3,
              batch: int = 2) -> list[Operand]:
    rows, size = 3 * GATES[mode], projected or 3
    found = [reals().of(time, batch, 4), reals().of(batch, size)]
    found += [reals().of(batch, 3)] * (mode == "LSTM")
    found += [reals().of(rows, 4), reals().of(rows, size), *[reals().of(rows)] * (2 if biased else 0)]
    found += [reals().of(projected, 3)] * bool(projected)
    return found + [_lengths(*lengths).of(time, batch, 1)] * bool(lengths)


def _samples(results: str) -> Samples:
    """`results`: which of what else an op wants comes before a layer's operands."""
    found = []
    for number, (mode, reverse, biased, projected, lengths) in enumerate(_CASES):
        given = _operands(mode, biased, projected, lengths)
        how: dict[str, Attr] = {"mode": mode, "reverse": reverse, "biased": biased, "projected": projected > 0,
                               "ragged": bool(lengths)}
        if results:
            states = 2 if mode == "LSTM" else 1
            arriving = (True, *[number % 2 == 0] * states)
            y = reals().of(3, 2, projected or 3)
            gradients = [g for g, has in zip((y, *given[1:1 + states]), arriving, strict=True) if has]
            how["arriving"] = arriving
            given = [*gradients, *given]
        found.append(case(*given, **how))
    return cases(*found, scale=8)


_ATTRIBUTES: Accurate = {"attrs": ATTRIBUTES, "ulp": 32}
_BACKWARD: Accurate = {"attrs": ("arriving", *ATTRIBUTES), "ulp": 64}

recurrent = Op("recurrent", "composite", _type, **_ATTRIBUTES, decompose=_layer, vjp=_vjp, autocast="low",
               doc="A recurrent layer over time in one direction: (all hidden states, the last state). Operands are "
                   "the input (time, batch, size), the first state, two weights, their biases, a projection, and which "
                   "steps count; mode is LSTM (Hochreiter and Schmidhuber 1997), GRU (Cho et al. 2014), RNN_TANH or "
                   "RNN_RELU.",
               samples=_samples(""), reference=_value)
recurrent_backward: Op = Op("recurrent_backward", "composite", _gradient_types, **_BACKWARD, decompose=_backward,
                            doc="Gradients of recurrent by its floating-point operands; first come the gradients of "
                                "those results that `arriving` names.",
                            samples=_samples("gradients"))
recurrent_saving = Op("recurrent_saving", "composite", _saving_type, **_ATTRIBUTES, decompose=_saving,
                      differentiable=False,
                      doc="recurrent, and last what the backend's kernel keeps for the backward: a handle of one byte, "
                          "what it stands for is the kernel's affair.")
recurrent_from_saved = Op("recurrent_from_saved", "composite", _from_saved_types, decompose=_from_saved,
                          attrs=("arriving", "wanted", *ATTRIBUTES), differentiable=False,
                          doc="recurrent_backward with recurrent_saving's handle, then the gradients, recurrent's "
                              "results and its operands. Gradients that nobody wants may be left undefined.")
