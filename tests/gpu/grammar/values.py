"""What a program's values are while it is drawn, and how far rounding may move them.

A step runs in torch in float64 as it is drawn, once on exact values and a few times on *shaken* ones: after every step
each shaken copy is moved, element by element, up or down by what the registry allows the op (ulp · eps / 2 of the
largest element). How far the copies are apart is how far a right answer may be from float64's (Monte Carlo arithmetic,
Parker 1997), so a wrong result is told from an inexact one, and no rule has to say what it does to errors. Gradients
are shaken in the same way on their way back.

What jumps (comparisons, rounding, sorting, an argmax, a cast to an integer) takes *certain* values only, which no
rounding touched. *Exact* ones are, besides, small integers and halves: sums and products of them are not rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

MOST_ELEMENTS = 600
MOST_MAGNITUDE = 100.0
COPIES = 6
SAFETY = 3.0
"""Six copies rarely show the worst case: so many times what they show is allowed."""

Run = Callable[..., Any]  # (library, *values) → value


@dataclass(frozen=True)
class Step:
    """One computation.

    Attributes:
        name: what it is called, with its attributes.
        run: what it does, in torch and in Genesis.
        operands: which earlier values it takes.
        ulp: how many units in the last place its result may be off; 0 if nothing is rounded.
        exact: whether exact operands give an exact result where the dtype can hold it.
        jumps: whether it is discontinuous, and so takes certain operands only.
        scale: errors are relative to the largest element of the result, or to this where that is smaller.
    """

    name: str
    run: Run
    operands: tuple[int, ...]
    ulp: float = 0.0
    exact: bool = True
    jumps: bool = False
    scale: float = 0.0


@dataclass(frozen=True)
class Value:
    """A value in float64 (integers and bools as they are), its dtype in the program, and its shaken copies."""

    dtype: torch.dtype
    tensor: torch.Tensor
    shaken: tuple[torch.Tensor, ...]
    exact: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.tensor.shape)

    @property
    def numel(self) -> int:
        return self.tensor.numel()

    @property
    def real(self) -> bool:
        return self.dtype.is_floating_point

    @property
    def rounded(self) -> torch.Tensor:
        """The values in the dtype that the program has them in."""
        return self.tensor.detach().to(self.dtype)

    @property
    def certain(self) -> bool:
        """Whether every right answer is this one to the last bit."""
        return self.exact or self.error == 0

    @property
    def error(self) -> float:
        """How far a right answer may be off."""
        return allowed(self.tensor, self.shaken)


def largest(x: torch.Tensor) -> float:
    """The largest magnitude, 0 of nothing."""
    return float(x.detach().abs().max()) if x.numel() else 0.0


def allowed(x: torch.Tensor, shaken: tuple[torch.Tensor, ...]) -> float:
    """How far from x an answer may be whose roundings are as those of the copies."""
    if not x.is_floating_point():
        return 0.0
    return SAFETY * max(largest(copy - x) for copy in shaken)


class Shake(torch.autograd.Function):
    """x moved by `by`; its gradient moved by up to `back` of its largest element."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, by: float, back: float, random: torch.Generator) -> torch.Tensor:
        ctx.back, ctx.random = back, random
        return x + by * moves(x, random)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        g, = gradients
        return g + ctx.back * largest(g) * moves(g, ctx.random), None, None, None


def moves(x: torch.Tensor, random: torch.Generator) -> torch.Tensor:
    """Up or down for each element, by half a unit to a whole one: two moves seldom cancel."""
    sign = torch.randint(0, 2, x.shape, generator=random).to(x.dtype) * 2 - 1
    return sign * (0.5 + 0.5 * torch.rand(x.shape, generator=random, dtype=x.dtype))


@contextmanager
def in_float64() -> Iterator[None]:
    """What torch makes of integers and floating-point numbers is float64."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def extended(step: Step, operands: list[Value], random: torch.Generator) -> Value | None:
    """The step's value; None where torch refuses it or no useful tolerance is left."""
    if step.jumps and not all(x.certain for x in operands):
        return None
    try:
        dtype = step.run(torch, *(x.rounded for x in operands)).dtype
        with in_float64():
            found = step.run(torch, *(x.tensor for x in operands))
            copies = [step.run(torch, *(_nudged(x, i, step, random) for x in operands)) for i in range(COPIES)]
    except (RuntimeError, IndexError, ValueError, ZeroDivisionError):  # a size or a dtype that torch does not take
        return None
    if not _small(found, dtype):
        return None
    if not dtype.is_floating_point:
        same = all(copy.shape == found.shape and bool((copy == found).all()) for copy in copies)
        return Value(dtype, found, (found,) * COPIES, True) if same else None
    held = bool((found.detach().to(dtype).double() == found).all())
    exact = held and step.exact and all(x.exact for x in operands)
    unit = torch.finfo(dtype).eps / 2
    by = 0.0 if exact else unit * step.ulp * max(largest(found), step.scale)
    back = unit * (step.ulp + 1)
    value = Value(dtype, found, tuple(Shake.apply(copy, by, back, random) for copy in copies), exact)
    return value if value.error <= 0.1 * max(largest(found), 2.0**-6) or not found.numel() else None


def _nudged(x: Value, copy: int, step: Step, random: torch.Generator) -> torch.Tensor:
    """A shaken copy, moved by one more rounding where the step rounds: so its derivative, too, is taken elsewhere."""
    if step.exact or not x.real:
        return x.shaken[copy]
    return Shake.apply(x.shaken[copy], torch.finfo(x.dtype).eps / 2 * largest(x.tensor), 0.0, random)


def _small(x: torch.Tensor, dtype: torch.dtype) -> bool:
    """Few elements, all finite and none so large that float16 or an int8 would overflow soon."""
    return (x.numel() <= MOST_ELEMENTS and x.ndim <= 6 and bool(torch.isfinite(x.detach()).all())
            and largest(x.double()) <= MOST_MAGNITUDE)
