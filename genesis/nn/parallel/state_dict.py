"""State dicts of modules whose parameters are parts: of the parts, or of the whole, which fits any number of ranks.

Optimizers' states are by parameters' names, as torch has them here: numbers would say which parameters a rank has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from genesis.distributed.run import get_rank, is_initialized
from genesis.distributed.tensor import Layout
from genesis.frontend.engine_protocol import engine
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.nn.modules.module import Module


@dataclass(frozen=True)
class StateDictOptions:
    """What a state dict holds.

    Args:
        full_state_dict: whole tensors, instead of this rank's parts. All ranks take part in making them.
        cpu_offload: tensors are on the CPU; whole ones are on the first rank alone, other ranks get an empty dict.
        ignore_frozen_params: parameters that require no gradient are left out.
        strict: both sides have the same names.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    strict: bool = True


def get_model_state_dict(model: Module, *, options: StateDictOptions | None = None) -> dict[str, Any]:
    """Path → tensor for parameters and persistent buffers.

    >>> import genesis
    >>> from genesis import distributed as dist, nn
    >>> dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", 0, is_master=True), rank=0, world_size=1)
    >>> from genesis.distributed.fsdp import fully_shard
    >>> model = fully_shard(nn.Linear(2, 1))
    >>> found = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    >>> {name: tuple(x.shape) for name, x in found.items()}
    {'weight': (1, 2), 'bias': (1,)}
    >>> dist.destroy_process_group()
    """
    chosen = options or StateDictOptions()
    own = dict(model.named_parameters(remove_duplicate=False))
    found: dict[str, Any] = {}
    for name, x in model.state_dict().items():
        parameter = own.get(name)
        if chosen.ignore_frozen_params and parameter is not None and not parameter.requires_grad:
            continue
        _put(found, name, x, getattr(parameter, "sharding", None), chosen)
    return found


def set_model_state_dict(model: Module, model_state_dict: Mapping[str, Any], *,
                         options: StateDictOptions | None = None) -> Any:
    """Copy a state dict into a model: with `full_state_dict` each rank its parts of whole tensors.

    Returns:
        The paths that were missing and those that were unexpected.

    Raises:
        RuntimeError: shapes differ or, when strict, paths do.
    """
    chosen = options or StateDictOptions()
    own = dict(model.named_parameters(remove_duplicate=False))
    given = {name: _part(name, x, getattr(own.get(name), "sharding", None), chosen)
             for name, x in model_state_dict.items()}
    return model.load_state_dict(given, strict=chosen.strict)


def get_optimizer_state_dict(model: Module, optimizers: Any, *, options: StateDictOptions | None = None) -> dict[
        str, Any]:
    """{"state": {path: {name: value}}, "param_groups": [{option: value, "params": [path]}]} of an optimizer."""
    chosen = options or StateDictOptions()
    names = {id(p): name for name, p in model.named_parameters()}
    states: dict[str, Any] = {}
    for parameter, state in optimizers.state.items():
        made: dict[str, Any] = {}
        for key, x in state.items():
            of_elements = isinstance(x, Tensor) and x.spec.shape == parameter.spec.shape
            _put(made, key, x, getattr(parameter, "sharding", None) if of_elements else None, chosen)
        states[names[id(parameter)]] = made
    groups = [{**group, "params": [names[id(p)] for p in group["params"]]} for group in optimizers.param_groups]
    return {} if _left_to_the_first(chosen) else {"state": states, "param_groups": groups}


def set_optimizer_state_dict(model: Module, optimizers: Any, optim_state_dict: Mapping[str, Any], *,
                             options: StateDictOptions | None = None) -> None:
    """Take over an optimizer's state: with `full_state_dict` each rank its parts of whole tensors.

    Raises:
        KeyError: the state has a parameter that the model does not have.
        ValueError, TypeError: as of `Optimizer.load_state_dict`.
    """
    chosen = options or StateDictOptions()
    own = dict(model.named_parameters())
    numbers = {id(p): at for at, p in enumerate(p for group in optimizers.param_groups for p in group["params"])}
    states: dict[int, Any] = {}
    for name, state in optim_state_dict["state"].items():
        layout = getattr(own[name], "sharding", None)
        states[numbers[id(own[name])]] = {
            key: _part(name, x, layout, chosen) if isinstance(x, Tensor) and layout is not None and (
                tuple(x.shape) == layout.shape) else x for key, x in state.items()}
    groups = [{**group, "params": [numbers[id(own[name])] for name in group["params"]]}
              for group in optim_state_dict["param_groups"]]
    optimizers.load_state_dict({"state": states, "param_groups": groups})


def get_state_dict(model: Module, optimizers: Any, *, options: StateDictOptions | None = None) -> tuple[
        dict[str, Any], dict[str, Any]]:
    """The model's state dict and the optimizer's."""
    return (get_model_state_dict(model, options=options),
            get_optimizer_state_dict(model, optimizers, options=options))


def set_state_dict(model: Module, optimizers: Any, *, model_state_dict: Mapping[str, Any],
                   optim_state_dict: Mapping[str, Any], options: StateDictOptions | None = None) -> Any:
    """Take over a model's state dict and its optimizer's; what `set_model_state_dict` returns."""
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)


def _put(found: dict[str, Any], name: str, x: Any, layout: Layout | None, options: StateDictOptions) -> None:
    """Put a tensor into a state dict, as the options say; one after the other is gathered, and let go of."""
    if not isinstance(x, Tensor):
        found[name] = x
        return
    value = layout.gathered(x) if options.full_state_dict and layout is not None else x
    engine.materialize([value])
    if _left_to_the_first(options):
        return
    found[name] = value.cpu() if options.cpu_offload else value


def _left_to_the_first(options: StateDictOptions) -> bool:
    """Whether another rank gets the state dict."""
    return options.full_state_dict and options.cpu_offload and is_initialized() and get_rank() != 0


def _part(name: str, x: Any, layout: Layout | None, options: StateDictOptions) -> Any:
    if layout is None or not options.full_state_dict or not isinstance(x, Tensor):
        return x
    if tuple(x.shape) != layout.shape:
        raise failure("set_model_state_dict", f"{name} is of shape {list(layout.shape)}", [(name, x)],
                      hint="full_state_dict=False for a state dict of parts")
    return layout.own(x)
