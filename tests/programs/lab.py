"""What a program is run with: a library, numbers that both libraries get alike, and whether steps are compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

import genesis

torch.set_num_threads(1)


@dataclass
class Lab:
    """One run of a program.

    Attributes:
        T: the library, torch or genesis.
        dtype: of floating-point data, the library's default meanwhile.
        compiled: steps go through `T.compile`.
    """

    T: ModuleType
    dtype: str = "float32"
    compiled: bool = False
    draws: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    @property
    def device(self) -> Any:
        """Where tensors are that name no device; constructors of before (`T.LongTensor`) make them on the CPU."""
        return self.T.zeros(()).device

    @property
    def nn(self) -> Any:
        """T.nn."""
        return self.T.nn

    @property
    def F(self) -> Any:
        """T.nn.functional."""
        return self.T.nn.functional

    @property
    def optim(self) -> Any:
        """T.optim."""
        return self.T.optim

    def normal(self, *shape: int) -> Any:
        """Standard normal numbers."""
        return self.T.tensor(self.draws.standard_normal(shape).astype(self.dtype))

    def uniform(self, *shape: int) -> Any:
        """Numbers of [0, 1)."""
        return self.T.tensor(self.draws.random(shape).astype(self.dtype))

    def ints(self, high: int, *shape: int) -> Any:
        """int64 numbers of [0, high)."""
        return self.T.tensor(self.draws.integers(0, high, shape))

    def same(self, module: Any) -> Any:
        """The module, its parameters drawn here: the libraries' generators have other numbers."""
        with self.T.no_grad():
            for name, p in module.named_parameters():
                values = self.draws.standard_normal(tuple(p.shape)) if p.ndim else self.draws.standard_normal()
                scale = 0.1 if p.ndim < 2 else 1 / np.sqrt(np.prod(p.shape[1:]))
                shift = 1.0 if p.ndim == 1 and name.endswith("weight") else 0.0
                p.copy_(self.T.tensor(np.asarray(scale * values + shift, self.dtype)))
        return module

    def step(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A decorator of a program's step: compiled, where the run is."""
        return self.T.compile(function) if self.compiled else function


class Program(NamedTuple):
    """A program, and how it is compared.

    Attributes:
        run: Lab → what it computed: numbers and tensors, in any nesting.
        chaotic: steps amplify rounding (an adversary, a momentum near a kink): compared in float64, at 1e-9.
        quick: part of the default tests.
        tolerance_on_a_gpu: of a program that computes in bfloat16 there, as mixed precision does.
        cpus_numbers: a GPU's results are compared with torch's on the CPU, for torch's own on a GPU are not exact.
    """

    run: Callable[[Lab], Any]
    chaotic: bool
    quick: bool
    tolerance_on_a_gpu: float | None
    cpus_numbers: bool


PROGRAMS: dict[str, Program] = {}


def program(run: Callable[[Lab], Any] | None = None, *, chaotic: bool = False, quick: bool = False,
            tolerance_on_a_gpu: float | None = None, cpus_numbers: bool = False) -> Any:
    """Enter a function into `PROGRAMS`."""
    def enter(run: Callable[[Lab], Any]) -> Callable[[Lab], Any]:
        assert run.__name__ not in PROGRAMS
        PROGRAMS[run.__name__] = Program(run, chaotic, quick, tolerance_on_a_gpu, cpus_numbers)
        return run
    return enter if run is None else enter(run)


def results(name: str, library: ModuleType, compiled: bool = False, device: str = "cpu") -> list[np.ndarray]:
    """All numbers of a program, flat, with one library. Tensors that name no device are made on `device`."""
    found = PROGRAMS[name]
    dtype = "float64" if found.chaotic else "float32"
    library.manual_seed(0)
    library.set_default_dtype(getattr(library, dtype))
    if device != "cpu":
        library.set_default_device(device)
    try:
        return list(_flat(found.run(Lab(library, dtype, compiled))))
    finally:
        library.set_default_dtype(library.float32)
        if device != "cpu":
            library.set_default_device(None)


def _flat(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _flat(part)
    elif isinstance(value, dict):
        yield from _flat(list(value.values()))
    elif isinstance(value, (genesis.Tensor, torch.Tensor)):
        yield np.array(value.detach().cpu().numpy())
    else:
        yield np.asarray(value)
