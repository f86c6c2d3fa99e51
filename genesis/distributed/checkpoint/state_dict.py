"""Torch's names for state dicts of modules that are sharded; what they are is in `genesis.nn.parallel.state_dict`."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from genesis.frontend.later import later_names
from genesis.ir.suggest import suggesting

if TYPE_CHECKING:
    from genesis.nn.parallel.state_dict import StateDictOptions as StateDictOptions
    from genesis.nn.parallel.state_dict import get_model_state_dict as get_model_state_dict
    from genesis.nn.parallel.state_dict import get_optimizer_state_dict as get_optimizer_state_dict
    from genesis.nn.parallel.state_dict import get_state_dict as get_state_dict
    from genesis.nn.parallel.state_dict import set_model_state_dict as set_model_state_dict
    from genesis.nn.parallel.state_dict import set_optimizer_state_dict as set_optimizer_state_dict
    from genesis.nn.parallel.state_dict import set_state_dict as set_state_dict


def __getattr__(name: str) -> Any:
    place = later_names(__name__).get(name)
    if place is None:
        return suggesting(__name__)(name)
    return getattr(import_module(place), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *later_names(__name__)})
