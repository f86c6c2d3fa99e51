"""Torch's names for tensor parallelism; what they are is in `genesis.nn.parallel.tensor`, which stands on modules."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from genesis.frontend.later import later_names
from genesis.ir.suggest import suggesting

if TYPE_CHECKING:
    from genesis.nn.parallel.tensor import ColwiseParallel as ColwiseParallel
    from genesis.nn.parallel.tensor import ParallelStyle as ParallelStyle
    from genesis.nn.parallel.tensor import PrepareModuleInput as PrepareModuleInput
    from genesis.nn.parallel.tensor import PrepareModuleInputOutput as PrepareModuleInputOutput
    from genesis.nn.parallel.tensor import PrepareModuleOutput as PrepareModuleOutput
    from genesis.nn.parallel.tensor import RowwiseParallel as RowwiseParallel
    from genesis.nn.parallel.tensor import SequenceParallel as SequenceParallel
    from genesis.nn.parallel.tensor import parallelize_module as parallelize_module


def __getattr__(name: str) -> Any:
    place = later_names(__name__).get(name)
    if place is None:
        return suggesting(__name__)(name)
    return getattr(import_module(place), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *later_names(__name__)})
