"""Torch's names for fully sharded training; what they are is in `genesis.nn.parallel.fsdp`, which stands on modules."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from genesis.frontend.later import later_names
from genesis.ir.suggest import suggesting

if TYPE_CHECKING:
    from genesis.nn.parallel.fsdp import FSDPModule as FSDPModule
    from genesis.nn.parallel.fsdp import MixedPrecisionPolicy as MixedPrecisionPolicy
    from genesis.nn.parallel.fsdp import fully_shard as fully_shard


def __getattr__(name: str) -> Any:
    place = later_names(__name__).get(name)
    if place is None:
        return suggesting(__name__)(name)
    return getattr(import_module(place), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *later_names(__name__)})
