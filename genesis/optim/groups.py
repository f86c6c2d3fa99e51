"""Parameter groups: what a user may list, and the options that a group has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure, kind_and_conversion

if TYPE_CHECKING:
    from genesis.optim.optimizer import Optimizer

Group = dict[str, Any]
"""A group's options by name, and its parameters under "params"."""


def with_names_apart(given: Group) -> Group:
    """The group with a list of parameters, and of their names where it has pairs of both."""
    group, listed = dict(given), given["params"]
    if isinstance(listed, set):
        raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of tensors "
                        "in sets will change between runs. Please use a list instead.")
    found = [listed] if isinstance(listed, Tensor) else list(listed)
    names = [each[0] for each in found if isinstance(each, tuple)]
    if names and len(names) < len(found):
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    group["params"] = [each[1] for each in found] if names else found
    if names:
        group["param_names"] = names
    return group


def distinct_parameters(listed: Sequence[Tensor]) -> list[Tensor]:
    """The parameters in the order in which each is listed first."""
    return list({id(parameter): parameter for parameter in listed}.values())


def check_parameter(optimizer: Optimizer, parameter: Any, known: Collection[int]) -> None:
    """Refuse what the optimizer cannot step: no tensor, one that was computed, or one of those with these addresses.

    Raises:
        TypeError: it is no tensor.
        ValueError: it was computed, is in another group, or is a rank's part where a step depends on the whole.
    """
    if not isinstance(parameter, Tensor):
        raise TypeError("optimizer can only optimize Tensors, but one of the params is "
                        f"{kind_and_conversion(parameter)}")
    if not parameter.is_leaf:
        raise ValueError("can't optimize a non-leaf Tensor")
    if id(parameter) in known:
        raise ValueError("some parameters appear in more than one parameter group")
    layout = getattr(parameter, "sharding", None)
    if not optimizer.by_element and layout is not None and tuple(parameter.shape) != tuple(layout.shape):
        name = type(optimizer).__name__
        raise failure(name, f"a step depends on all of a parameter, and this is a rank's part of one of shape "
                      f"{list(layout.shape)}", [("parameter", parameter)], error=ValueError,
                      hint="AdamW or SGD, whose steps are by element; or DistributedDataParallel, with which "
                           f"{name} has whole parameters")


def check_option(optimizer: str, name: str, value: float, low: float = 0.0, below: float = float("inf")) -> None:
    """ValueError unless low ≤ value < below."""
    if not low <= value < below:
        raise failure(optimizer, f"Invalid {name} value: {value}", hint=f"{low} ≤ {name}"
                      + (f" < {below}" if below != float("inf") else ""), error=ValueError)
