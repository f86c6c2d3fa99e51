"""Modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genesis.ir.errors import failure
from genesis.nn.modules.module import Module
from genesis.nn.modules.tree import changing
from genesis.ops.parts import stack
from genesis.runtime.contexts import Switched, Temporary


def functional_call(module: Module, parameter_and_buffer_dicts: Any, args: Any = None,
                    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False) -> Any:
    """Call a module with other tensors in place of its parameters and buffers.

    Args:
        module: stays as it is.
        parameter_and_buffer_dicts: the tensors by path, in a dictionary or several.
        args: the positional arguments, a tuple; anything else is the only one.
        tie_weights: a tensor for one path of a shared parameter is for all its paths.
        strict: every parameter and buffer must be given, and nothing else.

    Raises:
        KeyError: a path is given twice. RuntimeError: with `strict`, a path is missing or unknown.

    >>> import genesis
    >>> layer = genesis.nn.Linear(2, 1, bias=False)
    >>> functional_call(layer, {"weight": genesis.tensor([[1.0, 2.0]])}, genesis.tensor([3.0, 4.0]))
    tensor([11.])
    """
    given = _merged(parameter_and_buffer_dicts)
    owners = {**dict(module.named_parameters(remove_duplicate=False)),
              **dict(module.named_buffers(remove_duplicate=False))}
    if strict and given.keys() != owners.keys():
        raise failure("functional_call", f"Error(s) in reparametrizing for {type(module).__name__}: missing keys "
                      f"{sorted(owners.keys() - given.keys())}, unexpected keys {sorted(given.keys() - owners.keys())}",
                      hint="strict=False keeps the module's own")
    if tie_weights:
        shared = {id(owners[path]): x for path, x in given.items() if path in owners}
        given = {**{path: shared[id(x)] for path, x in owners.items() if id(x) in shared}, **given}
    arguments = () if args is None else args if isinstance(args, tuple) else (args,)
    with _replaced(module, {path: x for path, x in given.items() if path in owners}):
        return module(*arguments, **(kwargs or {}))


def _merged(dicts: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in ([dicts] if isinstance(dicts, dict) else dicts):
        for path, x in one.items():
            if path in found:
                raise KeyError(f"{path} appears in several dictionaries: functional_call does not know which to take")
            found[path] = x
    return found


def _replaced(module: Module, tensors: dict[str, Any]) -> Temporary:
    """A context inside which the module has these tensors."""
    modules = dict(module.named_modules(remove_duplicate=False))

    def look() -> Switched:
        found, back = [changing()], [changing()]
        for path, x in tensors.items():
            owner, _, name = path.rpartition(".")
            of = modules[owner]
            registry = of._parameters if name in of._parameters else of._buffers
            found.append((dict.__setitem__, registry, name, x))
            back.append((dict.__setitem__, registry, name, registry[name]))
        return Switched(found, back)
    return Temporary(look)


def stack_module_state(models: Sequence[Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The parameters and the buffers of equal modules, each stacked: for `vmap` over `functional_call`.

    >>> import genesis
    >>> parameters, buffers = stack_module_state([genesis.nn.Linear(2, 3) for _ in range(4)])
    >>> parameters["weight"].shape, parameters["weight"].is_leaf, buffers
    (genesis.Size([4, 3, 2]), True, {})
    """
    if not models:
        raise failure("stack_module_state", "Expected at least one model, got 0")
    if len({type(model) for model in models}) > 1:
        raise failure("stack_module_state", "Expected all models to be of the same class")
    if len({model.training for model in models}) > 1:
        raise failure("stack_module_state", "Expected all models to have the same training/eval mode")
    return ({name: _stacked([dict(model.named_parameters())[name] for model in models])
             for name, _ in models[0].named_parameters()},
            {name: _stacked([dict(model.named_buffers())[name] for model in models])
             for name, _ in models[0].named_buffers()})


def _stacked(tensors: list[Any]) -> Any:
    return stack(tensors).detach().requires_grad_(tensors[0].requires_grad)
