"""Muon: momentum whose matrices are made orthogonal, for the matrices inside a network."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from genesis.frontend.recording import read
from genesis.frontend.session import upcoming_numbers
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.node import Node
from genesis.ir.ops.contraction import matmul, swap_last
from genesis.ir.ops.pointwise import cast, maximum, sqrt
from genesis.ir.ops.precision import downcast, upcast
from genesis.ir.ops.reduction import spread, sum
from genesis.ir.types import bfloat16
from genesis.ops.creation import zeros_like
from genesis.optim.groups import Group, check_option
from genesis.optim.optimizer import Optimizer

ADJUSTMENTS: Final = (None, "original", "match_rms_adamw")


class Muon(Optimizer):
    """Momentum of orthogonal steps (Jordan et al. 2024), for parameters of two dimensions.

    A step is U Vᵀ, roughly, of the momentum U S Vᵀ: all directions of a matrix move alike. Embeddings, heads, norms and
    biases are for another optimizer, as a rule AdamW.

    Args:
        params: matrices, or groups of them.
        lr: step size.
        weight_decay: parameters shrink by lr·weight_decay a step.
        momentum: how much of the last step's direction this step keeps.
        nesterov: look ahead along the new direction.
        ns_coefficients: of the Newton-Schulz polynomial a x + b x³ + c x⁵.
        eps: the least norm that a momentum is divided by.
        ns_steps: how many times the polynomial is applied, below 100; products are in bfloat16.
        adjust_lr_fn: how the step depends on a matrix's shape (A, B): "original" (also None) √max(1, A/B);
            "match_rms_adamw" 0.2·√max(A, B), with which AdamW's learning rate and weight decay will do.

    Raises:
        ValueError: a parameter is no matrix, or a rank's part of one, or an option is out of its range.

    >>> import genesis
    >>> w = genesis.eye(2).requires_grad_()
    >>> optimizer = Muon([w], lr=0.1, weight_decay=0.0)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w[0, 1].item(), 0.85 < w[0, 0].item() < 0.95
    (0.0, True)
    """

    by_element = False

    def __init__(self, params: Iterable[Any], lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
                 nesterov: bool = True, ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
                 eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None):
        for name, value in (("learning rate", lr), ("momentum", momentum), ("weight_decay", weight_decay)):
            check_option("Muon", name, value)
        if adjust_lr_fn not in ADJUSTMENTS:
            raise failure("Muon", f"Adjust learning rate function {adjust_lr_fn} is not supported",
                          hint="adjust_lr_fn='original' or 'match_rms_adamw'", error=ValueError)
        if ns_steps >= 100:
            raise failure("Muon", f"ns_steps={ns_steps}: the number of steps must be less than 100",
                          hint="ns_steps=5", error=ValueError)
        if len(ns_coefficients) != 3:
            raise failure("Muon", f"ns_coefficients must be three numbers, not {len(ns_coefficients)}",
                          hint="ns_coefficients=(3.4445, -4.775, 2.0315)", error=ValueError)
        super().__init__(params, {
            "lr": lr, "weight_decay": weight_decay, "momentum": momentum, "nesterov": nesterov,
            "ns_coefficients": ns_coefficients, "eps": eps, "ns_steps": ns_steps, "adjust_lr_fn": adjust_lr_fn})

    def initial_state(self, parameter: Tensor, group: Group) -> dict[str, Any]:
        """No momentum.

        Raises:
            ValueError: the parameter is no matrix.
        """
        if parameter.ndim != 2:
            raise failure("Muon", "Muon only supports 2D parameters whereas we found a parameter with size: "
                          f"{tuple(parameter.shape)}", hint="AdamW for it, in its own optimizer", error=ValueError)
        return {"momentum_buffer": zeros_like(parameter).detach()}

    def complete(self, saved: Mapping[Any, Any], initial: Mapping[Any, Any]) -> Mapping[Any, Any]:
        """A parameter that torch has not stepped has no momentum yet."""
        return {**initial, **saved}

    def update(self, group: Group, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """A new momentum and a new parameter for each."""
        writes = self.writes()

        def numbers() -> tuple[float, ...]:
            lr, momentum = float(group["lr"]), float(group["momentum"])
            return 1 - lr * float(group["weight_decay"]), lr, momentum, 1 - momentum
        given, counted = upcoming_numbers(numbers, writes.moved)
        kept, lr, momentum, rest = given
        buffers = [self._states[p]["momentum_buffer"] for p in parameters]
        made: list[Node] = []
        for parameter, gradient, buffer in zip(parameters, gradients, buffers, strict=True):
            p, g, b = read(parameter), upcast(read(gradient)), upcast(read(buffer))
            b = b + (g - b) * rest
            direction = g + (b - g) * momentum if group["nesterov"] else b
            step = orthogonal(downcast(direction, p), group["ns_coefficients"], group["ns_steps"], group["eps"])
            ratio = adjustment(parameter.shape[0], parameter.shape[1], group["adjust_lr_fn"])
            whole = upcast(p)
            made += [downcast(whole * kept - cast(step, dtype=whole.type.dtype) * (lr * ratio), p), downcast(b, p)]
        writes.add([x for pair in zip(parameters, buffers, strict=True) for x in pair], made, counted, made[0], numbers)


def orthogonal(x: Node, coefficients: Sequence[float], steps: int, eps: float) -> Node:
    """The orthogonal factor of a matrix, roughly, in bfloat16: odd polynomials of it that drive its singular values
    towards 1 (Newton and Schulz; the coefficients are Jordan's)."""
    a, b, c = map(float, coefficients)
    tall = x.type.shape[0] > x.type.shape[1]
    y = cast(x, dtype=bfloat16)
    y = swap_last(y) if tall else y
    exact = upcast(y)
    norm = maximum(downcast(sqrt(sum(exact * exact, axes=(0, 1), keepdims=False)), y), float(eps))
    y = y / spread(norm, y, (0, 1))
    for _ in range(steps):
        gram = matmul(y, swap_last(y))
        polynomial = downcast(upcast(gram) * b + upcast(matmul(gram, gram)) * c, y)
        y = downcast(upcast(y) * a + upcast(matmul(polynomial, y)), y)
    return swap_last(y) if tall else y


def adjustment(rows: int, columns: int, kind: str | None) -> float:
    """The factor of the learning rate for a matrix's shape.

    >>> adjustment(400, 100, None), adjustment(100, 400, None), adjustment(100, 400, "match_rms_adamw")
    (2.0, 1.0, 4.0)
    """
    if kind == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    return math.sqrt(max(1, rows / columns))
