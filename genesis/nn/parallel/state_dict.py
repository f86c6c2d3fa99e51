"""State dicts of modules whose parameters are parts: of the parts, or of the whole, which fits any number of ranks.

Optimizers' states are by parameters' names, as torch has them here: numbers would say which parameters a rank has.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from genesis.distributed.collectives import broadcast
from genesis.distributed.objects import broadcast_object_list
from genesis.distributed.run import get_rank, is_initialized
from genesis.distributed.tensor import Layout
from genesis.frontend.engine_protocol import engine
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.nn.modules.module import Module
from genesis.ops.creation import empty


@dataclass(frozen=True)
class StateDictOptions:
    """What a state dict holds.

    Args:
        full_state_dict: whole tensors, instead of this rank's parts. All ranks take part in making them.
        cpu_offload: tensors are on the CPU; whole ones are on the first rank alone, other ranks get an empty dict.
        ignore_frozen_params: parameters that require no gradient are left out.
        broadcast_from_rank0: of whole tensors the first rank alone has a state dict, from which all take their parts,
            one tensor after the other: a large model is in one process' memory, not in each.
        strict: both sides have the same names.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    strict: bool = True
    broadcast_from_rank0: bool = False

    def __post_init__(self) -> None:
        if self.broadcast_from_rank0 and not self.full_state_dict:
            raise failure("StateDictOptions", "full_state_dict must be True when broadcast_from_rank0 is True",
                          error=ValueError)


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
             for name, x in _items(model_state_dict, model, chosen)}
    return model.load_state_dict(given, strict=chosen.strict)


def get_optimizer_state_dict(model: Module, optimizers: Any, *, options: StateDictOptions | None = None) -> dict[
        str, Any]:
    """{"state": {path: {name: value}}, "param_groups": [{option: value, "params": [path]}]} of an optimizer."""
    chosen = options or StateDictOptions()
    names = {id(p): name for name, p in model.named_parameters()}
    states: dict[str, Any] = {}
    for parameter, state in optimizers._states.items():
        made: dict[str, Any] = {}
        layout = optimizers.state_layout(parameter)
        for key, x in state.items():
            of_elements = layout is not None and isinstance(x, Tensor) and layout.is_part(x)
            _put(made, key, x, layout if of_elements else None, chosen)
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
    flat = {(name, key): x for name, state in optim_state_dict.get("state", {}).items() for key, x in state.items()}
    for (name, key), x in _items(flat, model, chosen):
        layout = optimizers.state_layout(own[name])
        whole = isinstance(x, Tensor) and layout is not None and tuple(x.shape) == layout.shape
        states.setdefault(numbers[id(own[name])], {})[key] = _part(name, x, layout, chosen) if whole else x
    groups = [{**group, "params": [numbers[id(own[name])] for name in group["params"]]}
              for group in _of_the_first(optim_state_dict.get("param_groups"), chosen)]
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


def _items(given: Mapping[Any, Any], model: Module, options: StateDictOptions) -> Iterator[tuple[Any, Any]]:
    """The items of a state dict: with `broadcast_from_rank0` those of the first rank's, whose tensors come one after
    the other, and are let go of when the next one is asked for."""
    if not options.broadcast_from_rank0 or not is_initialized():
        yield from given.items()
        return
    kinds = {key: (x.spec.shape, x.dtype) if isinstance(x, Tensor) else x for key, x in given.items()}
    tensors = {key for key, x in given.items() if isinstance(x, Tensor)}
    kinds, tensors = _of_the_first((kinds, tensors), options)
    home = next((p.device for p in model.parameters()), "cpu")
    for key, kind in kinds.items():
        if key not in tensors:
            yield key, kind
            continue
        shape, dtype = kind
        with no_grad():
            value = (given[key].detach().to(home, copy=True) if get_rank() == 0 else
                     empty(shape, dtype=dtype, device=home))
            broadcast(value, 0)
        yield key, value


def _of_the_first(value: Any, options: StateDictOptions) -> Any:
    """The first rank's object, with `broadcast_from_rank0`."""
    if not options.broadcast_from_rank0 or not is_initialized():
        return value
    found = [value]
    broadcast_object_list(found, 0)
    return found[0]


def _part(name: str, x: Any, layout: Layout | None, options: StateDictOptions) -> Any:
    if layout is None or not options.full_state_dict or not isinstance(x, Tensor):
        return x
    if tuple(x.shape) != layout.shape:
        raise failure("set_model_state_dict", f"{name} is of shape {list(layout.shape)}", [(name, x)],
                      hint="full_state_dict=False for a state dict of parts")
    found = layout.own(x)
    if options.broadcast_from_rank0:  # of its own, so that the whole goes
        found = found.clone()
        engine.materialize([found])
    return found
