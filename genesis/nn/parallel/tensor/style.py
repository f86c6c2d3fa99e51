"""What styles share: parts of parameters, layouts that tensors are handed on with, modules of another class."""

from __future__ import annotations

from typing import Any, Final

from genesis.distributed.mesh import DeviceMesh
from genesis.distributed.tensor.layout import Layout
from genesis.distributed.tensor.placement import Partial, Placement, Replicate, Shard
from genesis.distributed.tensor.redistribute import redistribute
from genesis.frontend.draw_parts import sharded
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.nn.modules.module import Module
from genesis.nn.parameter import Parameter, ShardedParameter

REPLICATE: Final = Replicate()
PARTIAL: Final = Partial()


class ParallelStyle:
    """How a module is shared out over a mesh of one dimension."""

    def apply(self, module: Module, mesh: DeviceMesh) -> None:
        """Share the module out, in place."""
        raise NotImplementedError


def become(module: Module, style: str, **members: Any) -> None:
    """Make a module one of a class of its own: its class, with these members."""
    kind = type(module)
    made = type(style + kind.__name__, (kind,), {"__module__": kind.__module__, "made_of": kind, **members})
    object.__setattr__(module, "__class__", made)


def share_out(module: Module, name: str, dim: int, mesh: DeviceMesh) -> None:
    """Leave this process' part of a parameter, along a dimension. A parameter of two modules is cut once.

    Raises:
        RuntimeError: it is shared out otherwise already, or there are fewer elements than processes.
    """
    parameter = module._parameters.get(name)
    if parameter is None:
        return
    placements = (Shard(dim % parameter.ndim),)
    known = parameter.sharding
    if known is not None:
        if known.placements == placements and known.mesh is mesh:
            return
        raise failure("parallelize_module", f"{name} of {type(module).__name__} is shared out as {known.placements}, "
                      f"and cannot be as {placements}", [(name, parameter)],
                      hint="modules that share a parameter have the same style")
    if parameter.shape[dim] < mesh.size():
        raise failure("parallelize_module", f"dimension {dim} of {name} has fewer elements than there are ranks, "
                      f"{mesh.size()}", [(name, parameter)])
    layout = Layout(mesh, placements, tuple(parameter.shape))
    with no_grad():
        parameter.data = layout.own(parameter.detach()).clone()
    object.__setattr__(parameter, "__class__", ShardedParameter)
    parameter.sharding = layout
    sharded[id(parameter)] = parameter
    if parameter.grad is not None:
        parameter.grad = None


def summed(parameter: Parameter | None, mesh: DeviceMesh) -> Any:
    """A parameter that all processes have, each of which uses it for a part: its gradients are added."""
    if parameter is None:
        return None
    return redistribute(parameter, mesh.get_group(), (REPLICATE, REPLICATE), (PARTIAL, REPLICATE))


def summing(name: str, mesh: DeviceMesh) -> property:
    """The attribute of a module that reads its parameter so."""
    return property(lambda module: summed(module._parameters[name], mesh))


# Layouts beside tensors: what torch's DTensor would know

def handed_on(x: Tensor, placement: Placement, pending: bool = False) -> Tensor:
    """The tensor with its layout, for the style of the module that it is handed to.

    Args:
        pending: who hands it on adds its gradients: they are terms of a sum.
    """
    x._layout_for_styles = placement, pending  # type: ignore[attr-defined]
    return x


def entering(x: Any, mesh: DeviceMesh, given: Placement, wanted: Placement, partial: bool = False) -> Any:
    """What a module gets, in the layout it wants.

    Args:
        given: how it lies, unless it was handed on with a layout.
        partial: its gradients come as terms of a sum.
    """
    if not isinstance(x, Tensor):
        return x
    given, pending = getattr(x, "_layout_for_styles", (given, False))
    if pending and partial and given == wanted:
        return x
    target = REPLICATE if isinstance(given, Partial) else given
    return redistribute(x, mesh.get_group(), (given, wanted), (PARTIAL if partial else wanted, target))


def leaving(x: Any, mesh: DeviceMesh, given: Placement, wanted: Placement, local: bool, size: int | None = None) -> Any:
    """What a module gives, in the layout that is wanted of it."""
    if not isinstance(x, Tensor):
        return x
    if isinstance(wanted, Shard) and given != wanted and x.shape[wanted.dim] % mesh.size():
        raise failure("redistribute", f"dimension {wanted.dim} cannot be cut into {mesh.size()} equal parts",
                      [("tensor", x)], hint="pad it to a multiple of the number of ranks")
    found = x if given == wanted else redistribute(x, mesh.get_group(), (given, wanted), size=size)
    return found if local else handed_on(found, wanted)

