"""Recurrent layers over time: oneDNN's LSTM where torch runs that, else each step in few calls of torch.

The steps work in tensors that hold all of them. Products with the input are one call for all steps. Going back, what
depends on the forward alone (slopes of the gates) is computed for all steps at once, so that a step multiplies what
arrives by it and once by the weights; each weight's gradient is then one product over all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.dtypes import CPU
from genesis.codegen.cpu.lowerings.table import Lowering
from genesis.ir.ops.recurrent import Operands, operands_of

_aten = torch.ops.aten

Results = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class _Kept:
    """What a forward keeps for its backward.

    Attributes:
        workspace: oneDNN's.
        gates: (time, batch, gates, hidden), after their activations; of a GRU r, z and the new state.
        inner: (time, batch, hidden): an LSTM's cells; what a GRU's reset gate multiplies.
        full: (time, batch, hidden): hidden states before the projection.
    """

    workspace: Tensor | None = None
    gates: Tensor | None = None
    inner: Tensor | None = None
    full: Tensor | None = None


# What a step is for: which sequences have it

class _Times:
    """The steps in the order in which they are made, and how many sequences have each."""

    def __init__(self, given: Operands, reverse: bool):
        time, batch = given.x.shape[:2]
        self.order = range(time - 1, -1, -1) if reverse else range(time)
        self.counts = given.within[0][:, :, 0].sum(1).tolist() if given.within else [batch] * time
        self.batch = batch


def _rows(parts: Tensor) -> Tensor:
    """(time, batch, ...) as (time · batch, …)."""
    return parts.reshape(parts.shape[0] * parts.shape[1], -1)


def _from_inputs(given: Operands, folded: bool) -> Tensor:
    """The products of all steps with the input; `folded` adds the bias of the hidden state too."""
    into, rows = given.weights[0].t(), _rows(given.x)
    if not given.biases:
        found = torch.mm(rows, into)
    else:
        found = torch.addmm(given.biases[0] + given.biases[1] if folded else given.biases[0], rows, into)
    return found.view(*given.x.shape[:2], -1)


def _hold(y: Tensor, h: Tensor, count: int, batch: int) -> None:
    """Sequences that have ended, or not begun, keep their state."""
    if count < batch:
        y[count:].copy_(h[count:])


# Forward

def _lstm(given: Operands, times: _Times) -> tuple[Results, _Kept]:
    time, batch = given.x.shape[:2]
    hidden = given.weights[1].shape[0] // 4
    gates, again = _from_inputs(given, True), given.weights[1].t()
    four = gates.view(time, batch, 4, hidden)
    cells, bent = (gates.new_empty(time, batch, hidden) for _ in range(2))
    # a step that does not count is multiplied by a gradient of 0
    full = (gates.new_zeros if given.within else gates.new_empty)(time, batch, hidden)
    y = gates.new_empty(time, batch, again.shape[0]) if given.projection else full
    h, c = given.state
    whole, both = gates.unbind(0), four[:, :, :2].unbind(0)
    i, f, g, o = (x.unbind(0) for x in four.unbind(2))
    cs, ts, fs, ys = (x.unbind(0) for x in (cells, bent, full, y))
    for t in times.order:
        n = times.counts[t]
        if n == batch:
            whole[t].addmm_(h, again)
            both[t].sigmoid_()
            o[t].sigmoid_()
            g[t].tanh_()
            torch.mul(f[t], c, out=cs[t])
            c = cs[t].addcmul_(i[t], g[t])
            torch.tanh(c, out=ts[t])
            torch.mul(o[t], ts[t], out=fs[t])
        else:
            whole[t][:n].addmm_(h[:n], again)
            both[t][:n].sigmoid_()
            o[t][:n].sigmoid_()
            g[t][:n].tanh_()
            torch.mul(f[t][:n], c[:n], out=cs[t][:n])
            cs[t][:n].addcmul_(i[t][:n], g[t][:n])
            torch.tanh(cs[t][:n], out=ts[t][:n])
            torch.mul(o[t][:n], ts[t][:n], out=fs[t][:n])
            cs[t][n:].copy_(c[n:])
            c = cs[t]
        if given.projection:
            torch.mm(fs[t][:n], given.projection[0].t(), out=ys[t][:n])
        _hold(ys[t], h, n, batch)
        h = ys[t]
    return (y, h, c), _Kept(gates=four, inner=cells, full=full)


def _gru(given: Operands, times: _Times) -> tuple[Results, _Kept]:
    time, batch = given.x.shape[:2]
    hidden = given.weights[1].shape[1]
    gates, again = _from_inputs(given, False), given.weights[1].t()
    three, bias = gates.view(time, batch, 3, hidden), given.biases[1:]
    inner, y = (gates.new_empty(time, batch, hidden) for _ in range(2))
    product = gates.new_empty(batch, 3 * hidden)
    h = given.state[0]
    rz = gates[:, :, :2 * hidden].unbind(0)
    r, z, new = (x.unbind(0) for x in three.unbind(2))
    ns, ys = inner.unbind(0), y.unbind(0)
    for t in times.order:
        n = times.counts[t]
        found = product[:n]
        if bias:
            torch.addmm(bias[0], h[:n], again, out=found)
        else:
            torch.mm(h[:n], again, out=found)
        ns[t][:n].copy_(found[:, 2 * hidden:])
        rz[t][:n].add_(found[:, :2 * hidden]).sigmoid_()
        new[t][:n].addcmul_(r[t][:n], ns[t][:n]).tanh_()
        torch.lerp(new[t][:n], h[:n], z[t][:n], out=ys[t][:n])
        _hold(ys[t], h, n, batch)
        h = ys[t]
    return (y, h), _Kept(gates=three, inner=inner)


def _plain(given: Operands, times: _Times, activate: Callable[[Tensor], Tensor]) -> tuple[Results, _Kept]:
    y, again = _from_inputs(given, True), given.weights[1].t()
    h, ys = given.state[0], y.unbind(0)
    for t in times.order:
        n = times.counts[t]
        activate(ys[t][:n].addmm_(h[:n], again))
        _hold(ys[t], h, n, times.batch)
        h = ys[t]
    return (y, h), _Kept()


def _onednn(given: Operands, reverse: bool, train: bool) -> tuple[Results, _Kept]:
    """torch's own LSTM layer."""
    into, again = given.weights
    biases = given.biases or (into.new_zeros(into.shape[0]),) * 2
    y, h, c, workspace = _aten.mkldnn_rnn_layer(
        given.x.contiguous(), into, again, *biases, *[x.contiguous() for x in given.state], reverse, [], 2,
        again.shape[1], 1, True, False, False, train)
    return (y, h, c), _Kept(workspace=workspace)


def _by_onednn(given: Operands) -> bool:
    """Where torch has it: an LSTM in float32 whose sequences are of one length and whose state is not projected."""
    fits = len(given.state) == 2 and given.x.dtype is torch.float32 and not given.projection and not given.within
    return fits and bool(torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled)


def _forward(given: Operands, mode: str, reverse: bool, train: bool) -> tuple[Results, _Kept]:
    if _by_onednn(given):
        results, kept = _onednn(given, reverse, train)
        if kept.workspace is not None or not train:  # below torch's autograd (inference mode) it keeps nothing
            return results, kept
    times = _Times(given, reverse)
    if mode == "LSTM":
        return _lstm(given, times)
    if mode == "GRU":
        return _gru(given, times)
    return _plain(given, times, torch.tanh_ if mode == "RNN_TANH" else torch.relu_)


# Backward

def _before(all_states: Tensor, first: Tensor, reverse: bool) -> Tensor:
    """The state before each step."""
    first = first.unsqueeze(0)
    return torch.cat([all_states[1:], first] if reverse else [first, all_states[:-1]])


class _Arriving:
    """The gradient that arrives at each step's hidden state, from its result and from the step that was made after."""

    def __init__(self, to_y: Tensor | None, to_last: Tensor | None, y: Tensor):
        self._of = [None] * len(y) if to_y is None else to_y.unbind(0)
        self._last = to_last
        self._none = y.new_zeros(y.shape[1:]) if to_y is None else None

    def first(self, t: int) -> Tensor:
        """The value at the step that was made last."""
        own, last = self._of[t], self._last
        if own is None or last is None:
            found = last if own is None else own
            return found if found is not None else self._none
        return own + last

    def before(self, t: int | None) -> Tensor | None:
        """What step t's result got; None: nothing."""
        return None if t is None else self._of[t]


def _through(arriving: _Arriving, t: int | None, part: Tensor, again: Tensor, held: Tensor, n: int,
             own: Tensor | None = None) -> Tensor:
    """The gradient by the hidden state before a step: by way of its gates, its own, and its result's of step t."""
    base = arriving.before(t)
    if n == len(held):
        if own is not None:
            base = own if base is None else own.add_(base)
        return torch.mm(part, again) if base is None else torch.addmm(base, part, again)
    found = held.clone()
    found[:n] = torch.mm(part[:n], again)
    if own is not None:
        found[:n] += own[:n]
    return found if base is None else found.add_(base)


def _back_lstm(kept: _Kept, to_y: Tensor | None, to_h: Tensor | None, to_c: Tensor | None, given: Operands,
               times: _Times, reverse: bool, y: Tensor) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
    assert kept.gates is not None and kept.inner is not None
    time, batch, _, hidden = kept.gates.shape
    i, f, g, o = kept.gates.unbind(2)
    bent = torch.tanh(kept.inner)
    slopes = kept.gates.new_empty(time, batch, 3, hidden)
    _aten.sigmoid_backward.grad_input(g, i, grad_input=slopes[:, :, 0])
    _aten.sigmoid_backward.grad_input(_before(kept.inner, given.state[1], reverse), f, grad_input=slopes[:, :, 1])
    _aten.tanh_backward.grad_input(i, g, grad_input=slopes[:, :, 2])
    slope_o, slope_c = (x.unbind(0) for x in (_aten.sigmoid_backward(bent, o), _aten.tanh_backward(o, bent)))
    found = torch.zeros_like(kept.gates) if given.within else torch.empty_like(kept.gates)
    parts, three, last = (x.unbind(0) for x in (found.flatten(2), found[:, :, :3], found[:, :, 3]))
    outward = kept.gates.new_zeros(time, batch, y.shape[2]) if given.projection else found
    slopes_ifg, forgets = slopes.unbind(0), f.unbind(0)
    arriving, backwards = _Arriving(to_y, to_h, y), list(reversed(times.order))
    to_cell = kept.gates.new_zeros(batch, hidden) if to_c is None else to_c.clone()
    to_hidden = arriving.first(backwards[0])
    for at, t in enumerate(backwards):
        n = times.counts[t]
        cell, to_full = to_cell[:n], to_hidden[:n]
        if given.projection:
            outward[t, :n].copy_(to_full)
            to_full = torch.mm(to_full, given.projection[0])
        cell.addcmul_(to_full, slope_c[t][:n])
        torch.mul(to_full, slope_o[t][:n], out=last[t][:n])
        torch.mul(cell.unsqueeze(1), slopes_ifg[t][:n], out=three[t][:n])
        cell.mul_(forgets[t][:n])
        then = backwards[at + 1] if at + 1 < time else None
        to_hidden = _through(arriving, then, parts[t], given.weights[1], to_hidden, n)
    found = found.flatten(2)
    return found, found, [to_hidden, to_cell], outward


def _back_gru(kept: _Kept, to_y: Tensor | None, to_h: Tensor | None, given: Operands, times: _Times, reverse: bool,
              y: Tensor) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
    assert kept.gates is not None and kept.inner is not None
    time, batch, _, hidden = kept.gates.shape
    r, z, new = kept.gates.unbind(2)
    slope_new = _aten.tanh_backward(1 - z, new)
    slopes = kept.gates.new_empty(time, batch, 3, hidden)  # of r, z, and of what r multiplies
    _aten.sigmoid_backward.grad_input(slope_new * kept.inner, r, grad_input=slopes[:, :, 0])
    _aten.sigmoid_backward.grad_input(_before(y, given.state[0], reverse) - new, z, grad_input=slopes[:, :, 1])
    torch.mul(slope_new, r, out=slopes[:, :, 2])
    found = torch.zeros_like(kept.gates) if given.within else torch.empty_like(kept.gates)
    arrived = kept.gates.new_zeros(time, batch, hidden)
    three, parts, all_slopes, keeps = found.unbind(0), found.flatten(2).unbind(0), slopes.unbind(0), z.unbind(0)
    arriving, backwards = _Arriving(to_y, to_h, y), list(reversed(times.order))
    to_hidden = arriving.first(backwards[0])
    for at, t in enumerate(backwards):
        n = times.counts[t]
        arrived[t, :n].copy_(to_hidden[:n])
        torch.mul(to_hidden[:n].unsqueeze(1), all_slopes[t][:n], out=three[t][:n])
        then = backwards[at + 1] if at + 1 < time else None
        to_hidden = _through(arriving, then, parts[t], given.weights[1], to_hidden, n, to_hidden * keeps[t])
    from_input = found.clone()
    torch.mul(arrived, slope_new, out=from_input[:, :, 2])
    return from_input.flatten(2), found.flatten(2), [to_hidden], arrived


def _back_plain(mode: str, to_y: Tensor | None, to_h: Tensor | None, given: Operands, times: _Times,
                y: Tensor) -> tuple[Tensor, Tensor, list[Tensor], Tensor]:
    slope = 1 - y * y if mode == "RNN_TANH" else (y > 0).to(y.dtype)
    found = torch.zeros_like(y) if given.within else torch.empty_like(y)
    parts, slopes = found.unbind(0), slope.unbind(0)
    arriving, backwards = _Arriving(to_y, to_h, y), list(reversed(times.order))
    to_hidden = arriving.first(backwards[0])
    for at, t in enumerate(backwards):
        n = times.counts[t]
        torch.mul(to_hidden[:n], slopes[t][:n], out=parts[t][:n])
        then = backwards[at + 1] if at + 1 < len(backwards) else None
        to_hidden = _through(arriving, then, parts[t], given.weights[1], to_hidden, n)
    return found, found, [to_hidden], found


def _back_onednn(kept: _Kept, arrived: Sequence[Tensor | None], results: Results, given: Operands,
                 reverse: bool) -> list[Tensor | None]:
    into, again = given.weights
    biases = given.biases or (into.new_zeros(into.shape[0]),) * 2
    found = list(_aten.mkldnn_rnn_layer_backward(
        given.x.contiguous(), into, again, *biases, *[x.contiguous() for x in given.state],
        *[x.contiguous() for x in results], *[None if g is None else g.contiguous() for g in arrived], reverse, 2,
        again.shape[1], 1, True, True, False, [], False, kept.workspace))
    x, into, again, bias, _, h, c = found
    return [x, h, c, into, again, *([bias, bias.clone()] if given.biases else [])]


def _backward(kept: _Kept, arrived: Sequence[Tensor | None], results: Results, given: Operands, mode: str,
              reverse: bool, wanted: Sequence[bool]) -> tuple[Tensor | None, ...]:
    if kept.workspace is not None:
        return tuple(_back_onednn(kept, arrived, results, given, reverse))
    times, y = _Times(given, reverse), results[0]
    if mode == "LSTM":
        found = _back_lstm(kept, arrived[0], arrived[1], arrived[2], given, times, reverse, y)
    elif mode == "GRU":
        found = _back_gru(kept, arrived[0], arrived[1], given, times, reverse, y)
    else:
        found = _back_plain(mode, arrived[0], arrived[1], given, times, y)
    from_input, from_hidden, to_state, outward = found
    flat_input, flat_hidden = _rows(from_input), _rows(from_hidden)
    asked = iter(wanted)
    gradients: list[Tensor | None] = []

    def give(compute: Callable[[], Tensor]) -> None:
        gradients.append(compute() if next(asked) else None)
    give(lambda: torch.mm(flat_input, given.weights[0]).view(given.x.shape))
    for g in to_state:
        give(lambda g=g: g)  # type: ignore[misc]
    give(lambda: torch.mm(flat_input.t(), _rows(given.x)))
    give(lambda: torch.mm(flat_hidden.t(), _rows(_before(y, given.state[0], reverse))))
    for flat in (flat_input, flat_hidden) if given.biases else ():
        give(lambda flat=flat: flat.sum(0))  # type: ignore[misc]
    if given.projection:
        assert kept.full is not None
        full = kept.full
        give(lambda: torch.mm(_rows(outward).t(), _rows(full)))
    return tuple(gradients)


# The rows

def _supports(types: tuple[Any, ...], attributes: dict[str, Any]) -> bool:
    """Whether there are elements, in a dtype that torch computes on the CPU without rounding sums to 16 bits."""
    floats = [t for t in types if t.dtype.kind == "float"]
    return all(t.numel and t.dtype.itemsize >= 4 for t in floats)


def _recurrent(*operands: Tensor, mode: str, reverse: bool, **how: Any) -> Results:
    return _forward(operands_of(operands, mode, **how), mode, reverse, False)[0]


def _saving(*operands: Tensor, mode: str, reverse: bool, **how: Any) -> Results:
    """The handle is a byte; what is kept goes with the tensor that shows it."""
    results, kept = _forward(operands_of(operands, mode, **how), mode, reverse, True)
    handle: Any = torch.zeros(1, dtype=torch.uint8, device=CPU)
    handle.kept = kept
    return (*results, handle)


def _from_saved(handle: Any, *rest: Tensor, arriving: tuple[bool, ...], wanted: tuple[bool, ...], mode: str,
                reverse: bool, **how: Any) -> tuple[Tensor | None, ...]:
    count, gradients = arriving.count(True), iter(rest)
    arrived = [next(gradients) if has else None for has in arriving]
    results, operands = rest[count:count + len(arriving)], rest[count + len(arriving):]
    return _backward(handle.kept, arrived, results, operands_of(operands, mode, **how), mode, reverse, wanted)


def _whole_backward(*rest: Tensor, arriving: tuple[bool, ...], mode: str, reverse: bool,
                    **how: Any) -> tuple[Tensor | None, ...]:
    """The backward of a layer whose forward kept nothing: what it needs is computed again."""
    gradients = iter(rest)
    arrived = [next(gradients) if has else None for has in arriving]
    given = operands_of(rest[arriving.count(True):], mode, **how)
    results, kept = _forward(given, mode, reverse, True)
    return _backward(kept, arrived, results, given, mode, reverse, (True,) * len(rest))


RECURRENT: dict[str, Lowering] = {
    "recurrent": Lowering(_recurrent, "fresh", _supports),
    "recurrent_backward": Lowering(_whole_backward, "fresh", _supports),
    "recurrent_saving": Lowering(_saving, "fresh", _supports),
    "recurrent_from_saved": Lowering(_from_saved, "fresh", lambda types, how: _supports(types[1:], how)),
}
