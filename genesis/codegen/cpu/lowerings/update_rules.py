"""The adaptive optimizers' updates: torch's foreach calls over pieces of all parameters.

A rule is one fused kernel where torch has it, else a few calls, each over memory that the one before has just written:
so it runs on pieces that stay in the cache. One large tensor is cut, small ones go together. The calls are those of
torch's own optimizers, in their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from genesis.codegen.cpu.lowerings.movement import copy_base
from genesis.codegen.cpu.lowerings.optimizer import FAR, own_tensor
from genesis.codegen.cpu.lowerings.table import Lowering

Tensors = list[Tensor]

PIECE = 1 << 18
"""Elements of a piece: shorter ones cost more in calls (3 µs each) than the cache gives, longer ones leave the L3."""

Rule = Callable[..., None]
"""(numbers, parameters, gradients, *states, **attributes): updates a piece's parameters and states in place."""


def _update(rule: Rule) -> Lowering:
    """The row of an op that applies a rule to all its parameters."""
    def run(outs: tuple[Tensor, ...], *operands: Any, count: int, decoupled: bool, **how: Any) -> None:
        first = next(i for i, x in enumerate(operands) if isinstance(x, Tensor))
        decay, *numbers = map(float, operands[:first])
        families = [operands[i:i + count] for i in range(first, len(operands), count)]
        results = [outs[i:i + count] for i in range(0, len(outs), count)]
        for out, x in zip(outs, (y for family in (families[0], *families[2:]) for y in family), strict=True):
            copy_base(out, x)
        for p, g, *states in _pieces([results[0], families[1], *results[1:]]):
            _on_piece(rule, numbers, decay, decoupled, how, p, g, states)
    return Lowering(run, writes_over=own_tensor)


def _pieces(families: list[tuple[Tensor, ...]]) -> Iterator[list[Tensors]]:
    """Parts of all families that belong together, of about PIECE elements."""
    flat = [[x.contiguous().view(-1) for x in family] for family in families]  # as fused kernels walk memory
    piece: list[tuple[Tensor, ...]] = []
    room = PIECE
    for mine in zip(*flat, strict=True):
        size = mine[0].numel()
        if size > PIECE:
            for parts in zip(*(x.split(PIECE) for x in mine), strict=True):
                yield [[x] for x in parts]
            continue
        if size > room:
            yield [list(family) for family in zip(*piece, strict=True)]
            piece, room = [], PIECE
        piece.append(mine)
        room -= size
    if piece:
        yield [list(family) for family in zip(*piece, strict=True)]


def _on_piece(rule: Rule, numbers: list[float], decay: float, decoupled: bool, how: dict[str, Any], p: Tensors,
              g: Tensors, states: list[Tensors]) -> None:
    """The rule in the states' dtype, with weight decay; parameters and states are written."""
    wide = torch.float64 if p[0].dtype == torch.float64 else torch.float32
    held = [p, *states]
    now = [family if family[0].dtype == wide else [x.to(wide) for x in family] for family in held]
    g = g if g[0].dtype == wide else [x.to(wide) for x in g]
    if decoupled and decay != 1:
        torch._foreach_mul_(now[0], decay)
    elif decay and not decoupled:
        g = torch._foreach_add(g, now[0], alpha=decay)  # type: ignore[assignment]
    rule(numbers, now[0], g, *now[1:], **how)
    for family, new in zip(held, now, strict=True):
        if new is not family:
            torch._foreach_copy_(family, new)


def _squares(mean: Tensors, g: Tensors, keep: float, take: float) -> None:
    """A running mean of squares takes in a gradient."""
    torch._foreach_mul_(mean, keep)
    torch._foreach_addcmul_(mean, g, g, value=take)


def _root(mean: Tensors, eps: float) -> Tensors:
    root: Tensors = torch._foreach_sqrt(mean)  # type: ignore[assignment]
    torch._foreach_add_(root, eps)
    return root


def _adagrad(numbers: list[float], p: Tensors, g: Tensors, total: Tensors) -> None:
    lr, eps = numbers
    torch._fused_adagrad_(p, g, total, [torch.tensor(1.0)] * len(p), lr=lr, lr_decay=0.0, weight_decay=0.0, eps=eps,
                          maximize=False)


def _adam(p: Tensors, g: Tensors, mean: Tensors, squares: Tensors, lr: float, first: float, second: float,
          eps: float) -> None:
    """p - lr · mean / (√squares + eps), with both means brought on: Adam, without its corrections."""
    torch._fused_adam_(p, g, mean, squares, [], [torch.tensor(FAR)] * len(p), lr=lr, beta1=first, beta2=second,
                       weight_decay=0.0, eps=eps, amsgrad=False, maximize=False)


def _adadelta(numbers: list[float], p: Tensors, g: Tensors, squares: Tensors, steps: Tensors) -> None:
    lr, rho, rest, eps = numbers
    _squares(squares, g, rho, rest)
    std, delta = torch._foreach_add(squares, eps), torch._foreach_add(steps, eps)
    torch._foreach_sqrt_(std)
    torch._foreach_sqrt_(delta)
    torch._foreach_div_(delta, std)
    torch._foreach_mul_(delta, g)
    _squares(steps, delta, rho, rest)  # type: ignore[arg-type]
    torch._foreach_add_(p, delta, alpha=-lr)


def _rmsprop(numbers: list[float], p: Tensors, g: Tensors, squares: Tensors, *more: Tensors, momentum: bool,
             centered: bool) -> None:
    lr, alpha, rest, eps, rate = numbers
    if not momentum and not centered:  # Adam whose mean is the gradient itself
        _adam(p, g, [torch.zeros_like(x) for x in p], squares, lr, 0.0, alpha, eps)
        return
    _squares(squares, g, alpha, rest)
    spread = squares
    if centered:
        torch._foreach_lerp_(more[-1], g, rest)
        spread = torch._foreach_addcmul(squares, more[-1], more[-1], value=-1)  # type: ignore[assignment]
    root = _root(spread, eps)
    if momentum:
        torch._foreach_mul_(more[0], rate)
        torch._foreach_addcdiv_(more[0], g, root)
        torch._foreach_add_(p, more[0], alpha=-lr)
    else:
        torch._foreach_addcdiv_(p, g, root, value=-lr)


def _rprop(numbers: list[float], p: Tensors, g: Tensors, before: Tensors, size: Tensors) -> None:
    shorter, longer, least, most = numbers
    for x, gradient, last, each in zip(p, g, before, size, strict=True):
        turn = gradient * last
        factor = torch.ones_like(turn).masked_fill_(turn > 0, longer).masked_fill_(turn < 0, shorter)
        each.mul_(factor).clamp_(least, most)
        last.copy_(gradient).masked_fill_(turn < 0, 0.0)
        x.addcmul_(last.sign(), each, value=-1)


def _adamax(numbers: list[float], p: Tensors, g: Tensors, mean: Tensors, largest: Tensors) -> None:
    lr, rest, second, eps = numbers
    torch._foreach_lerp_(mean, g, rest)
    torch._foreach_mul_(largest, second)
    sizes = torch._foreach_abs(g)
    torch._foreach_add_(sizes, eps)
    torch._foreach_maximum_(largest, sizes)
    torch._foreach_addcdiv_(p, mean, largest, value=-lr)


def _nadam(numbers: list[float], p: Tensors, g: Tensors, mean: Tensors, squares: Tensors) -> None:
    rest, second, left, eps, correction, now, then = numbers
    torch._foreach_lerp_(mean, g, rest)
    _squares(squares, g, second, left)
    root = _root(torch._foreach_div(squares, correction), eps)  # type: ignore[arg-type]
    torch._foreach_addcdiv_(p, g, root, value=-now)
    torch._foreach_addcdiv_(p, mean, root, value=-then)


def _radam(numbers: list[float], p: Tensors, g: Tensors, mean: Tensors, squares: Tensors) -> None:
    lr, rest, second, left, eps, scaled, plain = numbers
    if scaled:
        _adam(p, g, mean, squares, lr * scaled, 1 - rest, second, eps)
        return
    torch._foreach_lerp_(mean, g, rest)
    _squares(squares, g, second, left)
    torch._foreach_add_(p, mean, alpha=-lr * plain)


UPDATE_RULES: dict[str, Lowering] = {
    "adagrad": _update(_adagrad),
    "adadelta": _update(_adadelta),
    "rmsprop": _update(_rmsprop),
    "rprop": _update(_rprop),
    "adamax": _update(_adamax),
    "nadam": _update(_nadam),
    "radam": _update(_radam),
}
