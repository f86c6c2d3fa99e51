"""Whole programs: inputs, steps, what is asked for, and sometimes its gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import assume
from hypothesis import strategies as st

from tests.gpu.grammar import movement, pointwise, rows, windows
from tests.gpu.grammar.values import COPIES, MOST_ELEMENTS, Step, Value, allowed, extended, in_float64, largest

SIZES = (0, 1, 1, 2, 3, 3, 5, 7, 8, 13, 16, 17)
"""Zero, one, primes, powers of two and a neighbour."""

DTYPES = (torch.float32, torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.int32,
          torch.bool)

FAMILIES = (*pointwise.FAMILIES, *movement.FAMILIES, *rows.FAMILIES, *windows.FAMILIES)


@dataclass
class Program:
    """Inputs, steps in order, the positions of the values that are asked for, and whether their gradient is too."""

    inputs: list[Value] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    values: list[Value] = field(default_factory=list)
    asked: tuple[int, ...] = ()
    differentiated: bool = False

    def run(self, library: Any, inputs: Sequence[Any]) -> list[Any]:
        """The values that are asked for."""
        values = list(inputs)
        for step in self.steps:
            values.append(step.run(library, *(values[i] for i in step.operands)))
        return [values[i] for i in self.asked]

    def wanted_gradients(self) -> list[tuple[torch.Tensor, float] | None]:
        """The gradient of each input in float64 and how far off a right one may be; None where nothing can be said."""
        exact = self._gradients(lambda value: value.tensor)
        copies = [self._gradients(lambda value, i=i: value.shaken[i]) for i in range(COPIES)]
        found: list[tuple[torch.Tensor, float] | None] = []
        for position, want in enumerate(exact):
            shaken = tuple(copy[position] for copy in copies)
            if want is None or not all(bool(torch.isfinite(x).all()) for x in (want, *shaken)):
                found.append(None)
                continue
            error = allowed(want, shaken) + 2 * torch.finfo(self.inputs[position].dtype).eps * largest(want)
            found.append((want, error) if error <= 0.1 * max(largest(want), 2.0**-6) else None)
        return found

    def _gradients(self, which: Any) -> list[torch.Tensor | None]:
        with in_float64():
            loss = weighted(torch, [which(self.values[i]) for i in self.asked])
        inputs = [which(x) for x in self.inputs]
        reals = [x for x in inputs if x.requires_grad]
        if loss is None or not reals or not loss.requires_grad:
            return [None] * len(inputs)
        try:
            found = iter(torch.autograd.grad(loss, reals, allow_unused=True, retain_graph=True))
        except RuntimeError:  # torch's own pixel_shuffle of nothing has a gradient of another shape
            return [None] * len(inputs)
        return [next(found) if x.requires_grad else None for x in inputs]

    def __str__(self) -> str:
        lines = [f"%{i} = input {about(value)}" for i, value in enumerate(self.inputs)]
        rest = enumerate(zip(self.steps, self.values[len(self.inputs):], strict=True), len(self.inputs))
        for number, (step, value) in rest:
            operands = ", ".join(f"%{i}" for i in step.operands)
            lines.append(f"%{number} = {step.name}({operands})   # {about(value)}")
        gradient = " and gradients" if self.differentiated else ""
        return "\n".join([*lines, f"return {', '.join(f'%{i}' for i in self.asked)}{gradient}"])


def about(value: Value) -> str:
    """A value in a line."""
    kind = "exact" if value.exact else f"error {value.error:.2g}"
    return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)} ±{largest(value.tensor.double()):.3g} {kind}"


def weighted(library: Any, values: Sequence[Any]) -> Any:
    """The sum of real values with weights of both signs; None if there are none."""
    total = None
    for x in values:
        if x.dtype in (library.float64, library.float32, library.float16, library.bfloat16):
            part = (x * pointwise.pattern(library, tuple(x.shape), x)).sum()
            total = part if total is None else total + part
    return total


@st.composite
def inputs(draw: Any) -> Value:
    """Numbers of a dtype: small integers that it holds, or any between -2 and 2."""
    shape: tuple[int, ...] = ()
    for size in draw(st.lists(st.sampled_from(SIZES), max_size=6)):
        if math.prod(shape) * size <= MOST_ELEMENTS // 3:
            shape = (*shape, size)
    dtype = draw(st.sampled_from(DTYPES))
    exact = draw(st.booleans()) or not dtype.is_floating_point
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    numbers = random.integers(-4, 5, shape) if exact else random.uniform(-2, 2, shape)
    held = torch.from_numpy(np.asarray(numbers)).to(dtype)
    if dtype.is_floating_point:
        held = held.double().requires_grad_()
    return Value(dtype, held, tuple(held.detach().clone().requires_grad_(held.requires_grad) for _ in range(COPIES)),
                 exact)


@st.composite
def programs(draw: Any, most_steps: int = 12) -> Program:
    """A program that leaves a useful tolerance."""
    number = draw(st.integers(0, 2**16))
    assume(number > 0)  # hypothesis begins with the simplest of everything, which says little
    random = torch.Generator().manual_seed(number)
    program = Program(draw(st.lists(inputs(), min_size=1, max_size=3)))
    program.values = list(program.inputs)
    wanted = draw(st.integers(1, most_steps))
    for _ in range(3 * wanted):
        if len(program.steps) == wanted:
            break
        step = draw(st.sampled_from(FAMILIES))(draw, program.values)
        value = None if step is None else extended(step, [program.values[i] for i in step.operands], random)
        if value is not None:
            program.steps.append(step)
            program.values.append(value)
    made = range(len(program.inputs), len(program.values)) or range(len(program.inputs))
    program.asked = tuple(sorted(draw(st.sets(st.sampled_from(made), min_size=1, max_size=3)) | {made[-1]}))
    program.differentiated = draw(st.booleans())
    return program
