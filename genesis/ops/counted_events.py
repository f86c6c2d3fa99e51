"""Random counts: events of a rate, and hits among trials. Each event, or trial, is a draw of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.frontend.generator import Generator
from genesis.ir.errors import failure
from genesis.ir.types import float32, float64
from genesis.ops.common import required
from genesis.ops.random import rand
from genesis.ops.ranges import arange

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["binomial", "poisson"]

MOST_EVENTS = 1 << 24
"""The largest mean, and the most trials: all events of an element are in memory."""


def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """How many events there are in a unit of time, for each rate of the input.

    Counts exponential waiting times that sum to less than the rate. Uses memory for the largest rate and 10 deviations
    more, for each element. On the CPU rates below 0 are a RuntimeError.

    >>> import genesis
    >>> genesis.poisson(genesis.zeros(2)), genesis.poisson(genesis.full((1000,), 3.0)).mean().round().item()
    (tensor([0., 0.]), 3.0)
    """
    rate = _checked("poisson", "input", input, "invalid Poisson rate, expected rate to be non-negative")
    most = _most("poisson", rate)
    waits = -_draws((*rate.shape, math.ceil(most + 10 * math.sqrt(most) + 20)), rate, generator).log()
    return (waits.cumsum(-1) < rate.unsqueeze(-1)).sum(-1).to(input.spec.dtype)


def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """How many of so many trials hit, each with this probability. Uses memory for all trials.

    >>> import genesis
    >>> genesis.binomial(genesis.tensor([3.0, 4.0]), genesis.tensor([0.0, 1.0]))
    tensor([0., 4.])
    """
    if count.spec.dtype is not prob.spec.dtype:
        raise failure("binomial", "counts and probabilities must have one dtype", [("count", count), ("prob", prob)])
    trials = _checked("binomial", "count", count, "there are trials below 0")
    most = max(1, math.floor(_most("binomial", trials)))
    chance: Any = prob.detach()
    shape = (trials.unsqueeze(-1) * chance.unsqueeze(-1)).shape[:-1]
    hits = _draws((*shape, most), trials, generator) < chance.unsqueeze(-1)
    counted = arange(most, device=count.spec.device) < trials.unsqueeze(-1)
    return (hits & counted).sum(-1).to(count.spec.dtype)


def _checked(op: str, name: str, given: Tensor, sentence: str) -> Any:
    """The values without their history; floating-point numbers that are not negative."""
    if given.spec.dtype.kind != "float":
        raise failure(op, f"not implemented for {given.spec.dtype!r}, only for floating-point dtypes", [(name, given)])
    values: Any = given.detach()
    return required(op, values, values >= 0, sentence)


def _most(op: str, values: Any) -> float:
    most = float(values.max()) if values.numel() else 0.0
    if not most <= MOST_EVENTS:
        raise failure(op, f"{most:g} events of an element are too many: at most {MOST_EVENTS}")
    return most


def _draws(shape: Sequence[int], like: Any, generator: Generator | None) -> Any:
    """Uniform numbers above 0: of 24 bits at least, whatever dtype the result has."""
    dtype = float64 if like.dtype is float64 else float32
    drawn: Any = rand(tuple(shape), dtype=dtype, device=like.device, generator=generator)
    return drawn.clamp(min=2.0**-1022 if dtype is float64 else 2.0**-126)
