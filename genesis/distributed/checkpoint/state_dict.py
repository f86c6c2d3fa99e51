"""Torch's names for state dicts of modules that are sharded; what they are is in `genesis.nn.parallel.state_dict`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from genesis.frontend.later import names_later

if TYPE_CHECKING:
    from genesis.nn.parallel.state_dict import StateDictOptions as StateDictOptions
    from genesis.nn.parallel.state_dict import get_model_state_dict as get_model_state_dict
    from genesis.nn.parallel.state_dict import get_optimizer_state_dict as get_optimizer_state_dict
    from genesis.nn.parallel.state_dict import get_state_dict as get_state_dict
    from genesis.nn.parallel.state_dict import set_model_state_dict as set_model_state_dict
    from genesis.nn.parallel.state_dict import set_optimizer_state_dict as set_optimizer_state_dict
    from genesis.nn.parallel.state_dict import set_state_dict as set_state_dict

__getattr__, __dir__ = names_later(__name__)
