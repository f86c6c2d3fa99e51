"""A pretended GPU whose kernels do nothing, and counts of what is compiled for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import genesis
from genesis import engine
from genesis.codegen.cuda.source import KernelSource
from genesis.engine.backends import FakeCUDABackend
from genesis.engine.compilation import Compiled
from genesis.runtime.cuda.driver import LaunchArguments
from genesis.runtime.fake_cuda.driver import HostDriver, HostLaunch
from genesis.runtime.plan import KernelImage


class IdleDriver(HostDriver):
    """A `HostDriver` that launches no kernel: memory keeps what it held, every result is worthless."""

    def load_kernel(self, image: KernelImage) -> str:
        """The kernel's name: its source is not even read."""
        self.calls["load"] += 1
        return image.name

    def prepare_launch(self, kernel: str, image: KernelImage, grid: tuple[int, int, int],
                       arguments: LaunchArguments, early: bool = True) -> HostLaunch:
        """A launch that does nothing."""
        return IdleLaunch(kernel, None, grid, arguments, {})


class IdleLaunch(HostLaunch):
    """A launch of nothing."""

    def bound(self) -> Callable[[], Any]:
        """A function that does nothing."""
        return partial(bool)


class Counting(FakeCUDABackend):
    """Counts different kernels, and keeps the plans that were made.

    Attributes:
        kernels: what decides each compiled kernel.
        plans: all that the engine made, in order.
    """

    def __init__(self) -> None:
        super().__init__(IdleDriver(memory_bytes=1 << 30))
        self.kernels: set[str] = set()
        self.plans: list[Compiled] = []

    def compile(self, sources: Sequence[KernelSource]) -> Sequence[KernelImage]:
        """Images that only name their sources."""
        self.kernels.update(repr(source.key_parts()) for source in sources)
        return super().compile(sources)


@contextmanager
def counting() -> Iterator[Counting]:
    """Inside, "cuda" is an idle GPU."""
    backend = Counting()
    with backend, engine.observe(backend.plans.append):
        genesis.manual_seed(0)
        yield backend
