"""`weight_norm` and `spectral_norm` as they were before parametrizations: parameters `weight_g` and `weight_v`,
`weight_orig` and the buffers `weight_u` and `weight_v`. The weight is a property of the module's own class."""

from __future__ import annotations

from typing import Any

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.frontend.writes import assign_all
from genesis.nn.functional import normalize
from genesis.nn.modules.tree import changed
from genesis.nn.parameter import Parameter
from genesis.nn.utils.parametrizations import lengths_except, outputs_of
from genesis.ops.conversion import copied
from genesis.ops.linalg import mv


def _become(module: Any, name: str, get: Any) -> None:
    """Give the module a class of its own with this property."""
    before = type(module)
    made = type(before.__name__, (before,), {name: property(get), "_before": before, "__module__": before.__module__})
    object.__setattr__(module, "__class__", made)
    changed()


def _restore(module: Any, name: str, value: Tensor) -> None:
    object.__setattr__(module, "__class__", type(module)._before)
    module.register_parameter(name, Parameter(value.detach().clone()))
    changed()


def _taken(module: Any, name: str) -> Parameter:
    weight = module._parameters.get(name)
    if weight is None:
        raise ValueError(f"The module '{type(module).__name__}' has no parameter with name '{name}'")
    delattr(module, name)
    return weight


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """A weight as length, `<name>_g`, and direction, `<name>_v` (Salimans and Kingma 2016).

    >>> from genesis import nn
    >>> [key for key, _ in weight_norm(nn.Linear(3, 2)).named_parameters()]
    ['bias', 'weight_g', 'weight_v']
    """
    weight = _taken(module, name)
    with no_grad():
        module.register_parameter(f"{name}_g", Parameter(lengths_except(weight, dim).detach()))
    module.register_parameter(f"{name}_v", Parameter(weight.data))

    def get(self: Any) -> Tensor:
        g, v = getattr(self, f"{name}_g"), getattr(self, f"{name}_v")
        return v * (g / lengths_except(v, dim))
    _become(module, name, get)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Make the weight a parameter again, of the value that it has."""
    if f"{name}_g" not in module._parameters:
        raise ValueError(f"weight_norm of '{name}' not found in {module}")
    value = getattr(module, name)
    delattr(module, f"{name}_g")
    delattr(module, f"{name}_v")
    _restore(module, name, value)
    return module


def spectral_norm(module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12,
                  dim: int | None = None) -> Any:
    """A weight of spectral norm 1 (Miyato et al. 2018): `<name>_orig` over its norm, which power iterations find,
    `n_power_iterations` before each forward in training."""
    weight = _taken(module, name)
    along = outputs_of(module) if dim is None else dim
    module.register_parameter(f"{name}_orig", weight)

    def matrix_of(self: Any) -> Tensor:
        return getattr(self, f"{name}_orig").movedim(along, 0).flatten(1)
    rows, columns = matrix_of(module).shape
    for suffix, size in (("u", rows), ("v", columns)):
        module.register_buffer(f"{name}_{suffix}", normalize(weight.detach().new_empty(size).normal_(), dim=0, eps=eps))

    @no_grad()
    def iterate(self: Any, args: Any) -> None:
        if self.training:
            matrix, kept = matrix_of(self), [getattr(self, f"{name}_u"), getattr(self, f"{name}_v")]
            u, v = kept
            for _ in range(n_power_iterations):
                v = normalize(mv(matrix.t(), u), dim=0, eps=eps)
                u = normalize(mv(matrix, v), dim=0, eps=eps)
            assign_all(kept, [copied(x, found) for x, found in zip(kept, (u, v), strict=True)])

    def get(self: Any) -> Tensor:
        u, v = getattr(self, f"{name}_u").clone(), getattr(self, f"{name}_v").clone()
        return getattr(self, f"{name}_orig") / u.dot(mv(matrix_of(self), v))
    module.__dict__.setdefault("_spectral", {})[name] = module.register_forward_pre_hook(iterate)
    _become(module, name, get)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Make the weight a parameter again, of the value that it has."""
    hooks = module.__dict__.get("_spectral", {})
    if name not in hooks:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    hooks.pop(name).remove()
    value = getattr(module, name)
    for suffix in ("orig", "u", "v"):
        delattr(module, f"{name}_{suffix}")
    _restore(module, name, value)
    return module
