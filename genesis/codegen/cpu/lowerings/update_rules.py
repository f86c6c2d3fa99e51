"""The adaptive optimizers' updates: torch's foreach calls over pieces of all parameters.

A rule is one fused kernel where torch has it, else a few calls, each over memory that the one before has just written:
so it runs on pieces that stay in the cache. One large tensor is cut, small ones go together. The calls are those of
torch's own optimizers, in their order, all made ready before the first is made (`Lowering.late`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.dtypes import CPU, number_tensor
from genesis.codegen.cpu.lowerings.movement import base_copied
from genesis.codegen.cpu.lowerings.optimizer import FAR, own_tensor, roles_of
from genesis.codegen.cpu.lowerings.table import Lowering, Writes

Tensors = list[Tensor]

PIECE = 3 << 18
"""Elements of a piece, over all roles: shorter ones cost more in calls (3 µs each) than the cache gives, longer ones
leave the L2 (2 MiB). Of 17 M parameters Adamax, of four roles, takes 47.1 ms in pieces of 2^16 parameters, 48.0 of
2^17, 50.9 of 2^18 and 56.8 of 2^15; ASGD, of three, 30.3 of 2^17, 28.2 of 2^18 and of 2^19 (2026-11-30)."""

LANES = 64
"""Elements that pieces are multiples of: the most that torch's loops on the CPU take at once."""

Rule = Callable[..., None]
"""(calls, numbers, parameters, gradients, *states, **attributes): appends the calls that update a piece in place."""


class _Calls(list[Callable[[], Any]]):
    """Calls into C, to be made in order, and the scratch memory that those of one piece work in."""

    def __init__(self, elements: int):
        super().__init__()
        self._room = elements
        self._scratch: dict[tuple[str, torch.dtype], Tensor] = {}
        self._parts: dict[tuple[str, torch.dtype, int | None], Tensors] = {}  # of pieces of one tensor, which are alike

    def __call__(self, function: Callable[..., Any], *operands: Any, **options: Any) -> None:
        """Append a call."""
        self.append(partial(function, *operands, **options))

    def scratch(self, name: str, like: Sequence[Tensor], dtype: torch.dtype | None = None) -> Tensors:
        """Tensors of these shapes in the memory of this name, which all pieces share."""
        dtype = dtype or like[0].dtype
        alone = like[0].numel() if len(like) == 1 and like[0].ndim == 1 else None
        part = self._parts.get((name, dtype, alone))
        if part is not None:
            return part
        room = self._scratch.get((name, dtype))
        needed = sum(x.numel() for x in like)
        if room is None or room.numel() < needed:
            room = self._scratch[name, dtype] = torch.empty(max(self._room, needed), dtype=dtype, device=CPU)
        found = list(torch._C._nn.unflatten_dense_tensors(room[:needed], list(like)))
        if alone is not None:
            self._parts[name, dtype, alone] = found
        return found

    def made(self, name: str, function: Callable[..., Any], tensors: Sequence[Tensor], **options: Any) -> Tensors:
        """What `function` makes of each of these tensors, in the memory of this name: one pass where a copy and a call
        in place are two, but a call for each tensor."""
        found = self.scratch(name, tensors)
        for out, x in zip(found, tensors, strict=True):
            self(function, x, out=out, **options)
        return found

    def copied(self, name: str, tensors: Sequence[Tensor], dtype: torch.dtype | None = None) -> Tensors:
        """Copies of these tensors in the memory of this name."""
        found = self.scratch(name, tensors, dtype)
        self(torch._foreach_copy_, found, list(tensors))
        return found


def _update(rule: Rule) -> Lowering:
    """The row of an op that applies a rule to all its parameters."""
    def late(outs: tuple[Tensor, ...], *operands: Any, count: int, decoupled: bool, **how: Any) -> Writes:
        first = next(i for i, x in enumerate(operands) if isinstance(x, Tensor))
        decay, *numbers = map(float, operands[:first])
        piece = _of_lanes(PIECE // ((len(operands) - first) // count))
        calls = _Calls(min(piece, sum(x.numel() for x in outs[:count])))
        roles = roles_of(operands[first:], count, calls)
        results = [outs[i:i + count] for i in range(0, len(outs), count)]
        for out, x in zip(outs, (y for role in (roles[0], *roles[2:]) for y in role), strict=True):
            calls += base_copied(out, x)
        for p, g, *states in _pieces([results[0], tuple(roles[1]), *results[1:]], piece):
            _on_piece(calls, rule, numbers, decay, decoupled, how, p, g, states)
        return calls

    def run(outs: tuple[Tensor, ...], *operands: Any, **attributes: Any) -> None:
        for write in late(outs, *operands, **attributes):
            write()
    return Lowering(run, writes_over=own_tensor, late=late)


def _of_lanes(elements: int) -> int:
    """The number, rounded down to a multiple of any vector's elements: a piece's last ones are computed one by one,
    with other bits."""
    return max(LANES, elements // LANES * LANES)


def _pieces(roles: list[tuple[Tensor, ...]], elements: int) -> Iterator[list[Tensors]]:
    """Parts of all roles, of contiguous tensors, that belong together, of about so many elements of each."""
    if sum(x.numel() for x in roles[0]) <= elements:
        yield [list(role) for role in roles]
        return
    flat = [[x.view(-1) for x in role] for role in roles]  # as fused kernels walk memory
    piece: list[tuple[Tensor, ...]] = []
    room = elements
    for mine in zip(*flat, strict=True):
        size = mine[0].numel()
        if size > elements:
            for parts in zip(*(x.split(elements) for x in mine), strict=True):
                yield [[x] for x in parts]
            continue
        if size > room:
            yield [list(role) for role in zip(*piece, strict=True)]
            piece, room = [], elements
        piece.append(mine)
        room -= size
    if piece:
        yield [list(role) for role in zip(*piece, strict=True)]


def _on_piece(calls: _Calls, rule: Rule, numbers: list[float], decay: float, decoupled: bool, how: dict[str, Any],
              p: Tensors, g: Tensors, states: list[Tensors]) -> None:
    """The rule in the states' dtype, with weight decay; parameters and states are written."""
    upcast = torch.float64 if p[0].dtype == torch.float64 else torch.float32
    held = [p, *states]
    now = [role if role[0].dtype == upcast else calls.copied(f"upcast {at}", role, upcast)
           for at, role in enumerate(held)]
    if g[0].dtype != upcast:
        g = calls.copied("gradient", g, upcast)
    if decoupled and decay != 1:
        calls(torch._foreach_mul_, now[0], decay)
    elif decay and not decoupled:
        g = calls.copied("decayed", g)
        calls(torch._foreach_add_, g, now[0], alpha=decay)
    rule(calls, numbers, now[0], g, *now[1:], **how)
    for role, new in zip(held, now, strict=True):
        if new is not role:
            calls(torch._foreach_copy_, role, new)


def _squares(calls: _Calls, mean: Tensors, g: Tensors, keep: float, take: float) -> None:
    """A running mean of squares takes in a gradient."""
    calls(torch._foreach_mul_, mean, keep)
    calls(torch._foreach_addcmul_, mean, g, g, value=take)


def _root(calls: _Calls, mean: Tensors, eps: float) -> Tensors:
    root = calls.made("root", torch.sqrt, mean)
    calls(torch._foreach_add_, root, eps)
    return root


def _adagrad(calls: _Calls, numbers: list[float], p: Tensors, g: Tensors, total: Tensors) -> None:
    lr, eps = numbers
    calls(torch._fused_adagrad_, p, g, total, [number_tensor(1.0, torch.float32)] * len(p), lr=lr, lr_decay=0.0,
          weight_decay=0.0, eps=eps, maximize=False)


def _adam(calls: _Calls, p: Tensors, g: Tensors, mean: Tensors, squares: Tensors, lr: float, first: float,
          second: float, eps: float) -> None:
    """p - lr · mean / (√squares + eps), with both means brought on: Adam, without its corrections."""
    calls(torch._fused_adam_, p, g, mean, squares, [], [number_tensor(FAR, torch.float32)] * len(p), lr=lr,
          beta1=first, beta2=second, weight_decay=0.0, eps=eps, amsgrad=False, maximize=False)


def _adadelta(calls: _Calls, numbers: list[float], p: Tensors, g: Tensors, squares: Tensors, steps: Tensors) -> None:
    lr, rho, rest, eps = numbers
    _squares(calls, squares, g, rho, rest)
    std, delta = calls.copied("std", squares), calls.copied("delta", steps)
    for x in (std, delta):
        calls(torch._foreach_add_, x, eps)
        calls(torch._foreach_sqrt_, x)
    calls(torch._foreach_div_, delta, std)
    calls(torch._foreach_mul_, delta, g)
    _squares(calls, steps, delta, rho, rest)
    calls(torch._foreach_add_, p, delta, alpha=-lr)


def _rmsprop(calls: _Calls, numbers: list[float], p: Tensors, g: Tensors, squares: Tensors, *more: Tensors,
             momentum: bool, centered: bool) -> None:
    lr, alpha, rest, eps, rate = numbers
    if not momentum and not centered:  # Adam whose mean is the gradient itself
        mean = calls.scratch("mean", p)
        calls(torch._foreach_zero_, mean)
        _adam(calls, p, g, mean, squares, lr, 0.0, alpha, eps)
        return
    _squares(calls, squares, g, alpha, rest)
    spread = squares
    if centered:
        calls(torch._foreach_lerp_, more[-1], g, rest)
        spread = calls.copied("spread", squares)
        calls(torch._foreach_addcmul_, spread, more[-1], more[-1], value=-1)
    root = _root(calls, spread, eps)
    if momentum:
        calls(torch._foreach_mul_, more[0], rate)
        calls(torch._foreach_addcdiv_, more[0], g, root)
        calls(torch._foreach_add_, p, more[0], alpha=-lr)
    else:
        calls(torch._foreach_addcdiv_, p, g, root, value=-lr)


def _rprop(calls: _Calls, numbers: list[float], p: Tensors, g: Tensors, before: Tensors, size: Tensors) -> None:
    shorter, longer, least, most = numbers
    for x, gradient, last, each in zip(p, g, before, size, strict=True):
        turn, = calls.scratch("turn", [x])
        factor, = calls.scratch("factor", [x])
        up, = calls.scratch("up", [x], torch.bool)
        down, = calls.scratch("down", [x], torch.bool)
        calls(torch.mul, gradient, last, out=turn)
        calls(torch.gt, turn, 0, out=up)
        calls(torch.lt, turn, 0, out=down)
        calls(factor.fill_, 1.0)
        calls(factor.masked_fill_, up, longer)
        calls(factor.masked_fill_, down, shorter)
        calls(each.mul_, factor)
        calls(each.clamp_, least, most)
        calls(last.copy_, gradient)
        calls(last.masked_fill_, down, 0.0)
        calls(torch.sign, last, out=turn)
        calls(x.addcmul_, turn, each, value=-1)


def _asgd(calls: _Calls, numbers: list[float], p: Tensors, g: Tensors, average: Tensors) -> None:
    kept, lr, share = numbers
    calls(torch._foreach_mul_, p, kept)
    calls(torch._foreach_add_, p, g, alpha=-lr)
    if share == 1:
        calls(torch._foreach_copy_, average, p)
    else:
        calls(torch._foreach_lerp_, average, p, share)


def _adamax(calls: _Calls, numbers: list[float], p: Tensors, g: Tensors, mean: Tensors, largest: Tensors) -> None:
    lr, rest, second, eps = numbers
    calls(torch._foreach_lerp_, mean, g, rest)
    calls(torch._foreach_mul_, largest, second)
    sizes = calls.made("sizes", torch.abs, g)
    calls(torch._foreach_add_, sizes, eps)
    calls(torch._foreach_maximum_, largest, sizes)
    calls(torch._foreach_addcdiv_, p, mean, largest, value=-lr)


def _nadam(calls: _Calls, numbers: list[float], p: Tensors, g: Tensors, mean: Tensors, squares: Tensors) -> None:
    rest, second, left, eps, correction, now, then = numbers
    calls(torch._foreach_lerp_, mean, g, rest)
    _squares(calls, squares, g, second, left)
    root = calls.copied("root", squares)
    calls(torch._foreach_div_, root, correction)
    calls(torch._foreach_sqrt_, root)
    calls(torch._foreach_add_, root, eps)
    calls(torch._foreach_addcdiv_, p, g, root, value=-now)
    calls(torch._foreach_addcdiv_, p, mean, root, value=-then)


def _radam(calls: _Calls, numbers: list[float], p: Tensors, g: Tensors, mean: Tensors, squares: Tensors) -> None:
    lr, rest, second, left, eps, scaled, plain = numbers
    if scaled:
        _adam(calls, p, g, mean, squares, lr * scaled, 1 - rest, second, eps)
        return
    calls(torch._foreach_lerp_, mean, g, rest)
    _squares(calls, squares, g, second, left)
    calls(torch._foreach_add_, p, mean, alpha=-lr * plain)


def _amsgrad(calls: _Calls, numbers: list[float], p: Tensors, g: Tensors, mean: Tensors, squares: Tensors,
             largest: Tensors) -> None:
    lr, _, rest, second, left, root, eps = numbers
    calls(torch._foreach_lerp_, mean, g, rest)
    _squares(calls, squares, g, second, left)
    calls(torch._foreach_maximum_, largest, squares)
    spread = calls.copied("spread", largest)
    calls(torch._foreach_sqrt_, spread)
    calls(torch._foreach_div_, spread, root)
    calls(torch._foreach_add_, spread, eps)
    calls(torch._foreach_addcdiv_, p, mean, spread, value=-lr)


UPDATE_RULES: dict[str, Lowering] = {
    "adagrad": _update(_adagrad),
    "adadelta": _update(_adadelta),
    "rmsprop": _update(_rmsprop),
    "rprop": _update(_rprop),
    "asgd": _update(_asgd),
    "adamax": _update(_adamax),
    "nadam": _update(_nadam),
    "radam": _update(_radam),
    "amsgrad": _update(_amsgrad),
}
