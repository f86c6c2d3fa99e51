"""An optimizer's state as a dictionary, and taking one over, with the hooks of both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend import session
from genesis.frontend.tensor import Tensor
from genesis.optim import hooks
from genesis.optim.loading import load

if TYPE_CHECKING:
    from genesis.optim.optimizer import Optimizer


def state_dict_of(optimizer: Optimizer) -> dict[str, Any]:
    """See `Optimizer.state_dict`."""
    session.states_shown_of(optimizer)
    for hook in hooks.of(optimizer, "state_pre"):
        hook(optimizer)
    numbers = {id(p): i for i, p in enumerate(optimizer._parameters())}
    left_out = optimizer.without_step()
    state = {
        "state": {numbers[id(key)] if isinstance(key, Tensor) else key: dict(state)
                  for key, state in optimizer._states.items() if key not in left_out},
        "param_groups": [{**{name: value for name, value in group.items() if name != "params"},
                          "params": [numbers[id(p)] for p in group["params"]]} for group in optimizer.param_groups],
    }
    for hook in hooks.of(optimizer, "state_post"):
        changed = hook(optimizer, state)
        state = state if changed is None else changed
    return state


def take_over(optimizer: Optimizer, given: dict[str, Any]) -> None:
    """See `Optimizer.load_state_dict`."""
    if "_hooks" in vars(optimizer):
        given = dict(given)
    for hook in hooks.of(optimizer, "load_pre"):
        changed = hook(optimizer, given)
        given = given if changed is None else changed
    load(optimizer, given)
    optimizer.__setstate__({"state": optimizer._states, "param_groups": optimizer.param_groups})
    for hook in hooks.of(optimizer, "load_post"):
        hook(optimizer)
